//! Resolves names to ids: project, cluster, template; and checks names that need no id: node pools,
//! priorities.

use serde_json::Value;
use weftrun_core::text::{listed, suggestion};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::client::ControlPlane;
use super::config::RunaiTarget;
use super::render::Kind;

/// The known properties of a project.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its id: a string, even if it looks like a number.
    pub id: String,
    /// Its cluster's id.
    pub cluster: String,
    /// Its namespace, usually `runai-NAME`.
    pub namespace: Option<String>,
}

/// Finds the project of a name, unless the settings contain both ids.
///
/// `usual` is the cluster if neither the project nor the settings name one.
pub async fn project(
    plane: &ControlPlane,
    settings: &RunaiTarget,
    name: &str,
    usual: Option<String>,
) -> Result<Project> {
    const WHAT: &str = "cannot look up the project";
    if let (Some(id), Some(cluster)) = (&settings.project_id, &settings.cluster_id) {
        return Ok(Project { id: id.clone(), cluster: cluster.clone(), namespace: None });
    }
    let query = [("filterBy", format!("name=={name}"))];
    let found =
        plane.pages(WHAT, "/api/v1/org-unit/projects", &query, "projects", None).await.map_err(|error| {
            match error.kind() {
                // A valid token may lack the right to list projects.
                ErrorKind::Credentials if error.hints().is_empty() => {
                    error.hint("put `project-id` and `cluster-id` in the target's table")
                }
                _ => error,
            }
        })?;
    // Some versions search by substring, so names are compared here.
    let exact = found.iter().find(|project| text(project, "name") == Some(name));
    let Some(project) = exact else { return Err(no_project(plane, name).await) };
    let id = settings.project_id.clone().or_else(|| id_of(project)).ok_or_else(|| shape(WHAT))?;
    let cluster =
        settings.cluster_id.clone().or_else(|| text(project, "clusterId").map(str::to_owned)).or(usual);
    let namespace = project.pointer("/status/namespace").and_then(Value::as_str);
    let namespace = namespace.or_else(|| text(project, "requestedNamespace")).map(str::to_owned);
    Ok(Project { id, cluster: cluster.ok_or_else(|| shape(WHAT))?, namespace })
}

async fn no_project(plane: &ControlPlane, name: &str) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("there is no project `{name}`"));
    let all = plane.pages("cannot list projects", "/api/v1/org-unit/projects", &[], "projects", None).await;
    let names = names(&all.unwrap_or_default(), "/name");
    near(error, name, &names, "the token sees no project at all")
}

/// Returns the cluster of an id, with its domain and version.
pub async fn cluster(plane: &ControlPlane, id: &str) -> Result<Value> {
    const WHAT: &str = "cannot look up the cluster";
    let all = plane.get(WHAT, "/api/v1/clusters", &[("verbosity", "metadata".to_owned())]).await?;
    // The document specifies a bare array; a client of the vendor's reads `clusters`.
    let list = all.get("clusters").unwrap_or(&all).as_array().cloned().ok_or_else(|| shape(WHAT))?;
    let found =
        list.iter().find(|cluster| text(cluster, "uuid") == Some(id) || text(cluster, "name") == Some(id));
    found.cloned().ok_or_else(|| {
        let error = Error::new(ErrorKind::NotFound, format!("there is no cluster `{id}`"));
        near(error, id, &names(&list, "/name"), "the token sees no cluster at all")
    })
}

/// Returns the names of the node pools of a cluster.
pub async fn node_pools(plane: &ControlPlane, cluster: &str) -> Result<Vec<String>> {
    let query = [("filterBy", format!("clusterId=={cluster}"))];
    let pools =
        plane.pages("cannot list node pools", "/api/v1/node-pools", &query, "nodepools", None).await?;
    Ok(names(&pools, "/name"))
}

/// Returns the names of the priorities; those of every version if the list is not served (before 2.22).
pub async fn priorities(plane: &ControlPlane) -> Result<Vec<String>> {
    const WHAT: &str = "cannot list priorities";
    match plane.entries(WHAT, "/api/v1/workload-priorities", &[], "priorities").await {
        Ok(list) => Ok(names(&list, "/name")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let known = [
                "build",
                "interactive-preemptible",
                "train",
                "very-low",
                "low",
                "medium-low",
                "medium",
                "medium-high",
                "high",
                "very-high",
            ];
            Ok(known.map(str::to_owned).to_vec())
        }
        Err(error) => Err(error),
    }
}

/// Returns the id of a template; those of distributed workloads have a separate list.
pub async fn template(plane: &ControlPlane, kind: Kind, name: &str) -> Result<String> {
    const WHAT: &str = "cannot look up the template";
    let path = match kind {
        Kind::Distributed => "/api/v1/workload-templates/distributed",
        _ => "/api/v1/workload-templates",
    };
    let all = plane.pages(WHAT, path, &[], "entries", None).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => error.hint("templates need control plane 2.23 or newer"),
        _ => error,
    })?;
    let named = |template: &&Value| template.pointer("/meta/name").and_then(Value::as_str) == Some(name);
    match all.iter().find(named).and_then(|template| template.get("meta")).and_then(id_of) {
        Some(id) => Ok(id),
        None => {
            let error = Error::new(ErrorKind::NotFound, format!("there is no template `{name}`"));
            Err(near(error, name, &names(&all, "/meta/name"), "the token sees no template at all"))
        }
    }
}

/// A type of asset, with the place of its Kubernetes name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    /// A volume claim.
    Claim,
    /// A secret.
    Credentials,
}

/// Returns the assets of a project: the name in the UI, which users confuse with the other, and the name in
/// Kubernetes.
pub async fn assets(plane: &ControlPlane, project: &str, asset: Asset) -> Result<Vec<(String, String)>> {
    let (path, field) = match asset {
        Asset::Claim => ("/api/v1/asset/datasource/pvc", "/spec/claimName"),
        Asset::Credentials => ("/api/v1/asset/credentials", "/spec/genericSecret/existingSecretName"),
    };
    let query = [("projectId", project.to_owned())];
    let all = plane.entries("cannot look up an asset", path, &query, "entries").await?;
    let text = |entry: &Value, pointer: &str| Some(entry.pointer(pointer)?.as_str()?.to_owned());
    Ok(all.iter().filter_map(|entry| Some((text(entry, "/meta/name")?, text(entry, field)?))).collect())
}

/// Returns the finding of a name that is not on the server; none if it is.
pub fn unknown(code: &str, what: &str, name: &str, known: &[String]) -> Option<Finding> {
    if known.iter().any(|known| known == name) {
        return None;
    }
    let near = suggestion(name, known.iter().map(String::as_str));
    let fix = near.unwrap_or_else(|| format!("choose one of {}", shown(known)));
    Some(Finding::error(code, format!("there is no {what} `{name}`")).fix(fix))
}

fn near(error: Error, name: &str, known: &[String], none: &str) -> Error {
    match suggestion(name, known.iter().map(String::as_str)) {
        Some(near) => error.hint(near),
        None if known.is_empty() => error.hint(none),
        None => error.hint(format!("the token sees {}", shown(known))),
    }
}

fn shown(names: &[String]) -> String {
    const SHOWN: usize = 20;
    weftrun_core::log::clean_text(&listed(names, SHOWN)).into_owned()
}

fn names(list: &[Value], pointer: &str) -> Vec<String> {
    list.iter().filter_map(|entry| entry.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Returns an id: a string in the document, and a number in some answers.
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
