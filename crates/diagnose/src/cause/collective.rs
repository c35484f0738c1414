//! Collective operations that wait beyond their time limit: finds the rank that did not join, or that
//! joined with other arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::named;
use super::class::CauseClass;
use super::exceptions::{judge, root};
use super::grade::Grade;
use super::scene::Scene;
use crate::rules::{COLLECTIVES_DIVERGED, RANK_ENDED_EARLY, Rule};
use weftrun_core::Confidence;
use weftrun_nccl::SourceIndex;
use weftrun_nccl::failure::{Fact, Report, Work, mismatch};

/// What the watchdogs of all ranks prove together.
pub(super) struct CollectiveCause<'a> {
    pub class: CauseClass,
    pub ranks: Vec<u32>,
    pub what: String,
    pub reports: Vec<&'a Report>,
    pub confidence: Confidence,
    /// Whether all ranks of the job are accounted for.
    pub complete: bool,
    /// What rule says more of it than its kind does.
    pub rule: Option<&'static Rule>,
}

impl<'a> CollectiveCause<'a> {
    fn timeout(
        ranks: Vec<u32>,
        what: String,
        reports: Vec<&'a Report>,
        confidence: Confidence,
        complete: bool,
    ) -> Self {
        let class = CauseClass::CollectiveTimeout;
        Self { class, ranks, what, reports, confidence, complete, rule: None }
    }
}

impl CollectiveCause<'_> {
    fn by(self, rule: Option<&'static Rule>) -> Self {
        Self { rule, ..self }
    }
}

/// The progress of one rank in one process group, by its first report.
struct Standing<'a> {
    enqueued: i64,
    report: &'a Report,
}

/// A rank that waits.
struct Wait<'a> {
    work: &'a Work,
    report: &'a Report,
}

const DEFAULT: &str = "default_pg";

/// Finds the rank that keeps the others waiting.
pub(super) fn find<'a>(scene: &Scene<'a>) -> Option<CollectiveCause<'a>> {
    if let Some(found) = told(scene).or_else(|| ended_early(scene)) {
        return Some(found);
    }
    let groups = standings(scene);
    let waits = waits(scene, &groups);
    let apart = Apart::new(scene, &waits);
    let mut unnamed = None;
    for ((group, seq), ranks) in &waits {
        if let Some(found) = differ(*seq, ranks) {
            return Some(found);
        }
        let wait = GroupWait { group, seq: *seq, ranks };
        if let Some(found) = wait.behind(groups.get(group), &apart).or_else(|| wait.silent(scene, &apart)) {
            return Some(found);
        }
        unnamed = unnamed.or_else(|| Some(wait.unnamed(scene, &apart)));
    }
    diverged(&waits).or(unnamed).or_else(|| told_of_timeout(scene))
}

/// Returns the ranks that left the job in order while others waited for them, as after a step that they skipped: the ranks
/// did not call the same number of collectives. Nothing is said where some rank's log is missing, or another one failed.
fn ended_early<'a>(scene: &Scene<'a>) -> Option<CollectiveCause<'a>> {
    if scene.finished.is_empty() || !scene.unseen().is_empty() {
        return None;
    }
    let (mut left, mut waited) = (BTreeMap::new(), BTreeMap::new());
    let (mut ended, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for known in &scene.reports {
        let of = match &known.report.fact {
            Fact::Finished => &mut left,
            Fact::RemoteExit | Fact::TimedOut { .. } | Fact::ToldOfTimeout { .. } => &mut waited,
            // As launchers end the others.
            Fact::Exit { code: -15 | 143, .. } => {
                ended.extend(known.rank);
                continue;
            }
            Fact::Exception(exception)
                if exception.is_launcher() || exception.short_name() == "SignalException" =>
            {
                continue;
            }
            Fact::Exception(exception) => match judge(root(exception)).0 {
                Grade::Remote | Grade::Waiting => &mut waited,
                Grade::Broken | Grade::Rendezvous => continue,
                _ => return None,
            },
            Fact::Exit { code: 0, .. } => continue,
            Fact::Exit { .. } | Fact::Signal(_) | Fact::Died => {
                failed.insert(known.rank);
                continue;
            }
            Fact::Cuda(_) | Fact::Xid(_) | Fact::Cluster(_) | Fact::Error { fatal: true, .. } => return None,
            _ => continue,
        };
        if let Some(rank) = known.rank {
            of.entry(rank).or_insert(known.report);
        }
    }
    // A rank that waited ends because the other one left; the end of any other is a failure of its own.
    if !failed.iter().flatten().all(|rank| waited.contains_key(rank)) {
        return None;
    }
    ended.extend(waited.keys());
    let is_known = |rank: &u32| left.contains_key(rank) != ended.contains(rank);
    if left.is_empty() || waited.is_empty() || !scene.seen.iter().all(is_known) {
        return None;
    }
    let ranks: Vec<u32> = left.keys().copied().collect();
    let waiting: Vec<u32> = waited.keys().copied().collect();
    let what = format!(
        "{} left the job in order while {} still waited for {}: they did not call the same number of collectives",
        named(&ranks),
        named(&waiting),
        if ranks.len() == 1 { "it" } else { "them" }
    );
    Some(CollectiveCause {
        class: CauseClass::CollectiveMismatch,
        ranks,
        what,
        reports: left.into_values().take(2).chain(waited.into_values()).collect(),
        confidence: Confidence::Medium,
        complete: true,
        rule: Some(&RANK_ENDED_EARLY),
    })
}

/// Returns that a rank gave up waiting, where the line that names the operation is not in the log.
fn told_of_timeout<'a>(scene: &Scene<'a>) -> Option<CollectiveCause<'a>> {
    let (mut told, mut failed, mut reports) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    let mut ops: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for known in &scene.reports {
        match &known.report.fact {
            Fact::ToldOfTimeout { by, op } => {
                told.extend(by.or(known.rank));
                if let Some((op, rank)) = op.as_deref().zip(known.rank) {
                    ops.entry(op).or_default().insert(rank);
                }
            }
            Fact::WatchdogFailed { seq } => {
                known.rank.map(|rank| failed.entry(rank).or_insert(*seq));
            }
            _ => continue,
        }
        reports.push(known.report);
    }
    let ranks: Vec<u32> = told.into_iter().collect();
    let diverged = ops.len() > 1;
    let what = if diverged {
        let part = |(op, ranks): (&&str, &BTreeSet<u32>)| {
            format!("{} in {op}", named(&ranks.iter().copied().collect::<Vec<_>>()))
        };
        let parts: Vec<String> = ops.iter().take(4).map(part).collect();
        format!("ranks wait in different operations: {}", parts.join(", "))
    } else if !ranks.is_empty() {
        format!("a collective timed out on {}; no line says which rank did not join", named(&ranks))
    } else if let Some((rank, seq)) = failed.first_key_value() {
        format!(
            "the watchdog of rank {rank} saw a collective fail, SeqNum {seq}; the line that names it is not here"
        )
    } else {
        return None;
    };
    let found = CollectiveCause::timeout(Vec::new(), what, reports, Confidence::Low, false);
    Some(found.by(diverged.then_some(&COLLECTIVES_DIVERGED)))
}

/// What is the same for all groups.
struct Apart {
    /// Ranks that wait in any group.
    waiting: BTreeSet<u32>,
    /// Ranks of the job without any output.
    unseen: Vec<u32>,
    /// Ranks that neither wait nor report a failure of their own, where all have output.
    silent: Vec<u32>,
    /// The sources of the silent ranks; none if one of them is unknown, or was cut off.
    sources: Option<BTreeSet<SourceIndex>>,
    /// Whether NCCL reports that another process ended.
    broken: bool,
}

impl Apart {
    fn new(scene: &Scene<'_>, waits: &Waits<'_>) -> Self {
        let waiting: BTreeSet<u32> = waits.values().flatten().map(|(rank, _)| *rank).collect();
        let unseen = scene.unseen();
        // Ranks that report a failure of their own did not simply stay away.
        let reports = scene.reports.iter().filter(|known| known.report.fact != Fact::Finished);
        let harmed: BTreeSet<u32> = reports.filter_map(|known| known.rank).collect();
        let spoke = |rank: &u32| waiting.contains(rank) || harmed.contains(rank);
        let all_seen = if unseen.is_empty() { scene.world } else { 0 };
        let silent: Vec<u32> = (0..all_seen).filter(|rank| !spoke(rank)).collect();
        let source = |rank| scene.source_of.get(rank).copied().filter(|source| !scene.cut.contains(source));
        let sources = silent.iter().map(source).collect();
        let broken = scene.reports.iter().any(|known| known.report.fact == Fact::RemoteExit);
        Self { waiting, unseen, silent, sources, broken }
    }
}

/// The operations that ranks of one group wait for.
type OfGroup<'w, 'a> = Vec<(i64, &'w Vec<(u32, Wait<'a>)>)>;

/// Returns that ranks of one group wait in different operations, of which none can complete.
fn diverged<'a>(waits: &Waits<'a>) -> Option<CollectiveCause<'a>> {
    let mut groups: BTreeMap<&str, OfGroup<'_, 'a>> = BTreeMap::new();
    for ((group, seq), ranks) in waits {
        groups.entry(group).or_default().push((*seq, ranks));
    }
    // Where no line names the group, operations of one kind may be of several groups, whose numbers do not compare.
    let apart = |(group, all): &(&&str, &OfGroup<'_, 'a>)| {
        let waits = || all.iter().flat_map(|(_, ranks)| ranks.iter()).map(|(_, wait)| wait);
        let ops = waits().map(|wait| wait.work.op.as_str()).collect::<BTreeSet<_>>();
        let unnamed = **group == DEFAULT;
        all.len() > 1 && (ops.len() > 1 || unnamed)
    };
    let (_, all) = groups.iter().find(apart)?;
    let part = |(seq, ranks): &(i64, &Vec<(u32, Wait<'a>)>)| {
        let mut numbers: Vec<u32> = ranks.iter().map(|(rank, _)| *rank).collect();
        numbers.sort_unstable();
        let op = ranks.first().map_or("", |(_, wait)| wait.work.op.as_str());
        format!("{} in {op} SeqNum {seq}", named(&numbers))
    };
    let parts: Vec<String> = all.iter().take(4).map(part).collect();
    let ops = all.iter().flat_map(|(_, ranks)| ranks.iter()).map(|(_, wait)| wait.work.op.as_str());
    let of =
        if ops.collect::<BTreeSet<_>>().len() > 1 { "" } else { ", which may be of several process groups" };
    let what = format!("ranks wait in different operations{of}: {}", parts.join(", "));
    let reports = all.iter().flat_map(|(_, ranks)| ranks.iter()).map(|(_, wait)| wait.report).collect();
    // Lines that do not name their group may be of several, whose operations are numbered apart.
    let found = CollectiveCause::timeout(Vec::new(), what, reports, Confidence::Low, true);
    Some(found.by(of.is_empty().then_some(&COLLECTIVES_DIVERGED)))
}

/// Returns the findings of PyTorch's own checks: `monitoredBarrier` and TORCH_DISTRIBUTED_DEBUG=DETAIL.
fn told<'a>(scene: &Scene<'a>) -> Option<CollectiveCause<'a>> {
    let mut works: BTreeMap<u32, Work> = BTreeMap::new();
    let mut missing: BTreeSet<u32> = BTreeSet::new();
    let mut reports = Vec::new();
    let mut from = "monitoredBarrier";
    let (mut unnamed, mut is_apart) = (Vec::new(), false);
    for known in &scene.reports {
        let before = (works.len(), missing.len());
        match &known.report.fact {
            Fact::Exception(exception) => works.extend(mismatch(&exception.message)),
            Fact::Absent { ranks, from: what, apart } => {
                is_apart |= apart;
                if missing.is_empty() {
                    from = what;
                }
                missing.extend(ranks);
                unnamed.push(known.report);
            }
            _ => continue,
        }
        if before != (works.len(), missing.len()) {
            reports.push(known.report);
        }
    }
    if !missing.is_empty() {
        let ranks: Vec<u32> = missing.into_iter().collect();
        let what = format!("{} did not come to {from}", named(&ranks));
        return Some(CollectiveCause::timeout(ranks, what, reports, Confidence::High, true));
    }
    if works.is_empty() && !unnamed.is_empty() {
        let others = if is_apart { ", and others wait in other operations" } else { "" };
        let what = format!("not all ranks came to {from}{others}; the line names those that did");
        let found = CollectiveCause::timeout(Vec::new(), what, unnamed, Confidence::Low, false);
        return Some(found.by(is_apart.then_some(&COLLECTIVES_DIVERGED)));
    }
    let seq = works.values().next()?.seq;
    let all: Vec<(u32, &Work)> = works.iter().map(|(rank, work)| (*rank, work)).collect();
    uncounted(&all, reports.clone()).or_else(|| odd(seq, &all, reports))
}

/// Returns that ranks are at different operations of their group, as PyTorch's comparison of them says.
fn uncounted<'a>(all: &[(u32, &Work)], reports: Vec<&'a Report>) -> Option<CollectiveCause<'a>> {
    let numbers: BTreeSet<i64> = all.iter().map(|(_, work)| work.seq).collect();
    if numbers.len() < 2 {
        return None;
    }
    let at =
        |(rank, work): &(u32, &Work)| format!("rank {rank} is at SequenceNumber {} ({})", work.seq, work.op);
    let what = all.iter().take(4).map(at).collect::<Vec<_>>().join(", ");
    Some(CollectiveCause {
        class: CauseClass::CollectiveMismatch,
        ranks: all.iter().map(|(rank, _)| *rank).take(2).collect(),
        what,
        reports,
        confidence: Confidence::Medium,
        complete: true,
        rule: None,
    })
}

/// Returns the first standing of each rank in each group, as long as its wait had not ended.
fn standings<'a>(scene: &Scene<'a>) -> BTreeMap<String, BTreeMap<u32, Standing<'a>>> {
    let mut found: BTreeMap<String, BTreeMap<u32, Standing<'a>>> = BTreeMap::new();
    let mut broken: BTreeSet<u32> = BTreeSet::new();
    for known in &scene.reports {
        let Some(rank) = known.rank else { continue };
        match &known.report.fact {
            Fact::RemoteExit => {
                broken.insert(rank);
            }
            Fact::Progress { group, enqueued, .. } if !broken.contains(&rank) => {
                let group = group.clone().unwrap_or_else(|| DEFAULT.to_owned());
                let of_group = found.entry(group).or_default();
                let fresh = Standing { enqueued: *enqueued, report: known.report };
                let first = of_group.entry(rank).or_insert(fresh);
                first.enqueued = first.enqueued.min(*enqueued);
            }
            _ => {}
        }
    }
    found
}

type Waits<'a> = BTreeMap<(String, i64), Vec<(u32, Wait<'a>)>>;

/// Returns the first operation that each rank waited for, by group and sequence number.
fn waits<'a>(scene: &Scene<'a>, groups: &BTreeMap<String, BTreeMap<u32, Standing<'a>>>) -> Waits<'a> {
    let mut found: Waits<'a> = BTreeMap::new();
    let mut done: BTreeSet<u32> = BTreeSet::new();
    // The groups of each rank, in order.
    let mut groups_of: BTreeMap<u32, Vec<(&String, i64)>> = BTreeMap::new();
    for (group, of) in groups {
        for (rank, own) in of {
            groups_of.entry(*rank).or_default().push((group, own.enqueued));
        }
    }
    let default = default_of(groups);
    let mut waiting: BTreeMap<(i64, &str), BTreeSet<u32>> = BTreeMap::new();
    let mut groups_of_waits: BTreeMap<(i64, &str), Option<&String>> = BTreeMap::new();
    for known in &scene.reports {
        if let (Fact::TimedOut { work, .. }, Some(rank)) = (&known.report.fact, known.rank) {
            waiting.entry((work.seq, &work.op)).or_default().insert(rank);
        }
    }
    for known in &scene.reports {
        let (Fact::TimedOut { group, work }, Some(rank)) = (&known.report.fact, known.rank) else { continue };
        if !done.insert(rank) {
            continue;
        }
        // The line that names the operation has no group; the rank's next one has.
        let reported = || {
            let mut own = groups_of.get(&rank).into_iter().flatten();
            own.find(|(_, enqueued)| *enqueued >= work.seq).map(|(group, _)| *group)
        };
        // Where that line is cut, the group of those that wait in the same operation.
        let shared = || {
            let operation = (work.seq, work.op.as_str());
            let find = || {
                let same = waiting.get(&operation)?;
                let waits =
                    |(other, own): (&u32, &Standing<'a>)| own.enqueued >= work.seq && same.contains(other);
                groups.iter().find(|(_, of)| of.iter().any(waits)).map(|(group, _)| group)
            };
            if groups_of.contains_key(&rank) {
                None
            } else {
                *groups_of_waits.entry(operation).or_insert_with(find)
            }
        };
        let group = group.as_ref().or_else(reported).or_else(shared).or(default);
        let group = group.map_or_else(|| DEFAULT.to_owned(), String::clone);
        found.entry((group, work.seq)).or_default().push((rank, Wait { work, report: known.report }));
    }
    found
}

fn default_of<'g>(groups: &'g BTreeMap<String, BTreeMap<u32, Standing<'_>>>) -> Option<&'g String> {
    groups.keys().find(|group| group.contains(DEFAULT))
}

fn differ<'a>(seq: i64, ranks: &[(u32, Wait<'a>)]) -> Option<CollectiveCause<'a>> {
    let all: Vec<(u32, &Work)> = ranks.iter().map(|(rank, wait)| (*rank, wait.work)).collect();
    let mut found = odd(seq, &all, Vec::new())?;
    let named: BTreeSet<u32> = found.ranks.iter().copied().collect();
    let (mut odd, others): (Vec<_>, Vec<_>) = ranks.iter().partition(|(rank, _)| named.contains(rank));
    odd.extend(others);
    found.reports = odd.into_iter().map(|(_, wait)| wait.report).collect();
    Some(found)
}

/// Returns whether ranks may pass different sizes. Those of `all_gather_into_tensor` and `reduce_scatter_tensor` are equal.
fn uneven(op: &str) -> bool {
    let even = ["_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"].contains(&op);
    let words = ["SEND", "RECV", "ALLTOALL", "GATHER", "SCATTER", "COALESCED", "UNKNOWN"];
    !even && words.iter().any(|word| op.contains(word))
}

/// Returns the ranks whose operation differs from that of most.
fn odd<'a>(seq: i64, all: &[(u32, &Work)], reports: Vec<&'a Report>) -> Option<CollectiveCause<'a>> {
    let named: Vec<(u32, &Work)> = all.iter().filter(|(_, work)| work.is_named()).copied().collect();
    let all = named.as_slice();
    let point_to_point = |work: &Work| work.op.contains("SEND") || work.op.contains("RECV");
    if all.iter().any(|(_, work)| point_to_point(work)) {
        return None;
    }
    let ops: BTreeSet<&str> = all.iter().map(|(_, work)| work.op.as_str()).collect();
    let by_op = ops.len() > 1;
    if !by_op && ops.iter().any(|op| uneven(op)) {
        return None;
    }
    let mut kinds: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, work) in all {
        let kind = if by_op { work.op.clone() } else { work.size.as_ref().map(|size| size.1.clone())? };
        kinds.entry(kind).or_default().push(*rank);
    }
    if kinds.len() < 2 {
        return None;
    }
    let label = all.iter().find_map(|(_, work)| work.size.as_ref()).map_or("OpType", |size| size.0);
    let most = kinds.values().map(Vec::len).max()?;
    let majority: Vec<&String> =
        kinds.iter().filter(|(_, ranks)| ranks.len() == most).map(|(kind, _)| kind).collect();
    let (label, head) = if by_op {
        ("OpType", format!("SeqNum {seq}"))
    } else {
        (label, format!("{} SeqNum {seq}", ops.first().copied().unwrap_or_default()))
    };
    let (what, ranks) = match majority.as_slice() {
        [usual] => {
            let odd = kinds.iter().filter(|(kind, _)| kind != usual);
            let said: Vec<String> =
                odd.clone().map(|(kind, ranks)| format!("{} {label} {kind}", has(ranks))).collect();
            let ranks: BTreeSet<u32> = odd.flat_map(|(_, ranks)| ranks.iter().copied()).collect();
            (format!("{head}: {}, the others {usual}", said.join(", ")), ranks.into_iter().collect())
        }
        _ => {
            let said: Vec<String> =
                kinds.iter().map(|(kind, ranks)| format!("{} {label} {kind}", has(ranks))).collect();
            (format!("{head}: {}", said.join(", ")), Vec::new())
        }
    };
    let confidence = if ranks.is_empty() { Confidence::Low } else { Confidence::High };
    Some(CollectiveCause {
        class: CauseClass::CollectiveMismatch,
        ranks,
        what,
        reports,
        confidence,
        complete: true,
        rule: None,
    })
}

fn wait(ranks: &[u32]) -> String {
    format!("{} {}", named(ranks), if ranks.len() == 1 { "waits" } else { "wait" })
}

fn has(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let verb = if sorted.len() == 1 { "has" } else { "have" };
    format!("{} {verb}", named(&sorted))
}

/// The ranks of one group that wait in one operation.
struct GroupWait<'w, 'a> {
    group: &'w str,
    seq: i64,
    ranks: &'w [(u32, Wait<'a>)],
}

impl<'a> GroupWait<'_, 'a> {
    fn operation(&self) -> String {
        // One rank's line may be cut before the name.
        let named = self.ranks.iter().find(|(_, wait)| wait.work.is_named()).or_else(|| self.ranks.first());
        named.map_or(String::new(), |(_, wait)| format!("{} SeqNum {}", wait.work.op, self.seq))
    }

    fn reports(&self) -> Vec<&'a Report> {
        self.ranks.iter().map(|(_, wait)| wait.report).collect()
    }

    /// Returns the ranks whose own report shows that they had not reached the operation.
    fn behind(
        &self,
        standings: Option<&BTreeMap<u32, Standing<'a>>>,
        apart: &Apart,
    ) -> Option<CollectiveCause<'a>> {
        let behind =
            |(rank, own): &(&u32, &Standing<'a>)| own.enqueued < self.seq && !apart.waiting.contains(rank);
        let behind: Vec<(&u32, &Standing<'a>)> = standings.into_iter().flatten().filter(behind).collect();
        if behind.is_empty() {
            return None;
        }
        let absent: Vec<u32> = behind.iter().map(|(rank, _)| **rank).collect();
        let last: BTreeSet<i64> = behind.iter().map(|(_, own)| own.enqueued).collect();
        let last: Vec<String> = last.iter().map(ToString::to_string).collect();
        let whose = if absent.len() == 1 { "its" } else { "their" };
        let what = format!(
            "{} did not take part in {}; {whose} last enqueued work is {}",
            named(&absent),
            self.operation(),
            last.join(" or ")
        );
        let reports = behind.iter().map(|(_, own)| own.report).chain(self.reports()).collect();
        Some(CollectiveCause::timeout(absent, what, reports, Confidence::High, true))
    }

    /// Returns the ranks without a report, where all others have one. A rank whose source continues after its
    /// last line is silent itself; the log did not just end there.
    fn silent(&self, scene: &Scene<'_>, apart: &Apart) -> Option<CollectiveCause<'a>> {
        let silent = &apart.silent;
        let sources = apart.sources.as_ref()?;
        if silent.is_empty() || !self.group.contains(DEFAULT) || sources.len() > self.ranks.len() {
            return None;
        }
        let own = self.ranks.iter().filter_map(|(rank, _)| scene.source_of.get(rank).copied());
        if !sources.is_subset(&own.collect()) {
            return None;
        }
        let report = if silent.len() == 1 { "reports" } else { "report" };
        let operation = self.operation();
        let what =
            format!("{} did not take part in {operation} and {report} nothing about it", named(silent));
        Some(CollectiveCause::timeout(silent.clone(), what, self.reports(), Confidence::Medium, true))
    }

    /// Returns that ranks wait for one that is not known.
    fn unnamed(&self, scene: &Scene<'_>, apart: &Apart) -> CollectiveCause<'a> {
        let mut waiters: Vec<u32> = self.ranks.iter().map(|(rank, _)| *rank).collect();
        waiters.sort_unstable();
        let who = format!("{} in {}", wait(&waiters), self.operation());
        let default = self.group.contains(DEFAULT);
        let silent: &[u32] = if default { &apart.silent } else { &[] };
        let (what, confidence, complete) = if default && !apart.unseen.is_empty() {
            (format!("{who}; {}", scene.not_read("")), Confidence::Low, false)
        } else if silent.is_empty() && !scene.stated {
            let why = "it is not known how many ranks there are: one whose log was not read may be missing";
            (format!("{who}; {why}"), Confidence::Low, false)
        } else if silent.is_empty() {
            let what = format!("{who}, and it does not complete: suspect the network or a GPU");
            (what, Confidence::Medium, default && !apart.broken)
        } else {
            let report = if silent.len() == 1 { "reports" } else { "report" };
            (format!("{who}; {} {report} nothing about it", named(silent)), Confidence::Low, false)
        };
        CollectiveCause::timeout(Vec::new(), what, self.reports(), confidence, complete)
    }
}
