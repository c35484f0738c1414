//! The cluster's own API: logs over a WebSocket, with the control plane's token. The request is sent with the
//! same HTTP client as all others, so that CA, proxy and client certificate apply here too, and then
//! upgraded.

use std::time::Duration;

use base64::Engine;
use futures_util::StreamExt;
use jiff::Timestamp;
use reqwest::{StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use weftrun_core::job::JobHandle;
use weftrun_core::secret::Secret;
use weftrun_core::text::percent::encode;
use weftrun_core::{Error, ErrorKind, Result};

use crate::deadline::{CALL, Deadline};
use crate::requests;
use crate::runai::client::ControlPlane;
use crate::runai::client::LONGEST_ANSWER;
use crate::runai::resolve::{self, text};
use crate::runai::{Shared, error};

/// The path of a workload's log stream, with its four parts as documented by the vendor (API guides 2.23 to
/// 3.0).
const LOG_PATH: &str = "/cluster-api/api/v1/{project}/workloads/{type}/{framework}/{name}/logs";
/// The official client gives up after 3 s, which is too short for some of its users.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest accepted message.
const LARGEST: usize = 16 << 20;
/// Size of the read buffer.
const BUFFER: usize = 8 << 10;
/// Longest duration of one connection; the next one resumes there.
const LONGEST_STREAM: Duration = Duration::from_secs(4 * 3600);
/// How long a stream may be silent: a half-dead connection must end, and another one resumes exactly.
const SILENCE: Duration = Duration::from_secs(300);

/// An open log stream.
pub type LogSocket = WebSocketStream<Upgraded>;

/// Returns the cluster's base URL: the target's setting, else the control plane's value.
pub async fn domain(shared: &Shared) -> Result<String> {
    let known = match &shared.settings.cluster_url {
        Some(url) => Some(url.clone()),
        None => {
            let project = shared.project().await?;
            let cluster =
                resolve::cluster(shared.plane().await?, &project.cluster).await.map_err(|error| {
                    error.hint("set `cluster-url` in the target's table if you may not read clusters")
                })?;
            text(&cluster, "domain").map(str::to_owned)
        }
    };
    let domain = known.filter(|domain| !domain.is_empty()).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the cluster names no domain, so its API cannot be reached")
    })?;
    let base = if domain.contains("://") { domain } else { format!("https://{domain}") };
    let base = base.trim_end_matches('/').to_owned();
    shared.settings.refuse_clear(&base)?;
    Ok(base)
}

/// Returns the cluster's base URL, once it answered its status probe.
pub async fn base(shared: &Shared) -> Result<String> {
    const WHAT: &str = "cannot reach the cluster's API";
    let plane = shared.plane().await?;
    let base = domain(shared).await?;
    let probe = plane.http().get(format!("{base}/cluster-api/status")).timeout(STATUS_TIMEOUT);
    let token = plane.token().await?;
    let answer = requests::send(probe.bearer_auth(token.expose())).await;
    let answer = answer.map_err(|e| error::of_network(WHAT, e))?;
    let status = answer.status();
    let body = requests::text(answer, LONGEST_ANSWER).await.map_err(|e| error::of_network(WHAT, e))?;
    if status.is_success() && body.contains("OK") {
        Ok(base)
    } else {
        Err(error::of_answer(WHAT, status, &body))
    }
}

/// The parameters of a log stream.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub pod: String,
    pub follow: bool,
    /// Only lines since this second.
    pub since: Option<Timestamp>,
    /// Only the last lines.
    pub tail: Option<u64>,
    /// Whether to read the previous attempt.
    pub previous: bool,
}

/// Opens the log stream of a pod; on 404 the other name of the type is tried.
pub async fn open(
    shared: &Shared,
    base: &str,
    handle: &JobHandle,
    framework: &str,
    ask: &Ask,
) -> Result<LogSocket> {
    let kinds = match handle.parts().get(1).map(String::as_str) {
        Some("workspaces") => ["workspace", "workspaces"],
        Some("distributed") => ["training", "distributed"],
        _ => ["training", "trainings"],
    };
    let mut last = None;
    for kind in kinds {
        match upgrade(shared, &url(shared, base, handle, kind, framework, ask)?).await {
            Err(error) if error.kind() == ErrorKind::NotFound => last = Some(error),
            other => return other,
        }
    }
    Err(last
        .unwrap_or_else(|| Error::new(ErrorKind::NotFound, "the cluster has no log stream of the workload")))
}

fn url(
    shared: &Shared,
    base: &str,
    handle: &JobHandle,
    kind: &str,
    framework: &str,
    ask: &Ask,
) -> Result<String> {
    let template = shared.settings.log_path.as_deref().unwrap_or(LOG_PATH);
    let path = template
        .replace("{project}", &encode(shared.project_name()?))
        .replace("{type}", kind)
        .replace("{framework}", framework)
        .replace("{name}", &encode(handle.name()));
    let mut url = format!("{base}{path}?pod={}&timestamps=true&follow={}", encode(&ask.pod), ask.follow);
    if let Some(since) = ask.since {
        url.push_str(&format!("&since-time={}", encode(&since.to_string())));
    }
    if let Some(tail) = ask.tail {
        url.push_str(&format!("&tail={tail}"));
    }
    if ask.previous {
        url.push_str("&previous=true");
    }
    Ok(url)
}

/// Opens a stream; a token that expired while the logs were followed is renewed once.
async fn upgrade(shared: &Shared, url: &str) -> Result<LogSocket> {
    let plane = shared.plane().await?;
    let token = plane.token().await?;
    match attempt(plane, url, &token).await {
        Err(error) if error.context().iter().any(|(key, value)| *key == "status" && value == "401") => {
            attempt(plane, url, &plane.renewed(&token).await?).await
        }
        other => other,
    }
}

async fn attempt(plane: &ControlPlane, url: &str, token: &Secret) -> Result<LogSocket> {
    const WHAT: &str = "cannot open the log stream";
    let key = base64::engine::general_purpose::STANDARD.encode(fastrand::u128(..).to_be_bytes());
    let request = plane
        .http()
        .get(url)
        .version(reqwest::Version::HTTP_11)
        .timeout(LONGEST_STREAM)
        .bearer_auth(token.expose())
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key);
    // The stream may last for hours, and its beginning may not.
    let begins = Deadline::after(CALL);
    let sent = async { requests::send(request).await.map_err(|e| error::of_network(WHAT, e)) };
    let answer = begins.run(WHAT, sent).await?;
    let status = answer.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let text =
            async { requests::text(answer, LONGEST_ANSWER).await.map_err(|e| error::of_network(WHAT, e)) };
        let body = begins.run(WHAT, text).await?;
        let error = error::of_answer(WHAT, status, &body);
        // "workload is not ready to stream" comes with several status codes while images are pulled.
        return Err(if body.contains("not ready") { error.retryable() } else { error });
    }
    let accepted = answer.headers().get("sec-websocket-accept").and_then(|value| value.to_str().ok());
    if accepted != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return Err(Error::new(ErrorKind::Protocol, "what answered the log stream is not a WebSocket"));
    }
    let upgraded = answer.upgrade().await.map_err(|e| error::of_network(WHAT, e))?;
    // One buffer of the default size (128 KiB) per pod would be 64 MiB for 512 pods.
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
}

/// The next item of a log stream.
pub enum Next {
    Bytes(Vec<u8>),
    /// The other side closed it properly.
    Closed,
    /// It broke.
    Broken(String),
}

/// Reads the next bytes.
pub async fn next(socket: &mut LogSocket) -> Next {
    loop {
        let Ok(message) = tokio::time::timeout(SILENCE, socket.next()).await else {
            return Next::Broken("nothing came for five minutes".to_owned());
        };
        return match message {
            Some(Ok(Message::Text(text))) => Next::Bytes(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => Next::Bytes(bytes.to_vec()),
            Some(Ok(Message::Close(_))) => Next::Closed,
            Some(Ok(_)) => continue,
            Some(Err(error)) => Next::Broken(error.to_string()),
            None => Next::Broken("the connection ended".to_owned()),
        };
    }
}
