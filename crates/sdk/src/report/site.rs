//! The configuration, and the known and reachable places.

use serde_json::Value;

use weftrun_core::advisories::Advisory;
use weftrun_core::backend::{BackendEntry, Capability, TargetConfig};
use weftrun_core::catalogue::{Bandwidth, InstanceType};
use weftrun_core::fabric::{ClusterFacts, Profile};
use weftrun_core::finding::Span;
use weftrun_core::request::{Fabric, Origin};

report! {
    /// `weftrun backends -o json`.
    pub struct BackendsReport<'a> {
        /// The backends that are linked in.
        pub backends: Vec<BackendShape<'a>>,
    }

    /// `weftrun targets -o json`.
    pub struct TargetsReport<'a> {
        /// The configured places, and each backend's default one.
        pub targets: Vec<TargetShape<'a>>,
        /// What further targets could be made of, as this machine shows it.
        pub found: Vec<FoundTargetShape<'a>>,
    }

    /// `weftrun instances -o json`.
    pub struct InstancesReport<'a> {
        /// The requested instance types.
        pub instances: &'a [&'a InstanceType],
        /// Published bus bandwidths of the one type that was named.
        pub bandwidth: &'a [&'a Bandwidth],
    }

    /// `weftrun advisories -o json`.
    pub struct AdvisoriesReport<'a> {
        /// The requested advisories.
        pub advisories: &'a [Advisory],
    }

    /// `weftrun profiles -o json`.
    pub struct ProfilesReport<'a> {
        /// The requested profiles.
        pub profiles: Vec<ProfileShape<'a>>,
    }

    /// `weftrun config show -o json`.
    pub struct ConfigReport<'a> {
        /// Every value that is set.
        pub settings: Vec<SettingShape<'a>>,
    }

    /// `weftrun doctor -o json`.
    pub struct DoctorReport<'a> {
        /// Version of weftrun.
        pub weftrun: &'a str,
        /// Name of the target that was queried.
        pub target: &'a str,
        /// Its backend.
        pub backend: &'a str,
        /// What the cluster reports about itself.
        pub facts: &'a ClusterFacts,
    }
}

weftrun_core::shapes! {
    /// A backend.
    pub struct BackendShape<'a> {
        /// Its name, for `-b`.
        pub name: &'a str,
        /// What it connects to.
        pub summary: &'a str,
        /// The crate it is from.
        #[serde(rename = "crate")]
        pub krate: &'a str,
        /// What it can do; null where its default target cannot be set up here.
        pub capability: Option<Capability>,
    }

    /// A place jobs go to.
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

    /// A target that is not configured; `weftrun config add NAME` adds it.
    pub struct FoundTargetShape<'a> {
        /// The name that it would have.
        pub name: &'a str,
        /// Its backend.
        pub backend: &'a str,
        /// What was found, and where.
        pub sign: &'a str,
    }

    /// A profile.
    pub struct ProfileShape<'a> {
        /// Its name, for `--profile`.
        pub name: &'a str,
        /// What it is for.
        pub summary: &'a str,
        /// The fabric that `auto` means with it.
        pub fabric: Fabric,
        /// Whether it was made from documents and never ran on the real cloud.
        pub untried: bool,
        /// Its values.
        pub values: Vec<ProfileValue<'a>>,
    }

    /// A value of a profile.
    pub struct ProfileValue<'a> {
        /// Its key, as in a config file (`roce.devices`).
        pub key: String,
        /// The value.
        pub value: String,
        /// The source of the value, if the profile has one.
        pub source: Option<&'a str>,
    }

    /// A value of the configuration.
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
}

impl<'a> BackendShape<'a> {
    /// Makes the shape of a backend.
    pub fn new(entry: &'a BackendEntry, capability: Option<Capability>) -> Self {
        Self { name: entry.name, summary: entry.summary, krate: entry.krate, capability }
    }
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

impl<'a> FoundTargetShape<'a> {
    /// Makes the shape of a found target.
    pub fn new(name: &'a str, backend: &'a str, sign: &'a str) -> Self {
        Self { name, backend, sign }
    }
}

impl<'a> ProfileShape<'a> {
    /// Makes the shape of a profile.
    pub fn new(profile: &'a Profile) -> Self {
        let mut values = Vec::new();
        let data = serde_json::to_value(profile).unwrap_or_default();
        for (key, value) in data.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "name" | "summary" | "fabric" | "sources" | "untried") {
                leaves(profile, key.clone(), value, &mut values);
            }
        }
        let Profile { name, summary, fabric, untried, .. } = profile;
        Self { name, summary, fabric: *fabric, untried: *untried, values }
    }
}

/// Collects the values below a key; unset ones are left out.
fn leaves<'a>(profile: &'a Profile, key: String, value: &Value, found: &mut Vec<ProfileValue<'a>>) {
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Object(map) => {
            map.iter().for_each(|(step, value)| leaves(profile, format!("{key}.{step}"), value, found));
        }
        Value::Array(items) if items.is_empty() => {}
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // Keys of weftrun itself (`accelerator`, `webhook`) are no values of the site.
            let of_site = key.contains('.') || profile.sources.contains_key(&key);
            let source = profile.source_of(&key).filter(|_| of_site);
            found.push(ProfileValue { key, value: text, source });
        }
    }
}

impl<'a> SettingShape<'a> {
    /// Makes the shape of a setting.
    pub fn new(path: String, value: Value, origin: &'a Origin, span: Option<&'a Span>) -> Self {
        Self { path, value, origin, span }
    }
}
