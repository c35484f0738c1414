//! Serves commands and ports of pods over WebSockets, like an API server: the channels of
//! `v4.channel.k8s.io` (`k8s.io/apimachinery/pkg/util/remotecommand`). A command is a process of this machine.

use std::process::Stdio;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State as Extract};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::super::{Shared, lock};
use super::status;
use crate::child;

const PROTOCOL: [&str; 1] = ["v4.channel.k8s.io"];
/// The channels of a command.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

type Pairs = Query<Vec<(String, String)>>;

/// Refuses a connection to a pod that is unknown or does not run.
fn unreachable(state: &Shared, pod: &str) -> Option<Response> {
    let state = lock(state);
    let found = state.workloads.values().find_map(|workload| workload.pod(pod));
    match found.map(super::super::pod::Pod::phase) {
        Some("Running") => None,
        Some(phase) => Some(status(400, "BadRequest", &format!("pod {pod} is {phase}"))),
        None => Some(status(404, "NotFound", &format!("pods \"{pod}\" not found"))),
    }
}

fn values(pairs: Vec<(String, String)>, name: &str) -> Vec<String> {
    pairs.into_iter().filter(|(key, _)| key == name).map(|(_, value)| value).collect()
}

/// Runs a command; in its environment `HOSTNAME` is the pod's name, as in a real one.
pub async fn exec(
    Extract(state): Extract<Shared>,
    Path((_, pod)): Path<(String, String)>,
    Query(pairs): Pairs,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Some(refused) = unreachable(&state, &pod) {
        return refused;
    }
    let argv = values(pairs, "command");
    upgrade.protocols(PROTOCOL).on_upgrade(move |socket| run(socket, argv, pod)).into_response()
}

async fn run(mut socket: WebSocket, argv: Vec<String>, pod: String) {
    let mut words = argv.iter();
    let mut command = Command::from(child::command(words.next().map_or("", String::as_str)));
    command.args(words).env("HOSTNAME", pod).kill_on_drop(true);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let answer = match child {
        Ok(mut child) => {
            let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
            while out.is_some() || err.is_some() {
                let sent = tokio::select! {
                    bytes = piece(&mut out), if out.is_some() => send(&mut socket, STDOUT, &bytes).await,
                    bytes = piece(&mut err), if err.is_some() => send(&mut socket, STDERR, &bytes).await,
                };
                if !sent {
                    return;
                }
            }
            let code = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137);
            ended(code)
        }
        Err(error) => json!({"status": "Failure", "message": format!("exec: {error}")}),
    };
    send(&mut socket, STATUS, answer.to_string().as_bytes()).await;
    let _ = socket.send(Message::Close(None)).await;
}

fn ended(code: i32) -> Value {
    if code == 0 {
        return json!({"status": "Success", "metadata": {}});
    }
    json!({"status": "Failure", "metadata": {}, "reason": "NonZeroExitCode",
           "message": format!("command terminated with non-zero exit code: {code}"),
           "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
}

/// Returns the next bytes of an output; none if it has ended.
async fn piece(from: &mut Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let length = match from {
        Some(open) => open.read(&mut bytes).await.unwrap_or(0),
        None => 0,
    };
    if length == 0 {
        *from = None;
    }
    bytes.truncate(length);
    bytes
}

async fn send(socket: &mut WebSocket, channel: u8, bytes: &[u8]) -> bool {
    let frame = [&[channel], bytes].concat();
    bytes.is_empty() || socket.send(Message::Binary(Bytes::from(frame))).await.is_ok()
}

/// Forwards a port of localhost over a channel for its bytes and one for its errors; each begins with the port.
pub async fn forward(
    Extract(state): Extract<Shared>,
    Path((_, pod)): Path<(String, String)>,
    Query(pairs): Pairs,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Some(refused) = unreachable(&state, &pod) {
        return refused;
    }
    if lock(&state).refuse_ports {
        let message =
            format!("pods \"{pod}\" is forbidden: User cannot create resource \"pods/portforward\"");
        return status(403, "Forbidden", &message);
    }
    let port = values(pairs, "ports").first().and_then(|port| port.parse().ok()).unwrap_or(0);
    upgrade.protocols(PROTOCOL).on_upgrade(move |socket| connect(socket, port)).into_response()
}

async fn connect(mut socket: WebSocket, port: u16) {
    for channel in [0, 1] {
        send(&mut socket, channel, &port.to_le_bytes()).await;
    }
    let mut stream = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(stream) => stream,
        Err(error) => {
            let reason = format!("failed to connect to localhost:{port} inside namespace: connect: {error}");
            send(&mut socket, 1, reason.as_bytes()).await;
            let _ = socket.send(Message::Close(None)).await;
            return;
        }
    };
    let mut bytes = vec![0; 4096];
    loop {
        tokio::select! {
            read = stream.read(&mut bytes) => match read {
                Ok(length @ 1..) if send(&mut socket, 0, &bytes[..length]).await => {}
                _ => break,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Binary(frame))) => match frame.split_first() {
                    Some((0, bytes)) if stream.write_all(bytes).await.is_ok() => {}
                    _ => break,
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => break,
            },
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}
