//! `why`: the first cause of a failure or a hang, from files, folders, stdin or a job.

pub mod html;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobDetail, JobPhase, JobSummary};
use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;
use weftrun::diagnose::Sources;
use weftrun::diagnose::cause::{Stack, Why};
use weftrun::report::WhyReport;
use weftrun::{Error, ErrorKind, Finding, Inspection, Job, Result};

use super::transport::{is_handle, is_job};
use crate::context::Context;
use crate::global::Format;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  weftrun why llama                               a job, by its name or handle
  weftrun why logs/                               every *.log, *.out and *.err of a folder
  weftrun why node0.log node1.log.gz              the logs of all nodes, in any order
  kubectl logs -l job=train --prefix --tail=-1 | weftrun why -
  weftrun why --dump --stacks llama               ask the ranks of a job that hangs
  weftrun why -o html llama > why.html            one page, opens from disk
  weftrun why -o json logs/ | jq .cause.ranks";

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// A job's handle or name; or log files, folders, quoted patterns, `-` for stdin
    #[arg(value_name = "JOB|PATH", required = true)]
    pub inputs: Vec<String>,
    /// Request a dump of PyTorch's flight recorder from every rank (needs `--fabric-rule observe.flight-recorder` at
    /// submission)
    #[arg(long)]
    pub dump: bool,
    /// Print the Python stacks of the ranks that the cause names (needs py-spy in the image)
    #[arg(long)]
    pub stacks: bool,
}

/// Prints why a job failed or hangs. The exit code does not depend on the answer.
pub fn run(context: &Context, args: &WhyArgs) -> Result<u8> {
    let why = match args.inputs.as_slice() {
        [job] if is_job(job) => {
            let client = context.client()?;
            let mut what = Inspection::default();
            (what.dumps, what.stacks) = (args.dump, args.stacks);
            context.block_on(async {
                let job = context.job(&client, job).await?;
                if what.dumps || what.stacks { job.inspect(what).await } else { job.why().await }
            })?
        }
        _ if args.dump || args.stacks => {
            return Err(Error::new(ErrorKind::Usage, "--dump and --stacks need one running job, not files")
                .hint("`weftrun transport --flight-recorder DUMPS` reads dumps that were copied here"));
        }
        inputs => of_files(inputs)?,
    };
    match context.out.format {
        Format::Table => {
            for line in why.lines() {
                context.out.line(clean_text(&line))?;
            }
            for stack in &why.stacks {
                context.out.line(stack_head(stack))?;
                for line in stack.text.lines() {
                    context.out.line(clean_text(&format!("  {line}")))?;
                }
            }
        }
        Format::Html => context.out.document(&html::page(&why)?)?,
        _ => context.out.value(&WhyReport::from(why))?,
    }
    Ok(exit_codes::OK)
}

/// Returns the heading of a stack.
fn stack_head(stack: &Stack) -> String {
    let pid = stack.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("stack of rank {}{pid}", stack.rank)
}

fn of_files(named: &[String]) -> Result<Why> {
    if let Some(job) = named.iter().find(|input| is_handle(input)) {
        return Err(
            Error::new(ErrorKind::Usage, "one job, or files, but not both or several jobs").with("job", job)
        );
    }
    let (logs, health) = weftrun::open_logs(named)?.map_and_health()?;
    Ok(Sources::of_logs(&logs).health(health.as_ref()).diagnose().why)
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
            let mut why = Sources::of_logs(&TransportMap::new()).job(Some(&detail)).diagnose().why;
            let message = format!("the job cannot be described: {error}");
            why.findings.push(Finding::warning("WHY-LOGS-UNREAD", message));
            why
        }
    }
}
