//! A workload and its life.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{Pod, locked};
use super::{CLUSTER_ID, PROJECT, PROJECT_ID};

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its id.
    pub id: String,
    /// `distributed`, `trainings`, `workspaces`.
    pub kind: String,
    /// The body it was made of.
    pub body: Value,
    /// When.
    pub created: Timestamp,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// Suspended by somebody.
    pub stopped: bool,
    /// Deleted by somebody.
    pub deleted: bool,
    /// Phase told instead of the real one, where a test wants it.
    pub told: Option<String>,
}

impl Workload {
    /// Makes a workload of a create body and starts its pods.
    pub fn new(kind: &str, body: Value) -> Self {
        let bits = format!("{:032x}", fastrand::u128(..));
        let id = format!(
            "{}-{}-4{}-8{}-{}",
            &bits[..8],
            &bits[8..12],
            &bits[13..16],
            &bits[17..20],
            &bits[20..32]
        );
        let mut made = Self {
            id,
            kind: kind.to_owned(),
            body,
            created: Timestamp::now(),
            pods: Vec::new(),
            stopped: false,
            deleted: false,
            told: None,
        };
        made.start();
        made
    }

    /// Its name.
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
        let total = workers + u64::from(same || master.is_some());
        let mut run = |pod: String, spec: &Value, rank: u64| {
            let pod = Pod::new(pod);
            pod.start(text(spec, "command"), text(spec, "args"), &environment(spec, rank, total));
            self.pods.push(pod);
        };
        if self.kind != "distributed" {
            return run(format!("{name}-0-0"), &spec, 0);
        }
        match (&master, same) {
            (Some(master), _) => {
                run(format!("{name}-{}", if mpi { "launcher-x7k2p" } else { "master-0" }), master, 0)
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

    /// Its phase, in the platform's words.
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

    /// What the typed read answers.
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

    /// What the list answers.
    pub fn listed(&self) -> Value {
        let kind = match self.kind.as_str() {
            "distributed" => "Distributed",
            "workspaces" => "Workspace",
            _ => "Training",
        };
        let running = self.pods.iter().filter(|pod| pod.phase() == "Running").count();
        json!({
            "id": self.id, "name": self.name(), "type": kind, "phase": self.phase(), "projectId": PROJECT_ID,
            "projectName": PROJECT, "clusterId": CLUSTER_ID, "createdAt": self.created.to_string(),
            "runningPods": running, "requestedPods": {"number": self.pods.len()}, "namespace": format!("runai-{PROJECT}"),
        })
    }

    /// Its pods, as the control plane lists them.
    pub fn listed_pods(&self) -> Vec<Value> {
        let pod = |pod: &Pod| {
            json!({"id": pod.id, "name": pod.name, "workloadId": self.id, "clusterId": CLUSTER_ID,
                   "k8sPhase": pod.phase(), "nodeName": "node-1", "containers": [{"name": "main", "image": "x"}],
                   "createdAt": self.created.to_string()})
        };
        self.pods.iter().map(pod).collect()
    }

    /// The lines of a pod, and whether it has ended.
    pub fn lines(&self, pod: &str) -> Option<(Vec<(Timestamp, Vec<u8>)>, bool)> {
        let pod = self.pods.iter().find(|known| known.name == pod)?;
        let output = locked(&pod.output);
        Some((output.lines.clone(), output.exit.is_some()))
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
    for var in spec.get("environmentVariables").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(name), Some(value)) =
            (var.get("name").and_then(Value::as_str), var.get("value").and_then(Value::as_str))
        {
            env.insert(name.to_owned(), value.replace("$$", "$"));
        }
    }
    env
}
