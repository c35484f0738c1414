//! `mutate`: reads a manifest or sbatch script, and writes it with the fabric applied.
//!
//! Nothing is written before everything has succeeded: on any error stdout stays empty and the exit code is
//! 3, so that a filter in a pipe never passes on a job that was not checked.

mod buffer;
mod diff;
mod input;
mod krm;
mod report;
mod report_writer;

use std::path::PathBuf;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::files::{NamedFile, Staged};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::key_flags::FabricFlags;

pub use buffer::Buffer;
pub use input::{Given, Source, each_document};

const EXAMPLES: &str = "\
Examples:
  weftrun mutate -f job.yaml | kubectl apply -f -
  weftrun mutate --diff -f job.yaml              what would change, and why
  weftrun mutate --write -f job.yaml -f job.sbatch
  kubectl kustomize overlay | weftrun mutate --profile eks-image | kubectl apply -f -";

#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct MutateArgs {
    /// What is read
    #[command(flatten)]
    pub input: InputArgs,
    /// Print a unified diff with the reason of each hunk instead of the result
    #[arg(long, conflicts_with_all = ["write", "krm"])]
    pub diff: bool,
    /// Write the files in place, atomically; none is changed if one has an error
    #[arg(long, conflicts_with = "krm")]
    pub write: bool,
    /// Write the report to this file (YAML if its name ends so, else JSON)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Rewrite a document that cannot be edited in place (aliases, merge keys, duplicate keys);
    /// its comments are lost
    #[arg(long)]
    pub reformat: bool,
    /// Act as a KRM function: read a ResourceList from stdin and write one to stdout (kustomize, kpt)
    #[arg(long)]
    pub krm: bool,
    /// The fabric's options
    #[command(flatten)]
    pub fabric: FabricFlags,
}

/// What is read, by `mutate` and by `lint`.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// Manifests or sbatch scripts; stdin if none is given or for `-`
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Manifest or sbatch script; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub filename: Vec<PathBuf>,
}

/// Runs `mutate`.
pub fn run(context: &Context, args: &MutateArgs) -> Result<u8> {
    if args.krm {
        return krm::run(context, args);
    }
    let sources = Source::all(&args.input)?;
    if args.write && sources.iter().any(Source::is_stdin) {
        return Err(Error::new(ErrorKind::Usage, "--write needs files; stdin cannot be written in place")
            .hint("weftrun mutate --write -f job.yaml"));
    }
    // What cannot be written is said before anything is read: a FIFO would wait for a writer.
    let files = if args.write { Source::files(&sources)? } else { Vec::new() };
    let report = args.report.as_deref().map(NamedFile::check).transpose()?;
    if let Some(report) = &report {
        report_is_no_input(report, &sources)?;
    }
    let mut given = Given::read(context, &args.fabric, args.reformat)?;
    let mut told = report::Told::new(context, args.report.as_deref());
    let mut buffers = Vec::new();
    for source in &sources {
        let mut buffer = buffer::Buffer::default();
        let nothing = each_document(source, |text, start| {
            match given.mutate(text, start) {
                Ok(done) => {
                    if args.diff {
                        diff::write(&mut buffer, &context.out, text, &done, start)?;
                    } else {
                        buffer.write(done.text.as_bytes())?;
                    }
                    told.jobs(done.jobs)?;
                }
                Err(error) => error.findings().iter().try_for_each(|finding| told.unreadable(finding))?,
            }
            Ok(())
        })?;
        nothing.iter().try_for_each(|finding| told.unreadable(finding))?;
        buffers.push(buffer);
    }
    let mut staged = Vec::new();
    staged.extend(told.end(report)?);
    if args.write && !told.failed {
        for ((source, buffer), file) in sources.iter().zip(std::mem::take(&mut buffers)).zip(files) {
            if told.changed.contains(&source.name()) {
                staged.push(buffer.stage(file)?);
            }
        }
    }
    staged.into_iter().try_for_each(Staged::commit)?;
    if told.failed {
        return Ok(exit_codes::INVALID_SPEC);
    }
    for buffer in buffers {
        buffer.onto(if args.diff { context.out.diff_writer() } else { context.out.document_writer() })?;
    }
    Ok(exit_codes::OK)
}

/// Refuses a report that would be written over a file that is read.
fn report_is_no_input(report: &NamedFile, sources: &[Source]) -> Result<()> {
    match sources.iter().find(|source| !source.is_stdin() && report.is_at(source.path())) {
        Some(source) => {
            let message = format!("--report would be written over {}, which is read", source.name());
            Err(Error::new(ErrorKind::Usage, message).hint("name another file for the report"))
        }
        None => Ok(()),
    }
}
