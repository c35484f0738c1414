//! The Run:ai backend against a control plane of our own, in three versions and under every fault.
#![cfg(feature = "runai")]
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob, Registry, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, FabricPlan, Profile, Profiles};
use weftrun_core::job::{Action, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_core::{ErrorKind, Result};
use weftrun_testkit::conformance::{self, Fixture};
use weftrun_testkit::fake_runai::{
    CLIENT_ID, CLIENT_SECRET, CLUSTER_ID, FakeRunAi, Fault, PROJECT, PROJECT_ID, Trouble,
};
use weftrun_testkit::random_submission;

fn target(fake: &FakeRunAi) -> TargetConfig {
    // The state of one control plane is that of one address.
    let state = std::env::temp_dir()
        .join(format!("weftrun-runai-{}", fake.url().rsplit(':').next().unwrap_or_default()));
    let mut target = TargetConfig::new("nlp", "runai", state)
        .with("url", fake.url())
        .with("client-id", CLIENT_ID)
        .with("client-secret-env", "SECRET")
        .with("poll-seconds", 1);
    target.project = Some(PROJECT.into());
    target.env = BTreeMap::from([("SECRET".to_owned(), CLIENT_SECRET.to_owned())]);
    target
}

async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    weftrun_backends::link();
    (Registry::linked().get("runai")?.connect)(target).await
}

fn job(name: &str, nodes: u32, script: &str) -> JobSpec {
    let role = Role::worker().nodes(nodes).gpus_per_node(0).command(["sh", "-c", script]);
    JobSpec::builder(name).image("example.test/trainer:1").launch(Launch::PerNode).role(role).build().unwrap()
}

fn planned(spec: JobSpec, profile: Option<&str>, facts: ClusterFacts) -> PlannedJob {
    let profile = profile.map_or_else(Profile::default, |name| Profiles::builtin().get(name).unwrap());
    let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &facts, &profile);
    PlannedJob::new(spec, plan, profile, facts, random_submission())
}

struct Versioned(FakeRunAi);

#[async_trait]
impl Fixture for Versioned {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        connect(target(&self.0)).await
    }

    fn job(&self, name: &str, nodes: u32, ranks_per_node: u32, script: &str) -> JobSpec {
        let role = Role::worker().nodes(nodes).ranks_per_node(ranks_per_node).command(["sh", "-c", script]);
        JobSpec::builder(name)
            .image("example.test/trainer:1")
            .launch(Launch::PerRank)
            .role(role)
            .build()
            .unwrap()
    }

    async fn losing_answers(&self) -> Option<Arc<dyn Backend>> {
        self.0.fail(Fault {
            method: "POST",
            path: "/api/v1/workloads",
            times: 1,
            trouble: Trouble::CutAfter,
        });
        self.connect().await.ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let fake = FakeRunAi::start(24).await.unwrap();
    conformance::run(&Versioned(fake)).await.assert();
}

/// Whatever happens to the create, the project ends with exactly one workload.
#[tokio::test(flavor = "multi_thread")]
async fn submits_once_in_every_version_and_under_every_fault() {
    let troubles = [
        None,
        Some(Trouble::CutAfter),
        Some(Trouble::CutBefore),
        Some(Trouble::RetryAfter(1)),
        Some(Trouble::TokenExpired),
        Some(Trouble::Slow(Duration::from_millis(300))),
    ];
    for minor in [18, 21, 24] {
        for trouble in troubles.clone() {
            let fake = FakeRunAi::start(minor).await.unwrap();
            let backend = connect(target(&fake)).await.unwrap();
            let rendered =
                backend.render(&planned(job("once", 2, "true"), None, ClusterFacts::default())).unwrap();
            if let Some(trouble) = trouble.clone() {
                fake.fail(Fault { method: "POST", path: "/api/v1/workloads", times: 1, trouble });
            }
            let handle = backend.submit(&rendered).await;
            let made = fake.state().workloads.len();
            match (&trouble, handle) {
                // Nothing was made and nothing proves that it was not: told, not tried again.
                (Some(Trouble::CutBefore), Err(error)) => {
                    assert!(error.is_retryable(), "{error}");
                    assert_eq!(made, 0);
                }
                (_, Ok(handle)) => {
                    assert_eq!(made, 1, "{trouble:?} on 2.{minor}");
                    let found = backend.find(&rendered.submission).await.unwrap();
                    assert_eq!(found.as_ref(), Some(&handle), "{trouble:?} on 2.{minor}");
                }
                (_, Err(error)) => panic!("{trouble:?} on 2.{minor}: {error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_to_do() {
    let fake = FakeRunAi::start(21).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let rendered = backend.render(&planned(job("policy", 2, "true"), None, ClusterFacts::default())).unwrap();
    fake.state().policy = Some(("spec.compute.gpuDevicesRequest".into(), "at most 4".into()));
    let refused = backend.submit(&rendered).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.findings()[0].subject.as_deref(), Some("spec.compute.gpuDevicesRequest"));
    assert_eq!(refused.findings()[0].message, "at most 4");
    fake.state().policy = None;

    fake.fail(Fault { method: "POST", path: "/api/v1/workloads", times: 1, trouble: Trouble::Html(502) });
    let gateway = backend.submit(&rendered).await.unwrap_err();
    assert_eq!(gateway.kind(), ErrorKind::Unreachable);
    assert_eq!(
        fake.seen("POST", "/api/v1/workloads").len(),
        2,
        "a create is never repeated after a gateway's error"
    );

    backend.submit(&rendered).await.unwrap();
    let taken = backend.check(&rendered).await.unwrap();
    assert_eq!(taken[0].code, "RUNAI-NAME-TAKEN");

    let mut wrong = target(&fake);
    wrong.project = Some("nlpp".into());
    let missing = connect(wrong).await.unwrap().discover(&Default::default()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(missing.hints(), ["did you mean `nlp`?"]);

    let mut stranger = target(&fake);
    stranger.env.insert("SECRET".into(), "wrong".into());
    let refused = connect(stranger).await.unwrap().discover(&Default::default()).await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("wrong\""), "the secret is in no error");
}

/// A researcher who may read neither clusters nor node pools submits with the ids of the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn a_researcher_without_rights_can_submit() {
    let fake = FakeRunAi::start(21).await.unwrap();
    fake.state().researcher = true;
    let target =
        target(&fake).with("project-id", PROJECT_ID).with("cluster-id", CLUSTER_ID).with("version", "2.21");
    let backend = connect(target).await.unwrap();
    let facts = backend.discover(&Default::default()).await.unwrap();
    assert!(facts.notes.iter().all(|note| note.code == "RUNAI-HIDDEN"), "{:?}", facts.notes);
    let rendered = backend.render(&planned(job("researcher", 2, "true"), None, facts)).unwrap();
    assert!(rendered.holes.is_empty());
    backend.submit(&rendered).await.unwrap();
}

/// Streams are cut three times, once in the middle of a line; every line comes exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn cut_logs_lose_and_repeat_nothing() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().cut_logs_after = vec![3, 0, 17];
    let backend = connect(target(&fake)).await.unwrap();
    let script = "i=0; while [ $i -lt 60 ]; do echo line $i of $RANK; i=$((i+1)); sleep 0.05; done";
    let rendered = backend.render(&planned(job("cuts", 2, script), None, ClusterFacts::default())).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    let mut batches = backend.logs(&handle, LogOptions::follow());
    let mut bytes: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    while let Some(batch) = batches.try_next().await.unwrap() {
        bytes.entry(batch.source.name.clone()).or_default().extend(&batch.bytes);
    }
    assert_eq!(bytes.len(), 2);
    for (rank, text) in bytes.values().enumerate() {
        let expected: String = (0..60).map(|i| format!("line {i} of {rank}\n")).collect();
        assert_eq!(String::from_utf8_lossy(text), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspend_resume_delete() {
    let fake = FakeRunAi::start(21).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let rendered =
        backend.render(&planned(job("life", 2, "sleep 30"), None, ClusterFacts::default())).unwrap();
    let handle = backend.submit(&rendered).await.unwrap();
    backend.act(&handle, Action::Suspend).await.unwrap();
    assert_eq!(backend.describe(&handle).await.unwrap().summary.phase, JobPhase::Suspended);
    backend.act(&handle, Action::Resume).await.unwrap();
    assert_ne!(backend.describe(&handle).await.unwrap().summary.phase, JobPhase::Suspended);
    backend.act(&handle, Action::Delete).await.unwrap();
    assert_eq!(backend.describe(&handle).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backend.act(&handle, Action::Hold).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Pages are short, and `next` alone says where the list ends.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_to_their_end() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().page = 7;
    let backend = connect(target(&fake)).await.unwrap();
    for index in 0..16 {
        let spec = job(&format!("page-{index}"), 1, "true");
        let rendered = backend.render(&planned(spec, None, ClusterFacts::default())).unwrap();
        backend.submit(&rendered).await.unwrap();
    }
    let jobs = backend.list(&weftrun_core::job::JobFilter::all()).await.unwrap();
    assert_eq!(jobs.len(), 16);
}

/// The EPFL job (`--workers=2 -g 4`, Multus annotation, `rdma/rdma=1`): three nodes are a master and two workers.
fn epfl() -> JobSpec {
    let role = Role::worker().nodes(3).gpus_per_node(4).command(["train.py"]);
    JobSpec::builder("epfl")
        .image("example.test/pytorch:1")
        .launch(Launch::Torchrun)
        .role(role)
        .fabric(Fabric::Roce)
        .build()
        .unwrap()
}

fn mpi() -> JobSpec {
    let role = Role::worker()
        .nodes(2)
        .gpus_per_node(8)
        .memory("1800Gi")
        .instance_type("p5.48xlarge")
        .command(["mpirun", "-np", "16", "all_reduce_perf", "-b", "8"]);
    JobSpec::builder("nccl")
        .image("example.test/nccl:1")
        .launch(Launch::Mpi)
        .role(role)
        .fabric(Fabric::Efa)
        .build()
        .unwrap()
}

fn body(spec: JobSpec, profile: &str, minor: u32) -> Value {
    let mut target =
        TargetConfig::new("nlp", "runai", std::env::temp_dir()).with("url", "https://runai.example.test");
    target.project = Some(PROJECT.into());
    let mut facts = ClusterFacts::default();
    facts.version = Some(format!("2.{minor}.1"));
    facts.ids =
        BTreeMap::from([("project-id".into(), PROJECT_ID.into()), ("cluster-id".into(), CLUSTER_ID.into())]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let backend = runtime.block_on(connect(target)).unwrap();
    let rendered = backend.render(&planned(spec, Some(profile), facts)).unwrap();
    serde_json::from_str(&rendered.documents[0].text).unwrap()
}

#[test]
fn the_epfl_job_is_a_master_and_two_workers() {
    let body = body(epfl(), "roce", 24);
    assert_eq!(body["spec"]["numWorkers"], 2);
    assert_eq!(body["masterSpecSameAsWorker"], true);
    assert_eq!(body["spec"]["compute"]["gpuDevicesRequest"], 4);
    assert_eq!(
        body["spec"]["compute"]["extendedResources"],
        json!([{"resource": "rdma/rdma", "quantity": "1"}])
    );
    let networks = json!({"name": "k8s.v1.cni.cncf.io/networks", "value": "kube-system/roce"});
    assert!(body["spec"]["annotations"].as_array().unwrap().contains(&networks));
}

/// The launcher asks no fabric devices; the workers have no command, so that they run sshd.
#[test]
fn an_mpi_job_has_a_launcher_of_its_own() {
    let body = body(mpi(), "dgxc", 24);
    assert_eq!(body["spec"]["distributedFramework"], "MPI");
    assert!(body["spec"].get("command").is_none());
    let devices = |pod: &Value| pod["compute"]["extendedResources"].to_string();
    assert!(devices(&body["spec"]).contains("vpc.amazonaws.com/efa"), "{body}");
    assert!(!devices(&body["masterSpec"]).contains("efa"), "{body}");
}

/// Every body of every version is one the published schema takes. The schema is the vendor's and stands beside the
/// repository in CI; elsewhere the test says that it was skipped.
#[test]
fn bodies_are_what_the_schema_describes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/runai/schema");
    let Ok(text) = std::fs::read_to_string(folder.join("DistributedCreationRequest.json")) else {
        println!("skipped: the vendor's schema is not here");
        return;
    };
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    forbid_unknown(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    for minor in [18, 21, 24] {
        for (spec, profile) in [(epfl(), "roce"), (mpi(), "dgxc")] {
            let body = body(spec, profile, minor);
            let errors: Vec<String> =
                validator.iter_errors(&body).map(|e| format!("{} at {}", e, e.instance_path())).collect();
            assert!(errors.is_empty(), "2.{minor}: {errors:#?}\n{body:#}");
        }
    }
}

/// The schema lets unknown fields pass, and the server ignores them: here they are mistakes.
fn forbid_unknown(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("properties").is_some_and(Value::is_object)
                && !map.contains_key("additionalProperties")
            {
                map.insert("additionalProperties".into(), json!(false));
            }
            map.values_mut().for_each(forbid_unknown);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_unknown),
        _ => {}
    }
}
