//! What is configured, known and reachable.

use serde::Serialize;
use serde_json::Value;

use super::SchemaName;
use crate::backend::{BackendEntry, Capability, TargetConfig};
use crate::catalogue::InstanceType;
use crate::fabric::ClusterFacts;
use crate::finding::Span;
use crate::request::Origin;

/// `weftrun backends -o json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendsReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// The backends that are linked in.
    pub backends: Vec<BackendShape<'a>>,
}

/// A backend.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendShape<'a> {
    /// Its name, for `-b`.
    pub name: &'a str,
    /// What it talks to.
    pub summary: &'a str,
    /// The crate it is from.
    #[serde(rename = "crate")]
    pub krate: &'a str,
    /// What it can do; null where its default target cannot be set up here.
    pub capability: Option<Capability>,
}

impl<'a> BackendShape<'a> {
    /// Makes the shape of a backend.
    pub fn new(entry: &'a BackendEntry, capability: Option<Capability>) -> Self {
        Self { name: entry.name, summary: entry.summary, krate: entry.krate, capability }
    }
}

/// `weftrun targets -o json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetsReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// The configured places, and each backend's default one.
    pub targets: Vec<TargetShape<'a>>,
}

/// A place jobs go to.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetShape<'a> {
    /// Its name, for `-b`.
    pub name: &'a str,
    /// Its backend.
    pub backend: &'a str,
    /// Its site profile.
    pub profile: Option<&'a str>,
    /// Its Kubernetes namespace.
    pub namespace: Option<&'a str>,
    /// Its Run:ai project.
    pub project: Option<&'a str>,
    /// Whether jobs go there when no `-b` is given.
    pub default: bool,
}

impl<'a> TargetShape<'a> {
    /// Makes the shape of a target.
    pub fn new(target: &'a TargetConfig, default: bool) -> Self {
        Self {
            name: &target.name,
            backend: &target.backend,
            profile: target.profile.as_deref(),
            namespace: target.namespace.as_deref(),
            project: target.project.as_deref(),
            default,
        }
    }
}

/// `weftrun instances -o json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InstancesReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// The instance types that were asked for.
    pub instances: &'a [&'a InstanceType],
}

/// `weftrun config show -o json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// Every value that is set.
    pub settings: Vec<SettingShape<'a>>,
}

/// A value of the configuration.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingShape<'a> {
    /// Its path (`target.prod.backend`).
    pub path: String,
    /// The value; what may be a secret is hidden.
    pub value: Value,
    /// The layer it is from.
    pub origin: &'a Origin,
    /// The place in its file, if it is from one.
    pub span: Option<&'a Span>,
}

/// `weftrun doctor -o json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// Version of weftrun.
    pub weftrun: &'a str,
    /// Name of the target that was asked.
    pub target: &'a str,
    /// Its backend.
    pub backend: &'a str,
    /// What the cluster says of itself.
    pub facts: &'a ClusterFacts,
}
