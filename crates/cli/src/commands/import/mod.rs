//! `import`: converts a job in another form to a job file. Each form has its own module, which returns an
//! [`Imported`]; the rest is shared.

mod manifest;
mod runai;
mod sbatch;

use clap::{Args, Subcommand};
use weftrun::convert::Imported;
use weftrun::core::exit_codes;
use weftrun::core::spec::to_toml;
use weftrun::report::ImportReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use crate::context::Context;
use crate::global::Format;

const EXAMPLES: &str = "\
Examples:
  weftrun import job.yaml > job.toml             a PyTorchJob, MPIJob or TrainJob
  weftrun import sbatch train.sbatch > job.toml  a Slurm script
  weftrun import runai 'runai training pytorch submit llama -i IMAGE --workers 3 -g 8 -- train' > job.toml
  kubectl get pytorchjob llama -o yaml | weftrun import > job.toml
  weftrun plan job.toml -b prod                  what would be submitted there";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct ImportArgs {
    /// A form that is named
    #[command(subcommand)]
    pub form: Option<Form>,
    /// A manifest, where no form is named
    #[command(flatten)]
    pub manifest: manifest::ManifestArgs,
}

/// The forms a job can have.
#[derive(Debug, Subcommand)]
pub enum Form {
    /// Convert a PyTorchJob, MPIJob or TrainJob (the default for `import FILE`)
    Manifest(manifest::ManifestArgs),
    /// Convert a command line of the official `runai` program
    Runai(runai::RunaiArgs),
    /// Convert an sbatch script
    Sbatch(sbatch::SbatchArgs),
}

/// Returns the error of an input that cannot be converted.
fn refusal(finding: Finding) -> Error {
    Error::from_findings(ErrorKind::InvalidSpec, finding.message.clone(), vec![finding])
}

/// Prints the job file on stdout, and on stderr what could not be converted.
pub fn run(context: &Context, args: &ImportArgs) -> Result<u8> {
    let imported = match &args.form {
        None => manifest::read(&args.manifest)?,
        Some(Form::Manifest(args)) => manifest::read(args)?,
        Some(Form::Runai(args)) => runai::read(args)?,
        Some(Form::Sbatch(args)) => sbatch::read(args)?,
    };
    print(context, &imported)
}

/// Prints an imported job. One that could not be planned is an error, with every reason; nothing is printed
/// then.
fn print(context: &Context, imported: &Imported) -> Result<u8> {
    let config = context.config()?;
    context.warn_of_config();
    let mut findings = imported.findings.clone();
    findings.extend(imported.spec.validate_with(&config.resolved.catalogue()?));
    if findings.iter().any(Finding::is_error) {
        let message = format!("`{}` makes no job file", imported.spec.name);
        return Err(Error::from_findings(ErrorKind::InvalidSpec, message, findings));
    }
    let text = to_toml(&imported.spec);
    if context.out.format == Format::Table {
        context.out.document(&text)?;
        context.out.findings(&findings);
    } else {
        context.out.exact_value(&ImportReport::new(&imported.spec, &text, &findings))?;
    }
    Ok(exit_codes::OK)
}
