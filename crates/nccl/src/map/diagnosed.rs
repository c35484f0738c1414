//! What NCCL's own diagnostics found, each result with its line.

use std::collections::{BTreeSet, HashMap};

use super::ids::{ProcessId, SourceIndex};
use super::signatures::{Trace, printable};
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
    pub found: Vec<OwnDiagnostic>,
    pub passed: BTreeSet<Check>,
    pub dropped: u64,
    pub skipped: Option<Trace>,
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
