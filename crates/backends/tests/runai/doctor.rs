//! The output of `doctor` for a control plane: its facts, and what prevents its use.

use weftrun_core::ErrorKind;
use weftrun_core::backend::{ClusterFacts, Scope};
use weftrun_testkit::fake_runai::{FakeRunAi, authority};

use crate::common::{connect, target};

fn thorough() -> Scope {
    let mut scope = Scope::default();
    scope.thorough = true;
    scope
}

fn codes(facts: &ClusterFacts) -> Vec<&str> {
    facts.notes.iter().map(|note| note.code.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_control_plane_is_described() {
    let fake = FakeRunAi::start_tls(21, false).await.unwrap();
    let target = target(&fake).with("ca-file", authority().display().to_string());
    let facts = connect(target).await.unwrap().discover(&thorough()).await.unwrap();
    let said =
        |key: &str| facts.extra.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    assert!(said("control plane address").contains("127.0.0.1 (this machine)"), "{:?}", facts.extra);
    assert!(said("cluster address").contains("this machine"));
    let certificate =
        "`localhost`, signed by `private authority`, until 2096-01-01 00:00, for localhost, 127.0.0.1";
    assert_eq!(said("control plane certificate"), certificate);
    assert_eq!(said("cluster certificate"), certificate);
    assert_eq!(said("may read"), "projects, clusters, node pools, workloads");
    assert_eq!(said("logs"), "over the cluster's API");
    assert_eq!(said("GPU quota"), "8, 2 used, 6 free");
    assert_eq!(said("GPU quota of node pool h100"), "8, 2 used, 6 free, at most 16 with GPUs of others");
    assert_eq!(said("credentials"), "application `weftrun-tests`");
    assert_eq!(facts.version.as_deref(), Some("2.21.7"));
    assert_eq!(facts.queues.len(), 2);
    assert_eq!(facts.nodes[0].count, 2);
    assert!(facts.notes.is_empty(), "{:?}", facts.notes);
}

/// Where the addresses are not private, nothing is claimed: here they are this machine's.
#[tokio::test(flavor = "multi_thread")]
async fn private_access_is_proven_by_addresses_alone() {
    let fake = FakeRunAi::start_tls(21, false).await.unwrap();
    let target = target(&fake).with("ca-file", authority().display().to_string());
    let mut scope = thorough();
    scope.private_access = true;
    let facts = connect(target.clone()).await.unwrap().discover(&scope).await.unwrap();
    let row = facts.extra["private access"].as_str().unwrap();
    assert!(row.starts_with("control plane: 127.0.0.1 (this machine); cluster: "), "{row}");
    assert_eq!(codes(&facts), ["PRIVATE-ACCESS", "PRIVATE-ACCESS"]);
    assert!(facts.notes[0].message.contains("where it leads cannot be seen"), "{:?}", facts.notes);
    let nowhere = target.with("url", "https://runai.invalid");
    let error = connect(nowhere).await.unwrap().discover(&scope).await.unwrap_err();
    let names = error.findings().iter().find(|finding| finding.code == "RUNAI-DNS").unwrap();
    assert!(names.fix.as_ref().unwrap().text.contains("step 4"), "{names:?}");
}

/// The right authority does not make a certificate for another name right: the endpoint's is for `localhost` and 127.0.0.1.
#[tokio::test(flavor = "multi_thread")]
async fn private_access_requires_a_certificate_for_the_name() {
    let fake = FakeRunAi::start_tls(21, false).await.unwrap();
    let mut scope = thorough();
    scope.private_access = true;
    let ca = authority().display().to_string();
    let base = target(&fake).settings["url"].as_str().unwrap().to_owned();
    // The same address, in a form that the certificate does not name.
    let other =
        base.replace("localhost", "[::ffff:127.0.0.1]").replace("//127.0.0.1", "//[::ffff:127.0.0.1]");
    let url = target(&fake).with("ca-file", ca).with("url", other);
    let error = connect(url).await.unwrap().discover(&scope).await.unwrap_err();
    let wrong = error.findings().iter().filter(|note| note.is_error() && note.code.starts_with("RUNAI-TLS"));
    let steps: Vec<_> = wrong.filter_map(|note| note.fix.as_ref()).map(|fix| fix.text.clone()).collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| step.contains("step 4")), "{:?}", error.findings());
    assert!(error.findings().iter().any(|note| note.message.contains("signed by `private authority`")));
    assert!(error.hints().iter().all(|hint| !hint.contains("ca-file")), "{:?}", error.hints());
}

/// A certificate of an unknown authority: the error contains the server's certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_is_shown() {
    let fake = FakeRunAi::start_tls(21, false).await.unwrap();
    let error = connect(target(&fake)).await.unwrap().discover(&thorough()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.hints()[0].contains("ca-file"));
    let shown = error.findings().iter().any(|f| f.message.contains("signed by `private authority`"));
    assert!(shown, "{:?}", error.findings());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_named() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let gone = target(&fake).with("url", "https://127.0.0.1:1");
    let error = connect(gone).await.unwrap().discover(&thorough()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.findings().iter().any(|f| f.code == "RUNAI-CONNECT"), "{:?}", error.findings());
    let nowhere = target(&fake).with("url", "https://runai.invalid");
    let error = connect(nowhere).await.unwrap().discover(&thorough()).await.unwrap_err();
    assert!(error.findings().iter().any(|f| f.code == "RUNAI-DNS"), "{:?}", error.findings());

    fake.state().cluster_api = false;
    fake.state().researcher = true;
    let facts = connect(target(&fake)).await.unwrap().discover(&thorough()).await.unwrap();
    assert_eq!(facts.extra["may not read"], "clusters, node pools");
    assert_eq!(facts.extra["logs"], "not from here");
    assert!(codes(&facts).contains(&"RUNAI-CLUSTER-API"), "{:?}", facts.notes);
}

/// 3.0 is an unknown version, which is reported.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_version_is_said_to_be_one() {
    let fake = FakeRunAi::start(24).await.unwrap();
    for version in ["3.0.1", "2.25", "latest"] {
        let backend = connect(target(&fake).with("version", version)).await.unwrap();
        let facts = backend.discover(&Scope::default()).await.unwrap();
        assert_eq!(codes(&facts), ["RUNAI-VERSION"], "{version}");
    }
}

/// A file with a secret that others may read is named.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_others_may_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let fake = FakeRunAi::start(24).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, weftrun_testkit::fake_runai::CLIENT_SECRET).unwrap();
    let mut target = target(&fake).with("client-secret-file", file.display().to_string());
    target.settings.remove("client-secret-env");
    for (mode, wanted) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let facts = connect(target.clone()).await.unwrap().discover(&thorough()).await.unwrap();
        assert_eq!(codes(&facts).contains(&"RUNAI-SECRET-FILE"), wanted, "{mode:o}");
    }
}
