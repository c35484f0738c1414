//! Names become ids: project, cluster, node pools. What a token may not read is said, and the job can still be
//! submitted with ids from the configuration.

use serde_json::Value;
use weftrun_core::backend::{ClusterFacts, NodeGroup, Queue};
use weftrun_core::spec::did_you_mean;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::client::ControlPlane;
use super::config::Settings;

/// A project, as far as it is known.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its id: a string, even where it looks like a number.
    pub id: String,
    /// Its cluster's id.
    pub cluster: String,
    /// Its namespace, usually `runai-NAME`.
    pub namespace: Option<String>,
}

/// Finds the project of a name, unless the settings say both ids.
pub async fn project(plane: &ControlPlane, settings: &Settings, name: &str) -> Result<Project> {
    if let (Some(id), Some(cluster)) = (&settings.project_id, &settings.cluster_id) {
        return Ok(Project { id: id.clone(), cluster: cluster.clone(), namespace: None });
    }
    const WHAT: &str = "cannot look up the project";
    let query = [("filterBy", format!("name=={name}"))];
    let found =
        plane.pages(WHAT, "/api/v1/org-unit/projects", &query, "projects", None).await.map_err(|error| {
            match error.kind() {
                ErrorKind::Credentials => {
                    error.hint("put `project-id` and `cluster-id` in the target's table")
                }
                _ => error,
            }
        })?;
    let exact = found.iter().find(|project| text(project, "name") == Some(name));
    let Some(project) = exact else { return Err(no_project(plane, name).await) };
    let id = settings.project_id.clone().or_else(|| id_of(project)).ok_or_else(|| shape(WHAT))?;
    let cluster = settings.cluster_id.clone().or_else(|| text(project, "clusterId").map(str::to_owned));
    let namespace = project.pointer("/status/namespace").and_then(Value::as_str).map(str::to_owned);
    Ok(Project { id, cluster: cluster.ok_or_else(|| shape(WHAT))?, namespace })
}

async fn no_project(plane: &ControlPlane, name: &str) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("there is no project `{name}`"));
    let all = plane.pages("cannot list projects", "/api/v1/org-unit/projects", &[], "projects", None).await;
    let all = all.unwrap_or_default();
    let names: Vec<&str> = all.iter().filter_map(|project| text(project, "name")).collect();
    match did_you_mean(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None if names.is_empty() => error.hint("the token sees no project at all"),
        None => error.hint(format!("the token sees {}", names.join(", "))),
    }
}

/// The cluster of an id: its domain, its version.
pub async fn cluster(plane: &ControlPlane, id: &str) -> Result<Value> {
    const WHAT: &str = "cannot look up the cluster";
    let all: Value = plane.get(WHAT, "/api/v1/clusters", &[("verbosity", "metadata".to_owned())]).await?;
    let list = all.as_array().cloned().unwrap_or_default();
    list.into_iter()
        .find(|cluster| text(cluster, "uuid") == Some(id))
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no cluster `{id}`")))
}

/// What the control plane says of itself. What may not be read becomes a note.
pub async fn facts(plane: &ControlPlane, settings: &Settings, name: &str) -> Result<ClusterFacts> {
    let project = project(plane, settings, name).await?;
    let mut facts = ClusterFacts::default();
    facts.online = true;
    facts.ids.insert("project-id".into(), project.id.clone());
    facts.ids.insert("cluster-id".into(), project.cluster.clone());
    if let Some(namespace) = project.namespace {
        facts.extra.insert("namespace".into(), namespace.into());
    }
    match cluster(plane, &project.cluster).await {
        Ok(cluster) => {
            facts.version = settings.version.clone().or_else(|| text(&cluster, "version").map(str::to_owned));
            if let Some(domain) = text(&cluster, "domain") {
                facts.extra.insert("domain".into(), domain.into());
            }
        }
        Err(error) => {
            facts.version.clone_from(&settings.version);
            facts.notes.push(hidden(
                "clusters",
                &error,
                "its version and domain are not known: set `version` in the target's table",
            ));
        }
    }
    let query = [("filterBy", format!("clusterId=={}", project.cluster))];
    match plane.pages("cannot list node pools", "/api/v1/node-pools", &query, "nodepools", None).await {
        Ok(pools) => facts.queues = pools.iter().filter_map(pool).collect(),
        Err(error) => facts.notes.push(hidden("node pools", &error, "names of node pools are not checked")),
    }
    let query = [("clusterId", project.cluster.clone())];
    if let Ok(nodes) = plane.pages("cannot list nodes", "/api/v1/nodes", &query, "nodes", None).await {
        facts.nodes = groups(&nodes);
    }
    if let Ok(list) = plane.get::<Value>("cannot list priorities", "/api/v1/workload-priorities", &[]).await {
        let names = list.get("priorities").and_then(Value::as_array).into_iter().flatten();
        facts.priorities = names.filter_map(|priority| text(priority, "name").map(str::to_owned)).collect();
    }
    Ok(facts)
}

fn hidden(what: &str, error: &Error, follows: &str) -> Finding {
    Finding::info("RUNAI-HIDDEN", format!("{what} could not be read ({}); {follows}", error.message()))
}

fn pool(pool: &Value) -> Option<Queue> {
    let mut queue = Queue::default();
    text(pool, "name")?.clone_into(&mut queue.name);
    queue.default = queue.name == "default";
    queue.up = true;
    Some(queue)
}

fn groups(nodes: &[Value]) -> Vec<NodeGroup> {
    let mut groups: Vec<NodeGroup> = Vec::new();
    for node in nodes {
        let product = node.pointer("/gpuInfo/gpuType").and_then(Value::as_str).map(str::to_owned);
        let gpus = node.pointer("/gpuInfo/gpuCount").and_then(Value::as_u64).unwrap_or(0);
        let mut group = NodeGroup::default();
        group.gpu_product = product;
        group.allocatable.insert("nvidia.com/gpu".into(), gpus.to_string());
        match groups
            .iter_mut()
            .find(|g| g.gpu_product == group.gpu_product && g.allocatable == group.allocatable)
        {
            Some(known) => known.count += 1,
            None => {
                group.count = 1;
                groups.push(group);
            }
        }
    }
    groups
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Ids are strings in the document, and numbers in some answers.
fn id_of(value: &Value) -> Option<String> {
    match value.get("id")? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn shape(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("{what}: the answer has no id"))
}
