//! Evidence from the cluster: labels of nodes and device classes.

use super::*;

#[test]
fn device_classes_and_node_labels_of_the_cluster_are_evidence() {
    let spec = JobSpec::builder("a")
        .image("x")
        .role(Role::worker().nodes(2).gpus_per_node(8).memory("900Gi").command(["train.py"]))
        .build()
        .unwrap();
    let shown = |label: &str, resource: &str, class: &str| {
        let mut group = NodeGroup::default();
        group.labels = [(label.to_owned(), String::new())].into();
        group.allocatable =
            [("nvidia.com/gpu", "8"), (resource, "8")].map(|(k, v)| (k.into(), v.into())).into();
        let mut facts = ClusterFacts::default();
        (facts.online, facts.nodes) = (true, vec![group]);
        facts.serves = vec![format!("DeviceClass {class}")];
        let (catalogue, profiles) = (Catalogue::builtin(), Profiles::builtin());
        let (plan, _) = FabricPlan::by_evidence(&spec, &catalogue, &facts, &profiles, Form::Made).unwrap();
        let reason = plan.skip().map(|skip| skip.reason);
        (plan.evidence.first().map(|one| one.fabric.clone()).unwrap_or_default(), reason)
    };
    let other = Some(SkipReason::OtherFabric);
    let (fabric, reason) = shown("a", "cpu", "mrdma.google.com");
    assert_eq!((fabric.starts_with("Google RDMA"), reason), (true, other), "{fabric}");
    let (fabric, reason) = shown("oci.oraclecloud.com/host.serial_number", "cpu", "gpu.nvidia.com");
    assert_eq!((fabric.contains("Oracle"), reason), (true, other), "{fabric}");
    let (fabric, reason) = shown("a", "cpu", "efa.networking.k8s.aws");
    assert_eq!((fabric.as_str(), reason), ("AWS EFA by DRA", other));
    let (fabric, reason) =
        shown("eks.amazonaws.com/nodegroup", "vpc.amazonaws.com/efa", "efa.networking.k8s.aws");
    assert_eq!((fabric.contains("EFA") && !fabric.contains("DRA"), reason), (true, None), "{fabric}");
}

fn two_nodes(queue: Option<&str>) -> JobSpec {
    let mut spec = JobSpec::builder("a")
        .image("x")
        .role(Role::worker().nodes(2).gpus_per_node(8).memory("900Gi").command(["train.py"]))
        .build()
        .unwrap();
    spec.queue = queue.map(str::to_owned);
    spec
}

/// Returns the fabrics that a cluster shows, weightiest first.
fn fabrics(spec: &JobSpec, facts: &ClusterFacts) -> Vec<String> {
    let (catalogue, profiles) = (Catalogue::builtin(), Profiles::builtin());
    let (plan, _) = FabricPlan::by_evidence(spec, &catalogue, facts, &profiles, Form::Script).unwrap();
    plan.evidence.into_iter().map(|one| one.fabric).collect()
}

#[test]
fn networks_of_the_cluster_are_evidence() {
    let with = |api: NetworkApi, name: &str, driver: &str| {
        let mut network = PodNetwork::default();
        (network.api, network.name, network.driver) = (api, name.to_owned(), Some(driver.to_owned()));
        let mut facts = ClusterFacts::default();
        (facts.online, facts.networks) = (true, vec![network]);
        fabrics(&two_nodes(None), &facts)
    };
    assert_eq!(with(NetworkApi::Gke, "any-name", "RDMA"), ["Google RDMA (A3 Ultra, A4)"]);
    assert_eq!(with(NetworkApi::Gke, "vpc1", "NetDevice"), ["Google Cloud"]);
    assert_eq!(with(NetworkApi::Multus, "team/fast", "ib-sriov")[0], "InfiniBand");
    assert_eq!(with(NetworkApi::Multus, "default/rdma-vf", "sriov")[0], "RoCE of Oracle Cloud");
    assert!(with(NetworkApi::Multus, "rdma-team/backup", "macvlan").is_empty());
}

#[test]
fn settings_features_and_resources_of_slurm_are_evidence() {
    let setting = |name: &str, value: &str| {
        let mut facts = ClusterFacts::default();
        (facts.online, facts.settings) = (true, [(name.to_owned(), value.to_owned())].into());
        fabrics(&two_nodes(None), &facts)
    };
    assert_eq!(setting("SwitchType", "switch/hpe_slingshot"), ["HPE Slingshot"]);
    assert!(setting("SwitchType", "switch/none").is_empty());
    assert_eq!(setting("ResumeProgram", "/opt/parallelcluster/scripts/slurm/slurm_resume"), ["AWS EFA"]);
    assert_eq!(setting("ResumeProgram", "/opt/azurehpc/slurm/resume_program.sh"), ["InfiniBand of Azure"]);

    let node = |queue: &str, feature: &str, resource: &str| {
        let mut group = NodeGroup::default();
        group.queues = vec![queue.to_owned()];
        group.labels = [(feature.to_owned(), "true".to_owned())].into();
        group.allocatable = [(resource.to_owned(), "1".to_owned())].into();
        group
    };
    let mut facts = ClusterFacts::default();
    facts.online = true;
    facts.nodes =
        vec![node("fast", "ndr400", "cpu"), node("cloud", "efa", "cpu"), node("old", "x", "gres/opa")];
    let mut default = Queue::default();
    (default.name, default.default) = ("cloud".to_owned(), true);
    facts.queues = vec![default];
    // Each partition has its own fabric; a job without one goes to the default.
    assert_eq!(fabrics(&two_nodes(Some("fast")), &facts), ["InfiniBand"]);
    assert_eq!(fabrics(&two_nodes(None), &facts), ["AWS EFA"]);
    assert!(fabrics(&two_nodes(Some("old")), &facts).is_empty());
    assert_eq!(fabrics(&two_nodes(Some("fast,old")), &facts), ["InfiniBand"]);
    assert!(fabrics(&two_nodes(Some("unknown")), &facts).is_empty(), "not those of the default partition");
}

#[test]
fn devices_of_the_nodes_are_evidence() {
    for (kind, name) in [
        (DeviceKind::Efa, "AWS EFA"),
        (DeviceKind::InfiniBand, "InfiniBand"),
        (DeviceKind::Roce, "RoCE"),
        (DeviceKind::Slingshot, "HPE Slingshot"),
        (DeviceKind::OmniPath, "Omni-Path"),
    ] {
        let mut group = NodeGroup::default();
        group.devices = [kind, DeviceKind::Software, DeviceKind::Unknown].into();
        let mut facts = ClusterFacts::default();
        (facts.online, facts.nodes) = (true, vec![group]);
        assert_eq!(fabrics(&two_nodes(None), &facts), [name]);
    }
}

/// A ComputeDomain shows that four GPUs are a whole node, and neither its type nor its number of interfaces; a named profile
/// of many types does not either.
#[test]
fn a_compute_domain_names_no_type() {
    let text = |node: &str| {
        format!(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 2, template: {{spec: {{{node}resourceClaims: \
             [{{name: c, resourceClaimTemplateName: domain-channel}}], containers: [{{name: pytorch, image: i, env: [{{name: FI_PROVIDER, value: efa}}], resources: {{claims: \
             [{{name: c}}], limits: {{nvidia.com/gpu: 4, memory: 400Gi}}}}}}]}}}}}}}}}}\n"
        )
    };
    let profiles = Profiles::builtin();
    let (named, catalogue, options) =
        (profiles.get("eks-image").unwrap(), Catalogue::builtin(), FabricRequest::default());
    let of_profile = MutateOptions::offline(&named, &options, &catalogue);
    let node = "nodeSelector: {node.kubernetes.io/instance-type: p6e-gb200.36xlarge}, ";
    for (node, skip) in [("", Some("instance-unknown")), (node, None)] {
        let text = text(node);
        let by_evidence =
            with_settings(|settings| mutate(&text, Start::of("a"), settings).unwrap().jobs[0].clone());
        let by_name = mutate(&text, Start::of("a"), &of_profile).unwrap();
        for job in [&by_evidence, &by_name.jobs[0]] {
            assert_eq!(job.skip(), skip, "{node}: {:?}", job.plan.skipped);
        }
        assert_eq!(by_name.text.contains("vpc.amazonaws.com/efa: '4'"), skip.is_none(), "{}", by_name.text);
    }
}
