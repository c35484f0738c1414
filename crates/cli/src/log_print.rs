//! Log batches on their way to a terminal: merged, prefixed, sanitised, every mark said.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weftrun::core::log::{Entry, LogBatch, LogStore, LogStream, Pattern, StreamId, clean_text};
use weftrun::core::nccl::TransportMap;
use weftrun::core::report::{EventLine, LogLine, OwnEvent};
use weftrun::{Error, ErrorKind, Result};

use crate::output::{Output, style};

/// Bytes of log kept while printing: only lines that are not whole yet need to wait.
const BUDGET: usize = 8 << 20;
/// Bytes of log kept while ranks are looked for: lines wait until a later one proves whose they are.
const RANKS_BUDGET: usize = 64 << 20;
/// Most ranks that one message names.
const MOST_NAMED: usize = 8;

/// Prints merged logs, line by line.
#[derive(Debug)]
pub struct LogPrinter {
    store: LogStore,
    next: u64,
    /// What stands before the lines of each stream, and the rank it was made for: a stream's is proved as its lines come.
    prefixes: Vec<(Option<u32>, String)>,
    options: PrintOptions,
    ranks: Option<Ranks>,
    pattern: Option<Pattern>,
}

/// The ranks that are printed, and what proves which lines are theirs.
#[derive(Debug)]
struct Ranks {
    /// Ranges, both ends included.
    wanted: Vec<(u32, u32)>,
    map: TransportMap,
    /// The map that the streams' ranks were last taken from.
    known: u64,
    /// When, and how long to wait until the next time.
    last: Option<(Instant, Duration)>,
    /// Lines of streams whose rank is not known yet, by stream: printed once it is.
    waiting: BTreeMap<StreamId, Vec<u64>>,
}

impl Ranks {
    fn wants(&self, rank: u32) -> bool {
        self.wanted.iter().any(|(from, to)| (*from..=*to).contains(&rank))
    }

    /// Gives streams the ranks that the map proves. A large map is asked less often: a tenth of the time at most.
    fn learn(&mut self, store: &mut LogStore, at_once: bool) {
        let due = self.last.is_none_or(|(at, pause)| at.elapsed() >= pause);
        if self.map.generation() == self.known || !(due || at_once) {
            return;
        }
        let begun = Instant::now();
        let proved = self.map.snapshot().ranks().into_iter().filter_map(|rank| {
            Some(((rank.host.into(), u32::try_from(rank.pid?).unwrap_or(u32::MAX)), rank.rank?))
        });
        store.learn(&proved.collect());
        self.known = self.map.generation();
        self.last = Some((Instant::now(), begun.elapsed() * 10));
    }

    /// The lines of streams whose rank has become known, in the order they came.
    fn proved(&mut self, store: &LogStore) -> Vec<u64> {
        let streams = store.streams();
        let rank = |stream: StreamId| streams.get(stream as usize).and_then(|stream| stream.rank);
        let known: Vec<StreamId> =
            self.waiting.keys().copied().filter(|stream| rank(*stream).is_some()).collect();
        let mut lines = Vec::new();
        for stream in known {
            let waited = self.waiting.remove(&stream).unwrap_or_default();
            if rank(stream).is_some_and(|rank| self.wants(rank)) {
                lines.extend(waited);
            }
        }
        lines.sort_unstable();
        lines
    }

    /// The error if the output of a wanted rank was not found.
    fn missing(&self, store: &LogStore) -> Option<Error> {
        let mut found: Vec<u32> = store.streams().iter().filter_map(|stream| stream.rank).collect();
        found.sort_unstable();
        found.dedup();
        let mut gaps: Vec<(u32, u32)> = Vec::new();
        for (from, to) in &self.wanted {
            let mut next = Some(*from);
            for rank in found.iter().copied().filter(|rank| (*from..=*to).contains(rank)) {
                if let Some(start) = next.filter(|start| *start < rank) {
                    gaps.push((start, rank - 1));
                }
                next = rank.checked_add(1);
            }
            gaps.extend(next.filter(|start| start <= to).map(|start| (start, *to)));
        }
        if gaps.is_empty() {
            return None;
        }
        let message = format!("no output of rank {} was found", ranges(&gaps));
        let seen: Vec<(u32, u32)> = found.iter().map(|rank| (*rank, *rank)).collect();
        let error = Error::new(ErrorKind::NotFound, message);
        Some(if seen.is_empty() {
            error.with("ranks", "no line proves its rank").hint(
                "read all of it without --rank; with NCCL_DEBUG=INFO the ranks of NCCL's processes are known",
            )
        } else {
            error.with("ranks with output", ranges(&seen)).hint("read all of it without --rank")
        })
    }
}

/// Names ranks in short: `0-3, 7`.
fn ranges(all: &[(u32, u32)]) -> String {
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(*from) => last.1 = *to,
            _ => merged.push((*from, *to)),
        }
    }
    let word = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    let mut text = merged.iter().take(MOST_NAMED).map(word).collect::<Vec<_>>().join(", ");
    if merged.len() > MOST_NAMED {
        text.push_str(" …");
    }
    text
}

/// What is printed of each line, and where to.
#[derive(Clone, Debug, Default)]
pub struct PrintOptions {
    /// To stdout, as data; to stderr otherwise.
    pub to_stdout: bool,
    /// The line's time before it.
    pub timestamps: bool,
    /// No prefix.
    pub bare: bool,
}

impl LogPrinter {
    /// Makes a printer.
    pub fn new(options: PrintOptions) -> Self {
        Self {
            store: LogStore::new(BUDGET),
            next: 0,
            prefixes: Vec::new(),
            options,
            ranks: None,
            pattern: None,
        }
    }

    /// Prints only lines of these ranks that match this regular expression.
    pub fn only(mut self, ranks: &[(u32, u32)], grep: Option<&str>) -> Result<Self> {
        if !ranks.is_empty() {
            self.store = LogStore::new(RANKS_BUDGET);
            self.ranks = Some(Ranks {
                wanted: ranks.to_vec(),
                map: TransportMap::new(),
                known: 0,
                last: None,
                waiting: BTreeMap::new(),
            });
        }
        self.pattern = grep.map(Pattern::regex).transpose()?;
        Ok(self)
    }

    /// Prints the lines a batch completes.
    pub fn print(&mut self, out: &Output, batch: &LogBatch) -> Result<()> {
        self.store.ingest(batch);
        if let Some(ranks) = &mut self.ranks {
            batch.read_into(&mut ranks.map);
            ranks.learn(&mut self.store, false);
        }
        self.flush(out)
    }

    /// Prints what is left.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if a rank was asked for and none of its output was found.
    pub fn finish(&mut self, out: &Output) -> Result<()> {
        if let Some(ranks) = &mut self.ranks {
            ranks.learn(&mut self.store, true);
        }
        self.flush(out)?;
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let Some(missing) = ranks.missing(&self.store) else { return Ok(()) };
        // What is said of sources whose ranks are not known may be why: a log that is gone.
        let waiting = std::mem::take(&mut ranks.waiting);
        let mut text = String::new();
        let mut lines: Vec<u64> = waiting.into_values().flatten().collect();
        lines.sort_unstable();
        for seq in lines {
            if let Some(entry) = self.entry(seq).filter(|entry| entry.mark) {
                self.write(out, &entry, &mut text)?;
            }
        }
        self.give(out, &text)?;
        Err(missing)
    }

    fn flush(&mut self, out: &Output) -> Result<()> {
        let mut text = String::new();
        if let Some(ranks) = &mut self.ranks {
            let lines = ranks.proved(&self.store);
            for seq in lines {
                if let Some(entry) = self.entry(seq) {
                    self.write(out, &entry, &mut text)?;
                }
            }
        }
        let entries: Vec<Entry> = self.store.from(self.next).collect();
        for entry in entries {
            self.next = entry.seq + 1;
            if let Some(ranks) = &mut self.ranks {
                match self.store.streams().get(entry.stream as usize).and_then(|stream| stream.rank) {
                    Some(rank) if ranks.wants(rank) => {}
                    Some(_) => continue,
                    None => {
                        ranks.waiting.entry(entry.stream).or_default().push(entry.seq);
                        continue;
                    }
                }
            }
            self.write(out, &entry, &mut text)?;
        }
        self.give(out, &text)
    }

    /// A line by its number, if it is still held.
    fn entry(&self, seq: u64) -> Option<Entry> {
        let found = self.store.from(seq).next();
        found.filter(|entry| entry.seq == seq)
    }

    /// Writes a line as it is printed, if it matches.
    fn write(&mut self, out: &Output, entry: &Entry, text: &mut String) -> Result<()> {
        if self.pattern.as_ref().is_some_and(|pattern| !entry.mark && !pattern.matches(entry)) {
            return Ok(());
        }
        let styled = out.is_styled(self.options.to_stdout);
        let Some(stream) = self.store.streams().get(entry.stream as usize) else { return Ok(()) };
        let clean = entry.clean();
        if out.is_data() {
            let line = LogLine {
                source: &clean_text(&stream.source.name),
                attempt: stream.source.attempt,
                rank: stream.rank,
                time: entry.time,
                text: &clean.text,
            };
            let event = if entry.mark { OwnEvent::Mark(line) } else { OwnEvent::Log(line) };
            text.push_str(&out.item_text(&EventLine::from(event))?);
            return Ok(());
        }
        if !self.options.bare {
            let at = entry.stream as usize;
            if self.prefixes.len() <= at {
                self.prefixes.resize(at + 1, (None, String::new()));
            }
            let known = &mut self.prefixes[at];
            if known.1.is_empty() || known.0 != stream.rank {
                *known = (stream.rank, prefix(stream, styled));
            }
            text.push_str(&known.1);
        }
        if let Some(time) = entry.time.filter(|_| self.options.timestamps) {
            text.push_str(&format!("{time} "));
        }
        if entry.mark {
            let note = style::WARNING;
            text.push_str(&format!("{note}-- {} --{note:#}", clean.text));
        } else {
            text.push_str(&clean.text);
        }
        if clean.cut > 0 {
            text.push_str(&format!(" … {} more bytes", clean.cut));
        }
        text.push('\n');
        Ok(())
    }

    fn give(&self, out: &Output, text: &str) -> Result<()> {
        if text.is_empty() {
            Ok(())
        } else if out.is_data() {
            out.document(text)
        } else if self.options.to_stdout {
            out.text(text)
        } else {
            out.say(text.trim_end_matches('\n'));
            Ok(())
        }
    }
}

/// Who says it, before a line.
fn prefix(stream: &LogStream, styled: bool) -> String {
    let dim = if styled { style::DIM } else { anstyle::Style::new() };
    format!("{dim}{}|{dim:#} ", clean_text(&stream.label()))
}
