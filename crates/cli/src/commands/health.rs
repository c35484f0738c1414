//! `health`: the reports of NCCL's RAS service about a running job.

use std::time::Duration;

use clap::Args;
use weftrun::core::diagnose::health::HealthState;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;
use weftrun::core::nccl::ras::Communicator;
use weftrun::core::report::HealthReport;
use weftrun::{Error, ErrorKind, HealthOptions, Result, health_at};

use super::transport::{inputs, read};
use crate::args::Format;
use crate::context::Context;
use crate::job_flags::duration;

const EXAMPLES: &str = "\
Examples:
  weftrun health llama                          a running job, by its name or handle
  weftrun health llama --observe 3m             watch ranks that are behind for three minutes
  weftrun health --address localhost:28028      a RAS service that is reachable from here
  weftrun health --address localhost:28028 rank*.log      the same, with global ranks from the logs
  weftrun health -o json llama | jq .culprits

NCCL has the service since 2.24.3; the job and its image need no change. If the logs name a version before
2.27.3, it is not queried without --force: a query can crash the job. Versions before 2.29.2, and those with an
advisory (`weftrun advisories`), are queried once. Exit code 5 if nothing answers.";

/// Arguments of `health`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HealthArgs {
    /// A running job's handle or name; with --address, the job's log files or folders
    #[arg(value_name = "JOB|PATH", required_unless_present = "address")]
    pub inputs: Vec<String>,
    /// Address of a RAS service to query instead of a job's
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// How long to watch ranks that are behind for movement
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "20s")]
    pub observe: Duration,
    /// Time limit of one query
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "20s")]
    pub timeout: Duration,
    /// Query versions of NCCL that a query can crash
    #[arg(long)]
    pub force: bool,
}

/// Prints the state of a job's ranks.
pub fn run(context: &Context, args: &HealthArgs) -> Result<u8> {
    let mut options = HealthOptions::default();
    (options.observe, options.timeout, options.force) = (args.observe, args.timeout, args.force);
    let report = match (&args.address, args.inputs.as_slice()) {
        (Some(address), files) => {
            let logs = logs(files)?;
            context.block_on(health_at(address, &logs, &options))?
        }
        (None, [job]) => {
            let client = context.client()?;
            context.block_on(async { context.job(&client, job).await?.health(&options).await })?
        }
        (None, _) => {
            return Err(Error::new(ErrorKind::Usage, "one job at a time")
                .hint("log files are read with --address only; `weftrun why FILES` reads logs alone"));
        }
    };
    match context.out.format {
        Format::Table => context.out.text(&text(&report))?,
        Format::Json | Format::Yaml => context.out.value(&report)?,
        _ => {
            return Err(
                Error::new(ErrorKind::Usage, "`health` has no such output").hint("use -o json or yaml")
            );
        }
    }
    Ok(if report.state == HealthState::Unreachable { exit_codes::UNREACHABLE } else { exit_codes::OK })
}

fn logs(files: &[String]) -> Result<TransportMap> {
    let mut map = TransportMap::new();
    if !files.is_empty() {
        let inputs = inputs::resolve(&files.iter().collect::<Vec<_>>())?;
        read::all(&inputs, false, &mut map, |_| Ok(()))?;
    }
    Ok(map)
}

fn text(report: &HealthReport) -> String {
    let mut lines = vec![match report.reason.as_str() {
        "" => report.state.as_str().to_owned(),
        reason => format!("{}: {reason}", report.state.as_str()),
    }];
    for culprit in report.culprits.iter().take(16) {
        lines.push(format!("  {}", culprit.sentence()));
    }
    if report.culprits.len() > 16 {
        lines.push(format!("  and {} more", report.culprits.len() - 16));
    }
    let differs =
        |comm: &&Communicator| !(comm.missing.is_empty() && comm.behind.is_empty() && comm.errors.is_empty());
    for comm in report.communicators.iter().filter(differs).take(16) {
        let size = comm.size.map(|size| format!(" of {size} ranks")).unwrap_or_default();
        lines.push(format!(
            "communicator {:#x}{size}: {} missing, {} behind, {} with errors",
            comm.hash,
            comm.missing.len(),
            comm.behind.len(),
            comm.errors.len()
        ));
    }
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    if let Some(version) = &report.nccl_version {
        lines.push(format!("NCCL {version}, through {}", report.asked.via));
    }
    lines.iter().map(|line| format!("{}\n", clean_text(line))).collect()
}
