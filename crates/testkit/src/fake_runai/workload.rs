//! A workload and its lifecycle.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{Pod, expand};
use super::{CLUSTER_ID, PROJECT, PROJECT_ID};

/// A workload.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Its id.
    pub id: String,
    /// `distributed`, `trainings`, `workspaces`.
    pub kind: String,
    /// The body it was created from.
    pub body: Value,
    /// When it was created.
    pub created: Timestamp,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// Whether it was suspended.
    pub stopped: bool,
    /// Whether it was deleted.
    pub deleted: bool,
    /// A phase set by a test instead of the real one.
    pub told: Option<String>,
    /// The reason of its phase, which is only in the list.
    pub message: String,
    /// The addresses of the workload.
    pub urls: Vec<String>,
    /// The phases it was seen in, each with the time it was first seen.
    pub history: Vec<(Timestamp, String)>,
}

impl Workload {
    /// Creates a workload from a create body and starts its pods.
    pub fn new(kind: &str, body: Value) -> Self {
        let bits = format!("{:032x}", fastrand::u128(..));
        let [first, second, third, fourth, last] =
            [&bits[..8], &bits[8..12], &bits[13..16], &bits[17..20], &bits[20..]];
        let mut made = Self {
            id: format!("{first}-{second}-4{third}-8{fourth}-{last}"),
            kind: kind.to_owned(),
            body,
            created: Timestamp::now(),
            ..Self::default()
        };
        made.start();
        made
    }

    /// Creates a running workload whose pods have written this many lines, without a process.
    pub fn made_up(name: &str, pods: usize, lines: usize) -> Self {
        let body = serde_json::json!({
            "name": name, "projectId": PROJECT_ID, "clusterId": CLUSTER_ID, "masterSpecSameAsWorker": true,
            "spec": {"image": "example.test/trainer:1", "distributedFramework": "PyTorch", "numWorkers": pods.max(2) - 1},
        });
        let mut made = Self::new("none", body);
        made.kill();
        made.kind = "distributed".to_owned();
        made.pods = (0..pods).map(|i| Pod::made_up(format!("{name}-worker-{i}"), lines)).collect();
        made
    }

    /// Returns whether a pod, or all of it, has ended.
    pub fn ended(&self, pod: Option<&String>) -> bool {
        match pod.and_then(|name| self.pod(name)) {
            Some(pod) => pod.exit_code().is_some(),
            None => matches!(self.phase().as_str(), "Completed" | "Failed"),
        }
    }

    /// Records its present phase.
    pub fn observe(&mut self) {
        let phase = self.phase();
        if self.history.last().is_none_or(|(_, last)| *last != phase) {
            self.history.push((Timestamp::now(), phase));
        }
    }

    /// Returns its history, newest first.
    pub fn records(&self) -> Vec<Value> {
        let record = |(time, phase): &(Timestamp, String)| {
            json!({"meta": {"creationTimestamp": time.to_string(), "type": "PhaseUpdate"},
                   "spec": {"phaseUpdate": {"phase": phase, "phaseMessage": ""}}})
        };
        self.history.iter().rev().map(record).collect()
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        self.body.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Starts its pods: master and workers, launcher and workers, or one.
    pub fn start(&mut self) {
        let workers = self.body.pointer("/spec/numWorkers").and_then(Value::as_u64).unwrap_or(1);
        let mpi = self.body.pointer("/spec/distributedFramework").and_then(Value::as_str) == Some("MPI");
        let same = self.body.get("masterSpecSameAsWorker").and_then(Value::as_bool) == Some(true);
        let name = self.name().to_owned();
        let spec = self.body.get("spec").cloned().unwrap_or_default();
        let master = self.body.get("masterSpec").cloned();
        self.pods.clear();
        if self.kind == "none" {
            return;
        }
        let total = workers + u64::from(same || master.is_some());
        let mut run = |pod: String, spec: &Value, rank: u64| {
            let pod = Pod::new(pod);
            let (command, args) = (text(spec, "command"), text(spec, "args"));
            pod.start(command, args, text(spec, "workingDir"), &environment(spec, rank, total));
            self.pods.push(pod);
        };
        if self.kind != "distributed" {
            return run(format!("{name}-0-0"), &spec, 0);
        }
        match (&master, same) {
            (Some(master), _) => {
                run(format!("{name}-{}", if mpi { "launcher-x7k2p" } else { "master-0" }), master, 0);
            }
            (None, true) => run(format!("{name}-master-0"), &spec, 0),
            (None, false) => {}
        }
        let first = u64::from(same || (master.is_some() && !mpi));
        for index in 0..workers {
            run(format!("{name}-worker-{index}"), &spec, index + first);
        }
    }

    /// Kills its pods.
    pub fn kill(&self) {
        self.pods.iter().for_each(Pod::kill);
    }

    /// Returns its phase, in the platform's words.
    pub fn phase(&self) -> String {
        if let Some(told) = &self.told {
            return told.clone();
        }
        let phases: Vec<&str> = self.pods.iter().map(Pod::phase).collect();
        let first = phases.first().copied().unwrap_or("Pending");
        let mpi = self.body.pointer("/spec/distributedFramework").and_then(Value::as_str) == Some("MPI");
        let all = |word: &str| phases.iter().all(|phase| *phase == word);
        let word = if self.stopped {
            "Stopped"
        } else if phases.contains(&"Failed") {
            "Failed"
        } else if all("Succeeded") || (mpi && first == "Succeeded") {
            "Completed"
        } else if all("Pending") {
            "Initializing"
        } else {
            "Running"
        };
        if matches!(word, "Failed" | "Completed") {
            self.kill();
        }
        word.to_owned()
    }

    /// Returns the answer of a typed read.
    pub fn typed(&self) -> Value {
        let mut answer = self.body.clone();
        answer["requestedName"] = json!(self.name());
        answer["workloadId"] = json!(self.id);
        answer["createdBy"] = json!("researcher@example.test");
        answer["createdAt"] = json!(self.created.to_string());
        answer["desiredPhase"] = json!(if self.stopped { "Stopped" } else { "Running" });
        answer["actualPhase"] = json!(self.phase());
        answer
    }

    /// Returns its entry in the list.
    pub fn listed(&self) -> Value {
        let kind = match self.kind.as_str() {
            "distributed" => "Distributed",
            "workspaces" => "Workspace",
            _ => "Training",
        };
        let running = self.pods.iter().filter(|pod| pod.phase() == "Running").count();
        let made = self.created.to_string();
        json!({
            "id": self.id, "name": self.name(), "type": kind, "phase": self.phase(), "projectId": PROJECT_ID,
            "projectName": PROJECT, "clusterId": CLUSTER_ID, "createdAt": made, "updatedAt": made,
            "phaseUpdatedAt": made, "k8sPhaseUpdatedAt": made, "deletedAt": null, "tenantId": 1001, "source": "Other",
            "runningPods": running, "requestedPods": {"number": self.pods.len()}, "namespace": format!("runai-{PROJECT}"),
            "priority": 50, "priorityClassName": "low", "departmentId": "1", "departmentName": "default",
            "phaseMessage": self.message, "urls": self.urls, "conditions": [], "k8sPhase": "Running", "category": "Train", "submittedBy": "researcher@example.test",
        })
    }

    /// Returns its pods, as the control plane lists them.
    pub fn listed_pods(&self) -> Vec<Value> {
        let made = self.created.to_string();
        let pod = |pod: &Pod| {
            json!({"id": pod.id, "name": pod.name, "workloadId": self.id, "clusterId": CLUSTER_ID, "tenantId": 1001,
                   "k8sPhase": pod.phase(), "k8sPhaseUpdatedAt": made, "nodeName": "node-1", "priorityClassName": "low",
                   "containers": [{"name": "main", "image": "x"}], "createdAt": made, "updatedAt": made})
        };
        self.pods.iter().map(pod).collect()
    }

    /// Returns the pod of a name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    /// Returns whether a field of its list entry has a value.
    pub fn has(&self, field: &str, value: &str) -> bool {
        match field {
            "name" => self.name() == value,
            "projectId" => value == PROJECT_ID,
            _ => self.listed()[field] == *value,
        }
    }
}

fn text<'a>(spec: &'a Value, key: &str) -> &'a str {
    spec.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn environment(spec: &Value, rank: u64, total: u64) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", total.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", "29500".to_owned()),
        ("RUNAI_PROJECT", PROJECT.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    // Values may refer to the variables before them; the operator's come after the user's.
    let mut before = BTreeMap::new();
    for var in spec.get("environmentVariables").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(name), Some(value)) =
            (var.get("name").and_then(Value::as_str), var.get("value").and_then(Value::as_str))
        {
            let value = expand(value, &before);
            before.insert(name.to_owned(), value.clone());
            env.insert(name.to_owned(), value);
        }
    }
    env
}
