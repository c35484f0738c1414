//! Prints log batches to a terminal: merged, prefixed, sanitized, with every mark.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weftrun::core::log::{Entry, LogBatch, LogStore, LogStream, Pattern, StreamId, clean_text, cut_text};
use weftrun::core::nccl::TransportMap;
use weftrun::core::report::{EventLine, LogLine, OwnEvent};
use weftrun::{Error, ErrorKind, Result};

use crate::output::{Output, style};

/// Bytes of log kept while printing: only incomplete lines must wait.
const BUDGET: usize = 8 << 20;
/// Bytes of log kept while ranks are unknown: lines wait until a later one proves their rank.
const RANKS_BUDGET: usize = 64 << 20;
/// Largest number of ranks named in one message.
const MOST_NAMED: usize = 8;

/// Prints merged logs, line by line.
#[derive(Debug)]
pub struct LogPrinter {
    store: LogStore,
    next: u64,
    /// The prefix of each stream's lines, and the rank it was made for: a stream's rank is proved while its
    /// lines arrive.
    prefixes: Vec<(Option<u32>, String)>,
    options: PrintOptions,
    ranks: Option<Ranks>,
    pattern: Option<Pattern>,
}

/// The requested ranks, and the state of assigning lines to them.
#[derive(Debug, Default)]
struct Ranks {
    /// Ranges, inclusive.
    wanted: Vec<(u32, u32)>,
    map: TransportMap,
    /// The version of the map from which the streams' ranks were last read.
    known: u64,
    /// The last such time, and how long to wait until the next.
    last: Option<(Instant, Duration)>,
    /// Lines of streams with an unknown rank, by stream: printed once it is known.
    waiting: BTreeMap<StreamId, Vec<u64>>,
}

impl Ranks {
    fn wants(&self, rank: u32) -> bool {
        self.wanted.iter().any(|(from, to)| (*from..=*to).contains(&rank))
    }

    /// Assigns to streams the ranks that the map proves. A large map is read less often: at most a tenth of
    /// the time.
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

    /// Returns the lines of streams whose rank has become known, in order of arrival.
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

    /// Returns the error if the output of a requested rank was not found.
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
        let message = format!("no output of rank {} was found", ranges(&gaps, MOST_NAMED));
        let seen: Vec<(u32, u32)> = found.iter().map(|rank| (*rank, *rank)).collect();
        let error = Error::new(ErrorKind::NotFound, message);
        Some(if seen.is_empty() {
            error.with("ranks", "no line proves its rank").hint(
                "read all of it without --rank; with NCCL_DEBUG=INFO the ranks of NCCL's processes are known",
            )
        } else {
            error.with("ranks with output", ranges(&seen, MOST_NAMED)).hint("read all of it without --rank")
        })
    }
}

/// Formats ranks as ranges, at most so many: `0-3, 7`.
pub fn ranges(all: &[(u32, u32)], most: usize) -> String {
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(*from) => last.1 = *to,
            _ => merged.push((*from, *to)),
        }
    }
    let word = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    let mut text = merged.iter().take(most).map(word).collect::<Vec<_>>().join(", ");
    if merged.len() > most {
        text.push_str(" …");
    }
    text
}

/// What is printed of each line, and where.
#[derive(Clone, Debug, Default)]
pub struct PrintOptions {
    /// Prints to stdout, as data; to stderr otherwise.
    pub to_stdout: bool,
    /// Prints the line's time before it.
    pub timestamps: bool,
    /// Prints no prefix.
    pub bare: bool,
}

impl LogPrinter {
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
            self.ranks = Some(Ranks { wanted: ranks.to_vec(), ..Ranks::default() });
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

    /// Prints the remaining lines.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if none of the output of a requested rank was found.
    pub fn finish(&mut self, out: &Output) -> Result<()> {
        if let Some(ranks) = &mut self.ranks {
            ranks.learn(&mut self.store, true);
        }
        self.flush(out)?;
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let Some(missing) = ranks.missing(&self.store) else { return Ok(()) };
        // Marks of sources with unknown ranks may be the reason: a lost log.
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

    /// Returns a line by its number, if it is still stored.
    fn entry(&self, seq: u64) -> Option<Entry> {
        let found = self.store.from(seq).next();
        found.filter(|entry| entry.seq == seq)
    }

    /// Formats a line for printing, if it matches.
    fn write(&mut self, out: &Output, entry: &Entry, text: &mut String) -> Result<()> {
        if self.pattern.as_ref().is_some_and(|pattern| !entry.mark && !pattern.matches(entry)) {
            return Ok(());
        }
        let styled = out.is_styled(self.options.to_stdout);
        let Some(stream) = self.store.streams().get(entry.stream as usize) else { return Ok(()) };
        let clean = entry.clean();
        if out.is_data() {
            let name = clean_text(&stream.source.name);
            let line = LogLine::new(&name, stream.source.attempt, stream.rank, entry.time, &clean.text);
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
        text.push_str(&cut_text(clean.cut));
        text.push('\n');
        Ok(())
    }

    fn give(&self, out: &Output, text: &str) -> Result<()> {
        if text.is_empty() {
            Ok(())
        } else if out.is_data() {
            out.document(text)
        } else if self.options.to_stdout {
            out.log_text(text)
        } else {
            if !out.is_quiet() {
                out.log_stderr(text.trim_end_matches('\n'));
            }
            Ok(())
        }
    }
}

/// Returns the prefix that names the source of a line.
fn prefix(stream: &LogStream, styled: bool) -> String {
    let dim = if styled { style::DIM } else { anstyle::Style::new() };
    format!("{dim}{}|{dim:#} ", clean_text(&stream.label()))
}
