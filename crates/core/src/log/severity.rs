//! Detects the level of a line from the words that loggers use.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexSet};

/// The level of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Debug and trace output.
    Debug,
    /// Any other line.
    #[default]
    Info,
    /// A warning.
    Warn,
    /// An error.
    Error,
}

impl Level {
    /// Returns the letter of the level: colour is never the only sign.
    pub fn letter(self) -> char {
        match self {
            Self::Debug => 'D',
            Self::Info => 'I',
            Self::Warn => 'W',
            Self::Error => 'E',
        }
    }

    /// Reads `debug`, `info`, `warn`, `warning` or `error`.
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "debug" | "trace" | "d" => Some(Self::Debug),
            "info" | "i" => Some(Self::Info),
            "warn" | "warning" | "w" => Some(Self::Warn),
            "error" | "err" | "e" => Some(Self::Error),
            _ => None,
        }
    }

    pub(super) fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Debug,
            1 => Self::Info,
            2 => Self::Warn,
            _ => Self::Error,
        }
    }
}

/// Only the beginning of a line shows its level.
const LOOK: usize = 160;

/// Patterns of errors, warnings and debug output.
const WORDS: [&str; 3] = [
    r"(?-u)^Traceback \(most|\b(ERROR|CRITICAL|FATAL|Fatal|Segmentation fault|Xid|SIGABRT|SIGSEGV)\b|(^|[\s\]:])[\w.]*(Error|Exception): |^\[?E\d{4} |\]\[E|\[rank\d+\]:\[?E|terminate called|Watchdog caught|CUDA error|core dumped",
    r"(?-u)\b(WARN|WARNING|Warning|warning)\b|^\[?W\d{4} |\[W\d|UserWarning|FutureWarning",
    r"(?-u)\b(DEBUG|TRACE)\b",
];

/// Matches any of the patterns: most lines match none, and one expression finds that in a fraction of the
/// set's time.
static ANY: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&WORDS.join("|")).ok());

static WHICH: LazyLock<Option<RegexSet>> = LazyLock::new(|| RegexSet::new(WORDS).ok());

static NCCL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b" NCCL "));

/// Returns the place of `NCCL` in the beginning of a line; NCCL's level follows it.
pub(super) fn nccl(near: &[u8]) -> Option<usize> {
    NCCL.find(near)
}

/// Returns the level of a line. NCCL's `NCCL INFO`, the bulk of a start, is decided without a regular
/// expression.
pub fn level(line: &[u8]) -> Level {
    let near = &line[..line.len().min(LOOK)];
    if let Some(at) = nccl(near) {
        let word = &near[at + 6..];
        if word.starts_with(b"INFO") {
            return Level::Info;
        }
        if word.starts_with(b"WARN") {
            return Level::Warn;
        }
        if word.starts_with(b"TRACE") || word.starts_with(b"CALL") {
            return Level::Debug;
        }
    }
    let (Some(any), Some(which)) = (ANY.as_ref(), WHICH.as_ref()) else { return Level::Info };
    if !any.is_match(near) {
        return Level::Info;
    }
    let found = which.matches(near);
    if found.matched(0) {
        Level::Error
    } else if found.matched(1) {
        Level::Warn
    } else if found.matched(2) {
        Level::Debug
    } else {
        Level::Info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_loggers() {
        for (line, expected) in [
            ("vm:1:2 [0] NCCL INFO no error here", Level::Info),
            ("vm:1:2 [0] net.cc:3 NCCL WARN x", Level::Warn),
            ("Traceback (most recent call last):", Level::Error),
            ("RuntimeError: CUDA out of memory", Level::Error),
            ("[rank3]:[E1121 04:00:00 ProcessGroupNCCL.cpp:1] Watchdog caught", Level::Error),
            ("WARNING:root:slow", Level::Warn),
            ("2026-11-21 DEBUG x", Level::Debug),
            ("step 3 loss 2.1 error_rate 0.1", Level::Info),
        ] {
            assert_eq!(level(line.as_bytes()), expected, "{line}");
        }
    }
}
