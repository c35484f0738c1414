//! The sums of a second, and the lines that are written of them.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;

use super::comms;
use super::ops::{DROPPED, Op};

/// The names of NCCL's operations; the last one stands for all others.
pub const NAMES: [&str; 13] = [
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "Send",
    "Recv",
    "SendRecv",
    "AlltoAll",
    "All2All",
    "AllGatherV",
    "Gather",
    "Other",
];

/// Sums that a second can have: communicators by collectives by powers of two of their size.
const MOST: usize = 512;
/// Longest line: every number has at most 20 digits, and a host name at most 64 bytes.
pub const LINE: usize = 640;

#[derive(Clone, Copy)]
struct Sum {
    /// Communicator, name and power of two of the size; 0 for a free place.
    key: u64,
    ops: u64,
    bytes: u64,
    nanos: u64,
    least: u64,
    most: u64,
    seq: u64,
    seq_bytes: u64,
    seq_nanos: u64,
}

/// The sums of the second that runs.
pub struct Sums([Sum; MOST]);

const NONE: Sum =
    Sum { key: 0, ops: 0, bytes: 0, nanos: 0, least: 0, most: 0, seq: 0, seq_bytes: 0, seq_nanos: 0 };

/// Returns the precedence of an operation as the one that is recorded alone. Regular numbers have no advantage: a program with
/// eight collectives a step would have its first one recorded each time if the roundest number were chosen.
fn precedence(seq: u64) -> u64 {
    let mixed = (seq ^ (seq >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Sums {
    pub const fn new() -> Self {
        Self([NONE; MOST])
    }

    /// Adds an operation. One for which there is no place is counted as dropped.
    pub fn add(&mut self, op: Op, nanos: u64) {
        let key =
            1 << 63 | (op.comm as u64) << 16 | (op.name as u64) << 8 | u64::from(op.bytes.max(1).ilog2());
        let first = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 32;
        let place = (0..MOST).map(|further| first.wrapping_add(further) % MOST);
        for at in place {
            let Some(sum) = self.0.get_mut(at) else { break };
            if sum.key == 0 {
                *sum = Sum { key, least: nanos, ..NONE };
            }
            if sum.key != key {
                continue;
            }
            sum.ops += 1;
            sum.bytes = sum.bytes.saturating_add(op.bytes);
            sum.nanos = sum.nanos.saturating_add(nanos);
            (sum.least, sum.most) = (sum.least.min(nanos), sum.most.max(nanos));
            // Of one second all ranks choose the same operation, as far as they have the same.
            if sum.ops == 1 || precedence(op.seq) > precedence(sum.seq) {
                (sum.seq, sum.seq_bytes, sum.seq_nanos) = (op.seq, op.bytes, nanos);
            }
            return;
        }
        DROPPED.fetch_add(1, Relaxed);
    }

    /// Passes on a line for each sum and empties them.
    pub fn lines(&mut self, millis: u64, process: &Process, mut put: impl FnMut(&[u8])) {
        let dropped = DROPPED.load(Relaxed);
        for sum in &mut self.0 {
            let sum = core::mem::replace(sum, NONE);
            let Some(comm) = comms::get((sum.key >> 16 & 0xffff) as usize).filter(|_| sum.key != 0) else {
                continue;
            };
            let name = NAMES.get((sum.key >> 8 & 0xff) as usize).or(NAMES.last()).unwrap_or(&"");
            let mut line = Text::<LINE>::new();
            let (rank, ranks, nodes) = (&comm.rank, &comm.ranks, &comm.nodes);
            let _ = writeln!(
                line,
                "{{\"weftrun_nccl\":1,\"t\":{millis},\"host\":\"{}\",\"pid\":{},\"comm\":\"{:#x}\",\"rank\":{},\"n\":{},\
                 \"nodes\":{},\"op\":\"{name}\",\"count\":{},\"bytes\":{},\"ns\":{},\"min\":{},\"max\":{},\"seq\":{},\
                 \"seq_bytes\":{},\"seq_ns\":{},\"dropped\":{dropped}}}",
                process.host(),
                process.pid,
                comm.id.load(Relaxed),
                rank.load(Relaxed),
                ranks.load(Relaxed),
                nodes.load(Relaxed),
                sum.ops,
                sum.bytes,
                sum.nanos,
                sum.least,
                sum.most,
                sum.seq,
                sum.seq_bytes,
                sum.seq_nanos,
            );
            put(line.bytes());
        }
    }
}

/// Where this process runs.
pub struct Process {
    pub host: [u8; 65],
    pub pid: u32,
}

impl Process {
    /// Returns the host's name without what JSON or a file's name could not hold.
    pub fn host(&self) -> &str {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
        let length = self.host.iter().position(|byte| !plain(byte)).unwrap_or(self.host.len());
        self.host.get(..length).and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("")
    }
}

/// Text of bounded length: what does not fit is left out.
pub struct Text<const MOST: usize> {
    bytes: [u8; MOST],
    length: usize,
}

impl<const MOST: usize> Text<MOST> {
    pub const fn new() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds bytes if all of them fit.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.bytes.get_mut(self.length..self.length.saturating_add(bytes.len())) else {
            return false;
        };
        place.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.length += bytes.len();
        true
    }
}

impl<const MOST: usize> Write for Text<MOST> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::precedence;

    /// Whatever the number of collectives of a step, each of them is the recorded one in some seconds.
    #[test]
    fn the_recorded_operation_is_of_no_regular_part_of_a_step() {
        for step in [2, 8, 10, 64] {
            let mut seen = [0; 64];
            for second in 0..2000_u64 {
                let chosen =
                    (second * 160..(second + 1) * 160).max_by_key(|seq| precedence(*seq)).unwrap_or(0);
                seen[usize::try_from(chosen % step).unwrap_or(0)] += 1;
            }
            let fair = 2000 / usize::try_from(step).unwrap_or(1);
            let seen = seen.iter().take(usize::try_from(step).unwrap_or(1));
            assert!(seen.clone().all(|count| (fair / 4..fair * 4).contains(count)), "{step}: {seen:?}");
        }
    }
}
