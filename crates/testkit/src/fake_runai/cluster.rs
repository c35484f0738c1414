//! The cluster's own API: its status, and logs over a WebSocket.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State as Extract};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;

use super::{Shared, lock, routes};

/// The operations of the cluster.
pub fn router() -> Router<Shared> {
    Router::new()
        .route("/cluster-api/status", get(|| async { "OK" }))
        .route("/cluster-api/api/v1/{project}/workloads/{kind}/{framework}/{name}/logs", get(logs))
}

async fn logs(
    Extract(state): Extract<Shared>,
    headers: HeaderMap,
    Path((_project, kind, _framework, name)): Path<(String, String, String, String)>,
    Query(params): Query<HashMap<String, String>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let id = {
        let state = lock(&state);
        if let Err(refused) = routes::authorised(&state, &headers) {
            return refused;
        }
        let known = state.workloads.values().find(|workload| !workload.deleted && workload.name() == name);
        match known
            .filter(|workload| kind == if workload.kind == "workspaces" { "workspace" } else { "training" })
        {
            Some(workload) => workload.id.clone(),
            None => return (StatusCode::NOT_FOUND, "{\"message\":\"workload not found\"}").into_response(),
        }
    };
    upgrade.on_upgrade(move |socket| async move {
        let _ = stream(state, id, params, socket).await;
    })
}

/// Sends the lines of a pod since a second, whole seconds as Kubernetes cuts them, until the pod has ended.
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
        .map_or(i64::MIN, |t| t.as_second());
    let cut = {
        let mut state = lock(&state);
        if state.cut_logs_after.is_empty() { usize::MAX } else { state.cut_logs_after.remove(0) }
    };
    let tail = params.get("tail").and_then(|text| text.parse::<usize>().ok());
    let (mut at, mut sent) = (0, 0);
    loop {
        let found = lock(&state).workloads.get(&id).and_then(|workload| workload.lines(&pod));
        let Some((lines, ended)) = found else { return Ok(()) };
        if at == 0 {
            at = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        }
        // A resumed workload has new pods under the old names: the stream of the old pod is over.
        let Some(new) = lines.get(at..) else { return socket.send(Message::Close(None)).await };
        let mut chunk = Vec::new();
        for (time, line) in new {
            at += 1;
            if time.as_second() < since {
                continue;
            }
            chunk.extend_from_slice(format!("{time} ").as_bytes());
            if sent == cut {
                // Half of the line, and then nothing: the connection is dropped without a close.
                chunk.extend_from_slice(&line[..line.len() / 2]);
                return socket.send(Message::Binary(chunk.into())).await;
            }
            chunk.extend_from_slice(line);
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
