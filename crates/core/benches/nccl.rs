//! How fast logs become a map, beside ripgrep counting one string in the same warm file, in one run.
//!
//! `cargo bench -p weftrun-core --bench nccl [-- MEGABYTES [RANKS]]`

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_core::report::TransportReport;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let megabytes: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(256);
    let ranks: u32 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(4096);
    for share in [2, 100] {
        let path = mixed(megabytes, share);
        measure(&format!("{megabytes} MB, {share} % NCCL lines"), &path);
        let _ = std::fs::remove_file(path);
    }
    let path = ring(ranks, 32);
    measure(&format!("{ranks} ranks, 32 channels, one ring"), &path);
    let _ = std::fs::remove_file(path);
}

fn file(name: &str) -> (PathBuf, BufWriter<File>) {
    let path = std::env::temp_dir().join(format!("weftrun-bench-{}-{name}.log", std::process::id()));
    let file = File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, BufWriter::new(file))
}

/// A log of one job's 64 ranks: training output with NCCL's lines between.
fn mixed(megabytes: usize, share: usize) -> PathBuf {
    let (path, mut out) = file(&format!("mixed-{share}"));
    let mut written = 0;
    let mut number = 0usize;
    while written < megabytes * 1_000_000 {
        let line = if number % 100 < share {
            let (rank, channel) = (number / 7 % 64, number % 32);
            format!(
                "node-{}:{}:{} [{}] NCCL INFO Channel {channel:02}/0 : {rank}[{}] -> {}[{}] [send] via NET/AWS Libfabric/{}/GDRDMA\n",
                rank / 8,
                1000 + rank,
                1000 + rank,
                rank % 8,
                rank % 8,
                (rank + 1) % 64,
                (rank + 1) % 8,
                channel % 4
            )
        } else {
            format!(
                "2026-03-01 10:00:{:02},{:03} INFO trainer.py:{} epoch {} step {number} loss {:.6} lr 3.0e-4 grad_norm {:.3}\n",
                number % 60,
                number % 1000,
                number % 977,
                number / 10_000,
                1.0 / (1.0 + number as f64),
                (number % 31) as f64 / 7.0
            )
        };
        written += line.len();
        out.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        number += 1;
    }
    path
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
    let started = Instant::now();
    let verdict = map.verdict();
    let query = started.elapsed();
    let started = Instant::now();
    let pairs = TransportReport::new(None, &map).pairs.len();
    let report = started.elapsed();
    println!(
        "{name}: {:.0} MB in {:.0} ms, {:.0} MB/s; verdict {:?} in {query:.1?}; report of {pairs} pairs in {report:.1?}; peak {} MB",
        bytes as f64 / 1e6,
        read.as_secs_f64() * 1e3,
        bytes as f64 / 1e6 / read.as_secs_f64(),
        verdict.fabric,
        peak_megabytes()
    );
    match best_of_peer(path) {
        Some(peer) => println!(
            "    rg -c 'NCCL INFO Channel': {:.0} ms; ratio {:.2}",
            peer.as_secs_f64() * 1e3,
            read.as_secs_f64() / peer.as_secs_f64()
        ),
        None => println!("    rg is not installed"),
    }
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

fn best_of_peer(path: &Path) -> Option<Duration> {
    (0..5)
        .map(|_| {
            let started = Instant::now();
            let status = Command::new("rg")
                .args(["-c", "NCCL INFO Channel"])
                .arg(path)
                .stdout(Stdio::null())
                .status()
                .ok()?;
            status.success().then(|| started.elapsed())
        })
        .min()
        .flatten()
}

/// Highest memory of this process so far.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1024
}
