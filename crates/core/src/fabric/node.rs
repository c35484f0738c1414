//! Known properties of the nodes of a role: from the cluster, the catalogue or, at last, the profile.

use super::Profile;
use crate::Finding;
use crate::catalogue::{Catalogue, InstanceType};
use crate::fabric::view::RoleView;
use crate::fabric::{ClusterFacts, NodeGroup};
use crate::request::{FabricRequest, Origin};
use crate::text::Quantity;

/// Known properties of a role's nodes.
#[derive(Clone, Debug)]
pub struct Node {
    /// The instance type, or several joined by `|`, if any is known.
    pub instance: Option<String>,
    /// A type that was named but is not in the catalogue.
    pub unknown_type: Option<String>,
    /// Accelerators of a whole node.
    pub accelerators: u64,
    /// Whether that is the profile's number, since nothing better is known.
    pub accelerators_assumed: bool,
    /// Number of EFA interfaces that a node offers to pods.
    pub efa: Count,
    /// Whether the EFA device supports RDMA read; none if unknown. A profile that mounts the stack of its nodes
    /// is for nodes that have it.
    pub rdma_read: Option<bool>,
    /// Huge pages that a whole-node worker requests according to the catalogue.
    pub hugepages: Option<String>,
    /// Bytes of huge pages that a node has to give, as far as the cluster or the catalogue says.
    pub hugepages_most: Option<u64>,
    /// Smallest memory of the types, MiB.
    pub memory_mib: Option<u64>,
    /// The catalogue row's name, where there is one.
    pub row: Option<String>,
    /// Rows that differ in what matters, if the role allows several types.
    pub types_differ: bool,
}

/// A number of devices, and its source.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// This many, from the cluster or the catalogue.
    Known(u32, Origin),
    /// The catalogue's sources disagree, so nothing is decided on it.
    Disputed(String),
    /// The number is unknown.
    Unknown,
}

impl Node {
    /// Returns the known properties of a role's nodes.
    pub fn of(
        role: &RoleView,
        queue: Option<&str>,
        profile: &Profile,
        options: &FabricRequest,
        catalogue: &Catalogue,
        facts: &ClusterFacts,
    ) -> Self {
        let asked = role.accelerators(&profile.accelerator);
        let mut types = named_types(role, profile, options);
        let groups = matching(&types, asked, queue, &profile.accelerator, facts);
        if types.is_empty() {
            types = types_of(&groups);
        }
        let rows: Vec<&InstanceType> = types.iter().filter_map(|name| catalogue.get(name)).collect();
        let unknown_type = types.iter().find(|name| catalogue.get(name).is_none()).cloned();
        let from_cluster = groups.iter().filter_map(|group| count_of(group, &profile.accelerator)).min();
        let from_rows = rows.iter().map(|row| u64::from(row.accelerators)).min();
        let known = from_cluster.filter(|count| *count > 0).or(from_rows).or_else(|| of_grace(role, asked));
        Self {
            instance: if types.is_empty() { None } else { Some(types.join(" | ")) },
            unknown_type,
            accelerators: known.unwrap_or_else(|| u64::from(profile.node_accelerators)),
            accelerators_assumed: known.is_none(),
            efa: efa_of(&groups, &rows, profile),
            rdma_read: rdma_read_of(&rows)
                .or_else(|| (rows.is_empty() && profile.mounts_host_path()).then_some(true)),
            hugepages: rows.first().and_then(|row| row.hugepages_2mi.clone()),
            hugepages_most: hugepages_most(&groups, &rows),
            memory_mib: rows.iter().filter_map(|row| row.memory_mib).min(),
            row: rows.first().map(|row| row.name.clone()),
            types_differ: differ(&rows),
        }
    }
}

/// Returns the GPUs of a GB200 or GB300 node, if a worker shows that it is on one: it requests four GPUs of the
/// device plugin, and a channel of a ComputeDomain by a claim, or such a GPU by a label.
fn of_grace(role: &RoleView, asked: u64) -> Option<u64> {
    const GPUS: u64 = 4;
    let labels = || {
        role.node_selector.iter().any(|(key, value)| {
            key == "nvidia.com/gpu.clique" || {
                ["GB200", "GB300"].iter().any(|name| value.to_ascii_uppercase().contains(name))
            }
        })
    };
    (asked == GPUS && (!role.container.claims.is_empty() || labels())).then_some(GPUS)
}

/// Returns the named types, most specific first: the role's, the options', the profile's.
fn named_types(role: &RoleView, profile: &Profile, options: &FabricRequest) -> Vec<String> {
    if role.instance_types.is_empty() {
        options.instance_type.iter().chain(&profile.instance_type).take(1).cloned().collect()
    } else {
        role.instance_types.clone()
    }
}

/// Returns the nodes that a role can run on: those of its type, or else those with as many accelerators as
/// it requests (with more, if none has exactly as many).
fn matching<'f>(
    types: &[String],
    asked: u64,
    queue: Option<&str>,
    accelerator: &str,
    facts: &'f ClusterFacts,
) -> Vec<&'f NodeGroup> {
    let in_queue = |group: &&NodeGroup| {
        queue.is_none_or(|queue| group.queues.is_empty() || group.queues.iter().any(|name| name == queue))
    };
    let bare = |name: &str| name.strip_prefix("ml.").unwrap_or(name).to_owned();
    let of_type = |group: &&NodeGroup| {
        group
            .instance_type
            .as_deref()
            .is_some_and(|name| types.iter().any(|wanted| bare(wanted) == bare(name)))
    };
    let groups = facts.nodes.iter().filter(in_queue);
    if !types.is_empty() {
        return groups.filter(of_type).collect();
    }
    if asked == 0 {
        return Vec::new();
    }
    let enough: Vec<&NodeGroup> =
        groups.filter(|group| count_of(group, accelerator).is_some_and(|count| count >= asked)).collect();
    let exact: Vec<&NodeGroup> =
        enough.iter().copied().filter(|group| count_of(group, accelerator) == Some(asked)).collect();
    if exact.is_empty() { enough } else { exact }
}

pub(super) fn types_of(groups: &[&NodeGroup]) -> Vec<String> {
    let mut types: Vec<String> = groups.iter().filter_map(|group| group.instance_type.clone()).collect();
    types.sort();
    types.dedup();
    types
}

pub(super) fn count_of(group: &NodeGroup, resource: &str) -> Option<u64> {
    group.allocatable.get(resource).and_then(|amount| Quantity::parse(amount)).map(Quantity::whole)
}

/// Returns whether an unlisted resource is missing. A kubelet's list always has `pods`; the lists of Run:ai
/// and Slurm contain only the resources that they manage.
pub(super) fn lists_everything(group: &NodeGroup) -> bool {
    group.allocatable.contains_key("pods")
}

/// Returns the number of EFA interfaces; the cluster's number overrides the catalogue's. The smallest of
/// several, so that the pods fit on each.
fn efa_of(groups: &[&NodeGroup], rows: &[&InstanceType], profile: &Profile) -> Count {
    let resource = profile.efa.as_ref().and_then(|efa| efa.devices.as_deref());
    if let Some(resource) = resource {
        let told = groups.iter().filter_map(|group| match count_of(group, resource) {
            None if lists_everything(group) => Some(0),
            told => told,
        });
        if let Some(least) = told.min() {
            return Count::Known(u32::try_from(least).unwrap_or(u32::MAX), Origin::Cluster);
        }
    }
    if let Some(row) = rows.iter().find(|row| row.efa_max.is_none()) {
        return Count::Disputed(row.name.clone());
    }
    match rows.iter().filter_map(|row| row.efa_max.map(|count| (count, row))).min_by_key(|(count, _)| *count)
    {
        Some((count, row)) => Count::Known(count, Origin::Catalogue(row.name.clone())),
        None => Count::Unknown,
    }
}

impl Node {
    /// Compares a number of EFA interfaces with what the nodes have: an error where it is more, a warning where a worker
    /// on a whole node gets fewer.
    pub fn judge_interfaces(&self, resource: &str, asked: u64) -> Option<Finding> {
        let Count::Known(most, _) = &self.efa else { return None };
        let has = self.instance.as_deref().unwrap_or("the node");
        let finding = if asked > u64::from(*most) {
            let text = format!(
                "{asked} {resource} exceeds instance capacity: {has} has {most}, so the pod would never start"
            );
            Finding::error("E-EFA-CAPACITY", text)
        } else if asked < u64::from(*most) && asked > 0 {
            let text = format!(
                "{asked} of {most} EFA interfaces of {has} are requested; the rest of its bandwidth is unused"
            );
            Finding::warning("W-EFA-PARTIAL", text)
        } else {
            return None;
        };
        Some(finding.fix(format!("request {most}, or remove the line")))
    }
}

/// Returns the bytes of huge pages that pods can get on each of the nodes.
fn hugepages_most(groups: &[&NodeGroup], rows: &[&InstanceType]) -> Option<u64> {
    const MIB: u64 = 1024 * 1024;
    let told = groups.iter().filter_map(|group| match count_of(group, "hugepages-2Mi") {
        None if lists_everything(group) => Some(0),
        told => told,
    });
    let known = rows.iter().filter_map(|row| row.hugepages_2mi_allocatable_mib?.checked_mul(MIB));
    told.min().or_else(|| known.min())
}

/// Returns false as soon as one type lacks RDMA read, since there the setting aborts.
fn rdma_read_of(rows: &[&InstanceType]) -> Option<bool> {
    if rows.iter().any(|row| row.rdma_read == Some(false)) {
        return Some(false);
    }
    rows.first().and_then(|row| row.rdma_read)
}

fn differ(rows: &[&InstanceType]) -> bool {
    rows.windows(2).any(|pair| {
        let key = |row: &InstanceType| (row.accelerators, row.efa_max, row.rdma_read);
        key(pair[0]) != key(pair[1])
    })
}
