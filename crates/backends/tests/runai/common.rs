//! What all tests here need: a target of the fake control plane, a connection, planned jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftrun_core::Result;
use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob, Registry, Rendered, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profile, Profiles};
use weftrun_core::job::{JobHandle, JobPhase};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::fake_runai::{CLIENT_ID, CLIENT_SECRET, FakeRunAi, PROJECT};
use weftrun_testkit::random_submission;

/// A target of a fake control plane.
pub fn target(fake: &FakeRunAi) -> TargetConfig {
    target_of(&fake.url())
}

/// A target of a control plane at a URL.
pub fn target_of(url: &str) -> TargetConfig {
    // The state of one control plane is that of one address.
    let state =
        std::env::temp_dir().join(format!("weftrun-runai-{}", url.rsplit(':').next().unwrap_or_default()));
    let mut target = TargetConfig::new("nlp", "runai", state)
        .with("url", url)
        .with("client-id", CLIENT_ID)
        .with("client-secret-env", "SECRET")
        .with("poll-seconds", 1);
    target.project = Some(PROJECT.into());
    target.env = BTreeMap::from([("SECRET".to_owned(), CLIENT_SECRET.to_owned())]);
    target
}

/// The same with a kubeconfig of the cluster in a folder.
pub fn with_kubeconfig(fake: &FakeRunAi, folder: &tempfile::TempDir) -> TargetConfig {
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, fake.kubeconfig()).unwrap();
    target(fake).with("kubeconfig", path.display().to_string())
}

/// A connection, as another process would make one.
pub async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    weftrun_backends::link();
    (Registry::linked().get("runai")?.connect)(target).await
}

/// A job of a script that runs once on each node.
pub fn job(name: &str, nodes: u32, script: &str) -> JobSpec {
    let role = Role::worker().nodes(nodes).gpus_per_node(0).command(["sh", "-c", script]);
    JobSpec::builder(name).image("example.test/trainer:1").launch(Launch::PerNode).role(role).build().unwrap()
}

/// A job with everything decided.
pub fn planned(spec: JobSpec, profile: Option<&str>, facts: ClusterFacts) -> PlannedJob {
    let profile = profile.map_or_else(Profile::default, |name| Profiles::builtin().get(name).unwrap());
    let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &facts, &profile);
    PlannedJob::new(spec, plan, profile, facts, random_submission())
}

/// What would be sent of a job.
pub fn rendered(backend: &Arc<dyn Backend>, spec: JobSpec) -> Rendered {
    backend.render(&planned(spec, None, ClusterFacts::default())).unwrap()
}

/// Submits a script on some nodes.
pub async fn submit(backend: &Arc<dyn Backend>, name: &str, nodes: u32, script: &str) -> JobHandle {
    backend.submit(&rendered(backend, job(name, nodes, script))).await.unwrap()
}

/// Looks until a job is in a phase.
pub async fn until(backend: &Arc<dyn Backend>, handle: &JobHandle, phase: JobPhase) {
    eventually(&format!("{handle} is {phase}"), async || {
        backend.describe(handle).await.unwrap().summary.phase == phase
    })
    .await;
}

/// Looks again and again until something is so; the limit is for a machine that has much else to do.
pub async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < Duration::from_secs(120), "not within two minutes: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
