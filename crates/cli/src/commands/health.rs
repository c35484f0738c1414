//! `health`: the reports of NCCL's RAS service about a running job.

use std::time::Duration;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::ras::PeerEvent;
use weftrun::diagnose::health::{HealthState, RAS};
use weftrun::report::{HealthDiagnostics, HealthReport};
use weftrun::{Error, ErrorKind, HealthOptions, Result, health_at, watch_health_at};

use crate::context::Context;
use crate::global::Format;
use crate::interrupt::interrupted;
use crate::job_flags::duration;
use crate::output::because;

const EXAMPLES: &str = "\
Examples:
  weftrun health llama                          a running job, by its name or handle
  weftrun health llama --observe 3m             watch ranks that are behind for three minutes
  weftrun health llama --watch                  a line for each change, until the job ends or Ctrl-C
  weftrun health llama --diagnose               with NCCL's own diagnostics of all ranks
  weftrun health --address localhost:28028      a RAS service that is reachable from here
  weftrun health --address localhost:28028 rank*.log      the same, with global ranks from the logs
  weftrun health -o json llama | jq .culprits

NCCL has the service since 2.24.3; the job and its image need no change. If the logs name a version before
2.27.3, it is not queried without --force: a query can crash the job. Versions before 2.29.2, and those with an
advisory (`weftrun advisories`), are queried once. Exit code 5 if nothing answers.";

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
    /// Print a line for each change until the job ends or Ctrl-C
    #[arg(long, conflicts_with = "observe")]
    pub watch: bool,
    /// Ask for NCCL's own diagnostics too: drivers, NVLinks, memory errors and variables of all ranks (NCCL 2.31 and later)
    #[arg(long, conflicts_with = "watch")]
    pub diagnose: bool,
    /// Query versions of NCCL that a query can crash
    #[arg(long)]
    pub force: bool,
}

/// Prints the state of a job's ranks.
pub fn run(context: &Context, args: &HealthArgs) -> Result<u8> {
    let mut options = HealthOptions::default();
    (options.observe, options.timeout, options.force) = (args.observe, args.timeout, args.force);
    options.diagnose = args.diagnose;
    if args.watch {
        return watch(context, args, &options);
    }
    let report = match (&args.address, args.inputs.as_slice()) {
        (Some(address), files) => {
            let logs = weftrun::open_logs(files)?.map()?;
            context.block_on(health_at(address, &logs, &options))?
        }
        (None, [job]) => {
            let client = context.client()?;
            context.block_on(async { context.job(&client, job).await?.health(&options).await })?
        }
        (None, _) => return Err(one_job()),
    };
    match context.out.format {
        Format::Table => context.out.text(&text(&report))?,
        _ => context.out.value(&report)?,
    }
    Ok(if report.state == HealthState::Unreachable { exit_codes::UNREACHABLE } else { exit_codes::OK })
}

/// Prints a line, or a JSON document, for each change. Ctrl-C ends it as expected.
fn watch(context: &Context, args: &HealthArgs, options: &HealthOptions) -> Result<u8> {
    let mut last = HealthState::Unreachable;
    let mut print = |report: &HealthReport| {
        last = report.state;
        if context.out.is_data() {
            context.out.item(report)
        } else {
            lines(report).iter().try_for_each(|line| context.out.line(clean_text(line)))
        }
    };
    let watched = async {
        match (&args.address, args.inputs.as_slice()) {
            (Some(address), files) => {
                let logs = weftrun::open_logs(files)?.map()?;
                watch_health_at(address, &logs, options, &mut print).await
            }
            (None, [job]) => {
                let client = context.client()?;
                context.job(&client, job).await?.watch_health(options, &mut print).await
            }
            (None, _) => Err(one_job()),
        }
    };
    let interrupted = context.block_on(async {
        tokio::select! {
            done = watched => done.map(|()| false),
            () = interrupted() => Ok(true),
        }
    })?;
    let unreachable = !interrupted && last == HealthState::Unreachable;
    Ok(if unreachable { exit_codes::UNREACHABLE } else { exit_codes::OK })
}

/// Returns the lines of a change: its events, or else the state with its culprits.
fn lines(report: &HealthReport) -> Vec<String> {
    if !report.events.is_empty() {
        let of = |event: &PeerEvent| {
            let process = event.pid.map(|pid| format!("process {pid} on ")).unwrap_or_default();
            format!("{} {}: {process}{} {}", event.time, event.name, event.host, event.details)
        };
        return report.events.iter().map(of).collect();
    }
    let mut lines = vec![format!("{}{}", report.state.as_str(), because(&report.reason))];
    lines.extend(report.culprits.iter().take(16).map(|culprit| format!("  {}", culprit.sentence())));
    lines
}

/// Returns the lines of NCCL's own diagnostics.
fn diagnostics(own: &HealthDiagnostics) -> Vec<String> {
    if let Some(why) = &own.refused {
        return vec![format!("NCCL's own diagnostics: none: {why}")];
    }
    let mut lines = vec![match own.passed.as_slice() {
        [] => "NCCL's own diagnostics: no check found all to be well".to_owned(),
        passed => format!("NCCL's own diagnostics found nothing in: {}", passed.join(", ")),
    }];
    lines.extend(
        own.findings.iter().map(|found| format!("{} {}: {}", found.severity, found.code, found.message)),
    );
    lines
}

fn one_job() -> Error {
    Error::new(ErrorKind::Usage, "one job at a time")
        .hint("log files are read with --address only; `weftrun why FILES` reads logs alone")
}

fn text(report: &HealthReport) -> String {
    let mut lines = lines(report);
    if report.culprits.len() > 16 {
        lines.push(format!("  and {} more", report.culprits.len() - 16));
    }
    for comm in report.communicators.iter().filter(|comm| comm.differs()).take(16) {
        let size = comm.size.map(|size| format!(" of {size} ranks")).unwrap_or_default();
        lines.push(format!(
            "communicator {:#x}{size}: {} missing, {} behind, {} with errors",
            comm.hash,
            comm.missing.len(),
            comm.behind.len(),
            comm.errors.len()
        ));
    }
    let by_logs =
        report.cause.as_ref().filter(|cause| cause.evidence.iter().any(|evidence| evidence.source != RAS));
    lines.extend(by_logs.map(|cause| format!("cause: {}: {}: {}", cause.class, cause.who(), cause.what)));
    lines.extend(report.diagnostics.iter().flat_map(diagnostics));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    if let Some(version) = &report.nccl_version {
        lines.push(format!("NCCL {version}, through {}", report.asked.via));
    }
    lines.iter().map(|line| format!("{}\n", clean_text(line))).collect()
}
