//! Lint: its findings, and no findings for correct input.

mod nodes;
mod proofs;

use std::fs;
use std::path::Path;
use weftrun_convert::lint;
use weftrun_convert::{MutateOptions, Splitter, Start, lint_document, lint_sbatch, mutate, mutate_sbatch};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::env_names::{GROUPS, nearest};
use weftrun_core::fabric::view::{ContainerView, EnvView, JobKind, JobView, MountView, RoleView, VolumeView};
use weftrun_core::fabric::{Profile, Profiles};
use weftrun_core::request::{Fabric, FabricRequest};
use weftrun_core::shell::unexpanded;

use proofs::{NEURON, NO_PAGES, on};

fn role(env: &[(&str, &str)], asked: &[(&str, &str)]) -> RoleView {
    let amounts: std::collections::BTreeMap<String, String> =
        asked.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect();
    let env = env.iter().enumerate().map(|(index, (name, value))| EnvView {
        name: (*name).to_owned(),
        value: Some((*value).to_owned()),
        at: format!("/env/{index}"),
    });
    RoleView {
        name: "Worker".to_owned(),
        worker: true,
        replicas: 2,
        container: ContainerView {
            env: env.collect(),
            limits: amounts.clone(),
            requests: amounts,
            ..ContainerView::default()
        },
        ..RoleView::default()
    }
}

fn codes(role: RoleView) -> Vec<String> {
    by_profile(role, "dgxc")
}

fn by_profile(role: RoleView, profile: &str) -> Vec<String> {
    let job = JobView { kind: JobKind::PyTorchJob, roles: vec![role], ..JobView::default() };
    let profile = Profiles::builtin().get(profile).unwrap();
    let mut codes: Vec<String> = lint::job(&job, Fabric::Auto, &profile, &Catalogue::builtin())
        .into_iter()
        .map(|lint| lint.finding.code)
        .collect();
    codes.sort();
    codes
}

const EFA: &[(&str, &str)] =
    &[("nvidia.com/gpu", "8"), ("vpc.amazonaws.com/efa", "32"), ("hugepages-2Mi", "5Gi"), ("memory", "1Ti")];
const RDMA: &[(&str, &str)] = &[("nvidia.com/gpu", "8"), ("rdma/ib", "1")];

#[test]
fn slips_that_people_really_made_are_found() {
    for (slip, meant) in [
        ("RDMAV_FORM_SAFE", "RDMAV_FORK_SAFE"),
        ("NCCL_BUFFERSIZE", "NCCL_BUFFSIZE"),
        ("FI_HMEM_CUDA_USE_BMABUF", "FI_HMEM_CUDA_USE_DMABUF"),
        ("NCLL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_HAC", "NCCL_IB_HCA"),
    ] {
        assert_eq!(nearest(slip), Some(meant), "{slip}");
    }
    assert_eq!(codes(role(&[("NCCL_INFO", "DEBUG")], EFA)), ["L-NAME-UNKNOWN"]);
    assert_eq!(codes(role(&[("NCCL_NVLS_DISABLE", "1")], EFA)), ["L-NAME-UNKNOWN"]);
}

#[test]
fn known_names_families_and_strangers_are_no_slips() {
    for name in GROUPS.iter().flat_map(|group| &group.names).map(|known| known.name) {
        assert_eq!(nearest(name), None, "{name}");
    }
    for name in [
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_FASTRAK_NUM_FLOWS",
        "NCCL_FASTRAK_IFNAMES",
        "NCCL_TESTS_DIR",
        "NCCL_HOME",
        "NCCL_ROOT",
        "NCCL_VERSION",
        "NCCL_TEST",
        "FI_VERSION",
        "PATH",
        "NODE_RANK",
        "UCX_HOME",
        "NCCL_LIB",
        "NCCL_DIR",
        "FI_PATH",
        "NCCL_TUNER_CONFIG_PATH",
        "NCCL_GPUDIRECTTCPX_CTRL_DEV",
        "OMPI_MCA_btl",
        "CUDA_DEBUG",
        "NCCL_DEBUG_MODE_XYZ",
    ] {
        assert_eq!(nearest(name), None, "{name}");
    }
}

/// Settings that are right, or about which nothing can be proved.
#[test]
fn what_cannot_be_proved_is_not_reported() {
    for (name, value, resources) in [
        ("FI_PROVIDER", "efa", EFA),
        ("FI_LOG_LEVEL", "warn", EFA),
        ("FI_EFA_TX_MIN_CREDITS", "64", EFA),
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0", EFA),
        ("NCCL_BUFFSIZE", "8388608", EFA),
        ("NCCL_BUFFSIZE", "4194304", RDMA),
        ("NCCL_TUNER_PLUGIN", "/opt/lib/libnccl-ofi-tuner.so", EFA),
        ("NCCL_NET_PLUGIN", "ofi", EFA),
        ("NCCL_SOCKET_IFNAME", "eth0", EFA),
        ("NCCL_TOPO_FILE", "/etc/topo.xml", EFA),
        ("PATH", "$(BASE)/bin:/bin", EFA),
        ("SUFFIX", "a$b", EFA),
        ("NCCL_NET", "IB", RDMA),
        ("FI_PROVIDER", "tcp", RDMA),
        ("FI_EFA_FORK_SAFE", "1", NEURON),
        ("FI_EFA_USE_HUGE_PAGE", "0", NO_PAGES),
        ("NCCL_HOME", "/opt/nccl", EFA),
        ("NCCL_TESTS_DIR", "/opt/nccl-tests", EFA),
        ("NCCL_GPUDIRECTTCPX_CTRL_DEV", "eth0", RDMA),
    ] {
        let found = by_profile(role(&[(name, value)], resources), "eks-image");
        let found: Vec<&String> = found.iter().filter(|code| *code != "L-HUGEPAGES-MISSING").collect();
        assert!(found.is_empty(), "{name}={value}: {found:?}");
    }
    for (name, value, resources, code) in [
        ("FI_PROVIDER", "ofi_rxm;tcp", EFA, "L-ON-SOCKETS"),
        ("PATH", "$PATH:/x", EFA, "W-ENV-DOLLAR"),
        ("GLOO_SOCKET_IFNAME", "lo", RDMA, "L-SOCKET-IFNAME"),
        ("NCCL_SOCKET_TIMEOUT", "60000", RDMA, "L-NAME-UNKNOWN"),
        ("NCCL_TREE_THRESHOLD", "0", EFA, "L-NAME-UNKNOWN"),
        ("NCCL_FANCY_NEW_SETTING", "1", RDMA, "L-NAME-UNKNOWN"),
    ] {
        assert_eq!(by_profile(role(&[(name, value)], resources), "eks-image"), [code], "{name}={value}");
    }
    // A profile that sets a value itself does not have it reported: `mutate` and `lint` agree.
    let index = || role(&[("NCCL_IB_GID_INDEX", "3")], RDMA);
    assert_eq!((by_profile(index(), "oci"), by_profile(index(), "roce").len()), (Vec::new(), 1));
}

/// One interface of 32, or more than there are: as `mutate` reports it.
#[test]
fn interfaces_are_counted_on_whole_nodes_of_a_known_type() {
    let of = |instance: &str, count: &str, gpus: &str| {
        let asked = [
            ("nvidia.com/gpu", gpus),
            ("vpc.amazonaws.com/efa", count),
            ("hugepages-2Mi", "5Gi"),
            ("memory", "1Ti"),
        ];
        by_profile(on(instance, &[], &asked), "eks-image")
    };
    assert_eq!(of("ml.p5.48xlarge", "1", "8"), ["W-EFA-PARTIAL"]);
    assert_eq!(of("p5en.48xlarge", "32", "8"), ["E-EFA-CAPACITY"]);
    assert_eq!(of("p5.48xlarge", "32", "8"), [""; 0]);
    assert_eq!(of("p5.48xlarge", "4", "1"), [""; 0], "a part of a node");
}

/// A finding in a block scalar points at its line.
#[test]
fn a_finding_in_a_script_of_a_manifest_has_the_line_of_its_word() {
    let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: x\n            command:\n            - bash\n            - -c\n            - |\n              cd /data\n              export NCCL_BUFFERSIZE=1\n              torchrun a.py\n            resources: {limits: {nvidia.com/gpu: 8}}\n";
    let (profile, catalogue, options) = (Profile::default(), Catalogue::builtin(), FabricRequest::default());
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let found = lint_document(text, Start::of("a.yaml"), &settings);
    let found: Vec<_> =
        found.iter().map(|one| (one.code.as_str(), one.span.as_ref().map(|at| at.line))).collect();
    assert_eq!(found, [("L-NAME-MISSPELT", Some(17))]);
}

/// What the nodes have is known by the instance type that a job selects, whether it asks for devices or not.
#[test]
fn sockets_between_nodes_with_a_fabric_are_told() {
    let of = |instance_type: &str, replicas: u32| {
        let mut role = role(&[("NCCL_NET", "Socket")], &[("nvidia.com/gpu", "8")]);
        role.instance_types = vec![instance_type.to_owned()];
        role.replicas = replicas;
        let job = JobView { kind: JobKind::PyTorchJob, roles: vec![role], ..JobView::default() };
        let lints = lint::job(&job, Fabric::Auto, &Profile::default(), &Catalogue::builtin());
        lints.into_iter().any(|lint| lint.finding.code == "L-ON-SOCKETS")
    };
    assert!(of("p4d.24xlarge", 2) && of("Standard_ND96isr_H100_v5", 2));
    assert!(!of("p4d.24xlarge", 1), "nothing goes between nodes");
    assert!(!of("g4dn.xlarge", 2) && !of("unknown.large", 2));
}

/// A name is checked against the NCCL of the image, where its version is known: exactly, or as an upper
/// bound.
#[test]
fn names_are_judged_by_the_version_of_the_image() {
    let of = |image: &str, name: &str| {
        let mut role = role(&[(name, "1")], RDMA);
        role.container.image = Some(image.to_owned());
        codes(role)
    };
    let (old, new) = ("nvcr.io/nvidia/pytorch:23.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3");
    assert_eq!(of(old, "NCCL_RAS_ENABLE"), ["L-NAME-VERSION"]);
    assert_eq!(of(new, "NCCL_RAS_ENABLE"), [""; 0]);
    assert_eq!(of("example/train:1", "NCCL_RAS_ENABLE"), [""; 0]);
    assert_eq!(of("x/tests:cuda12-ncclv2.20.5-1", "NCCL_SOCKET_RETRY_CNT"), ["L-NAME-VERSION"]);
    assert_eq!(of("x/tests:cuda12-ncclv2.24.3-1", "NCCL_SOCKET_RETRY_CNT"), [""; 0]);
    // It had an effect in this release, and has none in any that may be meant elsewhere.
    assert_eq!(of("x/tests:nccl2.20.5-1", "NCCL_WORK_FIFO_DEPTH"), [""; 0]);
    assert_eq!(of("x/tests:nccl2.27.5-1", "NCCL_WORK_FIFO_DEPTH"), ["L-NAME-VERSION"]);
    assert_eq!(of(new, "NCCL_WORK_FIFO_DEPTH"), ["L-NAME-UNKNOWN"]);
    assert_eq!(of(old, "NCCL_WORK_FIFO_DEPTH"), [""; 0], "an image of that month reads it");
    assert_eq!(of(old, "NCCL_TIMEOUT"), ["L-NAME-UNKNOWN"]);
    let script = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --container-image=nvcr.io#nvidia/pytorch:23.10-py3\n\
        export NCCL_RAS_ENABLE=0\nexport NCCL_DEBUG=INFO\nsrun x\n";
    let (profile, options) = (Profiles::builtin().get("dgxc").unwrap(), FabricRequest::default());
    let catalogue = Catalogue::builtin();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let found = lint_sbatch(script, Start::of("a.sbatch"), &settings);
    let found: Vec<_> =
        found.iter().map(|one| (one.code.as_str(), one.span.as_ref().map(|at| at.line))).collect();
    assert_eq!(found, [("L-NAME-VERSION", Some(4))]);
}

/// Without evidence of EFA, nothing is checked as if the job used it: in manifests, scripts and job files.
#[test]
fn lints_of_efa_need_evidence_of_efa() {
    let (none, options) = (weftrun_core::fabric::Profile::default(), FabricRequest::default());
    let (sites, catalogue) = (Profiles::builtin().of_sites().unwrap(), Catalogue::builtin());
    let settings =
        MutateOptions { by_evidence: Some(&sites), ..MutateOptions::offline(&none, &options, &catalogue) };
    let script = |line: &str| {
        let text = format!(
            "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{line}\nexport NCCL_PROTO=simple\nexport NCCL_NVLS_ENABLE=0\nsrun x\n"
        );
        lint_document(&text, Start::of("a.sbatch"), &settings)
            .into_iter()
            .map(|one| one.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(script("cd /tmp"), [""; 0]);
    assert_eq!(script("export NCCL_IB_HCA=mlx5"), [""; 0]);
    assert_eq!(script("cd /fsx"), [""; 0]);
    assert_eq!(script("export FI_EFA_USE_HUGE_PAGE=1"), ["L-PROTO-SIMPLE"], "NVLS is of newer types");
    assert_eq!(
        script("#SBATCH -C p5.48xlarge\nexport FI_EFA_USE_HUGE_PAGE=1"),
        ["L-PROTO-SIMPLE", "L-NVLS-OFF"]
    );
}

#[test]
fn a_device_without_rdma_read_turns_the_default_into_an_error() {
    let role = RoleView {
        instance_types: vec!["g5.48xlarge".into()],
        ..role(&[("FI_EFA_USE_DEVICE_RDMA", "1")], &[("nvidia.com/gpu", "8"), ("memory", "1Ti")])
    };
    assert_eq!(codes(role), ["E-RDMA-UNSUPPORTED"]);
}

#[test]
fn settings_on_command_lines_are_seen_and_comments_are_not() {
    let mut role = role(&[], EFA);
    role.container.command = ["mpirun", "-x", "NCCL_BUFFERSIZE=1", "app"].map(str::to_owned).to_vec();
    assert_eq!(codes(role.clone()), ["L-NAME-MISSPELT"]);
    let script = "# NCCL_BUFFERSIZE=1\nexport RDMAV_FORM_SAFE=1; mpirun -x NCCL_INFO app";
    role.container.command = ["bash", "-c", script].map(str::to_owned).to_vec();
    assert_eq!(codes(role), ["L-NAME-UNKNOWN", "L-RDMAV"], "a name that is to be removed is not renamed");
    let over_rdma = self::role(&[("RDMAV_FORM_SAFE", "1")], RDMA);
    assert_eq!(codes(over_rdma), ["L-NAME-MISSPELT"]);
}

#[test]
fn shapes_the_fabric_does_not_like_are_named() {
    let no_pages = role(&[], &[("nvidia.com/gpu", "8"), ("vpc.amazonaws.com/efa", "32")]);
    assert_eq!(codes(no_pages), ["L-HUGEPAGES-MISSING"]);
    let many: &[(&str, &str)] = &[
        ("nvidia.com/gpu", "8"),
        ("vpc.amazonaws.com/efa", "32"),
        ("hugepages-2Mi", "64Gi"),
        ("memory", "1Ti"),
    ];
    let p5 = |resources| RoleView { instance_types: vec!["p5.48xlarge".into()], ..role(&[], resources) };
    assert_eq!(codes(p5(many)), ["W-HP-ALLOCATABLE"]);
    // Without an instance type it is unknown what the node reserves.
    assert!(codes(role(&[], many)).is_empty() && codes(p5(EFA)).is_empty());
    let no_memory = role(&[], &[("vpc.amazonaws.com/efa", "32"), ("hugepages-2Mi", "5Gi")]);
    assert_eq!(codes(no_memory), ["E-HP-NEEDS-MEMORY"]);
    let mut shm = role(&[], EFA);
    shm.volumes =
        vec![VolumeView { name: "shm".into(), host_path: Some("/dev/shm".into()), ..VolumeView::default() }];
    shm.container.mounts = vec![MountView { volume: "shm".into(), path: "/dev/shm".into() }];
    assert_eq!(codes(shm), ["L-SHM-HOSTPATH"]);
    let mut devices = role(&[], RDMA);
    devices.volumes = vec![VolumeView {
        name: "d".into(),
        host_path: Some("/dev/infiniband".into()),
        ..VolumeView::default()
    }];
    devices.container.privileged = true;
    assert_eq!(codes(devices), ["L-DEV-INFINIBAND", "L-PRIVILEGED"]);
    for command in
        ["sysctl -w net.core.rmem_max=1; train", "nsenter -t 1 -m ls", "(/bin/mount -t tmpfs a /b) && train"]
    {
        let mut tuned = role(&[], RDMA);
        tuned.container.privileged = true;
        tuned.container.command = ["bash", "-c", command].map(str::to_owned).to_vec();
        assert_eq!(codes(tuned), [""; 0], "{command}");
    }
    let mut mounts = role(&[], RDMA);
    mounts.container.privileged = true;
    mounts.container.command = ["train", "--mount=/data", "--remount"].map(str::to_owned).to_vec();
    assert_eq!(codes(mounts), ["L-PRIVILEGED"]);
    let mut debugged = role(&[], RDMA);
    debugged.container.privileged = true;
    debugged.container.capabilities = vec!["IPC_LOCK".into(), "SYS_PTRACE".into()];
    assert_eq!(codes(debugged), [""; 0], "it asks for more than the plugin gives");
    let mut all = RoleView { instance_types: vec!["p5.48xlarge".into()], ..role(&[], EFA) };
    all.container.requests.insert("cpu".into(), "192".into());
    assert_eq!(codes(all), ["L-CPU-ALL"]);
    let product = role(&[("NCCL_SOCKET_NTHREADS", "16"), ("NCCL_NSOCKS_PERTHREAD", "8")], RDMA);
    assert_eq!(codes(product), ["L-SOCKET-PRODUCT"]);
}

#[test]
fn only_what_kubernetes_leaves_alone_counts_as_unexpanded() {
    assert_eq!(unexpanded("/a:$PATH"), Some("$PATH"));
    assert_eq!(unexpanded("/a:${LD_LIBRARY_PATH}:/b"), Some("${LD_LIBRARY_PATH}"));
    for fine in ["$(PATH):/b", "$$PATH", "$", "5$", "${", "${}", "$1", "a$ b", "$$$$"] {
        assert_eq!(unexpanded(fine), None, "{fine}");
    }
}

/// The lists of practice.md §3 and §4, each in a manifest: found with its code, its source, and its fix.
#[test]
fn every_finding_has_a_source_and_a_fix() {
    let text = include_str!("../cases/lint/every.yaml");
    let (profile, catalogue) = (Profiles::builtin().get("dgxc").unwrap(), Catalogue::builtin());
    let options = FabricRequest::default();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    let mut found = Vec::new();
    while let Some(document) = splitter.next_document() {
        found.extend(lint_document(
            std::str::from_utf8(&document).unwrap(),
            Start::of("every.yaml"),
            &settings,
        ));
    }
    let script = "#!/bin/bash\n#SBATCH -o $HOME/log\nexport LD_LIBRARY_PATH=lib:/usr/lib\n#SBATCH -N 2\nif true; then\n";
    let image =
        "#SBATCH --container-image=nvcr.io#nvidia/pytorch:23.10-py3\nexport NCCL_RAS_ENABLE=0\nexport";
    let script = &script.replacen("export", image, 1);
    found.extend(lint_sbatch(script, Start::of("every.sbatch"), &settings));
    for finding in &found {
        let (source, fix) = (finding.source.is_some(), finding.fix.is_some());
        assert!(source && fix && finding.span.is_some(), "{finding:?}");
    }
    let codes: std::collections::BTreeSet<&str> = found.iter().map(|finding| finding.code.as_str()).collect();
    for code in ["E-HP-NEEDS-MEMORY", "E-RDMA-UNSUPPORTED", "W-ENV-DOLLAR", "L-FIELD-IGNORED"] {
        assert!(codes.contains(code), "{code} is not among {codes:?}");
    }
}

/// Every word of the example manifests that looks like a setting is known, or belongs to a known family.
#[test]
fn example_manifests_have_no_misspelt_setting() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate");
    let mut missed: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let Ok(text) = fs::read_to_string(entry.unwrap().path().join("before.yaml")) else { continue };
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        missed.extend(words.filter(|word| nearest(word).is_some()).map(str::to_owned));
    }
    missed.sort();
    missed.dedup();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Returns the codes of a script's findings, each with its line.
fn of_script(text: &str) -> Vec<(String, usize)> {
    let (profile, catalogue) = (Profiles::builtin().get("parallelcluster").unwrap(), Catalogue::builtin());
    let options = FabricRequest::default();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let found = lint_sbatch(text, Start::of("a.sbatch"), &settings);
    found.into_iter().map(|finding| (finding.code, finding.span.unwrap().line)).collect()
}

#[test]
fn directives_that_slurm_does_not_read_as_they_stand_are_found() {
    let late = "#!/bin/bash\n#SBATCH --nodes=2\n\n# a note\nmodule load x\n#SBATCH --time=1:00\n";
    assert_eq!(of_script(late), [("L-SBATCH-LATE".to_owned(), 6)]);
    for line in ["--output=$HOME/log", "-o ${SCRATCH}/%j.out # mine", "--export=ALL,A=$B"] {
        let text = format!("#!/bin/bash\n#SBATCH {line}\nsrun a\n");
        assert_eq!(of_script(&text), [("L-SBATCH-VARIABLE".to_owned(), 2)], "{line}");
    }
    for line in ["--output=%x-%j.out", "--comment='5$ a day'", "-o log # $HOME is not used"] {
        assert_eq!(of_script(&format!("#!/bin/bash\n#SBATCH {line}\nsrun a\n")), [], "{line}");
    }
    // A script that writes a script: the text of its here-document is not checked as its own.
    let nested =
        "#!/bin/bash\n#SBATCH -N 2\ncat > b.sh <<EOF\n#!/bin/bash\n#SBATCH -N $N\nEOF\nsbatch b.sh\n";
    assert_eq!(of_script(nested), []);
}

#[test]
fn a_script_that_no_shell_can_read_is_found_at_its_line() {
    let head = "#!/bin/bash\n#SBATCH -N 2\n";
    for (body, line) in [
        ("for i in 1 2; do\n  echo $i\n", 5),
        ("srun python train.py --lr \"1e-4\n", 4),
        ("if true; then\n  srun a\n", 5),
        ("srun a | | b\n", 3),
        ("export DATA=<your path>\nsrun a\n", 3),
    ] {
        let found = of_script(&format!("{head}{body}"));
        assert!(
            matches!(&found[..], [(code, at)] if code == "L-SHELL-SYNTAX" && at.abs_diff(line) <= 1),
            "{body}: {found:?}"
        );
    }
    for body in [
        "[[ $a =~ ^(x|y)$ ]] && srun a\n",
        "a=(1 2 3)\nfor i in \"${a[@]}\"; do srun -n 1 b & done; wait\n",
        "function f { srun a; }\nf\n",
        "srun bash -c 'echo \"$SLURM_PROCID\"'\n",
        "(( n = 1 + 2 ))\ncase $n in 3) srun a;; *) exit 1;; esac\n",
    ] {
        assert_eq!(of_script(&format!("{head}{body}")), [], "{body}");
    }
    assert_eq!(of_script("#!/usr/bin/env python\n#SBATCH -N 2\nprint('it''s (')\n"), [], "another language");
}

#[test]
fn a_relative_library_folder_is_found() {
    let found = |value: &str| codes(role(&[("LD_LIBRARY_PATH", value)], &[]));
    for value in ["lib:/usr/lib", "./lib", "/a:../b", "/a:.", "lib:${EFA}/lib:/usr/lib"] {
        assert!(found(value).contains(&"L-LIBRARY-RELATIVE".to_owned()), "{value}");
    }
    for value in ["/usr/lib:/a", "$HOME/lib:/a", "${A:+$A:}/lib", "/x:$(dirname a)/lib", "/a:", "~/lib"] {
        assert!(!found(value).contains(&"L-LIBRARY-RELATIVE".to_owned()), "{value}");
    }
}

const MPIJOB: &str = "apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: a}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: launcher
            image: x
            command: [/bin/bash, -c]
            args: ['mpirun -np 16 -x LD_LIBRARY_PATH -x NCCL_NET_PLUGIN=none ./all_reduce_perf']
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            image: x
            resources: {limits: {nvidia.com/gpu: 8, rdma/ib: 1}, requests: {cpu: 112, memory: 1000Gi}}
";

/// After github.com/coreweave/nccl-tests, mpi-operator/nccl-test-distributed-a100-64-mpijob.yaml
/// (2026-11-23): the job is for InfiniBand, and EFA is requested for it.
#[test]
fn a_setting_that_keeps_nccl_from_the_requested_fabric_is_found_and_told_by_mutate() {
    let (profile, catalogue) = (Profiles::builtin().get("dgxc").unwrap(), Catalogue::builtin());
    let request = |kind| FabricRequest {
        kind,
        instance_type: Some("p5.48xlarge".to_owned()),
        ..FabricRequest::default()
    };
    let script =
        "#!/bin/bash\n#SBATCH -N2 --gpus-per-node=8 --exclusive\nexport NCCL_NET_PLUGIN=none\nsrun ./a\n";
    let (start, efa, auto) = (Start::of("a.yaml"), request(Fabric::Efa), request(Fabric::Auto));
    let codes = |findings: &[weftrun_core::Finding]| {
        let only = findings.iter().filter(|one| one.code == "L-PLUGIN-NONE");
        only.map(|one| (one.is_error(), one.span.as_ref().map_or(0, |span| span.line))).collect::<Vec<_>>()
    };
    let settings = MutateOptions::offline(&profile, &efa, &catalogue);
    assert_eq!(codes(&lint_document(MPIJOB, start, &settings)), [(true, 14)]);
    assert_eq!(codes(&lint_sbatch(script, start, &settings)), [(true, 3)]);
    let mutated = mutate(MPIJOB, start, &settings).unwrap();
    let report = &mutated.jobs[0];
    assert!(report.changed && report.error().is_none());
    assert_eq!(codes(&report.plan.findings), [(false, 14)]);
    assert!(mutated.text.contains("NCCL_NET_PLUGIN=none"), "it is the user's, and stays");
    let report = &mutate_sbatch(script, start, &settings).jobs[0];
    assert_eq!((report.changed, codes(&report.plan.findings).len()), (true, 1));
    // Without the setting, or for the fabric that the job shows, there is nothing to report.
    let free = MPIJOB.replace("-x NCCL_NET_PLUGIN=none ", "");
    assert!(codes(&lint_document(&free, start, &settings)).is_empty());
    assert!(codes(&mutate(&free, start, &settings).unwrap().jobs[0].plan.findings).is_empty());
    assert!(
        codes(&lint_document(MPIJOB, start, &MutateOptions::offline(&profile, &auto, &catalogue))).is_empty()
    );
}

/// After github.com/coreweave/nccl-tests, mpi-operator/nccl-test-distributed-gb200-nvl72-mpijob.yaml
/// (2026-11-23), whose nodes have the numbers of Google's a4x-highgpu-4g.
#[test]
fn numbers_alone_are_no_instance_type() {
    let mut of_others = role(&[], &[("nvidia.com/gpu", "4"), ("rdma/ib", "1"), ("memory", "800Gi")]);
    of_others.container.requests.insert("cpu".into(), "140".into());
    assert!(!codes(of_others.clone()).contains(&"L-CPU-ALL".to_owned()));
    of_others.instance_types.push("a4x-highgpu-4g".to_owned());
    assert!(codes(of_others.clone()).contains(&"L-CPU-ALL".to_owned()));
    // A limit of all of them beside a smaller request is scheduled.
    of_others.container.limits.insert("cpu".into(), "140".into());
    of_others.container.requests.insert("cpu".into(), "130".into());
    assert!(!codes(of_others).contains(&"L-CPU-ALL".to_owned()));
}

/// A name that NCCL does not read may be the script's own: nothing else sees what is not exported, and what is expanded is read.
#[test]
fn variables_of_the_scripts_own_are_not_reported() {
    let catalogue = Catalogue::builtin();
    let (profile, options) = (Profiles::builtin().get("parallelcluster").unwrap(), FabricRequest::default());
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    for (body, reported) in [
        ("NCCL_MAX_SIZE=8G\nsrun all_reduce_perf -e $NCCL_MAX_SIZE", false),
        ("NCCL_MAX_SIZE=8G\nsrun a", false),
        ("export NCCL_MAX_SIZE=8G\nsrun all_reduce_perf -e ${NCCL_MAX_SIZE:-1G}", false),
        ("NCCL_TIMEOUT=1800\nsrun a --timeout $NCCL_TIMEOUT", false),
        ("export NCCL_MAX_SIZE=8G\nsrun a", true),
        ("export NCCL_MAX_SIZE=8G\nsrun a -e $NCCL_MAX_SIZE_OF_ALL", true),
        ("NCCL_MAX_SIZE=8G\nexport NCCL_DEBUG NCCL_MAX_SIZE\nsrun a", true),
        ("set -a\nNCCL_MAX_SIZE=8G\nsrun a", true),
        ("NCCL_MAX_SIZE=8G srun a", true),
        ("mpirun -x NCCL_MAX_SIZE=8G a", true),
        ("NCCL_MAX_SIZE=8G\n# export NCCL_MAX_SIZE\nsrun a", false),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n{body}\n");
        let found = lint_sbatch(&text, Start::of("a"), &settings);
        assert_eq!(found.iter().any(|one| one.code == "L-NAME-UNKNOWN"), reported, "{body}: {found:?}");
    }
    for (command, reported) in [("a -e $NCCL_MAX_SIZE", false), ("a -e $(NCCL_MAX_SIZE)", false), ("a", true)]
    {
        let mut role = role(&[("NCCL_MAX_SIZE", "8G")], RDMA);
        role.container.command = ["bash", "-c", command].map(str::to_owned).to_vec();
        assert_eq!(codes(role).contains(&"L-NAME-UNKNOWN".to_owned()), reported, "{command}");
    }
    let mut role = role(&[], RDMA);
    role.container.command =
        ["bash", "-c", "NCCL_MAX_SIZE=8G; a -e $NCCL_MAX_SIZE"].map(str::to_owned).to_vec();
    assert_eq!(codes(role), [""; 0]);
}
