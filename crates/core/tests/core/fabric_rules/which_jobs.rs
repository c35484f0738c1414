//! Which jobs get EFA.

use weftrun_core::backend::NodeGroup;
use weftrun_core::catalogue::Catalogue;

use weftrun_core::fabric::decide;
use weftrun_core::fabric::view::{JobKind, RoleView};
use weftrun_core::request::FabricRequest;

use super::situation::{
    codes, dgxc, has, job, on, online, ops, profile, pytorch, refused, run, skip, with_resource, words,
    worker,
};

#[test]
fn one_pod_is_not_distributed() {
    let alone = RoleView { replicas: 1, ..worker("Worker") };
    assert_eq!(skip(&dgxc(&pytorch(alone))), Some("not-distributed"));
}

#[test]
fn without_gpus_there_is_nothing_to_connect() {
    assert_eq!(
        skip(&dgxc(&pytorch(with_resource(worker("Worker"), "nvidia.com/gpu", None, None)))),
        Some("no-gpu")
    );
}

#[test]
fn a_template_is_not_judged_before_it_is_filled_in() {
    let pods = RoleView { replicas: 1, replicas_text: Some("$NUM_NODES".into()), ..worker("Worker") };
    let gpus = with_resource(worker("Worker"), "nvidia.com/gpu", Some("$GPUS"), Some("$GPUS"));
    for role in [pods, gpus] {
        assert_eq!(skip(&dgxc(&pytorch(role))), Some("template"));
    }
}

#[test]
fn a_neuron_job_is_left_alone_until_its_profile_is_chosen() {
    let role = with_resource(worker("Worker"), "nvidia.com/gpu", None, None);
    let role = on(with_resource(role, "aws.amazon.com/neuron", Some("16"), Some("16")), "trn1n.32xlarge");
    assert_eq!(skip(&dgxc(&pytorch(role.clone()))), Some("no-gpu"));
    let outcome = run(&pytorch(role), "neuron", &FabricRequest::default());
    assert_eq!(codes(&outcome), [""; 0]);
    for line in [
        "Worker: env FI_PROVIDER = efa",
        "Worker: env FI_EFA_USE_DEVICE_RDMA = 1",
        "Worker: env FI_EFA_FORK_SAFE = 1",
        "Worker: resources vpc.amazonaws.com/efa = 16",
    ] {
        assert!(has(&outcome, line), "{line} in {:#?}", ops(&outcome));
    }
}

#[test]
fn roles_that_differ_get_nothing_and_are_named() {
    let part = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let outcome = dgxc(&job(JobKind::PyTorchJob, vec![worker("Master"), part]));
    assert_eq!((skip(&outcome), codes(&outcome)), (Some("partial-node"), vec!["W-ROLES-MIXED"]));
}

/// A node of an unknown type is only assumed to have eight: a role that requests EFA itself may have all of a smaller one.
#[test]
fn a_role_that_requests_efa_itself_is_no_part_of_an_assumed_node() {
    let efa = |gpus: &str| {
        let role = with_resource(worker("Worker"), "nvidia.com/gpu", Some(gpus), Some(gpus));
        with_resource(role, "vpc.amazonaws.com/efa", Some("1"), Some("1"))
    };
    let outcome = run(&pytorch(efa("1")), "eks-image", &FabricRequest::default());
    assert_eq!(skip(&outcome), None);
    assert!(!ops(&outcome).iter().any(|op| op.contains("hugepages")), "{:#?}", ops(&outcome));
    assert!(!codes(&outcome).contains(&"W-INSTANCE-UNKNOWN"), "{:?}", codes(&outcome));
    let known = run(&pytorch(on(efa("1"), "p5.48xlarge")), "eks-image", &FabricRequest::default());
    assert_eq!(skip(&known), Some("partial-node"), "the catalogue knows its GPUs");
    let none = with_resource(efa("1"), "vpc.amazonaws.com/efa", Some("0"), Some("0"));
    assert_eq!(skip(&run(&pytorch(none), "eks-image", &FabricRequest::default())), Some("partial-node"));
}

#[test]
fn four_gpus_are_a_whole_gb200_node() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    assert_eq!(skip(&dgxc(&pytorch(four.clone()))), Some("partial-node"), "without the type nobody knows");
    let outcome = dgxc(&pytorch(on(four, "p6e-gb200.36xlarge")));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 4"), "{:#?}", ops(&outcome));
    assert!(has(&outcome, "Worker: resources hugepages-2Mi = 10256Mi"));
    assert!(
        outcome.findings.iter().any(|f| f.code == "W-EFA-ASSUMED"),
        "its sources disagree, and that is said"
    );
}

#[test]
fn a_type_without_efa_is_skipped_and_one_whose_sources_disagree_too() {
    let four = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    assert_eq!(skip(&dgxc(&pytorch(on(worker("Worker"), "BM.GPU.H100.8")))), Some("no-efa-on-instance-type"));
    assert_eq!(skip(&dgxc(&pytorch(on(four, "p6e-gb300.36xlarge")))), Some("no-efa-on-instance-type"));
}

#[test]
fn hyperpod_writes_ml_before_the_type() {
    assert!(has(
        &dgxc(&pytorch(on(worker("Worker"), "ml.p4d.24xlarge"))),
        "Worker: resources vpc.amazonaws.com/efa = 4"
    ));
}

#[test]
fn the_type_may_come_from_the_options() {
    let options =
        FabricRequest { instance_type: Some("p6-b200.48xlarge".into()), ..FabricRequest::default() };
    assert!(has(
        &run(&pytorch(worker("Worker")), "dgxc", &options),
        "Worker: resources vpc.amazonaws.com/efa = 8"
    ));
}

#[test]
fn several_types_left_open_get_the_least_and_a_warning() {
    let role = RoleView { instance_types: words(&["p5.48xlarge", "p5en.48xlarge"]), ..worker("Worker") };
    let outcome = dgxc(&pytorch(role));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 16"));
    assert!(outcome.findings.iter().any(|f| f.code == "W-INSTANCE-UNKNOWN" && f.message.contains("differ")));
}

#[test]
fn p4d_does_not_mix_with_p5() {
    let roles = vec![on(worker("Master"), "p4d.24xlarge"), on(worker("Worker"), "p5.48xlarge")];
    refused(&dgxc(&job(JobKind::PyTorchJob, roles)), "E-INSTANCE-MIXED");
}

#[test]
fn the_cluster_counts_before_the_catalogue() {
    let group = |instance: &str, efa: Option<&str>| {
        let mut group = NodeGroup::default();
        group.instance_type = Some(instance.to_owned());
        group.count = 4;
        group
            .allocatable
            .extend([("nvidia.com/gpu", "8"), ("pods", "110")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        group.allocatable.extend(efa.map(|amount| ("vpc.amazonaws.com/efa".to_owned(), amount.to_owned())));
        group
    };
    let with = |groups: Vec<NodeGroup>, role: RoleView| {
        let facts = online(|facts| facts.nodes = groups);
        decide(&pytorch(role), &profile("dgxc"), &FabricRequest::default(), &Catalogue::builtin(), &facts)
    };
    let told = with(vec![group("p5.48xlarge", Some("31"))], worker("Worker"));
    assert!(has(&told, "Worker: resources vpc.amazonaws.com/efa = 31"), "{:#?}", ops(&told));
    assert!(told.findings.iter().all(|f| f.code != "W-EFA-ASSUMED"));
    let dranet = with(vec![group("p5.48xlarge", None)], worker("Worker"));
    assert_eq!(skip(&dranet), Some("no-efa-on-instance-type"), "a node without the resource cannot give it");
    let mut by_control_plane = group("p5.48xlarge", None);
    by_control_plane.allocatable.remove("pods");
    let unlisted = with(vec![by_control_plane], worker("Worker"));
    assert!(
        has(&unlisted, "Worker: resources vpc.amazonaws.com/efa = 32"),
        "a list of GPUs alone says nothing of EFA"
    );
    let of_two = with(
        vec![group("p4d.24xlarge", Some("4")), group("p5.48xlarge", Some("32"))],
        on(worker("Worker"), "p5.48xlarge"),
    );
    assert!(has(&of_two, "Worker: resources vpc.amazonaws.com/efa = 32"), "only the matching type counts");
}
