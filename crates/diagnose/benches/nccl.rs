//! What a large job costs: its logs become a map, and a screen asks that map. `crates/cli/benches/transport.rs` runs the
//! whole binary beside ripgrep.
//!
//! `cargo bench -p weftrun-diagnose --bench nccl [-- RANKS]`

#![allow(clippy::print_stdout, clippy::panic, reason = "a benchmark is a program of its own")]

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_diagnose::Sources;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let ranks: u32 = arguments.next().unwrap_or(16_384);
    let path = ring(ranks, 32);
    measure(&format!("{ranks} ranks, 32 channels, one ring"), &path);
    let _ = std::fs::remove_file(path);
}

fn file(name: &str) -> (PathBuf, BufWriter<File>) {
    let path = std::env::temp_dir().join(format!("weftrun-bench-{}-{name}.log", std::process::id()));
    let file = File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, BufWriter::new(file))
}

/// The whole start of a large job in one file, ranks interleaved by channel as a launcher merges them.
fn ring(ranks: u32, channels: u32) -> PathBuf {
    let (path, mut out) = file("ring");
    for rank in 0..ranks {
        let (host, pid, device) = (rank / 8, 1000 + rank, rank % 8);
        let _ = writeln!(out, "n{host}:{pid}:{pid} [{device}] NCCL INFO Using network AWS Libfabric");
        let _ = writeln!(
            out,
            "n{host}:{pid}:{pid} [{device}] NCCL INFO ncclCommInitRank comm 0x{pid:x} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId {device}0 commId 0xabc - Init START"
        );
        let _ = writeln!(
            out,
            "n{host}:{pid}:{pid} [{device}] NCCL INFO comm 0x{pid:x} rank {rank} nRanks {ranks} nNodes {} localRanks 8 localRank {device} MNNVL 0",
            ranks.div_ceil(8)
        );
        let _ = writeln!(
            out,
            "n{host}:{pid}:{pid} [{device}] NCCL INFO ncclCommInitRank comm 0x{pid:x} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId {device}0 commId 0xabc - Init COMPLETE"
        );
    }
    for channel in 0..channels {
        for rank in 0..ranks {
            let (host, pid, device) = (rank / 8, 1000 + rank, rank % 8);
            let next = (rank + 1) % ranks;
            let via =
                if next / 8 == rank / 8 { "via P2P/CUMEM" } else { "[send] via NET/AWS Libfabric/0/GDRDMA" };
            let _ = writeln!(
                out,
                "n{host}:{pid}:{pid} [{device}] NCCL INFO Channel {channel:02}/0 : {rank}[{device}] -> {next}[{}] {via}",
                next % 8
            );
            if rank % 8 == 0 {
                let before = (rank + ranks - 1) % ranks;
                let _ = writeln!(
                    out,
                    "n{host}:{pid}:{pid} [{device}] NCCL INFO Channel {channel:02}/0 : {before}[7] -> {rank}[0] [receive] via NET/AWS Libfabric/0/GDRDMA"
                );
            }
        }
    }
    path
}

fn measure(name: &str, path: &Path) {
    let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
    let (read, map) = best(|| read(path));
    println!(
        "{name}: {:.0} MB in {:.0} ms, {:.0} MB/s; peak {} MB",
        bytes as f64 / 1e6,
        read.as_secs_f64() * 1e3,
        bytes as f64 / 1e6 / read.as_secs_f64(),
        peak_megabytes()
    );
    let screen = || {
        let seen = map.snapshot();
        (seen.summary().verdict, seen.some_ranks(SCREEN).len(), seen.pairs_of_ranks(SCREEN).len())
    };
    let (took, (verdict, ranks, pairs)) = best(screen);
    println!("    a screen: {:?}, {ranks} ranks, {pairs} pairs in {took:.1?}", verdict.fabric);
    println!("    a diagnosis in {:.1?}", best(|| Sources::of_logs(&map).diagnose().findings.len()).0);
    let (took, pairs) = best(|| map.snapshot().pairs().len());
    println!("    all {pairs} pairs in {took:.1?}");
    println!("    the slowest of batches of 100 lines in {:.1?}", slowest_batch(path));
}

/// The ranks that a screen shows.
const SCREEN: std::ops::Range<u32> = 0..192;

/// From the bytes to the map, 100 lines at a time, as a live job at 100,000 lines a second gives them each millisecond.
fn slowest_batch(path: &Path) -> Duration {
    let log = std::fs::read(path).unwrap_or_default();
    let source = Arc::new(SourceId::new("bench"));
    let mut map = TransportMap::new();
    let mut slowest = Duration::ZERO;
    for batch in log[..log.len().min(64_000_000)].chunks(10_000) {
        let started = Instant::now();
        map.read(&source, batch);
        slowest = slowest.max(started.elapsed());
    }
    slowest
}

fn read(path: &Path) -> TransportMap {
    let mut map = TransportMap::new();
    let source = Arc::new(SourceId::new("bench"));
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{error}"));
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        map.read(&source, &buffer[..count]);
    }
    map.end(&source);
    map
}

fn best<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best: Option<(Duration, T)> = None;
    for _ in 0..5 {
        let started = Instant::now();
        let value = run();
        let took = started.elapsed();
        if best.as_ref().is_none_or(|(known, _)| took < *known) {
            best = Some((took, value));
        }
    }
    best.unwrap_or_else(|| panic!("ran five times"))
}

/// Highest memory of this process so far.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1024
}
