//! The control plane's operations.

use std::collections::HashMap;

use axum::Router;
use axum::extract::{Path, Query, State as Extract};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::{CLUSTER_ID, PROJECT, PROJECT_ID, Shared, State, Workload, lock};

type Params = Query<HashMap<String, String>>;

/// Returns the operations of the control plane.
pub fn router() -> Router<Shared> {
    Router::new()
        .route("/api/v1/org-unit/projects", get(projects))
        .route("/api/v1/org-unit/projects/{id}", get(project))
        .route("/api/v1/clusters", get(clusters))
        .route("/api/v1/workloads", get(list))
        .route("/api/v1/workloads/{kind}", post(create))
        .route("/api/v1/workloads/{kind}/{id}", get(read).delete(delete))
        .route("/api/v1/workloads/{kind}/{id}/suspend", post(suspend))
        .route("/api/v1/workloads/{kind}/{id}/resume", post(resume))
}

/// Returns an error of the control plane.
pub fn refuse(code: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(json!({"code": code, "message": message}))).into_response()
}

/// Returns an answer of the control plane.
pub fn answer(code: u16, body: Value) -> Response {
    (StatusCode::from_u16(code).unwrap_or(StatusCode::OK), axum::Json(body)).into_response()
}

/// Creation time of everything that exists from the start.
pub const MADE: &str = "2026-01-01T03:49:52.531Z";

async fn projects(Query(params): Params) -> Response {
    let project = json!({"id": PROJECT_ID, "name": PROJECT, "clusterId": CLUSTER_ID, "parentId": "1",
                         "status": {"namespace": format!("runai-{PROJECT}"), "phase": "Ready"}});
    // A project with the same prefix: a search by substring finds both.
    let other =
        json!({"id": "4500013", "name": format!("{PROJECT}-old"), "clusterId": CLUSTER_ID, "parentId": "1"});
    let wanted = params.get("filterBy").and_then(|filter| filter.strip_prefix("name=="));
    let shown: Vec<Value> =
        [project, other].into_iter().filter(|p| wanted.is_none_or(|name| p["name"] == name)).collect();
    answer(200, json!({"projects": shown}))
}

async fn project(Path(id): Path<String>) -> Response {
    if id != PROJECT_ID {
        return refuse(404, "project not found");
    }
    let pool = json!({"nodePool": {"id": "1", "name": "h100"}, "gpu": {"deserved": 8, "limit": 16}});
    let used = json!({"nodePoolName": "h100", "allocated": {"gpu": 2}});
    answer(
        200,
        json!({"id": PROJECT_ID, "name": PROJECT, "clusterId": CLUSTER_ID, "totalResources": {"gpuQuota": 8},
               "resources": [pool], "status": {"namespace": format!("runai-{PROJECT}"), "phase": "Ready",
               "quotaStatus": {"allocated": {"gpu": 2}}, "nodePoolQuotaStatuses": [used]}}),
    )
}

async fn clusters(Extract(state): Extract<Shared>) -> Response {
    let state = lock(&state);
    if state.researcher {
        return refuse(403, "Forbidden");
    }
    answer(
        200,
        json!([{"uuid": CLUSTER_ID, "name": "gpu", "tenantId": 1000, "createdAt": "2026-01-01T00:00:00Z",
                        "domain": state.url, "version": format!("2.{}.7", state.minor),
                        "status": {"state": "Connected"}}]),
    )
}

async fn create(
    Extract(state): Extract<Shared>,
    Path(kind): Path<String>,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    let mut state = lock(&state);
    if !matches!(kind.as_str(), "distributed" | "trainings" | "workspaces") {
        return refuse(404, "not found");
    }
    if let Some(wrong) = mistake(&body) {
        return refuse(400, &wrong);
    }
    if let Some((field, details)) = &state.policy {
        let issues = json!([{"field": field, "details": details, "rule": "max"}]);
        return answer(400, json!({"code": 400, "message": "policy", "complianceIssues": issues}));
    }
    let name = body["name"].as_str().unwrap_or_default();
    if state.workloads.values().any(|workload| !workload.deleted && workload.name() == name) {
        return refuse(state.name_taken, "a workload of this name exists in the project");
    }
    let mut workload = Workload::new(&kind, body);
    workload.observe();
    let told = workload.typed();
    state.workloads.insert(workload.id.clone(), workload);
    answer(if state.minor < 21 { 200 } else { 202 }, told)
}

/// Returns the error that every version reports for a create body.
fn mistake(body: &Value) -> Option<String> {
    let word = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
    for (key, wanted) in [("projectId", PROJECT_ID), ("clusterId", CLUSTER_ID)] {
        if word(key) != wanted {
            return Some(format!("{key} is not one of this tenant"));
        }
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if word("name").is_empty() || !word("name").chars().all(plain) {
        return Some("name is not RFC 1123".to_owned());
    }
    let template = body.get("templateId").is_some_and(Value::is_string);
    if !template && body.pointer("/spec/image").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Some("spec.image is required".to_owned());
    }
    let both =
        body.get("masterSpec").is_some_and(|v| !v.is_null()) && body["masterSpecSameAsWorker"] == json!(true);
    both.then(|| "masterSpec and masterSpecSameAsWorker exclude one another".to_owned())
}

async fn read(
    Extract(state): Extract<Shared>,
    Path((kind, id)): Path<(String, String)>,
    Query(params): Params,
) -> Response {
    let mut state = lock(&state);
    // Paths of the form `/workloads/{id}/…` look like a typed read.
    if matches!(id.as_str(), "pods" | "events" | "history") {
        return of_workload(&mut state, &kind, &id, &params);
    }
    if let Some(workload) = state.workloads.get_mut(&id) {
        workload.observe();
    }
    match state.workloads.get(&id).filter(|workload| workload.kind == kind && !workload.deleted) {
        Some(workload) => answer(200, workload.typed()),
        None => refuse(404, "workload not found"),
    }
}

fn of_workload(state: &mut State, id: &str, what: &str, params: &HashMap<String, String>) -> Response {
    let longest = state.page;
    let Some(workload) = state.workloads.get_mut(id).filter(|workload| !workload.deleted) else {
        return refuse(404, "workload not found");
    };
    workload.observe();
    match what {
        "pods" => answer(200, page("pods", workload.listed_pods(), params, longest)),
        "history" => answer(200, page("records", workload.records(), params, longest)),
        _ => {
            let event = json!({"createdAt": workload.created.to_string(), "type": "Warning", "clusterId": CLUSTER_ID,
                               "reason": "Unschedulable", "message": "0/2 nodes are available: insufficient nvidia.com/gpu"});
            let events = if workload.phase() == "Pending" { vec![event] } else { Vec::new() };
            answer(200, page("events", events, params, longest))
        }
    }
}

async fn list(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let state = lock(&state);
    let filter = params.get("filterBy").cloned().unwrap_or_default();
    let conditions: Vec<(&str, &str)> = filter.split(',').filter_map(|part| part.split_once("==")).collect();
    let mut shown: Vec<&Workload> = state.workloads.values().filter(|workload| !workload.deleted).collect();
    shown.sort_by_key(|workload| workload.created);
    if params.get("sortOrder").map(String::as_str) == Some("desc") {
        shown.reverse();
    }
    shown.retain(|workload| conditions.iter().all(|(field, value)| workload.has(field, value)));
    let mut body = page("workloads", vec![Value::Null; shown.len()], &params, state.page);
    let offset = params.get("offset").and_then(|value| value.parse::<usize>().ok()).unwrap_or(0);
    if let Some(Value::Array(entries)) = body.get_mut("workloads") {
        for (entry, workload) in entries.iter_mut().zip(shown.into_iter().skip(offset)) {
            *entry = workload.listed();
        }
    }
    answer(200, body)
}

/// Returns one page: `next` is the offset of the next page, and absent on the last.
pub fn page(key: &str, all: Vec<Value>, params: &HashMap<String, String>, longest: usize) -> Value {
    let number = |name: &str| params.get(name).and_then(|value| value.parse::<usize>().ok());
    let offset = number("offset").unwrap_or(0);
    let limit = number("limit").unwrap_or(50).min(longest);
    let total = all.len();
    let shown: Vec<Value> = all.into_iter().skip(offset).take(limit).collect();
    let end = offset + shown.len();
    let mut body = json!({ key: shown });
    if end < total {
        body["next"] = json!(end);
    }
    body
}

async fn delete(Extract(state): Extract<Shared>, Path((kind, id)): Path<(String, String)>) -> Response {
    let mut state = lock(&state);
    let minor = state.minor;
    match state.workloads.get_mut(&id).filter(|workload| workload.kind == kind && !workload.deleted) {
        None => refuse(404, "workload not found"),
        Some(workload) => {
            workload.kill();
            workload.deleted = true;
            if minor < 21 {
                StatusCode::NO_CONTENT.into_response()
            } else {
                answer(202, json!({"code": 202, "message": "ok"}))
            }
        }
    }
}

async fn suspend(state: Extract<Shared>, path: Path<(String, String)>) -> Response {
    stop(state, path, true)
}

async fn resume(state: Extract<Shared>, path: Path<(String, String)>) -> Response {
    stop(state, path, false)
}

#[allow(clippy::needless_pass_by_value, reason = "axum hands its extractors over by value")]
fn stop(Extract(state): Extract<Shared>, Path((kind, id)): Path<(String, String)>, stop: bool) -> Response {
    let mut state = lock(&state);
    if kind == "distributed" && state.minor < 20 {
        return refuse(404, "not found");
    }
    match state.workloads.get_mut(&id).filter(|workload| workload.kind == kind && !workload.deleted) {
        None => refuse(404, "workload not found"),
        Some(workload) => {
            workload.observe();
            workload.stopped = stop;
            if stop {
                workload.kill();
            } else {
                workload.start();
            }
            workload.observe();
            answer(202, json!({"code": 202, "message": "ok"}))
        }
    }
}
