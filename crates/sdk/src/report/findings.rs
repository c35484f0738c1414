//! The reports about files, codes and failures.

use std::collections::BTreeMap;

use super::SchemaName;
use weftrun_convert::MutatedJob;
use weftrun_core::{Error, Finding};

report! {
    /// `weftrun lint -o json`.
    pub struct LintReport<'a> {
        /// The findings, in the order of the files.
        pub findings: &'a [Finding],
    }

    /// `weftrun explain CODE -o json`.
    pub struct ExplainReport<'a> {
        /// The code, rule or reason.
        pub code: &'a str,
        /// Its page.
        pub text: String,
    }

    /// `weftrun explain -o json`: the codes there are.
    pub struct CodesReport<'a> {
        /// Their names.
        pub codes: Vec<&'a str>,
    }
}

weftrun_core::shapes! {
    /// `weftrun mutate --report FILE`, and on stderr with `-o json`: what was done, what was not, and why.
    pub struct MutateReport<'a> {
        /// The contract.
        pub schema: SchemaName,
        /// Whether the output differs from the input.
        pub changed: bool,
        /// Why the first job that was skipped was skipped.
        pub skip: Option<&'a str>,
        /// The first error; then nothing is printed.
        pub error: Option<&'a Finding>,
        /// What was done to all jobs, in a few words each.
        pub actions: Vec<&'a str>,
        /// Warnings and notes of all jobs.
        pub notes: Vec<&'a Finding>,
        /// The jobs, one by one.
        pub documents: &'a [MutatedJob],
        /// Findings about what is no job.
        pub findings: &'a [Finding],
    }

    /// The output on stderr when a verb fails with `-o json`.
    pub struct ErrorReport<'a> {
        /// The contract.
        pub schema: SchemaName,
        /// What failed.
        pub error: ErrorBody<'a>,
    }

    /// What failed.
    pub struct ErrorBody<'a> {
        /// Stable word for the kind of failure (`not-found`, `refused`, …).
        pub code: &'a str,
        /// One sentence.
        pub message: &'a str,
        /// Whether the same call may succeed later.
        pub retryable: bool,
        /// The values the failure was on.
        pub context: BTreeMap<&'a str, &'a str>,
        /// What to try.
        pub hints: &'a [String],
        /// The findings behind it.
        pub findings: &'a [Finding],
        /// The failures underneath, outermost first.
        pub causes: Vec<String>,
    }
}

impl<'a> MutateReport<'a> {
    /// Makes the report of everything that was read.
    pub fn new(jobs: &'a [MutatedJob], findings: &'a [Finding]) -> Self {
        let error = findings.first().or_else(|| jobs.iter().find_map(MutatedJob::error));
        Self {
            schema: SchemaName,
            changed: error.is_none() && jobs.iter().any(|job| job.changed),
            skip: jobs.iter().find_map(MutatedJob::skip),
            error,
            actions: jobs.iter().flat_map(|job| &job.actions).map(String::as_str).collect(),
            notes: jobs.iter().flat_map(MutatedJob::notes).collect(),
            documents: jobs,
            findings,
        }
    }
}

impl<'a> From<&'a Error> for ErrorReport<'a> {
    fn from(error: &'a Error) -> Self {
        let error = ErrorBody {
            code: error.kind().as_str(),
            message: error.message(),
            retryable: error.is_retryable(),
            context: error.context().iter().map(|(key, value)| (*key, value.as_str())).collect(),
            hints: error.hints(),
            findings: error.findings(),
            causes: error.causes(),
        };
        Self { schema: SchemaName, error }
    }
}
