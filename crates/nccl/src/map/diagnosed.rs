//! What NCCL's own diagnostics found, each result with its line.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ids::{ProcessId, SourceIndex};
use super::signatures::{Trace, printable};
use super::snapshot::Snapshot;
use crate::diagnostics::{Check, Checked, Detail, DiagnosticLine, Outcome};
use crate::parser::Entry;

/// Most results kept. Each communicator has a report of its own; further results are only counted.
const KEPT: usize = 512;
/// Characters read of a line. NCCL cuts its own at 1024.
const LINE: usize = 1024;
/// Most processes of which the report that they print is followed.
const REPORTERS: usize = 4096;

/// A result of NCCL's own diagnostics that is not `[OK]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OwnDiagnostic {
    /// What NCCL said.
    pub said: Checked,
    /// The first line that says so.
    pub trace: Trace,
}

/// All results.
#[derive(Clone, Debug, Default)]
pub(super) struct Diagnosed {
    found: Vec<OwnDiagnostic>,
    passed: BTreeSet<Check>,
    dropped: u64,
    skipped: Option<Trace>,
    /// The communicator that a process reports on: the lines of single values do not name it.
    reporting: HashMap<(SourceIndex, Option<ProcessId>), u64>,
}

impl Diagnosed {
    /// Takes a line of the level `DIAG`.
    pub fn take(&mut self, source: SourceIndex, process: Option<ProcessId>, entry: &Entry<'_>) {
        let trace = || Trace {
            source,
            process,
            told: entry.launcher_rank,
            host: entry.launcher_node.map(Into::into),
            line: entry.line,
            text: printable(entry.text, 400),
        };
        match DiagnosticLine::read(printable(entry.text, LINE).as_bytes()) {
            Some(DiagnosticLine::Checked(said)) if said.outcome == Outcome::Passed => {
                self.passed.insert(said.check);
            }
            Some(DiagnosticLine::Checked(mut said)) => {
                let reporter = (source, process);
                if let Some(comm) = said.comm {
                    if self.reporting.len() < REPORTERS || self.reporting.contains_key(&reporter) {
                        self.reporting.insert(reporter, comm);
                    }
                } else if said.check == Check::Environment && said.detail != Detail::None {
                    said.comm = self.reporting.get(&reporter).copied();
                }
                if !self.found.iter().any(|known| known.said == said) {
                    self.keep(said, trace());
                }
            }
            Some(DiagnosticLine::Skipped(_)) => self.skipped = Some(trace()),
            Some(DiagnosticLine::Begin | DiagnosticLine::End) | None => {}
        }
    }

    fn keep(&mut self, said: Checked, trace: Trace) {
        if self.found.len() < KEPT {
            self.found.push(OwnDiagnostic { said, trace });
        } else {
            self.dropped += 1;
        }
    }
}

impl<'a> Snapshot<'a> {
    /// Returns what NCCL's own diagnostics found or could not check, of attempts that were not replaced by later ones.
    pub fn own_diagnostics(&self) -> impl Iterator<Item = &'a OwnDiagnostic> {
        let found = self.seen.diagnosed.found.iter();
        found.filter(|known| known.trace.process.is_none_or(|process| self.is_alive(process)))
    }

    /// Returns what they checked and found to be well everywhere.
    pub fn own_diagnostics_passed(&self) -> impl Iterator<Item = Check> {
        let found: BTreeSet<Check> = self.own_diagnostics().map(|known| known.said.check).collect();
        self.seen.diagnosed.passed.iter().copied().filter(move |check| !found.contains(check))
    }

    /// Returns how many results there were beyond those that are kept.
    pub fn own_diagnostics_dropped(&self) -> u64 {
        self.seen.diagnosed.dropped
    }

    /// Returns the line by which NCCL says that it made no diagnosis.
    pub fn own_diagnostics_skipped(&self) -> Option<&'a Trace> {
        self.seen.diagnosed.skipped.as_ref()
    }

    /// Returns the global ranks that a result names, as far as the logs prove them.
    pub fn ranks_of_diagnostic(&self, found: &OwnDiagnostic) -> BTreeMap<u32, Option<u32>> {
        let global = |rank: u32| self.rank_of_member(found.said.comm?, rank);
        found.said.ranks.iter().map(|rank| (*rank, global(*rank))).collect()
    }
}
