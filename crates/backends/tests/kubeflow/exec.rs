//! Credential plugins of a kubeconfig, run against the real API server.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use weftrun_core::ErrorKind;
use weftrun_core::job::{JobFilter, JobPhase};
use weftrun_core::log::LogOptions;

use crate::cluster::{PATIENCE, Read, TestCluster, cluster, job};
use crate::line::Line;
use weftrun_testkit::child;

/// A plugin that returns its answers in order, and then repeats the last one.
struct Plugin {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Plugin {
    /// Makes it, with a kubeconfig that runs it.
    fn new(cluster: &TestCluster, answers: &[serde_json::Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (number, status) in (1..).zip(answers) {
            let credential = serde_json::json!({
                "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
            });
            std::fs::write(folder.path().join(number.to_string()), credential.to_string()).unwrap();
        }
        let program = folder.path().join("plugin");
        let script = "#!/bin/sh\ncd \"${0%/*}\"; echo run >>runs; n=$(wc -l <runs)\nwhile [ ! -e \"$n\" ]; do n=$((n - 1)); done\ncat \"$n\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = std::fs::read_to_string(cluster.kubeconfig("researcher")).unwrap();
        let start = text.find("users:").unwrap();
        let end = start + text[start..].find('\n').unwrap();
        let user = format!(
            "users: [{{name: researcher, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}}}}}]",
            program.display()
        );
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, format!("{}{user}{}", &text[..start], &text[end..])).unwrap();
        Self { folder, kubeconfig }
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default().lines().count()
    }

    /// Lists the jobs twice over one connection.
    async fn list_twice(&self, cluster: &TestCluster) -> weftrun_core::Result<()> {
        let backend = cluster.connect_to(cluster.target(&self.kubeconfig)).await?;
        backend.list(&JobFilter::all()).await?;
        backend.list(&JobFilter::all()).await.map(drop)
    }
}

/// A service account's token, which the researcher's role is bound to.
fn token(cluster: &TestCluster) -> serde_json::Value {
    let rules = "[{apiGroups: ['', kubeflow.org, trainer.kubeflow.org], resources: [pods, pytorchjobs, mpijobs, trainjobs], verbs: [list]}]";
    // Tests run side by side: each makes its own account.
    let account = super::cluster::name("exec-plugin");
    cluster.account(&account, rules);
    serde_json::json!({"token": cluster.kubectl(&["create", "token", &account]).trim()})
}

/// A client certificate of a member of the administrators' group, signed by the authority of this folder.
fn certificate(folder: &std::path::Path, authority: &std::path::Path) -> serde_json::Value {
    let script = "set -e; cd \"$1\"; openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out key\n\
        openssl req -new -key key -subj /O=system:masters/CN=exec-plugin -out csr 2>/dev/null\n\
        printf 'extendedKeyUsage=clientAuth\\n' >ext\n\
        openssl x509 -req -in csr -CA \"$2/ca.crt\" -CAkey \"$2/ca.key\" -set_serial 7 -days 1 -extfile ext -out crt 2>/dev/null";
    let done =
        child::command("sh").args(["-c", script, "certificate"]).arg(folder).arg(authority).status().unwrap();
    assert!(done.success());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    serde_json::json!({"clientCertificateData": read("crt"), "clientKeyData": read("key")})
}

/// The plugin runs once per connection, regardless of the number of requests.
#[tokio::test]
async fn a_token_of_a_plugin_is_used_and_asked_for_once() {
    let Some(cluster) = cluster() else { return };
    let plugin = Plugin::new(&cluster, &[token(&cluster)]);
    plugin.list_twice(&cluster).await.unwrap();
    assert_eq!(plugin.runs(), 1);
}

/// A token that the API server refuses is fetched again, and the request is sent with the new one; one that
/// stays invalid is an error after two runs.
#[tokio::test]
async fn a_refused_token_of_a_plugin_is_renewed() {
    let Some(cluster) = cluster() else { return };
    let bad = serde_json::json!({"token": "expired"});
    let plugin = Plugin::new(&cluster, &[bad.clone(), token(&cluster)]);
    plugin.list_twice(&cluster).await.unwrap();
    assert_eq!(plugin.runs(), 2);
    let plugin = Plugin::new(&cluster, &[bad]);
    let error = plugin.list_twice(&cluster).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
    assert!(error.hints()[0].contains("log in again"), "{error}");
    assert_eq!(plugin.runs(), 2);
}

/// So is a client certificate, for which a new connection is created.
#[tokio::test]
async fn a_certificate_of_a_plugin_is_used_and_renewed() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let make = "cd \"$1\"; openssl ecparam -name prime256v1 -genkey -noout -out ca.key; openssl req -x509 -new -key ca.key -subj /CN=other -days 1 -out ca.crt 2>/dev/null";
    assert!(
        child::command("sh").args(["-c", make, "authority"]).arg(folder.path()).status().unwrap().success()
    );
    let good = certificate(folder.path(), &cluster.state.join("pki"));
    let plugin = Plugin::new(&cluster, std::slice::from_ref(&good));
    plugin.list_twice(&cluster).await.unwrap();
    assert_eq!(plugin.runs(), 1);
    let other = certificate(folder.path(), folder.path());
    let plugin = Plugin::new(&cluster, &[other, good]);
    plugin.list_twice(&cluster).await.unwrap();
    assert_eq!(plugin.runs(), 2);
}

/// A token that the API server refuses while a job is followed is fetched again, by the logs and by the
/// watch: nothing is lost, and the user is not asked to log in.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_plugin_expires_while_following() {
    let Some(cluster) = cluster() else { return };
    let rules = "[{apiGroups: ['', kubeflow.org], resources: [pods, pods/log, pytorchjobs, events], verbs: [get, list, watch]}]";
    let [old, new] = ["plugin-old", "plugin-new"].map(super::cluster::name);
    let token = |account: &str| {
        cluster.account(account, rules);
        serde_json::json!({"token": cluster.kubectl(&["create", "token", account]).trim()})
    };
    let plugin = Plugin::new(&cluster, &[token(&old), token(&new)]);
    let running =
        cluster.submit(job("plugin", 1, "for i in $(seq 120); do echo step $i; sleep 0.5; done")).await;
    running.phase(JobPhase::Running).await;
    let line = Line::of(&plugin.kubeconfig).await;
    let backend = cluster.connect_to(cluster.target(&line.kubeconfig)).await.unwrap();
    let mut read = Read::default();
    let reading = async {
        let mut logs = backend.logs(&running.handle, LogOptions::follow());
        while let Some(batch) = logs.next().await {
            read.add(&batch.unwrap());
        }
    };
    let watching = async {
        let mut events = backend.watch(JobFilter::one(&running.handle));
        while let Some(event) = events.next().await {
            event.unwrap();
        }
    };
    let expire = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cluster.kubectl(&["delete", "serviceaccount", &old]);
        // The API server believes for ten seconds more what it knew of a token.
        tokio::time::sleep(Duration::from_secs(12)).await;
        line.cut();
        line.mend();
    };
    let all = async { tokio::join!(reading, watching, expire) };
    tokio::time::timeout(2 * PATIENCE, all).await.expect("the logs or the watch do not end");
    let missing: Vec<u32> = (1..=120).filter(|step| read.count(&format!("step {step}")) != 1).collect();
    assert!(missing.is_empty() && read.gaps().is_empty(), "{missing:?} {:?}", read.marks);
    assert_eq!(plugin.runs(), 2, "once for the connection, once for the refusal");
    running.delete().await;
}
