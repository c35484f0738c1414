//! The process list: what `render` prints, what a job folder holds, what the supervisor starts.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use weftrun_core::backend::Rendered;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{Code, Launch};
use weftrun_core::{Error, ErrorKind, Result};

/// Stands for a free port, which is chosen when an attempt starts.
pub(super) const MASTER_PORT: &str = "<master-port>";

/// A job as the local backend runs it: every process with its argv and environment.
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
    /// Most restarts of all processes after a failure.
    pub restarts: u32,
    /// Milliseconds between TERM and KILL.
    pub grace_ms: u64,
    /// Seconds it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<u64>,
    /// Working folder; the submitter's if none, or the folder of the code brought along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// What this backend does otherwise than the job asks, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Variables that must be in the submitter's environment, since this machine has no secret store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Environment of all processes.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Code brought along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The processes, by node and rank.
    #[serde(rename = "process")]
    pub processes: Vec<Process>,
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
    /// Number of the node in its role.
    pub replica: u32,
    /// Global rank, where the process is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment of its own, beside the job's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Shows no environment.
impl std::fmt::Debug for ProcessList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessList").field("processes", &self.processes).finish_non_exhaustive()
    }
}

/// Shows no environment.
impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("argv", &self.argv).finish_non_exhaustive()
    }
}

impl ProcessList {
    /// Reads the list back from what was rendered.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] if it is not one.
    pub fn of(rendered: &Rendered) -> Result<Self> {
        let text = rendered.documents.first().map_or("", |document| document.text.as_str());
        Self::parse(text)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with the place of the mistake.
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

    /// Number of ranks of the job, where the processes know it.
    pub fn world(&self) -> Option<u32> {
        self.processes.iter().find_map(|process| process.number("WORLD_SIZE"))
    }

    /// The ranks behind each process, in the order of the processes.
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

    /// Its text.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] if a value has no form in TOML, which none of these types has.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the process list cannot be written as TOML").source(error)
        })
    }
}

impl Process {
    /// A number in its environment.
    fn number(&self, name: &str) -> Option<u32> {
        self.env.get(name)?.parse().ok()
    }
}

/// Whether a text can be a file's name without leading anywhere else.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}
