//! What no node of a cluster can give a job, with the figures that were read there. A cluster accepts such a job, and it waits
//! for ever.

use super::evidence::{Signs, weigh};
use super::node::{count_of, lists_everything, types_of};
use super::{ClusterFacts, NodeGroup};
use crate::Finding;
use crate::request::Fabric;
use crate::spec::{JobSpec, Role, RoleKind};
use crate::text::listed;
use crate::text::quantity::Quantity;

/// The code of these findings.
pub const LACKS: &str = "CLUSTER-LACKS";
const GPUS: &str = "nvidia.com/gpu";

/// Returns what the nodes of a queue, or of the default one, lack for a job that was planned for a fabric.
///
/// ```
/// use weftrun_core::fabric::{ClusterFacts, Fabric, NodeGroup, fits};
/// use weftrun_core::spec::{JobSpec, Role};
/// let mut group = NodeGroup::default();
/// group.count = 4;
/// group.allocatable = [("nvidia.com/gpu", "8"), ("pods", "110")].map(|(name, amount)| (name.into(), amount.into())).into();
/// let mut facts = ClusterFacts::default();
/// facts.nodes.push(group);
/// let spec = JobSpec::builder("llama").role(Role::worker().gpus_per_node(16).command(["./train"])).build()?;
/// let findings = fits::findings(&spec, Fabric::Auto, &facts, None);
/// assert!(findings[0].message.starts_with("requested 16 GPUs a node, but the nodes of the cluster have at most 8"));
/// # Ok::<(), weftrun_core::Error>(())
/// ```
pub fn findings(spec: &JobSpec, planned: Fabric, facts: &ClusterFacts, queue: Option<&str>) -> Vec<Finding> {
    let default = || facts.queues.iter().find(|queue| queue.default).map(|queue| queue.name.as_str());
    let queue = queue.or_else(default);
    let names: Vec<&str> = queue.into_iter().flat_map(|queue| queue.split(',').map(str::trim)).collect();
    let here = |group: &&NodeGroup| {
        names.is_empty()
            || group.queues.is_empty()
            || group.queues.iter().any(|own| names.contains(&own.as_str()))
    };
    let groups: Vec<&NodeGroup> = facts.nodes.iter().filter(here).collect();
    // A partition that does not exist is the cluster's own refusal.
    if groups.is_empty() {
        return Vec::new();
    }
    let has_queues = groups.iter().any(|group| !group.queues.is_empty());
    let place = match queue {
        Some(queue) if has_queues => format!("partition `{queue}`"),
        _ => "the cluster".to_owned(),
    };
    // Such a cluster adds nodes that it does not have now.
    let grows = groups.iter().any(|group| group.labels.keys().any(|key| key.contains("karpenter")));
    let workers = spec.roles.iter().filter(|role| role.kind != RoleKind::Launcher);
    let lacks = workers.filter_map(|role| {
        lack(role, spec, planned, &groups, &place).map(|(text, fix, sure)| (role, text, fix, sure))
    });
    lacks
        .map(|(role, text, fix, sure)| {
            let finding =
                if sure && !grows { Finding::error(LACKS, text) } else { Finding::warning(LACKS, text) };
            finding.at(&role.name).fix(fix)
        })
        .collect()
}

/// Returns what the nodes lack for a role, what to do, and whether no node can be added that has it.
fn lack(
    role: &Role,
    spec: &JobSpec,
    planned: Fabric,
    groups: &[&NodeGroup],
    place: &str,
) -> Option<(String, String, bool)> {
    let mut groups = groups.to_vec();
    let mut of = format!("the nodes of {place}");
    let wanted = role.instance_type.as_ref().or(spec.fabric.instance_type.as_ref());
    if let Some(wanted) = wanted.filter(|_| groups.iter().all(|group| group.instance_type.is_some())) {
        let bare = |name: &str| name.strip_prefix("ml.").unwrap_or(name).to_owned();
        let types = types_of(&groups);
        groups.retain(|group| group.instance_type.as_deref().is_some_and(|name| bare(name) == bare(wanted)));
        if groups.is_empty() {
            let text = format!(
                "{place} has no {wanted} nodes: it has {}; the job would never start",
                listed(&types, 8)
            );
            return Some((text, "set another `instance_type`, or none".to_owned(), true));
        }
        of = format!("the {wanted} nodes of {place}");
    }
    let asked = |quantity: &Option<String>| Some(Quantity::parse(quantity.as_ref()?)?.whole());
    let gpus = u64::from(role.gpus_per_node);
    let figures = [
        (GPUS, "GPUs", "gpus_per_node", Some(gpus).filter(|gpus| *gpus > 0), 1),
        ("cpu", "CPUs", "cpus", asked(&role.cpus), 1),
        ("memory", "GiB of memory", "memory", asked(&role.memory), 1 << 30),
    ];
    for (resource, what, key, asked, unit) in figures {
        let Some(asked) = asked else { continue };
        let amounts: Option<Vec<u64>> = groups.iter().map(|group| amount(group, resource)).collect();
        let Some(amounts) = amounts else { continue };
        let most = amounts.iter().copied().max().unwrap_or(0);
        if most < asked {
            let have = if most == 0 { "none".to_owned() } else { format!("at most {}", most / unit) };
            let text = format!(
                "requested {} {what} a node, but {of} have {have}; the job would never start",
                asked.div_ceil(unit)
            );
            // A pool that is scaled to zero has no nodes to look at.
            let sure = most > 0 || !groups.iter().any(|group| lists_everything(group));
            return Some((text, format!("set a lower `{key}`, or use other nodes"), sure));
        }
        let mut enough = amounts.iter().map(|amount| *amount >= asked);
        groups.retain(|_| enough.next() == Some(true));
        of = format!("{of} with {} {what}", asked.div_ceil(unit)).replacen(
            " with",
            if of.contains(" with ") { " and" } else { " with" },
            1,
        );
    }
    fabric(role, spec, planned, &groups, place)
}

/// Returns what the nodes lack for the fabric: they show another, or some of them do.
fn fabric(
    role: &Role,
    spec: &JobSpec,
    planned: Fabric,
    groups: &[&NodeGroup],
    place: &str,
) -> Option<(String, String, bool)> {
    let has_rules = |fabric: Fabric| matches!(fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand);
    let requested = spec.fabric.kind;
    if !has_rules(planned) && !has_rules(requested) {
        return None;
    }
    let asked = if has_rules(requested) { requested } else { planned };
    let shown: Vec<(&NodeGroup, Option<Fabric>)> =
        groups.iter().map(|group| (*group, shown(group))).collect();
    let (with, without): (Vec<_>, Vec<_>) =
        shown.iter().copied().partition(|(_, fabric)| *fabric == Some(asked));
    let others: Vec<(&NodeGroup, Option<Fabric>)> =
        without.into_iter().filter(|(_, fabric)| fabric.is_some()).collect();
    let (_, other) = others.first()?;
    let told = |of: &[(&NodeGroup, Option<Fabric>)]| {
        let groups: Vec<&NodeGroup> = of.iter().map(|(group, _)| *group).collect();
        let count: u32 = groups.iter().map(|group| group.count).sum();
        let types = types_of(&groups);
        if types.is_empty() {
            format!("{count} nodes")
        } else {
            format!("{count} nodes, {}", listed(&types, 4))
        }
    };
    let name = |fabric: Fabric| fabric.as_str().to_owned();
    let other = other.map_or_else(String::new, name);
    if with.is_empty() {
        let all = others.len() == shown.len();
        let text = format!(
            "requested the fabric {asked}, but the nodes of {place} show {other} ({})",
            told(&others)
        );
        let fix = format!(
            "set `fabric = \"{other}\"`, or name a partition, a node selector or an instance type whose nodes have {asked}"
        );
        return (all && has_rules(requested)).then_some((text, fix, true));
    }
    // Kubernetes places pods by the devices that they request.
    let placed = groups.iter().any(|group| lists_everything(group));
    let text = format!(
        "{place} has nodes with {asked} ({}) and nodes with {other} ({}): a job on both would not connect",
        told(&with),
        told(&others)
    );
    let fix = "choose one kind with `instance_type`, or with `constraint` in [backend.slurm]".to_owned();
    (!placed && role.nodes > 1 && role.instance_type.is_none() && !is_constrained(spec))
        .then_some((text, fix, true))
}

/// Returns whether the job itself says which nodes of a partition it may use.
fn is_constrained(spec: &JobSpec) -> bool {
    let own = spec.backend.values();
    own.into_iter().any(|own| {
        ["constraint", "nodelist"].iter().any(|key| own.get(key).is_some_and(|value| !value.is_null()))
    })
}

/// Returns how much of a resource a node has, if that is known.
fn amount(group: &NodeGroup, resource: &str) -> Option<u64> {
    let is_managed = lists_everything(group) || !group.queues.is_empty() && resource == GPUS;
    count_of(group, resource).or(is_managed.then_some(0))
}

/// Returns the fabric that nodes show by their devices, resources, features and type.
fn shown(group: &NodeGroup) -> Option<Fabric> {
    if let Some(fabric) = group.devices.iter().find_map(|kind| kind.fabric()) {
        return Some(fabric);
    }
    let mut facts = ClusterFacts::default();
    facts.nodes.push(group.clone());
    let mut signs = Signs::default();
    signs.facts(&facts);
    weigh(&signs.all).sure_fabric()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{DeviceKind, Queue};

    fn group(count: u32, allocatable: &[(&str, &str)]) -> NodeGroup {
        let allocatable =
            allocatable.iter().map(|(name, amount)| ((*name).into(), (*amount).into())).collect();
        NodeGroup { count, allocatable, ..NodeGroup::default() }
    }

    fn facts(nodes: Vec<NodeGroup>) -> ClusterFacts {
        ClusterFacts { nodes, ..ClusterFacts::default() }
    }

    fn job(role: Role, fabric: Fabric) -> JobSpec {
        JobSpec::builder("a").role(role.nodes(2).command(["./train"])).fabric(fabric).build().unwrap()
    }

    fn cpus(mut role: Role, cpus: &str) -> Role {
        role.cpus = Some(cpus.to_owned());
        role
    }

    fn said(role: Role, fabric: Fabric, facts: &ClusterFacts, queue: Option<&str>) -> Vec<String> {
        let found = findings(&job(role, fabric), fabric, facts, queue);
        found.into_iter().map(|finding| format!("{}: {}", finding.severity, finding.message)).collect()
    }

    /// A cluster of Kubernetes: all that its nodes have is listed.
    fn kubernetes() -> ClusterFacts {
        let mut gpus =
            group(4, &[("nvidia.com/gpu", "8"), ("cpu", "191500m"), ("memory", "2000Gi"), ("pods", "110")]);
        gpus.instance_type = Some("p5.48xlarge".to_owned());
        let mut cpus = group(3, &[("cpu", "256"), ("memory", "64Gi"), ("pods", "110")]);
        cpus.instance_type = Some("c7i.metal".to_owned());
        facts(vec![gpus, cpus])
    }

    #[test]
    fn what_no_node_has_is_said_with_what_they_have() {
        let worker = Role::worker;
        let cases = [
            (
                worker().gpus_per_node(16),
                "error: requested 16 GPUs a node, but the nodes of the cluster have at most 8; the job would never start",
            ),
            (
                cpus(worker(), "500"),
                "error: requested 500 CPUs a node, but the nodes of the cluster have at most 256; the job would never start",
            ),
            // The nodes with many CPUs have no GPUs.
            (
                cpus(worker().gpus_per_node(8), "200"),
                "error: requested 200 CPUs a node, but the nodes of the cluster with 8 GPUs have at most 191; the job would never start",
            ),
            (
                worker().gpus_per_node(8).memory("9000Gi"),
                "error: requested 9000 GiB of memory a node, but the nodes of the cluster with 8 GPUs have at most 2000; the job would never start",
            ),
            (
                worker().instance_type("p4d.24xlarge"),
                "error: the cluster has no p4d.24xlarge nodes: it has c7i.metal, p5.48xlarge; the job would never start",
            ),
            (
                worker().instance_type("c7i.metal").gpus_per_node(1),
                "warning: requested 1 GPUs a node, but the c7i.metal nodes of the cluster have none; the job would never start",
            ),
        ];
        for (role, wanted) in cases {
            assert_eq!(said(role, Fabric::Auto, &kubernetes(), None), [wanted]);
        }
        let fits = cpus(worker().gpus_per_node(8).memory("1800Gi").instance_type("ml.p5.48xlarge"), "190");
        assert_eq!(said(fits, Fabric::Auto, &kubernetes(), None), [""; 0]);
        assert_eq!(
            said(worker().gpus_per_node(16), Fabric::Auto, &ClusterFacts::default(), None),
            [""; 0],
            "nothing was seen"
        );
        // Such a cluster adds nodes.
        let mut grows = kubernetes();
        grows.nodes[0].labels.insert("karpenter.sh/nodepool".to_owned(), "gpu".to_owned());
        assert!(said(worker().gpus_per_node(16), Fabric::Auto, &grows, None)[0].starts_with("warning"));
    }

    /// A partition with nodes of two fabrics, and one of one.
    fn slurm() -> ClusterFacts {
        let of = |queue: &str, features: &[&str], kind: &str| {
            let mut group = group(2, &[("nvidia.com/gpu", "8"), ("cpu", "96")]);
            group.queues = vec![queue.to_owned()];
            group.labels = features.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect();
            group.instance_type = Some(kind.to_owned());
            group
        };
        let mut cpus = group(9, &[("cpu", "16")]);
        cpus.queues = vec!["small".to_owned()];
        let efa = of("mixed", &["efa"], "p5.48xlarge");
        let mut facts =
            facts(vec![efa, of("mixed", &["ib", "hdr"], "dgx"), of("ib", &["ib", "hdr"], "dgx"), cpus]);
        let mut queue = Queue::default();
        (queue.name, queue.default) = ("small".to_owned(), true);
        facts.queues.push(queue);
        facts
    }

    #[test]
    fn one_job_gets_nodes_of_one_fabric() {
        let gpus = || Role::worker().gpus_per_node(8);
        let mixed = "error: partition `mixed` has nodes with efa (2 nodes, p5.48xlarge) and nodes with infiniband (2 nodes, dgx): a job on both would not connect";
        assert_eq!(said(gpus(), Fabric::Efa, &slurm(), Some("mixed")), [mixed]);
        assert_eq!(said(gpus().instance_type("p5.48xlarge"), Fabric::Efa, &slurm(), Some("mixed")), [""; 0]);
        let none =
            "error: requested the fabric efa, but the nodes of partition `ib` show infiniband (2 nodes, dgx)";
        assert_eq!(said(gpus(), Fabric::Efa, &slurm(), Some("ib")), [none]);
        assert_eq!(said(gpus(), Fabric::InfiniBand, &slurm(), Some("ib")), [""; 0]);
        // A job without a partition runs in the default one.
        let default = "error: requested 1 GPUs a node, but the nodes of partition `small` have none; the job would never start";
        assert_eq!(said(Role::worker().gpus_per_node(1), Fabric::Auto, &slurm(), None), [default]);
        let mut spec = job(gpus(), Fabric::Efa);
        spec.backend.insert("slurm".to_owned(), serde_json::json!({"constraint": "efa"}));
        assert_eq!(findings(&spec, Fabric::Efa, &slurm(), Some("mixed")), []);
    }

    #[test]
    fn hosts_show_their_devices() {
        let mut host = group(4, &[("nvidia.com/gpu", "0"), ("cpu", "16")]);
        host.devices.insert(DeviceKind::Roce);
        let facts = facts(vec![host]);
        assert!(said(Role::worker().gpus_per_node(1), Fabric::Auto, &facts, None)[0].contains("have none"));
        assert!(said(Role::worker(), Fabric::Efa, &facts, None)[0].contains("show roce (4 nodes)"));
        assert_eq!(said(Role::worker(), Fabric::Roce, &facts, None), [""; 0]);
    }
}
