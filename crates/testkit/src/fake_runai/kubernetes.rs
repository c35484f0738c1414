//! The cluster's Kubernetes API, as far as reading logs with a kubeconfig needs it: list, watch and get of
//! the project's pods, and their logs.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State as Extract};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::pod::Pod;
use super::{PROJECT, Shared, State, lock};

mod streams;

/// Its path at the fake's address.
pub const ROOT: &str = "/kubernetes";
/// The token of the kubeconfig, which differs from the control plane's.
pub const TOKEN: &str = "of-the-kubeconfig";

type Params = Query<HashMap<String, String>>;

/// Returns the operations.
pub fn router() -> Router<Shared> {
    let base = format!("{ROOT}/api/v1/namespaces/{{namespace}}/pods");
    Router::new()
        .route(&base, get(pods))
        .route(&format!("{base}/{{pod}}"), get(pod))
        .route(&format!("{base}/{{pod}}/log"), get(log))
        .route(&format!("{base}/{{pod}}/exec"), any(streams::exec))
        .route(&format!("{base}/{{pod}}/portforward"), any(streams::forward))
        .route_layer(middleware::from_fn(allowed))
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                      "message": message, "reason": reason, "code": code});
    (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), axum::Json(body))
        .into_response()
}

/// Refuses another token than the kubeconfig's, and other namespaces than the project's.
async fn allowed(Path(names): Path<HashMap<String, String>>, request: Request, next: Next) -> Response {
    let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if given != Some(format!("Bearer {TOKEN}").as_str()) {
        return status(401, "Unauthorized", "Unauthorized");
    }
    let namespace = &names["namespace"];
    if *namespace != format!("runai-{PROJECT}") {
        return status(403, "Forbidden", &format!("pods is forbidden in the namespace \"{namespace}\""));
    }
    next.run(request).await
}

/// Returns the pods of all workloads, each with its workload.
fn all(state: &State) -> Vec<Value> {
    let live = state.workloads.values().filter(|workload| !workload.deleted);
    live.flat_map(|workload| workload.pods.iter().map(|pod| object(workload.name(), pod))).collect()
}

fn object(workload: &str, pod: &Pod) -> Value {
    let state = match (pod.phase(), pod.exit_code()) {
        ("Running", _) => json!({"running": {"startedAt": "2026-11-21T00:00:00Z"}}),
        (_, Some(code)) => {
            json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                                                 "containerID": format!("fake://{}", pod.id)}})
        }
        _ => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    json!({"kind": "Pod", "apiVersion": "v1",
           "metadata": {"name": pod.name, "namespace": format!("runai-{PROJECT}"), "uid": pod.id, "resourceVersion": "1",
                        "labels": {"workloadName": workload}},
           "spec": {"containers": [{"name": "main", "image": "example.test/trainer:1"}]},
           "status": {"phase": pod.phase(),
                      "containerStatuses": [{"name": "main", "restartCount": 0, "ready": pod.phase() == "Running", "image": "x",
                                             "imageID": "x", "containerID": format!("fake://{}", pod.id), "state": state}]}})
}

async fn pods(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    if params.get("watch").is_some_and(|value| value == "true" || value == "1") {
        return watch(state);
    }
    let items = all(&lock(&state));
    axum::Json(
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
    )
    .into_response()
}

/// Streams every change of the pods, polled every few milliseconds.
fn watch(state: Shared) -> Response {
    stream(move |send| async move {
        let mut known: HashMap<String, Value> = HashMap::new();
        loop {
            let now: HashMap<String, Value> = all(&lock(&state))
                .into_iter()
                .filter_map(|pod| Some((pod.pointer("/metadata/uid")?.as_str()?.to_owned(), pod)))
                .collect();
            let mut lines = Vec::new();
            for (uid, pod) in &now {
                let word = match known.get(uid) {
                    None => "ADDED",
                    Some(before) if before != pod => "MODIFIED",
                    Some(_) => continue,
                };
                lines.extend(format!("{}\n", json!({"type": word, "object": pod})).into_bytes());
            }
            for (_, pod) in known.iter().filter(|(uid, _)| !now.contains_key(*uid)) {
                lines.extend(format!("{}\n", json!({"type": "DELETED", "object": pod})).into_bytes());
            }
            known = now;
            if !lines.is_empty() && send.send(lines).await.is_err() {
                return;
            }
            if send.is_closed() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

async fn pod(Extract(state): Extract<Shared>, Path((_, name)): Path<(String, String)>) -> Response {
    let found = all(&lock(&state)).into_iter().find(|pod| pod["metadata"]["name"] == *name);
    match found {
        Some(pod) => axum::Json(pod).into_response(),
        None => status(404, "NotFound", &format!("pods \"{name}\" not found")),
    }
}

async fn log(
    Extract(state): Extract<Shared>,
    Path((_, name)): Path<(String, String)>,
    Query(params): Params,
) -> Response {
    let found = {
        let state = lock(&state);
        state.workloads.values().flat_map(|workload| &workload.pods).find(|pod| pod.name == name).cloned()
    };
    let Some(pod) = found else { return status(404, "NotFound", &format!("pods \"{name}\" not found")) };
    if pod.phase() == "Pending" {
        let message = format!("container \"main\" in pod \"{name}\" is waiting to start: ContainerCreating");
        return status(400, "BadRequest", &message);
    }
    let follow = params.get("follow").is_some_and(|value| value == "true");
    let since = params.get("sinceTime").and_then(|text| text.parse::<Timestamp>().ok());
    let since = since.map_or(i64::MIN, Timestamp::as_second);
    let stall = if follow { lock(&state).stall_logs_after.remove(&name) } else { None };
    let tear = lock(&state).tear_logs_after.remove(&name);
    let tail = params.get("tailLines").and_then(|text| text.parse::<usize>().ok());
    stream(move |send| async move {
        let mut at = tail.map_or(0, |tail| pod.tail(tail));
        loop {
            let Some((mut lines, ended)) = pod.lines(at) else { return };
            if let Some(stall) = stall {
                lines.truncate(stall.saturating_sub(at));
            }
            let mut chunk = Vec::new();
            for (time, line) in lines {
                at += 1;
                if time.as_second() >= since {
                    chunk.extend(format!("{time} ").into_bytes());
                    chunk.extend(line);
                    chunk.push(b'\n');
                }
            }
            chunk.truncate(tear.unwrap_or(usize::MAX));
            if !chunk.is_empty() && send.send(chunk).await.is_err() || tear.is_some() {
                return;
            }
            if (ended && stall.is_none()) || !follow || send.is_closed() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Returns a body that is written while it is read.
fn stream<F>(write: impl FnOnce(mpsc::Sender<Vec<u8>>) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (send, receive) = mpsc::channel(16);
    tokio::spawn(write(send));
    let pieces = futures_util::stream::unfold(receive, |mut receive| async move {
        let piece: Vec<u8> = receive.recv().await?;
        Some((Ok::<Bytes, std::io::Error>(Bytes::from(piece)), receive))
    });
    Response::new(Body::from_stream(pieces))
}
