//! Prints log batches to a terminal: merged, prefixed, sanitized, with every mark.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use weftrun::core::log::{Entry, LogBatch, LogStore, LogStream, Pattern, StreamId, clean_text, cut_text};
use weftrun::core::nccl::TransportMap;
use weftrun::core::text::counted;
use weftrun::report::{EventLine, LogLine, OwnEvent};
use weftrun::{Error, ErrorKind, Result};
use weftrun_tui::TempFile;

use crate::output::{Output, style};

/// Bytes in memory of lines that wait until a later one proves their rank. The rest of them waits in a temporary file.
const HELD: usize = 64 << 20;
/// Largest number of ranks named in one message.
const MOST_NAMED: usize = 8;

/// Prints merged logs, line by line.
#[derive(Debug)]
pub struct LogPrinter {
    /// Splits batches into lines. Each line is printed while its batch is added, so that none has to be stored.
    store: LogStore,
    lines: Lines,
}

/// The printed form of lines.
#[derive(Debug)]
struct Lines {
    next: u64,
    /// The prefix of each stream's lines, and the rank it was made for: a stream's rank is proved while its
    /// lines arrive.
    prefixes: Vec<(Option<u32>, String)>,
    options: PrintOptions,
    ranks: Option<Ranks>,
    pattern: Option<Pattern>,
}

/// The requested ranks, and the state of assigning lines to them.
#[derive(Debug)]
struct Ranks {
    /// Ranges, inclusive.
    wanted: Vec<(u32, u32)>,
    map: TransportMap,
    /// The version of the map from which the streams' ranks were last read.
    known: u64,
    /// The last such time, and how long to wait until the next.
    last: Option<(Instant, Duration)>,
    /// Copies of the lines of streams with an unknown rank, and their numbers by stream: printed once it is known.
    held: LogStore,
    waiting: BTreeMap<StreamId, Vec<u64>>,
}

impl Ranks {
    fn new(wanted: &[(u32, u32)], held: usize) -> Self {
        Self {
            wanted: wanted.to_vec(),
            map: TransportMap::new(),
            known: 0,
            last: None,
            held: LogStore::new(held).with_attic(Box::new(TempFile::default())),
            waiting: BTreeMap::new(),
        }
    }

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

    /// Returns the held lines of streams whose rank has become known, in order of arrival.
    fn proved(&mut self, store: &LogStore) -> Vec<(u64, StreamId)> {
        let streams = store.streams();
        let rank = |stream: StreamId| streams.get(stream as usize).and_then(|stream| stream.rank);
        let known: Vec<StreamId> =
            self.waiting.keys().copied().filter(|stream| rank(*stream).is_some()).collect();
        let mut lines = Vec::new();
        for stream in known {
            let waited = self.waiting.remove(&stream).unwrap_or_default();
            if rank(stream).is_some_and(|rank| self.wants(rank)) {
                lines.extend(waited.into_iter().map(|number| (number, stream)));
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
    /// Prints the lines of weftrun's NCCL library too.
    pub measurements: bool,
}

impl LogPrinter {
    pub fn new(options: PrintOptions) -> Self {
        Self::with_budget(options, 0)
    }

    /// Creates a printer whose store keeps so many bytes of printed lines.
    fn with_budget(options: PrintOptions, budget: usize) -> Self {
        let lines = Lines { next: 0, prefixes: Vec::new(), options, ranks: None, pattern: None };
        Self { store: LogStore::new(budget).with_measurements(lines.options.measurements), lines }
    }

    /// Prints only lines of these ranks that match this regular expression.
    pub fn only(mut self, ranks: &[(u32, u32)], grep: Option<&str>) -> Result<Self> {
        self.lines.ranks = (!ranks.is_empty()).then(|| Ranks::new(ranks, HELD));
        self.lines.pattern = grep.map(Pattern::regex).transpose()?;
        Ok(self)
    }

    /// Prints the lines a batch completes.
    pub fn print(&mut self, out: &Output, batch: &LogBatch) -> Result<()> {
        let text = self.text(out, batch)?;
        self.lines.give(out, &text)
    }

    /// Returns the lines that a batch completes, as they are printed.
    fn text(&mut self, out: &Output, batch: &LogBatch) -> Result<String> {
        let lines = &mut self.lines;
        self.store.ingest_seen(batch, |store| {
            if let Some(ranks) = &mut lines.ranks {
                batch.read_into(&mut ranks.map);
                ranks.learn(store, false);
            }
            lines.new_lines(out, store)
        })
    }

    /// Prints the remaining lines.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if none of the output of a requested rank was found.
    pub fn finish(&mut self, out: &Output) -> Result<()> {
        let text = self.rest(out)?;
        self.lines.give(out, &text)?;
        let missing = self.lines.ranks.as_ref().and_then(|ranks| ranks.missing(&self.store));
        missing.map_or(Ok(()), Err)
    }

    /// Returns the lines whose rank is known by now. Where the output of a rank is missing, it returns the marks of all other
    /// lines too: a lost log may be the reason.
    fn rest(&mut self, out: &Output) -> Result<String> {
        let (lines, store) = (&mut self.lines, &mut self.store);
        if let Some(ranks) = &mut lines.ranks {
            ranks.learn(store, true);
        }
        let mut text = lines.new_lines(out, store)?;
        if let Some(ranks) = &mut lines.ranks
            && ranks.missing(store).is_some()
        {
            let waiting = std::mem::take(&mut ranks.waiting).into_iter();
            let mut all: Vec<(u64, StreamId)> = waiting
                .flat_map(|(stream, numbers)| numbers.into_iter().map(move |number| (number, stream)))
                .collect();
            all.sort_unstable();
            lines.held(out, store, &all, true, &mut text)?;
        }
        Ok(text)
    }
}

impl Lines {
    /// Returns the lines that are new in a store, after those whose rank has become known.
    fn new_lines(&mut self, out: &Output, store: &LogStore) -> Result<String> {
        let mut text = String::new();
        if let Some(ranks) = &mut self.ranks {
            let proved = ranks.proved(store);
            self.held(out, store, &proved, false, &mut text)?;
        }
        for entry in store.from(self.next) {
            self.next = entry.seq + 1;
            if self.pattern.as_ref().is_some_and(|pattern| !entry.mark && !pattern.matches(&entry)) {
                continue;
            }
            let Some(stream) = store.streams().get(entry.stream as usize) else { continue };
            match (&mut self.ranks, stream.rank) {
                (Some(ranks), Some(rank)) if !ranks.wants(rank) => {}
                (Some(ranks), None) => {
                    let number = ranks.held.keep_copy(&entry);
                    ranks.waiting.entry(entry.stream).or_default().push(number);
                }
                _ => self.write(out, stream, &entry, &mut text)?,
            }
        }
        Ok(text)
    }

    /// Adds held lines, or only the marks among them. Lines for which the temporary file had no space are counted in a mark.
    fn held(
        &mut self,
        out: &Output,
        store: &LogStore,
        numbers: &[(u64, StreamId)],
        only_marks: bool,
        text: &mut String,
    ) -> Result<()> {
        let mut lost: BTreeMap<StreamId, usize> = BTreeMap::new();
        for (number, id) in numbers {
            let Some(stream) = store.streams().get(*id as usize) else { continue };
            match self.ranks.as_ref().and_then(|ranks| ranks.held.get(*number)) {
                Some(entry) if entry.mark || !only_marks => self.write(out, stream, &entry, text)?,
                Some(_) => {}
                None => *lost.entry(*id).or_default() += 1,
            }
        }
        for (id, lines) in lost {
            let Some(stream) = store.streams().get(id as usize) else { continue };
            let lines = counted(lines, "line");
            let message =
                format!("{lines} from before the rank was known are missing: the temporary file is full");
            self.add(out, (id, stream), (None, true, &message), text)?;
        }
        Ok(())
    }

    /// Formats a line for printing.
    fn write(&mut self, out: &Output, stream: &LogStream, entry: &Entry, text: &mut String) -> Result<()> {
        let clean = entry.clean();
        let line =
            if clean.cut > 0 && !out.is_data() { clean.text + &cut_text(clean.cut) } else { clean.text };
        self.add(out, (entry.stream, stream), (entry.time, entry.mark, &line), text)
    }

    fn add(
        &mut self,
        out: &Output,
        (id, stream): (StreamId, &LogStream),
        (time, mark, line): (Option<Timestamp>, bool, &str),
        text: &mut String,
    ) -> Result<()> {
        if out.is_data() {
            let name = clean_text(&stream.source.name);
            let line = LogLine::new(&name, stream.source.attempt, stream.rank, time, line);
            let event = if mark { OwnEvent::Mark(line) } else { OwnEvent::Log(line) };
            text.push_str(&out.item_text(&EventLine::from(event))?);
            return Ok(());
        }
        if !self.options.bare {
            let at = id as usize;
            if self.prefixes.len() <= at {
                self.prefixes.resize(at + 1, (None, String::new()));
            }
            let known = &mut self.prefixes[at];
            if known.1.is_empty() || known.0 != stream.rank {
                *known = (stream.rank, prefix(stream, out.is_styled(self.options.to_stdout)));
            }
            text.push_str(&known.1);
        }
        if let Some(time) = time.filter(|_| self.options.timestamps) {
            text.push_str(&format!("{time} "));
        }
        if mark {
            let note = style::WARNING;
            text.push_str(&format!("{note}-- {line} --{note:#}"));
        } else {
            text.push_str(line);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weftrun::core::log::{Cursor, SourceId};

    use super::*;

    fn printer(budget: usize) -> LogPrinter {
        LogPrinter::with_budget(PrintOptions { to_stdout: true, ..PrintOptions::default() }, budget)
    }

    fn batch(source: &Arc<SourceId>, bytes: &[u8]) -> LogBatch {
        LogBatch::new(source.clone(), bytes.to_vec(), Cursor::default())
    }

    /// Batches of several sources: how many lines each has, and how long they are.
    fn batches() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
        let lines = prop_oneof![4 => 0usize..50, 1 => 0usize..40_000];
        prop::collection::vec((0usize..3, lines, prop_oneof![0usize..8, 0usize..300]), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn every_line_is_printed_whatever_the_batches_and_the_budget(
            batches in batches(),
            budget in prop_oneof![Just(0usize), 0usize..1 << 20, 0usize..16 << 20],
            held in prop_oneof![Just(0usize), 0usize..1 << 20],
        ) {
            let out = Output::plain();
            let source = |rank: usize| {
                let mut source = SourceId::new(format!("rank{rank}"));
                source.rank = u32::try_from(rank).ok();
                Arc::new(source)
            };
            let sources = [source(0), source(1), Arc::new(SourceId::new("batch"))];
            let mut all = printer(budget);
            let mut one = printer(budget);
            one.lines.ranks = Some(Ranks::new(&[(1, 1)], held));
            let mut grep = printer(budget).only(&[], Some("7 x")).unwrap();
            let (mut printed, mut of_one, mut matched) = (String::new(), String::new(), String::new());
            let (mut wanted, mut number) = (Vec::new(), 0);
            for (at, lines, length) in &batches {
                let mut bytes = Vec::new();
                for _ in 0..*lines {
                    let line = format!("{number} {}", "x".repeat(*length));
                    bytes.extend_from_slice(format!("{line}\n").as_bytes());
                    wanted.push((*at, line));
                    number += 1;
                }
                let batch = batch(&sources[*at], &bytes);
                printed.push_str(&all.text(&out, &batch).unwrap());
                of_one.push_str(&one.text(&out, &batch).unwrap());
                matched.push_str(&grep.text(&out, &batch).unwrap());
            }
            let form = |at: usize, line: &str| format!("{}| {line}\n", ["r0", "r1", "batch"][at]);
            let text = |chosen: &dyn Fn(usize, &str) -> bool| -> String {
                wanted.iter().filter(|(at, line)| chosen(*at, line)).map(|(at, line)| form(*at, line)).collect()
            };
            prop_assert!(printed == text(&|_, _| true), "lines are missing");
            prop_assert!(of_one == text(&|at, _| at == 1), "lines of one rank are missing");
            prop_assert!(matched == text(&|_, line| line.contains("7 x")), "matches are missing");
        }

        /// The store of lines whose rank is not known is as small as it can be: they wait in the temporary file.
        #[test]
        fn lines_wait_for_their_rank_outside_memory(lines in 0usize..40_000, held in 0usize..1 << 20) {
            let (out, source) = (Output::plain(), Arc::new(SourceId::new("pod")));
            let mut printer = printer(0);
            printer.lines.ranks = Some(Ranks::new(&[(3, 3)], held));
            let bytes: String = (0..lines).map(|line| format!("3: line {line}\n")).collect();
            let mut text = printer.text(&out, &batch(&source, bytes.as_bytes())).unwrap();
            prop_assert_eq!(&text, "");
            text.push_str(&printer.text(&out, &batch(&source, b"3: h0:7:9 [0] NCCL INFO x\n")).unwrap());
            prop_assert_eq!(&text, "");
            // NCCL's line above named the process of the stream; this is what the map would prove.
            printer.store.learn(&[(("h0".to_owned(), 7), 3)].into());
            text.push_str(&printer.rest(&out).unwrap());
            let wanted: String = (0..lines).map(|line| format!("r3| line {line}\n")).collect();
            prop_assert!(text.starts_with(&wanted), "lines are missing");
            prop_assert_eq!(text.lines().count(), lines + 1);
        }
    }
}
