//! How fast each collective is, and which rank reaches it last, from the files of a profiler of NCCL: NCCL Inspector's (JSON v4.0
//! to v4.4, Prometheus text) and those of weftrun's own library.
//!
//! ```
//! use weftrun_nccl::bandwidth::{Bandwidth, Source};
//!
//! let line = br#"{"header":{"id":"0x2a","rank":0,"n_ranks":2,"nnodes":1},"metadata":{"hostname":"vm","pid":7},
//!     "coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":67108864,"coll_exec_time_us":290}}"#;
//! let (mut bandwidth, mut source) = (Bandwidth::default(), Source::default());
//! bandwidth.read(&mut source, &line.map(|byte| if byte == b'\n' { b' ' } else { byte }));
//! bandwidth.end(&mut source);
//! let speeds = bandwidth.speeds();
//! assert_eq!(speeds.communicators[0].collectives[0].sizes[0].busbw_gbps.map(f64::round), Some(231.0));
//! ```
//!
//! An operation's time contains the waiting for the rank that comes last, so that this rank has the *shortest* time of all.

mod fields;
mod late;
mod line;
mod prometheus;
mod speeds;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use memchr::memchr;

use crate::lines::OpenLine;
use line::{Context, Line, Measured, Origin, Record};
pub(crate) use speeds::short_host;
pub use speeds::{
    Arrival, CollectiveSpeed, CommunicatorSpeed, Order, RankWait, Rate, Recent, SizeSpeed, Speeds,
};

/// Longest line that is read: one of Inspector with the times of 64 channels has 16 kB.
const LINE: usize = 1 << 20;
/// Most entries kept for comparing ranks: with more, a part of the operations is kept, the same of all ranks.
const ENTRIES: usize = 1 << 21;
/// Last times of which a rank's sums are kept by themselves, to judge what happens now: some more than are judged, since the lines of
/// some ranks come later than those of others.
const RECENT: usize = 20;
/// Most ranks of communicators by collectives: what is beyond is counted and left out.
const SERIES: usize = 1 << 20;

word_enum! {
    /// A collective or point-to-point operation of NCCL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[non_exhaustive]
    pub enum Collective: ALL {
        /// `ncclAllReduce`.
        AllReduce = "AllReduce",
        /// `ncclAllGather`.
        AllGather = "AllGather",
        /// `ncclReduceScatter`.
        ReduceScatter = "ReduceScatter",
        /// `ncclBroadcast`.
        Broadcast = "Broadcast",
        /// `ncclReduce`.
        Reduce = "Reduce",
        /// Every rank to every rank.
        AllToAll = "AllToAll",
        /// To one rank.
        Send = "Send",
        /// From one rank.
        Recv = "Recv",
        /// Both.
        SendRecv = "SendRecv",
        /// One that this reader does not know.
        Other = "Other",
    }
}

/// Returns whether a line of a rank's log is a measurement of weftrun's library, after whatever a launcher writes before it.
pub fn is_measurement(line: &[u8]) -> bool {
    memchr(b'{', line).is_some_and(|at| {
        line[..at].ends_with(b"weftrun: NCCL ") && line[at..].starts_with(b"{\"weftrun_nccl\":")
    })
}

impl Collective {
    fn named(name: &[u8]) -> Self {
        match name {
            b"AllGatherV" => Self::AllGather,
            b"All2All" | b"AlltoAll" => Self::AllToAll,
            _ => {
                let known = Self::ALL.into_iter().find(|known| known.as_str().as_bytes() == name);
                known.unwrap_or(Self::Other)
            }
        }
    }

    /// Returns whether every rank waits for every other one, so that the times tell who comes last. With a root, or a peer,
    /// only some wait for some.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter)
    }

    /// Returns the bytes that the bus carries for each byte of the message, by the rules of nccl-tests. For an all-gather and a
    /// reduce-scatter the message is the part of one rank.
    fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather | Self::ReduceScatter => ranks - 1.0,
            Self::AllToAll => (ranks - 1.0) / ranks,
            _ => 1.0,
        }
    }
}

/// An operation of a rank, or a rank's operations of a second, by which ranks are compared.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    measured: Measured,
}

/// All operations of about one size.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// The power of two below it.
    power: u32,
    count: u64,
    nanos: u64,
    least: u64,
    most: u64,
}

/// A rank's operations of one kind in one communicator.
#[derive(Clone, Debug)]
struct Series {
    origin: Origin,
    collective: Collective,
    /// First and last time, in milliseconds since 1970.
    span: Option<(u64, u64)>,
    sizes: Vec<Size>,
    singles: Vec<Entry>,
    sums: Vec<Entry>,
    recent: VecDeque<Entry>,
}

/// Measurements of a job's collectives.
#[derive(Clone, Debug, Default)]
pub struct Bandwidth {
    series: Vec<Series>,
    index: HashMap<(u64, Collective, u32), usize>,
    rates: prometheus::Rates,
    dropped: HashMap<(Arc<str>, u64), [u64; 2]>,
    entries: usize,
    /// Entries are kept whose key's hash ends in so many zeros.
    thinned: u32,
    records: u64,
    by_cpu: u64,
    unusable: u64,
    left_out: u64,
}

/// A file or a log that is being read.
#[derive(Clone, Debug, Default)]
pub struct Source {
    open: OpenLine<LINE>,
    context: Context,
    /// Where the last record went.
    last: Option<usize>,
}

impl Bandwidth {
    /// Reads the next bytes of a source.
    pub fn read(&mut self, source: &mut Source, bytes: &[u8]) {
        let mut open = std::mem::take(&mut source.open);
        open.each(bytes, |line| self.line(source, line));
        source.open = open;
    }

    /// Ends a source: a last line without its end is one.
    pub fn end(&mut self, source: &mut Source) {
        if let Some(line) = source.open.end() {
            self.line(source, &line);
        }
    }

    /// Returns whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.records == 0 && self.rates.is_empty()
    }

    /// Returns the communicators that have records.
    pub fn communicators(&self) -> impl Iterator<Item = u64> {
        let all: BTreeSet<u64> = self.series.iter().map(|series| series.origin.comm).collect();
        all.into_iter()
    }

    pub(crate) fn line(&mut self, source: &mut Source, line: &[u8]) {
        match line::read(&mut source.context, line) {
            Line::Record(record) => self.record(source, &record),
            Line::Dropped(dropped) => self.note_dropped(&source.context.origin, dropped),
            Line::Unusable => self.unusable += 1,
            Line::Other => _ = self.rates.read(line),
        }
    }

    fn record(&mut self, source: &mut Source, record: &Record) {
        self.records = self.records.saturating_add(record.sum.map_or(1, |(_, sum)| sum.count));
        self.by_cpu += u64::from(record.by_cpu);
        if record.dropped > 0 {
            self.note_dropped(&source.context.origin, [record.dropped, 0]);
        }
        let Some(at) = self.series_of(source, record.collective) else {
            self.left_out += 1;
            return;
        };
        let thinned = self.thinned;
        let Some(series) = self.series.get_mut(at) else { return };
        if record.at > 0 {
            let (first, last) = series.span.unwrap_or((record.at, record.at));
            series.span = Some((first.min(record.at), last.max(record.at)));
        }
        series.count(record.single, record.sum.map(|(_, sum)| sum));
        if let Some((key, measured)) = record.sum {
            series.note_recent(key, measured);
        }
        for (entries, (key, measured)) in
            [(&mut series.singles, Some(record.single)), (&mut series.sums, record.sum)]
                .into_iter()
                .filter_map(|(entries, entry)| Some((entries, entry?)))
        {
            if is_kept(key, thinned) {
                entries.push(Entry { key, measured });
                self.entries += 1;
            }
        }
        if self.entries > ENTRIES {
            self.thin();
        }
    }

    /// Returns the place of a rank's operations of one kind. Most records are of the same as the one before.
    fn series_of(&mut self, source: &mut Source, collective: Collective) -> Option<usize> {
        let origin = &source.context.origin;
        let is_same = |series: &Series| {
            (series.origin.comm, series.origin.rank, series.collective)
                == (origin.comm, origin.rank, collective)
        };
        if source.last.and_then(|at| self.series.get(at)).is_some_and(is_same) {
            return source.last;
        }
        let key = (origin.comm, collective, origin.rank);
        let found = self.index.get(&key).copied();
        let at = found.or_else(|| {
            if self.series.len() >= SERIES {
                return None;
            }
            let origin = origin.clone();
            self.series.push(Series {
                origin,
                collective,
                span: None,
                sizes: Vec::new(),
                singles: Vec::new(),
                sums: Vec::new(),
                recent: VecDeque::new(),
            });
            self.index.insert(key, self.series.len() - 1);
            Some(self.series.len() - 1)
        });
        source.last = at;
        at
    }

    fn note_dropped(&mut self, origin: &Origin, dropped: [u64; 2]) {
        if self.dropped.len() >= SERIES {
            return;
        }
        let noted = self.dropped.entry((origin.host.clone(), origin.pid)).or_default();
        *noted = [noted[0].max(dropped[0]), noted[1].max(dropped[1])];
    }

    /// Keeps half of the entries: the same of every rank, and no regular part of a step.
    fn thin(&mut self) {
        self.thinned += 1;
        let thinned = self.thinned;
        self.entries = 0;
        for series in &mut self.series {
            for entries in [&mut series.singles, &mut series.sums] {
                entries.retain(|entry| is_kept(entry.key, thinned));
                self.entries += entries.len();
            }
        }
    }
}

fn is_kept(key: u64, thinned: u32) -> bool {
    thinned == 0 || (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).trailing_zeros() >= thinned
}

impl Series {
    fn count(&mut self, (_, single): (u64, Measured), sum: Option<Measured>) {
        let power = single.bytes.max(1).ilog2();
        let of = sum.unwrap_or(single);
        let known = self.sizes.iter_mut().find(|size| size.power == power);
        let size = match known {
            Some(size) => size,
            None => {
                self.sizes.push(Size { power, count: 0, nanos: 0, least: u64::MAX, most: 0 });
                let Some(size) = self.sizes.last_mut() else { return };
                size
            }
        };
        size.count = size.count.saturating_add(of.count);
        size.nanos = size.nanos.saturating_add(of.nanos);
        (size.least, size.most) = (size.least.min(single.bytes), size.most.max(single.bytes));
    }

    /// Keeps a sum if it is one of the last. Files of a process need not be read in the order of their times.
    fn note_recent(&mut self, key: u64, measured: Measured) {
        let at = self.recent.partition_point(|entry| entry.key < key);
        let is_full = self.recent.len() == RECENT;
        if let Some(known) = self.recent.get_mut(at).filter(|known| known.key == key) {
            known.measured.add(measured);
        } else if !is_full {
            self.recent.insert(at, Entry { key, measured });
        } else if at > 0 {
            self.recent.pop_front();
            self.recent.insert(at - 1, Entry { key, measured });
        }
    }

    /// Returns the nanoseconds of all its operations.
    fn nanos(&self) -> u64 {
        self.sizes.iter().map(|size| size.nanos).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a job of very many ranks a part of the operations is kept: the waiting is still that of all of them.
    #[test]
    fn the_waiting_is_of_all_operations_where_a_part_is_kept() {
        let (mut bandwidth, mut source) = (Bandwidth::default(), Source::default());
        for second in 0..400_u64 {
            for rank in 0..8 {
                let nanos = if rank == 5 { 1_000_000 } else { 41_000_000 };
                let line = format!(
                    "{{\"weftrun_nccl\":1,\"t\":{},\"host\":\"h\",\"pid\":{rank},\"comm\":\"0x1\",\"rank\":{rank},\"n\":8,\"nodes\":1,\
                     \"op\":\"AllReduce\",\"count\":10,\"bytes\":1000,\"ns\":{},\"seq\":{second},\"seq_bytes\":100,\"seq_ns\":{nanos}}}\n",
                    second * 1000,
                    nanos * 10,
                );
                bandwidth.read(&mut source, line.as_bytes());
            }
        }
        let judged = |bandwidth: &Bandwidth| {
            let speeds = bandwidth.speeds();
            let arrival = &speeds.communicators[0].collectives[0].arrival;
            (arrival.late.first().map(|rank| rank.rank), arrival.waited_share.unwrap(), arrival.compared)
        };
        let (late, share, all) = judged(&bandwidth);
        assert_eq!((late, all), (Some(5), 400));
        assert!((share - 0.4).abs() < 0.01, "{share}");
        bandwidth.thin();
        bandwidth.thin();
        let (late, share, some) = judged(&bandwidth);
        assert!(late == Some(5) && some < all / 2 && (share - 0.4).abs() < 0.02, "{share} by {some}");
    }
}
