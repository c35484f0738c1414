//! Detection, strictness, placement.

use weftrun_core::Severity;
use weftrun_core::backend::{ClusterFacts, NodeGroup};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::decide;
use weftrun_core::fabric::view::{JobKind, RoleView};
use weftrun_core::fabric::{Profiles, RuleSetting};
use weftrun_core::request::FabricRequest;

use super::situation::{
    codes, dgxc, has, job, launcher, on, online, ops, profile, pytorch, run, with_env, worker,
};

#[test]
fn detection_is_for_job_files_and_on_request() {
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    assert!(ops(&dgxc(&view)).iter().all(|op| !op.contains("NCCL_DEBUG")));
    let outcome = run(&view, "dgxc", &FabricRequest { detect: Some(true), ..FabricRequest::default() });
    for line in ["Launcher: env NCCL_DEBUG = INFO", "Worker: env NCCL_DEBUG = INFO"] {
        assert!(has(&outcome, line), "{line}");
    }
    assert!(ops(&outcome).iter().any(|op| op.contains("-x NCCL_DEBUG")));
}

#[test]
fn a_level_that_says_nothing_of_transports_is_kept_and_named() {
    let quiet = with_env(worker("Worker"), &[("NCCL_DEBUG", "WARN")]);
    let outcome =
        run(&pytorch(quiet), "dgxc", &FabricRequest { detect: Some(true), ..FabricRequest::default() });
    assert_eq!(codes(&outcome), ["W-ENV-KEPT"]);
}

#[test]
fn strict_pins_the_network() {
    let strict = FabricRequest { strict: true, ..FabricRequest::default() };
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    let outcome = run(&view, "dgxc", &strict);
    assert!(
        has(&outcome, "Worker: env NCCL_NET = AWS Libfabric")
            && has(&outcome, "Launcher: env NCCL_NET = AWS Libfabric")
    );
    assert!(has(&run(&pytorch(worker("Worker")), "roce", &strict), "Worker: env NCCL_NET = IB"));
    let known = Profiles::builtin()
        .with("k", "extends = 'dgxc'\n[stack]\nnet-plugin = '/opt/p/libnccl-net.so'".parse().unwrap());
    let outcome =
        decide(&view, &known.get("k").unwrap(), &strict, &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(&outcome, "Worker: env NCCL_NET_PLUGIN = /opt/p/libnccl-net.so"));
}

/// The file of a stack that is not mounted does not exist.
#[test]
fn strict_pins_the_plugin_that_the_ranks_load() {
    let strict = FabricRequest { strict: true, ..FabricRequest::default() };
    let known = Profiles::builtin().with(
        "k",
        "extends = 'dgxc'\n[stack]\nnet-plugin = '/opt/p/of-stack.so'\n[efa]\nnet-plugin = '/opt/p/of-image.so'"
            .parse()
            .unwrap(),
    );
    let profile = known.get("k").unwrap();
    let pinned = |worker: RoleView| {
        let view = pytorch(worker);
        decide(&view, &profile, &strict, &Catalogue::builtin(), &ClusterFacts::default())
    };
    let mounted = pinned(worker("Worker"));
    assert!(has(&mounted, "Worker: env NCCL_NET_PLUGIN = /opt/p/of-stack.so"));
    let bundled = pinned(with_env(worker("Worker"), &[("FI_PROVIDER_PATH", "/opt/amazon/efa/lib")]));
    assert!(has(&bundled, "Worker: env NCCL_NET_PLUGIN = /opt/p/of-image.so"));
}

/// No shipped profile has the path of the file; that is reported (docs/decisions/strict-pins-the-name.md).
#[test]
fn strict_says_that_it_pins_by_name_alone() {
    let strict = FabricRequest { strict: true, ..FabricRequest::default() };
    let outcome = run(&pytorch(worker("Worker")), "dgxc", &strict);
    let why = outcome.decisions.iter().find(|decision| decision.rule == "strict.net").map(|d| d.why.as_str());
    assert!(why.is_some_and(|why| why.contains("pinned by its name")), "{why:?}");
}

#[test]
fn raw_manifests_are_placed_only_on_request() {
    let view = pytorch(on(worker("Worker"), "p5.48xlarge"));
    assert!(ops(&dgxc(&view)).iter().all(|op| !op.contains("affinity")));
    let mut options = FabricRequest::default();
    options.rules.insert("efa.colocate".into(), RuleSetting::On);
    assert!(has(
        &run(&view, "dgxc", &options),
        "Worker: affinity = all pods in one topology.kubernetes.io/zone"
    ));
}

#[test]
fn a_namespace_that_forbids_host_paths_is_named_before_it_refuses() {
    let facts = online(|facts| facts.pod_security = Some("baseline".into()));
    let outcome = decide(
        &pytorch(worker("Worker")),
        &profile("dgxc"),
        &FabricRequest::default(),
        &Catalogue::builtin(),
        &facts,
    );
    assert!(outcome.findings.iter().any(|finding| finding.code == "W-POD-SECURITY"));
}

#[test]
fn huge_pages_that_no_node_has_are_reported() {
    let reported = |allocatable: &str| {
        let facts = online(|facts| {
            let mut group = NodeGroup::default();
            group.allocatable =
                [("nvidia.com/gpu", "8"), ("vpc.amazonaws.com/efa", "32"), ("hugepages-2Mi", allocatable)]
                    .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                    .into();
            facts.nodes.push(group);
        });
        let options = FabricRequest::default();
        let plan =
            decide(&pytorch(worker("Worker")), &profile("dgxc"), &options, &Catalogue::builtin(), &facts);
        let omitted = plan.findings.iter().any(|finding| finding.code == "I-HUGEPAGES-OMITTED");
        assert_eq!(omitted, plan.ops.iter().all(|op| op.rule != "efa.hugepages"));
        omitted
    };
    assert!(reported("0") && reported("5119Mi"), "a pod with them would stay Pending");
    assert!(!reported("5Gi") && !reported("42242Mi"));
}

#[test]
fn every_finding_says_what_to_do() {
    let view = job(
        JobKind::MpiJobV2,
        vec![launcher(&["./run.sh"]), with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "$X")])],
    );
    for finding in dgxc(&view).findings {
        assert!(finding.fix.is_some(), "{} has no fix", finding.code);
        assert!(finding.severity <= Severity::Warning);
    }
}
