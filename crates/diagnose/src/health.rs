//! Whether the ranks of a running job make progress, from answers of NCCL's RAS service and the job's own logs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use weftrun_nccl::TransportMap;
use weftrun_nccl::ras::{Communicator, Member, Report};

use weftrun_core::text::numbers;

/// How long no rank that is behind may move before a difference counts as confirmed: two such windows are a
/// stuck job. A checkpoint or a slow data loader delays one rank for tens of seconds.
pub const WINDOW: Duration = Duration::from_secs(60);

/// The shortest time between two requests to one job.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Most culprits that are reported.
const MAX_CULPRITS: usize = 4096;

/// Fewest answers that confirm a window.
const ANSWERS: u32 = 3;

word_enum! {
    /// The state of a job according to the answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum HealthState {
        /// All ranks answer, and those that are behind make progress.
        Healthy = "healthy",
        /// Ranks are behind and made no progress so far, or a rank reports an error.
        Suspect = "suspect",
        /// Ranks are behind and have made no progress for two minutes.
        Stuck = "stuck",
        /// Ranks are missing.
        Incomplete = "incomplete",
        /// No RAS service of this job answered.
        Unreachable = "unreachable",
        /// The job's NCCL has no RAS service, or one that is not safe to query.
        Unsupported = "unsupported",
    }
}

/// A rank that holds the others up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Culprit {
    /// Rank in the smallest communicator that shows it.
    pub rank: u32,
    /// Rank in the job; null where the logs do not prove it.
    pub global_rank: Option<u32>,
    /// Address or name of its node.
    pub host: String,
    /// Process id.
    pub pid: u64,
    /// What is wrong with it.
    pub why: String,
}

/// The source of evidence that is an answer of the service.
pub const RAS: &str = "RAS";

/// What is wrong with a process that RAS takes for dead.
const DEAD: &str = "the process is dead";

impl Culprit {
    /// Returns whether its process no longer exists.
    pub fn is_dead(&self) -> bool {
        self.why == DEAD
    }

    /// Returns which rank it is, where, and what is wrong with it.
    pub fn sentence(&self) -> String {
        let rank = match self.global_rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("rank {} of its communicator", self.rank),
        };
        format!("{rank}, process {} on {}: {}", self.pid, self.host, self.why)
    }
}

/// How often a version of NCCL may be queried. RAS itself crashed jobs in several versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// There is no RAS service before 2.24.3.
    Absent,
    /// Not without the user's consent: a query can crash the job before 2.27.3
    /// (<https://github.com/NVIDIA/nccl/issues/1669>, <https://github.com/NVIDIA/nccl/issues/1718>, 2026-11-22).
    Refuse,
    /// Once for each request of the user: before 2.29.2 a report with missing ranks can crash the RAS thread
    /// (<https://github.com/NVIDIA/nccl/issues/1762>, 2026-11-22).
    Once,
    /// Repeatedly, with [`INTERVAL`] between queries.
    Repeat,
}

impl Policy {
    /// Returns the policy for a version as NCCL prints it: `2.28.9+cuda13.0`.
    pub fn of_version(name: &str) -> Self {
        match numbers(name).as_slice() {
            numbers if numbers < &[2, 24, 3] => Self::Absent,
            numbers if numbers < &[2, 27, 3] => Self::Refuse,
            numbers if numbers < &[2, 29, 2] || !advisories_of(name).is_empty() => Self::Once,
            _ => Self::Repeat,
        }
    }
}

/// Returns the known problems of the RAS service of a version, each with its source.
pub fn advisories_of(version: &str) -> Vec<String> {
    let known = weftrun_core::advisories::all().filter(|known| known.id.starts_with("NCCL-RAS-"));
    let concerned = known.filter(|known| known.concerns(&[("nccl", version)]));
    concerned.map(|known| format!("NCCL {version}: {} ({})", known.effect, known.source)).collect()
}

/// Judges the answers for one job, one after another.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// Operations launched in each communicator, and since when no rank that is behind has moved.
    still: Option<Still>,
    last: BTreeMap<u64, Lag>,
}

#[derive(Clone, Copy, Debug)]
struct Still {
    since: Duration,
    answers: u32,
}

/// The counts of the ranks of a communicator that differ from the others, and of all its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lag {
    counts: Vec<(u32, u64)>,
    launched: u64,
}

impl Observer {
    /// Takes an answer that came `at` this time after the first one, and returns the state by all answers
    /// together.
    pub fn observe(&mut self, at: Duration, report: &Report) -> HealthState {
        let lags: BTreeMap<u64, Lag> = report
            .communicators
            .iter()
            .filter(|comm| comm.is_uneven())
            .map(|comm| (comm.hash, Lag { counts: counts(comm), launched: comm.launched }))
            .collect();
        // Only a communicator whose counts are all unchanged is stuck; one whose counts changed makes
        // progress.
        let unmoved = lags.iter().any(|(hash, lag)| self.last.get(hash) == Some(lag));
        let first = self.last.is_empty();
        self.last = lags;
        let missing = report.communicators.iter().any(|comm| !comm.missing.is_empty());
        if missing || !report.missing_processes.is_empty() {
            return HealthState::Incomplete;
        }
        if self.last.is_empty() || !(first || unmoved) {
            self.still = None;
            let failed = report.communicators.iter().any(|comm| !comm.errors.is_empty());
            return if failed { HealthState::Suspect } else { HealthState::Healthy };
        }
        let still = self.still.get_or_insert(Still { since: at, answers: 0 });
        still.answers += 1;
        if still.answers >= 2 * ANSWERS && at.saturating_sub(still.since) >= 2 * WINDOW {
            HealthState::Stuck
        } else {
            HealthState::Suspect
        }
    }
}

fn counts(comm: &Communicator) -> Vec<(u32, u64)> {
    comm.behind.iter().chain(&comm.ahead).map(|rank| (rank.member.rank, rank.count)).collect()
}

/// Returns the ranks that block the others: dead and missing ones, else those that launched the fewest
/// operations. The smallest communicator decides; a rank that is behind in a larger one waits for it.
pub fn culprits(report: &Report, logs: &TransportMap) -> Vec<Culprit> {
    let mut comms: Vec<&Communicator> = report.communicators.iter().collect();
    comms.sort_by_key(|comm| (comm.size.unwrap_or(u32::MAX), comm.hash));
    let mut found = CulpritSearch {
        logs,
        entries: entries(report),
        pids: pids(logs),
        largest: largest(report),
        seen: HashSet::new(),
        culprits: Vec::new(),
    };
    let dead = comms.iter().any(|comm| comm.missing.iter().any(|missing| missing.dead));
    for comm in &comms {
        for missing in comm.missing.iter().filter(|missing| missing.dead || !dead) {
            let why = if missing.dead { DEAD } else { "the process does not answer" };
            found.add(&missing.member, why.to_owned());
        }
        for error in &comm.errors {
            found.add(&error.member, error.what.clone());
        }
    }
    if found.culprits.is_empty() {
        for comm in comms {
            let lowest = comm.behind.iter().map(|behind| behind.count).min();
            if comm.behind.iter().any(|behind| found.has(&behind.member)) {
                continue;
            }
            for behind in comm.behind.iter().filter(|behind| Some(behind.count) == lowest) {
                let why =
                    format!("launched {} of {} {} operations", behind.count, behind.others, behind.operation);
                found.add(&behind.member, why);
            }
        }
    }
    found.culprits
}

fn largest(report: &Report) -> Option<u64> {
    let most = report.communicators.iter().filter_map(|comm| comm.size).max().filter(|most| *most > 1)?;
    let mut of_size = report.communicators.iter().filter(|comm| comm.size == Some(most));
    let only = of_size.next().filter(|_| of_size.next().is_none())?;
    Some(only.hash)
}

/// Returns the communicators of each process in a report: hash and rank, by host and process id.
fn entries(report: &Report) -> HashMap<(&str, u64), Vec<(u64, u32)>> {
    let mut entries: HashMap<(&str, u64), Vec<(u64, u32)>> = HashMap::new();
    for comm in &report.communicators {
        let missing = comm.missing.iter().map(|missing| &missing.member);
        let errors = comm.errors.iter().map(|error| &error.member);
        let behind = comm.behind.iter().map(|behind| &behind.member);
        for member in missing.chain(errors).chain(behind) {
            let process = (member.host.as_str(), member.pid);
            entries.entry(process).or_default().push((comm.hash, member.rank));
        }
    }
    entries
}

/// Returns the ranks of each process id in the logs.
fn pids(logs: &TransportMap) -> HashMap<u64, Vec<Option<u32>>> {
    let mut pids: HashMap<u64, Vec<Option<u32>>> = HashMap::new();
    for view in logs.snapshot().ranks() {
        if let Some(pid) = view.pid {
            pids.entry(pid).or_default().push(view.rank);
        }
    }
    pids
}

struct CulpritSearch<'a> {
    logs: &'a TransportMap,
    entries: HashMap<(&'a str, u64), Vec<(u64, u32)>>,
    pids: HashMap<u64, Vec<Option<u32>>>,
    /// The largest communicator, where no other is as large.
    largest: Option<u64>,
    seen: HashSet<(String, u64)>,
    culprits: Vec<Culprit>,
}

impl CulpritSearch<'_> {
    fn has(&self, member: &Member) -> bool {
        self.seen.contains(&(member.host.clone(), member.pid))
    }

    fn add(&mut self, member: &Member, why: String) {
        if self.culprits.len() < MAX_CULPRITS && self.seen.insert((member.host.clone(), member.pid)) {
            let global_rank = self.global_rank(member);
            let Member { rank, host, pid } = member.clone();
            self.culprits.push(Culprit { rank, global_rank, host, pid, why });
        }
    }

    /// Returns the global rank of a member. The logs name communicators by the same hashes; a process of a
    /// split that they do not name is looked up in its other communicators, and by its process id where
    /// only one rank has it.
    fn global_rank(&self, of: &Member) -> Option<u32> {
        let logs = self.logs.snapshot();
        let entries = self.entries.get(&(of.host.as_str(), of.pid)).into_iter().flatten();
        let by_comm = entries.clone().take(64).find_map(|(hash, rank)| logs.rank_of_member(*hash, *rank));
        let by_pid = || match self.pids.get(&of.pid)?.as_slice() {
            [only] => *only,
            _ => None,
        };
        // The largest communicator of a job has all its ranks.
        let by_largest =
            || entries.clone().find(|(hash, _)| Some(*hash) == self.largest).map(|(_, rank)| *rank);
        by_comm.or_else(by_pid).or_else(by_largest)
    }
}

/// Returns whether a report is about the job of these logs: two jobs of one user on one node share the
/// port. None (and so not refused) where the logs name no communicator by its hash.
pub fn is_of(report: &Report, logs: &TransportMap) -> Option<bool> {
    let logs = logs.snapshot();
    let named = logs.communicators().iter().any(|comm| comm.id.starts_with("0x") && !comm.id.contains('/'));
    let hashes: Vec<u64> = report.communicators.iter().map(|comm| comm.hash).collect();
    if !named || hashes.is_empty() {
        return None;
    }
    Some(hashes.into_iter().any(|hash| logs.has_communicator(hash)))
}
