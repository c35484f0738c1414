//! How a control plane is reached: certificates, proxies, tokens.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::TryStreamExt;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Scope, TargetConfig};
use weftrun_core::job::JobFilter;
use weftrun_core::log::LogOptions;
use weftrun_testkit::fake_runai::{
    CLIENT_ID, CLIENT_SECRET, FakeRunAi, Fault, Trouble, authority, client_identity, self_signed,
};

use crate::common::{connect, eventually, submit, target};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A certificate that no system trusts is refused with what to do, and nothing secret was sent; with its authority, or
/// with `insecure`, everything works, logs too.
#[tokio::test(flavor = "multi_thread")]
async fn a_private_certificate_needs_its_authority() {
    let fake = FakeRunAi::start_tls(24, false).await.unwrap();
    let error = connect(target(&fake)).await.unwrap().discover(&Scope::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.hints()[0].contains("ca-file"), "{error:?}");
    assert!(!error.is_retryable(), "{error}");
    assert!(fake.state().journal.is_empty());

    let trusting = target(&fake).with("ca-file", text(&authority()));
    for target in [trusting, target(&fake).with("insecure", true)] {
        let backend = connect(target).await.unwrap();
        let name = format!("tls-{:x}", fastrand::u32(..));
        let handle = submit(&backend, &name, 1, "echo over tls").await;
        let batches: Vec<_> = backend.logs(&handle, LogOptions::follow()).try_collect().await.unwrap();
        let bytes: Vec<u8> = batches.into_iter().flat_map(|batch| batch.bytes).collect();
        assert_eq!(bytes, b"over tls\n");
    }
}

/// A server certificate that signed itself and is marked as an authority is trusted where the user names it, and by no
/// other file.
#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_is_its_own_anchor() {
    let fake = FakeRunAi::start_self_signed(24).await.unwrap();
    for wrong in [target(&fake), target(&fake).with("ca-file", text(&authority()))] {
        let error = connect(wrong).await.unwrap().discover(&Scope::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(fake.state().journal.is_empty(), "nothing is sent to a server that is not trusted");
    }
    let backend = connect(target(&fake).with("ca-file", text(&self_signed()))).await.unwrap();
    let handle = submit(&backend, "pinned", 1, "echo over tls").await;
    let batches: Vec<_> = backend.logs(&handle, LogOptions::follow()).try_collect().await.unwrap();
    let bytes: Vec<u8> = batches.into_iter().flat_map(|batch| batch.bytes).collect();
    assert_eq!(bytes, b"over tls\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_where_one_is_asked() {
    let fake = FakeRunAi::start_tls(24, true).await.unwrap();
    let target = target(&fake).with("ca-file", text(&authority()));
    assert!(connect(target.clone()).await.unwrap().discover(&Scope::default()).await.is_err());
    let target = target.with("client-certificate", text(&client_identity()));
    assert!(connect(target).await.unwrap().discover(&Scope::default()).await.unwrap().online);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_file_is_said() {
    let fake = FakeRunAi::start(24).await.unwrap();
    for (key, wanted) in [("ca-file", "no such file"), ("client-certificate", "no such file")] {
        let target = target(&fake).with(key, "/nonexistent/weftrun.pem");
        let error = connect(target).await.unwrap().discover(&Scope::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().to_lowercase().contains(wanted), "{error}");
    }
}

/// The control plane's name exists only for the proxy: here the fake itself plays it.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_target_or_of_the_environment_is_used() {
    let fake = FakeRunAi::start(24).await.unwrap();
    // Nobody listens between here and the fake.
    let far = target(&fake).with("url", "http://runai.invalid").with("insecure", true);
    let mut by_environment = far.clone();
    by_environment.env.insert("HTTP_PROXY".into(), fake.url());
    for target in [far.clone().with("proxy", fake.url()), by_environment.clone()] {
        assert!(connect(target).await.unwrap().discover(&Scope::default()).await.unwrap().online);
    }
    by_environment.env.insert("NO_PROXY".into(), "runai.invalid".into());
    let error = connect(by_environment).await.unwrap().discover(&Scope::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

/// Every version issues tokens in its own way, and a new one is fetched before the old one expires.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_before_they_end() {
    let cases = [18, 19, 20, 21, 24].map(async |minor| {
        let fake = FakeRunAi::start(minor).await.unwrap();
        // Half of a short life is left when a token is renewed, long enough for a machine with much else to do.
        fake.state().token_life = std::time::Duration::from_secs(12);
        let backend = connect(target(&fake)).await.unwrap();
        eventually("a second token", async || {
            backend.list(&JobFilter::all()).await.unwrap();
            fake.state().tokens.len() > 1
        })
        .await;
        let refused = fake.state().journal.iter().filter(|seen| seen.status == 401).count();
        assert_eq!(refused, 0, "2.{minor}");
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_once() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    backend.list(&JobFilter::all()).await.unwrap();
    fake.state().tokens.clear();
    backend.list(&JobFilter::all()).await.unwrap();
    assert_eq!(fake.seen("POST", "/api/v2/token").len(), 2);
    fake.fail(Fault { method: "GET", path: "/api/v1/workloads", times: 100, trouble: Trouble::Status(401) });
    let error = backend.list(&JobFilter::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials);
    assert_eq!(fake.seen("POST", "/api/v2/token").len(), 3);
}

/// Returns a valid token, as another client would fetch it.
async fn token(fake: &FakeRunAi) -> String {
    connect(target(fake)).await.unwrap().discover(&Scope::default()).await.unwrap();
    fake.state().tokens.last().unwrap().0.clone()
}

/// The same target without the application.
fn bare(fake: &FakeRunAi) -> TargetConfig {
    let mut target = target(fake);
    target.settings.remove("client-id");
    target.settings.remove("client-secret-env");
    target.env.clear();
    target
}

async fn works(target: TargetConfig) -> bool {
    connect(target).await.unwrap().discover(&Scope::default()).await.is_ok_and(|facts| facts.online)
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_come_from_the_environment_a_file_a_command_or_the_official_login() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let token = token(&fake).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let nobody = connect(bare(&fake)).await.unwrap().discover(&Scope::default()).await.unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Credentials);

    let mut by_environment = bare(&fake);
    by_environment.env.insert("RUNAI_TOKEN".into(), token.clone());
    assert!(works(by_environment).await);
    assert!(works(bare(&fake).with("token-file", text(&file))).await);
    assert!(works(bare(&fake).with("token-command", vec!["cat".to_owned(), text(&file)])).await);

    // The official login gives the address too.
    let home = folder.path().join(".runai");
    std::fs::create_dir(&home).unwrap();
    let login = format!("{{\"accessToken\":\"{}\"}}", URL_SAFE_NO_PAD.encode(&token));
    std::fs::write(home.join("authentication.json"), login).unwrap();
    let config = format!("{{\"control_plane\":{{\"url\":\"{}\"}}}}", fake.url());
    std::fs::write(home.join("config.json"), config).unwrap();
    let mut official = bare(&fake);
    official.settings.remove("url");
    official.env.insert("HOME".into(), text(folder.path()));
    assert!(works(official).await);
}

/// A file is read again when its token is refused, so it can be renewed without notifying weftrun.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_may_change() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token(&fake).await).unwrap();
    let backend = connect(bare(&fake).with("token-file", text(&file))).await.unwrap();
    backend.list(&JobFilter::all()).await.unwrap();
    fake.state().tokens.clear();
    std::fs::write(&file, token(&fake).await).unwrap();
    backend.list(&JobFilter::all()).await.unwrap();
}

/// The files that a job leaves on this machine are private.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_private() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let target = target(&fake);
    let state = target.state_dir.clone();
    let backend = connect(target).await.unwrap();
    let handle = submit(&backend, "private", 2, "sleep 300").await;
    backend.act(&handle, weftrun_core::job::Action::Cancel).await.unwrap();
    let marker = state.join("cancelled").join(handle.uid().unwrap());
    assert_eq!(std::fs::metadata(marker).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(CLIENT_ID, "weftrun-tests");
    assert!(!format!("{backend:?}").contains(CLIENT_SECRET));
}
