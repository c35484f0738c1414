//! What `mutate` says: a few lines on stderr, or all of it in a file.

use std::path::Path;

use weftrun::core::manifest::JobReport;
use weftrun::core::report::MutateReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::Given;
use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// Says on stderr what was done, what was not, and why.
pub fn say(context: &Context, given: &Given, jobs: &[JobReport], findings: &[Finding]) -> Result<()> {
    let out = &context.out;
    if out.format != Format::Table {
        let report = serde_json::to_string(&MutateReport::new(jobs, findings));
        out.stderr(&report.unwrap_or_default());
        return Ok(());
    }
    for name in &given.assumed {
        out.say(format!("note: profile `{name}` is assumed; --profile NAME chooses another"));
    }
    if jobs.is_empty() && findings.is_empty() {
        out.say(
            "note: no PyTorchJob, MPIJob, TrainJob or sbatch script is in it; everything is passed through",
        );
    }
    for job in jobs {
        out.say(summary(job));
        if context.out.is_verbose() {
            job.actions.iter().for_each(|action| out.detail(format!("  {action}")));
        }
        out.findings(&job.notes);
        out.findings(job.error.as_slice());
    }
    out.findings(findings);
    Ok(())
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
pub fn to_file(path: &Path, jobs: &[JobReport], findings: &[Finding]) -> Result<()> {
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
