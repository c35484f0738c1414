//! The job queues: Kueue's of a namespace, Volcano's of the cluster.

use serde_json::{Value, json};
use weftrun_core::backend::{ClusterFacts, Queue};
use weftrun_core::{Error, ErrorKind, Result};

use super::facts::hidden;
use super::{Cluster, Resource};

/// A system with job queues.
struct Keeper {
    /// The key of its queue names in `ClusterFacts::extra`; the value is `false` if it is not installed.
    word: &'static str,
    name: &'static str,
    /// By version, newest first: a cluster serves one or several of them.
    queues: &'static [Resource],
}

/// Their APIs: <https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/> and <https://volcano.sh/en/docs/queue/> (2026-11-21).
const KEEPERS: [Keeper; 2] = [
    Keeper {
        word: "kueue",
        name: "Kueue's local queues",
        queues: &[
            Resource::of("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"),
            Resource::of("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue"),
        ],
    },
    Keeper {
        word: "volcano",
        name: "Volcano's queues",
        queues: &[Resource {
            namespaced: false,
            ..Resource::of("scheduling.volcano.sh", "v1beta1", "queues", "Queue")
        }],
    },
];

/// Adds the queues to the facts: the readable ones, and a note about the others.
pub async fn queues(cluster: &Cluster, facts: &mut ClusterFacts) -> Result<()> {
    for keeper in &KEEPERS {
        match keeper.ask(cluster).await {
            Ok(Some(objects)) => {
                let found: Vec<Queue> = objects.iter().map(queue).collect();
                let names: Vec<&String> = found.iter().map(|queue| &queue.name).collect();
                facts.extra.insert(keeper.word.into(), json!(names));
                facts.queues.extend(found);
            }
            Ok(None) => drop(facts.extra.insert(keeper.word.into(), json!(false))),
            Err(error) if error.kind() == ErrorKind::Unreachable => return Err(error),
            Err(error) => {
                let so = "a queue's name is taken as it is written";
                facts.notes.push(hidden(&error, keeper.name, so));
            }
        }
    }
    Ok(())
}

impl Keeper {
    /// Returns its queues; none if it is not installed.
    async fn ask(&self, cluster: &Cluster) -> Result<Option<Vec<Value>>> {
        let Some(group) = self.queues.first().map(|resource| resource.group) else { return Ok(None) };
        let absent = |error: &Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported);
        let listed = async {
            let served = cluster.raw(&format!("/apis/{group}")).await?;
            let versions = served["versions"].as_array().map_or(&[][..], Vec::as_slice);
            let is_served =
                |resource: &&Resource| versions.iter().any(|entry| entry["version"] == resource.version);
            match self.queues.iter().find(is_served) {
                Some(resource) => cluster.list(resource, "").await.map(Some),
                None => Ok(None),
            }
        };
        match listed.await {
            Err(error) if absent(&error) => Ok(None),
            listed => listed,
        }
    }
}

/// Parses a queue, which accepts jobs unless it is stopped.
fn queue(object: &Value) -> Queue {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let inactive = conditions
        .is_some_and(|list| list.iter().any(|one| one["type"] == "Active" && one["status"] == "False"));
    let held = object.pointer("/spec/stopPolicy").and_then(Value::as_str).is_some_and(|how| how != "None");
    let closed = object.pointer("/status/state").and_then(Value::as_str).is_some_and(|state| state != "Open");
    let mut queue = Queue::default();
    queue.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    queue.up = !inactive && !held && !closed;
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_takes_jobs_unless_it_says_otherwise() {
        let up = |rest: Value| {
            let mut object = json!({"metadata": {"name": "team"}});
            object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            queue(&object).up
        };
        assert!(up(json!({})));
        assert!(up(
            json!({"spec": {"stopPolicy": "None"}, "status": {"conditions": [{"type": "Active", "status": "True"}]}})
        ));
        assert!(!up(json!({"status": {"conditions": [{"type": "Active", "status": "False"}]}})));
        assert!(!up(json!({"spec": {"stopPolicy": "Hold"}})));
        assert!(up(json!({"status": {"state": "Open"}})));
        assert!(!up(json!({"status": {"state": "Closed"}})));
    }
}
