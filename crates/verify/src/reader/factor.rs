//! What the ratio of bus to algorithm bandwidth shows: nccl-tests computes the one from the other, so the ratio is
//! exact but for the digits that are printed.

use crate::table::{Collective, Figures, Row, Run};

/// Returns the only collective whose ratio of bus to algorithm bandwidth matches the figures; none if several do.
pub(super) fn by_factor(run: &Run) -> Option<Collective> {
    let (factor, error) = ratio(run)?;
    // Only all-reduce has more than 1; its factor stays below 2
    // (<https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>, read 2026-11-23).
    if factor > 1.0 + error.max(0.02) && factor < 2.0 + error {
        return Some(Collective::AllReduce);
    }
    // Of two ranks it has 1, as a broadcast, and the others of this program one half.
    let ranks = run.ranks.filter(|ranks| *ranks > 1)?;
    let expected = Collective::AllReduce.bus_factor(ranks);
    ((factor / expected - 1.0).abs() < 0.02).then_some(Collective::AllReduce)
}

/// Replaces a number of ranks that the figures contradict, or that the log does not name, by the one that the
/// figures show: a list of ranks may be cut.
pub(super) fn correct(run: &mut Run) {
    // Only a single rank has a factor of zero.
    let nothing_crosses = |row: &Row| {
        let figures = row.out_of_place;
        figures.busbw == Some(0.0) && figures.algbw.is_some_and(|algbw| algbw >= 1.0)
    };
    if run.ranks.is_none() && !run.rows.is_empty() && run.rows.iter().all(nothing_crosses) {
        run.ranks = Some(1);
        return;
    }
    let (Some(collective), Some((factor, error))) = (run.collective, ratio(run)) else { return };
    let scale = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
    // The factor is scale * (ranks - 1) / ranks.
    let ranks_of = |factor: f64| 1.0 / (1.0 - factor / scale);
    if factor <= 0.0 || factor + error >= scale {
        return;
    }
    let agrees = |ranks: u32| (collective.bus_factor(ranks) - factor).abs() <= 3.0 * error + 0.002;
    if run.ranks.is_some_and(agrees) {
        return;
    }
    let (least, most) = (ranks_of(factor - error).ceil(), ranks_of(factor + error).floor());
    if most < least {
        // No number of ranks has this ratio: another program computed it.
        return;
    }
    // With one whole number between them it is that; with more, the digits do not tell.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most MOST_RANKS")]
    let shown = (least >= 2.0 && most - least < 0.5 && most <= MOST_RANKS).then_some(least as u32);
    // A list may be cut, and never names too many.
    if run.ranks.zip(shown).is_some_and(|(listed, shown)| shown < listed) {
        return;
    }
    (run.ranks, run.nodes) = (shown, None);
}

/// Largest number of ranks that the digits of a table can tell apart.
const MOST_RANKS: f64 = 4096.0;

/// Returns the ratio of the largest size, and its error.
fn ratio(run: &Run) -> Option<(f64, f64)> {
    let Figures { busbw, algbw, .. } = run.rows.iter().max_by_key(|row| row.size)?.out_of_place;
    let (busbw, algbw) = (busbw?, algbw.filter(|algbw| *algbw > 0.0)?);
    let factor = busbw / algbw;
    Some((factor, factor * (digits(busbw) / busbw.max(f64::MIN_POSITIVE) + digits(algbw) / algbw)))
}

/// Returns half of the last digit that nccl-tests prints of a bandwidth (`getFloatStr`, `src/util.cu` 2.19).
fn digits(value: f64) -> f64 {
    match value {
        value if value < 1000.0 => 0.005,
        value if value < 10_000.0 => 0.05,
        _ => 0.5,
    }
}
