//! Opting out.

use weftrun_core::fabric::view::{Annotation, JobKind};
use weftrun_core::fabric::{Inject, RuleSetting, Webhook};
use weftrun_core::request::FabricRequest;

use crate::situation::{
    annotated, codes, dgxc, has, job, launcher, ops, pytorch, refused, run, skip, worker,
};

#[test]
fn an_opt_out_of_the_job_is_copied_to_its_pods() {
    let mut view = pytorch(worker("Worker"));
    view.annotations.insert("disable-auto-efa".into(), Annotation::Text("true".into()));
    let outcome = dgxc(&view);
    assert_eq!(skip(&outcome), Some("opt-out"));
    assert_eq!(ops(&outcome), ["Worker: annotation disable-auto-efa = true"]);
    // A rule that is switched off does nothing, here either.
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
fn beside_a_webhook_that_injects_only_mpirun_is_ours() {
    let options = FabricRequest { inject: Inject::Server, ..FabricRequest::default() };
    let outcome =
        run(&job(JobKind::MpiJobV2, vec![launcher(&["mpirun", "app"]), worker("Worker")]), "dgxc", &options);
    assert_eq!(outcome.ops.iter().map(|op| op.rule.as_str()).collect::<Vec<_>>(), ["efa.mpirun"]);
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
