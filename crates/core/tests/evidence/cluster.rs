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
        let reason = plan.skip().map(|skip| skip.reason.clone());
        (plan.evidence.first().map(|one| one.fabric.clone()).unwrap_or_default(), reason)
    };
    let other = Some("other-fabric".to_owned());
    let (fabric, reason) = shown("a", "cpu", "mrdma.google.com");
    assert_eq!((fabric.starts_with("Google RDMA"), reason), (true, other.clone()), "{fabric}");
    let (fabric, reason) = shown("oci.oraclecloud.com/host.serial_number", "cpu", "gpu.nvidia.com");
    assert_eq!((fabric.contains("Oracle"), reason), (true, other.clone()), "{fabric}");
    let (fabric, reason) = shown("a", "cpu", "efa.networking.k8s.aws");
    assert_eq!((fabric.as_str(), reason), ("AWS EFA by DRA", other));
    let (fabric, reason) =
        shown("eks.amazonaws.com/nodegroup", "vpc.amazonaws.com/efa", "efa.networking.k8s.aws");
    assert_eq!((fabric.contains("EFA") && !fabric.contains("DRA"), reason), (true, None), "{fabric}");
}
