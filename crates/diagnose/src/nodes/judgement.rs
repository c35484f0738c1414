//! Judges nodes by the jobs that ran on them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use weftrun_core::Confidence;
use weftrun_core::fabric::NodeState;
use weftrun_core::text::counted;

use super::{CauseRecord, Fault, JobRecord, RunId};

/// How long an event counts against a node: it may have been repaired since.
pub const WINDOW: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The number of independent events that make a suspect, where none proves a fault of the hardware.
pub const LEAST_EVENTS: usize = 2;
/// The number of nodes with one event from which on the rate of such events is known.
const KNOWN_RATE: usize = 10;
/// The number of good nodes that may be judged suspects by chance, of all nodes together.
const BY_CHANCE: f64 = 0.05;

word_enum! {
    /// What the history says of a node.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Judgement {
        /// Nothing counts against it.
        #[default]
        Clear = "clear",
        /// Something counts against it, and it is too little for a judgement.
        Watched = "watched",
        /// It failed by itself: two independent events, or one that proves a fault of its hardware.
        Suspect = "suspect",
    }
}

/// The runs of jobs that are no longer kept one by one, for each node.
pub type FoldedRuns = BTreeMap<String, NodeRuns>;

/// The runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRuns {
    /// Number of jobs that ran on it.
    pub runs: u32,
    /// When the last of them ended.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub last: Timestamp,
}

/// Something that counts against a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeEvent {
    /// When the job ended.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// The job's handle.
    pub job: String,
    /// The array or the set of which the job is a task; null for a job of one.
    pub set: Option<String>,
    /// The code of the rule that found it; null for a node that was named as slow.
    pub code: Option<String>,
    /// Whose failure it is; null for a node that was named as slow.
    pub fault: Option<Fault>,
    /// What happened.
    pub what: String,
    /// Whether it counts still: events of more than 90 days ago do not.
    pub counts: bool,
}

/// A node, as the history shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NodeReport {
    /// Its name, as the cluster calls it.
    pub node: String,
    /// Number of jobs that ran on it.
    pub runs: u32,
    /// Number of failures that were its own.
    pub failures: u32,
    /// Number of times that it was named as slow.
    pub slow: u32,
    /// When the last job on it ended; null if none is known.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_seen: Option<Timestamp>,
    /// What the history says of it.
    pub judgement: Judgement,
    /// The evidence for the judgement, in one line; empty where nothing counts against it.
    pub evidence: String,
    /// What the cluster itself says of it now; empty where it says nothing or was not asked.
    pub cluster: Vec<NodeState>,
    /// What counts against it, the newest first.
    pub events: Vec<NodeEvent>,
}

impl NodeReport {
    /// Makes the report of a node of which nothing is known.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            runs: 0,
            failures: 0,
            slow: 0,
            last_seen: None,
            judgement: Judgement::Clear,
            evidence: String::new(),
            cluster: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Returns whether jobs had better leave it out.
    pub fn is_suspect(&self) -> bool {
        self.judgement == Judgement::Suspect
    }

    fn ran(&mut self, runs: u32, at: Timestamp) {
        self.runs = self.runs.saturating_add(runs);
        self.last_seen = self.last_seen.max(Some(at));
    }

    /// Returns the number of jobs whose events count against it. The tasks of an array are one: one program on one node may fail as
    /// often as it has tasks.
    fn independent(&self) -> usize {
        let counting = self.events.iter().filter(|event| event.counts);
        let jobs: BTreeSet<&str> = counting.map(|event| event.set.as_deref().unwrap_or(&event.job)).collect();
        jobs.len()
    }

    fn proof(&self) -> Option<&NodeEvent> {
        self.events.iter().find(|event| event.counts && event.fault == Some(Fault::Hardware))
    }
}

/// Judges every node that a history names, the worst first. A later record of a run replaces an earlier one. Linear in the
/// records.
pub fn judge(records: &[JobRecord], folded: &FoldedRuns, now: Timestamp) -> Vec<NodeReport> {
    let records = latest(records);
    let mut nodes: HashMap<&str, NodeReport> = HashMap::new();
    for (node, runs) in folded {
        nodes.entry(node).or_insert_with(|| NodeReport::new(node)).ran(runs.runs, runs.last);
    }
    // The job's own record is of the same runs as those of its cycles.
    let in_cycles: HashSet<RunId<'_>> =
        records.iter().filter(|record| record.cycle.is_some()).map(|record| job_run(record)).collect();
    let is_cut = |record: &JobRecord| record.cycle.is_none() && in_cycles.contains(&record.run());
    for record in records.iter().filter(|record| !is_cut(record)) {
        for node in &record.nodes {
            nodes.entry(node).or_insert_with(|| NodeReport::new(node)).ran(1, record.at);
        }
    }
    let counts = |record: &JobRecord| now.duration_since(record.at) <= WINDOW;
    let recent: Vec<&JobRecord> = records.iter().copied().filter(|record| counts(record)).collect();
    // A node that was repaired since is no common end of what fails now; what is old is listed by all that is known.
    let (ends_now, ends_ever) = (ends_of_links(&recent), ends_of_links(&records));
    let ends = |record: &JobRecord| if counts(record) { &ends_now } else { &ends_ever };
    let by_cycles: HashSet<(RunId<'_>, &str)> = records
        .iter()
        .filter(|record| record.cycle.is_some())
        .filter_map(|record| Some((job_run(record), accusation(record, ends(record))?.2)))
        .collect();
    for record in &records {
        if let Some((cause, fault, node)) = accusation(record, ends(record))
            && !(record.cycle.is_none() && by_cycles.contains(&(record.run(), node)))
        {
            let report = nodes.entry(node).or_insert_with(|| NodeReport::new(node));
            report.failures = report.failures.saturating_add(1);
            let (code, what) = (Some(cause.code.clone()), cause.what.clone());
            report.events.push(NodeEvent {
                code,
                fault: Some(fault),
                ..event_of(record, what, counts(record))
            });
        }
        for slow in record.slow.iter().filter(|slow| slow.confidence > Confidence::Low) {
            let report = nodes.entry(&slow.node).or_insert_with(|| NodeReport::new(&*slow.node));
            report.slow = report.slow.saturating_add(1);
            report.events.push(event_of(record, slow.why.clone(), counts(record)));
        }
    }
    let mut nodes: Vec<NodeReport> = nodes.into_values().collect();
    pass_judgement(&mut nodes);
    nodes.sort_by(|one, other| {
        let rank = |node: &NodeReport| (node.judgement as u8, node.independent());
        rank(other).cmp(&rank(one)).then_with(|| one.node.cmp(&other.node))
    });
    nodes
}

/// Makes an event of a node that was named as slow.
fn event_of(record: &JobRecord, what: String, counts: bool) -> NodeEvent {
    let (job, set) = (record.job.clone(), record.set.clone());
    NodeEvent { at: record.at, job, set, code: None, fault: None, what, counts }
}

/// Returns the run of a job of which a record, or that of one of its cycles, is.
fn job_run(record: &JobRecord) -> RunId<'_> {
    RunId { cycle: None, ..record.run() }
}

/// Returns the latest record of each run, in the order of their ends.
fn latest(records: &[JobRecord]) -> Vec<&JobRecord> {
    let mut of: HashMap<RunId<'_>, &JobRecord> = HashMap::with_capacity(records.len());
    for record in records {
        of.insert(record.run(), record);
    }
    let mut latest: Vec<&JobRecord> = of.into_values().collect();
    latest.sort_unstable_by(|one, other| (one.at, one.run()).cmp(&(other.at, other.run())));
    latest
}

/// Returns in how many jobs each node is named by a failure of a node or of a link.
fn ends_of_links<'r>(records: &[&'r JobRecord]) -> HashMap<&'r str, usize> {
    let mut ends: HashMap<&str, HashSet<&str>> = HashMap::new();
    let causes = records.iter().filter_map(|record| Some((record, record.cause.as_ref()?)));
    for (record, cause) in causes.filter(|(_, cause)| cause.fault_of_node().is_some()) {
        for node in &cause.nodes {
            ends.entry(node).or_default().insert(record.submitted());
        }
    }
    ends.into_iter().map(|(node, jobs)| (node, jobs.len())).collect()
}

/// Returns the cause that counts against a node, whose fault it is, and the node.
fn accusation<'r>(
    record: &'r JobRecord,
    ends: &HashMap<&str, usize>,
) -> Option<(&'r CauseRecord, Fault, &'r str)> {
    let cause = record.cause.as_ref()?;
    Some((cause, cause.fault_of_node()?, accused(&cause.nodes, ends)?))
}

/// Returns the node that a failure counts against: the one that it names, or of several the one that more failures name than
/// each of the others.
fn accused<'n>(named: &'n [String], ends: &HashMap<&str, usize>) -> Option<&'n str> {
    let count = |node: &str| ends.get(node).copied().unwrap_or(0);
    let most = named.iter().map(|node| count(node)).max()?;
    let mut with_most = named.iter().filter(|node| count(node) == most);
    let first = with_most.next()?;
    with_most.next().is_none().then_some(first.as_str())
}

fn pass_judgement(nodes: &mut [NodeReport]) {
    let runs: f64 = nodes.iter().map(|node| f64::from(node.runs)).sum();
    let once = nodes.iter().filter(|node| node.proof().is_none() && node.independent() == 1).count();
    // Where many nodes have one event, some have two by chance.
    let rate = if once >= KNOWN_RATE && runs > 0.0 { count_f64(once) / runs } else { 0.0 };
    let limit = BY_CHANCE / count_f64(nodes.len().max(1));
    for node in nodes {
        node.events.sort_by(|one, other| other.at.cmp(&one.at).then_with(|| one.job.cmp(&other.job)));
        let events = node.independent();
        let chance = at_least(events, rate * f64::from(node.runs));
        let proof = node.proof().map(|event| event.what.clone());
        node.judgement = match events {
            _ if proof.is_some() => Judgement::Suspect,
            0 => Judgement::Clear,
            LEAST_EVENTS.. if chance < limit => Judgement::Suspect,
            _ => Judgement::Watched,
        };
        node.evidence = evidence(node, events, proof);
    }
}

/// Returns the evidence against a node as one line.
fn evidence(node: &NodeReport, events: usize, proof: Option<String>) -> String {
    let mut codes: Vec<&str> = node
        .events
        .iter()
        .filter(|event| event.counts)
        .map(|event| event.code.as_deref().unwrap_or("named as slow"))
        .collect();
    codes.sort_unstable();
    codes.dedup();
    match (proof, events) {
        (_, 0) => String::new(),
        (Some(what), _) => {
            format!("{what} ({} in {})", counted(events, "event"), counted(node.runs as usize, "run"))
        }
        (None, _) => {
            let (events, runs) = (counted(events, "event"), counted(node.runs as usize, "run"));
            format!("{events} in {runs}: {}", codes.join(", "))
        }
    }
}

/// Returns the probability of at least some events where so many are expected (Poisson).
fn at_least(events: usize, expected: f64) -> f64 {
    let (mut term, mut below) = ((-expected).exp(), 0.0);
    for number in 0..events.min(64) {
        below += term;
        term *= expected / count_f64(number + 1);
    }
    (1.0 - below).max(0.0)
}

fn count_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
