//! `weftrun transport` as a user runs it, beside ripgrep on the same warm file, in one run.
//!
//! `cargo bench -p weftrun-cli --bench transport [-- MEGABYTES [NODES]]`

#![allow(clippy::print_stdout, clippy::panic, reason = "a benchmark is a program of its own")]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../../nccl/benches/training_log/mod.rs"]
mod training_log;

use training_log::{with_rate, without_rate, write};
use weftrun_replay::{Capture, Shape};

/// The best of so many runs counts.
const RUNS: usize = 5;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let megabytes: usize = numbers.next().unwrap_or(1000);
    let nodes: u32 = numbers.next().and_then(|nodes: usize| u32::try_from(nodes).ok()).unwrap_or(2048);
    let folder = std::env::temp_dir().join(format!("weftrun-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let log = folder.join("mixed.log");
    write(&log, megabytes, 2, without_rate);
    beside_ripgrep(&format!("{megabytes} MB, 2 % NCCL lines"), &log);
    write(&log, megabytes, 2, with_rate);
    beside_ripgrep(&format!("{megabytes} MB, 2 % NCCL lines, a rate in all others"), &log);
    write(&log, megabytes / 3, 100, without_rate);
    beside_ripgrep(&format!("{} MB, NCCL lines only", megabytes / 3), &log);
    let _ = fs::remove_file(&log);
    replayed(&folder, nodes);
    let _ = fs::remove_dir_all(&folder);
}

/// The program that is measured: `WEFTRUN_BIN`, else the one built with this benchmark.
fn binary() -> String {
    std::env::var("WEFTRUN_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_weftrun").to_owned())
}

fn beside_ripgrep(name: &str, log: &Path) {
    const CAPTURES: &str = r"Channel (\d+)/(\d+) : (\d+)\[\w+\] -> (\d+)\[\w+\] \[(\w+)\] via (\S+)";
    let bytes = fs::metadata(log).map_or(0, |data| data.len()) as f64 / 1e6;
    let (ours, peak) = weftrun(&[log.to_owned()]);
    println!(
        "{name}: {:.0} ms, {:.0} MB/s, peak {peak} MB",
        ours.as_secs_f64() * 1e3,
        bytes / ours.as_secs_f64()
    );
    let captures = ["-o", "-r", "$1 $2 $3 $4 $5 $6", CAPTURES];
    for (peer, arguments) in
        [("rg -c", &["-c", "NCCL INFO Channel"][..]), ("rg -o with six captures", &captures)]
    {
        match best(|| time(Command::new("rg").args(arguments).arg(log))) {
            Some(took) => {
                let ratio = ours.as_secs_f64() / took.as_secs_f64();
                println!("    {peer}: {:.0} ms; ratio {ratio:.2}", took.as_secs_f64() * 1e3);
            }
            None => println!("    {peer}: ripgrep is not installed"),
        }
    }
}

/// A large job from the replayer, one file a rank.
fn replayed(folder: &Path, nodes: u32) {
    let capture = Capture::shipped("socket_2x2").unwrap_or_else(|error| panic!("{error}"));
    let shape = Shape::new(nodes, 8).channels(32);
    let replay = capture.scale(shape).unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = 0;
    for rank in 0..replay.world() {
        let path = folder.join(format!("rank{rank}.log"));
        let file = File::create(&path).unwrap_or_else(|error| panic!("{error}"));
        replay.write_log(rank, &mut BufWriter::new(file)).unwrap_or_else(|error| panic!("{error}"));
        bytes += fs::metadata(&path).map_or(0, |data| data.len());
    }
    let (took, peak) = weftrun(&[folder.to_owned()]);
    let megabytes = bytes as f64 / 1e6;
    println!(
        "{} ranks x 32 channels, one file a rank: {megabytes:.0} MB in {:.2} s, {:.0} MB/s, peak {peak} MB",
        replay.world(),
        took.as_secs_f64(),
        megabytes / took.as_secs_f64()
    );
}

/// Runs the binary; gives its best time and its peak of memory in MB.
fn weftrun(inputs: &[PathBuf]) -> (Duration, u64) {
    let mut peak = 0;
    let took = best(|| {
        let started = Instant::now();
        let mut child = Command::new(binary())
            .args(["transport", "-o", "json"])
            .args(inputs)
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        loop {
            peak = peak.max(resident(child.id()));
            if let Some(status) = child.try_wait().ok()? {
                return status.success().then(|| started.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (took.unwrap_or_else(|| panic!("weftrun failed")), peak)
}

/// The highest resident memory of a process so far, in MB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn time(command: &mut Command) -> Option<Duration> {
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).status().ok()?;
    status.success().then(|| started.elapsed())
}

fn best(mut run: impl FnMut() -> Option<Duration>) -> Option<Duration> {
    (0..RUNS).map(|_| run()).collect::<Option<Vec<_>>>()?.into_iter().min()
}
