//! What one host says of itself and of its jobs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use weftrun_core::job::{JobPhase, SubmissionId};
use weftrun_core::{Error, ErrorKind, Finding};

use super::allocation::{Allocation, Lines};
use crate::remote::error::clean;

/// Largest number of jobs of one answer.
const MOST_JOBS: usize = 10_000;

/// Why a host did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    why: String,
    kind: ErrorKind,
    hints: Vec<String>,
}

impl From<&Error> for NoAnswer {
    fn from(error: &Error) -> Self {
        Self { why: error.to_string(), kind: error.kind(), hints: error.hints().to_vec() }
    }
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl NoAnswer {
    /// Returns why nothing is known of a host that is no longer in the target.
    pub fn unlisted() -> Self {
        Self {
            why: "it is not a host of the target".to_owned(),
            kind: ErrorKind::InvalidConfig,
            hints: vec!["put the name back into `hosts` of the target".to_owned()],
        }
    }

    /// Adds to an error what to do about the host.
    pub fn hint(&self, error: Error) -> Error {
        self.hints.iter().fold(error, |error, hint| error.hint(hint.as_str()))
    }

    /// Returns the finding that tells so.
    pub fn finding(&self, text: String) -> Finding {
        let finding = Finding::warning("HOSTS-SILENT", text);
        if self.hints.is_empty() { finding } else { finding.fix(self.hints.join("; ")) }
    }

    /// Returns the error of a question that this host alone could have answered.
    pub fn error(&self, host: &str) -> Error {
        // One that refuses the login answers.
        let (does, kind) = match self.kind {
            kind @ (ErrorKind::Credentials | ErrorKind::InvalidConfig) => ("cannot be asked", kind),
            _ => ("does not answer", ErrorKind::Unreachable),
        };
        let error = Error::new(kind, format!("host {host} {does}, and may have the job: {}", self.why));
        let error = self.hint(error);
        if kind == ErrorKind::Unreachable { error.retryable() } else { error }
    }
}

/// What the hosts answered, by name.
pub type Looks = BTreeMap<String, Result<HostLook, NoAnswer>>;

/// What one host answered.
#[derive(Clone, Debug, Default)]
pub struct HostLook {
    /// The host's own name and boot, by which two names of one machine are noticed.
    pub machine: String,
    /// Its address for the other hosts.
    pub address: String,
    /// The port of its sshd.
    pub ssh_port: u16,
    /// The user there.
    pub user: String,
    /// The public keys of its sshd.
    pub keys: Vec<String>,
    pub jobs: BTreeMap<SubmissionId, (Allocation, usize, Node)>,
    /// The submission that has the host.
    pub busy: Option<String>,
}

/// The phase of an attempt on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptPhase {
    Starting,
    Running,
    Suspended,
    Stopping,
    Ended,
}

/// How an attempt ended on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptEnd {
    Done,
    Failed,
    Cancelled,
    TimeLimit,
    /// It was told to stop, since another host failed.
    Stopped,
}

/// The supervisor of a job on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervisor {
    /// It has not begun yet.
    #[default]
    Absent,
    Alive,
    Killed,
    /// The host was started again while the job ran.
    Rebooted,
}

impl Supervisor {
    fn read(value: &str) -> Self {
        match value {
            "yes" => Self::Alive,
            "no" => Self::Killed,
            "rebooted" => Self::Rebooted,
            _ => Self::Absent,
        }
    }
}

/// The state of a job on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Attempts that were started.
    pub gos: BTreeSet<u32>,
    /// The phase that the supervisor wrote last.
    pub phase: Option<AttemptPhase>,
    /// The attempt of that phase.
    pub attempt: u32,
    pub supervisor: Supervisor,
    /// Processes that run without a supervisor.
    pub orphans: u32,
    /// How the attempt ended.
    pub end: Option<AttemptEnd>,
    /// The exit code that ended it.
    pub code: Option<i32>,
    /// The rank whose code it is.
    pub rank: Option<u32>,
    /// Why, in the supervisor's words.
    pub why: String,
    /// Seconds since its start.
    pub elapsed: u64,
    /// Whether the disk was full.
    pub full: bool,
    /// Whether it was told to cancel the job, which may not be done yet.
    pub asked: bool,
    /// How the whole job ended, once that was known.
    pub verdict: Option<Verdict>,
}

/// How a job ended: its phase, the reason, and the exit code. It is written to the hosts once all of them are known to have ended, so
/// that it is still known while one of them does not answer.
pub type Verdict = (JobPhase, String, Option<i32>);

impl HostLook {
    /// Returns the keys of its sshd as lines of a file of known hosts.
    pub fn known_hosts(&self, address: &str, port: u16) -> String {
        let name = if port == 22 { address.to_owned() } else { format!("[{address}]:{port}") };
        self.keys.iter().map(|key| format!("{name} {key}\n")).collect()
    }

    /// Reads the output of `weftrun_look`.
    pub fn read(text: &str) -> Self {
        let mut look = Self::default();
        let mut job: Option<(Lines, Node)> = None;
        for line in text.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match (key, &mut job) {
                ("job", _) => job = Some((Lines::default(), Node::default())),
                ("end", open) => {
                    let whole = open.take().and_then(|(lines, node)| Some((lines.whole()?, node)));
                    if let Some(((place, at), node)) = whole.filter(|_| look.jobs.len() < MOST_JOBS) {
                        look.jobs.insert(place.submission.clone(), (place, at, node));
                    }
                }
                (_, Some((lines, node))) => {
                    lines.take(key, value);
                    node.take(key, value);
                }
                ("machine", None) => look.machine = clean(value),
                ("address", None) => look.address = word(value),
                ("ssh-port", None) => look.ssh_port = value.parse().unwrap_or(22),
                ("user", None) => look.user = word(value),
                ("key", None) if look.keys.len() < 16 => look.keys.push(clean(value)),
                ("busy", None) => look.busy = Some(word(value)),
                _ => {}
            }
        }
        look
    }
}

/// Reads `PHASE CODE WHY`; `-` for no code.
fn verdict(text: &str) -> Option<Verdict> {
    let mut words = text.splitn(3, ' ');
    let phase = words.next()?;
    let phase = [JobPhase::Succeeded, JobPhase::Failed, JobPhase::Cancelled]
        .into_iter()
        .find(|p| p.as_str() == phase)?;
    let code = words.next()?.parse().ok();
    Some((phase, clean(words.next().unwrap_or_default()), code))
}

/// Returns the first word of a text, cleaned.
fn word(text: &str) -> String {
    clean(text.split_whitespace().next().unwrap_or_default())
}

impl Node {
    pub(super) fn take(&mut self, key: &str, value: &str) {
        match key {
            "go" => self.gos.extend(value.parse::<u32>().ok()),
            "phase" => self.phase = serde_json::from_value(word(value).into()).ok(),
            "attempt" => self.attempt = value.parse().unwrap_or(0),
            "alive" => self.supervisor = Supervisor::read(&word(value)),
            "orphans" => self.orphans = value.trim().parse().unwrap_or(0),
            "how" => self.end = serde_json::from_value(word(value).into()).ok(),
            "code" => self.code = value.parse().ok(),
            "rank" => self.rank = value.parse().ok(),
            "why" => self.why = clean(value),
            "elapsed" => self.elapsed = value.parse().unwrap_or(0),
            "full" => self.full = true,
            "asked" => self.asked = true,
            "verdict" => self.verdict = verdict(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use weftrun_core::spec::Launch;

    use super::super::allocation::tests::place;
    use super::*;

    #[test]
    fn an_answer_of_a_host_is_read_and_cleaned() {
        let text = format!(
            "up 77\nmachine a boot\naddress 10.0.0.1\nuser me\njob x\n{}go 0\nalive yes\nphase running\nwhy \u{1b}[31mred\nend\njob y\nname cut\nend\nbusy 0000\n",
            place(Launch::PerRank, 0).text(1)
        );
        let look = HostLook::read(&text);
        assert_eq!(
            (look.address.as_str(), look.busy.as_deref(), look.jobs.len()),
            ("10.0.0.1", Some("0000"), 1)
        );
        let (_, at, node) = &look.jobs[&SubmissionId::from_random(7)];
        assert_eq!((*at, node.why.as_str(), node.gos.len()), (1, "[31mred", 1));
    }

    #[test]
    fn a_hostile_verdict_is_none() {
        for hostile in ["running 0 ", "failed", "succeeded\u{1b}[0m 0 x"] {
            assert_eq!(verdict(hostile), None, "{hostile:?}");
        }
    }
}
