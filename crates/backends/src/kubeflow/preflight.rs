//! Finds what would make a job's pods be refused, or wait forever, according to the cluster facts. Pure.
//!
//! Only warnings: the facts may be some minutes old, and a quota that is used up now may be free when the
//! pods are created.

use serde_json::Value;
use weftrun_core::Finding;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::spec::Quantity;
use weftrun_core::text::{listed, suggestion};

use super::config::Gang;
use super::render_input::RenderInput;

/// Compares a rendered job with the facts.
pub fn findings(draft: &RenderInput<'_>, object: &Value) -> Vec<Finding> {
    let facts = &draft.job.facts;
    let priority = draft.spec.priority.as_deref().and_then(|name| priority(name, facts));
    let queue = draft.spec.queue.as_deref().and_then(|name| queue(name, draft.settings.gang, facts));
    priority.into_iter().chain(queue).chain(quotas(&pods(object), facts)).collect()
}

fn priority(name: &str, facts: &ClusterFacts) -> Option<Finding> {
    if facts.priorities.is_empty() || facts.priorities.iter().any(|known| known == name) {
        return None;
    }
    let text = format!("the cluster has no priority class `{name}`: every pod would be refused");
    // Those are Kubernetes' own and not for jobs.
    let known = facts.priorities.iter().map(String::as_str).filter(|known| !known.starts_with("system-"));
    Some(Finding::error("K8S-PRIORITY", text).at("priority").fix(meant(name, known)))
}

fn queue(name: &str, gang: Option<Gang>, facts: &ClusterFacts) -> Option<Finding> {
    let (word, who) = if gang == Some(Gang::Volcano) { ("volcano", "Volcano") } else { ("kueue", "Kueue") };
    let finding = |text: String| Finding::warning("K8S-QUEUE", text).at("queue");
    match facts.extra.get(word)? {
        Value::Bool(false) => Some(
            finding(format!("the cluster has no {who}: no controller serves the queue `{name}`, and the pods do not wait in it"))
                .fix("leave `queue` out, or set `gang` under [backend.kubeflow] to the queue controller (kueue, volcano)"),
        ),
        Value::Array(known) if !known.iter().any(|known| known == name) => {
            let known = known.iter().filter_map(Value::as_str);
            Some(finding(format!("{who} has no queue `{name}` here; the job would never start")).fix(meant(name, known)))
        }
        _ => None,
    }
}

/// Suggests a similar name, or lists all available ones.
fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    suggestion(name, known.clone()).unwrap_or_else(|| match listed(known, 20) {
        all if all.is_empty() => "there is none; ask your cluster administrator for one".to_owned(),
        all => format!("use one of {all}"),
    })
}

/// Pods of one kind: their number, and the `resources` of their containers.
struct Pods<'a> {
    count: u64,
    containers: Vec<&'a Value>,
}

fn pods(object: &Value) -> Vec<Pods<'_>> {
    let spec = &object["spec"];
    let trainer = &spec["trainer"];
    if trainer.is_object() {
        let count = trainer["numNodes"].as_u64().unwrap_or(1);
        return vec![Pods { count, containers: vec![&trainer["resourcesPerNode"]] }];
    }
    let replicas =
        ["pytorchReplicaSpecs", "mpiReplicaSpecs"].into_iter().filter_map(|key| spec[key].as_object());
    replicas
        .flat_map(|roles| roles.values())
        .map(|role| {
            let containers = role.pointer("/template/spec/containers").and_then(Value::as_array);
            Pods {
                count: role["replicas"].as_u64().unwrap_or(1),
                containers: containers
                    .into_iter()
                    .flatten()
                    .map(|container| &container["resources"])
                    .collect(),
            }
        })
        .collect()
}

/// Returns the quotas that the pods would exceed, each with the first exceeded resource.
fn quotas(pods: &[Pods<'_>], facts: &ClusterFacts) -> Vec<Finding> {
    let list = facts.extra.get("quotas").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|quota| exceeded(quota, pods)).collect()
}

fn exceeded(quota: &Value, pods: &[Pods<'_>]) -> Option<Finding> {
    let whole = |value: &Value| Some(Quantity::parse(value.as_str()?)?.whole());
    quota["hard"].as_object()?.iter().find_map(|(name, hard)| {
        let (hard, used) = (whole(hard)?, whole(&quota["used"][name]).unwrap_or(0));
        let asked = asked(name, pods);
        if asked == 0 || used.saturating_add(asked) <= hard {
            return None;
        }
        let of = quota["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!(
            "the job requests {asked} of `{name}`, but the namespace's quota `{of}` has {} of {hard} left; pods beyond it are refused, and the others wait for them",
            hard.saturating_sub(used)
        );
        let fix = "request less, wait for other jobs of the namespace, or ask your cluster administrator for a larger ResourceQuota";
        Some(Finding::warning("K8S-QUOTA", text).fix(fix))
    })
}

/// Returns how much the pods count towards a resource name of a quota
/// (https://kubernetes.io/docs/concepts/policy/resource-quotas/, 2026-11-21).
fn asked(name: &str, pods: &[Pods<'_>]) -> u64 {
    let (which, resource) = match name.split_once('.') {
        _ if matches!(name, "pods" | "count/pods") => {
            return pods.iter().map(|pods| pods.count).fold(0, u64::saturating_add);
        }
        Some(("requests", resource)) => ("requests", resource),
        Some(("limits", resource)) => ("limits", resource),
        None if matches!(name, "cpu" | "memory") => ("requests", name),
        _ => return 0,
    };
    let of = |resources: &&Value| {
        resources[which][resource].as_str().and_then(Quantity::parse).map_or(0, Quantity::whole)
    };
    let all = pods.iter().map(|pods| {
        let one = pods.containers.iter().map(of).fold(0, u64::saturating_add);
        one.saturating_mul(pods.count)
    });
    all.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(key: &str, value: Value) -> ClusterFacts {
        let mut facts = ClusterFacts::default();
        facts.extra.insert(key.into(), value);
        facts
    }

    #[test]
    fn a_queue_that_is_not_there_is_said() {
        let said = |known: Value| {
            queue("tema", None, &facts("kueue", known)).map(|finding| finding.fix.unwrap().text)
        };
        assert_eq!(said(json!(["tema"])), None);
        assert_eq!(said(json!(["team"])).unwrap(), "did you mean `team`?");
        assert_eq!(said(json!(["research", "night"])).unwrap(), "use one of research, night");
        assert!(said(json!([])).unwrap().contains("there is none"));
        assert!(said(json!(false)).unwrap().contains("gang"));
        assert_eq!(
            queue("tema", Some(Gang::Volcano), &facts("kueue", json!([]))),
            None,
            "Volcano was not queried"
        );
    }

    #[test]
    fn priorities_are_checked_where_they_are_known() {
        let mut facts = ClusterFacts::default();
        assert_eq!(priority("hihg", &facts), None);
        facts.priorities = vec!["high".into(), "low".into()];
        assert_eq!(priority("high", &facts), None);
        assert!(priority("hihg", &facts).unwrap().fix.unwrap().text.contains("`high`"));
        facts.priorities = vec!["system-node-critical".into()];
        assert!(priority("high", &facts).unwrap().fix.unwrap().text.contains("there is none"));
    }

    #[test]
    fn a_quota_counts_what_all_pods_ask() {
        let resources =
            json!({"requests": {"nvidia.com/gpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}});
        let role = json!({"replicas": 3, "template": {"spec": {"containers": [{"resources": resources}]}}});
        let one = json!({"replicas": 1, "template": {"spec": {"containers": [{"resources": resources}]}}});
        let torch = json!({"spec": {"pytorchReplicaSpecs": {"Master": one, "Worker": role}}});
        let train = json!({"spec": {"trainer": {"numNodes": 4, "resourcesPerNode": resources}}});
        for object in [torch, train] {
            let over = |hard: Value, used: Value| {
                let quota = json!({"metadata": {"name": "team"}, "hard": hard, "used": used});
                exceeded(&quota, &pods(&object)).map(|finding| finding.message)
            };
            assert_eq!(
                over(json!({"requests.nvidia.com/gpu": "32"}), json!({"requests.nvidia.com/gpu": "0"})),
                None
            );
            let gpus =
                over(json!({"requests.nvidia.com/gpu": "32"}), json!({"requests.nvidia.com/gpu": "8"}))
                    .unwrap();
            assert!(gpus.contains("requests 32") && gpus.contains("24 of 32"), "{gpus}");
            assert_eq!(over(json!({"limits.memory": "256Gi", "pods": "4"}), json!({})), None);
            assert!(over(json!({"memory": "255Gi"}), json!({})).unwrap().contains("`memory`"));
            assert!(over(json!({"pods": "3"}), json!({})).unwrap().contains("`pods`"));
            assert_eq!(over(json!({"services": "0", "requests.storage": "1Gi"}), json!({})), None);
        }
    }
}
