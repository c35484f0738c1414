//! Code brought along: written or cloned before the processes start.

use std::process::Stdio;

use tokio::process::Command;
use weftrun_core::spec::Code;
use weftrun_core::{Error, ErrorKind, Result};

use super::Supervisor;
use crate::local::{error, folder};

/// Puts the job's code into its folder.
pub(super) async fn bring(supervisor: &Supervisor) -> Result<()> {
    let Some(code) = &supervisor.list.code else { return Ok(()) };
    let target = supervisor.folder.code();
    match code {
        Code::Script { name, text } => {
            folder::make(&target)?;
            folder::write_new(&target.join(name), text.as_bytes())
        }
        Code::Git { url, rev } => {
            let target = target.display().to_string();
            git(supervisor, &["clone", "--quiet", "--", url, &target]).await?;
            match rev {
                Some(rev) if rev.starts_with('-') => {
                    Err(Error::new(ErrorKind::InvalidSpec, "a Git revision cannot start with `-`")
                        .with("rev", rev))
                }
                Some(rev) => {
                    git(supervisor, &["-C", &target, "checkout", "--quiet", "--detach", rev, "--"]).await
                }
                None => Ok(()),
            }
        }
        _ => Err(Error::new(ErrorKind::Unsupported, "this way of bringing code along is not known here")),
    }
}

async fn git(supervisor: &Supervisor, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null()).env("GIT_TERMINAL_PROMPT", "0");
    command.env(crate::local::process::MARK, supervisor.list.submission.as_str());
    let output = command.output().await.map_err(|e| error::file("run git", supervisor.folder.path(), e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or("git said nothing").to_owned();
    Err(Error::new(ErrorKind::Refused, format!("git {}: {said}", arguments[0])))
}
