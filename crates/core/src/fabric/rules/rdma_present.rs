//! What a pod already has of an RDMA fabric: it never gets a second device or network.

use super::Context;
use crate::fabric::SkipReason;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{Annotation, JobView, RoleView};

pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const EFA: &str = "vpc.amazonaws.com/efa";

/// Resources by which device plugins give RDMA devices to a pod.
const RESOURCES: [&str; 8] = [
    EFA,
    "rdma/",
    "nvidia.com/rdma",
    "nvidia.com/mlnxnics",
    "nvidia.com/sriov",
    "nvidia.com/hostdev",
    "nscale.com/rdma",
    "networking.gke.io.networks/rdma",
];

/// Words in the names of networks that are RDMA networks.
const NETWORK_WORDS: [&str; 6] = ["rdma", "roce", "sriov", "infiniband", "hostdev", "-macvlan"];

/// Returns what a role has of another device or network than the profile's own.
fn of(
    role: &RoleView,
    own_device: Option<&str>,
    own_networks: &[String],
    host_network: bool,
) -> Option<String> {
    let container = &role.container;
    let resources = container.limits.iter().chain(&container.requests);
    let is_device = |name: &str| RESOURCES.iter().any(|known| name.starts_with(known));
    let device = resources
        .filter(|(name, amount)| amount.as_str() != "0" && Some(name.as_str()) != own_device)
        .find(|(name, _)| is_device(name));
    if let Some((name, _)) = device {
        return Some(format!("the pods request {name}"));
    }
    if role.host_network && host_network {
        return Some("the pods are on the host's network".to_owned());
    }
    let is_own =
        |entry: &str| own_networks.iter().any(|own| own == entry || own.rsplit('/').next() == Some(entry));
    rdma_networks(role).find(|entry| !is_own(entry)).map(|name| format!("the pods are on the network {name}"))
}

/// Returns the networks of a role that are RDMA networks by their names.
fn rdma_networks(role: &RoleView) -> impl Iterator<Item = &str> {
    let networks = role.annotations.get(NETWORKS).and_then(Annotation::text).unwrap_or_default();
    let is_rdma = |entry: &&str| {
        let name = entry.to_ascii_lowercase();
        NETWORK_WORDS.iter().any(|word| name.contains(word))
    };
    networks.split([',', '"', '@']).map(str::trim).filter(is_rdma)
}

/// Returns whether a role is on an RDMA network.
pub fn on_network(role: &RoleView) -> bool {
    rdma_networks(role).next().is_some()
}

/// Reports what a role already has, and returns whether it has anything: then the rules for devices and
/// networks do not apply to it.
pub(super) fn report(
    plan: &mut PlanBuilder,
    role: RoleRef,
    (own_device, own_networks): (Option<&str>, &[String]),
    rules: &[&str],
) -> bool {
    let Some(what) = of(&role, own_device, own_networks, true) else { return false };
    for rule in rules {
        plan.skip_rule(
            rule,
            SkipReason::AlreadyThere,
            format!("{}: {what}, and get no second one", role.name),
        );
    }
    plan.warn(
        role,
        "W-RDMA-PRESENT",
        format!("{what}; no further RDMA device or network is added"),
        "check that the profile is that of this cluster (--profile NAME)",
    );
    true
}

/// Returns what all workers with accelerators have of an RDMA fabric already, if all of them have something.
pub(crate) fn of_all(job: &JobView, accelerator: &str) -> Option<String> {
    let mut found =
        job.workers().filter(|role| role.accelerators(accelerator) > 0).map(|role| of(role, None, &[], true));
    let first = found.next()??;
    found.all(|other| other.is_some()).then_some(first)
}

/// Warns where EFA is added to pods that are on another RDMA fabric: only a profile that was named does so.
pub(super) fn report_beside_efa(ctx: &Context, plan: &mut PlanBuilder) {
    for role in ctx.workers() {
        // EFA devices work on the host's network too.
        if let Some(what) = of(&role, Some(EFA), &[], false) {
            plan.warn(
                role,
                "W-RDMA-PRESENT",
                format!("{what}, another fabric than EFA; nodes with both are rare, and without them the pods stay Pending"),
                "choose the profile of this cluster (--profile NAME), or --fabric off",
            );
        }
    }
}
