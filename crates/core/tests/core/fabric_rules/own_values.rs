//! The user's own values.

use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::decide;
use weftrun_core::fabric::view::{EnvView, JobKind, MountView, RoleView, VolumeView};
use weftrun_core::fabric::{Profiles, RuleSetting};
use weftrun_core::request::FabricRequest;

use super::situation::{
    OURS, codes, dgxc, has, job, launcher, on, ops, pytorch, refused, run, with_env, with_resource, worker,
};

#[test]
fn the_users_library_path_stays_behind_ours_without_empty_entries() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", ":/a::/opt/amazon-efa-ofi/efa/lib:/b:")]);
    assert!(has(&dgxc(&pytorch(role)), &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/a:/b")));
}

#[test]
fn a_dollar_that_nobody_expands_is_kept_and_named() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "/a:$LD_LIBRARY_PATH")]);
    let outcome = dgxc(&pytorch(role));
    assert_eq!(codes(&outcome), ["W-ENV-DOLLAR"]);
    assert!(has(&outcome, &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/a:$LD_LIBRARY_PATH")));
}

#[test]
fn of_two_entries_of_one_name_the_last_counts() {
    let role = with_env(worker("Worker"), &[("LD_LIBRARY_PATH", "/first"), ("LD_LIBRARY_PATH", "/last")]);
    assert!(has(&dgxc(&pytorch(role)), &format!("Worker: env LD_LIBRARY_PATH = {OURS}:/last")));
}

#[test]
fn a_library_path_from_elsewhere_cannot_be_prefixed() {
    let mut role = worker("Worker");
    role.container.env.push(EnvView { name: "LD_LIBRARY_PATH".into(), value: None, at: String::new() });
    refused(&dgxc(&pytorch(role)), "E-LDPATH-VALUEFROM");
}

#[test]
fn a_foreign_opal_prefix_is_an_error_in_an_mpijob_and_kept_elsewhere() {
    let role = with_env(worker("Worker"), &[("OPAL_PREFIX", "/opt/hpcx/ompi")]);
    assert_eq!(codes(&dgxc(&pytorch(role.clone()))), ["W-ENV-KEPT"]);
    refused(&dgxc(&job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "a"]), role])), "E-OPAL-CONFLICT");
}

#[test]
fn amounts_of_the_users_stay_and_both_sides_say_them() {
    let only_limit = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("16"), None);
    let outcome = dgxc(&pytorch(on(only_limit, "p5.48xlarge")));
    assert!(has(&outcome, "Worker: resources vpc.amazonaws.com/efa = 16"));
    assert_eq!(codes(&outcome), ["W-EFA-PARTIAL"]);
    let unequal = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("32"), Some("16"));
    refused(&dgxc(&pytorch(unequal)), "E-RES-UNEQUAL");
    let same_amount = with_resource(worker("Worker"), "hugepages-2Mi", Some("5Gi"), Some("5120Mi"));
    assert_eq!(codes(&dgxc(&pytorch(same_amount))), [""; 0], "5Gi and 5120Mi are one amount");
}

#[test]
fn zero_stays_zero_and_takes_the_huge_pages_along() {
    let none = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("0"), Some("0"));
    let outcome = dgxc(&pytorch(none));
    assert!(ops(&outcome).iter().all(|op| !op.contains("resources")), "{:#?}", ops(&outcome));
    assert!(outcome.skipped.iter().any(|skipped| skipped.rule == "efa.hugepages"));
}

#[test]
fn more_than_the_type_has_is_an_error() {
    let much = with_resource(worker("Worker"), "vpc.amazonaws.com/efa", Some("32"), Some("32"));
    let outcome = dgxc(&pytorch(on(much, "p5en.48xlarge")));
    refused(&outcome, "E-EFA-CAPACITY");
    assert!(outcome.error().unwrap().message.contains("exceeds instance capacity"));
}

#[test]
fn huge_pages_need_memory_which_is_asked_only_when_said() {
    let bare = with_resource(worker("Worker"), "memory", None, None);
    let without = dgxc(&pytorch(bare.clone()));
    assert!(without.error().is_none() && has(&without, "Worker: resources vpc.amazonaws.com/efa = 32"));
    assert!(codes(&without).contains(&"I-HUGEPAGES-OMITTED"), "{:?}", without.findings);
    assert!(ops(&without).iter().all(|op| !op.contains("hugepages")), "{:#?}", ops(&without));
    let mut demanded = FabricRequest::default();
    demanded.rules.insert("efa.hugepages".into(), RuleSetting::On);
    refused(&run(&pytorch(bare.clone()), "dgxc", &demanded), "E-HP-NEEDS-MEMORY");
    let off = with_env(worker("Worker"), &[("FI_EFA_USE_HUGE_PAGE", "0")]);
    assert!(ops(&dgxc(&pytorch(off))).iter().all(|op| !op.contains("hugepages")));
    let options = FabricRequest { memory: Some("900Gi".into()), ..FabricRequest::default() };
    assert!(has(&run(&pytorch(bare.clone()), "dgxc", &options), "Worker: resources memory = 900Gi"));
    let mine = Profiles::builtin()
        .with("mine", "extends = 'dgxc'\nmemory-default = '90%'".parse().unwrap())
        .get("mine")
        .unwrap();
    let job = pytorch(on(bare.clone(), "p5.48xlarge"));
    let outcome =
        decide(&job, &mine, &FabricRequest::default(), &Catalogue::builtin(), &ClusterFacts::default());
    assert!(has(&outcome, "Worker: resources memory = 1887436Mi"), "{:#?}", ops(&outcome));
    let mut options = FabricRequest::default();
    options.rules.insert("efa.hugepages".into(), RuleSetting::Off);
    assert_eq!(
        codes(&run(&pytorch(bare), "dgxc", &options)),
        [""; 0],
        "without huge pages it needs no memory"
    );
}

#[test]
fn a_volume_of_our_name_must_be_ours_and_a_mount_of_the_path_is_enough() {
    let volume = |path: &str| VolumeView {
        name: "amazon-efa-ofi".into(),
        host_path: Some(path.into()),
        ..VolumeView::default()
    };
    let other = RoleView { volumes: vec![volume("/elsewhere")], ..worker("Worker") };
    refused(&dgxc(&pytorch(other)), "E-VOLUME-NAME");
    let ours = RoleView { volumes: vec![volume("/opt/amazon-efa-ofi/")], ..worker("Worker") };
    assert!(ops(&dgxc(&pytorch(ours)))[0].contains("mount"), "only the mount is missing");
    let mut mounted = worker("Worker");
    mounted.container.mounts = vec![MountView { volume: "x".into(), path: "/opt/amazon-efa-ofi/".into() }];
    assert!(ops(&dgxc(&pytorch(mounted))).iter().all(|op| !op.contains("mount")));
}

#[test]
fn device_rdma_is_left_out_where_it_would_abort() {
    let outcome = dgxc(&pytorch(on(worker("Worker"), "g5.48xlarge")));
    assert!(ops(&outcome).iter().all(|op| !op.contains("DEVICE_RDMA")));
    let own = with_env(on(worker("Worker"), "g5.48xlarge"), &[("FI_EFA_USE_DEVICE_RDMA", "1")]);
    refused(&dgxc(&pytorch(own)), "E-RDMA-UNSUPPORTED");
}
