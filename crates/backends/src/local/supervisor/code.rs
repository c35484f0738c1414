//! The job's code, written or cloned before the processes start.

use std::time::Duration;

use tokio::process::Command;
use weftrun_core::fabric::PROFILER_PATH;
use weftrun_core::spec::{Code, git};
use weftrun_core::{Error, ErrorKind};

use super::requests::Requests;
use super::{Stop, Supervisor};
use crate::helper::{Helper, NoOutput};
use crate::local::document::Process;
use crate::local::{error, folder, process};

/// Longest wait for git to end after TERM: it has nothing to save.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Why the code is not available.
pub(super) enum Failed {
    /// It could not be written or cloned.
    Error(Error),
    /// The job was ended meanwhile.
    Stopped(Stop),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Writes or clones the job's code into its folder. A clone from a server that does not answer ends with the
/// job: by a cancel, by its time limit, and when the supervisor is terminated.
pub(super) async fn bring(supervisor: &mut Supervisor, requests: &mut Requests) -> Result<(), Failed> {
    let names_library = |process: &Process| process.env.values().any(|value| value == PROFILER_PATH);
    if supervisor.list.processes.iter().any(names_library)
        && let Some(library) = weftrun_profiler::library(std::env::consts::ARCH)
    {
        folder::write_new(&supervisor.folder.of(folder::LIBRARY), library)?;
    }
    let Some(code) = supervisor.list.code.clone() else { return Ok(()) };
    let target = supervisor.folder.of(folder::CODE);
    match &code {
        Code::Script { name, text } => {
            folder::make(&target)?;
            Ok(folder::write_new(&target.join(name), text.as_bytes())?)
        }
        Code::Git { url, rev } => {
            let target = target.display().to_string();
            if let Some(why) = git::refusal(url) {
                let message = format!("the code cannot be cloned: {why}");
                return Err(Error::new(ErrorKind::InvalidSpec, message).with("git", url).into());
            }
            let protocols = git::protocols(url);
            let clone = ["clone", "--quiet", "--", url, &target];
            run(supervisor, requests, git_command(protocols, &clone), "git clone").await?;
            match rev {
                Some(rev) if rev.starts_with('-') => {
                    let message = "a Git revision cannot start with `-`";
                    Err(Error::new(ErrorKind::InvalidSpec, message).with("rev", rev).into())
                }
                Some(rev) => {
                    let checkout = ["-C", &target, "checkout", "--quiet", "--detach", rev, "--"];
                    run(supervisor, requests, git_command(protocols, &checkout), "git checkout").await
                }
                None => Ok(()),
            }
        }
        Code::Folder { .. } => {
            folder::make(&target)?;
            let archive = supervisor.folder.of(folder::ARCHIVE);
            let mut command = Command::new("tar");
            command.arg("-xzf").arg(&archive).arg("-C").arg(&target);
            run(supervisor, requests, command, "tar").await?;
            let _ = std::fs::remove_file(&archive);
            Ok(())
        }
        _ => {
            let message = "this way of bringing code along is not known here";
            Err(Error::new(ErrorKind::Unsupported, message).into())
        }
    }
}

fn git_command(protocols: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).env("GIT_TERMINAL_PROMPT", "0").env("GIT_ALLOW_PROTOCOL", protocols);
    command
}

/// Runs a program in its own process group, which also contains the helpers of git. The whole group is ended if the job is
/// ended first. `what` is its name in messages.
async fn run(
    supervisor: &mut Supervisor,
    requests: &mut Requests,
    mut command: Command,
    what: &str,
) -> Result<(), Failed> {
    command.env(process::MARK, supervisor.list.submission.as_str());
    let grace = Duration::from_millis(supervisor.list.grace_ms).min(LONGEST_GRACE);
    let helper = Helper { end_children: true, grace, ..Helper::default() };
    let folder = supervisor.folder.path().to_owned();
    let stopped = tokio::time::timeout(Duration::from_secs(git::CLONE_LIMIT), supervisor.stopped(requests));
    let output = helper.run(command, stopped).await.map_err(|error| match error {
        NoOutput::Stopped(Ok(stop)) => Failed::Stopped(stop),
        NoOutput::Stopped(Err(_)) => {
            let message = format!("{what} did not end within {} s", git::CLONE_LIMIT);
            Error::new(ErrorKind::Timeout, message).into()
        }
        NoOutput::Failed(error) => error::file(&format!("run {what}"), &folder, error).into(),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    Err(Error::new(ErrorKind::Refused, format!("{what}: {why}")).into())
}
