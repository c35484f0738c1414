//! What `mutate` says: a few lines on stderr, or all of it in a file.

use std::collections::BTreeSet;
use std::path::Path;

use weftrun::core::manifest::JobReport;
use weftrun::core::report::MutateReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::Given;
use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// What is told of a run, document by document: on stderr at once, and kept only where a report of all is wanted, so that
/// memory does not grow with the stream.
pub struct Told<'c> {
    context: &'c Context,
    keep: bool,
    assumed: usize,
    seen: bool,
    /// Whether a job has an error, or a document cannot be read.
    pub failed: bool,
    /// Files in which something changed.
    pub changed: BTreeSet<String>,
    jobs: Vec<JobReport>,
    findings: Vec<Finding>,
}

impl<'c> Told<'c> {
    /// Starts; `report` says that a file of all is wanted.
    pub fn new(context: &'c Context, report: bool) -> Self {
        Self {
            context,
            keep: report || context.out.format != Format::Table,
            assumed: 0,
            seen: false,
            failed: false,
            changed: BTreeSet::new(),
            jobs: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Tells of the jobs of a document.
    pub fn jobs(&mut self, given: &Given, jobs: Vec<JobReport>) {
        let context = self.context;
        let table = context.out.format == Format::Table;
        for name in given.assumed.iter().skip(self.assumed).filter(|_| table) {
            context.out.say(format!("note: profile `{name}` is assumed; --profile NAME chooses another"));
        }
        self.assumed = given.assumed.len();
        for job in jobs {
            self.seen = true;
            self.failed |= job.error.is_some();
            if job.changed {
                self.changed.insert(job.file.clone());
            }
            if table {
                say(context, &job);
            }
            if self.keep {
                self.jobs.push(job);
            }
        }
    }

    /// Tells of a document that cannot be read.
    pub fn unreadable(&mut self, finding: Finding) {
        (self.seen, self.failed) = (true, true);
        if self.context.out.format == Format::Table {
            self.context.out.findings(std::slice::from_ref(&finding));
        }
        if self.keep {
            self.findings.push(finding);
        }
    }

    /// Ends: with the whole as one value, where that was asked, and the report's file.
    pub fn end(&self, report: Option<&Path>) -> Result<()> {
        let out = &self.context.out;
        if out.format != Format::Table {
            let report = serde_json::to_string(&MutateReport::new(&self.jobs, &self.findings));
            out.stderr(&report.unwrap_or_default());
        } else if !self.seen {
            out.say(
                "note: no PyTorchJob, MPIJob, TrainJob or sbatch script is in it; everything is passed through",
            );
        }
        report.map_or(Ok(()), |path| to_file(path, &self.jobs, &self.findings))
    }
}

/// Says on stderr what was done with a job, what was not, and why.
fn say(context: &Context, job: &JobReport) {
    let out = &context.out;
    out.say(summary(job));
    if out.is_verbose() {
        job.actions.iter().for_each(|action| out.detail(format!("  {action}")));
    }
    out.findings(&job.notes);
    out.findings(job.error.as_slice());
}

fn summary(job: &JobReport) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let namespace = job.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let name = format!("{bold}{} {namespace}{}{bold:#}", job.kind, job.name);
    let skip_why = job.skip_why.as_deref().unwrap_or_default();
    match (&job.error, &job.skip) {
        (Some(_), _) => format!("{name}: not changed, because of an error"),
        (None, Some(skip)) => format!("{name}: not changed ({skip}) {dim}{skip_why}{dim:#}"),
        (None, None) if job.changed => format!("{name}: {} changes", job.actions.len()),
        (None, None) => format!("{name}: nothing to change"),
    }
}

/// Writes the report into a file.
fn to_file(path: &Path, jobs: &[JobReport], findings: &[Finding]) -> Result<()> {
    let value = MutateReport::new(jobs, findings);
    let yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let text =
        if yaml { serde_saphyr::to_string(&value).ok() } else { serde_json::to_string_pretty(&value).ok() };
    let text =
        text.ok_or_else(|| Error::new(ErrorKind::Unexpected, "the report cannot be written as text"))?;
    std::fs::write(path, text + "\n").map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write the report: {error}")).with("file", path.display())
    })
}
