//! Resources that are looked up by name before a submit: node pools, nodes, priorities, templates, data
//! sources.

use std::collections::HashMap;

use axum::Router;
use axum::extract::{Query, State as Extract};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::routes::{MADE, answer, page, refuse};
use super::{CLUSTER_ID, PROJECT_ID, Shared, State, lock};

/// Id of the only template.
pub const TEMPLATE_ID: &str = "550e8400-e29b-41d4-a716-446655440000";

/// Returns the operations.
pub fn router() -> Router<Shared> {
    Router::new()
        .route("/api/v1/node-pools", get(node_pools))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/workload-priorities", get(priorities))
        .route("/api/v1/workload-templates/distributed", get(templates))
        .route("/api/v1/asset/datasource/pvc", get(claims))
        .route("/api/v1/asset/credentials", get(credentials))
}

type Params = Query<HashMap<String, String>>;

/// Returns a list that a plain researcher may not read, or that does not exist before a version.
fn list(
    state: &Shared,
    params: &HashMap<String, String>,
    (key, entries): (&str, Vec<Value>),
    (since, hidden): (u32, bool),
) -> Response {
    let state: &State = &lock(state);
    if state.minor < since {
        return refuse(404, "not found");
    }
    if hidden && state.researcher {
        return refuse(403, "Forbidden");
    }
    answer(200, page(key, entries, params, state.page))
}

async fn node_pools(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let pool = |(id, name): (&str, &str)| {
        json!({"id": id, "name": name, "labelKey": "run.ai/pool", "labelValue": name, "clusterId": CLUSTER_ID,
               "tenantId": 1001, "clusterName": "gpu", "createdBy": "admin@example.test", "createdAt": MADE,
               "updatedBy": "admin@example.test", "updatedAt": MADE, "isDefault": name == "default"})
    };
    let pools = [("1", "default"), ("2", "h100")].map(pool).to_vec();
    list(&state, &params, ("nodepools", pools), (18, true))
}

async fn nodes(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let node = |name: &str| {
        json!({"name": name, "id": name, "clusterUuid": CLUSTER_ID, "status": "Ready", "nodePool": "h100",
               "createdAt": MADE, "updatedAt": MADE,
               "gpuInfo": {"gpuType": "NVIDIA-H100-80GB-HBM3", "gpuCount": 8, "nvLinkDomainUid": null}})
    };
    let nodes = ["gpu-1", "gpu-2"].map(node).to_vec();
    list(&state, &params, ("nodes", nodes), (18, true))
}

async fn priorities(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let known = [("1", "very-low", 25), ("2", "low", 40), ("4", "medium", 80), ("6", "high", 125)];
    let known = known.map(|(id, name, value)| json!({"id": id, "name": name, "value": value})).to_vec();
    list(&state, &params, ("priorities", known), (22, false))
}

async fn templates(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let template = json!({"meta": {"id": TEMPLATE_ID, "name": "h100-roce", "workloadType": "distributed",
                                   "scopeType": "project", "scopeId": PROJECT_ID, "createdAt": MADE}});
    list(&state, &params, ("entries", vec![template]), (23, false))
}

async fn claims(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let entry = json!({"meta": {"id": "a1", "name": "datasets", "kind": "pvc", "scope": "project"},
                       "spec": {"claimName": "datasets-nlp-8f2c", "existingPvc": true, "path": "/data"}});
    list(&state, &params, ("entries", vec![entry]), (18, false))
}

async fn credentials(Extract(state): Extract<Shared>, Query(params): Params) -> Response {
    let entry = json!({"meta": {"id": "c1", "name": "wandb", "kind": "genericSecret", "scope": "project"},
                       "spec": {"genericSecret": {"existingSecretName": "genericsecret-wandb", "keyId": 1}}});
    list(&state, &params, ("entries", vec![entry]), (18, false))
}
