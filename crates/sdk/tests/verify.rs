//! `verify` leaves no job behind, or says which: against a backend that a test controls.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use weftrun::core::backend::{Backend, BackendEntry, TargetConfig};
use weftrun::prelude::*;
use weftrun::verify::Verification;
use weftrun::{Config, Registry};
use weftrun_testkit::fake::Fake;

static CANCELS: LazyLock<Fake> = LazyLock::new(|| Fake::new("cancels"));
static REFUSES: LazyLock<Fake> = LazyLock::new(|| Fake::new("refuses"));

fn client() -> Client {
    let entry = |name, connect| BackendEntry::new(name, "", "here", connect);
    let registry = Registry::empty()
        .with(entry("cancels", |_| Box::pin(async { Ok(Arc::new(CANCELS.clone()) as Arc<dyn Backend>) })))
        .with(entry("refuses", |_| Box::pin(async { Ok(Arc::new(REFUSES.clone()) as Arc<dyn Backend>) })));
    Client::builder().registry(registry).config(Config::empty("/nowhere")).build().unwrap()
}

/// Runs a benchmark whose job never ends, for a moment.
async fn verify(backend: &str) -> Error {
    let spec = JobSpec::builder("bench").role(Role::worker().nodes(2).command(["true"])).build().unwrap();
    let target = TargetConfig::new(backend, backend, "/nowhere");
    let run = Verification::new(&client(), target, spec).timeout(Duration::from_millis(300));
    run.run().await.expect_err("the job does not end")
}

fn job_of(fake: &Fake) -> (String, JobPhase) {
    let jobs = futures_util::FutureExt::now_or_never(fake.list(&JobFilter::all())).unwrap().unwrap();
    (jobs[0].handle.to_string(), jobs[0].phase)
}

#[tokio::test]
async fn a_job_that_is_given_up_is_cancelled() {
    let error = Box::pin(verify("cancels")).await;
    let (job, phase) = job_of(&CANCELS);
    assert_eq!((error.kind(), phase), (ErrorKind::Timeout, JobPhase::Cancelled), "{error}");
    assert!(error.to_string().contains(&format!("cancelled: {job}")), "{error}");
}

#[tokio::test]
async fn a_job_that_could_not_be_cancelled_is_named_with_the_command_that_does() {
    REFUSES.fail_next("act", ErrorKind::Refused, "this token may not delete jobs");
    let error = Box::pin(verify("refuses")).await;
    let (job, phase) = job_of(&REFUSES);
    assert!(!phase.is_terminal(), "it runs: {phase}");
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{said}");
    assert!(said.contains("not cancelled") && said.contains("this token may not delete jobs"), "{said}");
    assert!(error.hints().iter().any(|hint| hint.contains(&format!("weftrun cancel '{job}'"))), "{error:?}");
}
