//! `bandwidth`: how fast each collective is, and which rank makes the others wait, from the files of a profiler of NCCL or from a
//! job that brings weftrun's own.

use std::env::consts::ARCH;
use std::path::PathBuf;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;
use weftrun::core::nccl::bandwidth::{CollectiveSpeed, CommunicatorSpeed, Order, Rate, SizeSpeed, Speeds};
use weftrun::core::text::{binary_size, counted};
use weftrun::files::NamedFile;
use weftrun::report::BandwidthReport;
use weftrun::{Error, ErrorKind, Result};

use super::transport::{follow_job, is_job};
use crate::context::Context;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun bandwidth nccl-inspector-1234/          files of NCCL Inspector: JSON or Prometheus text
  weftrun bandwidth llama                         a job submitted with --bandwidth, while it runs or later
  weftrun bandwidth nccl/*.jsonl                  files of weftrun's own library
  weftrun bandwidth -o json nccl/ | jq .late      the ranks for which the others wait
  weftrun bandwidth --write-library weftrun.so    then, in the job: NCCL_PROFILER_PLUGIN=$PWD/weftrun.so WEFTRUN_NCCL_OUT=$PWD/nccl

A time of a collective contains the waiting for the rank that comes last, so that this rank has the shortest time. A rank
is named only if the others clearly and steadily wait for it, and only in all-reduces, all-gathers and reduce-scatters, in
which every rank waits for all others. Bandwidths are bus bandwidths as nccl-tests prints them, by the rank that waited least.";

/// Most communicators in the table; JSON has all.
const COMMUNICATORS: usize = 32;

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BandwidthArgs {
    /// Files of a profiler of NCCL, folders, quoted patterns, `-` for stdin, or one job: its handle, or its name on the target
    /// of -b
    #[arg(value_name = "PATH|HANDLE", required_unless_present = "write_library")]
    pub inputs: Vec<String>,
    /// Write weftrun's library for this kind of machine to a file, for `NCCL_PROFILER_PLUGIN`
    #[arg(long, value_name = "FILE", conflicts_with = "inputs")]
    pub write_library: Option<PathBuf>,
}

/// Prints the speeds. The exit code does not depend on them.
pub fn run(context: &Context, args: &BandwidthArgs) -> Result<u8> {
    if let Some(file) = &args.write_library {
        NamedFile::check(file)?.write(library()?)?;
        return Ok(exit_codes::OK);
    }
    let bandwidth = match &args.inputs[..] {
        [job] if is_job(job) => {
            let mut map = TransportMap::new();
            follow_job(context, job, false, &mut map)?;
            map.end_all();
            map.snapshot().bandwidth().clone()
        }
        files => weftrun::read_bandwidth(files)?,
    };
    if bandwidth.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is no measurement of NCCL's collectives")
            .with("input", args.inputs.join(" "))
            .hint(
                "submit with `--bandwidth`; the first lines come some seconds after NCCL's first collective",
            )
            .hint("NCCL Inspector writes only if NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS is set"));
    }
    let speeds = bandwidth.speeds();
    if context.out.is_data() {
        context.out.value(&BandwidthReport::from(speeds))?;
    } else {
        context.out.text(&text(&speeds))?;
    }
    Ok(exit_codes::OK)
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

fn text(speeds: &Speeds) -> String {
    let (bold, warn, dim) = (style::BOLD, style::WARNING, style::DIM);
    let style = if speeds.late.is_empty() { bold } else { warn };
    let mut text = format!("{style}{}{style:#}\n", clean_text(&speeds.sentence));
    for comm in speeds.communicators.iter().take(COMMUNICATORS) {
        text.push_str(&communicator(comm));
    }
    if let Some(more) = speeds.communicators.len().checked_sub(COMMUNICATORS).filter(|more| *more > 0) {
        text.push_str(&format!("\n{} more; -o json has them\n", counted(more, "communicator")));
    }
    text.push_str(&rates(&speeds.rates));
    for note in &speeds.notes {
        text.push_str(&format!("{dim}note: {}{dim:#}\n", clean_text(note)));
    }
    text
}

fn communicator(comm: &CommunicatorSpeed) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let seen = usize::try_from(comm.ranks).is_ok_and(|ranks| ranks > comm.seen_ranks);
    let seen = if seen { format!(", {} of them recorded", comm.seen_ranks) } else { String::new() };
    let nodes =
        if comm.nodes > 0 { format!(" on {}", counted(comm.nodes as usize, "node")) } else { String::new() };
    let ranks = counted(comm.ranks as usize, "rank");
    let mut text = format!("\n{bold}communicator {}{bold:#}: {ranks}{nodes}{seen}\n", clean_text(&comm.id));
    text.push_str(&format!(
        "{dim}  {:<14} {:>16} {:>10} {:>10} {:>10}  time{dim:#}\n",
        "collective", "size", "count", "bus GB/s", "slowest"
    ));
    for speed in &comm.collectives {
        for (at, size) in speed.sizes.iter().enumerate() {
            text.push_str(&row(speed, size, at == 0));
        }
        if matches!(speed.arrival.order, Order::Late | Order::Unmatched) {
            text.push_str(&format!("    {}\n", waiting(speed)));
        }
    }
    text
}

fn row(speed: &CollectiveSpeed, size: &SizeSpeed, first: bool) -> String {
    let name = if first { speed.collective.as_str() } else { "" };
    let share = speed.time_share.filter(|_| first).map(|share| format!("{:.1} %", share * 100.0));
    let sizes = match (rounded(size.least_bytes), rounded(size.most_bytes)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least}-{most}"),
    };
    let gbps = |gbps: Option<f64>| gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.1}"));
    format!(
        "  {name:<14} {sizes:>16} {:>10} {:>10} {:>10}  {}\n",
        size.operations,
        gbps(size.busbw_gbps),
        gbps(size.slowest_gbps),
        share.unwrap_or_default()
    )
}

/// Returns a size that need not be a whole number of its unit.
fn rounded(bytes: u64) -> String {
    let power = bytes.max(1).ilog2() / 10 * 10;
    if bytes.trailing_zeros() >= power || power > 50 {
        return binary_size(bytes);
    }
    let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].get(power as usize / 10).unwrap_or(&"B");
    format!("{:.1} {unit}", bytes as f64 / (1_u64 << power) as f64)
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
            format!(
                "rank {rank}{host} waited {:.2} s, the others {:.2} s",
                rank.seconds, arrival.waited_seconds
            )
        })
        .collect();
    let text = if late.is_empty() { arrival.order.as_str().to_owned() } else { late.join("; ") };
    clean_text(&text).into_owned()
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
