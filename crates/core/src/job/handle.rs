//! The identifier of a submitted job, as one string.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::percent::{decode, encode};
use crate::{Error, ErrorKind, Result};

/// A job on a target: `BACKEND://TARGET/part/…#uid`, parts percent-encoded.
///
/// ```
/// use weftrun_core::job::JobHandle;
/// let handle: JobHandle = "kubeflow://prod/team%2Fa/pytorchjob/llama#6d1f".parse()?;
/// assert_eq!(handle.parts(), ["team/a", "pytorchjob", "llama"]);
/// assert_eq!(handle.uid(), Some("6d1f"));
/// assert_eq!(handle.to_string(), "kubeflow://prod/team%2Fa/pytorchjob/llama#6d1f");
/// # Ok::<(), weftrun_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobHandle {
    backend: String,
    target: String,
    parts: Vec<String>,
    uid: Option<String>,
}

impl JobHandle {
    /// Makes a handle.
    pub fn new<S: Into<String>>(
        backend: impl Into<String>,
        target: impl Into<String>,
        parts: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            backend: backend.into(),
            target: target.into(),
            parts: parts.into_iter().map(Into::into).collect(),
            uid: None,
        }
    }

    /// Adds the id that distinguishes two successive jobs with the same name.
    #[must_use]
    pub fn with_uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Returns the backend's name.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the target's name.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the parts after the target, decoded.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Returns the last part: the job's name or number.
    pub fn name(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    /// Returns the id after `#`.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }
}

impl fmt::Display for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.backend, encode(&self.target))?;
        for part in &self.parts {
            write!(f, "/{}", encode(part))?;
        }
        match &self.uid {
            Some(uid) => write!(f, "#{}", encode(uid)),
            None => Ok(()),
        }
    }
}

impl FromStr for JobHandle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(ErrorKind::Usage, format!("`{text}` is not a job handle"))
                .hint("a handle looks like `local://local/demo`; `weftrun list` prints them")
        };
        let (backend, rest) = text.split_once("://").ok_or_else(bad)?;
        let (path, uid) = match rest.split_once('#') {
            Some((path, uid)) => (path, Some(decode(uid).ok_or_else(bad)?)),
            None => (rest, None),
        };
        let mut parts = path.split('/').map(decode);
        let target = parts.next().flatten().filter(|t| !t.is_empty()).ok_or_else(bad)?;
        let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        if backend.is_empty() || parts.is_empty() || parts.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Self { backend: backend.to_owned(), target, parts, uid })
    }
}

impl Serialize for JobHandle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobHandle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|e: Error| serde::de::Error::custom(e.message()))
    }
}

/// The id of one submission, made by the client and journaled before the first byte is sent; the cluster
/// stores it as a label or comment, so that a lost answer never leads to a second job. Lower-case letters
/// and digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubmissionId(String);

impl SubmissionId {
    /// Makes an id of 128 random bits from the caller: core has no randomness.
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }

    /// Makes an id from the text of documents that are shown or kept, not sent: the same text gives the same id (FNV-1a,
    /// <http://www.isthe.com/chongo/tech/comp/fnv/>).
    pub fn from_text<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let (start, prime) = (0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, 0x0100_0000_0000_0000_0000_013b);
        let mix = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(prime);
        Self::from_random(texts.into_iter().flat_map(str::bytes).fold(start, mix))
    }

    /// Parses an id from a cluster or a journal.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        (!text.is_empty() && text.len() <= 63 && text.bytes().all(plain)).then(|| Self(text.to_owned()))
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SubmissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
