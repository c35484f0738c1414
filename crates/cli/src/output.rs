//! The only way to stdout and stderr: data to one, talk to the other.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
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

/// Where data and talk go.
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

    /// Writes text to stdout as it is. A reader that went away ends the program quietly.
    pub fn data(&self, text: &str) -> Result<()> {
        let mut stream = std::io::stdout().lock();
        let text = self.styled(&stream, text);
        let written = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Error::new(ErrorKind::Interrupted, BROKEN_PIPE),
            _ => Error::new(ErrorKind::Io, format!("cannot write to stdout: {error}")).source(error),
        })
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

    /// Whether data, or talk, is shown with styles.
    pub fn is_styled(&self, data: bool) -> bool {
        if data { self.shows_styles(&std::io::stdout()) } else { self.shows_styles(&std::io::stderr()) }
    }

    /// Stdout, for text that comes in pieces.
    pub fn stdout(&self) -> impl Write {
        AutoStream::new(std::io::stdout().lock(), self.choice())
    }

    /// Writes one line to stdout.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.data(&format!("{}\n", text.as_ref()))
    }

    /// Writes the one value of a verb: JSON on a line, or YAML.
    pub fn value(&self, value: &impl Serialize) -> Result<()> {
        let text = self.item_text(value)?;
        self.data(text.strip_prefix("---\n").unwrap_or(&text))
    }

    /// Writes one of several values: JSON on a line, or a YAML document.
    pub fn item(&self, value: &impl Serialize) -> Result<()> {
        self.data(&self.item_text(value)?)
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
                let word = crate::job_flags::word(&self.format);
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
        let mut stream = std::io::stderr().lock();
        let line = format!("{text}\n");
        let _ = stream.write_all(self.styled(&stream, &line).as_bytes());
    }

    /// Writes to stderr as it is, without a newline: what moves a terminal's cursor.
    pub fn stderr_raw(&self, text: &str) {
        let stderr = std::io::stderr();
        let _ = stderr.lock().write_all(text.as_bytes());
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
        (Some(span), _) => format!("{}:{}:{}: ", span.file, span.line, span.column),
        (None, Some(subject)) => format!("{subject}: "),
        (None, None) => String::new(),
    };
    let dim = style::DIM;
    let mut text =
        format!("{style}{word}{style:#} {place}{} {dim}[{}]{dim:#}", finding.message, finding.code);
    for line in finding.evidence.iter().take(3) {
        text.push_str(&format!("\n    {dim}{}:{}{dim:#} {}", line.source, line.line, line.text));
    }
    if let Some(fix) = &finding.fix {
        text.push_str(&format!("\n    fix: {}", fix.text));
    }
    text
}
