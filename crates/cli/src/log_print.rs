//! Log batches on their way to a terminal: merged, prefixed, sanitised, every mark said.

use jiff::Timestamp;
use weftrun::Result;
use weftrun::core::log::{Filter, LogBatch, LogStore, LogStream, Pattern, clean_text};
use weftrun::core::report::{EventLine, LogLine, OwnEvent};

use crate::output::{Output, style};

/// Bytes of log kept while printing: only lines that are not whole yet need to wait.
const BUDGET: usize = 8 << 20;

/// Prints merged logs, line by line.
#[derive(Debug)]
pub struct LogPrinter {
    store: LogStore,
    next: u64,
    /// What stands before the lines of each stream, and the rank it was made for: a stream's is proved as its lines come.
    prefixes: Vec<(Option<u32>, String)>,
    options: PrintOptions,
    filter: Option<Filter>,
    pattern: Option<Pattern>,
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
            filter: None,
            pattern: None,
        }
    }

    /// Prints only lines of these ranks that match this regular expression.
    pub fn only(mut self, ranks: &[(u32, u32)], grep: Option<&str>) -> Result<Self> {
        if ranks.is_empty() && grep.is_none() {
            return Ok(self);
        }
        let mut words: Vec<String> = ranks.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        if !words.is_empty() {
            words = vec![format!("rank:{}", words.join(","))];
        }
        self.filter = Some(Filter::parse(&words.join(" "), Timestamp::now())?);
        self.pattern = grep.map(Pattern::regex).transpose()?;
        Ok(self)
    }

    /// Prints the lines a batch completes.
    pub fn print(&mut self, out: &Output, batch: &LogBatch) -> Result<()> {
        self.store.ingest(batch);
        self.flush(out)
    }

    /// Prints what is left.
    pub fn finish(&mut self, out: &Output) -> Result<()> {
        self.flush(out)
    }

    fn flush(&mut self, out: &Output) -> Result<()> {
        let mut text = String::new();
        let styled = out.is_styled(self.options.to_stdout);
        for entry in self.store.from(self.next) {
            self.next = entry.seq + 1;
            if self.filter.as_ref().is_some_and(|filter| !filter.shows(&self.store, &entry)) {
                continue;
            }
            if self.pattern.as_ref().is_some_and(|pattern| !pattern.matches(&entry)) {
                continue;
            }
            let stream = &self.store.streams()[entry.stream as usize];
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
                continue;
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
        }
        if text.is_empty() {
            return Ok(());
        }
        if out.is_data() {
            out.document(&text)
        } else if self.options.to_stdout {
            out.text(&text)
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
