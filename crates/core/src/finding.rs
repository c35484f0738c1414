//! The one structure for every report about a job: a mistake in a file, a lint, a refusal, a diagnosis.

use std::fmt;

use serde::{Deserialize, Serialize};

word_enum! {
    /// The severity of a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// Worth knowing.
        Info = "info",
        /// Works, but not as intended.
        Warning = "warning",
        /// Does not work, or was not done.
        Error = "error",
    }
}

word_enum! {
    /// How sure a diagnosis is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Confidence: ALL {
        /// One explanation among others.
        Low = "low",
        /// The likeliest explanation.
        Medium = "medium",
        /// The evidence admits no other.
        High = "high",
    }
}

/// A report to the user, with its place, its reason and its fix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// Stable code, such as `W-LDPATH-SHADOW` or `NCCL-NET-SOCKET-FALLBACK`; `weftrun explain CODE` has its page.
    pub code: String,
    /// Id of the diagnosis rule, where the finding comes from one (`R01`).
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The severity.
    pub severity: Severity,
    /// How sure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// Which role, container, key or object it is about.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Ranks it is about, global numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// One sentence for a person.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// The log lines that prove it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Its place in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// The source of the fact behind it (URL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What to do about a finding: for people, and as edits of the job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fix {
    /// One sentence.
    pub text: String,
    /// Edits of the job file that do it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<PatchEdit>,
}

/// One edit of a job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PatchEdit {
    /// Dotted path in the job file, such as `env.NCCL_DEBUG`.
    pub path: String,
    /// `set` or `unset`; in a lint also `rename`: the name `path` at the finding's place is replaced by
    /// `value`.
    pub op: String,
    /// The new value of a `set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
}

/// A log line that proves a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// File or log source.
    pub source: String,
    /// Line number, from 1.
    pub line: u64,
    /// The line, sanitised.
    pub text: String,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Span {
    /// The file's name as the user gave it.
    pub file: String,
    /// Byte offset of the first byte.
    pub start: usize,
    /// Byte offset after the last byte.
    pub end: usize,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Finding {
    /// Makes a finding; the rest is added by the methods below.
    pub fn new(severity: Severity, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            rule: None,
            severity,
            confidence: None,
            subject: None,
            ranks: Vec::new(),
            message: crate::error::hidden(message.into()),
            fix: None,
            evidence: Vec::new(),
            span: None,
            source: None,
        }
    }

    /// Makes a finding of severity error.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// Makes a finding of severity warning.
    pub fn warning(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// Makes a finding of severity info.
    pub fn info(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, code, message)
    }

    setters! {
        /// Sets what the finding is about.
        at(subject: impl Into<String>) |finding| finding.subject = Some(subject.into());
        /// Sets the fix.
        fix(text: impl Into<String>)
            |finding| finding.fix = Some(Fix { text: text.into(), patch: Vec::new() });
        /// Sets the source of the fact behind it.
        cite(url: impl Into<String>) |finding| finding.source = Some(url.into());
        /// Sets the place in a file.
        span(span: Span) |finding| finding.span = Some(span);
    }

    /// Sets a fix that renames the name at the finding's place, so that `lint --fix` can apply it.
    #[must_use]
    pub fn rename(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        let (path, to) = (from.into(), to.into());
        let edit =
            PatchEdit { path, op: "rename".to_owned(), value: Some(serde_json::Value::String(to.clone())) };
        self.fix = Some(Fix { text: format!("rename it to {to}"), patch: vec![edit] });
        self
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Writes the code, the message and the place: `E-NAME: the name is empty (job.toml:1:8)`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match (&self.span, &self.subject) {
            (Some(Span { file, line, column, .. }), _) => write!(f, " ({file}:{line}:{column})"),
            (None, Some(subject)) => write!(f, " ({subject})"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Finding {}
