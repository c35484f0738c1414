//! `transport`: which transport each pair of ranks uses, and why not a faster one; from files, folders, stdin or a job.

pub mod drawing;
mod dumps;
pub mod html;
mod mermaid;
mod read;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use weftrun::core::exit_codes;
use weftrun::core::fabric::{Fabric, FabricPlan};
use weftrun::core::job::JobDetail;
use weftrun::core::log::{LogOptions, clean_text};
use weftrun::core::nccl::{Event, FabricSeen, TransportMap};
use weftrun::diagnose::counters::Counters;
use weftrun::diagnose::{Diagnosis, Sources};
use weftrun::log_files::Input;
use weftrun::report::{EventLine, OwnEvent, TransportReport};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::global::Format;
use crate::interrupt::interrupted;
use crate::job_flags::limit;

const EXAMPLES: &str = "\
Examples:
  weftrun transport logs/                         every *.log, *.out and *.err of a folder, and NCCL_DEBUG_FILE's files
  weftrun transport 'run-*/rank*.log.zst'         quoted patterns, gzip and zstd
  kubectl logs -l job=train --prefix --tail=-1 | weftrun transport -
  weftrun transport --fabric efa slurm-123.out    exit 7 if the pairs prove that EFA is not used
  weftrun transport --follow kubeflow://prod/ml/pytorchjob/llama
  weftrun transport -o html logs/ > report.html   one page, opens from disk";

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TransportArgs {
    /// Log files, folders, quoted patterns, `-` for stdin, or a job: its handle, or its name on the target of -b
    #[arg(value_name = "FILE|DIR|-|HANDLE")]
    pub inputs: Vec<String>,
    /// Keep reading: files as they grow, a job until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// Planned fabric; exit 7 if the log proves another one
    #[arg(long, value_parser = crate::key_flags::fabric(), value_name = "FABRIC")]
    pub fabric: Option<Fabric>,
    /// Exit 7 also if nothing proves a fabric
    #[arg(long)]
    pub strict: bool,
    /// Read PyTorch flight recorder dumps (files or a folder) and name the rank that is behind
    #[arg(long, value_name = "DUMP")]
    pub flight_recorder: Vec<PathBuf>,
    /// Sample the counters of the RDMA interfaces inside a running job, and compare them with the log [time between: 5s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = limit,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5s",
        conflicts_with = "follow"
    )]
    pub counters: Option<Duration>,
}

/// Reads logs and prints the map.
pub fn run(context: &Context, args: &TransportArgs) -> Result<u8> {
    let planned = args.fabric;
    if args.inputs.is_empty() && args.flight_recorder.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "nothing to read")
            .hint("name log files, a folder, `-` for stdin, or a job's handle"));
    }
    let (handles, files): (Vec<&String>, Vec<&String>) = args.inputs.iter().partition(|input| is_job(input));
    let mut map = TransportMap::new();
    let mut plan = planned.map(FabricPlan::unchanged);
    if args.counters.is_some() && (handles.len() != 1 || !files.is_empty()) {
        return Err(Error::new(ErrorKind::Usage, "--counters needs one running job")
            .hint("name a job, by its handle or its name on the target of -b"));
    }
    let (mut counters, mut detail) = (None, None);
    let one_job = handles.len() == 1 && files.is_empty();
    for handle in handles {
        let (planned, described) = follow_job(context, handle, args.follow, &mut map)?;
        plan = plan.or(planned);
        detail = described;
        if let Some(between) = args.counters {
            let client = context.client()?;
            counters = Some(
                context
                    .block_on(async { context.job(&client, handle).await?.counters(&map, between).await })?,
            );
        }
    }
    if !files.is_empty() {
        let logs = weftrun::open_logs(files)?;
        if args.follow && logs.inputs().len() > 1 && logs.inputs().contains(&Input::Stdin) {
            // Followed files never end, and stdin would wait forever.
            return Err(Error::new(ErrorKind::Usage, "stdin and files cannot be followed in one run")
                .hint("follow the files, or pipe everything: tail -F FILE… | weftrun transport --follow -"));
        }
        let show = |event: &Event| if args.follow { show(context, event) } else { Ok(()) };
        read::all(&logs, args.follow, &mut map, show)?;
    }
    // The status of one job says nothing of the logs of others.
    let detail = detail.filter(|_| one_job);
    let mut diagnosis = Sources::of_logs(&map).plan(plan.as_ref()).job(detail.as_ref()).diagnose();
    diagnosis.findings.splice(0..0, dumps::findings(&args.flight_recorder)?);
    let code = exit_code(&diagnosis, args.strict);
    if let Some(counters) = &counters {
        diagnosis.findings.extend(counters.findings(diagnosis.verdict.fabric, diagnosis.planned));
    }
    print(context, diagnosis, &map, counters, args.follow)?;
    Ok(code)
}

/// Returns whether an input names a job: a handle, or a name that is not a file, a folder, a pattern or
/// stdin.
pub(super) fn is_job(input: &str) -> bool {
    let file = input == "-" || input.contains(['/', '*', '?', '.']) || Path::new(input).exists();
    is_handle(input) || !file
}

pub(super) fn is_handle(input: &str) -> bool {
    input.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

fn exit_code(diagnosis: &Diagnosis, strict: bool) -> u8 {
    let asked = diagnosis.planned.and_then(Fabric::named).is_some();
    let unproved = strict && diagnosis.verdict.fabric == FabricSeen::Unknown;
    if (asked && diagnosis.ok == Some(false)) || unproved {
        exit_codes::FABRIC_NOT_AS_PLANNED
    } else {
        exit_codes::OK
    }
}

/// Reads the logs of a job into the map; returns its plan and its status.
pub(super) fn follow_job(
    context: &Context,
    handle: &str,
    follow: bool,
    map: &mut TransportMap,
) -> Result<(Option<FabricPlan>, Option<JobDetail>)> {
    let client = context.client()?;
    context.block_on(async {
        let job = context.job(&client, handle).await.map_err(|error| {
            if is_handle(handle) {
                error
            } else {
                error.hint(format!("there is no file or folder `{handle}` either"))
            }
        })?;
        let mut options = LogOptions::default();
        options.follow = follow;
        let read = async {
            let mut logs = job.logs(options);
            while let Some(batch) = logs.next().await {
                for event in batch?.read_into(map) {
                    if follow {
                        show(context, &event)?;
                    }
                }
            }
            Ok::<_, Error>(())
        };
        tokio::select! {
            done = read => done?,
            () = interrupted() => context.out.say("interrupted: what was seen so far"),
        }
        let detail = job.describe().await.ok();
        // The fabric of a job that was submitted elsewhere is read from the cluster, if its backend stores it
        // there.
        let told = || detail.as_ref()?.summary.fabric.map(FabricPlan::unchanged);
        Ok((job.plan().cloned().or_else(told), detail))
    })
}

fn show(context: &Context, event: &Event) -> Result<()> {
    if context.out.is_data() {
        return context.out.item(&EventLine::from(OwnEvent::transport(event)));
    }
    context.out.say(event.to_string());
    Ok(())
}

fn print(
    context: &Context,
    diagnosis: Diagnosis,
    map: &TransportMap,
    counters: Option<Counters>,
    follow: bool,
) -> Result<()> {
    let out = &context.out;
    match out.format {
        Format::Table => {
            out.text(&text::report(&diagnosis, map))?;
            let lines = counters.iter().flat_map(Counters::lines);
            lines.into_iter().try_for_each(|line| out.line(clean_text(&line)))
        }
        Format::Mermaid => out.document(mermaid::graph(map)),
        Format::Html => {
            let (judge, why) = (diagnosis.judge(), diagnosis.why.clone());
            out.document(&html::page(&TransportReport::of(diagnosis, map), judge, &why)?)
        }
        _ => {
            let mut report = TransportReport::of(diagnosis, map);
            report.counters = counters;
            if follow {
                return out.item(&EventLine::from(OwnEvent::Report { report: &report }));
            }
            out.value(&report)
        }
    }
}
