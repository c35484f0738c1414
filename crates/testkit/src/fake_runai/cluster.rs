//! The cluster's own API: its status, and logs over a WebSocket.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State as Extract};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;

use super::{Shared, lock};

/// Returns the operations of the cluster that need a token.
pub fn router() -> Router<Shared> {
    Router::new().route("/cluster-api/api/v1/{project}/workloads/{kind}/{framework}/{name}/logs", get(logs))
}

/// Returns the operations of the cluster that need no token.
pub fn open_router() -> Router<Shared> {
    Router::new().route("/cluster-api/status", get(status))
}

async fn status(Extract(state): Extract<Shared>) -> Response {
    if lock(&state).cluster_api {
        "OK".into_response()
    } else {
        (StatusCode::BAD_GATEWAY, "<html><body>502 Bad Gateway</body></html>").into_response()
    }
}

async fn logs(
    Extract(state): Extract<Shared>,
    Path((_project, kind, _framework, name)): Path<(String, String, String, String)>,
    Query(params): Query<HashMap<String, String>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let id = {
        let state = lock(&state);
        let known = state.workloads.values().find(|workload| !workload.deleted && workload.name() == name);
        match known
            .filter(|workload| kind == if workload.kind == "workspaces" { "workspace" } else { "training" })
        {
            Some(workload) if !state.ended_logs && workload.ended(params.get("pod")) => {
                let text = "{\"message\":\"workload is not running, its logs cannot be streamed\"}";
                return (StatusCode::BAD_REQUEST, text).into_response();
            }
            Some(workload) => workload.id.clone(),
            None => return (StatusCode::NOT_FOUND, "{\"message\":\"workload not found\"}").into_response(),
        }
    };
    upgrade.on_upgrade(move |socket| async move {
        let _ = stream(state, id, params, socket).await;
    })
}

/// Sends the lines of a pod since a second, truncated to whole seconds as Kubernetes does, until the pod has
/// ended.
async fn stream(
    state: Shared,
    id: String,
    params: HashMap<String, String>,
    mut socket: WebSocket,
) -> Result<(), axum::Error> {
    let pod = params.get("pod").cloned().unwrap_or_default();
    let follow = params.get("follow").is_some_and(|value| value == "true");
    let since = params
        .get("since-time")
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map_or(i64::MIN, jiff::Timestamp::as_second);
    let cut = {
        let mut state = lock(&state);
        if state.cut_logs_after.is_empty() { usize::MAX } else { state.cut_logs_after.remove(0) }
    };
    let tail = params.get("tail").and_then(|text| text.parse::<usize>().ok());
    // A resumed workload has new pods with the old names: this stream belongs to the old one.
    let found = lock(&state).workloads.get(&id).and_then(|workload| workload.pod(&pod).cloned());
    let Some(pod) = found else { return socket.send(Message::Close(None)).await };
    let (mut at, mut sent) = (tail.map_or(0, |tail| pod.tail(tail)), 0);
    loop {
        let Some((new, ended)) = pod.lines(at) else { return socket.send(Message::Close(None)).await };
        let mut chunk = Vec::new();
        for (time, line) in new {
            at += 1;
            if time.as_second() < since {
                continue;
            }
            chunk.extend_from_slice(format!("{time} ").as_bytes());
            if sent == cut {
                // Half of the line, and then the connection is dropped without a close.
                chunk.extend_from_slice(&line[..line.len() / 2]);
                return socket.send(Message::Binary(chunk.into())).await;
            }
            chunk.extend_from_slice(&line);
            chunk.push(b'\n');
            sent += 1;
        }
        if !chunk.is_empty() {
            socket.send(Message::Binary(chunk.into())).await?;
        }
        if ended || !follow {
            return socket.send(Message::Close(None)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
