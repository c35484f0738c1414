//! The report in JSON (NCCL 2.28.7 and later).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Communicator, MAX_ENTRIES, Member, Missing, RankError, Report, Unreadable, find_behind};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    nccl_version: Option<String>,
    communicators: Vec<Comm>,
}

#[derive(Deserialize)]
struct Comm {
    hash: String,
    #[serde(default)]
    size: u32,
    #[serde(default)]
    ranks: Vec<RankEntry>,
    #[serde(default)]
    missing_ranks: Vec<RankEntry>,
}

#[derive(Deserialize)]
struct RankEntry {
    rank: u32,
    #[serde(default)]
    host: String,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    collective_counts: BTreeMap<String, u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    init_state: i64,
    async_error: i64,
    abort_flag: bool,
    considered_dead: bool,
}

/// `ncclInProgress`: no error, but not done yet.
const IN_PROGRESS: i64 = 7;

pub(super) fn read(text: &str) -> Result<Report, Unreadable> {
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    // Text after the object is not part of the report.
    let text = with_commas(text);
    let mut objects = serde_json::Deserializer::from_str(&text).into_iter::<Document>();
    let document = match objects.next() {
        Some(document) => document.map_err(damaged)?,
        None => return Err(Unreadable::Damaged("it is empty".to_owned())),
    };
    let mut report = Report { nccl_version: document.nccl_version, is_complete: true, ..Report::default() };
    for comm in document.communicators.into_iter().take(MAX_ENTRIES) {
        let hash = hash(&comm.hash)
            .ok_or_else(|| Unreadable::Damaged(format!("`{}` is not a hash", cut(&comm.hash))))?;
        report.communicators.push(communicator(hash, &comm));
    }
    Ok(report)
}

fn communicator(hash: u64, comm: &Comm) -> Communicator {
    let mut operations: BTreeMap<&str, Vec<(Member, u64)>> = BTreeMap::new();
    let mut errors = Vec::new();
    let mut launched = 0u64;
    for rank in &comm.ranks {
        if let Some(what) = rank.status.error() {
            errors.push(RankError { member: rank.member(), what });
        }
        for (operation, count) in &rank.collective_counts {
            launched = launched.saturating_add(*count);
            operations.entry(operation).or_default().push((rank.member(), *count));
        }
    }
    let missing = |rank: &RankEntry| Missing { member: rank.member(), dead: rank.status.considered_dead };
    Communicator {
        hash,
        size: Some(comm.size),
        missing: comm.missing_ranks.iter().map(missing).collect(),
        behind: operations.iter().flat_map(|(operation, counts)| find_behind(operation, counts)).collect(),
        ahead: Vec::new(),
        errors,
        launched,
    }
}

impl RankEntry {
    fn member(&self) -> Member {
        Member { rank: self.rank, host: self.host.clone(), pid: self.pid }
    }
}

impl Status {
    fn error(&self) -> Option<String> {
        let failed = |code: i64| code != 0 && code != IN_PROGRESS;
        if failed(self.init_state) {
            return Some(format!("initialisation failed: {}", result_name(self.init_state)));
        }
        if failed(self.async_error) {
            return Some(format!("asynchronous error: {}", result_name(self.async_error)));
        }
        self.abort_flag.then(|| "the communicator was aborted".to_owned())
    }
}

/// Returns the name of a value of `ncclResult_t` (nccl.h, 2.30).
fn result_name(code: i64) -> String {
    let name = match code {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        8 => "ncclTimeout",
        other => return format!("ncclResult {other}"),
    };
    name.to_owned()
}

pub(super) fn hash(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Inserts missing commas: NCCL 2.28.7 to 2.28.9 leave out the one before `status` of a missing rank. A
/// comma is put wherever a key follows a value without one.
fn with_commas(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut missing = Vec::new();
    let mut at = 0;
    // Where the last value ended, if no comma, colon or bracket followed it yet.
    let mut ended = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                missing.extend(ended.filter(|end| *end < at));
                at += 1;
                while let Some(inner) = bytes.get(at).filter(|inner| **inner != b'"') {
                    at += if *inner == b'\\' { 2 } else { 1 };
                }
                ended = Some(at + 1);
            }
            b',' | b':' | b'{' | b'[' => ended = None,
            b'}' | b']' => ended = Some(at + 1),
            byte if byte.is_ascii_whitespace() => {}
            _ => ended = Some(at + 1),
        }
        at += 1;
    }
    if missing.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len() + missing.len());
    let mut from = 0;
    for end in missing {
        whole.push_str(text.get(from..end).unwrap_or_default());
        whole.push(',');
        from = end;
    }
    whole.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(whole)
}
