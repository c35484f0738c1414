//! The one error type: what failed, on which value from where, whether trying again can help, and what to try.

use std::borrow::Cow;
use std::fmt;

/// The result of every fallible function of weftrun.
pub type Result<T, E = Error> = std::result::Result<T, E>;

word_enum! {
    /// The kind of a failure. Callers match on this; the text is for people.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// The command line, or a call of the SDK, is wrong.
        Usage = "usage",
        /// A job file, manifest or script is wrong or cannot be mutated.
        InvalidSpec = "invalid-spec",
        /// A configuration file or target is wrong.
        InvalidConfig = "invalid-config",
        /// The cluster refused the request: policy, quota, an invalid body.
        Refused = "refused",
        /// Credentials are missing, expired or not enough.
        Credentials = "credentials",
        /// The backend cannot do this; the message names the capability.
        Unsupported = "unsupported",
        /// No answer: network, DNS, TLS, a daemon that is down.
        Unreachable = "unreachable",
        /// There is no such job, file, target or backend.
        NotFound = "not-found",
        /// The name is taken.
        AlreadyExists = "already-exists",
        /// The time allowed ran out.
        Timeout = "timeout",
        /// The user interrupted.
        Interrupted = "interrupted",
        /// A local file or process could not be used.
        Io = "io",
        /// The cluster sent an unexpected answer.
        Protocol = "protocol",
        /// The pairs of ranks prove another fabric than planned.
        FabricNotAsPlanned = "fabric-not-as-planned",
        /// A bug in weftrun.
        Unexpected = "unexpected",
    }
}

/// What failed. The message is a lowercase fragment without a full stop, fit for "error: …".
///
/// ```
/// use weftrun_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::NotFound, "no target named `prdo`")
///     .with("config", "~/.config/weftrun/config.toml")
///     .hint("did you mean `prod`?");
/// assert_eq!(error.to_string(), "no target named `prdo` (config: ~/.config/weftrun/config.toml)");
/// assert!(!error.is_retryable());
/// ```
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    retryable: bool,
    context: Vec<(&'static str, String)>,
    hints: Vec<String>,
    findings: Vec<crate::Finding>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of a kind with its message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: hidden(message.into()),
            retryable: false,
            context: Vec::new(),
            hints: Vec::new(),
            findings: Vec::new(),
            source: None,
        }))
    }

    /// Makes the error of an operation the backend cannot do, with the missing capability.
    pub fn unsupported(backend: &str, capability: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("backend `{backend}` has no capability `{capability}`"))
            .hint("`weftrun backends` lists what each backend can do")
    }

    /// Makes an error from findings, at least one of which has severity error.
    pub fn from_findings(kind: ErrorKind, message: impl Into<String>, findings: Vec<crate::Finding>) -> Self {
        let mut error = Self::new(kind, message);
        error.0.findings = findings;
        error
    }

    /// Makes the error of one finding about a text that cannot be used.
    pub fn from_finding(kind: ErrorKind, finding: crate::Finding) -> Self {
        Self::from_findings(kind, finding.message.clone(), vec![finding])
    }

    setters! {
        /// Adds a value that the failure is about, and where it came from.
        with(key: &'static str, value: impl fmt::Display)
            |error| error.0.context.push((key, hidden(value.to_string())));
        /// Adds something the user can try.
        hint(hint: impl Into<String>) |error| error.0.hints.push(hidden(hint.into()));
        /// Marks that the same call may succeed later.
        retryable() |error| error.0.retryable = true;
        /// Keeps the error underneath.
        with_source(source: impl Into<Box<dyn std::error::Error + Send + Sync>>)
            |error| error.0.source = Some(source.into());
    }

    /// Returns the kind to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Returns the message alone, without the context.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the values that the failure is about.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// Returns the message and all that helps, in one line: `the message; a hint`.
    pub fn one_line(&self) -> String {
        self.0.hints.iter().fold(self.to_string(), |all, hint| format!("{all}; {hint}"))
    }

    /// Returns what to try.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// Returns the findings behind an error of a spec, a manifest or a policy.
    pub fn findings(&self) -> &[crate::Finding] {
        &self.0.findings
    }

    /// Returns the messages of the underlying errors, outermost first.
    pub fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut next = std::error::Error::source(self);
        while let Some(error) = next {
            causes.push(hidden(error.to_string()));
            next = error.source();
        }
        causes
    }
}

/// Returns a text without secrets: an error repeats what a job, a file or a server holds, and is sent to others.
pub(crate) fn hidden(text: String) -> String {
    match crate::mask::mask(&text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (index, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key}: {value}", if index == 0 { " (" } else { ", " })?;
        }
        if self.0.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}
