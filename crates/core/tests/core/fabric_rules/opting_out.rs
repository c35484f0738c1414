//! Opting out.

use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::view::{Annotation, JobKind};
use weftrun_core::fabric::{Change, Fabric, FabricPlan, Inject, Profiles, RuleSetting, Webhook, decide};
use weftrun_core::request::FabricRequest;

use super::situation::{
    annotated, codes, dgxc, has, job, launcher, online, ops, profile, pytorch, refused, run, skip,
    with_resource, worker,
};

#[test]
fn an_opt_out_of_the_job_is_copied_to_its_pods() {
    let mut view = pytorch(worker("Worker"));
    view.annotations.insert("disable-auto-efa".into(), Annotation::Text("true".into()));
    let outcome = dgxc(&view);
    assert_eq!(skip(&outcome), Some("opt-out"));
    assert_eq!(ops(&outcome), ["Worker: annotation disable-auto-efa = true"]);
    // A rule that is switched off does nothing, here as elsewhere.
    let rules = [("efa.webhook".to_owned(), RuleSetting::Off)].into();
    let off = run(&view, "dgxc", &FabricRequest { rules, ..FabricRequest::default() });
    assert_eq!((skip(&off), ops(&off).len()), (Some("opt-out"), 0));
}

#[test]
fn an_opt_out_of_one_worker_role_holds_for_all() {
    let out = annotated(worker("Worker"), &[("disable-auto-efa", "true")]);
    let outcome = dgxc(&job(JobKind::PyTorchJob, vec![worker("Master"), out]));
    assert_eq!(
        (skip(&outcome), codes(&outcome), ops(&outcome).len()),
        (Some("opt-out"), vec!["W-OPTOUT-MIXED"], 0)
    );
}

#[test]
fn a_launcher_alone_may_opt_out() {
    let out = annotated(launcher(&["mpirun", "app"]), &[("disable-auto-efa", "true")]);
    let outcome = dgxc(&job(JobKind::MpiJobV2, vec![out, worker("Worker")]));
    assert_eq!(codes(&outcome), ["W-OPTOUT-LAUNCHER"]);
    assert!(outcome.ops.iter().all(|op| op.role == "Worker"));
}

#[test]
fn only_the_string_true_is_an_opt_out() {
    let mut bool_like = worker("Worker");
    bool_like.annotations.insert("disable-auto-efa".into(), Annotation::NotText("true".into()));
    refused(&dgxc(&pytorch(bool_like)), "E-ANNOT-BOOL");
    let odd = annotated(worker("Worker"), &[("disable-auto-efa", "True")]);
    let outcome = dgxc(&pytorch(odd));
    assert_eq!((codes(&outcome), !outcome.ops.is_empty()), (vec!["W-OPTOUT-VALUE"], true));
}

#[test]
fn our_own_opt_out_beside_a_webhook_is_no_opt_out() {
    let options = FabricRequest { webhook: Webhook::Yes, ..FabricRequest::default() };
    let first = run(&pytorch(worker("Worker")), "dgxc", &options);
    assert!(has(&first, "Worker: annotation disable-auto-efa = true"));
    assert!(has(&first, "Worker: annotation weftrun.dev/applied = efa/v1"));
    let marked =
        annotated(worker("Worker"), &[("disable-auto-efa", "true"), ("weftrun.dev/applied", "efa/v1")]);
    let again = run(&pytorch(marked), "dgxc", &FabricRequest::default());
    assert_eq!(skip(&again), None);
    assert!(again.findings.iter().all(|finding| finding.code != "I-WEBHOOK-UNKNOWN"), "it is settled");
}

#[test]
fn beside_a_webhook_that_injects_a_plain_launcher_is_ours() {
    let options = FabricRequest { inject: Inject::Server, ..FabricRequest::default() };
    let mpi = |launcher| job(JobKind::MpiJobV2, vec![launcher, worker("Worker")]);
    let outcome = run(&mpi(launcher(&["mpirun", "app"])), "dgxc", &options);
    assert!(outcome.ops.iter().all(|op| op.role == "Launcher"), "{:?}", ops(&outcome));
    assert!(has(&outcome, "Launcher: annotation disable-auto-efa = true"));
    assert!(ops(&outcome).iter().any(|op| op.contains("/opt/amazon-efa-ofi") && op.contains("mount")));
    assert!(
        ops(&outcome).iter().all(|op| !op.contains("hugepages") && !op.contains("vpc.amazonaws.com/efa"))
    );
    assert!(run(&pytorch(worker("Worker")), "dgxc", &options).ops.is_empty(), "the webhook does all");
    let mut both = launcher(&["mpirun", "app"]);
    both.worker = true;
    both.container = worker("Worker").container;
    let outcome = run(&mpi(both), "dgxc", &options);
    assert!(outcome.ops.iter().all(|op| !matches!(op.change, Change::Annotation { .. })), "it is a worker");
}

/// Every plan without EFA adds the opt-out to all pods: the webhook sees each of them alone.
#[test]
fn a_job_without_efa_keeps_the_webhook_out_of_every_pod() {
    let kept = ["disable-auto-efa = true", "weftrun.dev/applied = none/v1"];
    let part = || with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let jobs = [
        (part(), Fabric::Auto, "partial-node"),
        (worker("Worker"), Fabric::Off, "off"),
        (worker("Worker"), Fabric::Tcp, ""),
    ];
    for (role, kind, why) in jobs {
        let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), role]);
        let request = |webhook| FabricRequest { kind, webhook, ..FabricRequest::default() };
        let outcome = run(&view, "dgxc", &request(Webhook::Yes));
        assert_eq!(skip(&outcome).unwrap_or_default(), why);
        for (role, kept) in ["Launcher", "Worker"].into_iter().flat_map(|role| kept.map(|kept| (role, kept)))
        {
            assert!(has(&outcome, &format!("{role}: annotation {kept}")), "{kind:?}: {:?}", ops(&outcome));
        }
        let annotated = |outcome: &FabricPlan| ops(outcome).iter().any(|op| op.contains("annotation"));
        assert!(!annotated(&run(&view, "dgxc", &request(Webhook::No))), "{kind:?}: there is none");
        assert!(!annotated(&run(&view, "dgxc", &request(Webhook::Auto))), "{kind:?}: offline");
        let facts = online(|_| {});
        let unknown = decide(&view, &profile("dgxc"), &request(Webhook::Auto), &Catalogue::builtin(), &facts);
        assert!(annotated(&unknown), "{kind:?}: it could not be found out");
        let facts = online(|facts| facts.efa_webhook = Some(false));
        assert!(
            !annotated(&decide(
                &view,
                &profile("dgxc"),
                &request(Webhook::Auto),
                &Catalogue::builtin(),
                &facts
            )),
            "{kind:?}: seen"
        );
    }
}

/// weftrun's own opt-out for a webhook is no opt-out of the user's when the job is read again.
#[test]
fn our_own_opt_out_of_a_job_without_efa_is_no_opt_out() {
    let ours = [("disable-auto-efa", "true"), ("weftrun.dev/applied", "none/v1")];
    let options = FabricRequest { webhook: Webhook::Yes, ..FabricRequest::default() };
    let part = with_resource(worker("Worker"), "nvidia.com/gpu", Some("4"), Some("4"));
    let again = run(&pytorch(annotated(part, &ours)), "dgxc", &options);
    assert_eq!((skip(&again), ops(&again).len()), (Some("partial-node"), 0));
    let whole = run(&pytorch(annotated(worker("Worker"), &ours)), "dgxc", &options);
    assert_eq!(skip(&whole), None);
    assert!(has(&whole, "Worker: annotation weftrun.dev/applied = efa/v1"), "{:?}", ops(&whole));
}

/// `fabric = "efa"` of a job file and an opt-out by annotation: the annotation wins.
#[test]
fn an_opt_out_is_no_unmet_fabric() {
    let request = FabricRequest { kind: Fabric::Efa, ..FabricRequest::default() };
    let mut view = pytorch(worker("Worker"));
    view.annotations.insert("disable-auto-efa".into(), Annotation::Text("true".into()));
    let outcome = run(&view, "dgxc", &request);
    assert_eq!((skip(&outcome), codes(&outcome)), (Some("opt-out"), vec![]));
    assert!(has(&outcome, "Worker: annotation disable-auto-efa = true"));
    let role = annotated(worker("Worker"), &[("disable-auto-efa", "true")]);
    assert_eq!(codes(&run(&pytorch(role), "dgxc", &request)), Vec::<&str>::new());
}

/// A profile that the user names for a cluster that is not queried mounts what the webhook may mount too.
#[test]
fn a_named_profile_with_the_nodes_stack_keeps_a_webhook_out() {
    let profiles = Profiles::builtin();
    let named = |name: &str| profiles.get(name).unwrap().named().webhook;
    assert_eq!((named("dgxc"), named("eks-image")), (Webhook::Yes, Webhook::No));
    let mut denied = profiles.get("dgxc").unwrap();
    denied.webhook = Webhook::No;
    assert_eq!(denied.named().webhook, Webhook::No);
}

#[test]
fn each_rule_that_is_off_adds_nothing() {
    let all: Vec<&str> = vec![
        "efa.stack",
        "efa.library-path",
        "efa.opal-prefix",
        "efa.gdrcopy",
        "efa.device-rdma",
        "efa.devices",
        "efa.hugepages",
        "efa.mpirun",
        "efa.webhook",
    ];
    let view = job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]);
    for rule in all {
        let mut options = FabricRequest { webhook: Webhook::Yes, ..FabricRequest::default() };
        options.rules.insert(rule.to_owned(), RuleSetting::Off);
        let outcome = run(&view, "dgxc", &options);
        assert!(outcome.ops.iter().all(|op| op.rule != rule), "{rule}");
        assert!(outcome.skipped.iter().any(|skipped| skipped.rule == rule), "{rule} is not reported");
    }
    let mut options = FabricRequest::default();
    options.rules.insert("efa.device-rdma".into(), RuleSetting::Off);
    let command = ops(&run(&view, "dgxc", &options)).into_iter().find(|op| op.contains("command")).unwrap();
    assert!(!command.contains("FI_EFA_USE_DEVICE_RDMA"), "what is not set is not forwarded: {command}");
}

#[test]
fn a_rule_nobody_knows_is_an_error_with_the_nearest() {
    let mut options = FabricRequest::default();
    options.rules.insert("efa.hugepage".into(), RuleSetting::Off);
    let outcome = run(&pytorch(worker("Worker")), "dgxc", &options);
    refused(&outcome, "E-RULE-UNKNOWN");
    assert!(outcome.error().unwrap().fix.as_ref().unwrap().text.contains("efa.hugepages"));
}
