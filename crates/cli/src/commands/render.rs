//! `render`: exactly what would be sent.

use std::collections::HashSet;

use clap::Args;
use weftrun::core::backend::{Inexpressible, Language, Rendered};
use weftrun::core::exit_codes;
use weftrun::report::RenderReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use crate::context::Context;
use crate::global::Format;
use crate::job_flags::JobFlags;

#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The job
    #[command(flatten)]
    pub job: JobFlags,
    /// Render for hosts without a cluster instead of the target
    #[arg(long = "as", value_enum, value_name = "FORM")]
    pub form: Option<Form>,
}

/// The words of `--as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// `docker run` on every host, `mpirun` across them
    Docker,
}

/// Prints exactly what would be sent, offline.
pub fn run(context: &Context, args: &RenderArgs) -> Result<u8> {
    let spec = args.job.spec(context)?;
    let client = context.client()?;
    let plan = client.plan_offline_for(context.target(&client)?, &spec)?;
    let findings = plan.fabric().findings.clone();
    let findings = without_errors(findings, "the fabric plan has errors; nothing was rendered")?;
    context.out.findings(&findings);
    if args.form == Some(Form::Docker) {
        context.out.document(&weftrun::convert::docker_commands(&plan.planned().spec, plan.fabric())?)?;
        return Ok(exit_codes::OK);
    }
    let rendered = context.block_on(plan.render_document())?;
    let found = without_errors(rendered.findings.clone(), "the job cannot run; nothing was rendered")?;
    context.out.findings(&found);
    print(context, &rendered, &[findings, found].concat())?;
    Ok(exit_codes::OK)
}

/// Returns the findings, or the error of those that are errors: what cannot run is not printed.
fn without_errors(findings: Vec<Finding>, message: &str) -> Result<Vec<Finding>> {
    let (errors, others): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(Finding::is_error);
    if errors.is_empty() {
        Ok(others)
    } else {
        Err(Error::from_findings(ErrorKind::InvalidSpec, message, errors))
    }
}

/// Prints the documents to stdout, and their unresolved values to stderr.
pub fn print(context: &Context, rendered: &Rendered, findings: &[Finding]) -> Result<()> {
    // Manifests are YAML as they are: what kubectl reads.
    let is_yaml = rendered.documents.iter().all(|document| document.language == Language::Yaml);
    if context.out.format != Format::Table && !(context.out.format == Format::Yaml && is_yaml) {
        return context.out.exact_value(&RenderReport::new(rendered, findings));
    }
    let mut text = String::new();
    for (index, document) in rendered.documents.iter().enumerate() {
        if index > 0 && document.language == Language::Yaml {
            text.push_str("---\n");
        }
        text.push_str(&document.text);
        if !document.text.ends_with('\n') {
            text.push('\n');
        }
    }
    context.out.document(&text)?;
    not_applied(context, rendered);
    for placeholder in &rendered.placeholders {
        context.out.say(format!("note: <{}> is {}", placeholder.name, placeholder.what));
    }
    Ok(())
}

/// Prints what was decided and is not in the documents, each reason once.
pub fn not_applied(context: &Context, rendered: &Rendered) {
    let line = |lost: &Inexpressible| {
        format!("note: {} on {} is not applied: {}", lost.op.rule, lost.op.role, lost.reason)
    };
    let mut said = HashSet::new();
    for line in rendered.inexpressible.iter().map(line) {
        if said.insert(line.clone()) {
            context.out.say(line);
        }
    }
}
