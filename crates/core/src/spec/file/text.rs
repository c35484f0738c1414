//! Decodes bytes to text: data that is no job file at all is refused before anything parses it.

use crate::Finding;
use crate::finding::Span;

/// Largest job file that is read, without a separate script.
pub const MAX_BYTES: usize = 1 << 20;
/// Largest script carried inside a job: a ConfigMap holds 1 MiB, of which other files need some.
pub const MAX_SCRIPT: usize = 900_000;

/// Returns the text of a file, without a byte order mark; or why it is not text.
pub(super) fn decode<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Box<Finding>> {
    let refuse = |code: &str, message: String, fix: &str| {
        let span = Span { file: file.to_owned(), start: 0, end: 0, line: 1, column: 1 };
        Err(Box::new(Finding::error(code, message).fix(fix).span(span)))
    };
    if bytes.len() > MAX_BYTES {
        return refuse(
            "SPEC-TOO-LARGE",
            format!("{file} is larger than {} KiB, the most a job file can be", MAX_BYTES / 1024),
            "bring code along with `code`, and data with `volumes`",
        );
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return refuse("SPEC-NOT-TEXT", format!("{file} is UTF-16"), "save it as UTF-8");
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    if memchr::memchr(0, bytes).is_some() {
        return refuse("SPEC-NOT-TEXT", format!("{file} is a binary file"), "name a TOML or YAML file");
    }
    std::str::from_utf8(bytes).or_else(|error| {
        let line = memchr::memchr_iter(b'\n', &bytes[..error.valid_up_to()]).count() + 1;
        refuse(
            "SPEC-NOT-TEXT",
            format!("{file} is not UTF-8: the first wrong byte is in line {line}"),
            "save it as UTF-8",
        )
    })
}

/// The syntax of a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// YAML, and so JSON.
    Yaml,
}

impl Format {
    /// Returns the syntax by the file's extension; without a known one, by the first significant line.
    pub fn of(file: &str, text: &str) -> Self {
        let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            Some("toml") => return Self::Toml,
            Some("yaml" | "yml" | "json") => return Self::Yaml,
            _ => {}
        }
        let line =
            text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
        let key = line.find(['=', ':', '[', '{']).and_then(|at| line[at..].chars().next());
        let table = line.starts_with('[') && line.ends_with(']');
        if table || key == Some('=') { Self::Toml } else { Self::Yaml }
    }
}
