//! A submit ends with exactly one workload and its handle, whatever fails on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use weftrun_core::backend::{Backend, ClusterFacts};
use weftrun_core::fabric::Fabric;
use weftrun_core::job::JobFilter;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_core::{ErrorKind, Result};
use weftrun_testkit::conformance::{self, Fixture};
use weftrun_testkit::fake_runai::{CLUSTER_ID, FakeRunAi, Fault, PROJECT_ID, Trouble};

use crate::common::{connect, job, planned, rendered, target, with_kubeconfig};

struct Versioned(FakeRunAi, Option<tempfile::TempDir>);

#[async_trait]
impl Fixture for Versioned {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        connect(match &self.1 {
            Some(folder) => with_kubeconfig(&self.0, folder),
            None => target(&self.0),
        })
        .await
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
    conformance::run(&Versioned(fake, None)).await.assert();
}

/// With a kubeconfig, commands run in the pods.
#[tokio::test(flavor = "multi_thread")]
async fn conforms_with_a_kubeconfig() {
    let (fake, folder) = (FakeRunAi::start(24).await.unwrap(), tempfile::tempdir().unwrap());
    conformance::run(&Versioned(fake, Some(folder))).await.assert();
}

/// The PyTorch example, and the MPI one.
fn examples() -> [JobSpec; 2] {
    let mpi =
        Role::worker().nodes(2).gpus_per_node(8).memory("1800Gi").command(["all_reduce_perf", "-b", "8"]);
    let mpi = JobSpec::builder("nccl").image("example.test/nccl:1").launch(Launch::Mpi).role(mpi);
    [job("once", 2, "true"), mpi.fabric(Fabric::Efa).build().unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn submits_once_in_every_version_and_under_every_fault() {
    let troubles = [
        None,
        Some(Trouble::CutAfter),
        Some(Trouble::CutBefore),
        Some(Trouble::RetryAfter(1)),
        Some(Trouble::TokenExpired),
        Some(Trouble::Status(401)),
        Some(Trouble::Status(500)),
        Some(Trouble::Status(503)),
        Some(Trouble::Html(502)),
        Some(Trouble::Slow(Duration::from_millis(300))),
    ];
    let mut cases = JoinSet::new();
    for minor in [18, 21, 24] {
        for trouble in &troubles {
            for (spec, taken) in examples().into_iter().zip([400, 409]) {
                cases.spawn(ends_with_one(minor, trouble.clone(), spec, taken));
            }
        }
    }
    cases.join_all().await;
}

async fn ends_with_one(minor: u32, trouble: Option<Trouble>, spec: JobSpec, taken: u16) {
    let fake = FakeRunAi::start(minor).await.unwrap();
    fake.state().name_taken = taken;
    let backend = connect(target(&fake)).await.unwrap();
    let rendered = rendered(&backend, spec);
    let of = format!("{} on 2.{minor} under {trouble:?}", rendered.name);
    if let Some(trouble) = trouble {
        fake.fail(Fault { method: "POST", path: "/api/v1/workloads", times: 1, trouble });
    }
    let handle = backend.submit(&rendered).await.unwrap_or_else(|error| panic!("{of}: {error}"));
    assert_eq!(fake.state().workloads.len(), 1, "{of}");
    let found = backend.find(&rendered.submission).await.unwrap();
    assert_eq!(found.as_ref(), Some(&handle), "{of}");
    // Sent again, as after a crash: the name is taken by our own.
    assert_eq!(backend.submit(&rendered).await.unwrap(), handle, "{of}");
    assert_eq!(fake.state().workloads.len(), 1, "{of}");
}

/// A control plane that does not come back is an error, and nothing was made.
#[tokio::test(flavor = "multi_thread")]
async fn what_stays_broken_is_told() {
    let mut cases = JoinSet::new();
    for (trouble, kind) in [
        (Trouble::CutBefore, ErrorKind::Unreachable),
        (Trouble::Html(502), ErrorKind::Unreachable),
        (Trouble::Status(403), ErrorKind::Credentials),
        (Trouble::Status(401), ErrorKind::Credentials),
    ] {
        cases.spawn(async move {
            let fake = FakeRunAi::start(24).await.unwrap();
            let backend = connect(target(&fake)).await.unwrap();
            let rendered = rendered(&backend, job("broken", 2, "true"));
            let of = format!("{trouble:?}");
            fake.fail(Fault { method: "POST", path: "/api/v1/workloads", times: 100, trouble });
            let error = backend.submit(&rendered).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{of}: {error}");
            let sent = fake.seen("POST", "/api/v1/workloads").len();
            assert!(sent <= 2, "{of}: sent {sent} times");
            assert_eq!(fake.state().workloads.len(), 0);
        });
    }
    cases.join_all().await;
}

/// Apart from a token, the project's ids and the create, a submit sends no request; a plan also queries the
/// version, and a check whether the name is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_submit_costs_what_the_api_needs() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let facts = backend.discover(&Default::default()).await.unwrap();
    let rendered = backend.render(&planned(job("frugal", 2, "true"), None, facts)).unwrap();
    assert!(backend.check(&rendered).await.unwrap().is_empty());
    backend.submit(&rendered).await.unwrap();
    let seen: Vec<String> = fake
        .state()
        .journal
        .iter()
        .map(|seen| format!("{} {}", seen.method, seen.path.split('?').next().unwrap_or_default()))
        .collect();
    let wanted = [
        "POST /api/v2/token",
        "GET /api/v1/org-unit/projects",
        "GET /api/v1/clusters",
        "GET /api/v1/workloads",
        "POST /api/v1/workloads/distributed",
    ];
    assert_eq!(seen, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_to_do() {
    let fake = FakeRunAi::start(21).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let rendered = rendered(&backend, job("policy", 2, "true"));
    fake.state().policy = Some(("spec.compute.gpuDevicesRequest".into(), "at most 4".into()));
    let refused = backend.submit(&rendered).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.findings()[0].subject.as_deref(), Some("spec.compute.gpuDevicesRequest"));
    assert_eq!(refused.findings()[0].message, "at most 4");
    fake.state().policy = None;

    backend.submit(&rendered).await.unwrap();
    let taken = backend.check(&rendered).await.unwrap();
    assert_eq!(taken[0].code, "RUNAI-NAME-TAKEN");
    // Somebody else's workload of the name is not ours.
    for status in [400, 409] {
        fake.state().name_taken = status;
        let other = crate::common::rendered(&backend, job("policy", 2, "true"));
        let error = backend.submit(&other).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Refused), "{error}");
        assert!(error.message().contains("exists"), "{error}");
    }

    let mut wrong = target(&fake);
    wrong.project = Some("nlpp".into());
    let missing = connect(wrong).await.unwrap().discover(&Default::default()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(missing.hints(), ["did you mean `nlp`?"]);

    let mut other = target(&fake);
    other.env.insert("SECRET".into(), "wrong".into());
    let refused = connect(other).await.unwrap().discover(&Default::default()).await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("wrong\""), "the secret is in no error");
}

/// A researcher who may read neither clusters nor node pools submits with the ids of the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn a_researcher_without_rights_can_submit() {
    let fake = FakeRunAi::start(21).await.unwrap();
    fake.state().researcher = true;
    let target = target(&fake).with("project-id", PROJECT_ID).with("cluster-id", CLUSTER_ID);
    let backend = connect(target).await.unwrap();
    let facts = backend.discover(&Default::default()).await.unwrap();
    assert!(facts.notes.iter().all(|note| note.code == "RUNAI-HIDDEN"), "{:?}", facts.notes);
    let mut spec = job("researcher", 2, "true");
    spec.queue = Some("h100".into());
    let rendered = backend.render(&planned(spec, None, facts)).unwrap();
    assert!(rendered.placeholders.is_empty());
    let findings = backend.check(&rendered).await.unwrap();
    assert!(findings.iter().all(|f| f.code == "RUNAI-HIDDEN"), "{findings:?}");
    backend.submit(&rendered).await.unwrap();
}

/// Names that are unknown to the server are found before the job is sent, with suggestions.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_up() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let mut spec = job("names", 2, "true");
    spec.queue = Some("h10".into());
    spec.priority = Some("hihg".into());
    spec.backend = BTreeMap::from([("runai".into(), serde_json::json!({"template": "h100-rocee"}))]);
    spec.volumes = vec![weftrun_core::spec::Volume {
        name: "data".into(),
        mount: "/data".into(),
        source: weftrun_core::spec::VolumeSource::Claim("datasets".into()),
        read_only: true,
    }];
    spec.secrets = vec![weftrun_core::spec::SecretRef {
        env: "KEY".into(),
        secret: "genericsecret-wandbb".into(),
        key: "k".into(),
    }];
    let findings = backend.check(&rendered(&backend, spec.clone())).await.unwrap();
    let said: Vec<String> = findings
        .iter()
        .map(|f| format!("{} {}", f.code, f.fix.as_ref().map_or("", |fix| fix.text.as_str())))
        .collect();
    let wanted = [
        "RUNAI-NODE-POOL did you mean `h100`?",
        "RUNAI-PRIORITY did you mean `high`?",
        "RUNAI-TEMPLATE did you mean `h100-roce`?",
        "RUNAI-ASSET write `datasets-nlp-8f2c`",
        "RUNAI-ASSET did you mean `genericsecret-wandb`?",
    ];
    assert_eq!(said, wanted);

    (spec.queue, spec.priority) = (Some("h100".into()), Some("high".into()));
    spec.backend = BTreeMap::from([("runai".into(), serde_json::json!({"template": "h100-roce"}))]);
    spec.volumes.clear();
    spec.secrets.clear();
    let rendered = rendered(&backend, spec);
    assert_eq!(rendered.placeholders.iter().filter(|one| one.name == "template-id:h100-roce").count(), 1);
    assert!(backend.check(&rendered).await.unwrap().is_empty());
    backend.submit(&rendered).await.unwrap();
    let sent = fake.seen("POST", "/api/v1/workloads/distributed");
    let body: serde_json::Value = serde_json::from_str(&sent[0].body).unwrap();
    assert_eq!(body["templateId"], "550e8400-e29b-41d4-a716-446655440000");
}

/// Pages are short, and only `next` shows where the list ends.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_to_their_end() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().page = 7;
    fake.add((0..16).map(|index| format!("page-{index}")), 1, 0);
    let backend = connect(target(&fake)).await.unwrap();
    assert_eq!(backend.list(&JobFilter::all()).await.unwrap().len(), 16);
    let facts: ClusterFacts = backend.discover(&Default::default()).await.unwrap();
    assert!(facts.online);
}

/// What the API has no field for is named by what is rendered, and so by plan, render and submit.
#[test]
fn what_the_api_cannot_express_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(connect(crate::common::target_of("https://tenant.example.test"))).unwrap();
    let mut spec = job("limits", 2, "true");
    spec.time_limit = Some(Duration::from_secs(5400));
    spec.roles[0].shm = Some("48Gi".into());
    let said = |spec: JobSpec| -> Vec<String> {
        let rendered = rendered(&backend, spec);
        let own = rendered.findings.iter().filter(|finding| finding.code == "RUNAI-NOT-EXPRESSED");
        own.map(|finding| finding.message.clone()).collect()
    };
    let messages = said(spec.clone());
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(
        messages[0].contains("time limit") && messages[0].contains("90m") || messages[0].contains("1h30m")
    );
    assert!(messages[1].contains("48Gi"), "{messages:?}");
    // A volume of its own there has the size, and the switch is not sent beside it.
    spec.time_limit = None;
    spec.volumes = vec!["shm:/dev/shm=memory:48Gi".parse().unwrap()];
    assert_eq!(said(spec.clone()), Vec::<String>::new());
    let body = &rendered(&backend, spec).documents[0].text;
    assert!(body.contains("48Gi") && !body.contains("largeShmRequest"), "{body}");
}

/// A job without an image has a message of its own; a template of the project may bring one.
#[test]
fn a_job_without_an_image_is_refused_before_it_is_sent() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(connect(crate::common::target_of("https://tenant.example.test"))).unwrap();
    let mut spec = job("bare", 2, "true");
    spec.image = None;
    let error = backend.render(&planned(spec.clone(), None, ClusterFacts::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec);
    assert!(error.message().contains("no container image"), "{error}");
    assert!(error.hints().iter().any(|hint| hint.contains("template")), "{error:?}");
    for own in [serde_json::json!({"template": "t"}), serde_json::json!({"spec": {"image": "a:b"}})] {
        spec.backend = BTreeMap::from([("runai".into(), own)]);
        backend.render(&planned(spec.clone(), None, ClusterFacts::default())).unwrap();
    }
}

/// Without a command the body has none, and the platform starts the image's entrypoint.
#[tokio::test(flavor = "multi_thread")]
async fn an_absent_command_is_the_images_entrypoint() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let role = Role::worker().nodes(2).gpus_per_node(0);
    let spec = JobSpec::builder("entry").image("example.test/trainer:1").role(role).build().unwrap();
    let rendered = rendered(&backend, spec);
    backend.submit(&rendered).await.unwrap();
    let sent = fake.seen("POST", "/api/v1/workloads/distributed");
    let body: serde_json::Value = serde_json::from_str(&sent[0].body).unwrap();
    assert!(body["spec"].get("command").is_none() && body["spec"].get("args").is_none(), "{body:#}");
}

/// What is rendered is what is sent: with the cluster's facts byte for byte, without them except for what is marked.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_rendered_is_what_is_sent() {
    for minor in [18, 21, 24] {
        let fake = FakeRunAi::start(minor).await.unwrap();
        let backend = connect(target(&fake)).await.unwrap();
        let facts = backend.discover(&Default::default()).await.unwrap();
        let rendered = backend.render(&planned(job("exact", 2, "true"), None, facts)).unwrap();
        assert!(rendered.placeholders.is_empty(), "{:?}", rendered.placeholders);
        backend.submit(&rendered).await.unwrap();
        let sent = fake.seen("POST", "/api/v1/workloads/distributed").remove(0).body;
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(json(&rendered.documents[0].text), json(&sent), "2.{minor}");

        let offline =
            backend.render(&planned(job("exact", 2, "true"), None, ClusterFacts::default())).unwrap();
        let marked: Vec<&str> = offline.placeholders.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(marked, ["project-id:nlp", "cluster-id:nlp"]);
        let note = offline.findings.iter().find(|finding| finding.code == "RUNAI-VERSION-ASSUMED").unwrap();
        // Every field that one of the two has and the other lacks is named.
        let (mine, real) = (json(&offline.documents[0].text), json(&sent));
        for field in mine["spec"].as_object().unwrap().keys().filter(|key| real["spec"].get(*key).is_none()) {
            assert!(note.message.contains(field.as_str()), "2.{minor}: {field}: {}", note.message);
        }
    }
}

/// `Retry-After` is followed as seconds and as a date, however often it comes, up to the target's limit, and
/// the error contains how long was tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_the_control_plane_asks_for_is_kept() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let path = "/api/v1/workloads";
    let busy = |times, trouble| fake.fail(Fault { method: "GET", path, times, trouble });
    let backend = connect(target(&fake)).await.unwrap();
    backend.list(&JobFilter::all()).await.unwrap();
    busy(6, Trouble::RetryAfter(0));
    backend.list(&JobFilter::all()).await.unwrap();
    let began = std::time::Instant::now();
    busy(1, Trouble::RetryAt(Duration::from_secs(3)));
    backend.list(&JobFilter::all()).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());

    busy(1, Trouble::RetryAfter(600));
    let error = backend.list(&JobFilter::all()).await.unwrap_err();
    assert!(error.hints().iter().any(|hint| hint.contains("600 s") && hint.contains("120 s")), "{error:?}");
    // A longer limit of the target is kept to.
    let patient = connect(target(&fake).with("retry-seconds", 3000)).await.unwrap();
    busy(1, Trouble::RetryAfter(600));
    let all = JobFilter::all();
    let waits = patient.list(&all);
    assert!(tokio::time::timeout(Duration::from_secs(2), waits).await.is_err(), "it waits");
}
