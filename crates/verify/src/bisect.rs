//! Finds slow nodes by measuring groups of nodes.
//!
//! A group of nodes is as slow as its slowest node. The suspected groups are halved until they are small, and each
//! remaining node is measured in a pair with a node that is known to be good. The groups of one round share no
//! node, so they can be measured at the same time.

use std::collections::{BTreeMap, BTreeSet};

/// Indices of the nodes that are measured together.
pub type Group = Vec<usize>;

/// Groups of at least this size are halved; the nodes of smaller groups are measured in pairs. Two nodes have a
/// higher bus bandwidth than three, since half of their ring is inside a node, so only groups of similar size
/// are compared.
const HALVED: usize = 8;
/// A group is slow if its bandwidth is below this fraction of the fastest group's.
const SLOW: f64 = 0.85;
/// Largest number of rounds of pairs while no node is known to be good.
const BLIND: usize = 3;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Measure these groups, which share no node.
    Measure(Vec<Group>),
    /// The search has ended.
    Done(Answer),
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The slow nodes, each of which was slow in a pair with a good node.
    Slow(Vec<usize>),
    /// No single node explains the low bandwidth. The text is the reason, as a sentence.
    NoSingleNode(String),
}

/// A search for slow nodes.
#[derive(Clone, Debug)]
pub struct Bisect {
    nodes: usize,
    /// Groups that may contain a slow node.
    suspects: Vec<Group>,
    good: BTreeSet<usize>,
    /// Bandwidth of pairs; none if the measurement failed.
    pairs: BTreeMap<(usize, usize), Option<f64>>,
    /// Rounds of pairs without a good node.
    blind: usize,
    ended: Option<Answer>,
    rounds: Vec<Vec<(Group, Option<f64>)>>,
}

impl Bisect {
    /// Creates a search among this many nodes, all of them suspected.
    pub fn new(nodes: usize) -> Self {
        let ended = (nodes < 3).then(|| {
            Answer::NoSingleNode(
                "fewer than three nodes cannot be compared: add a node that is known to be good".into(),
            )
        });
        Self {
            nodes,
            suspects: vec![(0..nodes).collect()],
            good: BTreeSet::new(),
            pairs: BTreeMap::new(),
            blind: 0,
            ended,
            rounds: Vec::new(),
        }
    }

    /// Returns all measurements by round: the groups with their bus bandwidth, none if the measurement failed.
    pub fn rounds(&self) -> &[Vec<(Group, Option<f64>)>] {
        &self.rounds
    }

    /// Returns the next step of the search.
    pub fn step(&self) -> Step {
        if let Some(answer) = &self.ended {
            return Step::Done(answer.clone());
        }
        let large = |group: &&Group| group.len() >= HALVED;
        let groups = if self.suspects.iter().any(|group| large(&group)) {
            self.halves()
        } else if self.good.is_empty() {
            self.blind_pairs()
        } else {
            self.pairs_with_good()
        };
        if groups.is_empty() {
            return Step::Done(Answer::NoSingleNode("no further pair of nodes can be measured".into()));
        }
        Step::Measure(groups)
    }

    /// Adds the results of a round: the bus bandwidth of each group, none if its job failed.
    pub fn record(&mut self, results: Vec<(Group, Option<f64>)>) {
        let halved = results.iter().any(|(group, _)| group.len() > 2);
        for (group, busbw) in &results {
            if let [one, two] = group.as_slice() {
                self.pairs.insert((*one.min(two), *one.max(two)), *busbw);
            }
        }
        if halved {
            self.record_halves(&results);
        } else {
            self.record_pairs(results.len());
        }
        self.rounds.push(results);
    }

    /// Halves the suspected groups that are large enough, and adds a group of good nodes for comparison.
    fn halves(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for group in self.suspects.iter().filter(|group| group.len() >= HALVED) {
            let (one, two) = group.split_at(group.len() / 2);
            groups.extend([one.to_vec(), two.to_vec()]);
        }
        let size = groups.iter().map(Vec::len).max().unwrap_or(0);
        if self.good.len() >= size {
            groups.push(self.good.iter().copied().take(size).collect());
        }
        groups
    }

    fn record_halves(&mut self, results: &[(Group, Option<f64>)]) {
        let best = results.iter().filter_map(|(_, busbw)| *busbw).fold(0.0, f64::max);
        if best == 0.0 {
            self.ended = Some(Answer::NoSingleNode("no group of nodes could be measured".into()));
            return;
        }
        let is_slow = |busbw: &Option<f64>| busbw.is_none_or(|busbw| busbw < SLOW * best);
        let tested: BTreeSet<usize> = results.iter().flat_map(|(group, _)| group.iter().copied()).collect();
        let (slow, fast): (Vec<_>, Vec<_>) = results.iter().partition(|(_, busbw)| is_slow(busbw));
        let untested = self.suspects.iter().filter(|group| !group.iter().any(|node| tested.contains(node)));
        let mut suspects: Vec<Group> = untested.cloned().collect();
        if slow.is_empty() && self.good.is_empty() && (results.len() < 4 || !suspects.is_empty()) {
            // Each group may contain a slow node.
            suspects.extend(fast.iter().map(|(group, _)| group.clone()));
            self.suspects = suspects;
            return;
        }
        suspects.extend(slow.iter().map(|(group, _)| group.clone()));
        self.good.extend(fast.iter().flat_map(|(group, _)| group));
        self.suspects = suspects;
        if self.suspects.is_empty() {
            let sizes = results.iter().map(|(group, _)| group.len()).max().unwrap_or(0);
            self.ended = Some(Answer::NoSingleNode(format!(
                "groups of {sizes} nodes are as fast as each other ({best:.1} GB/s)"
            )));
        }
    }

    /// Returns the suspected nodes that are not known to be good or slow.
    fn undecided(&self, slow: &BTreeSet<usize>) -> Vec<usize> {
        let open = |node: &usize| !self.good.contains(node) && !slow.contains(node);
        self.suspects.iter().flatten().copied().filter(open).collect()
    }

    /// Pairs each undecided node with a good one, and adds a pair of good nodes if none was measured yet.
    fn pairs_with_good(&self) -> Vec<Group> {
        let slow = self.slow();
        let mut good: Vec<usize> = self.good.iter().rev().copied().collect();
        let mut groups = Vec::new();
        let measured = |pair: &(usize, usize)| self.good.contains(&pair.0) && self.good.contains(&pair.1);
        if good.len() >= 2 && !self.pairs.keys().any(measured) {
            groups.push(good.split_off(good.len() - 2));
        }
        for node in self.undecided(&slow) {
            let Some(partner) = good.pop() else { break };
            groups.push(vec![node, partner]);
        }
        groups
    }

    /// Pairs all nodes, differently in each round (the circle method of round-robin tournaments).
    fn blind_pairs(&self) -> Vec<Group> {
        let even = self.nodes + self.nodes % 2;
        let others = even - 1;
        let place = |at: usize| if at == 0 { 0 } else { 1 + (at - 1 + self.blind) % others };
        let pairs = (0..even / 2).map(|at| vec![place(at), place(even - 1 - at)]);
        pairs.filter(|pair| pair.iter().all(|node| *node < self.nodes)).collect()
    }

    /// Returns the bandwidth of the fastest pair.
    fn best_pair(&self) -> f64 {
        self.pairs.values().flatten().copied().fold(0.0, f64::max)
    }

    fn is_slow_pair(&self, busbw: Option<f64>) -> bool {
        busbw.is_none_or(|busbw| busbw < SLOW * self.best_pair())
    }

    /// Returns the nodes that are slow in a pair with a good node.
    fn slow(&self) -> BTreeSet<usize> {
        let slow_pairs = self.pairs.iter().filter(|(_, busbw)| self.is_slow_pair(**busbw));
        slow_pairs
            .filter_map(|((one, two), _)| match (self.good.contains(one), self.good.contains(two)) {
                (true, false) => Some(*two),
                (false, true) => Some(*one),
                _ => None,
            })
            .collect()
    }

    fn record_pairs(&mut self, measured: usize) {
        let any_slow = self.pairs.values().any(|busbw| self.is_slow_pair(*busbw));
        let blind = self.good.is_empty();
        if !blind || any_slow {
            let fast = self.pairs.iter().filter(|(_, busbw)| !self.is_slow_pair(**busbw));
            self.good.extend(fast.flat_map(|((one, two), _)| [*one, *two]).collect::<Vec<_>>());
        }
        if self.good.is_empty() {
            self.blind += 1;
            let seen: BTreeSet<usize> = self.pairs.keys().flat_map(|(one, two)| [*one, *two]).collect();
            let compared = measured > 2 && seen.len() == self.nodes;
            if self.blind >= BLIND || compared {
                let best = self.best_pair();
                self.ended = Some(Answer::NoSingleNode(match any_slow {
                    true => "no pair of nodes could be measured".to_owned(),
                    false => format!("all pairs of nodes are as fast as each other ({best:.1} GB/s)"),
                }));
            }
            return;
        }
        let slow = self.slow();
        if self.undecided(&slow).is_empty() {
            self.ended = Some(if slow.is_empty() {
                Answer::NoSingleNode(format!(
                    "each suspected node is as fast as others in a pair ({:.1} GB/s)",
                    self.best_pair()
                ))
            } else {
                Answer::Slow(slow.into_iter().collect())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over simulated nodes. Returns the answer and the number of rounds.
    fn search(nodes: usize, busbw: impl Fn(&Group) -> Option<f64>) -> (Answer, usize) {
        let mut bisect = Bisect::new(nodes);
        loop {
            match bisect.step() {
                Step::Done(answer) => return (answer, bisect.rounds().len()),
                Step::Measure(groups) => {
                    let mut seen = BTreeSet::new();
                    for group in &groups {
                        assert!(group.len() >= 2, "{groups:?}");
                        assert!(group.iter().all(|node| *node < nodes && seen.insert(*node)), "{groups:?}");
                    }
                    assert!(bisect.rounds().len() < 20, "{nodes}: {:?}", bisect.rounds());
                    bisect.record(
                        groups.into_iter().map(|group| (busbw(&group), group)).map(|(b, g)| (g, b)).collect(),
                    );
                }
            }
        }
    }

    /// The bandwidth of a group in which some nodes are slow, with noise of up to three percent.
    fn simulated(group: &Group, slow: &[usize], part: f64) -> Option<f64> {
        let whole = if group.len() == 2 { 480.0 } else { 360.0 };
        let noise = group.iter().fold(7_usize, |sum, node| sum.wrapping_mul(31).wrapping_add(*node)) % 7;
        let noise = 1.0 - 0.005 * noise as f64;
        let is_slow = group.iter().any(|node| slow.contains(node));
        Some(whole * noise * if is_slow { part } else { 1.0 })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    fn limit(nodes: usize) -> usize {
        (2.0 * (nodes as f64).log2()).floor() as usize
    }

    #[test]
    fn one_slow_node_is_found_among_any_number() {
        for nodes in 3..=64 {
            for slow in 0..nodes {
                for part in [0.05, 0.5, 0.75] {
                    let (answer, rounds) = search(nodes, |group| simulated(group, &[slow], part));
                    assert_eq!(answer, Answer::Slow(vec![slow]), "{nodes} nodes, {slow}");
                    assert!(rounds <= limit(nodes), "{nodes} nodes, {slow}: {rounds} rounds");
                }
            }
        }
    }

    #[test]
    fn two_slow_nodes_are_both_found() {
        for nodes in [4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 31, 32, 33, 64] {
            for one in 0..nodes {
                for two in one + 1..nodes {
                    let (answer, rounds) = search(nodes, |group| simulated(group, &[one, two], 0.4));
                    assert_eq!(answer, Answer::Slow(vec![one, two]), "{nodes} nodes");
                    assert!(rounds <= limit(nodes), "{nodes} nodes, {one} and {two}: {rounds} rounds");
                }
            }
        }
    }

    #[test]
    fn without_a_slow_node_none_is_named() {
        for nodes in 0..=64 {
            let (answer, rounds) = search(nodes, |group| simulated(group, &[], 1.0));
            assert!(matches!(answer, Answer::NoSingleNode(_)), "{nodes}: {answer:?}");
            assert!(nodes < 3 || rounds <= limit(nodes), "{nodes}: {rounds}");
            // If all nodes are slow, no single node explains it either.
            let all: Vec<usize> = (0..nodes).collect();
            let (answer, _) = search(nodes, |group| simulated(group, &all, 0.2));
            assert!(matches!(answer, Answer::NoSingleNode(_)), "{nodes}: {answer:?}");
        }
    }

    #[test]
    fn a_node_whose_jobs_fail_is_found_like_a_slow_one() {
        for dead in [0, 9, 63] {
            let measured = |group: &Group| simulated(group, &[], 1.0).filter(|_| !group.contains(&dead));
            assert_eq!(search(64, measured).0, Answer::Slow(vec![dead]));
        }
        // If every job fails, no single node is the cause.
        for nodes in [3, 4, 8, 64] {
            assert!(
                matches!(search(nodes, |_| None).0, Answer::NoSingleNode(_) | Answer::Slow(_)),
                "{nodes}"
            );
        }
    }
}
