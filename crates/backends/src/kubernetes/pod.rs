//! The used fields of a pod. A server may omit any of them, so parsing cannot fail.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::error::one_line;

/// The used fields of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Uid; a pod with another uid is another pod, even with the same name.
    pub uid: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    /// `Evicted`, `NodeLost`, `Preempting`, …
    pub reason: String,
    /// The message for the reason.
    pub message: String,
    /// Its node.
    pub node: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// Why the scheduler did not place it, if so.
    pub unschedulable: Option<String>,
    /// Whether its containers are ready.
    pub ready: bool,
    /// Init containers, then the others, in the order of the spec.
    pub containers: Vec<ContainerState>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// GPUs that its containers hold.
    pub gpus: u64,
    /// The templates of its resource claims.
    pub claim_templates: Vec<String>,
    /// Its priority, with the name of the class that gives it.
    pub priority: String,
    /// What took it from the job, if something did.
    pub disruption: Option<Disruption>,
}

/// What took a pod from its job: the condition `DisruptionTarget`, or an Event that outlives the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disruption {
    /// `PreemptionByScheduler`, `EvictionByEvictionAPI`, … (the condition's reason), or [`Disruption::DELETED`].
    pub reason: String,
    /// The message for it.
    pub message: String,
    /// The pod that took its place, where that is known: a uid until its name has been read.
    pub by: Option<String>,
}

impl Disruption {
    /// Reason of a pod that ran when it was deleted, of which nothing says who did it.
    pub const DELETED: &str = "Deleted";
    /// Reason of a pod that the scheduler removed for one of a higher priority.
    pub const PREEMPTED: &str = "PreemptionByScheduler";
    /// Reason of a pod that was removed from a node with a taint that it does not tolerate.
    pub const TAINTED: &str = "DeletionByTaintManager";
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerState {
    /// Name.
    pub name: String,
    /// Whether it is an init container.
    pub init: bool,
    /// Number of restarts.
    pub restarts: u32,
    /// Id of the present one; another id means another log.
    pub id: String,
    /// Its state.
    pub state: State,
    /// How the previous one ended.
    pub last: Option<Exit>,
}

/// The state of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// It waits.
    Waiting {
        /// `PodInitializing`, `ImagePullBackOff`, `CrashLoopBackOff`, …
        reason: String,
        /// The message for it.
        message: String,
    },
    /// It runs.
    Running,
    /// It ended.
    Terminated(Exit),
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exit {
    /// Exit code; 128 + the signal for a signal.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, …
    pub reason: String,
    /// Its termination message.
    pub message: String,
    /// Its id.
    pub id: String,
    /// When it ended.
    pub at: Option<Timestamp>,
}

/// An Event object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEvent {
    /// Uid of the Event.
    pub uid: String,
    /// The object it is about: kind, name, uid.
    pub about: (String, String, String),
    /// `Normal` or `Warning`.
    pub warning: bool,
    /// `FailedScheduling`, …
    pub reason: String,
    /// Its text, on one line.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
    /// Last occurrence.
    pub time: Option<Timestamp>,
}

/// Reason of an end that was not observed (k8s.io/kubernetes pkg/kubelet/kubelet_pods.go, read in the
/// cluster's answers 2026-11-21).
const UNKNOWN: &str = "ContainerStatusUnknown";

/// Returns the GPUs that the containers of a pod request in total (`nvidia.com/gpu`, `amd.com/gpu`).
fn gpus(spec: &Value) -> u64 {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let limits = containers.filter_map(|container| container["resources"]["limits"].as_object()).flatten();
    let counts = limits.filter(|(name, _)| name.ends_with("/gpu"));
    counts.filter_map(|(_, count)| count.as_u64().or_else(|| count.as_str()?.parse().ok())).sum()
}

/// Returns `10 (low)`: the priority of a pod with its class.
fn priority(spec: &Value) -> String {
    let class = spec["priorityClassName"].as_str();
    let number = spec["priority"].as_i64().map_or_else(String::new, |number| number.to_string());
    class.map_or_else(|| number.clone(), |class| format!("{number} ({class})"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Pod {
    /// Parses a watched object.
    pub fn of(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let mut pod = Self::read(&object.data);
        pod.uid = meta.uid.clone().unwrap_or_default();
        pod.name = meta.name.clone().unwrap_or_default();
        pod.labels = meta.labels.clone().unwrap_or_default();
        pod.deleting = meta.deletion_timestamp.is_some();
        pod.created = meta.creation_timestamp.as_ref().map(|time| time.0);
        pod
    }

    /// Parses an object as received.
    pub fn of_json(object: &Value) -> Self {
        let meta = &object["metadata"];
        let mut pod = Self::read(object);
        pod.uid = text(&meta["uid"]);
        pod.name = text(&meta["name"]);
        pod.labels = meta["labels"]
            .as_object()
            .map(|labels| labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
            .unwrap_or_default();
        pod.deleting = meta["deletionTimestamp"].is_string();
        pod.created = meta["creationTimestamp"].as_str().and_then(|time| time.parse().ok());
        pod
    }

    fn read(data: &Value) -> Self {
        let (spec, status) = (&data["spec"], &data["status"]);
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let condition = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
        let unschedulable =
            condition("PodScheduled").filter(|condition| condition["status"] == "False").map(|condition| {
                one_line(condition["message"].as_str().unwrap_or("the scheduler has not placed it"))
            });
        let containers =
            [("initContainers", "initContainerStatuses", true), ("containers", "containerStatuses", false)];
        Self {
            phase: text(&status["phase"]),
            reason: text(&status["reason"]),
            message: one_line(status["message"].as_str().unwrap_or_default()),
            node: spec["nodeName"].as_str().map(str::to_owned),
            unschedulable,
            gpus: gpus(spec),
            claim_templates: spec["resourceClaims"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|claim| claim["resourceClaimTemplateName"].as_str().map(str::to_owned))
                .collect(),
            priority: priority(spec),
            disruption: condition("DisruptionTarget").filter(|condition| condition["status"] == "True").map(
                |condition| Disruption {
                    reason: text(&condition["reason"]),
                    message: one_line(condition["message"].as_str().unwrap_or_default()),
                    by: None,
                },
            ),
            ready: condition("Ready").is_some_and(|condition| condition["status"] == "True"),
            containers: containers
                .iter()
                .flat_map(|(specs, statuses, init)| {
                    ContainerState::all(&spec[specs], &status[statuses], *init, status["reason"] == "Evicted")
                })
                .collect(),
            ..Self::default()
        }
    }

    /// Returns whether no container of it will run again.
    pub fn ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns a container by name.
    pub fn container(&self, name: &str) -> Option<&ContainerState> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns the restarts of all its containers.
    pub fn restarts(&self) -> u32 {
        self.containers.iter().filter(|container| !container.init).map(|container| container.restarts).sum()
    }

    /// Returns how it ended: the first container that failed, else the first.
    pub fn exit(&self) -> Option<&Exit> {
        let exits =
            || self.containers.iter().filter(|container| !container.init).filter_map(ContainerState::exit);
        exits().find(|exit| exit.code != 0).or_else(|| exits().next())
    }
}

impl ContainerState {
    fn all(specs: &Value, statuses: &Value, init: bool, evicted: bool) -> Vec<Self> {
        let statuses = statuses.as_array().map_or(&[][..], Vec::as_slice);
        let specs = specs.as_array().map_or(&[][..], Vec::as_slice);
        specs
            .iter()
            .map(|spec| {
                let name = text(&spec["name"]);
                let status = statuses.iter().find(|status| status["name"] == name.as_str());
                Self { name, init, ..status.map(|status| Self::read(status, evicted)).unwrap_or_default() }
            })
            .collect()
    }

    fn read(status: &Value, evicted: bool) -> Self {
        let state = &status["state"];
        let ended = Exit::read(&state["terminated"]);
        let mut last = Exit::read(&status["lastState"]["terminated"]);
        let mut restarts = u32::try_from(status["restartCount"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
        // For a container of an evicted pod the kubelet makes up how it ended, and counts a restart that
        // never happened.
        if evicted && last.as_ref().is_some_and(|exit| exit.reason == UNKNOWN) {
            last = None;
            restarts = restarts.saturating_sub(1);
        }
        Self {
            restarts,
            id: text(&status["containerID"]),
            state: if let Some(exit) = ended {
                State::Terminated(exit)
            } else if state["running"].is_object() {
                State::Running
            } else if state["waiting"].is_object() {
                let waiting = &state["waiting"];
                State::Waiting {
                    reason: text(&waiting["reason"]),
                    message: one_line(waiting["message"].as_str().unwrap_or_default()),
                }
            } else {
                State::Unknown
            },
            last,
            ..Self::default()
        }
    }

    /// Returns whether its present log can be read.
    pub fn has_log(&self) -> bool {
        matches!(self.state, State::Running | State::Terminated(_))
            || (self.last.is_some() && !self.id.is_empty())
    }

    /// Returns whether it has started the pod's own work.
    pub fn has_begun(&self) -> bool {
        !self.init && (self.has_log() || self.last.is_some())
    }

    /// Returns how the present one ended, if it did: a container that waits for a restart has ended too.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Terminated(exit) => Some(exit),
            State::Running => None,
            _ => self.last.as_ref(),
        }
    }
}

impl Exit {
    fn read(value: &Value) -> Option<Self> {
        let code = value["exitCode"].as_i64()?;
        Some(Self {
            code: i32::try_from(code).unwrap_or(-1),
            reason: text(&value["reason"]),
            message: one_line(value["message"].as_str().unwrap_or_default()),
            id: text(&value["containerID"]),
            at: value["finishedAt"].as_str().and_then(|time| time.parse().ok()),
        })
    }
}

impl PodEvent {
    /// Parses a watched Event.
    pub fn of(object: &DynamicObject) -> Self {
        let mut event = Self::read(&object.data);
        event.uid = object.metadata.uid.clone().unwrap_or_default();
        event.time = event.time.or(object.metadata.creation_timestamp.as_ref().map(|time| time.0));
        event
    }

    /// Parses an Event as received.
    pub fn of_json(object: &Value) -> Self {
        Self { uid: text(&object["metadata"]["uid"]), ..Self::read(object) }
    }

    fn read(data: &Value) -> Self {
        let about = &data["involvedObject"];
        let times = [
            &data["series"]["lastObservedTime"],
            &data["lastTimestamp"],
            &data["eventTime"],
            &data["firstTimestamp"],
        ];
        Self {
            uid: String::new(),
            about: (text(&about["kind"]), text(&about["name"]), text(&about["uid"])),
            warning: data["type"] == "Warning",
            reason: text(&data["reason"]),
            message: one_line(data["message"].as_str().unwrap_or_default()),
            count: data["series"]["count"].as_u64().or(data["count"].as_u64()).unwrap_or(1),
            time: times.iter().find_map(|time| time.as_str().and_then(|time| time.parse().ok())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The status that a kubelet 1.34 leaves after an eviction for ephemeral storage.
    #[test]
    fn an_evicted_container_was_not_started_again() {
        let unknown = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
        let pod = |reason: &str, state: &Value| {
            let status = json!({"name": "pytorch", "restartCount": 1, "state": state, "lastState": unknown});
            let spec = json!({"containers": [{"name": "pytorch"}]});
            Pod::of_json(&json!({"spec": spec, "status": {"reason": reason, "containerStatuses": [status]}}))
        };
        assert_eq!(pod("Evicted", &unknown).restarts(), 0);
        assert_eq!(pod("Evicted", &unknown).exit().unwrap().code, 137);
        assert_eq!(pod("Evicted", &json!({"waiting": {}})).restarts(), 0);
        assert_eq!(pod("", &json!({"running": {}})).restarts(), 1);
    }
}
