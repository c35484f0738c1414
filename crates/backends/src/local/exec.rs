//! `exec`: runs a command in the working folder and the environment of a rank's process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use tokio::process::Command;
use weftrun_core::backend::ExecRequest;
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

use super::process::{self, MARK};
use super::store::Store;
use crate::refusals;

/// The submission whose rank a command runs beside, in the command's environment.
const EXEC_OF: &str = "WEFTRUN_EXEC_OF";

type Environment = BTreeMap<OsString, OsString>;

impl Store {
    /// Returns the command, with the folder and environment of the rank's process.
    pub fn exec(&self, handle: &JobHandle, request: &ExecRequest) -> Result<Command> {
        let job = self.get(handle)?;
        let now = Self::snapshot(&job)?;
        refusals::ended(handle, now.phase)?;
        let Some((program, arguments)) = request.command.split_first() else {
            return Err(Error::new(ErrorKind::Usage, "there is no command to run"));
        };
        let mut processes: Vec<(i32, Environment)> = process::marked_environments(&job.submission)
            .into_iter()
            .map(|(pid, environment)| (pid, variables(&environment)))
            .collect();
        // A rank's process is older than those it starts, and usually has the smaller number.
        processes.sort_unstable_by_key(|(pid, _)| *pid);
        let first = now.record.iter().flat_map(|record| &record.processes).find_map(|it| it.identity.clone());
        let chosen = match request.rank {
            Some(rank) => processes.iter().find(|(_, environment)| rank_of(environment) == Some(rank)),
            None => processes
                .iter()
                .find(|(pid, _)| first.as_ref().is_some_and(|first| first.pid == *pid))
                .or_else(|| processes.first()),
        };
        let Some((pid, environment)) = chosen else {
            return Err(missing(request.rank, &processes).with("handle", handle));
        };
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        if !folder.is_dir() {
            let message = "the working directory of the process is gone";
            return Err(Error::new(ErrorKind::Refused, message).with("directory", folder.display()));
        }
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).env_clear().envs(environment);
        // It is not a process of the job, and may outlive it.
        command.env_remove(MARK);
        // Other jobs may run on this machine: a script can tell their processes from those of this job.
        command.env(EXEC_OF, &job.submission);
        Ok(command)
    }
}

fn missing(rank: Option<u32>, processes: &[(i32, Environment)]) -> Error {
    let Some(rank) = rank else {
        return Error::new(ErrorKind::Refused, "no process of the job runs now");
    };
    let mut ranks: Vec<u32> = processes.iter().filter_map(|(_, environment)| rank_of(environment)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let ranks: Vec<String> = ranks.iter().take(64).map(u32::to_string).collect();
    Error::new(ErrorKind::NotFound, format!("no process of rank {rank} runs"))
        .with("ranks with a process", if ranks.is_empty() { "none".to_owned() } else { ranks.join(", ") })
}

fn variables(bytes: &[u8]) -> Environment {
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let (name, value) = variable.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    });
    variables.collect()
}

/// Returns the global rank, from the variable that the launcher sets.
fn rank_of(environment: &Environment) -> Option<u32> {
    ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"]
        .iter()
        .find_map(|name| environment.get(std::ffi::OsStr::new(name))?.to_str()?.parse().ok())
}
