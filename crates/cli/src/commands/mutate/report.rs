//! The report of `mutate`: a few lines on stderr, or all of it in a file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use weftrun::convert::MutatedJob;
use weftrun::core::log::clean_text;
use weftrun::core::text::counted;
use weftrun::files::{NamedFile, Staged};
use weftrun::{Error, ErrorKind, Finding, Result};

use super::report_writer::{ReportWriter, Syntax};
use crate::commands::plan;
use crate::context::Context;
use crate::global::Format;
use crate::output::style;

/// Reports a run document by document: on stderr at once, and collected if a complete report is requested.
pub struct Told<'c> {
    context: &'c Context,
    /// The report for the file of `--report`, and the one printed to stderr as one value.
    report: [Option<ReportWriter>; 2],
    seen: bool,
    /// Whether a job has an error, or a document cannot be parsed.
    pub failed: bool,
    pub changed: BTreeSet<String>,
}

impl<'c> Told<'c> {
    /// Starts a report; `report` is the file for the complete one.
    pub fn new(context: &'c Context, report: Option<&Path>) -> Self {
        let syntax = |path: &Path| match path.extension() {
            Some(end) if end == "yaml" || end == "yml" => Syntax::Yaml,
            _ => Syntax::Json,
        };
        let value = (context.out.format != Format::Table).then(|| ReportWriter::new(Syntax::Json));
        Self {
            context,
            report: [report.map(|path| ReportWriter::new(syntax(path))), value],
            seen: false,
            failed: false,
            changed: BTreeSet::new(),
        }
    }

    pub fn jobs(&mut self, jobs: Vec<MutatedJob>) -> Result<()> {
        let context = self.context;
        let table = context.out.format == Format::Table;
        for job in jobs {
            self.seen = true;
            self.failed |= job.error().is_some();
            if job.changed {
                self.changed.insert(job.file.clone());
            }
            if table {
                say(context, &job);
            }
            self.report.iter_mut().flatten().try_for_each(|report| report.job(&job))?;
        }
        Ok(())
    }

    /// Reports a document that cannot be parsed.
    pub fn unreadable(&mut self, finding: &Finding) -> Result<()> {
        (self.seen, self.failed) = (true, true);
        if self.context.out.format == Format::Table {
            self.context.out.findings(std::slice::from_ref(finding));
        }
        self.report.iter_mut().flatten().try_for_each(|report| report.finding(finding))
    }

    /// Writes the whole as one value, if requested, and the report beside its file.
    pub fn end(&mut self, report: Option<NamedFile>) -> Result<Option<Staged>> {
        let [file, value] = std::mem::take(&mut self.report);
        if let Some(value) = value {
            let mut stderr = self.context.out.stderr_document_writer();
            value.write(&mut stderr)?;
            stderr.finish()?;
        } else if !self.seen {
            self.context.out.say(
                "note: no job with accelerators and no sbatch script is in the input; everything is passed through",
            );
        }
        match (file, report) {
            (Some(report), Some(file)) => file.stage(|new| to_file(report, new)).map(Some),
            _ => Ok(None),
        }
    }
}

/// Prints to stderr what was done with a job, what was not, and why.
fn say(context: &Context, job: &MutatedJob) {
    let out = &context.out;
    out.say(summary(job));
    if let Some(first) = job.plan.evidence.first() {
        let more = job.plan.evidence.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let profile =
            job.plan.profile.as_ref().map_or_else(String::new, |name| {
                format!(": profile `{name}`; --profile NAME chooses another")
            });
        out.say(clean_text(&format!("  evidence of {}: {first}{more}{profile}", first.fabric)));
        if out.is_verbose() {
            let rest = job.plan.evidence.iter().skip(1);
            rest.for_each(|one| out.detail(clean_text(&format!("  evidence of {}: {one}", one.fabric))));
            let score = plan::score(&job.plan.evidence);
            score.into_iter().for_each(|score| out.detail(format!("  evidence in all: {score}")));
        }
    }
    if out.is_verbose() {
        job.actions.iter().for_each(|action| out.detail(format!("  {action}")));
        if !job.changed {
            let kept = job.plan.decisions.iter();
            kept.for_each(|one| {
                let line = format!("  {}: {} = {}: {}", one.rule, one.target, one.value, one.why);
                out.detail(clean_text(&line));
            });
        }
        let skipped = job.plan.skipped.iter().filter(|skipped| !skipped.is_whole());
        skipped.for_each(|one| {
            let line = format!("  {} does not apply ({}): {}", one.rule, one.reason, one.why);
            out.detail(clean_text(&line));
        });
    }
    out.findings(&job.plan.findings);
}

/// Returns the kind, namespace and name of a job.
pub fn name(job: &MutatedJob) -> String {
    let namespace = job.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    // A script may lack a name.
    format!("{} {namespace}{}", job.kind, job.name).trim_end().to_owned()
}

fn summary(job: &MutatedJob) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let name = format!("{bold}{}{bold:#}", name(job));
    match (job.error(), job.plan.skip()) {
        (Some(_), _) => format!("{name}: not changed, because of an error"),
        (None, Some(skip)) if job.changed => format!(
            "{name}: {}, but not its fabric ({}) {dim}{}{dim:#}",
            counted(job.actions.len(), "change"),
            skip.reason,
            skip.why
        ),
        (None, Some(skip)) => format!("{name}: not changed ({}) {dim}{}{dim:#}", skip.reason, skip.why),
        (None, None) if job.changed => format!("{name}: {}", counted(job.actions.len(), "change")),
        (None, None) => format!("{name}: nothing to change"),
    }
}

fn to_file(report: ReportWriter, file: &mut File) -> Result<()> {
    let mut file = BufWriter::new(file);
    report.write(&mut file)?;
    file.flush().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write the report: {error}")).with_source(error)
    })
}
