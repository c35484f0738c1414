//! Each lint with an input in which it must speak, and one in which it must not.

use super::*;

/// An input of a lint: a variable of a worker with these resources, a role, a manifest or a script.
enum In {
    Env(&'static str, &'static str, &'static [(&'static str, &'static str)]),
    Role(fn() -> RoleView),
    Manifest(&'static str),
    Script(&'static str),
}

impl In {
    fn codes(&self) -> Vec<String> {
        let (profile, catalogue) = (Profile::default(), Catalogue::builtin());
        let (options, sites) = (FabricRequest::default(), Profiles::builtin().of_sites().unwrap());
        let settings = MutateOptions {
            by_evidence: Some(&sites),
            ..MutateOptions::offline(&profile, &options, &catalogue)
        };
        let of = |findings: Vec<weftrun_core::Finding>| findings.into_iter().map(|one| one.code).collect();
        match self {
            Self::Env(name, value, resources) => by_profile(role(&[(name, value)], resources), "eks-image"),
            Self::Role(role) => by_profile(role(), "eks-image"),
            Self::Manifest(text) => of(lint_document(text, Start::of("a.yaml"), &settings)),
            Self::Script(text) => {
                let text = format!("#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n{text}\n");
                of(lint_sbatch(&text, Start::of("a.sbatch"), &settings))
            }
        }
    }
}

/// A worker on a type, with variables.
pub(super) fn on(instance: &str, env: &[(&str, &str)], resources: &[(&str, &str)]) -> RoleView {
    RoleView { instance_types: vec![instance.to_owned()], ..role(env, resources) }
}

const ALL_P5: &[(&str, &str)] = EFA;
pub(super) const NO_PAGES: &[(&str, &str)] =
    &[("nvidia.com/gpu", "8"), ("vpc.amazonaws.com/efa", "32"), ("memory", "1Ti")];
pub(super) const NEURON: &[(&str, &str)] =
    &[("aws.amazon.com/neuron", "16"), ("vpc.amazonaws.com/efa", "8"), ("memory", "400Gi")];

/// Each lint with an input in which it must speak, and one in which it must not.
const PROOFS: &[(&str, In, In)] = {
    use In::{Env, Manifest, Role, Script};
    &[
        (
            "L-API-VERSION",
            Manifest("apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\nspec: {}\n"),
            Manifest("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {}\n"),
        ),
        (
            "L-CAPABILITY",
            Role(|| {
                let mut role = role(&[], EFA);
                role.container.capabilities = vec!["CAP_NET_ADMIN".into()];
                role
            }),
            Role(|| {
                let mut role = role(&[], EFA);
                role.container.capabilities = vec!["NET_ADMIN".into()];
                role
            }),
        ),
        (
            "L-CPU-ALL",
            Role(|| on("p5.48xlarge", &[], &[("nvidia.com/gpu", "8"), ("cpu", "192")])),
            Role(|| on("p5.48xlarge", &[], &[("nvidia.com/gpu", "8"), ("cpu", "180")])),
        ),
        (
            "L-DEBUG-FILE",
            Script("export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_FILE=logs/nccl-$SLURM_JOB_ID.log\nsrun a"),
            Script("export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_FILE=logs/nccl.%h.%p\nsrun a"),
        ),
        (
            "L-DEBUG-LEVEL",
            Env("NCCL_DEBUG", "DEBUG", EFA),
            Script("export NCCL_DEBUG=warn NCCL_DEBUG_SUBSYS=ALL\nsrun a"),
        ),
        (
            "L-DEV-INFINIBAND",
            Role(|| {
                let mut role = role(&[], RDMA);
                let host_path = Some("/dev/infiniband".into());
                role.volumes = vec![VolumeView { name: "d".into(), host_path, ..VolumeView::default() }];
                role
            }),
            Role(|| {
                let mut role = role(&[], &[("nvidia.com/gpu", "8")]);
                let host_path = Some("/dev/infiniband".into());
                role.volumes = vec![VolumeView { name: "d".into(), host_path, ..VolumeView::default() }];
                role
            }),
        ),
        ("L-DUP-KEY", Manifest("kind: A\na: 1\na: 2\n"), Manifest("kind: A\na: 1\nb: {a: 2}\n")),
        (
            "L-EFA-RDMA-DEFAULT",
            Env("FI_EFA_USE_DEVICE_RDMA", "1", EFA),
            Role(|| on("p5.48xlarge", &[("FI_EFA_USE_DEVICE_RDMA", "1")], ALL_P5)),
        ),
        (
            "L-EFA-RDMA-OFF",
            Env("FI_EFA_USE_DEVICE_RDMA", "0", EFA),
            Role(|| on("g5.48xlarge", &[("FI_EFA_USE_DEVICE_RDMA", "0")], &[("nvidia.com/gpu", "8")])),
        ),
        ("L-EFA-TUNING", Env("NCCL_BUFFSIZE", "4194304", EFA), Env("NCCL_MIN_NCHANNELS", "8", EFA)),
        (
            "L-FIELD-IGNORED",
            Manifest("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {cleanPodPolicy: Running}\n"),
            Manifest(
                "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {runPolicy: {cleanPodPolicy: Running}}\n",
            ),
        ),
        (
            "L-FORK-SAFE",
            Env("FI_EFA_FORK_SAFE", "1", EFA),
            Role(|| role(&[("FI_EFA_FORK_SAFE", "1"), ("NVSHMEM_REMOTE_TRANSPORT", "libfabric")], EFA)),
        ),
        (
            "L-GID-INDEX",
            Env("NCCL_IB_GID_INDEX", "3", RDMA),
            Role(|| {
                let mut role = role(&[("NCCL_IB_GID_INDEX", "3")], RDMA);
                role.container.image = Some("x/tests:cuda12-nccl2.20.5-1".into());
                role
            }),
        ),
        (
            "L-GLOO-IFNAME",
            Env("GLOO_SOCKET_IFNAME", "^lo,docker", RDMA),
            Env("NCCL_SOCKET_IFNAME", "^lo,docker", RDMA),
        ),
        (
            "L-HUGE-PAGE-OFF",
            Env("FI_EFA_USE_HUGE_PAGE", "0", EFA),
            Script("export FI_PROVIDER=efa\nexport FI_EFA_USE_HUGE_PAGE=0\nsrun a"),
        ),
        ("L-HUGEPAGES-MISSING", Role(|| role(&[], NO_PAGES)), Env("FI_EFA_USE_HUGE_PAGE", "0", NO_PAGES)),
        ("L-IB-DISABLED", Env("NCCL_IB_DISABLE", "1", RDMA), Env("NCCL_IB_DISABLE", "1", EFA)),
        (
            "L-LIBRARY-RELATIVE",
            Env("LD_LIBRARY_PATH", "lib:/usr/lib", EFA),
            Env("LD_LIBRARY_PATH", "/lib", EFA),
        ),
        (
            "L-MEMORY-SMALL",
            Role(|| role(&[], &[("nvidia.com/gpu", "8"), ("memory", "8000Mi")])),
            Role(|| role(&[], &[("nvidia.com/gpu", "1"), ("memory", "512Mi")])),
        ),
        ("L-NAME-MISSPELT", Env("NCCL_BUFFERSIZE", "1", RDMA), Env("NCCL_BUFFSIZE", "1", RDMA)),
        ("L-NAME-UNKNOWN", Env("NCCL_INFO", "DEBUG", EFA), Env("NCCL_DEBUG", "INFO", EFA)),
        (
            "L-NAME-VERSION",
            Script(
                "#SBATCH --container-image=nvcr.io#nvidia/pytorch:23.10-py3\nexport NCCL_RAS_ENABLE=0\nsrun a",
            ),
            Script(
                "#SBATCH --container-image=nvcr.io#nvidia/pytorch:25.10-py3\nexport NCCL_RAS_ENABLE=0\nsrun a",
            ),
        ),
        (
            "L-NO-VALUE",
            Manifest("kind: A\nresources: {limits: {nvidia.com/gpu: }}\n"),
            Manifest("kind: A\nresources: {limits: {nvidia.com/gpu: 8}}\n"),
        ),
        ("L-NPROC", Manifest(NPROC), Manifest(NPROC_OF_ITS_OWN)),
        (
            "L-NVLS-OFF",
            Role(|| on("p5.48xlarge", &[("NCCL_NVLS_ENABLE", "0")], &[("nvidia.com/gpu", "8")])),
            Role(|| on("p4d.24xlarge", &[("NCCL_NVLS_ENABLE", "0")], &[("nvidia.com/gpu", "8")])),
        ),
        ("L-ON-SOCKETS", Env("NCCL_NET", "Socket", EFA), Env("NCCL_NET", "AWS Libfabric", EFA)),
        ("L-PLUGIN-NONE", Env("NCCL_NET_PLUGIN", "none", EFA), Env("NCCL_NET_PLUGIN", "none", RDMA)),
        (
            "L-PRIVILEGED",
            Role(|| {
                let mut role = role(&[], RDMA);
                role.container.privileged = true;
                role
            }),
            Role(|| {
                let mut role = role(&[], &[("nvidia.com/gpu", "8")]);
                role.container.privileged = true;
                role
            }),
        ),
        ("L-PROTO-SIMPLE", Env("NCCL_PROTO", "simple", EFA), Env("NCCL_PROTO", "simple", RDMA)),
        ("L-RDMAV", Env("RDMAV_FORK_SAFE", "1", EFA), Env("RDMAV_FORK_SAFE", "1", RDMA)),
        (
            "L-SBATCH-LATE",
            Script("module load x\n#SBATCH --time=1:00\nsrun a"),
            Script("cat > b.sh <<EOT\n#SBATCH -N 1\nEOT\nsbatch b.sh\ndone"),
        ),
        ("L-SBATCH-VARIABLE", Script("#SBATCH -o $HOME/log\nsrun a"), Script("#SBATCH -o %j.log\nsrun a")),
        ("L-SHELL-SYNTAX", Script("if true; then\nsrun a"), Script("if true; then srun a; fi")),
        (
            "L-SHM-HOSTPATH",
            Role(|| {
                let mut role = role(&[], EFA);
                let host_path = Some("/dev/shm".into());
                role.volumes = vec![VolumeView { name: "shm".into(), host_path, ..VolumeView::default() }];
                role.container.mounts = vec![MountView { volume: "shm".into(), path: "/dev/shm".into() }];
                role
            }),
            Role(|| {
                let mut role = role(&[], EFA);
                role.volumes = vec![VolumeView { name: "shm".into(), ..VolumeView::default() }];
                role.container.mounts = vec![MountView { volume: "shm".into(), path: "/dev/shm".into() }];
                role
            }),
        ),
        (
            "L-SHM-TRANSFER",
            Env("FI_EFA_ENABLE_SHM_TRANSFER", "1", EFA),
            Env("FI_EFA_ENABLE_SHM_TRANSFER", "0", EFA),
        ),
        (
            "L-SOCKET-IFNAME",
            Env("NCCL_SOCKET_IFNAME", "^docker,lo,veth,eth", EFA),
            Env("NCCL_SOCKET_IFNAME", "^lo,docker,veth", EFA),
        ),
        (
            "L-SOCKET-PRODUCT",
            Role(|| role(&[("NCCL_SOCKET_NTHREADS", "16"), ("NCCL_NSOCKS_PERTHREAD", "8")], RDMA)),
            Role(|| role(&[("NCCL_SOCKET_NTHREADS", "8"), ("NCCL_NSOCKS_PERTHREAD", "8")], RDMA)),
        ),
        ("L-SOCKET-TUNING", Env("NCCL_SOCKET_NTHREADS", "4", EFA), Env("NCCL_SOCKET_NTHREADS", "4", RDMA)),
        (
            "L-TORCH-RENAMED",
            Script("export NCCL_ASYNC_ERROR_HANDLING=1\nsrun torchrun a.py"),
            Script("export NCCL_ASYNC_ERROR_HANDLING=1\nsrun ./all_reduce_perf -b 8"),
        ),
    ]
};

const NPROC: &str = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  nprocPerNode: '4'\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: x\n            command: [torchrun, a.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n";
const NPROC_OF_ITS_OWN: &str = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  nprocPerNode: '4'\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: x\n            command: [torchrun, --nproc_per_node=8, a.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n";

#[test]
fn every_lint_speaks_where_it_must_and_is_silent_where_it_must_not() {
    for (code, speaks, silent) in PROOFS {
        let (speaks, silent) = (speaks.codes(), silent.codes());
        assert!(speaks.iter().any(|found| found == code), "{code}: {speaks:?}");
        assert!(!silent.iter().any(|found| found == code), "{code}: {silent:?}");
    }
    for code in weftrun_core::explain::codes().filter(|code| code.code.starts_with("L-")) {
        assert!(PROOFS.iter().any(|(proved, ..)| *proved == code.code), "{} has no proof", code.code);
        assert!(code.source.starts_with("https://"), "{} has no source", code.code);
    }
}
