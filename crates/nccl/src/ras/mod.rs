//! Answers of NCCL's RAS service: which ranks of each communicator are missing, behind or failed.
//!
//! RAS answers on a socket inside every process of a job since NCCL 2.24.3
//! (<https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html>, 2026-11-22).
//! [`request`] returns what to send, [`Report::read`] reads the answer: JSON since 2.28.7, text before. The
//! caller sends and receives.
//!
//! ```
//! use weftrun_nccl::ras::Report;
//! let answer = b"SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\nNCCL version 2.26.2 compiled with CUDA 12.8\n\
//!     Communicators... (0.00s)\n\n#0-0 (c4cf64bc550944d1) MISMATCH\n  \
//!     Communicator ranks have different AllReduce operation counts\n  3 ranks have launched up to operation 116\n  \
//!     Rank 3 has launched up to operation 20 -- GPU 1 managed by process 965 on node 192.0.2.2\n\n";
//! let report = Report::read(answer)?;
//! let behind = &report.communicators[0].behind[0];
//! assert_eq!((behind.member.rank, behind.count, behind.others), (3, 20, 116));
//! # Ok::<(), weftrun_nccl::ras::Unreadable>(())
//! ```

mod event;
mod json;
mod text;

use std::fmt;

pub use event::{EventReader, MONITOR, PeerEvent};

use serde::{Serialize, Serializer};

/// The variable that sets the address RAS listens on.
pub const ADDRESS_VARIABLE: &str = "NCCL_RAS_ADDR";

/// The port that RAS listens on unless [`ADDRESS_VARIABLE`] sets another.
pub const DEFAULT_PORT: u16 = 28028;

/// Most bytes of an answer that are read. A report of 16,384 ranks in JSON has about 12 MB.
pub const MAX_ANSWER: usize = 64 << 20;

/// Most refusals kept: a request has fewer lines.
const COMMANDS: usize = 8;

/// Most entries kept of each list of a report.
const MAX_ENTRIES: usize = 1 << 20;

/// What switches all events of the job's profiler off, in all its processes (NCCL 2.31 and later:
/// `docs/userguide/source/troubleshooting/ras.rst` of 2.32.3). They must not be switched on again: NCCL counts the operations in between on
/// the GPU only, so that each later one would get the times of one before it (<https://github.com/NVIDIA/nccl/pull/2369>).
pub const PROFILER_OFF: &str = "control profiler_mask none";

/// Returns what to send for one report: JSON where the server supports it, text otherwise. `seconds` is how
/// long the server may collect data from other processes.
pub fn request(seconds: u32) -> String {
    request_after(None, seconds)
}

/// Does the same after a command that changes the job, such as [`PROFILER_OFF`]. [`Report::refused`] tells whether that was obeyed.
pub fn request_after(command: Option<&str>, seconds: u32) -> String {
    let command = command.map(|command| format!("{command}\n")).unwrap_or_default();
    format!("CLIENT PROTOCOL 2\n{command}TIMEOUT {seconds}\nSET FORMAT json\nVERBOSE STATUS\n")
}

/// The command for NCCL's own diagnostics. The answer is text; a server that was told to answer in JSON refuses it.
pub const DIAGNOSTICS: &str = "DIAGNOSTICS";

/// The first release with NCCL's own diagnostics.
pub const DIAGNOSTICS_SINCE: [u64; 2] = [2, 31];

/// Returns what to send for NCCL's own diagnostics. `seconds` is how long the server may collect data from other processes.
pub fn diagnostics_request(seconds: u32) -> String {
    format!("CLIENT PROTOCOL 2\nTIMEOUT {seconds}\n{DIAGNOSTICS}\n")
}

/// A report of NCCL's own diagnostics, as the service sends it: the lines that [`TransportMap`](crate::TransportMap) reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiagnosticsReport {
    /// The lines.
    pub text: String,
}

impl DiagnosticsReport {
    /// Reads everything the server sent after [`diagnostics_request`].
    ///
    /// # Errors
    /// [`Unreadable`] where the bytes are not a whole report; a server that makes one for somebody else refuses.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = String::from_utf8_lossy(bytes);
        if text.trim().is_empty() {
            return Err(Unreadable::Empty);
        }
        let (body, refused, _) = body(&text);
        let is_whole = || {
            body.trim_end().lines().next_back().is_some_and(|last| last.contains("diagnostics completed in "))
        };
        match refused.into_iter().next_back() {
            Some(refusal) => Err(Unreadable::Refused(refusal)),
            None if body.starts_with("BUSY") => {
                Err(Unreadable::Refused(body.lines().next().unwrap_or_default().chars().take(200).collect()))
            }
            None if !body.contains("NCCL DIAG ") => Err(Unreadable::OtherProtocol),
            None if !is_whole() => Err(Unreadable::Damaged("it ends early".to_owned())),
            None => Ok(Self { text: body.to_owned() }),
        }
    }
}

/// The report of RAS at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Version of NCCL in the process that answered: `2.28.9`.
    pub nccl_version: Option<String>,
    /// The communicators. A report in text has only those with a problem.
    pub communicators: Vec<Communicator>,
    /// Processes whose data did not arrive in time, where no communicator names them.
    pub missing_processes: Vec<Member>,
    /// Whether the report names every communicator and rank. A report in text does not.
    pub is_complete: bool,
    /// What the server said of commands before the report that it did not obey.
    pub refused: Vec<String>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Communicator {
    /// Its hash, which NCCL logs as `commId`.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub hash: u64,
    /// Its ranks; none where a report in text does not name them.
    pub size: Option<u32>,
    /// Ranks whose data did not arrive.
    pub missing: Vec<Missing>,
    /// Ranks that launched fewer operations than others.
    pub behind: Vec<Behind>,
    /// Ranks that launched more operations than most, where a report in text does not name those that are behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<Behind>,
    /// Errors, each with its rank.
    pub errors: Vec<RankError>,
    /// The sum of all operations launched by all ranks: it grows while the job makes progress.
    #[serde(skip)]
    pub launched: u64,
}

impl Communicator {
    /// Returns whether a rank of it is missing, has an error, or launched another number of operations than the others.
    pub fn differs(&self) -> bool {
        !(self.missing.is_empty() && self.errors.is_empty()) || self.is_uneven()
    }

    /// Returns whether its ranks launched different numbers of operations.
    pub fn is_uneven(&self) -> bool {
        !(self.behind.is_empty() && self.ahead.is_empty())
    }
}

/// A process of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Rank in the communicator.
    pub rank: u32,
    /// Address of its node on the bootstrap network, or its name.
    pub host: String,
    /// Process id.
    pub pid: u64,
}

/// A rank whose data did not arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Missing {
    /// The rank.
    #[serde(flatten)]
    pub member: Member,
    /// Whether RAS has given it up; before that it is only unresponsive.
    pub dead: bool,
}

/// A rank that launched fewer operations of a kind than most others, or more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Behind {
    /// The rank.
    #[serde(flatten)]
    pub member: Member,
    /// The operation: `AllReduce`.
    pub operation: String,
    /// Operations it launched.
    pub count: u64,
    /// Operations the others launched.
    pub others: u64,
}

/// An error that a rank reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankError {
    /// The rank.
    #[serde(flatten)]
    pub member: Member,
    /// What is wrong with it.
    #[serde(rename = "error")]
    pub what: String,
}

/// Why bytes are not a report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// There was no answer.
    Empty,
    /// The server answered in another protocol.
    OtherProtocol,
    /// The server refused the request, with its message.
    Refused(String),
    /// The report ends early or is damaged, with the reason.
    Damaged(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the connection was closed without an answer"),
            Self::OtherProtocol => f.write_str("the answer is not one of NCCL's RAS service"),
            Self::Refused(text) => write!(f, "the RAS service refused the request: {text}"),
            Self::Damaged(why) => write!(f, "the RAS report cannot be read: {why}"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl Report {
    /// Reads everything the server sent after [`request`].
    ///
    /// # Errors
    /// [`Unreadable`] where the bytes are not a whole report.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = String::from_utf8_lossy(bytes);
        if text.trim().is_empty() {
            return Err(Unreadable::Empty);
        }
        let (body, refused, greeted) = body(&text);
        let report = match (body.trim_start().as_bytes().first(), refused.last()) {
            (Some(b'{'), _) => json::read(body),
            (Some(_), _) if text::is_report(body) => text::read(body),
            (_, Some(refusal)) => Err(Unreadable::Refused(refusal.clone())),
            (None, None) if greeted => {
                Err(Unreadable::Damaged("there is no report after the greeting".to_owned()))
            }
            _ => Err(Unreadable::OtherProtocol),
        };
        report.map(|report| Self { refused, ..report })
    }

    /// Returns whether every communicator is complete, without errors and without ranks that are behind.
    pub fn is_clean(&self) -> bool {
        self.missing_processes.is_empty() && !self.communicators.iter().any(Communicator::differs)
    }
}

/// Returns the report after the answers to the other commands, the refusals among those, and whether the server greeted.
fn body(text: &str) -> (&str, Vec<String>, bool) {
    let mut rest = text;
    let mut refused = Vec::new();
    let mut greeted = false;
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        if let Some(error) = line.strip_prefix("ERROR: ") {
            if refused.len() < COMMANDS {
                refused.push(error.chars().take(200).collect());
            }
        } else if line.starts_with("SERVER PROTOCOL") || line == "OK" {
            greeted = true;
        } else if !line.is_empty() || after.is_empty() {
            return (rest, refused, greeted);
        }
        rest = after;
    }
}

/// Serializes the hash as NCCL logs it.
fn as_hex<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:#x}"))
}

/// Returns the ranks that launched fewer operations of a kind than the others.
fn behind(operation: &str, counts: &[(Member, u64)], others: u64) -> impl Iterator<Item = Behind> {
    counts.iter().filter(move |(_, count)| *count < others).map(move |(member, count)| Behind {
        member: member.clone(),
        operation: operation.to_owned(),
        count: *count,
        others,
    })
}

/// Finds the ranks that launched fewer operations of a kind than the median rank, or, where most are
/// equally far behind, fewer than the one that is ahead.
fn find_behind(operation: &str, counts: &[(Member, u64)]) -> Vec<Behind> {
    let mut sorted: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
    sorted.sort_unstable();
    let (Some(least), Some(most), Some(median)) =
        (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2))
    else {
        return Vec::new();
    };
    let others = if least < median { *median } else { *most };
    behind(operation, counts, others).collect()
}
