//! Who comes last. The rank that does has the shortest time of an operation, since the others wait for it inside.

use std::collections::BTreeMap;

use super::line::Measured;
use super::speeds::{Arrival, Order, RankWait, Recent};
use super::{Entry, Series};

/// Parts of the time in which the same rank must be late: waiting once for a checkpoint is no straggler.
const PARTS: usize = 8;
/// Operations, or sums of a time, that must be comparable: one for each part.
const LEAST: usize = PARTS;
/// Part of a rank's operations that the others must have too, and of the same size: else their numbers do not fit each other.
const SHARED: f64 = 0.9;
/// Part of the others' waiting that a late rank may have itself.
const OWN: f64 = 0.25;
/// Part of the time that the others must wait, and part of their time in the operations: where the wire takes most of it, nobody
/// can tell a late rank from a slow path. Of ten runs of two equal GPUs without a delay, one waited 6 % of the time in three.
const OF_ALL: f64 = 0.1;
const OF_OPERATIONS: f64 = 0.1;

/// A rank's waiting.
struct Waits<'a> {
    series: &'a Series,
    /// Seconds in each part of the time: waiting, and all of the operations.
    parts: [(f64, f64); PARTS],
}

impl Waits<'_> {
    /// Returns the seconds of all parts, as if each were the median one.
    fn typical(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let mut parts: Vec<f64> = self.parts.iter().map(of).collect();
        parts.sort_by(f64::total_cmp);
        f64::midpoint(parts[(PARTS - 1) / 2], parts[PARTS / 2]) * PARTS as f64
    }

    fn waited(&self) -> f64 {
        self.typical(|part| part.0)
    }
}

/// Judges the ranks of one communicator in one collective, which took `seconds` in all. `last_of_all` is the time of the job's last
/// record, in milliseconds since 1970.
pub fn judge(ranks: &[&Series], seconds: Option<f64>, last_of_all: u64) -> Arrival {
    let Some(first) = ranks.first() else { return Arrival::of(Order::Few) };
    if !first.collective.is_symmetric() {
        return Arrival::of(Order::PointToPoint);
    }
    if ranks.len() < 2 {
        return Arrival::of(Order::Few);
    }
    let mut arrival = match compared(ranks) {
        Ok(compared) => judge_times(ranks, &compared, seconds, kept_part(ranks)),
        Err(order) => Arrival::of(order),
    };
    add_recent(&mut arrival, ranks, seconds, last_of_all);
    arrival
}

/// Judges the last times by themselves, where they are a small part of all: they say more of a job that runs than all of it does.
/// Only what all ranks have written counts, and a communicator that is silent while the job goes on has no last times.
fn add_recent(arrival: &mut Arrival, ranks: &[&Series], seconds: Option<f64>, last_of_all: u64) {
    let first = ranks.iter().filter_map(|series| Some(series.recent.front()?.key)).max();
    let last = ranks.iter().filter_map(|series| Some(series.recent.back()?.key)).min();
    let (Some(first), Some(last), Some(period)) = (first, last, period(ranks)) else { return };
    let common = |entry: &&Entry| (first..=last).contains(&entry.key);
    let entries: Vec<Vec<Entry>> =
        ranks.iter().map(|series| series.recent.iter().filter(common).copied().collect()).collect();
    let Ok(least) = shared_keys(&entries, false) else { return };
    let of_last = last.saturating_sub(first).saturating_add(period) as f64 / 1e3;
    let is_old = last_of_all.saturating_sub(last) > LEAST as u64 * period;
    if is_old || seconds.is_none_or(|seconds| seconds < 2.0 * of_last) {
        return;
    }
    let now = judge_times(ranks, &(entries, least), Some(of_last), 1.0);
    let is_late = now.order == Order::Late;
    let waited_share = now.waited_share.filter(|_| is_late).unwrap_or(0.0);
    let ranks_of = |arrival: &Arrival| arrival.late.iter().map(|rank| rank.rank).collect::<Vec<_>>();
    let is_judged = is_late && ranks_of(&now) != ranks_of(arrival);
    if is_judged {
        *arrival = now;
    }
    arrival.recent = Some(Recent { seconds: of_last, waited_share, is_judged });
}

/// Judges the ranks by times that fit each other, of which a part of the operations is `kept`.
fn judge_times(ranks: &[&Series], (entries, least): &Compared, seconds: Option<f64>, kept: f64) -> Arrival {
    let waits = waits(ranks, entries, least, kept);
    let mut arrival = Arrival::of(Order::Even);
    arrival.compared = least.len();
    arrival.waits = waits.iter().map(|waits| RankWait::new(&waits.series.origin, waits.waited())).collect();
    let mut sorted: Vec<f64> = waits.iter().map(Waits::waited).collect();
    sorted.sort_by(f64::total_cmp);
    // For two ranks the longer wait; for many, that of most.
    let others = sorted[(3 * (sorted.len() - 1)).div_ceil(4)];
    let mut times: Vec<f64> = waits.iter().map(|waits| waits.typical(|part| part.1)).collect();
    times.sort_by(f64::total_cmp);
    let time = times[(3 * (times.len() - 1)).div_ceil(4)];
    arrival.waited_seconds = others;
    arrival.waited_share =
        seconds.filter(|seconds| *seconds > 0.0).map(|seconds| (others / seconds).min(1.0));
    let late: Vec<&Waits<'_>> =
        waits.iter().filter(|rank| rank.waited() < OWN * others && is_steady(rank, &waits)).collect();
    if others < OF_OPERATIONS * time {
        arrival.order = if time > 0.5 * seconds.unwrap_or(f64::INFINITY) { Order::Wire } else { Order::Even };
        return arrival;
    }
    let clear = arrival.waited_share.is_none_or(|share| share >= OF_ALL);
    // A late node makes all its ranks late, but most ranks of a job are not late.
    if clear && !late.is_empty() && late.len() <= (ranks.len() / 4).max(1) {
        arrival.order = Order::Late;
        arrival.late = late.iter().map(|rank| RankWait::new(&rank.series.origin, rank.waited())).collect();
    }
    arrival
}

/// Returns the milliseconds between two lines of a rank.
pub fn period(ranks: &[&Series]) -> Option<u64> {
    let gaps = ranks.iter().flat_map(|series| {
        series.recent.iter().zip(series.recent.iter().skip(1)).map(|(one, next)| next.key - one.key)
    });
    gaps.min()
}

type Compared = (Vec<Vec<Entry>>, BTreeMap<u64, f64>);

/// Returns what ranks are compared by: their sums of a time, or their single operations where there are no sums. Where seconds
/// hold too few operations to be of the same, longer times are taken.
fn compared(ranks: &[&Series]) -> Result<Compared, Order> {
    let by_time = ranks.iter().all(|series| !series.sums.is_empty());
    let mut why = Order::Few;
    for width in if by_time { &[1, 500, 1_000, 4_000, 16_000][..] } else { &[1] } {
        let of = |series: &&Series| merged(if by_time { &series.sums } else { &series.singles }, *width);
        let entries: Vec<Vec<Entry>> = ranks.iter().map(of).collect();
        match shared_keys(&entries, !by_time) {
            Ok(least) => return Ok((entries, least)),
            Err(order) => why = if *width == 1 { order } else { why },
        }
    }
    Err(why)
}

/// Returns whether a rank waits clearly less than most in three of four parts.
fn is_steady(rank: &Waits<'_>, all: &[Waits<'_>]) -> bool {
    let clear = |part: &usize| {
        let mut waits: Vec<f64> = all.iter().map(|rank| rank.parts[*part].0).collect();
        let at = (3 * (waits.len() - 1)).div_ceil(4);
        let (_, others, _) = waits.select_nth_unstable_by(at, f64::total_cmp);
        rank.parts[*part].0 < 0.5 * *others
    };
    (0..PARTS).filter(clear).count() * 4 >= PARTS * 3
}

/// Returns a rank's entries by their keys, of which those within `width` are added up; for single operations it is 1.
fn merged(entries: &[Entry], width: u64) -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        entries.iter().map(|entry| Entry { key: entry.key / width, ..*entry }).collect();
    entries.sort_by_key(|entry| entry.key);
    entries.dedup_by(|next, kept| {
        let same = next.key == kept.key;
        if same {
            kept.measured.add(next.measured);
        }
        same
    });
    entries
}

/// What all ranks have of a key.
#[derive(Clone, Copy)]
struct Shared {
    ranks: usize,
    counts: (u64, u64),
    bytes: (u64, u64),
    /// The shortest mean time of an operation, in nanoseconds.
    least: f64,
}

/// Returns the keys under which all ranks have the same operations, with the shortest mean time of each.
fn shared_keys(entries: &[Vec<Entry>], exact: bool) -> Result<BTreeMap<u64, f64>, Order> {
    let mut keys: BTreeMap<u64, Shared> = BTreeMap::new();
    for Entry { key, measured: Measured { count, bytes, .. } } in entries.iter().flatten() {
        let none =
            Shared { ranks: 0, counts: (*count, *count), bytes: (*bytes, *bytes), least: f64::INFINITY };
        let shared = keys.entry(*key).or_insert(none);
        shared.ranks += 1;
        shared.counts = (shared.counts.0.min(*count), shared.counts.1.max(*count));
        shared.bytes = (shared.bytes.0.min(*bytes), shared.bytes.1.max(*bytes));
    }
    for Entry { key, measured } in entries.iter().flatten() {
        if let Some(shared) = keys.get_mut(key) {
            shared.least = shared.least.min(measured.mean());
        }
    }
    let known = keys.len();
    // An operation that ends as the second does may be counted in the next one by some.
    let near = |(least, most): (u64, u64)| least == most || !exact && least as f64 >= SHARED * most as f64;
    keys.retain(|_, shared| shared.ranks == entries.len() && near(shared.counts) && near(shared.bytes));
    // A rank may have lost some; one that has far fewer says nothing of the others.
    let fewest = entries.iter().map(Vec::len).min().unwrap_or(0).min(known);
    if fewest < LEAST {
        Err(Order::Few)
    } else if (keys.len() as f64) < SHARED * fewest as f64 {
        Err(Order::Unmatched)
    } else {
        Ok(keys.into_iter().map(|(key, shared)| (key, shared.least)).collect())
    }
}

/// Returns the part of the operations that is kept for comparing: all of them, but for a job of very many ranks.
fn kept_part(ranks: &[&Series]) -> f64 {
    let by_time = ranks.iter().all(|series| !series.sums.is_empty());
    let (mut all, mut kept) = (0_u64, 0_u64);
    for series in ranks {
        let counts = series.sizes.iter().map(|size| size.count);
        all = counts.fold(all, u64::saturating_add);
        let entries = if by_time { &series.sums } else { &series.singles };
        kept = entries.iter().map(|entry| entry.measured.count).fold(kept, u64::saturating_add);
    }
    if kept == 0 { 1.0 } else { (kept as f64 / all.max(1) as f64).min(1.0) }
}

/// Returns each rank's waiting and time in each part, of which a part of the operations is kept.
fn waits<'a>(
    ranks: &[&'a Series],
    entries: &[Vec<Entry>],
    least: &BTreeMap<u64, f64>,
    kept: f64,
) -> Vec<Waits<'a>> {
    let part: BTreeMap<u64, (usize, f64)> = least
        .iter()
        .enumerate()
        .map(|(at, (key, nanos))| (*key, (at * PARTS / least.len(), *nanos)))
        .collect();
    // The parts have nearly the same number of keys: what one has more would make it the typical one.
    let mut weights = [0.0; PARTS];
    part.values().for_each(|(part, _)| weights[*part] += 1.0);
    weights = weights.map(|keys: f64| least.len() as f64 / PARTS as f64 / keys.max(1.0) / kept);
    let of = |(series, entries): (&&'a Series, &Vec<Entry>)| {
        let mut parts = [(0.0, 0.0); PARTS];
        for Entry { key, measured } in entries {
            if let Some((part, least)) = part.get(key) {
                let weight = weights[*part] / 1e9;
                parts[*part].0 += (measured.mean() - least) * measured.count as f64 * weight;
                parts[*part].1 += measured.nanos as f64 * weight;
            }
        }
        Waits { series, parts }
    };
    ranks.iter().zip(entries).map(of).collect()
}
