//! Two documents compared line by line.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{DiffOp, group_diff_ops};

/// What two documents have in common and what not, such as a manifest before and after the fabric's changes.
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
    /// The lines of the first document, with their ends.
    pub old: Vec<&'t str>,
    /// The lines of the second.
    pub new: Vec<&'t str>,
    ops: Vec<DiffOp>,
}

/// Neighbouring lines that are the same in both documents, or differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// Which lines of the first document, from 0; none where lines were added.
    pub old: Range<usize>,
    /// Which lines of the second; none where lines were removed.
    pub new: Range<usize>,
    /// Whether they are the same.
    pub same: bool,
}

impl<'t> LineDiff<'t> {
    /// Compares `old` with `new`. After `patience` the rest is taken as it comes, which is right but longer than it need be.
    pub fn new(old: &'t str, new: &'t str, patience: Option<Duration>) -> Self {
        let lines = |text: &'t str| text.split_inclusive('\n').collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        // `similar::TextDiff` does the same, and brings each of its six algorithms for each kind of text into the binary.
        let mut found = Compact::new(Replace::new(Capture::new()), &old[..], &new[..]);
        let done = myers::diff_deadline(&mut found, &old[..], 0..old.len(), &new[..], 0..new.len(), until);
        let Ok(()) = done;
        let ops = found.into_inner().into_inner().into_ops();
        Self { old, new, ops }
    }

    /// All lines of both documents, in runs.
    pub fn runs(&self) -> Vec<Run> {
        self.ops.iter().map(run).collect()
    }

    /// What differs, in groups, with so many of the lines around it that are the same.
    pub fn groups(&self, around: usize) -> Vec<Vec<Run>> {
        group_diff_ops(self.ops.clone(), around).iter().map(|group| group.iter().map(run).collect()).collect()
    }
}

fn run(op: &DiffOp) -> Run {
    Run { old: op.old_range(), new: op.new_range(), same: matches!(op, DiffOp::Equal { .. }) }
}
