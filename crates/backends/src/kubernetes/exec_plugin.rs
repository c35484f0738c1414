//! Credential plugins of a kubeconfig (`exec`), run with a time limit.
//!
//! kube runs them itself, without a limit and on the runtime's thread: a plugin that waits for an unreachable
//! network would block the whole program forever. Here a plugin runs in its own process group, which is
//! killed at the time limit. One kube client is created for each certificate that it returns, behind a client
//! that adds its token to every request; the plugin runs again shortly before a credential expires, and when
//! the API server refuses one (401).
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>,
//! 2026-11-22)

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
use std::sync::{Arc, LazyLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use jiff::Timestamp;
use kube::client::Body;
use kube::config::{ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{BoxError, service_fn};
use weftrun_core::log::clean_text;
use weftrun_core::{Error, ErrorKind, Result};

use super::log_streams;
use crate::helper::Helper;

/// Time limit of a plugin, and of one that may prompt the user.
const TIME: Duration = Duration::from_secs(60);
const INTERACTIVE_TIME: Duration = Duration::from_secs(300);
/// How long before its expiry a token is renewed.
const MARGIN: Duration = Duration::from_secs(60);
/// The shortest time between two runs of the plugin because of refusals.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Plugin {
    exec: Arc<ExecConfig>,
    time: Duration,
}

/// What sends the requests of a client that uses a plugin's credentials.
#[derive(Clone)]
struct Renewing {
    plugin: Plugin,
    config: Arc<kube::Config>,
    shared: Arc<Mutex<Shared>>,
    /// The client with the certificate of a run of the plugin, and the number of that run.
    client: Arc<Mutex<(u64, kube::Client)>>,
}

/// The plugin's last credential. All clients of a process that use the plugin for one cluster share it: one
/// command may connect several times, and the plugin may take seconds or prompt the user.
#[derive(Default)]
struct Shared {
    token: Option<SecretString>,
    certificate: Option<(String, SecretString)>,
    /// The run that returned the certificate.
    certified: u64,
    /// Its expiry, if the plugin reports one.
    ends: Option<Timestamp>,
    /// Number of runs of the plugin.
    runs: u64,
    /// When it was last run because its credential was refused.
    refused: Option<Instant>,
}

/// By the plugin's configuration and the cluster's.
static SHARED: LazyLock<std::sync::Mutex<HashMap<String, Arc<Mutex<Shared>>>>> =
    LazyLock::new(Default::default);

/// The output of a plugin.
#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Creates the client of a configuration with a plugin, which is run once.
///
/// # Errors
/// [`ErrorKind::Credentials`] if the plugin fails or does not end in time.
pub(super) async fn client(exec: ExecConfig, config: kube::Config) -> Result<kube::Client> {
    let asks = exec.interactive_mode != Some(ExecInteractiveMode::Never) && std::io::stdin().is_terminal();
    let time = if asks { INTERACTIVE_TIME } else { TIME };
    let namespace = config.default_namespace.clone();
    let renewing = Renewing::start(Plugin { exec: Arc::new(exec), time }, config).await?;
    Ok(kube::Client::new(service_fn(move |request| renewing.clone().send(request)), namespace))
}

impl Renewing {
    /// Runs the plugin, unless this process already has a credential from it.
    async fn start(plugin: Plugin, config: kube::Config) -> Result<Self> {
        let key = format!("{}\n{} {config:?}", plugin.key(), config.cluster_url);
        let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let client = {
            let mut shared = shared.lock().await;
            if shared.runs == 0 {
                shared.renew(&plugin).await?;
            }
            (shared.certified, log_streams::client(shared.certify(config.clone()))?)
        };
        Ok(Self { plugin, config: Arc::new(config), shared, client: Arc::new(Mutex::new(client)) })
    }

    /// Returns the client and the header of a credential that remains valid for a while, and which run of the
    /// plugin returned it. `refused` is the run whose credential the API server has just refused.
    async fn credential(&self, refused: Option<u64>) -> Result<(kube::Client, Option<HeaderValue>, u64)> {
        let mut current = self.shared.lock().await;
        let ends = current.ends.is_some_and(|ends| crate::clock::now() + MARGIN >= ends);
        let refused = refused == Some(current.runs)
            && current.refused.is_none_or(|before| before.elapsed() >= REFUSED_AGAIN);
        if ends || refused {
            current.renew(&self.plugin).await?;
            if refused {
                current.refused = Some(Instant::now());
            }
        }
        let mut client = self.client.lock().await;
        if client.0 != current.certified {
            *client = (current.certified, log_streams::client(current.certify((*self.config).clone()))?);
        }
        let header = match &current.token {
            None => None,
            Some(secret) => {
                let header = HeaderValue::try_from(format!("Bearer {}", secret.expose_secret()));
                let mut header =
                    header.map_err(|_| self.plugin.failed("gave a token that no header can hold"))?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        Ok((client.1.clone(), header, current.runs))
    }

    /// Sends a request; repeats it once with a new credential if the API server refuses the present one,
    /// since a refused request was not executed.
    async fn send(self, request: Request<Body>) -> std::result::Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let again = body.try_clone();
        let (client, header, run) = self.credential(None).await?;
        let response = client.send(with_header(Request::from_parts(parts.clone(), body), header)).await?;
        let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(response);
        };
        let (client, header, newer) = self.credential(Some(run)).await?;
        if newer == run {
            return Ok(response);
        }
        Ok(client.send(with_header(Request::from_parts(parts, again), header)).await?)
    }
}

fn with_header(mut request: Request<Body>, header: Option<HeaderValue>) -> Request<Body> {
    if let Some(header) = header {
        request.headers_mut().insert(AUTHORIZATION, header);
    }
    request
}

impl Shared {
    async fn renew(&mut self, plugin: &Plugin) -> Result<()> {
        let status = plugin.run().await?;
        self.runs += 1;
        if let (Some(certificate), Some(key)) = (status.client_certificate_data, status.client_key_data) {
            self.certificate = Some((certificate, SecretString::from(key)));
            self.certified = self.runs;
        }
        self.token = status.token.map(SecretString::from);
        self.ends = status.expiration_timestamp;
        Ok(())
    }

    /// Returns the configuration with the plugin's certificate, if it returned one.
    fn certify(&self, mut config: kube::Config) -> kube::Config {
        if let Some((certificate, key)) = &self.certificate {
            let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
            config.auth_info.client_certificate_data = Some(encode(certificate));
            config.auth_info.client_key_data = Some(SecretString::from(encode(key.expose_secret())));
        }
        config
    }
}

impl Plugin {
    fn name(&self) -> &str {
        self.exec.command.as_deref().unwrap_or_default()
    }

    /// Returns the key that identifies this plugin.
    fn key(&self) -> String {
        // Each variable is a map, whose order differs between reads.
        let env: Vec<BTreeMap<_, _>> =
            self.exec.env.iter().flatten().map(|pair| pair.iter().collect()).collect();
        format!(
            "{:?}",
            (&self.exec.api_version, &self.exec.command, &self.exec.args, env, &self.exec.drop_env)
        )
    }

    fn failed(&self, why: &str) -> Error {
        let message = format!("the kubeconfig's credential plugin `{}` {why}", clean_text(self.name()));
        let error =
            Error::new(ErrorKind::Credentials, message).hint("run `kubectl get pods`, which runs it too");
        match &self.exec.install_hint {
            Some(hint) => error.hint(clean_text(hint).into_owned()),
            None => error,
        }
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.name());
        command.args(self.exec.args.iter().flatten());
        for pair in self.exec.env.iter().flatten() {
            if let (Some(name), Some(value)) = (pair.get("name"), pair.get("value")) {
                command.env(name, value);
            }
        }
        for name in self.exec.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        let mut spec = serde_json::json!({ "interactive": self.is_interactive() });
        if self.exec.provide_cluster_info {
            let cluster = self.exec.cluster.as_ref().ok_or_else(|| {
                self.failed("requires the cluster's data, and the kubeconfig names no cluster")
            })?;
            spec["cluster"] = serde_json::to_value(cluster).map_err(|error| {
                self.failed("requires the cluster's data, which cannot be written as JSON").with_source(error)
            })?;
        }
        let info = serde_json::json!({
            "apiVersion": self.exec.api_version, "kind": "ExecCredential", "spec": spec,
        });
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        Ok(command)
    }

    fn is_interactive(&self) -> bool {
        self.time == INTERACTIVE_TIME
    }

    /// Runs the plugin to its end or its time limit.
    async fn run(&self) -> Result<Status> {
        let helper = Helper { interactive: self.is_interactive(), end_children: true, ..Helper::default() };
        let output = helper.output(self.command()?, self.time).await.map_err(|error| {
            if error.kind() == std::io::ErrorKind::TimedOut {
                return self.failed(&error.to_string());
            }
            self.failed("cannot be run").with_source(error)
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(self.failed("failed").with("it said", clean_text(why)));
        }
        let credential: Credential = serde_saphyr::from_slice(&output.stdout)
            .map_err(|_| self.failed("printed something else than an ExecCredential"))?;
        credential.status.ok_or_else(|| self.failed("gave no credential"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn plugin(script: &str, time: Duration) -> Plugin {
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never", "env": [{"name": "GIVEN", "value": "given"}],
        });
        Plugin { exec: Arc::new(serde_json::from_value(exec).unwrap()), time }
    }

    #[tokio::test]
    async fn a_plugin_gives_its_token_and_is_told_what_it_is_run_for() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 3 ;; esac
            printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$GIVEN""#;
        let status = plugin(script, TIME).run().await.unwrap();
        assert_eq!(status.token.unwrap(), "given");
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_helpers() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!("sleep 300 & echo $! > {0}; echo $$ >> {0}; wait", pids.display());
        // On a loaded machine the shell may take longer than that to start.
        for seconds in [2, 10, 40] {
            let began = Instant::now();
            let error = plugin(&script, Duration::from_secs(seconds)).run().await.err().unwrap();
            assert!(error.message().contains(&format!("did not end within {seconds} s")), "{error}");
            assert!(began.elapsed() < Duration::from_secs(seconds + 60));
            if std::fs::read_to_string(&pids).is_ok_and(|text| text.lines().count() == 2) {
                break;
            }
        }
        let began = Instant::now();
        for pid in std::fs::read_to_string(pids).unwrap().lines() {
            // The helper is not a child of this process: it is gone, or a zombie, once the kernel has
            // processed the signal.
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let ended = |stat: &str| stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ");
            while !ended(&stat()) {
                assert!(began.elapsed() < Duration::from_secs(60), "{}", stat());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_helper_that_holds_the_pipes_of_a_plugin_delays_nothing() {
        let script = "sleep 300 & printf '{\"status\":{\"token\":\"t\"}}'";
        let began = Instant::now();
        let status = plugin(script, Duration::from_secs(100)).run().await.unwrap();
        assert_eq!(status.token.unwrap(), "t");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_plugin_that_fails_or_prints_nonsense_is_told() {
        for (script, why) in [
            ("echo 'no \u{1b}]52;c;AA\u{7}login' >&2; exit 1", "failed"),
            ("echo nonsense", "something else"),
            ("printf '{\"kind\":\"ExecCredential\"}'", "no credential"),
            ("yes", "failed"),
        ] {
            let error = plugin(script, Duration::from_secs(20)).run().await.err().unwrap();
            assert!(error.to_string().contains(why), "{script}: {error}");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_is_renewed_before_its_end_and_kept_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = |ends: &str| {
            format!(
                "echo x >> {}; printf '{{\"status\":{{\"token\":\"t\",\"expirationTimestamp\":\"{ends}\"}}}}'",
                runs.display()
            )
        };
        crate::tls::provide().unwrap();
        for (ends, count) in [("2020-01-01T00:00:00Z", 2), ("2120-01-01T00:00:00Z", 1)] {
            let _ = std::fs::remove_file(&runs);
            let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
            let service = Renewing::start(plugin(&script(ends), TIME), config).await.unwrap();
            assert_eq!(service.credential(None).await.unwrap().1.unwrap(), "Bearer t");
            assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), count, "{ends}");
        }
    }

    #[tokio::test]
    async fn a_process_runs_a_plugin_once_however_often_it_connects() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = format!("echo x >> {}; printf '{{\"status\":{{\"token\":\"t\"}}}}'", runs.display());
        crate::tls::provide().unwrap();
        let config = || kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let first = Renewing::start(plugin(&script, TIME), config()).await.unwrap();
        let second = Renewing::start(plugin(&script, TIME), config()).await.unwrap();
        for service in [&first, &second] {
            assert_eq!(service.credential(None).await.unwrap().1.unwrap(), "Bearer t");
        }
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
        // A refusal of one client renews the credential of both.
        first.credential(Some(1)).await.unwrap();
        assert_eq!(second.credential(None).await.unwrap().2, 2);
        let other = kube::Config::new("http://127.0.0.2:1".parse().unwrap());
        Renewing::start(plugin(&script, TIME), other).await.unwrap();
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3, "another cluster");
    }

    #[tokio::test]
    async fn a_refused_credential_is_renewed_once_in_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = format!("echo x >> {}; printf '{{\"status\":{{\"token\":\"t\"}}}}'", runs.display());
        crate::tls::provide().unwrap();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let service = Renewing::start(plugin(&script, TIME), config).await.unwrap();
        assert_eq!(service.credential(Some(1)).await.unwrap().2, 2, "refused");
        assert_eq!(service.credential(Some(1)).await.unwrap().2, 2, "another request's, renewed already");
        assert_eq!(service.credential(Some(2)).await.unwrap().2, 2, "the new one too, at once");
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 2);
    }
}
