//! Facts about a cluster, as far as the user may read them.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use weftrun_core::backend::{ClusterFacts, NodeGroup};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::{Cluster, Resource, networks, node_states};

/// A right to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// `create`, `list`, …
    pub verb: &'static str,
    /// The resource.
    pub resource: Resource,
    /// `log` of `pods/log`.
    pub subresource: &'static str,
}

/// Labels of nodes that identify their type.
const NODE_LABELS: [&str; 8] = [
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "cloud.google.com/gke-accelerator",
    "node.coreweave.cloud/type",
    "nvidia.com/gpu.product",
    "topology.kubernetes.io/zone",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
];

/// Domains of the labels that a cloud sets on its nodes. The keys identify the cloud. The values may differ between
/// nodes, and nodes are grouped by their labels, so only the keys are kept.
const CLOUD_DOMAINS: [&str; 13] = [
    "amazonaws.com",
    "k8s.aws",
    "eksctl.io",
    "azure.com",
    "gke.io",
    "cloud.google.com",
    "oraclecloud.com",
    "coreweave.cloud",
    "coreweave.com",
    "nebius.com",
    "crusoe.ai",
    "nscale.com",
    "together.ai",
];

/// Returns whether a label's key is in the domain of a cloud.
fn is_of_cloud(key: &str) -> bool {
    let within = |host: &str, domain: &str| {
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    key.split_once('/').is_some_and(|(host, _)| CLOUD_DOMAINS.iter().any(|domain| within(host, domain)))
}

/// Returns which of these rights the user has in the namespace; none if the cluster does not answer.
pub async fn rights(cluster: &Cluster, rights: &[Right]) -> Vec<Option<bool>> {
    join_all(rights.iter().map(|right| async move {
        let attributes = json!({
            "namespace": if right.resource.namespaced { cluster.namespace.as_str() } else { "" },
            "verb": right.verb, "group": right.resource.group, "version": right.resource.version,
            "resource": right.resource.plural, "subresource": right.subresource,
        });
        let review = json!({
            "apiVersion": Resource::REVIEWS.api_version(), "kind": Resource::REVIEWS.kind,
            "metadata": {}, "spec": {"resourceAttributes": attributes},
        });
        let answer = cluster.create(&Resource::REVIEWS, &review, super::Write::Real).await.ok()?;
        answer["status"]["allowed"].as_bool()
    }))
    .await
}

/// Returns the key, among the names that only the server has, of a node's label `kubernetes.io/hostname`.
pub fn hostname_id(node: &str) -> String {
    format!("hostname/{node}")
}

/// Returns the host name of a node whose name is another.
fn other_hostname(node: &Value) -> Option<(String, String)> {
    let meta = &node["metadata"];
    let (name, label) = (meta["name"].as_str()?, meta["labels"]["kubernetes.io/hostname"].as_str()?);
    (name != label).then(|| (hostname_id(name), label.to_owned()))
}

/// Groups equal nodes.
pub fn node_groups(nodes: &[Value]) -> Vec<NodeGroup> {
    let mut groups: BTreeMap<String, NodeGroup> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node["spec"]["unschedulable"] != true) {
        let labels = &node["metadata"]["labels"];
        let label = |key: &str| labels[key].as_str().map(str::to_owned);
        let mut group = NodeGroup::default();
        group.instance_type =
            label("node.kubernetes.io/instance-type").or_else(|| label("beta.kubernetes.io/instance-type"));
        group.gpu_product = label("nvidia.com/gpu.product");
        let keys = labels.as_object().into_iter().flat_map(|labels| labels.keys());
        group.labels = keys.filter(|key| is_of_cloud(key)).map(|key| (key.clone(), String::new())).collect();
        group.labels.extend(NODE_LABELS.iter().filter_map(|key| Some(((*key).to_owned(), label(key)?))));
        group.allocatable = node["status"]["allocatable"]
            .as_object()
            .map(|map| map.iter().map(|(key, value)| (key.clone(), quantity(value))).collect())
            .unwrap_or_default();
        // Storage and pod counts differ slightly between otherwise equal nodes.
        let devices: Vec<_> = group.allocatable.iter().filter(|(key, _)| is_device(key)).collect();
        let key = format!("{:?} {:?} {devices:?} {:?}", group.instance_type, group.gpu_product, group.labels);
        groups.entry(key).or_insert(group).count += 1;
    }
    groups.into_values().collect()
}

fn is_device(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with("hugepages-")
}

fn quantity(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads nodes, namespace, quotas, priorities and webhooks: readable ones become facts, the others a note.
pub async fn namespace_facts(cluster: &Cluster, facts: &mut ClusterFacts) -> Result<()> {
    let (version, nodes, namespaces, quotas, priorities, webhooks, classes, networks) = tokio::join!(
        cluster.raw("/version"),
        cluster.list(&Resource::NODES, ""),
        cluster.get(&Resource::NAMESPACES, &cluster.namespace),
        cluster.list(&Resource::QUOTAS, ""),
        cluster.list(&Resource::PRIORITIES, ""),
        cluster.list(&Resource::WEBHOOKS, ""),
        cluster.list(&Resource::DEVICE_CLASSES, ""),
        networks::networks(cluster),
    );
    // This request is open to every authenticated user: if it fails, the connection does.
    match version {
        Ok(version) => facts.version = version["gitVersion"].as_str().map(str::to_owned),
        Err(error) if matches!(error.kind(), ErrorKind::Unreachable) => return Err(error),
        Err(error) if super::is_unauthenticated(&error) => return Err(error),
        Err(_) => {}
    }
    facts.online = true;
    facts.networks = networks;
    if let Some(nodes) =
        readable(nodes, facts, "nodes", "EFA and GPU counts come from the catalogue or the profile")?
    {
        facts.nodes = node_groups(&nodes);
        let names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
        facts.node_queues = names.map(|name| (name.to_owned(), Vec::new())).collect();
        facts.ids.extend(nodes.iter().filter_map(other_hostname));
        facts.node_states = nodes.iter().filter_map(node_states::of_node).collect();
    }
    if let Some(namespace) = readable(
        namespaces,
        facts,
        "the namespace's labels",
        "a Pod Security level is only seen when pods are refused",
    )? {
        let level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str();
        facts.pod_security = Some(level.unwrap_or("privileged").to_owned());
    }
    if let Some(quotas) =
        readable(quotas, facts, "resource quotas", "an exceeded quota is only seen in the job's events")?
    {
        facts.extra.insert("quotas".into(), quotas.iter().filter_map(quota).collect());
    }
    if let Some(priorities) =
        readable(priorities, facts, "priority classes", "a priority class is taken as it is written")?
    {
        facts.priorities = priorities
            .iter()
            .filter_map(|class| class["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
    }
    match webhooks {
        Ok(webhooks) => facts.efa_webhook = Some(webhooks.iter().any(is_efa_webhook)),
        Err(error) if error.kind() == ErrorKind::Unreachable => return Err(error),
        Err(error) => {
            facts.efa_webhook = probe(cluster).await;
            if facts.efa_webhook.is_none() {
                let so = "pods get the annotation that keeps an EFA webhook out";
                facts.notes.push(hidden(&error, "mutating webhooks", so));
            }
        }
    }
    if let Err(error) = classes.as_ref()
        && error.kind() == ErrorKind::Credentials
    {
        let so = "it is not seen whether EFA interfaces are given out by resource claims (DRA)";
        facts.notes.push(hidden(error, "device classes", so));
    }
    if let Ok(classes) = classes {
        let names: Vec<_> = classes.iter().filter_map(|class| class["metadata"]["name"].as_str()).collect();
        if names.contains(&"efa.networking.k8s.aws") {
            facts.notes.push(Finding::warning(
                "K8S-DRA-EFA",
                "this cluster gives out EFA interfaces by resource claims (efa.networking.k8s.aws), not by `vpc.amazonaws.com/efa`",
            ).fix("switch `efa.devices` off and give the job a resource claim template"));
        }
        facts.serves.extend(names.iter().map(|name| format!("DeviceClass {name}")));
    }
    Ok(())
}

/// Returns a quota that counts all pods of the namespace, with its limits and usage; a quota with a scope
/// counts only some of them.
fn quota(object: &Value) -> Option<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let scoped = !spec["scopes"].is_null() || !spec["scopeSelector"].is_null();
    let named = json!({"name": object["metadata"]["name"]});
    (!scoped).then(|| json!({"metadata": named, "hard": status["hard"], "used": status["used"]}))
}

/// Returns whether the cluster adds EFA to a pod that looks like a worker on a whole node, according to a dry
/// run, which stores nothing. None if the user may not create pods, as is usual.
async fn probe(cluster: &Cluster) -> Option<bool> {
    let asked = json!({"nvidia.com/gpu": "8"});
    let container = json!({
        "name": "pytorch", "image": "weftrun-probe", "resources": {"limits": asked, "requests": asked},
    });
    let labels = json!({"training.kubeflow.org/job-name": "weftrun-probe", "training.kubeflow.org/replica-type": "worker"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "weftrun-probe-", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    });
    let made = cluster.create(&Resource::PODS, &pod, super::Write::DryRun).await.ok()?;
    let spec = made["spec"].to_string();
    Some(["vpc.amazonaws.com/efa", "amazon-efa-ofi"].iter().any(|word| spec.contains(word)))
}

/// Returns the answer, or none and a note if the user has no right to read it.
fn readable<T>(answer: Result<T>, facts: &mut ClusterFacts, what: &str, so: &str) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Unreachable => Err(error),
        Err(error) => {
            facts.notes.push(hidden(&error, what, so));
            Ok(None)
        }
    }
}

const HIDDEN: &str = "K8S-HIDDEN";

pub(super) fn hidden(error: &Error, what: &str, so: &str) -> Finding {
    // The missing right follows from the request; any other error is added verbatim.
    let finding = Finding::info(HIDDEN, format!("you may not read {what}, so {so}"));
    if error.kind() == ErrorKind::Credentials { finding } else { finding.at(error.message()) }
}

/// Merges the notes about missing rights into one: most researchers lack several, and that is not an error.
/// The complete notes are logged (`-v`).
pub fn fold_hidden(notes: &mut Vec<Finding>) {
    let is_hidden = |note: &Finding| note.code == HIDDEN && note.subject.is_none();
    let hidden: Vec<Finding> = notes.extract_if(.., |note| is_hidden(note)).collect();
    let names: Vec<&str> = hidden
        .iter()
        .inspect(|note| tracing::info!("{}", note.message))
        .filter_map(|note| {
            note.message.strip_prefix("you may not read ")?.split_once(", so ").map(|(what, _)| what)
        })
        .collect();
    match hidden.as_slice() {
        [] => {}
        [_] => notes.extend(hidden),
        _ => {
            let text = format!("you may not read {}: the plan goes without them", names.join(", "));
            notes.push(Finding::info(HIDDEN, text).fix("run `weftrun doctor` to see what each one affects"));
        }
    }
}

/// Returns whether a webhook changes pods and is about EFA: according to its name, or because its selector
/// names the opt-out annotation.
fn is_efa_webhook(configuration: &Value) -> bool {
    let webhooks = configuration["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    webhooks.iter().any(|webhook| {
        let rules = webhook["rules"].as_array().map_or(&[][..], Vec::as_slice);
        let pods = rules
            .iter()
            .any(|rule| rule["resources"].as_array().is_some_and(|list| list.iter().any(|r| r == "pods")));
        let named = [&configuration["metadata"]["name"], &webhook["name"]]
            .iter()
            .any(|name| name.as_str().is_some_and(|name| name.split(['-', '.']).any(|word| word == "efa")));
        pods && (named || webhook.to_string().contains("disable-auto-efa"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_clouds_are_kept_without_splitting_groups() {
        let node = |serial: &str| {
            json!({"metadata": {"labels": {
                "oci.oraclecloud.com/host.serial_number": serial, "kubernetes.io/hostname": serial,
                "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb", "notazure.com/a": "b",
            }}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
        };
        let groups = node_groups(&[node("a"), node("b")]);
        assert_eq!((groups.len(), groups[0].count), (1, 2));
        let labels: Vec<(&str, &str)> =
            groups[0].labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            labels,
            [
                ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb"),
                ("oci.oraclecloud.com/host.serial_number", "")
            ]
        );
    }

    #[test]
    fn nodes_are_grouped_by_what_they_have() {
        let node = |gpus: u32, disk: &str| {
            json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "p5.48xlarge"}},
                   "status": {"allocatable": {"nvidia.com/gpu": gpus.to_string(), "ephemeral-storage": disk}}})
        };
        let groups = node_groups(&[node(8, "1Ti"), node(8, "2Ti"), node(7, "1Ti")]);
        assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(groups[1].allocatable["nvidia.com/gpu"], "8");
    }

    #[test]
    fn a_webhook_of_pods_named_efa_is_one() {
        let webhook = |name: &str, resource: &str| json!({"metadata": {"name": name}, "webhooks": [{"name": "x", "rules": [{"resources": [resource]}]}]});
        assert!(is_efa_webhook(&webhook("auto-efa-injector", "pods")));
        assert!(!is_efa_webhook(&webhook("auto-efa-injector", "jobs")));
        assert!(!is_efa_webhook(&webhook("prefab.example.com", "pods")));
    }

    #[test]
    fn notes_about_missing_rights_are_one() {
        let error = Error::new(ErrorKind::Credentials, "forbidden");
        let note = |what: &str| hidden(&error, what, "it is assumed");
        let mut notes = vec![note("nodes"), Finding::warning("K8S-NO-RIGHT", "x"), note("resource quotas")];
        fold_hidden(&mut notes);
        let codes: Vec<&str> = notes.iter().map(|note| note.code.as_str()).collect();
        assert_eq!(codes, ["K8S-NO-RIGHT", HIDDEN]);
        assert!(notes[1].message.contains("nodes, resource quotas"), "{}", notes[1].message);
        let mut one = vec![note("nodes")];
        fold_hidden(&mut one);
        assert_eq!(one, [note("nodes")]);
    }
}
