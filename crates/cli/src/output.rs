//! The only access to stdout and stderr: results go to one, messages to the other.
//!
//! Names, reasons, log lines and error texts come from clusters, files and jobs, so all text for people
//! passes through [`clean_message`] here, regardless of the caller. Documents (`render`, `mutate`, JSON,
//! YAML, scripts) are written byte for byte to a pipe or a file; on a terminal their control characters are
//! shown escaped. No other module may open stdout or stderr: `clippy.toml` of this crate forbids it.

#![allow(clippy::disallowed_methods, reason = "this is the writer that everything else uses")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use jiff::Timestamp;
use serde::Serialize;
use weftrun::core::log::{clean_message, clean_text, escape_controls};
use weftrun::core::mask::{mask, mask_json, mask_value};
use weftrun::core::text::counted;
use weftrun::{Error, ErrorKind, Finding, Result, Severity};

use crate::global::{ColorWhen, Format};

/// The style of each meaning; color is never the only sign.
pub mod style {
    use anstyle::{AnsiColor, Style};

    pub const ERROR: Style = AnsiColor::Red.on_default().bold();
    pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    pub const GOOD: Style = AnsiColor::Green.on_default().bold();
    pub const NOTE: Style = AnsiColor::Cyan.on_default();
    /// Less important text.
    pub const DIM: Style = Style::new().dimmed();
    pub const BOLD: Style = Style::new().bold();
}

/// The destination of results and messages.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub format: Format,
    color: ColorWhen,
    quiet: bool,
    verbose: u8,
}

impl Output {
    /// Creates the output of one run.
    pub fn new(format: Format, color: ColorWhen, quiet: bool, verbose: u8) -> Self {
        Self { format, color, quiet, verbose }
    }

    /// Creates the output of a run with unknown flags.
    pub fn plain() -> Self {
        Self::new(Format::Table, ColorWhen::Auto, false, 0)
    }

    /// Returns whether the output is structured values and not text.
    pub fn is_data(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// Refuses `-o` where there is only text.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] that names what prints only text.
    pub fn text_only(&self, what: &str) -> Result<()> {
        if self.format == Format::Table {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Usage, format!("{what} prints text only")).hint("leave out -o"))
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    pub fn is_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Writes text to stdout: cleaned, without secrets, with styles only where they are shown.
    ///
    /// # Errors
    /// That of [`is_closed_stdout`] if the reader is gone, which ends the program quietly.
    pub fn text(&self, text: &str) -> Result<()> {
        self.log_text(&mask(text))
    }

    /// Writes text of a job's log to stdout in the same way, with everything that the job printed.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub fn log_text(&self, text: &str) -> Result<()> {
        let mut stream = io::stdout().lock();
        let clean = clean_message(text);
        let shown = self.styled(&stream, &clean);
        stream.write_all(shown.as_bytes()).and_then(|()| stream.flush()).map_err(unwritten)
    }

    /// Writes a document to stdout: byte for byte to a pipe or a file; on a terminal with its control
    /// characters escaped, which is reported.
    ///
    /// # Errors
    /// That of [`is_closed_stdout`] if the reader is gone, which ends the program quietly.
    pub fn document(&self, text: impl AsRef<[u8]>) -> Result<()> {
        let mut writer = self.document_writer();
        writer.write_all(text.as_ref()).map_err(unwritten)?;
        writer.finish()
    }

    /// Returns a writer to stdout for a document in pieces; [`DocumentWriter::finish`] ends it.
    pub fn document_writer(&self) -> DocumentWriter {
        self.writer(io::stdout(), Form::Escaped)
    }

    /// Returns a writer to stderr for a document in pieces, such as the report of a filter whose result is on
    /// stdout.
    pub fn stderr_document_writer(&self) -> DocumentWriter {
        self.writer(io::stderr(), Form::Escaped)
    }

    /// Returns a writer to stdout for the output of a program in pieces: byte for byte to a pipe or a file,
    /// and cleaned like text on a terminal.
    pub fn relay_writer(&self) -> DocumentWriter {
        self.writer(io::stdout(), Form::Styled)
    }

    /// Returns the same for stderr.
    pub fn stderr_relay_writer(&self) -> DocumentWriter {
        self.writer(io::stderr(), Form::Styled)
    }

    fn writer(&self, stream: impl IsTerminal + Write + Send + 'static, on_terminal: Form) -> DocumentWriter {
        let form = if stream.is_terminal() { on_terminal } else { Form::Exact };
        DocumentWriter::new(*self, Box::new(stream), form)
    }

    /// Returns a writer to stdout for a diff made with [`Output::diff_text`]: styles are kept where they are
    /// shown, and the rest is handled as in a document.
    pub fn diff_writer(&self) -> DocumentWriter {
        let stdout = io::stdout();
        let form = if self.is_styled(true) { Form::Styled } else { return self.document_writer() };
        DocumentWriter::new(*self, Box::new(stdout), form)
    }

    /// Returns a line of a document for a diff: with its control characters escaped if styles are shown
    /// around it.
    pub fn diff_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_styled(true) { escape_controls(text).0 } else { Cow::Borrowed(text) }
    }

    /// Returns text for a stream, with or without styles, in one piece: a stream that strips styles while it
    /// writes makes one system call for every piece between two styles, which took a third of the time of
    /// following logs.
    fn styled<'a>(&self, stream: &impl RawStream, text: &'a str) -> Cow<'a, str> {
        // memchr is many times faster than checking each byte, and long texts are created without styles
        // where none are shown.
        if self.shows_styles(stream) || memchr::memchr(0x1b, text.as_bytes()).is_none() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(strip_str(text).to_string())
    }

    fn shows_styles(&self, stream: &impl RawStream) -> bool {
        match self.color {
            ColorWhen::Auto => AutoStream::choice(stream) != ColorChoice::Never,
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        }
    }

    /// Returns whether results, or messages, are shown with styles.
    pub fn is_styled(&self, data: bool) -> bool {
        if data { self.shows_styles(&std::io::stdout()) } else { self.shows_styles(&std::io::stderr()) }
    }

    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.text(&format!("{}\n", text.as_ref()))
    }

    /// Writes the only value of a verb without secrets: JSON on one line, or YAML.
    pub fn value(&self, value: &impl Serialize) -> Result<()> {
        let text = self.masked(value)?;
        self.document(text.strip_prefix("---\n").unwrap_or(&text))
    }

    /// Writes a value that holds a document which is used as it is: a manifest, a job file.
    pub fn exact_value(&self, value: &impl Serialize) -> Result<()> {
        let text = self.item_text(value)?;
        self.document(text.strip_prefix("---\n").unwrap_or(&text))
    }

    /// Writes one of several values without secrets: JSON on a line, or a YAML document.
    pub fn item(&self, value: &impl Serialize) -> Result<()> {
        self.document(&self.masked(value)?)
    }

    /// Returns a value as text, without secrets.
    fn masked(&self, value: &impl Serialize) -> Result<String> {
        let text = self.item_text(value)?;
        if self.format != Format::Yaml {
            return Ok(match mask_json(&text) {
                Cow::Borrowed(_) => text,
                Cow::Owned(shown) => shown,
            });
        }
        let Ok(plain) = serde_json::to_value(value) else { return Ok(text) };
        let mut shown = plain.clone();
        mask_value(&mut shown);
        if shown == plain { Ok(text) } else { self.item_text(&shown) }
    }

    pub fn item_text(&self, value: &impl Serialize) -> Result<String> {
        let bug = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Unexpected, format!("cannot write as text: {error}"))
        };
        match self.format {
            Format::Table | Format::Json => {
                Ok(serde_json::to_string(value).map_err(|error| bug(&error))? + "\n")
            }
            Format::Yaml => {
                Ok(format!("---\n{}", serde_saphyr::to_string(value).map_err(|error| bug(&error))?))
            }
            Format::Sarif | Format::Html | Format::Mermaid | Format::Name | Format::Wide => {
                let word = crate::global::word(&self.format);
                Err(Error::new(ErrorKind::Usage, format!("this verb has no {word} output"))
                    .hint("use -o table, json or yaml"))
            }
        }
    }

    /// Prints a message on stderr, unless `-q` or a structured format was given: the values contain the
    /// information, and an error on stderr must be parsable alone.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.is_data() {
            self.stderr(text.as_ref());
        }
    }

    /// Prints a message on stderr with `-v` only.
    pub fn detail(&self, text: impl AsRef<str>) {
        if self.verbose > 0 {
            self.stderr(text.as_ref());
        }
    }

    /// Prints a message on stderr regardless of flags, without secrets.
    pub fn stderr(&self, text: &str) {
        self.log_stderr(&mask(text));
    }

    /// Prints text of a job's log on stderr, with everything that the job printed.
    pub fn log_stderr(&self, text: &str) {
        let mut stream = io::stderr().lock();
        let line = format!("{text}\n");
        let clean = clean_message(&line);
        let _ = stream.write_all(self.styled(&stream, &clean).as_bytes());
    }

    /// Writes a prompt to stderr, without a newline.
    pub fn ask(&self, question: &str) -> io::Result<()> {
        let mut stream = io::stderr().lock();
        stream.write_all(self.styled(&stream, &clean_message(question)).as_bytes())?;
        stream.flush()
    }

    /// Erases the last lines on the terminal of stderr, so that others can be drawn in their place.
    pub fn erase_lines(&self, count: usize) {
        if count > 0 && self.is_terminal() {
            let _ = write!(io::stderr().lock(), "\x1b[{count}A\x1b[J");
        }
    }

    /// Prints findings on stderr, worst first; a structured format contains them in its values. Findings with the same
    /// text, as of roles that share a template, are printed once.
    pub fn findings(&self, findings: &[Finding]) {
        if self.is_data() {
            return;
        }
        let mut sorted: Vec<&Finding> = findings.iter().collect();
        sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let mut printed = BTreeSet::new();
        for finding in sorted {
            let text = finding_text(finding);
            if !(self.quiet && finding.severity != Severity::Error) && printed.insert(text.clone()) {
                self.stderr(&text);
            }
        }
    }
}

/// How a [`DocumentWriter`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Exact,
    Escaped,
    /// Cleaned like text, with styles kept.
    Styled,
}

/// A stream that a document is written to in pieces.
pub struct DocumentWriter {
    out: Output,
    to: Box<dyn Write + Send>,
    form: Form,
    /// Bytes that cannot be processed before more come: an incomplete character, or a line that may contain
    /// styles.
    held: Vec<u8>,
    escaped: usize,
}

impl std::fmt::Debug for DocumentWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentWriter").field("form", &self.form).finish_non_exhaustive()
    }
}

impl DocumentWriter {
    fn new(out: Output, to: Box<dyn Write + Send>, form: Form) -> Self {
        Self { out, to, form, held: Vec::new(), escaped: 0 }
    }

    /// Finishes the document. On a terminal it reports how many characters were escaped.
    ///
    /// # Errors
    /// That of [`is_closed_stdout`] if the reader is gone, which ends the program quietly.
    pub fn finish(mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.show(&String::from_utf8_lossy(&held)).and_then(|()| self.to.flush()).map_err(unwritten)?;
        if self.escaped > 0 && !self.out.quiet {
            let count = counted(self.escaped, "control character");
            self.out.stderr(&format!(
                "note: {count} shown escaped, as \\u001b; a pipe or a file gets the exact bytes"
            ));
        }
        Ok(())
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        match self.form {
            Form::Exact => self.to.write_all(text.as_bytes()),
            Form::Escaped => {
                let (shown, escaped) = escape_controls(text);
                self.escaped += escaped;
                self.to.write_all(shown.as_bytes())
            }
            Form::Styled => self.to.write_all(clean_message(text).as_bytes()),
        }
    }
}

impl Write for DocumentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.form == Form::Exact {
            return self.to.write(bytes);
        }
        self.held.extend_from_slice(bytes);
        // Bytes after the last newline may be incomplete: a character, a carriage return before its newline,
        // an escape.
        let whole = memchr::memrchr(b'\n', &self.held).map_or(0, |at| at + 1);
        let whole = if self.held.len() - whole > LONGEST_HELD { self.held.len() } else { whole };
        let rest = self.held.split_off(whole);
        let ready = std::mem::replace(&mut self.held, rest);
        self.show(&String::from_utf8_lossy(&ready))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Largest part of an unterminated line that is held; beyond that the line is written in pieces.
const LONGEST_HELD: usize = 1 << 20;

/// Returns the error of output that could not be written.
pub fn unwritten(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Error::new(ErrorKind::Interrupted, "stdout was closed").with_source(ClosedStdout)
        }
        _ => Error::new(ErrorKind::Io, format!("cannot write the output: {error}")).with_source(error),
    }
}

/// The source of the error that ends the program quietly: the reader of stdout is gone.
#[derive(Debug)]
struct ClosedStdout;

impl std::error::Error for ClosedStdout {}

impl std::fmt::Display for ClosedStdout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of stdout is gone")
    }
}

/// Returns whether an error means that the reader of stdout is gone.
pub fn is_closed_stdout(error: &Error) -> bool {
    matches!(std::error::Error::source(error), Some(source) if source.is::<ClosedStdout>())
}

/// Returns what follows a state: its reason behind a colon, or nothing.
pub fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// Formats a finding as text: message, location, and the fix on the next line.
pub fn finding_text(finding: &Finding) -> String {
    if let Some(shown) = crate::diagnostics::shown(finding) {
        return shown;
    }
    let (style, word) = match finding.severity {
        Severity::Error => (style::ERROR, "error"),
        Severity::Warning => (style::WARNING, "warning"),
        Severity::Info => (style::NOTE, "note"),
    };
    let place = match (&finding.span, &finding.subject) {
        (Some(span), _) => format!("{}:{}:{}: ", clean_text(&span.file), span.line, span.column),
        (None, Some(subject)) => format!("{}: ", clean_text(subject)),
        (None, None) => String::new(),
    };
    let dim = style::DIM;
    let mut text = format!(
        "{style}{word}{style:#} {place}{} {dim}[{}]{dim:#}",
        plain_lines(&finding.message),
        finding.code
    );
    for line in finding.evidence.iter().take(3) {
        let (source, quoted) = (clean_text(&line.source), clean_text(&line.text));
        text.push_str(&format!("\n    {dim}{source}:{}{dim:#} {quoted}", line.line));
    }
    if let Some(fix) = &finding.fix {
        text.push_str(&format!("\n    fix: {}", plain_lines(&fix.text)));
    }
    text
}

/// Returns foreign text for a message: cleaned, without its own styles, on separate lines.
pub fn plain_lines(text: &str) -> String {
    strip_str(&clean_message(text)).to_string()
}

/// Returns a time as `list` and `describe` print it, in UTC.
pub fn time_text(time: Timestamp) -> String {
    time.strftime("%FT%TZ").to_string()
}

/// Returns labels as `-l` takes them.
pub fn labels_text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
