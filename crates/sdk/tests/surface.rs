//! Promises of the public surface, checked from outside.
#![cfg(feature = "local")]
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun::core::backend::{ExecRequest, Rendered};
use weftrun::prelude::*;
use weftrun::{HealthOptions, Inspection, Journal, Outcome, Record};
use weftrun_testkit::child;

fn client(state: &Path) -> Client {
    let mut config = Config::empty(state);
    config.env = child::environment();
    Client::builder().config(config).build().unwrap()
}

fn spec(name: &str) -> JobSpec {
    let role = Role::worker().command(["sh", "-c", "exit 0"]);
    JobSpec::builder(name).launch(Launch::PerRank).role(role).build().unwrap()
}

/// What the builder refuses, planning refuses too: the fields of a spec are public.
/// Makes one field of a valid spec invalid.
type Change = fn(&mut JobSpec);

#[tokio::test]
async fn a_spec_that_was_made_invalid_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let changes: [(&str, Change); 5] = [
        ("name", |spec| spec.name = "../NOT a/valid\nname".to_owned()),
        ("nodes", |spec| spec.roles[0].nodes = 0),
        ("roles", |spec| spec.roles.clear()),
        ("command", |spec| spec.roles[0].command.clear()),
        ("env", |spec| spec.roles[0].command.push("a\0b".to_owned())),
    ];
    for (what, change) in changes {
        let mut spec = spec("fine");
        change(&mut spec);
        let errors = [
            client.plan("local", &spec).await.map(drop).unwrap_err(),
            client.plan_offline("local", &spec).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{what}: {error}");
            assert!(error.findings().iter().any(Finding::is_error), "{what}: {error:?}");
            assert!(!error.to_string().contains('\n'), "{what}: {error}");
        }
    }
    assert!(client.list("local", &JobFilter::all()).await.unwrap().is_empty());
}

fn is_send<T: Send>(_: T) {}
fn is_send_and_sync<T: Send + Sync>() {}

/// Compiles only if every public future and stream can be moved to another thread.
#[allow(dead_code, unreachable_code, clippy::diverging_sub_expression, reason = "only compiled")]
fn every_future_is_send() {
    is_send_and_sync::<(Client, Config, Job, Plan, Registry, Error, Finding)>();
    is_send_and_sync::<(Journal, Record, Outcome, JobSpec, TransportMap, JobEvent, LogBatch)>();
    let (client, plan, job): (&Client, &mut Plan, &Job) = unimplemented!();
    let (target, rendered): (&weftrun::core::backend::TargetConfig, &Rendered) = unimplemented!();
    let (health, map): (&HealthOptions, &TransportMap) = unimplemented!();
    let (handle, filter): (&JobHandle, &JobFilter) = unimplemented!();
    is_send(client.connect(target));
    is_send(client.plan("", unimplemented!()));
    is_send(client.plan_for(unimplemented!(), unimplemented!()));
    is_send(client.attach(handle));
    is_send(client.list("", filter));
    is_send(client.list_on(target, filter));
    is_send(client.watch("", unimplemented!()));
    is_send(client.unresolved_on(target));
    is_send(plan.render());
    is_send(plan.check());
    is_send(plan.check_rendered(rendered));
    #[cfg(feature = "image")]
    is_send(plan.check_image(|_| ()));
    is_send(plan.earlier());
    is_send(plan.submit());
    is_send(plan.submit_unless(|| false));
    is_send::<BoxStream<'static, Result<JobEvent>>>(job.watch());
    is_send(job.watch_all(LogOptions::follow()));
    is_send(job.logs(LogOptions::follow()));
    is_send(job.why());
    is_send(job.why_with(unimplemented!()));
    is_send(job.trouble(unimplemented!()));
    is_send(job.describe());
    is_send(job.wait());
    is_send(job.exec(unimplemented!(), unimplemented!()));
    is_send(job.open_port(None, 1));
    is_send(job.act(Action::Cancel));
    is_send(job.cancel());
    is_send(job.health(health));
    is_send(job.inspect(Inspection::default()));
    is_send(job.counters(map, Duration::ZERO));
    is_send(weftrun::health_at("", map, health));
    let verification: &weftrun::verify::Verification = unimplemented!();
    is_send(verification.run());
}

/// Without a runtime every operation is an error that says so; nothing panics.
#[test]
fn a_missing_runtime_is_an_error() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (plan, job) = runtime.block_on(async {
        let plan = client.plan("local", &spec("once")).await.unwrap();
        let job = plan.submit().await.unwrap();
        job.wait().await.unwrap();
        (plan, job)
    });
    let mut streams: Vec<BoxStream<'static, Result<()>>> =
        runtime.block_on(async { vec![job.watch().map(|event| event.map(drop)).boxed()] });

    let no_runtime = |what: &str, error: Option<Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} works without a runtime"));
        assert_eq!(error.kind(), ErrorKind::Usage, "{what}: {error}");
        assert!(error.message().contains("runtime"), "{what}: {error}");
    };
    let filter = JobFilter::all();
    let handle = job.handle().clone();
    no_runtime("plan", block_on(client.plan("local", &spec("twice"))).err());
    no_runtime("list", block_on(client.list("local", &filter)).err());
    no_runtime("submit", block_on(plan.submit()).err());
    no_runtime("check", block_on(plan.check()).err());
    no_runtime("describe", block_on(job.describe()).err());
    no_runtime("wait", block_on(job.wait()).err());
    no_runtime("why", block_on(job.why()).err());
    no_runtime("cancel", block_on(job.cancel()).err());
    no_runtime("exec", block_on(job.exec(&ExecRequest::new(["true"]), &mut |_, _| Ok(()))).err());
    no_runtime("open_port", block_on(job.open_port(None, 1)).err());
    no_runtime("health", block_on(job.health(&HealthOptions::default())).err());
    no_runtime("inspect", block_on(job.inspect(Inspection::default())).err());
    no_runtime("counters", block_on(job.counters(&TransportMap::new(), Duration::ZERO)).err());
    let (map, options) = (TransportMap::new(), HealthOptions::default());
    no_runtime("health_at", block_on(weftrun::health_at("127.0.0.1:1", &map, &options)).map(drop).err());
    let fresh = Client::builder().config(Config::empty(state.path())).build().unwrap();
    no_runtime("attach", block_on(fresh.attach(&handle)).err());

    streams.push(job.watch().map(|event| event.map(drop)).boxed());
    streams.push(job.watch_all(LogOptions::follow()).map(|event| event.map(drop)).boxed());
    streams.push(job.logs(LogOptions::follow()).map(|batch| batch.map(drop)).boxed());
    for mut stream in streams {
        no_runtime("a stream", block_on(stream.next()).and_then(Result::err));
        assert!(block_on(stream.next()).is_none(), "a stream goes on after its error");
    }
}

/// Polls a future on this thread, as an executor that is not tokio's.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// The status comes first, and the end before the disappearance, also for a watch of all jobs.
#[tokio::test]
async fn a_watch_of_all_jobs_sees_the_end_of_a_deleted_one() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let mut events = client.watch("local", JobFilter::all()).await.unwrap();
    let role = Role::worker().command(["sleep", "600"]);
    let long = JobSpec::builder("long").launch(Launch::PerRank).role(role).build().unwrap();
    let job = client.plan("local", &long).await.unwrap().submit().await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        if event.phase() == Some(JobPhase::Running) {
            job.act(Action::Delete).await.unwrap();
        }
        let gone = matches!(event, JobEvent::Gone { .. });
        seen.push(event);
        if gone {
            break;
        }
    }
    assert!(seen[0].phase().is_some(), "{seen:?}");
    let last = seen.iter().filter_map(JobEvent::phase).next_back();
    assert_eq!(last, Some(JobPhase::Cancelled), "{seen:?}");
}

/// Job events and transport events come over one stream, which ends after both have.
#[tokio::test]
async fn job_and_transport_events_come_together() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let line = "h0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0";
    let role = Role::worker().command(["sh", "-c", &format!("echo '{line}'")]);
    let spec = JobSpec::builder("both").launch(Launch::PerRank).role(role).build().unwrap();
    let job = client.plan("local", &spec).await.unwrap().submit().await.unwrap();
    let (mut last, mut transport) = (None, Vec::new());
    let mut events = job.watch_all(LogOptions::follow());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            weftrun::WatchEvent::Job(event) => last = event.phase().or(last),
            weftrun::WatchEvent::Transport(event) => transport.push(event.to_string()),
            _ => {}
        }
    }
    assert_eq!(last, Some(JobPhase::Succeeded));
    assert!(transport.iter().any(|event| event.contains("Socket")), "{transport:?}");
}
