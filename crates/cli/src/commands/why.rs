//! `why`: the first cause of a failure or a hang, from files, folders, stdin or a job.

use clap::Args;
use weftrun::core::diagnose::cause::{Why, why};
use weftrun::core::exit_codes;
use weftrun::core::job::{JobDetail, JobPhase, JobSummary};
use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;
use weftrun::core::report::WhyReport;
use weftrun::{Error, ErrorKind, Finding, Job, Result};

use super::transport::{inputs, is_handle, is_job, read};
use crate::args::Format;
use crate::context::Context;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  weftrun why llama                               a job, by its name or handle
  weftrun why logs/                               every *.log, *.out and *.err of a folder
  weftrun why node0.log node1.log.gz              the logs of all nodes, in any order
  kubectl logs -l job=train --prefix | weftrun why -
  weftrun why -o json logs/ | jq .cause.ranks";

/// Arguments of `why`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// A job's handle or name; or log files, folders, quoted patterns, `-` for stdin
    #[arg(value_name = "JOB|PATH", required = true)]
    pub inputs: Vec<String>,
}

/// Prints why a job failed or hangs. The exit code does not depend on the answer.
pub fn run(context: &Context, args: &WhyArgs) -> Result<u8> {
    let why = match args.inputs.as_slice() {
        [job] if is_job(job) => {
            let client = context.client()?;
            context.block_on(async { context.job(&client, job).await?.why().await })?
        }
        inputs => of_files(inputs)?,
    };
    match context.out.format {
        Format::Table => {
            for line in why.lines() {
                context.out.line(clean_text(&line))?;
            }
        }
        Format::Json | Format::Yaml => context.out.value(&WhyReport::from(why))?,
        _ => {
            return Err(Error::new(ErrorKind::Usage, "`why` has no such output").hint(
                "use -o json or yaml; `weftrun transport -o html` writes a page with the same answer",
            ));
        }
    }
    Ok(exit_codes::OK)
}

fn of_files(named: &[String]) -> Result<Why> {
    if let Some(job) = named.iter().find(|input| is_handle(input)) {
        return Err(
            Error::new(ErrorKind::Usage, "one job, or files, but not both or several jobs").with("job", job)
        );
    }
    let inputs = inputs::resolve(&named.iter().collect::<Vec<_>>())?;
    let mut map = TransportMap::new();
    read::all(&inputs, false, &mut map, |_| Ok(()))?;
    Ok(why(&map, None))
}

/// Prints it on stderr.
pub fn say(out: &Output, why: &Why) {
    for line in why.lines() {
        out.say(clean_text(&line));
    }
}

/// Returns why a followed job failed. Errors are ignored here: the job's own result counts.
pub async fn why_of(job: &Job) -> Why {
    match job.why().await {
        Ok(why) => why,
        Err(error) => {
            let detail = JobDetail::new(JobSummary::new(job.handle().clone(), JobPhase::Failed));
            let mut why = weftrun::core::diagnose::why_of_job(&TransportMap::new(), &detail);
            let message = format!("the job cannot be described: {error}");
            why.findings.push(Finding::warning("WHY-LOGS-UNREAD", message));
            why
        }
    }
}
