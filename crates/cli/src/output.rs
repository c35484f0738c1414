//! The only way to stdout and stderr: results to one, messages to the other.
//!
//! Names, reasons, log lines and error texts come from clusters, files and jobs, so everything written for people passes
//! through [`clean_message`] here, whatever the caller did with it. Documents (`render`, `mutate`, JSON, YAML, scripts)
//! are written byte for byte to a pipe or a file; on a terminal their control characters are shown escaped. No other
//! module may open stdout or stderr: `clippy.toml` of this crate forbids it.

#![allow(clippy::disallowed_methods, reason = "this is the writer that everything else uses")]

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
use weftrun::core::log::{clean_message, clean_text, escape_controls};
use weftrun::{Error, ErrorKind, Finding, Result, Severity};

use crate::args::{ColorWhen, Format};

/// The one style of each meaning; colour is never the only sign.
pub mod style {
    use anstyle::{AnsiColor, Style};

    /// Errors.
    pub const ERROR: Style = AnsiColor::Red.on_default().bold();
    /// Warnings.
    pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    /// Good ends.
    pub const GOOD: Style = AnsiColor::Green.on_default().bold();
    /// Notes.
    pub const NOTE: Style = AnsiColor::Cyan.on_default();
    /// What can be skipped over.
    pub const DIM: Style = Style::new().dimmed();
    /// Headings.
    pub const BOLD: Style = Style::new().bold();
}

/// Where results and messages go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The shape asked for.
    pub format: Format,
    color: ColorWhen,
    quiet: bool,
    verbose: u8,
}

impl Output {
    /// Makes the output of one run.
    pub fn new(format: Format, color: ColorWhen, quiet: bool, verbose: u8) -> Self {
        Self { format, color, quiet, verbose }
    }

    /// Makes the output of a run whose flags are not known.
    pub fn plain() -> Self {
        Self::new(Format::Table, ColorWhen::Auto, false, 0)
    }

    /// Whether values were asked for, and not text for people.
    pub fn is_data(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// Whether to say less.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether to say more.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Whether somebody reads stderr on a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    fn choice(&self) -> ColorChoice {
        match self.color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        }
    }

    /// Writes text for people to stdout: cleaned, with styles only where they are shown.
    ///
    /// # Errors
    /// [`BROKEN_PIPE`] where the reader is gone, which ends the program quietly.
    pub fn text(&self, text: &str) -> Result<()> {
        let mut stream = io::stdout().lock();
        let clean = clean_message(text);
        let shown = self.styled(&stream, &clean);
        stream.write_all(shown.as_bytes()).and_then(|()| stream.flush()).map_err(unwritten)
    }

    /// Writes a document to stdout: byte for byte to a pipe or a file; on a terminal with its control characters escaped,
    /// which is said.
    ///
    /// # Errors
    /// [`BROKEN_PIPE`] where the reader is gone, which ends the program quietly.
    pub fn document(&self, text: &str) -> Result<()> {
        let mut writer = self.document_writer();
        writer.write_all(text.as_bytes()).map_err(unwritten)?;
        writer.finish()
    }

    /// Stdout for a document that comes in pieces; [`DocumentWriter::finish`] ends it.
    pub fn document_writer(&self) -> DocumentWriter {
        self.writer(io::stdout(), Form::Escaped)
    }

    /// Stderr for a document that comes in pieces, such as the report of a filter whose stdout holds its result.
    pub fn stderr_document_writer(&self) -> DocumentWriter {
        self.writer(io::stderr(), Form::Escaped)
    }

    /// Stdout for the output of a program that comes in pieces: byte for byte to a pipe or a file, and cleaned as text for people
    /// on a terminal.
    pub fn relay_writer(&self) -> DocumentWriter {
        self.writer(io::stdout(), Form::Styled)
    }

    /// Stderr in the same way.
    pub fn stderr_relay_writer(&self) -> DocumentWriter {
        self.writer(io::stderr(), Form::Styled)
    }

    fn writer(&self, stream: impl IsTerminal + Write + Send + 'static, on_terminal: Form) -> DocumentWriter {
        let form = if stream.is_terminal() { on_terminal } else { Form::Exact };
        DocumentWriter::new(*self, Box::new(stream), form)
    }

    /// Stdout for a diff made with [`Output::diff_text`]: styles pass where they are shown, and the rest as in a document.
    pub fn diff_writer(&self) -> DocumentWriter {
        let stdout = io::stdout();
        let form = if self.is_styled(true) { Form::Styled } else { return self.document_writer() };
        DocumentWriter::new(*self, Box::new(stdout), form)
    }

    /// A line of a document as it stands in a diff: with its control characters escaped where styles are shown around it.
    pub fn diff_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_styled(true) { escape_controls(text).0 } else { Cow::Borrowed(text) }
    }

    /// Text as a stream wants it, with styles or without, in one piece: a stream that strips while it writes makes a system call of
    /// every piece between two styles, which cost following a third of its time.
    fn styled<'a>(&self, stream: &impl RawStream, text: &'a str) -> Cow<'a, str> {
        // memchr is many times faster than looking at each byte, and long texts are made without styles where none are shown.
        if self.shows_styles(stream) || memchr::memchr(0x1b, text.as_bytes()).is_none() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(strip_str(text).to_string())
    }

    fn shows_styles(&self, stream: &impl RawStream) -> bool {
        let choice = match self.choice() {
            ColorChoice::Auto => AutoStream::choice(stream),
            choice => choice,
        };
        choice != ColorChoice::Never
    }

    /// Whether results, or messages, are shown with styles.
    pub fn is_styled(&self, data: bool) -> bool {
        if data { self.shows_styles(&std::io::stdout()) } else { self.shows_styles(&std::io::stderr()) }
    }

    /// Writes one line for people to stdout.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.text(&format!("{}\n", text.as_ref()))
    }

    /// Writes the one value of a verb: JSON on a line, or YAML.
    pub fn value(&self, value: &impl Serialize) -> Result<()> {
        let text = self.item_text(value)?;
        self.document(text.strip_prefix("---\n").unwrap_or(&text))
    }

    /// Writes one of several values: JSON on a line, or a YAML document.
    pub fn item(&self, value: &impl Serialize) -> Result<()> {
        self.document(&self.item_text(value)?)
    }

    /// One of several values as text.
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
            Format::Sarif | Format::Html | Format::Mermaid => {
                let word = crate::args::word(&self.format);
                Err(Error::new(ErrorKind::Usage, format!("this verb has no {word} output"))
                    .hint("use -o table, json or yaml"))
            }
        }
    }

    /// Says something on stderr, unless `-q`, or values were asked for: they hold it all, and a failure is to be read
    /// from stderr without anything around it.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.is_data() {
            self.stderr(text.as_ref());
        }
    }

    /// Says something on stderr with `-v` only.
    pub fn detail(&self, text: impl AsRef<str>) {
        if self.verbose > 0 {
            self.stderr(text.as_ref());
        }
    }

    /// Says something on stderr whatever was asked.
    pub fn stderr(&self, text: &str) {
        let mut stream = io::stderr().lock();
        let line = format!("{text}\n");
        let clean = clean_message(&line);
        let _ = stream.write_all(self.styled(&stream, &clean).as_bytes());
    }

    /// Writes a question to stderr, without a newline.
    pub fn ask(&self, question: &str) -> io::Result<()> {
        let mut stream = io::stderr().lock();
        stream.write_all(self.styled(&stream, &clean_message(question)).as_bytes())?;
        stream.flush()
    }

    /// Erases the last lines of the terminal that stderr is, so that others can be drawn in their place.
    pub fn erase_lines(&self, count: usize) {
        if count > 0 && self.is_terminal() {
            let _ = write!(io::stderr().lock(), "\x1b[{count}A\x1b[J");
        }
    }

    /// Prints findings on stderr, worst first; where values were asked for, they are among them.
    pub fn findings(&self, findings: &[Finding]) {
        if self.is_data() {
            return;
        }
        let mut sorted: Vec<&Finding> = findings.iter().collect();
        sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for finding in sorted {
            if !(self.quiet && finding.severity != Severity::Error) {
                self.stderr(&finding_text(finding));
            }
        }
    }
}

/// How a [`DocumentWriter`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Byte for byte.
    Exact,
    /// With control characters escaped.
    Escaped,
    /// Cleaned as text for people, whose styles pass.
    Styled,
}

/// A stream that a document is written to in pieces.
pub struct DocumentWriter {
    out: Output,
    to: Box<dyn Write + Send>,
    form: Form,
    /// Bytes that cannot be judged before more come: an unfinished character, or a line that styles may run through.
    held: Vec<u8>,
    escaped: usize,
}

impl DocumentWriter {
    fn new(out: Output, to: Box<dyn Write + Send>, form: Form) -> Self {
        Self { out, to, form, held: Vec::new(), escaped: 0 }
    }

    /// Ends the document. On a terminal it is said how many characters were escaped.
    ///
    /// # Errors
    /// [`BROKEN_PIPE`] where the reader is gone, which ends the program quietly.
    pub fn finish(mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.show(&String::from_utf8_lossy(&held)).and_then(|()| self.to.flush()).map_err(unwritten)?;
        if self.escaped > 0 && !self.out.quiet {
            let (count, plural) = (self.escaped, if self.escaped == 1 { "" } else { "s" });
            self.out.stderr(&format!(
                "note: {count} control character{plural} shown escaped, as \\u001b; a pipe or a file gets the exact bytes"
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
        // What is behind the last newline may go on: a character, a carriage return before its newline, an escape.
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

/// Bytes of a line without an end that are held; behind them the line goes out in pieces.
const LONGEST_HELD: usize = 1 << 20;

/// The error of output that could not be written.
pub fn unwritten(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(ErrorKind::Interrupted, BROKEN_PIPE),
        _ => Error::new(ErrorKind::Io, format!("cannot write the output: {error}")).source(error),
    }
}

/// The message of the error that stands for a reader who went away.
pub const BROKEN_PIPE: &str = "stdout was closed";

/// A finding for a person: what, where, and below it what to do.
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

/// Text of others in a message of ours: cleaned, without styles of its own, in its own lines.
pub fn plain_lines(text: &str) -> String {
    strip_str(&clean_message(text)).to_string()
}
