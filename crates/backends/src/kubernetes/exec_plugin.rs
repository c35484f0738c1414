//! Credential plugins of a kubeconfig (`exec`), run with a time limit.
//!
//! kube runs them by itself, without one and on the thread of the runtime: a plugin that waits for a network that is not
//! there would hold the whole program for ever. Here a plugin runs in a process group of its own, which is killed when its
//! time is over, and its token is put into every request by a layer of the client.
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>, 2026-11-22)

use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tower::BoxError;
use tower::buffer::BufferLayer;
use tower::filter::{AsyncFilterLayer, AsyncPredicate};
use tower::util::MapResponseLayer;
use weftrun_core::log::clean_text;
use weftrun_core::{Error, ErrorKind, Result};

/// How long a plugin may take, and one that may ask the user something.
const TIME: Duration = Duration::from_secs(60);
const INTERACTIVE_TIME: Duration = Duration::from_secs(300);
/// How long the pipes of a plugin that has ended are read, where a helper holds them open.
const AFTER_ITS_END: Duration = Duration::from_secs(2);
/// Most bytes that a plugin may print.
const LONGEST: u64 = 1 << 20;
/// A token is renewed so long before its end.
const MARGIN: Duration = Duration::from_secs(60);
/// Requests that may wait for the connection, as in kube's own client.
const WAITING: usize = 1024;
/// Largest error of an API server that is read; a `Status` is far below.
const LARGEST_ERROR: usize = 4 << 20;

/// A plugin, and the token it gave last.
#[derive(Clone)]
pub(super) struct Plugin {
    exec: Arc<ExecConfig>,
    token: Arc<Mutex<Token>>,
    time: Duration,
}

/// A token with its end, where the plugin says one.
#[derive(Default)]
struct Token {
    secret: Option<SecretString>,
    ends: Option<Timestamp>,
}

impl From<Status> for Token {
    fn from(status: Status) -> Self {
        Self { secret: status.token.map(SecretString::from), ends: status.expiration_timestamp }
    }
}

/// What a plugin prints.
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

/// Takes the plugin out of a configuration and runs it once: its certificate becomes the configuration's own.
///
/// # Errors
/// [`ErrorKind::Credentials`] where it fails or does not end in time.
pub(super) async fn take(config: &mut kube::Config) -> Result<Option<Plugin>> {
    let Some(exec) = config.auth_info.exec.take() else { return Ok(None) };
    let asks = exec.interactive_mode != Some(ExecInteractiveMode::Never) && std::io::stdin().is_terminal();
    let time = if asks { INTERACTIVE_TIME } else { TIME };
    let plugin = Plugin { exec: Arc::new(exec), token: Arc::default(), time };
    let status = plugin.run().await?;
    if let (Some(certificate), Some(key)) = (&status.client_certificate_data, &status.client_key_data) {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        config.auth_info.client_certificate_data = Some(encode(certificate));
        config.auth_info.client_key_data = Some(SecretString::from(encode(key)));
    }
    *plugin.token.lock().await = Token::from(status);
    Ok(Some(plugin))
}

/// Makes the client. Of an error's body no more is read than an error has.
pub(super) fn client(config: kube::Config, plugin: Option<Plugin>) -> kube::Result<kube::Client> {
    let bounded = MapResponseLayer::new(|response: http::Response<_>| {
        let most = if response.status().is_client_error() || response.status().is_server_error() {
            LARGEST_ERROR
        } else {
            usize::MAX
        };
        response.map(|body| http_body_util::Limited::new(body, most))
    });
    let builder = ClientBuilder::try_from(config)?.with_layer(&bounded);
    Ok(match plugin {
        None => builder.build(),
        // A filter asks of a service that it can be cloned, which the client's own cannot.
        Some(plugin) => {
            builder.with_layer(&BufferLayer::new(WAITING)).with_layer(&AsyncFilterLayer::new(plugin)).build()
        }
    })
}

impl AsyncPredicate<Request<Body>> for Plugin {
    type Future = BoxFuture<'static, std::result::Result<Request<Body>, BoxError>>;
    type Request = Request<Body>;

    fn check(&mut self, mut request: Request<Body>) -> Self::Future {
        let plugin = self.clone();
        Box::pin(async move {
            if let Some(header) = plugin.header().await? {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            Ok(request)
        })
    }
}

impl Plugin {
    /// The header with a token that is good for a while; none where the plugin gives certificates.
    async fn header(&self) -> std::result::Result<Option<HeaderValue>, BoxError> {
        let mut token = self.token.lock().await;
        if token.ends.is_some_and(|ends| Timestamp::now() + MARGIN >= ends) && token.secret.is_some() {
            let status = self.run().await?;
            *token = Token::from(status);
        }
        let Some(secret) = &token.secret else { return Ok(None) };
        let mut header = HeaderValue::try_from(format!("Bearer {}", secret.expose_secret()))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    fn name(&self) -> &str {
        self.exec.command.as_deref().unwrap_or_default()
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
        let asks = self.time == INTERACTIVE_TIME;
        let mut spec = serde_json::json!({ "interactive": asks });
        if self.exec.provide_cluster_info {
            let cluster = self
                .exec
                .cluster
                .as_ref()
                .ok_or_else(|| self.failed("wants to know a cluster that is not named"))?;
            spec["cluster"] = serde_json::to_value(cluster)
                .map_err(|error| self.failed("cannot be told of the cluster").source(error))?;
        }
        let info = serde_json::json!({
            "apiVersion": self.exec.api_version, "kind": "ExecCredential", "spec": spec,
        });
        command.env("KUBERNETES_EXEC_INFO", info.to_string()).kill_on_drop(true).stdout(Stdio::piped());
        if asks {
            // Whoever asks on the terminal must be in its foreground, which is this program's group.
            command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
        } else {
            command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        }
        Ok(command)
    }

    /// Runs the plugin to its end, or to the end of its time.
    async fn run(&self) -> Result<Status> {
        let mut child =
            self.command()?.spawn().map_err(|error| self.failed("cannot be run").source(error))?;
        let group = child.id().filter(|_| self.time != INTERACTIVE_TIME);
        let Ok(done) = tokio::time::timeout(self.time, output(&mut child)).await else {
            end(&mut child, group).await;
            return Err(self.failed(&format!("did not end within {} s", self.time.as_secs())));
        };
        let (out, said, ended_well) = done.map_err(|error| self.failed("cannot be read").source(error))?;
        // A helper that it left behind would outlive this program.
        end(&mut child, group).await;
        if !ended_well {
            let said = String::from_utf8_lossy(&said);
            let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(self.failed("failed").with("it said", clean_text(why)));
        }
        let credential: Credential = serde_saphyr::from_slice(&out)
            .map_err(|_| self.failed("printed something else than an ExecCredential"))?;
        credential.status.ok_or_else(|| self.failed("gave no credential"))
    }
}

/// What a plugin prints and says, and whether it ended well. Its own end counts, not that of helpers that hold its pipes.
async fn output(child: &mut Child) -> std::io::Result<(Vec<u8>, Vec<u8>, bool)> {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_out = async {
        match stdout {
            Some(stdout) => stdout.take(LONGEST).read_to_end(&mut out).await.map(drop),
            None => Ok(()),
        }
    };
    let read_said = async {
        match stderr {
            Some(stderr) => stderr.take(LONGEST).read_to_end(&mut said).await.map(drop),
            None => Ok(()),
        }
    };
    let status = {
        let read = async { tokio::try_join!(read_out, read_said).map(drop) };
        tokio::pin!(read);
        tokio::select! {
            biased;
            read = &mut read => {
                read?;
                child.wait().await?
            }
            status = child.wait() => {
                // What it wrote is in the pipes; a helper that holds them open may write for ever.
                if let Ok(read) = tokio::time::timeout(AFTER_ITS_END, read).await {
                    read?;
                }
                status?
            }
        }
    };
    Ok((out, said, status.success()))
}

/// Ends what is left of a plugin and its helpers.
async fn end(child: &mut Child, group: Option<u32>) {
    let leader = group.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(leader) = leader {
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
    let _ = child.start_kill();
    let _ = child.wait().await;
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
        Plugin { exec: Arc::new(serde_json::from_value(exec).unwrap()), token: Arc::default(), time }
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
        let began = Instant::now();
        let error = plugin(&script, Duration::from_secs(2)).run().await.err().unwrap();
        assert!(error.message().contains("did not end within 2 s"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
        for pid in std::fs::read_to_string(pids).unwrap().lines() {
            // The helper is not ours to wait for: it is gone, or a zombie, as soon as the kernel comes to it.
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
        for (ends, count) in [("2020-01-01T00:00:00Z", 2), ("2120-01-01T00:00:00Z", 1)] {
            let _ = std::fs::remove_file(&runs);
            let plugin = plugin(&script(ends), TIME);
            let status = plugin.run().await.unwrap();
            *plugin.token.lock().await = Token::from(status);
            assert_eq!(plugin.header().await.unwrap().unwrap(), "Bearer t");
            assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), count, "{ends}");
        }
    }
}
