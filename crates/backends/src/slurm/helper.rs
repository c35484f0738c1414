//! Helper programs with a time limit: when it passes, the program ends with everything that it started.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Kills a process group when dropped, unless its leader was seen to end: the processes that the leader left behind on
/// purpose (the shared connection of `ssh`) live on then.
#[derive(Debug)]
pub struct GroupGuard(Option<Pid>);

impl GroupGuard {
    /// Guards the group that a child leads; the child was started with `process_group(0)`.
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Lets the group live: its leader has ended.
    pub fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // The leader is not reaped while this guard is armed, so the number is still its own.
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when the limit passed and the program was killed; else why it could not be started.
pub async fn output(mut command: Command, limit: Duration) -> io::Result<Output> {
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let mut guard = GroupGuard::of(&child);
    let output = tokio::time::timeout(limit, child.wait_with_output()).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("no end within {} s", limit.as_secs()))
    })?;
    guard.disarm();
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_helper_that_hangs_ends_with_everything_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 300 & echo $! > \"$0\"; wait"]).arg(&pid);
        let ended = output(command, Duration::from_secs(2)).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        let pid = std::fs::read_to_string(&pid).unwrap();
        let status = format!("/proc/{}/stat", pid.trim());
        for _ in 0..100 {
            // A killed process that nobody reaped yet is a zombie.
            match std::fs::read_to_string(&status) {
                Ok(text) if !text.contains(") Z ") => tokio::time::sleep(Duration::from_millis(100)).await,
                _ => return,
            }
        }
        panic!("the program that the helper started still runs");
    }

    #[tokio::test]
    async fn a_helper_that_ends_gives_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = output(command, Duration::from_mins(1)).await.unwrap();
        assert_eq!(
            (output.stdout, output.stderr, output.status.code()),
            (b"out\n".to_vec(), b"err\n".to_vec(), Some(3))
        );
    }
}
