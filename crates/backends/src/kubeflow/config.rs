//! The target's settings, and those of one job (`[backend.kubeflow]`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use weftrun_core::backend::TargetConfig;
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Result};

use super::kinds::Kind;
use crate::kubernetes::ClusterConfig;
use crate::kubernetes::code::Scripts;
use crate::settings::{keys, merged};

/// The target's settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct KubeflowTarget {
    /// The kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// How long requests are repeated that a busy API server rejects.
    pub retry_seconds: Option<u64>,
    /// Defaults for every job, as they were given.
    #[serde(skip)]
    job: Map<String, Value>,
}

/// Settings of a job under `[backend.kubeflow]`, or of a target for all its jobs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct JobSettings {
    /// The kind of object; by default chosen from what the cluster serves.
    pub kind: Option<Kind>,
    /// A TrainJob's runtime.
    pub runtime: Option<String>,
    /// The runtime's kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
    pub runtime_kind: Option<String>,
    /// The file that contains the runtime, if the cluster is not queried; the SDK has read it into
    /// `runtimes`.
    pub runtime_file: Option<String>,
    /// Runtimes that were passed with the job, as Kubernetes objects.
    pub runtimes: Vec<Value>,
    /// Version of Kubeflow Trainer (`2.0` … `2.3`).
    pub trainer_version: Option<String>,
    /// `None`, `Running` or `All`: which pods are removed when the job has ended.
    pub clean_pod_policy: Option<String>,
    /// Seconds after which an ended job is removed.
    pub ttl_seconds: Option<u64>,
    /// Submit it suspended.
    pub suspend: Option<bool>,
    /// `kueue` (a label names the queue) or `volcano` (the operator makes a PodGroup).
    pub gang: Option<Gang>,
    /// The scheduler of the pods.
    pub scheduler: Option<String>,
    /// The service account of the pods.
    pub service_account: Option<String>,
    pub image_pull_secrets: Vec<String>,
    /// Required node labels.
    pub node_selector: BTreeMap<String, String>,
    /// Nodes that the workers may run on, by their names; all if empty.
    pub node_names: Vec<String>,
    /// Tolerations, as Kubernetes writes them.
    pub tolerations: Vec<Value>,
    /// `inline` (in the command), `configmap`, or `auto`: inline if the script is small or ConfigMaps may not
    /// be created.
    pub scripts: Scripts,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: Option<String>,
    /// Arguments before the program of the `mpirun` that weftrun writes.
    pub mpirun_args: Vec<String>,
    /// Command of the workers of an MPIJob, which wait for `mpirun`, instead of the operator's own.
    pub worker_command: Vec<String>,
    /// Required type of a `host_path` volume on the node, as Kubernetes writes it; `Directory` by default, no
    /// check if empty.
    pub host_path_type: Option<String>,
}

/// The scheduler that starts all pods of a job together, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gang {
    /// Kueue: the label `kueue.x-k8s.io/queue-name` on the job.
    Kueue,
    /// Volcano or scheduler-plugins, depending on the operator's setup: `schedulingPolicy`.
    Volcano,
}

/// Adds to the error of an unknown key what may be meant.
fn unknown(error: Error, key: &str, all: &[&str]) -> Error {
    match weftrun_core::text::suggestion(key, all.iter().copied()) {
        Some(near) => error.hint(near),
        None => error.with("keys", keys::<JobSettings>().join(", ")),
    }
}

impl KubeflowTarget {
    /// Reads the target's settings.
    pub fn of(target: &TargetConfig) -> Result<Self> {
        let all = [keys::<JobSettings>(), keys::<Self>()].concat();
        if let Some(key) = target.settings.keys().find(|key| !all.contains(&key.as_str())) {
            let message = format!("target `{}` has no key `{key}`", target.name);
            return Err(unknown(Error::new(ErrorKind::InvalidConfig, message), key, &all));
        }
        target.settings::<JobSettings>()?;
        let of_jobs = |key: &String| !keys::<Self>().contains(&key.as_str());
        let job = target.settings.clone().into_iter().filter(|(key, _)| of_jobs(key)).collect();
        Ok(Self { job, ..target.settings()? })
    }

    /// Returns the settings that select the cluster.
    pub fn cluster(&self, target: &TargetConfig) -> ClusterConfig {
        ClusterConfig {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            namespace: target.namespace.clone(),
            env: target.env.clone(),
            patience: self.retry_seconds.map(Duration::from_secs),
        }
    }

    /// Returns the target's job settings, overridden by the job's own.
    pub fn for_job(&self, spec: &JobSpec) -> Result<JobSettings> {
        let bad = |error: serde_json::Error| {
            Error::new(ErrorKind::InvalidSpec, format!("[backend.kubeflow]: {error}")).with("job", &spec.name)
        };
        let own = spec.backend.get("kubeflow").cloned().unwrap_or_else(|| Map::new().into());
        let mut own: Map<String, Value> = serde_json::from_value(own).map_err(bad)?;
        serde_json::from_value::<JobSettings>(own.clone().into()).map_err(bad)?;
        let all = keys::<JobSettings>();
        if let Some(key) = own.keys().find(|key| !all.contains(&key.as_str())) {
            let message = format!("[backend.kubeflow] has no key `{key}`");
            return Err(unknown(Error::new(ErrorKind::InvalidSpec, message), key, all));
        }
        // An empty list and `auto` leave the setting of the target as it is.
        own.retain(|key, value| *value != json!([]) && (key != "scripts" || *value != "auto"));
        let all = merged(&self.job, own, &["runtimes", "node-selector", "tolerations"]);
        serde_json::from_value(all.into()).map_err(bad)
    }
}

#[cfg(test)]
mod tests {
    use weftrun_core::spec::Role;

    use super::*;

    #[test]
    fn a_jobs_own_settings_go_over_the_targets() {
        let target = TargetConfig::new("t", "kubeflow", "/nonexistent")
            .with("context", "prod")
            .with("scheduler", "default")
            .with("scripts", "inline")
            .with("node-names", json!(["a"]))
            .with("node-selector", json!({"zone": "1", "pool": "x"}))
            .with("tolerations", json!([{"key": "one"}]));
        let settings = KubeflowTarget::of(&target).unwrap();
        let job = |own: Value| {
            let mut spec = JobSpec::builder("a").role(Role::worker().command(["true"])).build().unwrap();
            spec.backend.insert("kubeflow".to_owned(), own);
            settings.for_job(&spec).unwrap()
        };
        let own = job(json!({"scripts": "auto", "node-names": [], "scheduler": null, "suspend": true,
                             "node-selector": {"pool": "y"}, "tolerations": [{"key": "two"}]}));
        assert_eq!(
            (own.scripts, own.suspend, own.scheduler.as_deref()),
            (Scripts::Inline, Some(true), Some("default"))
        );
        assert_eq!((own.node_names, own.tolerations.len()), (vec!["a".to_owned()], 2));
        let selector: Vec<_> =
            own.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(selector, ["pool=y", "zone=1"]);
        assert_eq!(job(json!({"scheduler": "volcano"})).scheduler.as_deref(), Some("volcano"));
    }
}
