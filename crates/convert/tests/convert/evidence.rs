//! The fabric that a document shows; no rule applies without evidence of its fabric.

use weftrun_convert::{MutateOptions, MutatedJob, Start, mutate, mutate_sbatch};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::{Form, SITES, SignKind};
use weftrun_core::fabric::{
    ClusterFacts, DeviceKind, FabricPlan, NetworkApi, NodeGroup, Origin, PodNetwork, Profile, Profiles,
    Queue, SkipReason,
};
use weftrun_core::request::FabricRequest;
use weftrun_core::spec::{JobSpec, Role};

mod cluster;
mod public;

fn with_settings<T>(run: impl FnOnce(&MutateOptions<'_>) -> T) -> T {
    let (none, options) = (Profile::default(), FabricRequest::default());
    let (sites, catalogue) = (Profiles::builtin().of_sites().unwrap(), Catalogue::builtin());
    run(&MutateOptions { by_evidence: Some(&sites), ..MutateOptions::offline(&none, &options, &catalogue) })
}

/// Mutates a script of two nodes with eight GPUs each.
fn script(head: &str, body: &str) -> (String, MutatedJob) {
    let text = format!(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n{head}\n{body}\nsrun python train.py\n"
    );
    with_settings(|settings| {
        let done = mutate_sbatch(&text, Start::of("job.sbatch"), settings);
        (done.text.clone().into_owned(), done.jobs[0].clone())
    })
}

/// Mutates a PyTorchJob of two whole nodes; `pod` goes into the pod's spec, `container` into the container.
fn job(metadata: &str, pod: &str, container: &str, resources: &str) -> (String, MutatedJob) {
    let indent = |text: &str, by: usize| {
        text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>()
    };
    let text = format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: train\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      \
         replicas: 2\n      template:\n{}        spec:\n{}          containers:\n          - name: pytorch\n            image: example/train\n{}            \
         resources:\n              limits:\n                nvidia.com/gpu: 8\n                memory: 900Gi\n{}",
        indent(metadata, 8),
        indent(pod, 10),
        indent(container, 12),
        indent(resources, 16),
    );
    with_settings(|settings| {
        let done = mutate(&text, Start::of("job.yaml"), settings).unwrap();
        (done.text.clone().into_owned(), done.jobs[0].clone())
    })
}

fn gets_no_efa(text: &str) -> bool {
    !["vpc.amazonaws.com", "FI_PROVIDER=efa", "FI_EFA", "/opt/amazon", "weftrun"]
        .iter()
        .any(|word| text.contains(word))
}

#[test]
fn every_line_of_the_table_is_read() {
    let table = include_str!("../../../core/data/evidence.tsv");
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, pattern, site, weight, meaning, source] = cells[..] else { panic!("{line}") };
        assert!(serde_json::from_str::<SignKind>(&format!("\"{kind}\"")).is_ok(), "{line}");
        assert!(SITES.iter().any(|known| known.id == site), "{line}");
        assert!((1..=20).contains(&weight.parse::<u32>().unwrap()), "{line}");
        regex::Regex::new(pattern).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(!meaning.is_empty() && !source.is_empty(), "{line}");
    }
}

#[test]
fn a_script_without_evidence_stays_as_it_is() {
    let (text, report) = script("#SBATCH --partition=gpu", "export OMP_NUM_THREADS=8");
    assert_eq!(report.skip(), Some("fabric-unknown"));
    let why = &report.plan.skip().unwrap().why;
    assert!(why.contains("--profile") && why.contains("partition"), "{why}");
    assert!(!report.changed && gets_no_efa(&text), "{text}");
}

#[test]
fn a_script_of_another_site_never_gets_efa() {
    let sites = [
        (
            "#SBATCH --partition=standard-g\n#SBATCH --account=project_465000123",
            "module load LUMI/24.03 partition/G",
            "Slingshot",
        ),
        ("#SBATCH -p small-g", "export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3", "Slingshot"),
        (
            "#SBATCH -A abc@a100\n#SBATCH -C a100\n#SBATCH --hint=nomultithread",
            "module load pytorch-gpu/py3/2.1.1",
            "Jean Zay",
        ),
        ("#SBATCH --partition=gpu_p2\n#SBATCH --qos=qos_gpu-t3", "cd $WORK", "Jean Zay"),
        ("#SBATCH --account=project_2001234\n#SBATCH --partition=gpumedium", "module load pytorch", "CSC"),
        ("#SBATCH --account=a-a06\n#SBATCH --environment=/capstor/store/cscs/env.toml", "", "Slingshot"),
        ("#SBATCH --partition=a3mega", "source /var/lib/tcpxo/lib64/nccl-env-profile.sh", "TCPXO"),
        ("", "export NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0", "TCPX"),
        ("", "source /usr/local/gib/scripts/set_nccl_env.sh", "Google"),
        (
            "",
            "export NCCL_IB_HCA==mlx5_0,mlx5_1\nexport RX_QUEUE_LEN=8192\nexport IB_RX_QUEUE_LEN=8192",
            "Oracle",
        ),
        ("", "export NCCL_IB_HCA=ibp", "CoreWeave"),
        ("#SBATCH --partition=booster", "cd /p/project/abc/x\nexport NCCL_SOCKET_IFNAME=ib0", "JSC"),
        (
            "#SBATCH -C gpu\n#SBATCH -q regular",
            "cd $PSCRATCH\nexport FI_CXI_DISABLE_HOST_REGISTER=1",
            "Slingshot",
        ),
        (
            "",
            "export NCCL_NET=\"AWS Libfabric\"\nexport FI_PROVIDER=cxi\nmodule load aws-ofi-nccl",
            "Slingshot",
        ),
    ];
    for (head, body, name) in sites {
        let (text, report) = script(head, body);
        assert_eq!(report.skip(), Some("other-fabric"), "{head} {body}: {:?}", report.plan.evidence);
        let why = &report.plan.skip().unwrap().why;
        assert!(why.contains(name), "{head} {body}: {why}");
        assert!(!report.changed && !text.contains("weftrun fabric"), "{text}");
    }
}

/// Data and programs are downloaded from AWS's servers everywhere, and object stores of other clouds use
/// AWS's protocol. The first is from AI-Hypercomputer/gpu-recipes (Apache-2.0,
/// training/a4x/…/megatron-bridge-slurm), for Google's A4X.
#[test]
fn where_data_come_from_does_not_show_where_a_job_runs() {
    for body in [
        "wget -N -P \"$RECIPE_DIR\" https://s3.amazonaws.com/models.huggingface.co/bert/gpt2-vocab.json",
        "curl -O https://awscli.amazonaws.com/awscli-exe-linux-x86_64.zip",
        "aws s3 cp --endpoint-url https://lumidata.eu s3://data/a.tar .",
        "export CHECKPOINTS=s3://run-1/checkpoints",
    ] {
        let (text, report) = script("", body);
        assert_eq!(
            (report.skip(), report.changed),
            (Some("fabric-unknown"), false),
            "{body}: {:?}",
            report.plan
        );
        assert!(gets_no_efa(&text.replace(body, "")), "{text}");
    }
    // It does not hide another sign either.
    let (_, report) = script("#SBATCH --chdir=/fsx/ubuntu -p p5", "aws s3 cp s3://data/a.tar .");
    assert_eq!(report.plan.profile.as_deref(), Some("parallelcluster"));
}

/// Signs of a cloud, and words about a fabric, are no fabric; a sign of another one counts against it.
#[test]
fn weak_evidence_changes_nothing_and_is_told() {
    let ecr = "#SBATCH --container-image=123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1";
    for (head, body) in [
        ("# there is no EFA on this cluster", ""),
        ("", "# Copyright Amazon.com, Inc. or its affiliates."),
        ("", "./prepare # FI_PROVIDER=efa is not set here"),
        ("", "export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=eu-west-1"),
        ("", "cd /fsx/train"),
        (ecr, ""),
        (ecr, "export AWS_REGION=us-east-1\ncd /fsx/train\naws ecr get-login-password"),
        ("#SBATCH -p g5", ""),
        ("", "export OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK=1"),
    ] {
        let (text, report) = script(head, body);
        assert_eq!(report.skip(), Some("fabric-unknown"), "{head} {body}: {:?}", report.plan.evidence);
        assert!(!report.changed && !text.contains("weftrun fabric"), "{text}");
        let why = &report.plan.skip().unwrap().why;
        assert_eq!(why.contains("8 needed"), !report.plan.evidence.is_empty(), "{head} {body}: {why}");
    }
    let hyperpod = "metadata:\n  annotations: {sagemaker.amazonaws.com/enable-job-auto-resume: 'true'}";
    let google = "nodeSelector: {cloud.google.com/gke-nodepool: a}";
    let (region, image) =
        ("env:\n- {name: AWS_REGION, value: us-east-1}", "env:\n- {name: FI_PROVIDER, value: efa}");
    for (metadata, pod, container) in [
        ("", "", region),
        (hyperpod, "nodeSelector: {eks.amazonaws.com/nodegroup: gpu}", region),
        ("", google, image),
    ] {
        let (text, report) = job(metadata, pod, container, "");
        assert_eq!(report.skip(), Some("fabric-unknown"), "{:?}", report.plan.evidence);
        assert!(!report.changed, "{text}");
        assert!(report.plan.skip().unwrap().why.contains("not enough evidence of AWS EFA"));
    }
    let (_, report) = job("", "", image, "vpc.amazonaws.com/efa: 8\naws.amazon.com/neuron: 16");
    assert_eq!(report.plan.profile.as_deref(), Some("neuron"), "{:?}", report.plan.evidence);
    // The stack of DGX Cloud's nodes needs a sign of DGX Cloud.
    let (_, report) = job("metadata:\n  annotations: {disable-auto-efa: 'false'}", "", "", "");
    assert_eq!(report.plan.profile.as_deref(), Some("dgxc"));
}

#[test]
fn a_script_that_shows_efa_gets_it_and_no_provider() {
    for (head, body) in [
        ("", "export FI_EFA_USE_HUGE_PAGE=0"),
        ("#SBATCH --partition=p5en-queue", ""),
        ("#SBATCH --constraint=p4d.24xlarge", ""),
        ("", "mpirun -x FI_PROVIDER=efa ./all_reduce_perf"),
        ("#SBATCH --partition=p5", "cd /fsx/train"),
    ] {
        let (_, report) = script(head, body);
        assert_eq!(
            report.plan.profile.as_deref(),
            Some("parallelcluster"),
            "{head} {body}: {:?}",
            report.plan.evidence
        );
        assert_eq!(report.skip(), None, "{head} {body}");
        let (text, _) = script(&format!("{head}\n#SBATCH -C p5.48xlarge"), body);
        assert!(text.contains("export FI_EFA_USE_DEVICE_RDMA=1"), "{text}");
        assert!(!text.contains("export FI_PROVIDER=efa"), "{text}");
        assert!(!report.plan.evidence.is_empty());
    }
}

#[test]
fn an_object_of_another_cloud_never_gets_efa() {
    let oci = "metadata:\n  annotations:\n    k8s.v1.cni.cncf.io/networks: default/rdma-vf,default/rdma-vf";
    let gke = "metadata:\n  annotations:\n    networking.gke.io/default-interface: eth0\n    devices.gke.io/container.tcpxo-daemon: '[]'";
    let azure = "nodeSelector:\n  node.kubernetes.io/instance-type: Standard_ND96isr_H100_v5";
    let shape = "nodeSelector:\n  node.kubernetes.io/instance-type: BM.GPU.H100.8";
    let coreweave = "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n      - matchExpressions:\n        - {key: node.coreweave.cloud/type, operator: In, values: [gd-8xh100ib-i128]}";
    let env = "env:\n- {name: NCCL_IB_HCA, value: mlx5}\n- {name: NCCL_IB_GID_INDEX, value: \"3\"}";
    for (metadata, pod, container, resources, site) in [
        ("", coreweave, "", "rdma/ib: 1", "CoreWeave"),
        ("", "", "", "rdma/ib: 1", "InfiniBand"),
        (oci, "", "", "nvidia.com/rdma-vf: 16", "Oracle"),
        ("", shape, "", "", "Oracle"),
        (gke, "", "", "", "Google"),
        ("", azure, "", "", "Azure"),
        ("", "", env, "", "InfiniBand or RoCE"),
        ("", "", "", "nscale.com/rdmashare: 8", "nscale"),
    ] {
        let (text, report) = job(metadata, pod, container, resources);
        assert!(gets_no_efa(&text), "{text}");
        assert!(!report.changed, "{site}: {text}");
        assert!(
            matches!(report.skip(), Some("other-fabric" | "already-there")),
            "{site}: {:?}",
            report.skip()
        );
        let first = report.plan.evidence.first().map(|one| one.fabric.as_str()).unwrap_or_default();
        assert!(first.contains(site), "{site}: {:?}", report.plan.evidence);
    }
}

#[test]
fn an_object_without_evidence_stays_as_it_is() {
    let (text, report) = job("", "", "", "");
    assert_eq!((report.skip(), report.changed), (Some("fabric-unknown"), false));
    assert!(gets_no_efa(&text));
}

#[test]
fn an_instance_type_with_efa_gets_what_the_specification_says() {
    for key in [
        "nodeSelector:\n  node.kubernetes.io/instance-type: p5.48xlarge",
        "nodeSelector:\n  node.kubernetes.io/instance-type: ml.p5.48xlarge",
    ] {
        let (text, report) = job("", key, "", "");
        assert_eq!(report.plan.profile.as_deref(), Some("eks-image"), "{:?}", report.plan.evidence);
        assert!(text.contains("vpc.amazonaws.com/efa: '32'") && !text.contains("hostPath"), "{text}");
    }
}

#[test]
fn a_job_that_brings_efa_in_its_image_gets_no_mount_and_no_library_path() {
    let image = "env:\n- {name: FI_PROVIDER, value: efa}\n- {name: LD_LIBRARY_PATH, value: /mine}";
    let path = "command: [bash, -c, 'export LD_LIBRARY_PATH=/opt/amazon/efa/lib; python train.py']";
    for (container, resources) in
        [(image, ""), (path, ""), ("", "vpc.amazonaws.com/efa: 32"), (image, "vpc.amazonaws.com/efa: 32")]
    {
        let (text, report) = job("", P5, container, resources);
        assert_eq!(report.plan.profile.as_deref(), Some("eks-image"), "{:?}", report.plan.evidence);
        assert!(!text.contains("hostPath") && !text.contains("amazon-efa-ofi"), "{text}");
        assert!(text.contains("hugepages-2Mi"), "{text}");
    }
}

const P5: &str = "nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}";

/// Pods that request more interfaces than their node has stay Pending, so none is requested of an unknown node.
#[test]
fn no_number_of_interfaces_is_assumed_on_an_unknown_type() {
    let efa = "env: [{name: FI_PROVIDER, value: efa}]";
    let p4d = "nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}";
    for (pod, resources, skip, added) in [
        ("", "", Some("instance-unknown"), ""),
        (p4d, "", None, "vpc.amazonaws.com/efa: '4'"),
        ("", "vpc.amazonaws.com/efa: 4", None, "hugepages-2Mi"),
    ] {
        let (text, report) = job("", pod, efa, resources);
        assert_eq!(report.skip(), skip, "{pod} {resources}: {text}");
        assert_eq!(report.changed, skip.is_none());
        assert!(text.contains(added), "{text}");
    }
    // A profile of many types says nothing of them, named or not; the user's own says it for the user's nodes.
    let named = Profiles::builtin().get("eks-image").unwrap();
    assert_eq!(named.efa.map(|efa| efa.count), Some(0));
    let own = toml::from_str("extends = \"eks-image\"\nefa.count = 4").unwrap();
    let sites = Profiles::builtin().with("eks-image", own).of_sites().unwrap();
    let count = |name: &str| sites.iter().find(|site| site.name == name).unwrap().efa.as_ref().unwrap().count;
    assert_eq!((count("eks-image"), count("dgxc"), count("neuron")), (4, 32, 0));
}

/// Found by the laws: the opt-out that weftrun itself adds for `--webhook yes` is no sign of DGX Cloud.
#[test]
fn an_opt_out_of_weftruns_own_shows_nothing() {
    for (marker, shown) in [("", true), ("weftrun.dev/applied: none/v1", false)] {
        let metadata = format!("metadata:\n  annotations:\n    disable-auto-efa: 'true'\n    {marker}\n");
        let (_, report) = job(&metadata, "", "", "");
        let is_sign = report.plan.evidence.iter().any(|one| one.text.contains("disable-auto-efa"));
        assert_eq!(is_sign, shown, "{:?}", report.plan.evidence);
    }
}

#[test]
fn neuron_is_shown_by_its_variables() {
    for (line, skip) in [
        ("export FI_PROVIDER=efa NEURON_RT_NUM_CORES=32", Some("other-fabric")),
        ("FI_PROVIDER=efa NEURON_RT_ROOT_COMM_ID=$M:1 nccom-test a", Some("other-fabric")),
        ("export NEURON_CC_FLAGS=-O1", Some("fabric-unknown")),
        ("export FI_PROVIDER=efa NEURONS=3", None),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N 2 --exclusive\n{line}\nsrun ./a\n");
        let skipped = with_settings(|settings| {
            mutate_sbatch(&text, Start::of("a"), settings).jobs[0].skip().map(str::to_owned)
        });
        assert_eq!(skipped.as_deref(), skip, "{line}");
    }
}

#[test]
fn contradicting_evidence_is_named_and_nothing_is_changed() {
    let resources = "vpc.amazonaws.com/efa: 32\nrdma/ib: 1";
    let (text, report) = job("", "", "", resources);
    assert_eq!(report.skip(), Some("fabric-unknown"));
    let why = &report.plan.skip().unwrap().why;
    assert!(why.contains("AWS EFA") && why.contains("InfiniBand"), "{why}");
    assert!(!report.changed, "{text}");
}

#[test]
fn a_profile_that_was_named_wins_over_the_evidence() {
    let (options, catalogue) = (FabricRequest::default(), Catalogue::builtin());
    let profile = Profiles::builtin().get("parallelcluster").unwrap();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let text =
        "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8 -p small-g -C p5.48xlarge\nsrun python train.py\n";
    let done = mutate_sbatch(text, Start::of("a"), &settings);
    assert!(done.text.contains("FI_EFA_USE_DEVICE_RDMA=1"), "{}", done.text);
    assert!(!done.text.contains("FI_PROVIDER"), "{}", done.text);
}

#[test]
fn a_single_pod_is_not_asked_for_its_fabric() {
    let text = "#!/bin/bash\n#SBATCH --gpus-per-node=8\nsrun python train.py\n";
    let report = with_settings(|settings| mutate_sbatch(text, Start::of("a"), settings).jobs[0].clone());
    assert_eq!(report.skip(), Some("not-distributed"));
}

#[test]
fn a_job_file_is_judged_by_its_own_signs_and_by_the_nodes() {
    let catalogue = Catalogue::builtin();
    let decide = |role: Role, facts: &ClusterFacts, form: Form| {
        let spec = JobSpec::builder("a").image("x").role(role.command(["train.py"])).build().unwrap();
        FabricPlan::by_evidence(&spec, &catalogue, facts, &Profiles::builtin(), form).unwrap()
    };
    let worker = || Role::worker().nodes(2).gpus_per_node(8).memory("900Gi");
    let nothing = ClusterFacts::default();
    let (plan, _) = decide(worker(), &nothing, Form::Made);
    assert_eq!(plan.skip().map(|skip| skip.reason.as_str()), Some("fabric-unknown"));
    let (plan, profile) = decide(worker().instance_type("p5.48xlarge"), &nothing, Form::Made);
    assert_eq!(
        (profile.name.as_str(), plan.skip()),
        ("eks-image", None),
        "no folder of the node is mounted unasked"
    );
    let (_, profile) = decide(worker().instance_type("p5.48xlarge"), &nothing, Form::Script);
    assert_eq!(profile.name, "parallelcluster");
    let mut group = NodeGroup::default();
    group.allocatable = [("nvidia.com/gpu", "8"), ("rdma/ib", "8"), ("pods", "110")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    let mut facts = ClusterFacts::default();
    (facts.online, facts.nodes) = (true, vec![group]);
    let (plan, profile) = decide(worker(), &facts, Form::Made);
    assert_eq!((profile.name.as_str(), plan.skip()), ("infiniband", None), "{:?}", plan.evidence);
    assert!(plan.evidence[0].online);
    assert_eq!(plan.profile.as_deref(), Some("infiniband"));
}

/// Returns a whole object of each kind, with two pods of eight GPUs where possible.
fn workloads() -> Vec<(&'static str, String)> {
    let pod = |by: usize| {
        let pad = " ".repeat(by);
        format!(
            "{pad}metadata:\n{pad}  labels: {{a: b}}\n{pad}spec:\n{pad}  nodeSelector:\n{pad}    node.kubernetes.io/instance-type: p5.48xlarge\n{pad}  \
             containers:\n{pad}  - name: main\n{pad}    image: example/train\n{pad}    command: [torchrun, --nnodes=2, --nproc-per-node=8, train.py]\n{pad}    resources:\n{pad}      limits:\n{pad}        \
             nvidia.com/gpu: 8\n{pad}        memory: 900Gi\n"
        )
    };
    vec![
        (
            "Job",
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\nspec:\n  parallelism: 2\n  completions: 2\n  completionMode: Indexed\n  template:\n{}",
                pod(4)
            ),
        ),
        (
            "Deployment",
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {{a: b}}\n  template:\n{}",
                pod(4)
            ),
        ),
        (
            "StatefulSet",
            format!(
                "apiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: a\nspec:\n  replicas: 2\n  serviceName: a\n  selector:\n    matchLabels: {{a: b}}\n  template:\n{}",
                pod(4)
            ),
        ),
        (
            "JobSet",
            format!(
                "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: a\nspec:\n  replicatedJobs:\n  - name: workers\n    replicas: 1\n    template:\n      spec:\n        parallelism: 2\n        completions: 2\n        template:\n{}",
                pod(10)
            ),
        ),
        (
            "LeaderWorkerSet",
            format!(
                "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata:\n  name: a\nspec:\n  replicas: 1\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n{}    workerTemplate:\n{}",
                pod(6),
                pod(6)
            ),
        ),
        (
            "RayCluster",
            format!(
                "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata:\n  name: a\nspec:\n  headGroupSpec:\n    rayStartParams: {{}}\n    template:\n      spec:\n        containers:\n        - name: head\n          image: ray\n  workerGroupSpecs:\n  - groupName: gpus\n    replicas: 2\n    rayStartParams: {{}}\n    template:\n{}",
                pod(6)
            ),
        ),
        (
            "RayJob",
            format!(
                "apiVersion: ray.io/v1\nkind: RayJob\nmetadata:\n  name: a\nspec:\n  entrypoint: python train.py\n  rayClusterSpec:\n    headGroupSpec:\n      rayStartParams: {{}}\n      template:\n        spec:\n          containers:\n          - name: head\n            image: ray\n    workerGroupSpecs:\n    - groupName: gpus\n      replicas: 1\n      numOfHosts: 2\n      rayStartParams: {{}}\n      template:\n{}",
                pod(8)
            ),
        ),
        (
            "Job",
            format!(
                "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  name: a\nspec:\n  minAvailable: 2\n  schedulerName: volcano\n  tasks:\n  - name: worker\n    replicas: 2\n    template:\n{}",
                pod(6)
            ),
        ),
    ]
}

#[test]
fn every_object_with_a_pod_template_gets_the_fabric_of_its_evidence() {
    for (kind, text) in workloads() {
        let (new, report) = with_settings(|settings| {
            let done = mutate(&text, Start::of("a.yaml"), settings).unwrap();
            let again = mutate(&done.text, Start::of("a.yaml"), settings).unwrap();
            assert_eq!(again.text, done.text, "{kind}: a second pass changes nothing");
            (done.text.clone().into_owned(), done.jobs[0].clone())
        });
        assert_eq!((report.kind.as_str(), report.skip()), (kind, None), "{text}");
        let pods = if kind == "LeaderWorkerSet" { 2 } else { 1 };
        assert_eq!(new.matches("vpc.amazonaws.com/efa: '32'").count(), 2 * pods, "{new}");
        // Pods without accelerators (the head of a Ray cluster) get nothing.
        assert!(!new.contains("name: head\n          image: ray\n          resources"), "{new}");
    }
}

#[test]
fn objects_whose_pods_ask_for_no_accelerator_pass_through() {
    for (_, text) in workloads() {
        let text = text.replace("nvidia.com/gpu: 8", "cpu: 8");
        let done = with_settings(|settings| {
            let done = mutate(&text, Start::of("a.yaml"), settings).unwrap();
            (done.text.clone().into_owned(), done.jobs.len())
        });
        assert_eq!(done, (text, 0));
    }
}

#[test]
fn a_bare_pod_is_not_distributed() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n    image: b\n    resources:\n      limits:\n        nvidia.com/gpu: 8\n";
    let report = with_settings(|settings| mutate(text, Start::of("a"), settings).unwrap().jobs[0].clone());
    assert_eq!((report.kind.as_str(), report.skip()), ("Pod", Some("not-distributed")));
    let why = |report: &MutatedJob| report.plan.skip().unwrap().why.clone();
    assert!(why(&report).ends_with("is not known"), "{}", why(&report));
    let kind = "apiVersion: example.com/v1\nkind: Gang\nmetadata: {name: a}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 8}}}\n";
    let report = with_settings(|settings| mutate(kind, Start::of("a"), settings).unwrap().jobs[0].clone());
    assert_eq!(report.skip(), Some("nodes-unknown"));
    assert!(why(&report).contains("is not known"), "{}", why(&report));
}

#[test]
fn every_object_with_a_pod_template_is_imported_and_linted() {
    for (kind, text) in workloads() {
        let jobs = weftrun_convert::import(&text, Start::of("a.yaml")).unwrap();
        let [job] = jobs.as_slice() else { panic!("{kind}: {} jobs", jobs.len()) };
        assert_eq!((job.spec.nodes(), job.spec.world_size()), (2, 16), "{kind}");
        assert!(
            job.spec.roles.iter().all(|role| role.command == ["train.py"]),
            "{kind}: {:?}",
            job.spec.roles
        );
        let text = text.replace(
            "    image: example/train\n",
            "    image: example/train\n    env: [{name: NCCL_BUFFERSIZE, value: '1'}]\n",
        );
        // The indentation of the container differs between kinds.
        let text = text
            .lines()
            .fold((String::new(), 0), |(mut out, indent), line| {
                let indent = if line.trim_start().starts_with("- name: main") {
                    line.len() - line.trim_start().len() + 2
                } else {
                    indent
                };
                let line = if line.trim_start().starts_with("env:") {
                    format!("{}{}", " ".repeat(indent), line.trim_start())
                } else {
                    line.to_owned()
                };
                out.push_str(&line);
                out.push('\n');
                (out, indent)
            })
            .0;
        let findings =
            with_settings(|settings| weftrun_convert::lint_document(&text, Start::of("a.yaml"), settings));
        assert!(findings.iter().any(|finding| finding.code == "L-NAME-MISSPELT"), "{kind}: {findings:?}");
    }
}

#[test]
fn a_job_that_is_on_an_rdma_fabric_gets_no_second_device_or_network() {
    let (options, catalogue) = (FabricRequest::default(), Catalogue::builtin());
    let profile = Profiles::builtin().get("roce").unwrap();
    let base = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        metadata:\n          annotations: {x: y}\n        spec:\n          containers:\n          - name: pytorch\n            image: x\n            resources:\n              limits:\n                nvidia.com/gpu: 8\n";
    for change in [
        (
            "                nvidia.com/gpu: 8\n",
            "                nvidia.com/gpu: 8\n                nvidia.com/rdma-vf: 16\n",
        ),
        (
            "                nvidia.com/gpu: 8\n",
            "                nvidia.com/gpu: 8\n                rdma/hca_shared_devices_a: 1\n",
        ),
        ("        spec:\n", "        spec:\n          hostNetwork: true\n"),
        ("{x: y}", "{k8s.v1.cni.cncf.io/networks: default/rdma-net-ipam}"),
    ] {
        let text = base.replace(change.0, change.1);
        let done =
            mutate(&text, Start::of("a"), &MutateOptions::offline(&profile, &options, &catalogue)).unwrap();
        assert!(!done.text.contains("kube-system/roce") && !done.text.contains("rdma/rdma"), "{}", done.text);
        assert!(
            done.jobs[0].notes().any(|note| note.code == "W-RDMA-PRESENT"),
            "{:?}",
            done.jobs[0].plan.findings
        );
    }
    let done = mutate(base, Start::of("a"), &MutateOptions::offline(&profile, &options, &catalogue)).unwrap();
    assert!(done.text.contains("kube-system/roce") && done.text.contains("rdma/rdma"), "{}", done.text);
}

#[test]
fn a_profile_that_never_ran_says_so_and_names_the_source_of_each_value() {
    let all = Profiles::builtin();
    let catalogue = Catalogue::builtin();
    let mut untried = Vec::new();
    for name in all.names() {
        let profile = all.get(name).unwrap();
        if !profile.untried {
            continue;
        }
        untried.push(name.to_owned());
        let worker = Role::worker().nodes(2).gpus_per_node(profile.node_accelerators);
        let worker = worker.memory("900Gi").command(["train.py"]);
        let spec = JobSpec::builder("a").image("x").role(worker).build().unwrap();
        let plan = FabricPlan::new(&spec, &catalogue, &ClusterFacts::default(), &profile);
        assert!(
            plan.findings.iter().any(|finding| finding.code == "I-PROFILE-UNTRIED"),
            "{name}: {:?}",
            plan.skipped
        );
        assert!(plan.error().is_none(), "{name}: {:?}", plan.findings);
        let own: Vec<_> = plan.decisions.iter().filter(|one| one.rule == "profile.env").collect();
        assert_eq!(own.len(), profile.env.len(), "{name}");
        for decision in plan.decisions.iter().filter(|one| matches!(one.origin, Origin::Profile(_))) {
            assert!(
                decision.source.as_deref().is_some_and(|source| source.starts_with("https://")),
                "{name}: {decision:?}"
            );
        }
        assert!(plan.ops.iter().all(|op| !format!("{:?}", op.change).contains("FI_PROVIDER")), "{name}");
    }
    assert!(untried.len() >= 10, "{untried:?}");
}

#[test]
fn the_environment_of_a_shape_is_set_on_that_shape_only() {
    let profile = Profiles::builtin().get("oci").unwrap();
    let plan = |shape: &str| {
        let worker = Role::worker().nodes(2).gpus_per_node(8).instance_type(shape).command(["train.py"]);
        let spec = JobSpec::builder("a").image("x").role(worker).build().unwrap();
        FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile)
    };
    let sets = |plan: &FabricPlan, name: &str| {
        plan.decisions.iter().any(|one| one.target.ends_with(&format!("env {name}")))
    };
    let (new, old) = (plan("BM.GPU.H200.8"), plan("BM.GPU4.8"));
    assert!(
        sets(&new, "NCCL_CUMEM_ENABLE") && !sets(&new, "NCCL_IB_QPS_PER_CONNECTION"),
        "{:?}",
        new.decisions
    );
    assert!(
        sets(&old, "NCCL_IB_QPS_PER_CONNECTION") && !sets(&old, "NCCL_CUMEM_ENABLE"),
        "{:?}",
        old.decisions
    );
    let devices = |plan: &FabricPlan| {
        plan.decisions.iter().find(|one| one.rule == "roce.devices").map(|one| one.value.clone())
    };
    assert_eq!((devices(&new).as_deref(), devices(&old).as_deref()), (Some("8"), Some("16")));
}

#[test]
fn a_job_with_resource_claims_is_not_taken_for_one_without_gpus() {
    let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          resourceClaims: [{name: gpus, resourceClaimTemplateName: gpus-and-nics}]\n          containers:\n          - name: pytorch\n            image: x\n            resources: {claims: [{name: gpus}]}\n";
    let report = with_settings(|settings| mutate(text, Start::of("a"), settings).unwrap().jobs[0].clone());
    assert_eq!((report.skip(), report.changed), (Some("resource-claims"), false));
    assert!(report.plan.skip().unwrap().why.contains("gpus"));
}

#[test]
fn an_import_says_what_an_old_version_or_an_unfilled_template_is() {
    let import = |text: &str| weftrun_convert::import(text, Start::of("a.yaml")).unwrap_err();
    let old = import("apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\nmetadata: {name: a}\nspec: {}\n");
    assert!(old.message.contains("kubeflow.org/v1alpha2") && old.fix.unwrap().text.contains("v2beta1"));
    for (replicas, gpus, wrong) in [("${NUM_NODES}", "8", "${NUM_NODES}"), ("2", "$GPUS", "$GPUS")] {
        let text = format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: {replicas}\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: x\n            command: [a]\n            resources:\n              limits:\n                nvidia.com/gpu: {gpus}\n"
        );
        let found = import(&text);
        assert!(
            found.message.contains(wrong) && found.fix.unwrap().text.contains("envsubst"),
            "{}",
            found.message
        );
        assert!(found.span.is_some());
    }
}

#[test]
fn an_object_that_asks_no_memory_goes_without_huge_pages() {
    for (kind, text) in workloads() {
        let text: String =
            text.lines().filter(|line| !line.contains("memory:")).map(|line| format!("{line}\n")).collect();
        let (new, report) = with_settings(|settings| {
            let done = mutate(&text, Start::of("a.yaml"), settings).unwrap();
            (done.text.clone().into_owned(), done.jobs[0].clone())
        });
        assert!(report.error().is_none(), "{kind}: {:?}", report.error());
        assert!(new.contains("vpc.amazonaws.com/efa") && !new.contains("hugepages"), "{kind}: {new}");
        assert!(report.plan.skipped.iter().any(|skipped| skipped.reason == SkipReason::NoMemory), "{kind}");
    }
}

/// What a script only writes out (`echo`, a file for elsewhere, a block that `:` ignores) says nothing of where it runs.
#[test]
fn text_that_never_runs_is_no_evidence() {
    for body in [
        "echo \"use FI_PROVIDER=efa on AWS, not here\"",
        "printf 'export FI_PROVIDER=%s\\n' efa > x; printf \"FI_PROVIDER=efa /opt/amazon/efa\"",
        "if true; then\n  echo \"LD_LIBRARY_PATH=/opt/amazon/efa/lib\n  FI_EFA_USE_DEVICE_RDMA=1\"\nfi",
        "cat > aws.sh <<X\nexport FI_PROVIDER=efa\nexport FI_EFA_USE_DEVICE_RDMA=1\nX",
        "cat <<-'END' | tee a\n\texport LD_LIBRARY_PATH=/opt/amazon/efa/lib\n\tEND",
        ": <<'NOTES'\nexport FI_PROVIDER=efa\nNOTES",
        "srun bash -c 'echo FI_PROVIDER=efa /opt/amazon/efa'",
    ] {
        let (_, report) = script("", body);
        assert_eq!(report.skip(), Some("fabric-unknown"), "{body}: {:?}", report.plan.evidence);
        assert!(report.plan.evidence.is_empty(), "{body}: {:?}", report.plan.evidence);
    }
    for body in [
        "echo start; export FI_PROVIDER=efa",
        "srun bash <<X\nexport FI_PROVIDER=efa\nX",
        "bash -c 'echo a; export FI_PROVIDER=efa'",
        "echo \"$(FI_PROVIDER=efa fi_info)\" $(fi_info -p efa; ls /opt/amazon/efa)",
    ] {
        let (_, report) = script("", body);
        assert_eq!(report.plan.profile.as_deref(), Some("parallelcluster"), "{body}: {:?}", report.plan);
    }
    let of_pod =
        "command: [bash, -c, 'echo use FI_PROVIDER=efa and /opt/amazon/efa on AWS; python train.py']";
    assert_eq!(job("", "", of_pod, "").1.skip(), Some("fabric-unknown"));
}

#[test]
fn one_string_counts_once() {
    for (body, sum) in [
        ("export FI_PROVIDER=efa", 10),
        ("ls /opt/amazon/efa", 10),
        ("mpirun -x FI_PROVIDER=efa -x LD_LIBRARY_PATH=/opt/amazon/efa/lib ./a", 20),
    ] {
        let (_, report) = script("", body);
        let found: u32 = report.plan.evidence.iter().map(|one| one.weight).sum();
        assert_eq!(found, sum, "{body}: {:?}", report.plan.evidence);
    }
}

/// Variables are copied from one cloud to the next, so two that name different fabrics show neither; where a resource says
/// what the nodes are, a variable that was left over changes nothing.
#[test]
fn a_variable_of_another_fabric_counts_against_variables() {
    let mlx = "export NCCL_IB_HCA=mlx5_0\nexport FI_PROVIDER=efa";
    let (text, report) = script("", mlx);
    assert_eq!(report.skip(), Some("fabric-unknown"), "{:?}", report.plan);
    assert!(!report.changed, "{text}");
    assert!(report.plan.skip().unwrap().why.contains("6 against it"), "{:?}", report.plan.skip());
    let env = "env: [{name: NCCL_IB_HCA, value: mlx5_0}, {name: FI_PROVIDER, value: efa}]";
    let (_, report) = job("", "", env, "vpc.amazonaws.com/efa: 32");
    assert_eq!(report.plan.profile.as_deref(), Some("eks-image"), "{:?}", report.plan);
}

#[test]
fn a_site_without_a_profile_needs_the_score_too() {
    for body in [
        "wandb login --host https://coreweave.wandb.io",
        "echo a; ls /data/coreweave-notes",
        "cd /home/nebius",
    ] {
        let (_, report) = script("", body);
        assert_eq!(report.skip(), Some("fabric-unknown"), "{body}: {:?}", report.plan.skip());
        assert!(report.plan.skip().unwrap().why.contains("not enough"), "{body}: {:?}", report.plan.skip());
    }
}

/// A file that `setup` writes counts where the command runs it, as in a script.
#[test]
fn a_file_that_the_command_runs_is_evidence() {
    let written = "cat > run.sh <<'EOF'\nexport FI_PROVIDER=efa LD_LIBRARY_PATH=/opt/amazon/efa/lib\nEOF";
    for (command, shown) in [(["bash", "run.sh"], true), (["bash", "other.sh"], false)] {
        let mut role = weftrun_core::spec::Role::worker();
        role.command = command.map(str::to_owned).to_vec();
        let mut spec = weftrun_core::spec::JobSpec::builder("a").role(role).build().unwrap();
        spec.backend.insert("slurm".to_owned(), serde_json::json!({ "setup": ["set +e", written] }));
        let (plan, _) = FabricPlan::by_evidence(
            &spec,
            &Catalogue::builtin(),
            &ClusterFacts::default(),
            &Profiles::builtin(),
            Form::Made,
        )
        .unwrap();
        assert_eq!(!plan.evidence.is_empty(), shown, "{command:?}: {:?}", plan.evidence);
    }
}
