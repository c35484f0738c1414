//! The history of a target's jobs, and what it says of its nodes.

use std::path::Path;

use weftrun_core::Finding;
use weftrun_core::job::JobHandle;
use weftrun_core::spec::LeftOut;
use weftrun_diagnose::nodes::{Decision, JobRecord, NodeReport};

report! {
    /// `weftrun nodes -o json`: the nodes of a target, the worst first.
    pub struct NodesReport<'a> {
        /// The target.
        pub target: &'a str,
        /// Its nodes.
        pub nodes: &'a [NodeReport],
        /// What could not be read, and what follows from it.
        pub findings: &'a [Finding],
    }

    /// `weftrun history -o json`: where the history of a target is, and what it has.
    pub struct HistoryReport<'a> {
        /// The target.
        pub target: &'a str,
        /// Its file.
        pub path: &'a Path,
        /// Jobs that are kept one by one.
        pub jobs: usize,
        /// Nodes that it names.
        pub nodes: usize,
        /// Lines that are no records.
        pub unread: usize,
    }

    /// `weftrun history --export -o json`: every job that is kept.
    pub struct HistoryExport<'a> {
        /// The target.
        pub target: &'a str,
        /// The jobs, in the order in which they were written.
        pub records: &'a [JobRecord],
    }
}

weftrun_core::shapes! {
    /// `weftrun retry -o json`: whether the job was submitted again.
    pub struct RetryReport<'a> {
        /// The contract.
        pub schema: super::SchemaName,
        /// The job that failed.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        pub job: &'a JobHandle,
        /// The number of the attempt, from 1 for the first submission.
        pub attempt: u32,
        /// The job of the attempt; null where there is none.
        #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
        pub handle: Option<&'a JobHandle>,
        /// The evidence for the decision.
        pub why: &'a str,
        /// The nodes that the attempt leaves out in addition.
        pub left_out: Vec<&'a LeftOut>,
    }
}

impl<'a> RetryReport<'a> {
    /// Makes the report of a decision.
    pub fn new(
        job: &'a JobHandle,
        attempt: u32,
        handle: Option<&'a JobHandle>,
        decision: &'a Decision,
    ) -> Self {
        let (why, left_out) = match decision {
            Decision::Retry { proven, suspects, why, .. } => (why, proven.iter().chain(suspects).collect()),
            Decision::Stop { why } => (why, Vec::new()),
        };
        Self { schema: super::SchemaName, job, attempt, handle, why, left_out }
    }
}
