//! The bring-up of a job by rank, as a drawing.

use std::fmt::Write as _;

use jiff::Timestamp;
use weftrun_tui::model::transport_view::{Rank, Step, TransportView};

/// Width of the drawing.
pub const WIDTH: f64 = 900.0;
/// Room for the numbers of the ranks.
const LEFT: f64 = 48.0;
/// Most ranks with a row of their own.
const ROWS: usize = 1024;

pub struct BringUp {
    /// What it shows, in a sentence.
    pub about: String,
    pub height: f64,
    /// The time that each step took, by rank: the number of the step, its word, and its bars.
    pub steps: Vec<(usize, &'static str, String)>,
    /// Numbers of ranks: their height, and the text.
    pub rows: Vec<(f64, String)>,
    /// Seconds since the first line: their place, and the text.
    pub ticks: Vec<(f64, String)>,
}

/// Draws it; none if the lines of the log carry no times.
pub fn bring_up(view: &TransportView) -> Option<BringUp> {
    let ranks: Vec<&Rank> = view.ranks.iter().filter(|rank| rank.reached[0].is_some()).take(ROWS).collect();
    let first = ranks.iter().filter_map(|rank| rank.reached[0]).min()?;
    let since = |time: Timestamp| time.duration_since(first).as_secs_f64().max(0.0);
    let last = ranks.iter().flat_map(|rank| rank.reached).flatten().map(since).fold(0.0, f64::max);
    if last <= 0.0 {
        return None;
    }
    let high = if ranks.len() <= 64 { 12.0 } else { (768.0 / ranks.len() as f64).max(1.0) };
    let x = |seconds: f64| LEFT + seconds / last * (WIDTH - LEFT - 8.0);
    let mut steps: Vec<(usize, &str, String)> =
        Step::LIFE.iter().enumerate().skip(1).map(|(at, step)| (at, step.word(), String::new())).collect();
    for (row, rank) in ranks.iter().enumerate() {
        let y = row as f64 * high;
        for (at, _, path) in &mut steps {
            let from = rank.reached.iter().take(*at).rev().flatten().next();
            let (Some(from), Some(to)) = (from.copied(), rank.reached[*at]) else { continue };
            let (from, to) = (x(since(from)), x(since(to)));
            if to - from >= 0.1 {
                let (wide, bar) = (to - from, (high - 0.5).max(0.5));
                let _ = write!(path, "M{from:.1} {y:.1}h{wide:.1}v{bar:.1}h-{wide:.1}z");
            }
        }
    }
    steps.retain(|(.., path)| !path.is_empty());
    let every = ranks.len().div_ceil(24);
    let rows = ranks.iter().enumerate().step_by(every).map(|(row, rank)| {
        let text = rank.rank.map_or_else(|| "?".to_owned(), |rank| format!("r{rank}"));
        (row as f64 * high + high.min(12.0) - 2.0, text)
    });
    let slowest = ranks.iter().max_by_key(|rank| rank.reached.iter().flatten().max());
    let slowest =
        slowest.and_then(|rank| rank.rank).map_or_else(String::new, |rank| format!("; rank {rank} was last"));
    Some(BringUp {
        about: format!("{} ranks, {last:.1} s from the first line to the last step{slowest}", ranks.len()),
        height: ranks.len() as f64 * high + 24.0,
        rows: rows.collect(),
        ticks: (0..=4)
            .map(|part| f64::from(part) / 4.0 * last)
            .map(|s| (x(s), format!("{s:.1} s")))
            .collect(),
        steps,
    })
}
