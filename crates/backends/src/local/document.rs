//! The process list, which `render` prints, a job folder contains and the supervisor starts.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use weftrun_core::fabric::Fabric;
use weftrun_core::job::{Lane, SubmissionId};
use weftrun_core::spec::{Code, Launch};
use weftrun_core::{Error, ErrorKind, Result};

/// Placeholder for a free port, which is chosen when an attempt starts.
pub(super) const MASTER_PORT: &str = "<master-port>";

/// A job of the local backend: every process with its argv and environment.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ProcessList {
    /// Name of the job.
    pub name: String,
    /// The submission it belongs to.
    pub submission: SubmissionId,
    /// How its processes are started.
    pub launch: Launch,
    /// The fabric it was planned for.
    pub fabric: Fabric,
    /// Simulated nodes.
    pub nodes: u32,
    /// Largest number of restarts of all processes after a failure.
    pub restarts: u32,
    /// Milliseconds between TERM and KILL.
    pub grace_ms: u64,
    /// Time limit in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<u64>,
    /// Working folder; the submitter's by default, or the folder of the job's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Labels of the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Differences between the job's request and what this backend does, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The jobs that must have ended before its processes start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// The tasks of its set that must have ended before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// Variables that must be set in the submitter's environment, since this machine has no secret store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Environment of all processes.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Code delivered with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The processes, by node and rank.
    #[serde(rename = "process")]
    pub processes: Vec<Process>,
}

/// A job of this target that must have ended first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Dependency {
    /// Its handle or name, or that of a set of jobs; once it is claimed, its submission.
    pub job: String,
    /// Whether it must have succeeded.
    pub succeeded: bool,
}

/// One process the supervisor starts.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Process {
    /// Name, also of its log file: `node0/rank1`, `node1`, `launcher`.
    pub name: String,
    /// Role.
    pub role: String,
    /// Simulated node, over all roles.
    pub node: u32,
    /// Number of the node within its role.
    pub replica: u32,
    /// Global rank, if the process is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment of its own, in addition to the job's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Omits the environment.
impl std::fmt::Debug for ProcessList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessList").field("processes", &self.processes).finish_non_exhaustive()
    }
}

/// Omits the environment.
impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("argv", &self.argv).finish_non_exhaustive()
    }
}

impl ProcessList {
    /// Parses a list.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with the position of the error.
    pub fn parse(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text).map_err(|error| {
            Error::new(ErrorKind::InvalidSpec, format!("the process list is invalid: {}", error.message()))
        })?;
        match list.processes.iter().find(|process| !process.name.split('/').all(is_plain)) {
            None => Ok(list),
            Some(bad) => Err(Error::new(ErrorKind::InvalidSpec, "a process name is not a plain file name")
                .with("name", format!("{:?}", bad.name))),
        }
    }

    /// Returns the number of ranks of the job, if its processes have it in their environment.
    pub fn world(&self) -> Option<u32> {
        self.processes.iter().find_map(|process| process.number("WORLD_SIZE"))
    }

    /// Returns the ranks behind each process, in the order of the processes.
    pub fn ranks(&self) -> Vec<Option<Range<u32>>> {
        if let ([only], Some(world)) = (self.processes.as_slice(), self.world())
            && only.rank.is_none()
        {
            return vec![Some(0..world)];
        }
        let mut next = 0;
        let mut of = |process: &Process| {
            let first = process.rank.unwrap_or(next);
            let count = process.rank.map_or_else(|| process.number("LOCAL_WORLD_SIZE"), |_| Some(1))?;
            next = first.saturating_add(count);
            Some(first..next)
        };
        self.processes.iter().map(&mut of).collect()
    }

    /// Returns its text.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] if a value cannot be expressed in TOML, which is true of none of these
    /// types.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the process list cannot be written as TOML").with_source(error)
        })
    }
}

impl Process {
    /// Returns a number from its environment.
    fn number(&self, name: &str) -> Option<u32> {
        self.env.get(name)?.parse().ok()
    }
}

/// Returns whether a text is safe as a file name, without path components.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}
