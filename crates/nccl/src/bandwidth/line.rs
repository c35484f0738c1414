//! One line of a recording: of NCCL Inspector (JSON v4.0 to v4.4), or of weftrun's own library.

use std::sync::Arc;

use super::Collective;
use super::fields::{Fields, id, thousandths, whole};

/// Longer times are none: an operation that never ended, or that ended after its communicator, has any.
const LONGEST_NANOS: u64 = 3_600 * 1_000_000_000;
/// Bytes kept of a host's name.
const NAME: usize = 256;

/// Who measured: a rank of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub comm: u64,
    pub rank: u32,
    pub ranks: u32,
    pub nodes: u32,
    pub host: Arc<str>,
    pub pid: u64,
}

/// Operations of one kind: a single one, or those of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub count: u64,
    pub bytes: u64,
    pub nanos: u64,
}

impl Measured {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Returns the nanoseconds of one operation.
    pub fn mean(&self) -> f64 {
        self.nanos as f64 / self.count.max(1) as f64
    }
}

/// A line that is a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub collective: Collective,
    /// A single operation and its number in its communicator.
    pub single: (u64, Measured),
    /// A sum, and when it was written.
    pub sum: Option<(u64, Measured)>,
    /// Milliseconds since 1970; 0 if unknown.
    pub at: u64,
    pub by_cpu: bool,
    /// Operations of the process that were not measured so far.
    pub dropped: u64,
}

/// What a line is.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    Record(Record),
    /// Operations that were not recorded so far: collectives, and point-to-point ones.
    Dropped([u64; 2]),
    /// A measurement that cannot be used: no rank, no time or one that cannot be.
    Unusable,
    /// Something else.
    Other,
}

/// What the lines before tell of the next: from v4.3 on a rank is named once, with the number of records that follow.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub origin: Origin,
    at: u64,
    following: u64,
    /// The header of the line before, which is that of nearly all lines of a file.
    header: Vec<u8>,
}

/// Reads a line. Of a measurement, `context.origin` is then who measured.
pub fn read(context: &mut Context, line: &[u8]) -> Line {
    let Some(start) = memchr::memchr(b'{', line) else { return Line::Other };
    // A line of a rank's log may have a prefix.
    let line = &line[start..];
    if !is_measurement(line) {
        return Line::Other;
    }
    let mut draft = Draft::default();
    let same = !context.header.is_empty() && line.starts_with(&context.header);
    let line = if same { &line[context.header.len()..] } else { line };
    draft.has_origin = same;
    let mut fields = Fields::of(line);
    while let Some((key, value)) = fields.next() {
        match key {
            // The times of each channel, which is nearly all of a verbose line.
            b"event_trace_sn" | b"event_trace_ts" => break,
            // Keys of others, which may have any name.
            b"extra_tags" => fields.skip_value(),
            b"metadata" if value.is_none() && !same => {
                context.header.extend_from_slice(&line[..fields.opened()]);
            }
            _ => draft.take(context, key, value),
        }
    }
    draft.line(context)
}

/// Returns whether a line is of a recording, by its first key.
fn is_measurement(line: &[u8]) -> bool {
    const FIRST: [&[u8]; 8] = [
        b"header",
        b"weftrun_nccl",
        b"c",
        b"coll_perf",
        b"p2p_perf",
        b"proxy_trace",
        b"metadata",
        b"dump_stats",
    ];
    Fields::of(line).next().is_some_and(|(key, _)| FIRST.contains(&key))
}

#[derive(Default)]
struct Draft<'a> {
    has_origin: bool,
    is_sum: bool,
    stats: bool,
    following: u64,
    dropped: [u64; 2],
    collective: Option<&'a [u8]>,
    seq: u64,
    single: Measured,
    sum: Measured,
    by_cpu: bool,
    element: u64,
    at: u64,
}

impl<'a> Draft<'a> {
    fn take(&mut self, context: &mut Context, key: &[u8], value: Option<&'a [u8]>) {
        let Some(value) = value else {
            self.stats |= key == b"dump_stats";
            return;
        };
        let number = || whole(value).unwrap_or(0);
        let small = || u32::try_from(number()).unwrap_or(u32::MAX);
        let origin = &mut context.origin;
        match key {
            b"id" | b"comm" | b"c" => {
                self.has_origin = true;
                context.header.clear();
                origin.comm = id(value);
            }
            // Records without a header have keys of the same names.
            b"rank" | b"n_ranks" | b"n" | b"nnodes" | b"nodes" | b"hostname" | b"host" | b"pid"
                if !self.has_origin && !self.is_sum => {}
            b"rank" => origin.rank = small(),
            b"n_ranks" | b"n" => origin.ranks = small(),
            b"nnodes" | b"nodes" => origin.nodes = small(),
            b"hostname" | b"host" if value != origin.host.as_bytes() => {
                origin.host = String::from_utf8_lossy(&value[..value.len().min(NAME)]).into();
            }
            b"pid" => origin.pid = number(),
            b"dump_timestamp_us" => self.at = number() / 1_000,
            b"coll" | b"p2p" | b"op" | b"f" => self.collective = Some(value),
            b"coll_sn" | b"p2p_sn" | b"seq" => self.seq = number(),
            b"coll_msg_size_bytes" | b"p2p_msg_size_bytes" | b"seq_bytes" => self.single.bytes = number(),
            b"coll_exec_time_us" | b"p2p_exec_time_us" | b"us" => {
                self.single.nanos = thousandths(value).unwrap_or(0);
            }
            b"coll_timing_source" | b"p2p_timing_source" => self.by_cpu = value != b"kernel_gpu",
            // weftrun's library.
            b"weftrun_nccl" => self.is_sum = true,
            b"t" => self.at = number(),
            b"count" => self.sum.count = number(),
            b"bytes" => self.sum.bytes = number(),
            b"ns" => self.sum.nanos = number(),
            b"seq_ns" => self.single.nanos = number(),
            // The experiment that preceded it: elements instead of bytes.
            b"dt" => {
                self.element = [("64", 8), ("32", 4), ("16", 2)]
                    .iter()
                    .find(|(end, _)| value.ends_with(end.as_bytes()))
                    .map_or(1, |(_, size)| *size);
            }
            b"cpu" => self.at = number() / 1_000_000,
            b"coll_dropped_total" | b"dropped_total" | b"dropped" => self.dropped[0] = number(),
            b"p2p_dropped_total" => self.dropped[1] = number(),
            b"coll_records" | b"p2p_records" | b"proxy_records" => {
                self.following = self.following.saturating_add(number());
            }
            _ => {}
        }
    }

    fn line(mut self, context: &mut Context) -> Line {
        if self.stats {
            (context.following, context.at) = (self.following, self.at);
            return Line::Dropped(self.dropped);
        }
        if self.has_origin {
            context.following = 0;
        } else {
            // Without a header of its own, or one that counts it, nobody knows whose it is.
            let Some(left) = context.following.checked_sub(1) else { return Line::Unusable };
            context.following = left;
            self.at = context.at;
        }
        let Some(name) = self.collective else { return Line::Other };
        if self.element > 0 {
            self.single.bytes = self.sum.count.saturating_mul(self.element);
        }
        self.single.count = 1;
        let origin = &context.origin;
        let usable = |measured: &Measured| {
            measured.nanos > 0
                && measured.nanos / measured.count.max(1) <= LONGEST_NANOS
                && measured.count > 0
        };
        if !usable(&self.single) || origin.rank >= origin.ranks || self.is_sum && !usable(&self.sum) {
            return Line::Unusable;
        }
        Line::Record(Record {
            collective: Collective::named(name),
            single: (self.seq, self.single),
            sum: self.is_sum.then_some((self.at, self.sum)),
            at: self.at,
            by_cpu: self.by_cpu,
            dropped: self.dropped[0],
        })
    }
}
