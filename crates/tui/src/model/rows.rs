//! The rows of the overview, ranks or nodes, in the order in which they are listed.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use jiff::Timestamp;

use super::open::{Open, Suspects};
use super::sorting::{NodeColumn, RankColumn};
use super::transport_view::{Node, Rank, Step};

/// What a rank has written in its present attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    pub warnings: u64,
    pub errors: u64,
    /// When it wrote its last line, if known.
    pub last: Option<Timestamp>,
}

impl Open {
    /// Returns what each rank has written. It locks the log store.
    pub fn outputs(&self) -> HashMap<u32, Output> {
        let mut outputs: HashMap<u32, Output> = HashMap::new();
        for stream in self.logs.store.read().streams().iter().filter(|stream| !stream.is_past) {
            let Some(rank) = stream.rank else { continue };
            let output = outputs.entry(rank).or_default();
            output.warnings += stream.warnings;
            output.errors += stream.errors;
            output.last = output.last.max(stream.last);
        }
        outputs
    }

    /// Returns the indices of the ranks in the order in which they are listed.
    pub fn rank_rows(&self) -> Vec<usize> {
        let suspects = self.suspects();
        let outputs = match self.ranks_sorted.column {
            RankColumn::Warnings | RankColumn::Errors | RankColumn::Silent => self.outputs(),
            _ => HashMap::new(),
        };
        let output = |rank: &Rank| rank.rank.and_then(|rank| outputs.get(&rank)).copied().unwrap_or_default();
        let ranks = &self.transport_view.ranks;
        let compare = |at: usize, other: usize| {
            let (a, b) = (&ranks[at], &ranks[other]);
            match self.ranks_sorted.column {
                RankColumn::Trouble => suspects.contains(b.rank).cmp(&suspects.contains(a.rank)),
                RankColumn::Rank => at.cmp(&other),
                RankColumn::Host => (&a.host, a.pid).cmp(&(&b.host, b.pid)),
                RankColumn::Gpu => known_first(a.device, b.device),
                RankColumn::Phase => phase(a).cmp(&phase(b)),
                RankColumn::Loaded => known_first(a.announced.as_ref(), b.announced.as_ref()),
                RankColumn::Warnings => output(b).warnings.cmp(&output(a).warnings),
                RankColumn::Errors => {
                    let bad = |output: Output| Reverse((output.errors, output.warnings));
                    bad(output(a)).cmp(&bad(output(b)))
                }
                RankColumn::Silent => known_first(output(a).last, output(b).last),
                RankColumn::Step => known_first(a.last_step, b.last_step),
            }
        };
        let mut rows: Vec<usize> = (0..ranks.len()).collect();
        rows.sort_by(|a, b| self.ranks_sorted.order(compare(*a, *b)));
        rows
    }

    /// Returns the indices of the nodes in the order in which they are listed.
    pub fn node_rows(&self) -> Vec<usize> {
        let (view, suspects) = (&self.transport_view, self.suspects());
        let (nodes, ranks) = (&view.nodes, &view.ranks);
        let slowest = |node: &Node| node.ranks.iter().filter_map(|at| ranks.get(*at)).map(phase).min();
        let compare = |a: usize, b: usize| {
            let (one, other) = (&nodes[a], &nodes[b]);
            match self.nodes_sorted.column {
                NodeColumn::Trouble => {
                    let calm = |node| !is_in_trouble(node, &suspects, self);
                    calm(one).cmp(&calm(other))
                }
                NodeColumn::Node => a.cmp(&b),
                NodeColumn::Reached => slowest(one).cmp(&slowest(other)),
                NodeColumn::Loaded => one.announced.cmp(&other.announced),
                NodeColumn::Ranks => one.ranks.iter().min().cmp(&other.ranks.iter().min()),
            }
        };
        let mut rows: Vec<usize> = (0..nodes.len()).collect();
        rows.sort_by(|a, b| self.nodes_sorted.order(compare(*a, *b)));
        rows
    }
}

fn is_in_trouble(node: &Node, suspects: &Suspects, open: &Open) -> bool {
    node.failed > 0 || suspects.contain_any(&open.transport_view, &node.ranks)
}

/// Returns what ranks are sorted by in the column of their phase.
fn phase(rank: &Rank) -> (bool, Step) {
    (!rank.failed, rank.step())
}

/// Compares two values of which an unknown one comes last.
fn known_first<T: Ord + Copy>(one: Option<T>, other: Option<T>) -> Ordering {
    one.is_none().cmp(&other.is_none()).then_with(|| one.cmp(&other))
}
