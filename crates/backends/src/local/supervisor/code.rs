//! Code brought along: written or cloned before the processes start.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use weftrun_core::spec::Code;
use weftrun_core::{Error, ErrorKind};

use super::requests::Told;
use super::{Stop, Supervisor};
use crate::local::{error, folder, process};

/// Bytes kept of what git says.
const LONGEST_SAID: u64 = 64 << 10;
/// Longest wait for git to end on TERM: it has nothing to save.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Why the code did not come.
pub(super) enum Failed {
    /// It could not be brought.
    Error(Error),
    /// The job was ended meanwhile.
    Stopped(Stop),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Puts the job's code into its folder. A clone from a server that does not answer ends with the job: by a cancel, by its
/// time limit, and when the supervisor is told to end.
pub(super) async fn bring(supervisor: &mut Supervisor, told: &mut Told) -> Result<(), Failed> {
    let Some(code) = supervisor.list.code.clone() else { return Ok(()) };
    let target = supervisor.folder.code();
    match &code {
        Code::Script { name, text } => {
            folder::make(&target)?;
            Ok(folder::write_new(&target.join(name), text.as_bytes())?)
        }
        Code::Git { url, rev } => {
            let target = target.display().to_string();
            git(supervisor, told, &["clone", "--quiet", "--", url, &target]).await?;
            match rev {
                Some(rev) if rev.starts_with('-') => {
                    let message = "a Git revision cannot start with `-`";
                    Err(Error::new(ErrorKind::InvalidSpec, message).with("rev", rev).into())
                }
                Some(rev) => {
                    git(supervisor, told, &["-C", &target, "checkout", "--quiet", "--detach", rev, "--"])
                        .await
                }
                None => Ok(()),
            }
        }
        _ => {
            let message = "this way of bringing code along is not known here";
            Err(Error::new(ErrorKind::Unsupported, message).into())
        }
    }
}

/// Runs git in a process group of its own, which also holds the helpers it starts for a transport. The group is ended as
/// a whole where the job is ended first.
async fn git(supervisor: &mut Supervisor, told: &mut Told, arguments: &[&str]) -> Result<(), Failed> {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("GIT_TERMINAL_PROMPT", "0").process_group(0).kill_on_drop(true);
    command.env(process::MARK, supervisor.list.submission.as_str());
    let failed = |e| error::file("run git", supervisor.folder.path(), e);
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    let mut said = Vec::new();
    let stderr = child.stderr.take();
    let done = async {
        if let Some(stderr) = stderr {
            stderr.take(LONGEST_SAID).read_to_end(&mut said).await?;
        }
        child.wait().await
    };
    let stopped = supervisor.stopped(told);
    let ended = tokio::select! {
        biased;
        stop = stopped => Err(stop),
        status = done => Ok(status),
    };
    let status = match ended {
        Ok(status) => status.map_err(|e| error::file("run git", supervisor.folder.path(), e))?,
        Err(stop) => {
            end_group(&mut child, group, Duration::from_millis(supervisor.list.grace_ms)).await;
            return Err(Failed::Stopped(stop));
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    Err(Error::new(ErrorKind::Refused, format!("git {}: {why}", arguments[0])).into())
}

/// Ends a process group: TERM, and KILL for what is left after the time it has for that.
async fn end_group(child: &mut Child, group: Option<i32>, grace: Duration) {
    let Some(group) = group else { return };
    process::signal_group(group, 15);
    let _ = tokio::time::timeout(grace.min(LONGEST_GRACE), child.wait()).await;
    // Helpers may outlive git; the number stays the group's as long as one of them lives.
    process::signal_group(group, 9);
    let _ = child.wait().await;
}
