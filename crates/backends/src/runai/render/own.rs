//! The settings of a job file that only apply to Run:ai: `[backend.runai]`.

use serde::Deserialize;
use serde_json::{Map, Value};
use weftrun_core::spec::JobSpec;
use weftrun_core::text::suggestion;
use weftrun_core::{Error, ErrorKind, Result};

use super::Kind;
use crate::runai::version;

/// `[backend.runai]` of a job file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobSettings {
    /// An interactive workspace instead of a training.
    pub workspace: bool,
    /// Name of a template of the project, from 2.23.
    pub template: Option<String>,
    /// Arguments before the program of the `mpirun` that weftrun writes.
    pub mpirun_args: Vec<String>,
    /// Fields of the API's `spec`, under its own names; they override the rest of the job file, and lists are
    /// appended.
    pub spec: Map<String, Value>,
    /// The same for the master or launcher.
    pub master: Map<String, Value>,
}

impl JobSettings {
    /// Reads the settings of a job.
    pub fn of(spec: &JobSpec) -> Result<Self> {
        let Some(settings) = spec.backend.get("runai") else { return Ok(Self::default()) };
        serde_json::from_value(settings.clone()).map_err(|error| {
            Error::new(ErrorKind::InvalidSpec, format!("`[backend.runai]`: {error}")).with("job", &spec.name)
        })
    }
}

/// Fields that belong to the workload and not to one of its pods.
const OF_THE_WORKLOAD: [&str; 8] = [
    "distributedFramework",
    "numWorkers",
    "minReplicas",
    "maxReplicas",
    "slotsPerWorker",
    "sshAuthMountPath",
    "mpiLauncherCreationPolicy",
    "cleanPodPolicy",
];

/// Returns a worker's fields as a separate master has them.
pub fn of_the_pod(spec: &Map<String, Value>) -> Map<String, Value> {
    let mut pod = spec.clone();
    // `backoffLimit` and similar fields are deprecated in the master, and have no effect there.
    pod.retain(|key, _| {
        !OF_THE_WORKLOAD.contains(&key.as_str()) && !matches!(key.as_str(), "backoffLimit" | "priorityClass")
    });
    pod
}

/// Merges the user's fields into weftrun's: objects are merged, lists appended, other values replaced.
pub fn merge(ours: &mut Map<String, Value>, own: &Map<String, Value>) {
    for (key, value) in own {
        match (ours.get_mut(key), value) {
            (Some(Value::Object(ours)), Value::Object(own)) => merge(ours, own),
            (Some(Value::Array(ours)), Value::Array(own)) => ours.extend(own.iter().cloned()),
            (Some(ours), own) => *ours = own.clone(),
            (None, own) => {
                ours.insert(key.clone(), own.clone());
            }
        }
    }
}

/// Returns the error of fields that the API does not have: it would very likely accept the body and ignore
/// them.
pub fn no_such_field(kind: Kind, unknown: &[String]) -> Error {
    let mut error = Error::new(
        ErrorKind::InvalidSpec,
        format!(
            "the API of Run:ai has no field {}",
            unknown.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", ")
        ),
    )
    .with("body", kind.path());
    for field in unknown {
        let (folder, name) = field.rsplit_once('.').unwrap_or(("", field));
        let beside = version::fields(kind.path(), folder);
        error = suggestion(name, beside.iter().copied()).into_iter().fold(error, Error::hint);
    }
    error.hint("fields are those of control planes up to 2.24; what newer ones have is not known here")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn own_fields_win_and_lists_grow() {
        let mut ours =
            json!({"image": "a", "compute": {"cpuCoreRequest": 1}, "tolerations": [{"key": "gpu"}]});
        let own = json!({"image": "b", "compute": {"largeShmRequest": true}, "tolerations": [{"key": "x"}], "tty": true});
        let (Value::Object(map), Value::Object(own)) = (&mut ours, &own) else { unreachable!() };
        merge(map, own);
        let wanted = json!({"image": "b", "compute": {"cpuCoreRequest": 1, "largeShmRequest": true},
                            "tolerations": [{"key": "gpu"}, {"key": "x"}], "tty": true});
        assert_eq!(ours, wanted);
    }
}
