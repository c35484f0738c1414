//! The NVLink domains of a job: what a ComputeDomain says of the nodes on which the job's pods run. Read only, and pure.
//!
//! The status of a domain is not always right: it was seen `NotReady` while jobs ran, and `Ready` while memory could not be shared
//! (<https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1486>, `/1417`, read 2026-11-25). So it is told, and never called the
//! cause.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weftrun_core::Finding;
use weftrun_core::text::listed;

use crate::kubernetes::Pod;

const CODE: &str = "K8S-NVLINK-DOMAIN";
/// Largest number of nodes or pods named in one message.
const MOST_NAMED: usize = 6;

/// A ComputeDomain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Domain {
    name: String,
    /// The template of the claims by which pods join it.
    template: String,
    nodes: BTreeMap<String, Member>,
}

/// A node of a domain.
#[derive(Clone, Debug, Default, PartialEq)]
struct Member {
    /// The cluster's UUID and the number of the clique: `UUID.4026`.
    clique: String,
    /// Whether the IMEX daemon of the node is ready; none where the driver does not say.
    ready: Option<bool>,
}

impl Domain {
    /// Reads an object.
    pub fn of_json(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = object["status"]["nodes"].as_array().into_iter().flatten().map(|node| {
            let ready =
                node["status"].as_str().filter(|status| !status.is_empty()).map(|status| status == "Ready");
            (text(&node["name"]), Member { clique: text(&node["cliqueID"]), ready })
        });
        Self {
            name: text(&object["metadata"]["name"]),
            template: text(&object["spec"]["channel"]["resourceClaimTemplate"]["name"]),
            nodes: nodes.collect(),
        }
    }
}

/// Returns whether any pod claims something by a template, so that domains matter.
pub fn may_have(pods: &[&Pod]) -> bool {
    pods.iter().any(|pod| !pod.claim_templates.is_empty())
}

/// Returns what the domains that the pods of a job claim say of their nodes.
pub fn findings(domains: &[Domain], pods: &[&Pod]) -> Vec<Finding> {
    domains.iter().filter(|domain| !domain.template.is_empty()).flat_map(|domain| of(domain, pods)).collect()
}

fn of(domain: &Domain, pods: &[&Pod]) -> Vec<Finding> {
    let name = format!("ComputeDomain/{}", domain.name);
    let claims =
        |pod: &&&Pod| pod.claim_templates.contains(&domain.template) && !pod.ended() && !pod.deleting;
    let nodes: BTreeSet<&str> = pods.iter().filter(claims).filter_map(|pod| pod.node.as_deref()).collect();
    let members: Vec<(&str, &Member)> =
        nodes.iter().filter_map(|node| Some((*node, domain.nodes.get(*node)?))).collect();
    let mut all = Vec::new();
    // A domain without any node reports none, or has not begun.
    let outside: Vec<&str> = nodes.iter().copied().filter(|node| !domain.nodes.contains_key(*node)).collect();
    if !outside.is_empty() && !domain.nodes.is_empty() {
        let message = format!(
            "pods of the job run on {}, which the domain does not have among its nodes: memory is not shared with them over NVLink",
            listed(&outside, MOST_NAMED)
        );
        let fix = "see whether the pod of the IMEX daemon runs on that node (`kubectl get pods -A -o wide | grep compute-domain`), and whether the node is in another rack (label nvidia.com/gpu.clique)";
        all.push(Finding::warning(CODE, message).at(&name).fix(fix));
    }
    let mut cliques: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, member) in members.iter().filter(|(_, member)| !member.clique.is_empty()) {
        cliques.entry(&member.clique).or_default().push(node);
    }
    if cliques.len() > 1 {
        let parts: Vec<String> = cliques
            .iter()
            .map(|(clique, nodes)| format!("{} in {clique}", listed(nodes, MOST_NAMED)))
            .collect();
        let message = format!(
            "the nodes of the job are in {} NVLink cliques ({}): between these the network carries the data",
            cliques.len(),
            parts.join("; ")
        );
        let fix = "nothing, if the job needs more GPUs than a clique has; else ask for nodes of one (label nvidia.com/gpu.clique, a topology of Kueue)";
        all.push(Finding::info(CODE, message).at(&name).fix(fix));
    }
    let late: Vec<&str> =
        members.iter().filter(|(_, member)| member.ready == Some(false)).map(|(node, _)| *node).collect();
    if !late.is_empty() {
        let message = format!(
            "the IMEX daemon on {} is not ready by the domain's status, which is not always right",
            listed(&late, MOST_NAMED)
        );
        let fix = "if the job fails to share memory, ask the daemon itself: `nvidia-imex-ctl -N` on the node";
        all.push(Finding::info(CODE, message).at(&name).fix(fix));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(number: u32, node: &str, template: &str) -> Pod {
        Pod::of_json(&json!({
            "metadata": {"name": format!("a-worker-{number}"), "uid": number.to_string()},
            "spec": {"nodeName": node, "containers": [{"name": "pytorch"}],
                     "resourceClaims": [{"name": "imex", "resourceClaimTemplateName": template}]},
            "status": {"phase": "Running"},
        }))
    }

    /// A fixture: made after the API's types, not recorded.
    fn domain(nodes: &Value) -> Domain {
        Domain::of_json(&json!({
            "metadata": {"name": "a-domain"},
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "a-imex"}}},
            "status": {"status": "NotReady", "nodes": nodes},
        }))
    }

    fn node(name: &str, clique: &str, status: &str) -> Value {
        json!({"name": name, "ipAddress": "10.0.0.1", "cliqueID": clique, "index": 0, "status": status})
    }

    fn told(domain: Domain, pods: &[Pod]) -> Vec<(String, String)> {
        let pods: Vec<&Pod> = pods.iter().collect();
        let said = findings(&[domain], &pods);
        said.into_iter().map(|finding| (finding.severity.to_string(), finding.message)).collect()
    }

    #[test]
    fn a_job_inside_its_domain_says_nothing_whatever_the_domain_says_of_itself() {
        let pods = [pod(0, "n1", "a-imex"), pod(1, "n2", "a-imex")];
        let well =
            json!([node("n1", "5f.1", "Ready"), node("n2", "5f.1", "Ready"), node("n9", "6e.1", "NotReady")]);
        assert_eq!(told(domain(&well), &pods), []);
        assert_eq!(told(domain(&Value::Null), &pods), [], "a domain that reports no node proves nothing");
        assert_eq!(
            told(domain(&json!([node("n9", "6e.1", "Ready")])), &[pod(0, "n1", "other")]),
            [],
            "of another job"
        );
        assert!(!may_have(&[&Pod::of_json(&json!({"spec": {"containers": []}}))]));
    }

    #[test]
    fn nodes_outside_other_cliques_and_daemons_that_are_not_ready_are_told() {
        let pods = [pod(0, "n1", "a-imex"), pod(1, "n2", "a-imex"), pod(2, "n3", "a-imex")];
        let said = told(domain(&json!([node("n1", "5f.7", "Ready"), node("n2", "6e.7", "NotReady")])), &pods);
        let severities: Vec<&str> = said.iter().map(|(severity, _)| severity.as_str()).collect();
        assert_eq!(severities, ["warning", "info", "info"]);
        assert!(
            said[0].1.starts_with("pods of the job run on n3, which the domain does not have"),
            "{said:?}"
        );
        assert!(said[1].1.contains("2 NVLink cliques (n1 in 5f.7; n2 in 6e.7)"), "{said:?}");
        assert!(said[2].1.starts_with("the IMEX daemon on n2 is not ready"), "{said:?}");
    }
}
