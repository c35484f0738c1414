//! `render`: exactly what would be sent.

use clap::Args;
use serde_json::json;
use weftrun::core::backend::Rendered;
use weftrun::core::{exit_codes, report};
use weftrun::{Error, ErrorKind, Result};

use crate::args::Format;
use crate::context::Context;
use crate::job_flags::JobFlags;

/// Arguments of `render`.
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The job
    #[command(flatten)]
    pub job: JobFlags,
}

/// Prints exactly what would be sent, offline.
pub fn run(context: &Context, args: &RenderArgs) -> Result<u8> {
    let spec = args.job.spec(context)?;
    let client = context.client()?;
    let plan = client.plan_offline_for(context.target(&client)?, &spec)?;
    context.out.findings(&plan.fabric().findings);
    let errors: Vec<_> =
        plan.fabric().findings.iter().filter(|finding| finding.is_error()).cloned().collect();
    if !errors.is_empty() {
        return Err(Error::new(ErrorKind::InvalidSpec, "the fabric plan has errors; nothing was rendered"));
    }
    let rendered = context.block_on(plan.render())?;
    if context.out.format == Format::Table {
        print(context, &rendered)?;
    } else {
        context.out.value(&json!({"schema": report::SCHEMA, "rendered": rendered}))?;
    }
    Ok(exit_codes::OK)
}

/// Prints the documents to stdout, and what they leave open to stderr.
pub fn print(context: &Context, rendered: &Rendered) -> Result<()> {
    for (index, document) in rendered.documents.iter().enumerate() {
        if index > 0 && document.language == weftrun::core::backend::Language::Yaml {
            context.out.data("---\n")?;
        }
        context.out.data(&document.text)?;
        if !document.text.ends_with('\n') {
            context.out.data("\n")?;
        }
    }
    for lost in &rendered.inexpressible {
        context.out.say(format!("note: {} on {} is not in it: {}", lost.op.rule, lost.op.role, lost.reason));
    }
    for hole in &rendered.holes {
        context.out.say(format!("note: <{}> is {}", hole.name, hole.what));
    }
    Ok(())
}
