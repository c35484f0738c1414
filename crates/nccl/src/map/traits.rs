//! What should be the same in all processes of a job: versions, drivers, interfaces, variables.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::{ProcessId, SourceIndex};
use super::signatures::{Trace, printable};

/// Most traits, values of one trait, and processes of one value that are kept.
const NAMES: usize = 300;
const VALUES: usize = 64;
const PROCESSES: usize = 20_000;

/// Variables of NCCL that name one process, or one file of it.
const OF_ONE: &[&str] =
    &["HOSTID", "DEBUG_FILE", "COMM_ID", "TOPO_DUMP_FILE", "GRAPH_DUMP_FILE", "RAS_ADDR", "LOCAL_REGISTER"];

/// Returns whether a variable of NCCL names one process, or one file of it, so that it differs by intention.
pub fn is_of_one_process(variable: &str) -> bool {
    variable.strip_prefix("NCCL_").is_some_and(|name| OF_ONE.contains(&name))
}

/// The trait of the version of NCCL.
pub const NCCL_VERSION: &str = "NCCL";

/// The trait of the domain of NVLinks that joins several nodes.
pub const NVLINK_DOMAIN: &str = "the NVLink domain";

/// The values of each trait, with the processes that have them.
#[derive(Clone, Debug, Default)]
pub(super) struct Traits {
    pub found: BTreeMap<Box<str>, BTreeMap<Box<str>, Value>>,
}

/// The processes that have one value, and the first line that says so.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub processes: BTreeSet<ProcessId>,
    pub first: Trace,
}

/// A line that tells a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub source: SourceIndex,
    pub process: ProcessId,
    pub line: u64,
    pub text: &'a [u8],
}

impl Told<'_> {
    fn trace(self) -> Trace {
        let Self { source, process, line, text } = self;
        Trace { source, process: Some(process), told: None, host: None, line, text: printable(text, 400) }
    }
}

impl Traits {
    pub fn add(&mut self, name: &str, value: &str, told: Option<Told<'_>>) {
        let Some(told) = told else { return };
        if self.found.len() >= NAMES && !self.found.contains_key(name) || value.len() > 256 {
            return;
        }
        let values = self.found.entry(name.into()).or_default();
        if values.len() >= VALUES && !values.contains_key(value) {
            return;
        }
        let fresh = || Value { processes: BTreeSet::new(), first: told.trace() };
        let known = values.entry(value.into()).or_insert_with(fresh);
        if known.processes.len() < PROCESSES {
            known.processes.insert(told.process);
        }
    }

    /// Adds a variable, named without `NCCL_`.
    pub fn variable(&mut self, name: &str, value: &str, told: Option<Told<'_>>) {
        if !OF_ONE.contains(&name) {
            self.add(&format!("NCCL_{name}"), value, told);
        }
    }
}
