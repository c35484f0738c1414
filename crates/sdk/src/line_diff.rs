//! Compares two documents line by line.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{DiffOp, group_diff_ops};

/// The common and the different lines of two documents, such as a manifest before and after the fabric's
/// changes.
///
/// ```
/// use weftrun::LineDiff;
///
/// let diff = LineDiff::new("a\nb\nc\n", "a\nB\nc\n", None);
/// let changed = diff.runs().into_iter().find(|run| !run.same).unwrap();
/// assert_eq!(diff.old[changed.old], ["b\n"]);
/// assert_eq!(diff.new[changed.new], ["B\n"]);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LineDiff<'t> {
    /// The lines of the first document, with their line ends.
    pub old: Vec<&'t str>,
    /// The lines of the second.
    pub new: Vec<&'t str>,
    ops: Vec<DiffOp>,
}

/// Adjacent lines that are equal in both documents, or differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The lines of the first document, from 0; empty if lines were added.
    pub old: Range<usize>,
    /// The lines of the second; empty if lines were removed.
    pub new: Range<usize>,
    /// Whether they are equal.
    pub same: bool,
}

impl<'t> LineDiff<'t> {
    /// Compares `old` with `new`. After `patience` the rest is compared less precisely, which is correct but
    /// longer than necessary.
    pub fn new(old: &'t str, new: &'t str, patience: Option<Duration>) -> Self {
        let lines = |text: &'t str| text.split_inclusive('\n').collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        // `similar::TextDiff` does the same, but adds each of its six algorithms for each kind of text to the
        // binary.
        let mut found = Compact::new(Replace::new(Capture::new()), &old[..], &new[..]);
        let done = myers::diff_deadline(&mut found, &old[..], 0..old.len(), &new[..], 0..new.len(), until);
        let Ok(()) = done;
        let ops = found.into_inner().into_inner().into_ops();
        Self { old, new, ops }
    }

    /// Returns all lines of both documents, in runs.
    pub fn runs(&self) -> Vec<Run> {
        self.ops.iter().map(run).collect()
    }

    /// Returns the differences in groups, with this many of the equal lines around them.
    pub fn groups(&self, around: usize) -> Vec<Vec<Run>> {
        group_diff_ops(self.ops.clone(), around).iter().map(|group| group.iter().map(run).collect()).collect()
    }
}

fn run(op: &DiffOp) -> Run {
    Run { old: op.old_range(), new: op.new_range(), same: matches!(op, DiffOp::Equal { .. }) }
}
