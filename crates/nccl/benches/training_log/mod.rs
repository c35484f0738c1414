//! The logs that the benchmarks read: training output of 64 ranks in one stream, with NCCL's lines between.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Returns a line of training output without relevant information.
pub fn without_rate(number: usize) -> String {
    format!(
        "2026-03-01 10:00:{:02},{:03} INFO trainer.py:{} epoch {} step {number} loss {:.6} lr 3.0e-4 grad_norm {:.3}\n",
        number % 60,
        number % 1000,
        number % 977,
        number / 10_000,
        1.0 / (1.0 + number as f64),
        (number % 31) as f64 / 7.0
    )
}

/// Returns the usual line of training output: a rank, a step, a loss and a rate.
pub fn with_rate(number: usize) -> String {
    let loss = 1.0 / (1.0 + number as f64);
    format!("[rank{}]: step {} loss {loss:.2} tokens/s {}\n", number % 64, number / 64, 10_000 + number % 977)
}

/// Writes a log in which `percent` of the lines are NCCL's and the others come from `training`.
pub fn write(path: &Path, megabytes: usize, percent: usize, training: fn(usize) -> String) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut out = BufWriter::new(file);
    let (mut written, mut number) = (0, 0usize);
    while written < megabytes * 1_000_000 {
        let line = if number % 100 < percent { channel(number) } else { training(number) };
        written += line.len();
        number += 1;
        out.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    }
    out.flush().unwrap_or_else(|error| panic!("{error}"));
}

fn channel(number: usize) -> String {
    let (rank, channel) = (number / 7 % 64, number % 32);
    let (pid, device, next) = (1000 + rank, rank % 8, (rank + 1) % 64);
    format!(
        "node-{}:{pid}:{pid} [{device}] NCCL INFO Channel {channel:02}/0 : {rank}[{device}] -> {next}[{}] [send] via NET/AWS Libfabric/{}/GDRDMA\n",
        rank / 8,
        next % 8,
        channel % 4
    )
}
