//! Names of networks: the user's, the profile's, or those that the cluster has.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::Context;
use crate::Finding;
use crate::fabric::NetworkApi;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::request::Origin;

const NO_NETWORK: &str = "W-NO-NETWORK";
const FIX: &str = "name the networks of this cluster with --network, once for each";

/// A profile's list of interfaces for one cluster.
pub(super) struct Interfaces {
    pub(super) list: Vec<Json>,
    /// Where the names of the networks come from.
    pub(super) origin: Origin,
    /// What to report if the list is written.
    pub(super) finding: Option<Finding>,
}

/// Returns the interfaces of a profile with the names of the networks that the pod is attached to: the
/// user's in order, else the profile's if the cluster has them, else the cluster's if they are as many.
/// `default` stays.
pub(super) fn interfaces(ctx: &Context, role: RoleRef, mut list: Vec<Json>) -> Interfaces {
    let names: Vec<String> = list.iter().filter_map(secondary).map(str::to_owned).collect();
    let of_profile = ctx.of_profile();
    let (names, origin, finding) = if ctx.options.networks.is_empty() {
        match on_cluster(ctx, &names) {
            OnCluster::Unknown | OnCluster::Same => (names, of_profile, None),
            OnCluster::Others(others) => (others, Origin::Cluster, None),
            OnCluster::Missing(there) => {
                let finding = missing(role, &names, &there);
                (names, of_profile, Some(finding))
            }
        }
    } else {
        (ctx.options.networks.clone(), Origin::Job, None)
    };
    let mut names = names.into_iter();
    for member in list.iter_mut().filter(|member| secondary(member).is_some()) {
        if let Some(name) = names.next() {
            member["network"] = json!(name);
        }
    }
    Interfaces { list, origin, finding }
}

fn secondary(member: &Json) -> Option<&str> {
    member.get("network").and_then(Json::as_str).filter(|name| *name != "default")
}

/// What is known about a profile's networks on a cluster of GKE.
enum OnCluster {
    Unknown,
    Same,
    Others(Vec<String>),
    Missing(Vec<String>),
}

fn on_cluster(ctx: &Context, names: &[String]) -> OnCluster {
    let known = || ctx.facts.networks.iter().filter(|network| network.api == NetworkApi::Gke);
    if known().next().is_none() {
        return OnCluster::Unknown;
    }
    if names.iter().all(|name| known().any(|network| network.name == *name)) {
        return OnCluster::Same;
    }
    let mut by_mode: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
    for network in known() {
        by_mode.entry(network.driver.as_deref()).or_default().push(network.name.clone());
    }
    // Which interface is on which network does not matter as long as all pods have the same order.
    let mut as_many: Vec<Vec<String>> =
        by_mode.into_values().filter(|group| group.len() == names.len()).collect();
    match (as_many.pop(), as_many.is_empty()) {
        (Some(mut group), true) => {
            // vpc10 comes after vpc9.
            group.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            OnCluster::Others(group)
        }
        _ => OnCluster::Missing(known().map(|network| network.name.clone()).collect()),
    }
}

/// Reports networks of Multus that do not exist in the job's namespace. Those of other namespaces are not
/// listed.
pub(super) fn check_attachments(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef, names: &[String]) {
    let known: Vec<&str> = ctx
        .facts
        .networks
        .iter()
        .filter(|network| network.api == NetworkApi::Multus)
        .map(|network| network.name.as_str())
        .collect();
    let listed = |namespace: &str| known.iter().any(|name| name.split('/').next() == Some(namespace));
    let absent: Vec<String> = names
        .iter()
        .filter(|name| {
            let namespace = name.split_once('/').map(|(namespace, _)| namespace);
            namespace.is_some_and(listed) && !known.contains(&name.as_str())
        })
        .cloned()
        .collect();
    if !absent.is_empty() {
        let there: Vec<String> = known.into_iter().map(str::to_owned).collect();
        plan.report(missing(role, &absent, &there));
    }
}

fn missing(role: RoleRef, names: &[String], there: &[String]) -> Finding {
    let text =
        format!("the pods are attached to {}, but the cluster has {}", names.join(", "), there.join(", "));
    Finding::warning(NO_NETWORK, text).at(&role.name).fix(FIX)
}
