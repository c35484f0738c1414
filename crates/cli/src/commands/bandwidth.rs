//! `bandwidth`: how fast each collective is, and which rank makes the others wait, from the files of a profiler of NCCL or from a
//! job that brings weftrun's own.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weftrun::core::catalogue::{Expected, InstanceType};
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;
use weftrun::core::nccl::bandwidth::{CollectiveSpeed, CommunicatorSpeed, Order, Rate, SizeSpeed};
use weftrun::core::text::{counted, rounded_size};
use weftrun::diagnose::Measured;
use weftrun::diagnose::counters::Counters;
use weftrun::files::NamedFile;
use weftrun::report::BandwidthReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::transport::{follow_job, is_job};
use crate::context::Context;
use crate::job_flags::limit;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun bandwidth nccl-inspector-1234/          files of NCCL Inspector: JSON or Prometheus text
  weftrun bandwidth llama                         a job submitted with --bandwidth, while it runs or later
  weftrun bandwidth nccl/*.jsonl                  files of weftrun's own library
  weftrun bandwidth llama --counters              also the traffic of the network interfaces, while it runs
  weftrun bandwidth llama --off                   measure no more: the job runs on (NCCL 2.31 and later)
  weftrun bandwidth -o json nccl/ | jq .late      the ranks for which the others wait
  weftrun bandwidth --write-library weftrun.so    then, in the job: NCCL_PROFILER_PLUGIN=$PWD/weftrun.so WEFTRUN_NCCL_OUT=$PWD/nccl

A time of a collective contains the waiting for the rank that comes last, so that this rank has the shortest time. A rank
is named only if the others clearly and steadily wait for it, and only in all-reduces, all-gathers and reduce-scatters, in
which every rank waits for all others. Bandwidths are bus bandwidths as nccl-tests prints them, by the rank that waited least.
What is expected holds for messages of 1 GiB and more: the published figure of the instance type and the number of nodes, or
the line rate of what joins the ranks.";

/// Most communicators in the table; JSON has all.
const COMMUNICATORS: usize = 32;
/// Most sources of expected bandwidths.
const EXPECTED: usize = 8;

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BandwidthArgs {
    /// Files of a profiler of NCCL, folders, quoted patterns, `-` for stdin, or one job: its handle, or its name on the target
    /// of -b
    #[arg(value_name = "PATH|HANDLE", required_unless_present = "write_library")]
    pub inputs: Vec<String>,
    /// Instance type of the nodes, by which a bandwidth is expected [default: that of the job's plan]
    #[arg(long, value_name = "TYPE")]
    pub instance_type: Option<String>,
    /// Sample the counters of the RDMA interfaces inside a running job [time between: 5s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = limit,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5s"
    )]
    pub counters: Option<Duration>,
    /// Switch NCCL's profiler off in a running job, for the rest of it (NCCL 2.31 and later)
    #[arg(long, conflicts_with_all = ["counters", "instance_type", "write_library"])]
    pub off: bool,
    /// Write weftrun's library for this kind of machine to a file (`-` for stdout), for `NCCL_PROFILER_PLUGIN`
    #[arg(long, value_name = "FILE", conflicts_with = "inputs")]
    pub write_library: Option<PathBuf>,
}

/// Prints the speeds. The exit code does not depend on them.
pub fn run(context: &Context, args: &BandwidthArgs) -> Result<u8> {
    if let Some(file) = &args.write_library {
        return write_library(context, file);
    }
    let (measured, traffic) = match &args.inputs[..] {
        [job] if is_job(job) && args.off => return switch_off(context, job),
        [job] if is_job(job) => of_job(context, args, job)?,
        _ if args.off => {
            return Err(Error::new(ErrorKind::Usage, "--off needs one running job")
                .hint("name a job, by its handle or its name on the target of -b"));
        }
        _ if args.counters.is_some() => {
            return Err(Error::new(ErrorKind::Usage, "--counters needs one running job")
                .hint("name a job, by its handle or its name on the target of -b"));
        }
        files => {
            let bandwidth = weftrun::read_bandwidth(files)?;
            let instance = instance(context, args.instance_type.as_deref())?;
            let is_measured = !bandwidth.is_empty();
            (is_measured.then(|| Measured::new(bandwidth.speeds(), instance.as_ref())), None)
        }
    };
    let measured = measured.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "there is no measurement of NCCL's collectives")
            .with("input", args.inputs.join(" "))
            .hint(
                "submit with `--bandwidth`; the first lines come some seconds after NCCL's first collective",
            )
            .hint("NCCL Inspector writes only if NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS is set")
    })?;
    let (counters, findings) = traffic.unzip();
    let findings = findings.unwrap_or_default();
    if context.out.is_data() {
        let mut report = BandwidthReport::from(measured);
        (report.counters, report.findings) = (counters, findings);
        context.out.value(&report)?;
    } else {
        let mut text = text(&measured);
        let messages = findings.iter().map(|finding| finding.message.clone());
        let lines: Vec<String> = messages.chain(counters.iter().flat_map(Counters::lines)).collect();
        if !lines.is_empty() {
            text.push_str("\nnetwork interfaces:\n");
        }
        lines.iter().for_each(|line| text.push_str(&format!("  {}\n", clean_text(line))));
        context.out.text(&text)?;
    }
    Ok(exit_codes::OK)
}

fn write_library(context: &Context, file: &Path) -> Result<u8> {
    if file == Path::new("-") {
        context.out.document(library()?)?;
    } else {
        NamedFile::check(file)?.write(library()?)?;
    }
    Ok(exit_codes::OK)
}

/// Ends the measuring of a job.
fn switch_off(context: &Context, job: &str) -> Result<u8> {
    context.out.text_only("--off")?;
    let client = context.client()?;
    let version = context.block_on(async { context.job(&client, job).await?.stop_measuring().await })?;
    context.out.say(format!(
        "{job} measures no more: NCCL {version} has switched its profiler off in all processes, for the rest of the job"
    ));
    Ok(exit_codes::OK)
}

/// The traffic of interfaces, and what it says beside the log.
type Traffic = (Counters, Vec<Finding>);

/// Reads the log of a job, and the counters of its nodes where they are asked for.
fn of_job(context: &Context, args: &BandwidthArgs, job: &str) -> Result<(Option<Measured>, Option<Traffic>)> {
    let mut map = TransportMap::new();
    let (plan, _) = follow_job(context, job, false, &mut map)?;
    map.end_all();
    let planned = plan.as_ref().and_then(|plan| plan.instance_type.as_deref());
    let instance = instance(context, args.instance_type.as_deref().or(planned))?;
    let snapshot = map.snapshot();
    let measured = Measured::of_logs(&snapshot, instance.as_ref());
    let Some(between) = args.counters.filter(|_| measured.is_some()) else { return Ok((measured, None)) };
    let client = context.client()?;
    let counters =
        context.block_on(async { context.job(&client, job).await?.counters(&map, between).await })?;
    let findings = counters.findings(snapshot.verdict().fabric, plan.map(|plan| plan.fabric));
    Ok((measured, Some((counters, findings))))
}

/// Returns the row of an instance type; one that was planned, and is in no row, is not known.
fn instance(context: &Context, name: Option<&str>) -> Result<Option<InstanceType>> {
    let Some(name) = name else { return Ok(None) };
    let client = context.client()?;
    Ok(Some(super::instances::known(client.catalogue(), name)?.clone()))
}

/// Returns the library for the machine on which this program runs.
fn library() -> Result<&'static [u8]> {
    weftrun::profiler::library(ARCH).ok_or_else(|| {
        let message = format!("this build of weftrun has no NCCL profiler library for {ARCH}");
        Error::new(ErrorKind::Unsupported, message).hint(
            "a release has it, and so has a build by a Rust that has the target of glibc for this machine",
        )
    })
}

fn text(measured: &Measured) -> String {
    let speeds = &measured.speeds;
    let (bold, warn, dim) = (style::BOLD, style::WARNING, style::DIM);
    let style = if speeds.late.is_empty() { bold } else { warn };
    let mut text = format!("{style}{}{style:#}\n", clean_text(&speeds.sentence));
    for comm in speeds.communicators.iter().take(COMMUNICATORS) {
        text.push_str(&communicator(comm, measured));
    }
    if let Some(more) = speeds.communicators.len().checked_sub(COMMUNICATORS).filter(|more| *more > 0) {
        text.push_str(&format!("\n{} more; -o json has them\n", counted(more, "communicator")));
    }
    text.push_str(&sources(measured));
    text.push_str(&rates(&speeds.rates));
    for note in &speeds.notes {
        text.push_str(&format!("{dim}note: {}{dim:#}\n", clean_text(note)));
    }
    text
}

fn communicator(comm: &CommunicatorSpeed, measured: &Measured) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let seen = usize::try_from(comm.ranks).is_ok_and(|ranks| ranks > comm.seen_ranks);
    let seen = if seen { format!(", {} of them recorded", comm.seen_ranks) } else { String::new() };
    let nodes =
        if comm.nodes > 0 { format!(" on {}", counted(comm.nodes as usize, "node")) } else { String::new() };
    let ranks = counted(comm.ranks as usize, "rank");
    let mut text = format!("\n{bold}communicator {}{bold:#}: {ranks}{nodes}{seen}\n", clean_text(&comm.id));
    text.push_str(&format!(
        "{dim}  {:<14} {:>16} {:>10} {:>10} {:>10} {:>10}  time{dim:#}\n",
        "collective", "size", "count", "bus GB/s", "slowest", "expected"
    ));
    for speed in &comm.collectives {
        let expected = measured.expected(&comm.id, speed.collective);
        for (at, size) in speed.sizes.iter().enumerate() {
            text.push_str(&row(speed, size, expected, at == 0));
        }
        if matches!(speed.arrival.order, Order::Late | Order::Unmatched) {
            text.push_str(&format!("    {}\n", waiting(speed)));
        }
    }
    text
}

fn row(speed: &CollectiveSpeed, size: &SizeSpeed, expected: Option<&Expected>, first: bool) -> String {
    let name = if first { speed.collective.as_str() } else { "" };
    let share = speed.time_share.filter(|_| first).map(|share| format!("{:.1} %", share * 100.0));
    let sizes = match (rounded_size(size.least_bytes), rounded_size(size.most_bytes)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least}-{most}"),
    };
    let gbps = |gbps: Option<f64>| gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.1}"));
    format!(
        "  {name:<14} {sizes:>16} {:>10} {:>10} {:>10} {:>10}  {}\n",
        size.operations,
        gbps(size.busbw_gbps),
        gbps(size.slowest_gbps),
        if first { expected.map_or("unknown".to_owned(), Expected::numbers) } else { String::new() },
        share.unwrap_or_default()
    )
}

/// Returns who waits in a collective, where a rank is late or nobody can tell.
fn waiting(speed: &CollectiveSpeed) -> String {
    let arrival = &speed.arrival;
    let late: Vec<_> = arrival
        .late
        .iter()
        .take(8)
        .map(|rank| {
            let host = if rank.host.is_empty() { String::new() } else { format!(" on {}", rank.host) };
            let judged = arrival.recent.filter(|recent| recent.is_judged);
            let of_last = judged.map(|recent| format!(" of the last {:.0} s", recent.seconds));
            format!(
                "rank {rank}{host} waited {:.2} s, the others {:.2} s{}",
                rank.seconds,
                arrival.waited_seconds,
                of_last.unwrap_or_default()
            )
        })
        .collect();
    let text = if late.is_empty() { arrival.order.as_str().to_owned() } else { late.join("; ") };
    clean_text(&text).into_owned()
}

/// Returns where the expected bandwidths come from, each once.
fn sources(measured: &Measured) -> String {
    let mut lines: Vec<String> = Vec::new();
    for one in &measured.expected {
        let Expected { basis, what, sources, .. } = &one.expected;
        let line = format!("expected: {} ({basis}: {what}; {})", one.expected.numbers(), sources.join(", "));
        if !lines.contains(&line) && lines.len() < EXPECTED {
            lines.push(line);
        }
    }
    lines.iter().map(|line| format!("{0}{1}{0:#}\n", style::DIM, clean_text(line))).collect()
}

fn rates(rates: &[Rate]) -> String {
    let mut text = String::new();
    if !rates.is_empty() {
        text.push_str("\nrates of Prometheus files, which name no ranks:\n");
    }
    for rate in rates.iter().take(200) {
        let gbps = rate.busbw_gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.1}"));
        let line = format!(
            "  {} {} {} {} {}: {gbps} GB/s",
            rate.node, rate.gpu, rate.communicator, rate.collective, rate.size
        );
        text.push_str(&format!("{}\n", clean_text(&line)));
    }
    text
}
