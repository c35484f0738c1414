//! `lint`: findings about a manifest, a script or a job file, without changing it.

mod fix;
mod sarif;

use clap::Args;
use weftrun::convert::Start;
use weftrun::core::exit_codes;
use weftrun::core::text::counted;
use weftrun::report::LintReport;
use weftrun::{Finding, Result, Severity};

use super::mutate::{Given, InputArgs, Source, each_document};
use crate::context::Context;
use crate::global::Format;
use crate::key_flags::FabricFlags;
use crate::output::finding_text;

const EXAMPLES: &str = "\
Examples:
  weftrun lint job.yaml train.sbatch job.toml
  weftrun lint -o sarif -f job.yaml > lint.sarif   for a code host
  weftrun lint --fix job.yaml                      correct names in place";

#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct LintArgs {
    /// What is read: manifests, sbatch scripts, job files
    #[command(flatten)]
    pub input: InputArgs,
    /// Correct misspelt names in place if only one name can be meant
    #[arg(long)]
    pub fix: bool,
    /// The fabric's options
    #[command(flatten)]
    pub fabric: FabricFlags,
}

pub fn run(context: &Context, args: &LintArgs) -> Result<u8> {
    let given = Given::read(context, &args.fabric, false)?;
    let mut findings = Vec::new();
    let sources = Source::all(&args.input)?;
    if args.fix {
        fix::files(context, &sources, &given)?;
    }
    for source in &sources {
        let nothing = each_document(source, |text, start| {
            findings.extend(found(source, text, start, &given));
            Ok(())
        })?;
        findings.extend(nothing);
    }
    match context.out.format {
        Format::Table => {
            let text: String = findings.iter().map(|finding| finding_text(finding) + "\n").collect();
            context.out.text(&text)?;
            context.out.say(count(&findings));
        }
        Format::Sarif => context.out.line(sarif::document(&findings).to_string())?,
        _ => context.out.value(&LintReport::new(&findings))?,
    }
    Ok(if findings.iter().any(Finding::is_error) { exit_codes::INVALID_SPEC } else { exit_codes::OK })
}

fn found(source: &Source, text: &str, start: Start<'_>, given: &Given) -> Vec<Finding> {
    if source.is_job_file() {
        weftrun::lint_job_file(&source.name(), text.as_bytes())
    } else {
        given.lint(text, start)
    }
}

fn count(findings: &[Finding]) -> String {
    let of = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings, notes) = (of(Severity::Error), of(Severity::Warning), of(Severity::Info));
    format!("{}, {}, {}", counted(errors, "error"), counted(warnings, "warning"), counted(notes, "note"))
}
