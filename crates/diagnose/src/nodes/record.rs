//! What is kept of a job that has ended: one line of the history of its target.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::Confidence;
use weftrun_core::job::{JobDetail, JobPhase, ReplicaStatus, TASK_ROLE};
use weftrun_core::spec::is_node_name;

use super::Fault;
use crate::cause::{Cause, Why};

/// Most nodes of a job that are kept.
const MOST_NODES: usize = 16_384;
/// Longest text of a cause that is kept, in characters.
const LONGEST_TEXT: usize = 200;

/// A job that has ended, as it is kept in the history of its target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobRecord {
    /// Its handle.
    pub job: String,
    /// Of a task, the array or the set that it belongs to: the handle of the array, or the id of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Its number among the tasks of that array or set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// Which of its runs under this handle, from 0: the cluster may have started it again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// Which start of the processes within that run, from 0, where the job's launcher starts them again and says so (NVRx).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<u32>,
    /// The job's name.
    #[serde(default)]
    pub name: String,
    /// When it ended.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// Its nodes, as the cluster calls them.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The GPUs of all its nodes; none where the job was submitted elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// The fabric that its logs show; none where they show none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<String>,
    /// How it ended: `succeeded`, `failed` or `cancelled`; `unknown` where nobody says it.
    pub outcome: JobPhase,
    /// The first cause of its failure, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseRecord>,
    /// Nodes that were named as slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowNode>,
    /// What its collectives reached, where they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bandwidth: Vec<BandwidthRecord>,
    /// Whether later benchmarks are compared with those figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baseline: bool,
}

/// What tells a run from all others: a failure that is seen of an array and of its task, or through two handles, is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId<'r> {
    /// The array or the set, else the job.
    pub job: Cow<'r, str>,
    /// The number of the task.
    pub task: Option<u32>,
    /// The run under the handle.
    pub attempt: u32,
    /// The start of the processes within it.
    pub cycle: Option<u32>,
}

impl RunId<'_> {
    /// Returns it with a copy of the name.
    pub fn into_owned(self) -> RunId<'static> {
        RunId { job: Cow::Owned(self.job.into_owned()), ..self }
    }
}

/// The first cause of a failure, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CauseRecord {
    /// The kind of the cause.
    pub class: String,
    /// The code of its rule.
    pub code: String,
    /// Whose failure it is, where not the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The nodes that it names, as the cluster calls them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// What happened.
    pub what: String,
    /// How sure that is.
    pub confidence: Confidence,
}

/// A node that was named as slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SlowNode {
    /// The node.
    pub node: String,
    /// By what.
    pub why: String,
    /// How sure that is.
    pub confidence: Confidence,
}

impl SlowNode {
    /// Makes one.
    pub fn new(node: impl Into<String>, why: impl Into<String>, confidence: Confidence) -> Self {
        Self { node: node.into(), why: why.into(), confidence }
    }
}

/// A measured figure of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct BandwidthRecord {
    /// The collective, where it is known.
    pub collective: Option<String>,
    /// The number of nodes, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The number of ranks, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Bytes.
    pub size: u64,
    /// Bus bandwidth, GB/s.
    pub busbw: f64,
}

impl BandwidthRecord {
    /// Makes one.
    pub fn new(collective: Option<String>, size: u64, busbw: f64) -> Self {
        Self { collective, nodes: None, ranks: None, size, busbw }
    }

    /// Adds among how many nodes and ranks it was measured.
    #[must_use]
    pub fn among(self, nodes: Option<u32>, ranks: Option<u32>) -> Self {
        Self { nodes, ranks, ..self }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl JobRecord {
    /// Makes the record of a job of which nothing is known but its end.
    pub fn new(job: impl Into<String>, at: Timestamp, outcome: JobPhase) -> Self {
        Self {
            job: job.into(),
            set: None,
            task: None,
            attempt: 0,
            cycle: None,
            name: String::new(),
            at,
            nodes: Vec::new(),
            gpus: None,
            fabric: None,
            outcome,
            cause: None,
            slow: Vec::new(),
            bandwidth: Vec::new(),
            baseline: false,
        }
    }

    /// Makes the record of a job from its description and the answer to why it ended so; none for one that has not ended. `now`
    /// is its time where the cluster does not say when it ended.
    pub fn of(detail: &JobDetail, why: Option<&Why>, now: Timestamp) -> Option<Self> {
        let summary = &detail.summary;
        if !summary.phase.is_terminal() {
            return None;
        }
        let mut record = Self::new(summary.handle.to_string(), summary.ended.unwrap_or(now), summary.phase);
        record.name.clone_from(&summary.name);
        record.attempt = detail.replicas.iter().map(|replica| replica.restarts).max().unwrap_or(0);
        let mut nodes: Vec<&String> =
            detail.replicas.iter().filter_map(|replica| replica.node.as_ref()).collect();
        nodes.sort();
        nodes.dedup();
        record.nodes =
            nodes.into_iter().filter(|node| is_node_name(node)).take(MOST_NODES).cloned().collect();
        let cause = why.and_then(|why| why.cause.as_ref()).filter(|_| summary.phase != JobPhase::Succeeded);
        record.cause = cause.map(|cause| CauseRecord::of(cause, detail));
        Some(record)
    }

    /// Returns what was submitted as one: the array or the set of a task, else the job. Its runs are not independent of each other.
    pub fn submitted(&self) -> &str {
        self.set.as_deref().unwrap_or(&self.job)
    }

    /// Returns which run it is about.
    pub fn run(&self) -> RunId<'_> {
        RunId {
            job: Cow::Borrowed(self.submitted()),
            task: self.task,
            attempt: self.attempt,
            cycle: self.cycle,
        }
    }

    /// Takes over what an earlier record of the same run knew and this one does not.
    #[must_use]
    pub fn over(mut self, earlier: &Self) -> Self {
        // The cluster may not say when the job ended: then it is the time of the first look.
        self.at = self.at.min(earlier.at);
        if self.nodes.is_empty() {
            self.nodes.clone_from(&earlier.nodes);
        }
        // A later look may know less: the logs of a node are gone, or an exit code alone is left.
        let proves = |record: &Self| record.cause.as_ref().is_some_and(CauseRecord::is_evidence);
        if self.outcome == earlier.outcome && (self.cause.is_none() || proves(earlier) && !proves(&self)) {
            self.cause.clone_from(&earlier.cause);
        }
        if self.slow.is_empty() {
            self.slow.clone_from(&earlier.slow);
        }
        if self.bandwidth.is_empty() {
            self.bandwidth.clone_from(&earlier.bandwidth);
        }
        self.baseline |= earlier.baseline;
        self.gpus = self.gpus.or(earlier.gpus);
        self.fabric = self.fabric.or_else(|| earlier.fabric.clone());
        self
    }
}

impl CauseRecord {
    /// Makes the record of a cause, whose nodes get the names that the cluster has for them.
    pub fn of(cause: &Cause, detail: &JobDetail) -> Self {
        let mut nodes: Vec<String> =
            cause.nodes.iter().filter_map(|name| cluster_node(name, detail)).collect();
        if cause.nodes.is_empty() {
            nodes = unnamed_nodes(cause, detail);
        }
        nodes.sort();
        nodes.dedup();
        let fault = Fault::of(cause);
        // Such a line proves the node, though not which of its ranks failed.
        let is_proof = fault == Some(Fault::Hardware) && nodes.len() == 1;
        let confidence = if is_proof { cause.confidence.max(Confidence::Medium) } else { cause.confidence };
        Self {
            class: cause.class.as_str().to_owned(),
            code: cause.code.clone(),
            fault,
            nodes,
            what: weftrun_core::mask::mask(&cause.what).chars().take(LONGEST_TEXT).collect(),
            confidence,
        }
    }

    /// Returns the fault where it counts against a node: what is too uncertain does not.
    pub(super) fn fault_of_node(&self) -> Option<Fault> {
        self.fault.filter(|fault| fault.is_of_node() && self.confidence > Confidence::Low)
    }

    /// Returns whether it is evidence against nodes that it names.
    fn is_evidence(&self) -> bool {
        self.fault_of_node().is_some() && !self.nodes.is_empty()
    }
}

/// Returns the cluster's name of a host that a log names: the node itself, the node of the pod, or the node with this first
/// label. A name that fits no node of the job, or several, is none: nobody is blamed for it.
fn cluster_node(name: &str, detail: &JobDetail) -> Option<String> {
    let replicas = || detail.replicas.iter().filter_map(|replica| Some((replica, replica.node.as_deref()?)));
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let by = |fits: &dyn Fn(&str, &str) -> bool| {
        let mut found: Vec<&str> =
            replicas().filter(|(replica, node)| fits(&replica.name, node)).map(|(_, node)| node).collect();
        found.sort_unstable();
        found.dedup();
        match found.as_slice() {
            [one] if is_node_name(one) => Some((*one).to_owned()),
            _ => None,
        }
    };
    by(&|_, node| node == name)
        .or_else(|| by(&|replica, _| replica == name))
        .or_else(|| by(&|_, node| label(node) == label(name)))
}

/// Returns the nodes of a cause of which no log names a host: those of its ranks, else that of the line that proves it.
pub(crate) fn unnamed_nodes(cause: &Cause, detail: &JobDetail) -> Vec<String> {
    let nodes = node_of_ranks(&cause.ranks, detail);
    if !nodes.is_empty() {
        return nodes;
    }
    let source = cause.evidence.first().and_then(|line| node_of_source(&line.source, detail));
    // Where the job has one node, it can have been nowhere else.
    let only = || match detail.replicas.as_slice() {
        [only] => only.node.clone().filter(|node| is_node_name(node)),
        _ => None,
    };
    source.or_else(only).into_iter().collect()
}

/// Returns the node of the replica that wrote a line: a source is named as its replica, or of Slurm by the number of the node
/// among those of the job.
fn node_of_source(source: &str, detail: &JobDetail) -> Option<String> {
    let wrote = |name: &str| {
        let rest = source.strip_prefix(name).filter(|_| !name.is_empty());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
    };
    let mut named = detail.replicas.iter().filter(|replica| wrote(&replica.name));
    let replica = match (named.next(), named.next()) {
        (Some(replica), None) => replica,
        _ => {
            let number: usize = source.strip_prefix("node")?.parse().ok()?;
            // The nodes of one task all have its number.
            let task =
                detail.replicas.first().map(|first| first.index).filter(|_| detail.summary.tasks.is_none());
            let is_in_order = |(at, replica): (usize, &ReplicaStatus)| {
                replica.index as usize == at || replica.role == TASK_ROLE && Some(replica.index) == task
            };
            detail.replicas.get(number).filter(|_| detail.replicas.iter().enumerate().all(is_in_order))?
        }
    };
    replica.node.clone().filter(|node| is_node_name(node))
}

/// Returns the node of ranks of which no log names a host: the only one of the job, or that of the replica that the cluster says
/// the rank failed in.
fn node_of_ranks(ranks: &[u32], detail: &JobDetail) -> Vec<String> {
    if ranks.is_empty() {
        return Vec::new();
    }
    let of = |replica: &&ReplicaStatus| replica.failed_rank.is_some_and(|rank| ranks.contains(&rank));
    let nodes = |all: bool| {
        let chosen = detail.replicas.iter().filter(|replica| all || of(replica));
        let mut nodes: Vec<String> = chosen.filter_map(|replica| replica.node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        nodes.retain(|node| is_node_name(node));
        nodes
    };
    let all = nodes(true);
    if all.len() == 1 { all } else { nodes(false) }
}
