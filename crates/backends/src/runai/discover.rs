//! Facts from the control plane. What the user may not read becomes a note.

use serde_json::Value;
use weftrun_core::backend::{ClusterFacts, NodeGroup, Queue, Scope};
use weftrun_core::{Error, Finding, Result};

use super::client::ControlPlane;
use super::resolve::{self, Project, text};
use super::version::{NEWEST, Version};
use super::{Shared, doctor};

/// Returns the facts that a plan needs (the project's ids and the version); with [`Scope::thorough`], all
/// available ones.
pub async fn facts(shared: &Shared, scope: &Scope) -> Result<ClusterFacts> {
    if scope.thorough {
        return doctor::facts(shared, scope.private_access).await;
    }
    let mut facts = ClusterFacts::default();
    of_project(shared, &mut facts).await?;
    Ok(facts)
}

/// Fills in the project's ids, its cluster's domain and the version.
pub async fn of_project(shared: &Shared, facts: &mut ClusterFacts) -> Result<Project> {
    let project = shared.project().await?;
    let plane = shared.plane().await?;
    let settings = &shared.settings;
    facts.online = true;
    facts.ids.insert("project-id".into(), project.id.clone());
    facts.ids.insert("cluster-id".into(), project.cluster.clone());
    if let Some(namespace) = &project.namespace {
        facts.extra.insert("namespace".into(), namespace.clone().into());
    }
    facts.version.clone_from(&settings.version);
    if facts.version.is_none() {
        match resolve::cluster(plane, &project.cluster).await {
            Ok(cluster) => {
                facts.version = text(&cluster, "version").map(str::to_owned);
                if let Some(domain) = text(&cluster, "domain") {
                    facts.extra.insert("domain".into(), domain.into());
                }
            }
            Err(error) => facts.notes.push(hidden(
                "clusters",
                &error,
                "the version is not known, and every field is sent: set `version` in the target's table",
            )),
        }
    }
    facts.notes.extend(facts.version.as_deref().and_then(of_version));
    Ok(project.clone())
}

/// Returns the finding about a version, if any.
fn of_version(text: &str) -> Option<Finding> {
    let note = match Version::parse(text) {
        Some(version) if version > NEWEST => Finding::info(
            "RUNAI-VERSION",
            format!(
                "control plane {version} is newer than what this was written from ({NEWEST}): its new fields are not known here"
            ),
        ),
        Some(_) => return None,
        None => Finding::info(
            "RUNAI-VERSION",
            format!("`{text}` is not a version that can be read, so every field is sent"),
        ),
    };
    Some(note.fix("set `version` in the target's table if it was read wrong"))
}

/// Fills in node pools, nodes and priorities.
pub async fn of_cluster(plane: &ControlPlane, project: &Project, facts: &mut ClusterFacts) {
    match resolve::node_pools(plane, &project.cluster).await {
        Ok(names) => facts.queues = names.into_iter().map(pool).collect(),
        Err(error) => facts.notes.push(hidden("node pools", &error, "their names are not checked")),
    }
    let query = [("filterBy", format!("clusterUuid=={}", project.cluster))];
    match plane.pages("cannot list nodes", "/api/v1/nodes", &query, "nodes", None).await {
        Ok(nodes) => facts.nodes = groups(&nodes),
        Err(error) => {
            facts.notes.push(hidden("nodes", &error, "what they have comes from the job and the profile"));
        }
    }
    match resolve::priorities(plane).await {
        Ok(names) => facts.priorities = names,
        Err(error) => facts.notes.push(hidden("priorities", &error, "their names are not checked")),
    }
}

pub(super) fn hidden(what: &str, error: &Error, follows: &str) -> Finding {
    Finding::info("RUNAI-HIDDEN", format!("{what} could not be read ({}); {follows}", error.message()))
}

fn pool(name: String) -> Queue {
    let mut queue = Queue::default();
    queue.default = name == "default";
    queue.up = true;
    queue.name = name;
    queue
}

pub(super) fn groups(nodes: &[Value]) -> Vec<NodeGroup> {
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
