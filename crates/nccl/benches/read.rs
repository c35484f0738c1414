//! What reading a log costs: training logs with and without rates in their lines, in one thread, beside ripgrep on the same
//! warm file. `crates/cli/benches/transport.rs` runs the whole binary, which reads with two threads.
//!
//! `cargo bench -p weftrun-nccl --bench read [-- MEGABYTES]`

#![allow(clippy::print_stdout, clippy::panic, reason = "a benchmark is a program of its own")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads files and a clock"
)]

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod training_log;

use training_log::{with_rate, without_rate, write};

use weftrun_nccl::{Candidates, SourceId, TransportMap};

/// The best of so many runs counts: other programs on the machine only ever make a run slower.
const RUNS: usize = 15;
/// Bytes read at once, as the command line does.
const CHUNK: usize = 256 * 1024;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let megabytes: usize = arguments.next().unwrap_or(200);
    let path = std::env::temp_dir().join(format!("weftrun-bench-read-{}.log", std::process::id()));
    for (name, line) in
        [("no rates", without_rate as fn(usize) -> String), ("a rate in every line", with_rate)]
    {
        write(&path, megabytes, 2, line);
        measure(name, megabytes, &path);
    }
    let _ = std::fs::remove_file(&path);
}

fn measure(name: &str, megabytes: usize, path: &Path) {
    let mut buffer = vec![0; CHUNK];
    let mut chunks = |take: &mut dyn FnMut(&[u8])| {
        let mut file = File::open(path).unwrap_or_else(|error| panic!("{error}"));
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            take(&buffer[..count]);
        }
    };
    println!("{megabytes} MB, 2 % NCCL lines, {name}");
    let rg = || {
        let mut rg = Command::new("rg");
        rg.args(["-c", "NCCL INFO Channel"]).arg(path).stdout(Stdio::null()).status().ok()?;
        Some(())
    };
    let peer = rg().map(|()| {
        best(|| {
            let _ = rg();
        })
    });
    let show = |what: &str, took: Duration| {
        let ratio = peer.map_or_else(String::new, |peer| {
            format!(", {:.1} times rg -c", took.as_secs_f64() / peer.as_secs_f64())
        });
        let speed = megabytes as f64 / took.as_secs_f64();
        println!("    {what}: {:.0} ms, {speed:.0} MB/s{ratio}", took.as_secs_f64() * 1e3);
    };
    match peer {
        Some(peer) => show("rg -c", peer),
        None => println!("    rg -c: ripgrep is not installed"),
    }
    show("read(2)", best(|| chunks(&mut |bytes| _ = black_box(bytes))));
    show(
        "and a loop over the newlines",
        best(|| {
            chunks(&mut |bytes| _ = black_box(memchr::memchr_iter(b'\n', bytes).map(black_box).count()));
        }),
    );
    show(
        "and the search for failures",
        best(|| {
            chunks(&mut |bytes| drop(black_box(Candidates::of(bytes))));
        }),
    );
    show(
        "and the map: all that is done",
        best(|| {
            let source = Arc::new(SourceId::new("bench"));
            let mut map = TransportMap::new();
            chunks(&mut |bytes| drop(map.read(&source, bytes)));
            map.end(&source);
            black_box(&map);
        }),
    );
}

fn best(mut run: impl FnMut()) -> Duration {
    let timed = |_| {
        let started = Instant::now();
        run();
        started.elapsed()
    };
    (0..RUNS).map(timed).min().unwrap_or_default()
}
