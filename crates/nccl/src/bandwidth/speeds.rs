//! What was measured, for people and programs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::line::Origin;
use super::{Bandwidth, Collective, Entry, Series, late};

/// Most ranks that a sentence names.
const NAMED: usize = 8;
/// Most parts of the time that have a bandwidth of their own.
const PARTS: u64 = 60;

/// How fast a job's collectives are.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Speeds {
    /// Who comes last, in a sentence: where a rank does, and otherwise why none is named.
    pub sentence: String,
    /// The ranks for which the others wait most; empty if none is late.
    pub late: Vec<RankWait>,
    /// Seconds from the first record of all to the last one; none if the records have no time.
    #[serde(skip)]
    pub seconds: Option<f64>,
    /// Each communicator, the largest first.
    pub communicators: Vec<CommunicatorSpeed>,
    /// Rates of NCCL Inspector's Prometheus files.
    pub rates: Vec<Rate>,
    /// Operations that were measured, over all ranks.
    pub operations: u64,
    /// Operations that the profiler could not record: then the rest is a sample.
    pub dropped: u64,
    /// Records that were not used: without a time, without a rank, or with a time that cannot be.
    pub unusable: u64,
    /// What limits the figures.
    pub notes: Vec<String>,
}

impl Speeds {
    /// Returns each collective with its communicator.
    pub fn collectives(&self) -> impl Iterator<Item = (&CommunicatorSpeed, &CollectiveSpeed)> {
        pairs(&self.communicators)
    }

    /// Returns what makes the job slow in a word, if the times show it: `slow` where ranks come last, `network-bound` where the
    /// transfer itself takes most of the time.
    pub fn limit(&self) -> Option<&'static str> {
        if !self.late.is_empty() {
            return Some("slow");
        }
        self.network_bound().map(|_| "network-bound")
    }

    /// Returns the collective whose transfer takes most of the time, if one does and no rank is late.
    pub fn network_bound(&self) -> Option<(&CommunicatorSpeed, &CollectiveSpeed)> {
        main_collective(self.collectives())
            .filter(|(_, speed)| self.late.is_empty() && speed.arrival.order == Order::Wire)
            // The transfer takes the time of the collective; here that must be the time of the job.
            .filter(|(_, speed)| speed.time_share.is_some_and(|share| share >= 0.5))
    }
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CommunicatorSpeed {
    /// NCCL's hash of it.
    pub id: String,
    /// Its ranks.
    pub ranks: u32,
    /// Its nodes.
    pub nodes: u32,
    /// Ranks of which there are records.
    pub seen_ranks: usize,
    /// Each collective, the one with the most time first.
    pub collectives: Vec<CollectiveSpeed>,
}

/// A collective of a communicator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CollectiveSpeed {
    /// Which one.
    pub collective: Collective,
    /// Seconds from the first record to the last; null if the records have no time.
    pub seconds: Option<f64>,
    /// Part of the time of all records that a rank spends in it, waiting included; at most 1, since operations can overlap.
    pub time_share: Option<f64>,
    /// Its sizes, from the smallest.
    pub sizes: Vec<SizeSpeed>,
    /// Bus bandwidth in GB/s in at most 60 equal parts of the time (of the operations, where the records have no sums of a
    /// time): all sizes together, by the rank that waited least; null for a part without a record.
    pub over_time: Vec<Option<f64>>,
    /// In which order the ranks reach it.
    pub arrival: Arrival,
}

/// The operations of about one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SizeSpeed {
    /// Bytes of the smallest message.
    pub least_bytes: u64,
    /// Bytes of the largest one, less than twice as many.
    pub most_bytes: u64,
    /// Operations, of the rank that has most.
    pub operations: u64,
    /// Bus bandwidth in GB/s, the median: of the operations that all ranks recorded, by the shortest time of each; or of the sums
    /// of a time, by the rank that waited least, where that is more.
    pub busbw_gbps: Option<f64>,
    /// The slowest of these operations.
    pub slowest_gbps: Option<f64>,
}

word_enum! {
    /// What the times of the ranks say.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[non_exhaustive]
    pub enum Order {
        /// Ranks come last, clearly and steadily.
        Late = "ranks come last",
        /// No rank makes the others wait.
        Even = "no rank is late",
        /// The transfer itself takes most of the time, so that a late rank would not show.
        Wire = "no rank is late: the transfer itself takes the time",
        /// The ranks' records are not of the same operations.
        Unmatched = "the ranks' records do not fit each other",
        /// There are too few records, or those of one rank only.
        Few = "too few records of several ranks",
        /// Not every rank waits for every other one in it.
        PointToPoint = "not every rank waits for all others in it",
    }
}

/// Who waits for whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Arrival {
    /// What the times say.
    pub order: Order,
    /// Operations, or sums of a second, that were compared.
    pub compared: usize,
    /// The ranks that come last.
    pub late: Vec<RankWait>,
    /// Seconds that the others waited.
    pub waited_seconds: f64,
    /// As a part of the time.
    pub waited_share: Option<f64>,
    /// Each rank's waiting.
    pub waits: Vec<RankWait>,
    /// What the last seconds show; null where they are not a small part of the time, or the records have no sums of a time.
    pub recent: Option<Recent>,
}

/// What the last seconds show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Recent {
    /// Seconds, of which the last is that of the last record.
    pub seconds: f64,
    /// Part of them that the others waited; 0 where no rank is late in them.
    pub waited_share: f64,
    /// Whether the ranks, their waiting and its part are those of these seconds, since others are late in all of the time, or none.
    pub is_judged: bool,
}

/// The waiting of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankWait {
    /// Rank in the communicator.
    pub rank: u32,
    /// Rank in the job as NCCL's lines prove it, else in the largest communicator of its process; null where neither is another
    /// one.
    pub global_rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u64,
    /// Seconds that it waited for the last one.
    pub seconds: f64,
}

/// A rate of NCCL Inspector's Prometheus files, which name neither ranks nor operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Rate {
    /// The node.
    pub node: String,
    /// The GPU.
    pub gpu: String,
    /// The communicator's name.
    pub communicator: String,
    /// The collective.
    pub collective: String,
    /// The range of sizes.
    pub size: String,
    /// Bus bandwidth in GB/s.
    pub busbw_gbps: Option<f64>,
    /// Time of an operation in microseconds.
    pub time_us: Option<f64>,
}

impl Arrival {
    pub(super) fn of(order: Order) -> Self {
        Self {
            order,
            compared: 0,
            late: Vec::new(),
            waited_seconds: 0.0,
            waited_share: None,
            waits: Vec::new(),
            recent: None,
        }
    }

    /// Returns who comes last in a collective, as a sentence.
    fn sentence(&self, collective: Collective, seconds: Option<f64>) -> String {
        let hosts: Vec<_> = self.late.iter().map(|rank| &rank.host).collect();
        let one_host = hosts.windows(2).all(|pair| pair[0] == pair[1]);
        let host = hosts
            .first()
            .filter(|host| one_host && !host.is_empty())
            .map(|host| format!(" on {host}"))
            .unwrap_or_default();
        let (ranks, reach) = if self.late.len() == 1 { ("rank", "reaches") } else { ("ranks", "reach") };
        let mut names: Vec<_> = self.late.iter().take(NAMED).map(ToString::to_string).collect();
        if self.late.len() > NAMED {
            names.push(format!("{} more", self.late.len() - NAMED));
        }
        let of_last = |recent: Recent| {
            format!("{:.0} % of the last {:.0} s", recent.waited_share * 100.0, recent.seconds)
        };
        let judged = self.recent.filter(|recent| recent.is_judged);
        let waited = match (judged, self.waited_share.zip(seconds)) {
            (Some(recent), _) => of_last(recent),
            (None, Some((share, seconds))) => format!("{:.0} % of {seconds:.1} s", share * 100.0),
            (None, None) => format!("{:.1} s", self.waited_seconds),
        };
        let now = match self.recent.filter(|recent| !recent.is_judged) {
            Some(recent) if recent.waited_share > 0.0 => format!(", {}", of_last(recent)),
            Some(recent) => format!(", but not in the last {:.0} s", recent.seconds),
            None => String::new(),
        };
        let them = if self.late.len() == 1 { "it" } else { "them" };
        format!(
            "{ranks} {}{host} {reach} {collective} last: the others waited {waited} for {them}{now}",
            names.join(", ")
        )
    }
}

impl RankWait {
    /// Returns its rank in the job, as far as that is known.
    pub fn job_rank(&self) -> u32 {
        self.global_rank.unwrap_or(self.rank)
    }

    pub(super) fn new(origin: &Origin, seconds: f64) -> Self {
        Self { rank: origin.rank, global_rank: None, host: origin.host.to_string(), pid: origin.pid, seconds }
    }
}

impl fmt::Display for RankWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job_rank())
    }
}

impl Bandwidth {
    /// Returns what was measured so far.
    pub fn speeds(&self) -> Speeds {
        self.speeds_of(&HashMap::new())
    }

    /// Does the same where the ranks of some processes in the job are proved, by short host name and process id.
    pub(crate) fn speeds_of(&self, proved: &HashMap<(&str, u64), u32>) -> Speeds {
        let mut groups: BTreeMap<(u64, Collective), Vec<&Series>> = BTreeMap::new();
        for series in &self.series {
            groups.entry((series.origin.comm, series.collective)).or_default().push(series);
        }
        let globals = self.global_ranks();
        let all: Vec<&Series> = self.series.iter().collect();
        let seconds = seconds(&all);
        let last = self.series.iter().filter_map(|series| Some(series.span?.1)).max().unwrap_or(0);
        let mut communicators: BTreeMap<u64, CommunicatorSpeed> = BTreeMap::new();
        for ((id, collective), mut ranks) in groups {
            ranks.sort_by_key(|series| series.origin.rank);
            let Some(origin) = ranks.first().map(|series| &series.origin) else { continue };
            let known = communicators.entry(id).or_insert_with(|| CommunicatorSpeed {
                id: format!("{id:#x}"),
                ranks: origin.ranks,
                nodes: origin.nodes,
                seen_ranks: 0,
                collectives: Vec::new(),
            });
            known.seen_ranks = known.seen_ranks.max(ranks.len());
            let mut speed = CollectiveSpeed::of(collective, &ranks, seconds, last);
            let arrival = &mut speed.arrival;
            for rank in arrival.late.iter_mut().chain(&mut arrival.waits) {
                let global = globals.get(&(rank.host.as_str().into(), rank.pid));
                let of_largest = global.filter(|(ranks, _)| *ranks > origin.ranks).map(|(_, rank)| *rank);
                let proved = proved.get(&(short_host(&rank.host), rank.pid)).copied();
                rank.global_rank = proved.or(of_largest).filter(|global| *global != rank.rank);
            }
            known.collectives.push(speed);
        }
        let mut communicators: Vec<_> = communicators.into_values().collect();
        communicators.sort_by_key(|comm| std::cmp::Reverse(comm.ranks));
        for comm in &mut communicators {
            let share = |speed: &CollectiveSpeed| speed.time_share.unwrap_or(0.0);
            comm.collectives.sort_by(|one, other| share(other).total_cmp(&share(one)));
        }
        let (late, sentence) = judged(&communicators);
        let dropped =
            self.dropped.values().flatten().fold(0_u64, |sum, dropped| sum.saturating_add(*dropped));
        Speeds {
            sentence,
            late,
            seconds,
            communicators,
            rates: self.rates.rates(),
            operations: self.records,
            dropped,
            unusable: self.unusable,
            notes: self.notes(dropped),
        }
    }

    /// Returns the rank of each process in the largest communicator that it has.
    fn global_ranks(&self) -> HashMap<(Arc<str>, u64), (u32, u32)> {
        let mut globals: HashMap<(Arc<str>, u64), (u32, u32)> = HashMap::new();
        for Origin { host, pid, ranks, rank, .. } in self.series.iter().map(|series| &series.origin) {
            let known = globals.entry((Arc::clone(host), *pid)).or_insert((*ranks, *rank));
            if *ranks > known.0 {
                *known = (*ranks, *rank);
            }
        }
        globals
    }

    fn notes(&self, dropped: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if dropped > 0 {
            notes.push(format!(
                "the profiler could not record {dropped} operations: the figures are of a sample"
            ));
        }
        if self.unusable > 0 {
            notes
                .push(format!("{} records have no rank or no possible time and are not used", self.unusable));
        }
        if self.by_cpu > 0 {
            notes.push(format!("{} operations were timed by the CPU: bandwidths are too low", self.by_cpu));
        }
        if self.left_out > 0 {
            notes.push(format!("{} records are of more ranks than are read", self.left_out));
        }
        notes
    }
}

/// Returns the ranks for which the others waited longest, and a sentence.
fn judged(communicators: &[CommunicatorSpeed]) -> (Vec<RankWait>, String) {
    let all = pairs(communicators).map(|(_, speed)| speed);
    let late = all.filter(|speed| speed.arrival.order == Order::Late);
    // One that is late now before one that was.
    let now = |speed: &CollectiveSpeed| speed.arrival.recent.is_none_or(|recent| recent.waited_share > 0.0);
    if let Some(worst) = late.max_by(|one, other| {
        let waited = one.arrival.waited_seconds.total_cmp(&other.arrival.waited_seconds);
        now(one).cmp(&now(other)).then(waited)
    }) {
        return (worst.arrival.late.clone(), worst.arrival.sentence(worst.collective, worst.seconds));
    }
    let most = main_collective(pairs(communicators)).map(|(_, speed)| speed);
    let order = most.map_or(Order::Few, |speed| speed.arrival.order);
    let sentence = match (order, most) {
        (Order::Even | Order::Wire, _) => order.as_str().to_owned(),
        (_, Some(most)) => format!("no rank is named in {}: {order}", most.collective),
        (_, None) => format!("no rank is named: {order}"),
    };
    (Vec::new(), sentence)
}

/// Returns the name of a host as NCCL's lines have it, without a domain.
pub(crate) fn short_host(host: &str) -> &str {
    let name = host.split_once('.').map_or(host, |(name, _)| name);
    // An address has no shorter form.
    if name.bytes().all(|byte| byte.is_ascii_digit()) { host } else { name }
}

/// Returns each collective with its communicator.
fn pairs(
    communicators: &[CommunicatorSpeed],
) -> impl Iterator<Item = (&CommunicatorSpeed, &CollectiveSpeed)> {
    communicators.iter().flat_map(|comm| comm.collectives.iter().map(move |speed| (comm, speed)))
}

/// Returns the collective with the most time of those in which every rank waits for all others.
fn main_collective<'a>(
    all: impl Iterator<Item = (&'a CommunicatorSpeed, &'a CollectiveSpeed)>,
) -> Option<(&'a CommunicatorSpeed, &'a CollectiveSpeed)> {
    let share = |speed: &CollectiveSpeed| speed.time_share.unwrap_or(0.0);
    all.filter(|(_, speed)| speed.collective.is_symmetric())
        .max_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)))
}

/// Returns the seconds from the first record to the last, whose line is of the time that follows.
fn seconds(series: &[&Series]) -> Option<f64> {
    let spans = series.iter().filter_map(|series| series.span);
    let all = spans.reduce(|(first, last), (from, to)| (first.min(from), last.max(to)));
    let line = late::period(series).unwrap_or(0);
    all.map(|(first, last)| (last - first + line) as f64 / 1e3).filter(|seconds| *seconds > 0.0)
}

impl CollectiveSpeed {
    /// Returns the size that most bytes are of, by which the collective is judged.
    pub fn main_size(&self) -> Option<&SizeSpeed> {
        self.sizes.iter().max_by_key(|size| size.most_bytes.saturating_mul(size.operations))
    }

    fn of(collective: Collective, ranks: &[&Series], of_all: Option<f64>, last_of_all: u64) -> Self {
        let seconds = seconds(ranks);
        let mean =
            ranks.iter().map(|series| series.nanos() as f64 / 1e9).sum::<f64>() / ranks.len().max(1) as f64;
        Self {
            collective,
            seconds,
            time_share: of_all.map(|seconds| (mean / seconds).min(1.0)),
            sizes: sizes(collective, ranks),
            over_time: over_time(collective, ranks),
            arrival: late::judge(ranks, seconds, last_of_all),
        }
    }
}

/// Returns the sizes with their bandwidth: an operation is as fast as the rank that waited least for others shows.
fn sizes(collective: Collective, ranks: &[&Series]) -> Vec<SizeSpeed> {
    let mut sizes: BTreeMap<u32, SizeSpeed> = BTreeMap::new();
    for size in ranks.iter().flat_map(|series| &series.sizes) {
        let known = sizes.entry(size.power).or_insert(SizeSpeed {
            least_bytes: size.least,
            most_bytes: size.most,
            operations: 0,
            busbw_gbps: None,
            slowest_gbps: None,
        });
        known.least_bytes = known.least_bytes.min(size.least);
        known.most_bytes = known.most_bytes.max(size.most);
        known.operations = known.operations.max(size.count);
    }
    let of = ranks.first().map_or(1, |series| series.origin.ranks);
    // By number and size, since a point-to-point operation has its rank's own number.
    let mut shortest: HashMap<(u64, u64), (usize, u64)> = HashMap::new();
    for entry in ranks.iter().flat_map(|series| &series.singles) {
        let known = shortest.entry((entry.key, entry.measured.bytes)).or_insert((0, u64::MAX));
        *known = (known.0 + 1, known.1.min(entry.measured.nanos));
    }
    let mut speeds: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for ((_, bytes), (seen, nanos)) in shortest {
        let speed = collective.bus_factor(of) * bytes as f64 / nanos as f64;
        let (all, some) = speeds.entry(bytes.max(1).ilog2()).or_default();
        if seen >= ranks.len() { all.push(speed) } else { some.push(speed) }
    }
    for (power, (all, some)) in speeds {
        let mut speeds = if all.is_empty() { some } else { all };
        speeds.sort_by(f64::total_cmp);
        if let Some(size) = sizes.get_mut(&power) {
            size.busbw_gbps = speeds.get(speeds.len() / 2).copied();
            size.slowest_gbps = speeds.first().copied();
        }
    }
    // Single operations of weftrun's library are a sample, which may always be the same part of a step.
    for (power, mut speeds) in by_sums(collective, ranks) {
        speeds.sort_by(f64::total_cmp);
        if let (Some(size), Some(median)) = (sizes.get_mut(&power), speeds.get(speeds.len() / 2)) {
            size.busbw_gbps = Some(size.busbw_gbps.map_or(*median, |gbps| gbps.max(*median)));
        }
    }
    sizes.into_values().collect()
}

/// Returns the bandwidth of each sum of a time, by the power of two of its size: that of the rank that waited least in it. Where
/// the ranks wait for each other in turn, each waits in some operations of a sum, so that it is less than a single one shows.
fn by_sums(collective: Collective, ranks: &[&Series]) -> BTreeMap<u32, Vec<f64>> {
    let factor = collective.bus_factor(ranks.first().map_or(1, |series| series.origin.ranks));
    let mut fastest: HashMap<(u64, u32), f64> = HashMap::new();
    for Entry { key, measured } in ranks.iter().flat_map(|series| &series.sums) {
        let size = measured.bytes / measured.count.max(1);
        let known = fastest.entry((*key, size.max(1).ilog2())).or_insert(0.0);
        *known = known.max(factor * measured.bytes as f64 / measured.nanos.max(1) as f64);
    }
    let mut speeds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for ((_, power), speed) in fastest {
        speeds.entry(power).or_default().push(speed);
    }
    speeds
}

/// Returns the bandwidth in equal parts of the time. In a part, an operation that some ranks count in the next one changes
/// bytes and time alike.
fn over_time(collective: Collective, ranks: &[&Series]) -> Vec<Option<f64>> {
    let by_time = ranks.iter().all(|series| !series.sums.is_empty());
    let all: Vec<&[Entry]> =
        ranks.iter().map(|series| if by_time { &*series.sums } else { &*series.singles }).collect();
    let keys = || all.iter().copied().flatten().map(|entry| entry.key);
    let (Some(first), Some(last)) = (keys().min(), keys().max()) else { return Vec::new() };
    // A rank has an entry for each size at a time.
    let times = |entries: &&[Entry]| 1 + entries.windows(2).filter(|pair| pair[0].key != pair[1].key).count();
    let most = all.iter().map(times).max().unwrap_or(0) as u64;
    let parts = most.clamp(1, PARTS).min((last - first).saturating_add(1));
    let part = |key: u64| {
        let at = u128::from(key - first) * u128::from(parts) / (u128::from(last - first) + 1);
        usize::try_from(at).unwrap_or(usize::MAX)
    };
    let factor = collective.bus_factor(ranks.first().map_or(1, |series| series.origin.ranks));
    let mut speeds: Vec<Option<f64>> = vec![None; usize::try_from(parts).unwrap_or(0)];
    let mut sums = vec![(0_u64, 0_u64); speeds.len()];
    for entries in all {
        sums.fill((0, 0));
        for entry in entries {
            if let Some((bytes, nanos)) = sums.get_mut(part(entry.key)) {
                *bytes = bytes.saturating_add(entry.measured.bytes);
                *nanos = nanos.saturating_add(entry.measured.nanos);
            }
        }
        for (speed, (bytes, nanos)) in speeds.iter_mut().zip(&sums).filter(|(_, (_, nanos))| *nanos > 0) {
            let of_rank = factor * *bytes as f64 / *nanos as f64;
            *speed = Some(speed.map_or(of_rank, |speed| speed.max(of_rank)));
        }
    }
    speeds
}
