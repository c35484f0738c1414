//! Logs as they arrive through launchers, pipes and terminals: prefixed, interleaved, torn, dirty.
//!
//! Everything is derived from a seed, so that a failing case can be reproduced.

use std::io::{self, Write};

use fastrand::Rng;

/// A launcher that prefixes each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher.
    None,
    /// `torchrun --tee 3`: `[default0]:`.
    Torchrun,
    /// PyTorch's own elastic logs: `[rank0]:`.
    Rank,
    /// `srun --label`: `0: `.
    Srun,
    /// `mpirun --tag-output`: `[1,0]<stdout>:`.
    Mpirun,
    /// `kubectl logs --prefix`: `[pod/job-worker-0/pytorch] `.
    Kubectl,
}

/// All launchers, for tests over each of them.
pub const LAUNCHERS: [Launcher; 6] =
    [Launcher::None, Launcher::Torchrun, Launcher::Rank, Launcher::Srun, Launcher::Mpirun, Launcher::Kubectl];

impl Launcher {
    /// Returns its prefix for a line of a rank.
    pub fn prefix(self, rank: u32, ranks_per_node: u32) -> String {
        let local = rank % ranks_per_node.max(1);
        match self {
            Self::None => String::new(),
            Self::Torchrun => format!("[default{local}]:"),
            Self::Rank => format!("[rank{rank}]:"),
            Self::Srun => format!("{rank}: "),
            Self::Mpirun => format!("[1,{rank}]<stdout>:"),
            Self::Kubectl => format!("[pod/job-worker-{}/pytorch] ", rank / ranks_per_node.max(1)),
        }
    }

    /// Returns a log with the prefix before each line.
    pub fn apply(self, log: &[u8], rank: u32, ranks_per_node: u32) -> Vec<u8> {
        let prefix = self.prefix(rank, ranks_per_node);
        let lines = log.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| [prefix.as_bytes(), line].concat()).collect()
    }
}

/// Merges logs line by line in random order, as in a launcher's single output.
pub fn interleave(logs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut rest: Vec<_> = logs.iter().map(|log| log.split_inclusive(|byte| *byte == b'\n')).collect();
    let mut out = Vec::with_capacity(logs.iter().map(Vec::len).sum());
    while !rest.is_empty() {
        let turn = rng.usize(..rest.len());
        match rest[turn].next() {
            Some(line) => {
                out.extend_from_slice(line);
                if !line.ends_with(b"\n") {
                    out.push(b'\n');
                }
            }
            None => drop(rest.swap_remove(turn)),
        }
    }
    out
}

/// Splits logs into chunks of random size in random order, anywhere in a line, as a reader of several streams
/// sees them.
pub fn chunks(logs: &[Vec<u8>], most: usize, seed: u64) -> Vec<(u32, Vec<u8>)> {
    let mut rng = Rng::with_seed(seed);
    let mut rest: Vec<(u32, &[u8])> = logs.iter().zip(0..).map(|(log, rank)| (rank, &log[..])).collect();
    rest.retain(|(_, log)| !log.is_empty());
    let mut out = Vec::new();
    while !rest.is_empty() {
        let turn = rng.usize(..rest.len());
        let (rank, log) = rest[turn];
        let (chunk, left) = log.split_at(rng.usize(1..=most.max(1)).min(log.len()));
        out.push((rank, chunk.to_vec()));
        if left.is_empty() {
            rest.swap_remove(turn);
        } else {
            rest[turn].1 = left;
        }
    }
    out
}

/// Noise from real logs: it must neither hide nor imitate a line of NCCL's.
const DIRT: [&[u8]; 8] = [
    b"epoch 1:  37%|###7      | 120/320 [00:07<00:12, 16.0it/s]\r",
    b"\x1b[32mINFO\x1b[0m coloured\n",
    b"\xff\xfe no utf-8 \xc3\x28\n",
    b"\0\0\0 NULs\n",
    b"\n\n\n",
    b"\x1b]0;a title\x07\x1b[2J\x1b[1;1H a screen was cleared\n",
    b"a line with\ta tab and\x08a backspace\n",
    b"Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n",
];

/// Inserts noise between the lines of a log: before about one line in eight.
pub fn dirty(log: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut out = Vec::with_capacity(log.len() * 2);
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        if rng.u8(..8) == 0 {
            out.extend_from_slice(DIRT[rng.usize(..DIRT.len())]);
        }
        out.extend_from_slice(line);
    }
    out
}

/// Writes a training log of about a given size, with the given NCCL lines as a share (0 to 1) of all lines.
///
/// # Errors
/// Those of the writer.
pub fn write_big_log(bytes: u64, nccl: &[u8], share: f64, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let lines: Vec<&[u8]> =
        nccl.split_inclusive(|byte| *byte == b'\n').filter(|l| l.ends_with(b"\n")).collect();
    let (mut written, mut step, mut next) = (0_u64, 0_u64, 0_usize);
    let mut line = Vec::new();
    while written < bytes {
        line.clear();
        if !lines.is_empty() && rng.f64() < share {
            line.extend_from_slice(lines[next % lines.len()]);
            next += 1;
        } else {
            step += 1;
            let (loss, speed) = (2.0 + rng.f64(), 40_000.0 + rng.f64() * 9000.0);
            writeln!(
                line,
                "step {step}\ttokens/sec: {speed:.1} loss {loss:.4} lr 3.0e-04 grad_norm {:.3}",
                rng.f64()
            )?;
        }
        out.write_all(&line)?;
        written += line.len() as u64;
    }
    Ok(())
}
