//! Helper programs with a time limit: credential plugins, `ssh -G`, token commands, `git`. At the limit, a
//! program is ended together with everything that it started.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use weftrun_core::log::clean_text;
use weftrun_core::{Error, ErrorKind};

/// How long the pipes of a program that has ended are still read while a process it started holds them open.
const AFTER_EXIT: Duration = Duration::from_secs(2);
/// Largest output of a program that is kept.
const MOST_BYTES: u64 = 4 << 20;

/// Kills a process group when dropped, unless its leader was seen to end: processes that the leader left
/// behind on purpose (the shared connection of `ssh`) then continue.
#[derive(Debug)]
pub struct GroupGuard(Option<Pid>);

impl GroupGuard {
    /// Guards the group of which a child is the leader; the child was started with `process_group(0)`.
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Disarms the guard, since the group's leader has ended.
    pub fn disarm(&mut self) {
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // The leader is not reaped while this guard is armed, so its number is not reused.
        self.signal(Signal::KILL);
    }
}

/// How a helper program is run.
#[derive(Clone, Debug, Default)]
pub struct Helper {
    /// Its input; empty if none.
    pub input: Option<Vec<u8>>,
    /// It may prompt the user on the terminal: it keeps stdin and stderr, and this program's process group,
    /// which is the terminal's foreground.
    pub interactive: bool,
    /// Whether processes that it leaves behind when it ends by itself are killed.
    pub end_children: bool,
    /// Time to end after TERM; it is killed at once if zero.
    pub grace: Duration,
}

/// Why a helper program returned no output.
#[derive(Debug)]
pub enum NoOutput<T> {
    /// It could not be started or read.
    Failed(io::Error),
    /// It was ended first, for this reason.
    Stopped(T),
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the program was killed at the limit; otherwise why it could not be started.
pub async fn output(command: Command, limit: Duration) -> io::Result<Output> {
    Helper::default().output(command, limit).await
}

/// Returns what a target's `token-command` prints. The hint says what to do if it prints no token.
///
/// # Errors
/// [`ErrorKind::Credentials`] if the command fails, [`ErrorKind::InvalidConfig`] if there is none.
pub async fn token(argv: &[String], hint: &str) -> Result<String, Error> {
    let (program, arguments) =
        argv.split_first().ok_or_else(|| Error::new(ErrorKind::InvalidConfig, "`token-command` is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    let output = output(command, Duration::from_mins(1))
        .await
        .map_err(|cause| no_token(argv, &cause.to_string(), hint))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(no_token(argv, &format!("{}; {}", output.status, said.trim()), hint));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the error of a `token-command` that gave no token.
pub fn no_token(argv: &[String], why: &str, hint: &str) -> Error {
    let program = argv.first().map_or("", String::as_str);
    let why: String = clean_text(why).chars().take(400).collect();
    let message = format!("`{program}` gave no token: {why}");
    Error::new(ErrorKind::Credentials, message).hint(hint)
}

impl Helper {
    /// Runs a program to its end and returns its output.
    ///
    /// # Errors
    /// As [`output`].
    pub async fn output(&self, command: Command, limit: Duration) -> io::Result<Output> {
        self.run(command, tokio::time::sleep(limit)).await.map_err(|error| match error {
            NoOutput::Failed(error) => error,
            NoOutput::Stopped(()) => {
                io::Error::new(io::ErrorKind::TimedOut, format!("did not end within {} s", limit.as_secs()))
            }
        })
    }

    /// Runs a program until it ends or `stop` does, which then ends the program and everything that it
    /// started.
    ///
    /// # Errors
    /// [`NoOutput`].
    pub async fn run<T>(
        &self,
        mut command: Command,
        stop: impl Future<Output = T>,
    ) -> Result<Output, NoOutput<T>> {
        command.kill_on_drop(true).stdout(Stdio::piped());
        if self.interactive {
            command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
        } else {
            let input = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
            command.stdin(input).stderr(Stdio::piped()).process_group(0);
        }
        let mut child = command.spawn().map_err(NoOutput::Failed)?;
        let mut guard = GroupGuard::of(&child);
        if self.interactive {
            guard.disarm();
        }
        let stopped = {
            let collected = collect(&mut child, self.input.as_deref());
            tokio::pin!(collected);
            let stop = tokio::select! {
                biased;
                stop = stop => stop,
                output = &mut collected => {
                    if self.end_children {
                        guard.signal(Signal::KILL);
                    }
                    guard.disarm();
                    return output.map_err(NoOutput::Failed);
                }
            };
            if !self.grace.is_zero() {
                guard.signal(Signal::TERM);
                // Its pipes stay open: a program that writes while it ends would be killed by a closed one.
                let _ = tokio::time::timeout(self.grace, collected).await;
            }
            stop
        };
        guard.signal(Signal::KILL);
        let _ = child.start_kill();
        let _ = child.wait().await;
        guard.disarm();
        Err(NoOutput::Stopped(stopped))
    }
}

/// Reads a pipe, if there is one, to its end, or as much of it as is kept.
pub async fn drain(pipe: Option<impl AsyncRead + Unpin>, most: u64, into: &mut Vec<u8>) -> io::Result<()> {
    match pipe {
        Some(pipe) => pipe.take(most).read_to_end(into).await.map(drop),
        None => Ok(()),
    }
}

/// Returns the output of a program and how it ended. The program's own end counts, not that of processes
/// which hold its pipes.
async fn collect(child: &mut Child, input: Option<&[u8]>) -> io::Result<Output> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program may end without reading its input.
                let _ = stdin.write_all(input).await;
            }
            Ok(())
        };
        let read_out = drain(out, MOST_BYTES, &mut stdout);
        let read_err = drain(err, MOST_BYTES, &mut stderr);
        let pipes = async { tokio::try_join!(write, read_out, read_err).map(drop) };
        tokio::pin!(pipes);
        tokio::select! {
            biased;
            read = &mut pipes => {
                read?;
                child.wait().await?
            }
            status = child.wait() => {
                if let Ok(read) = tokio::time::timeout(AFTER_EXIT, pipes).await {
                    read?;
                }
                status?
            }
        }
    };
    Ok(Output { status, stdout, stderr })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use weftrun_testkit::child;

    /// Waits until the process is gone whose number is in a file; one that was killed and not yet reaped is a zombie.
    pub async fn gone(file: &Path) {
        let pid = std::fs::read_to_string(file).unwrap();
        let status = format!("/proc/{}/stat", pid.trim());
        for _ in 0..100 {
            match std::fs::read_to_string(&status) {
                Ok(text) if !text.contains(") Z ") => tokio::time::sleep(Duration::from_millis(100)).await,
                _ => return,
            }
        }
        panic!("process {pid} still runs");
    }

    fn shell(script: &str, argument: &Path) -> Command {
        let mut command = Command::from(child::command("sh"));
        command.args(["-c", script]).arg(argument);
        command
    }

    #[tokio::test]
    async fn a_helper_that_hangs_ends_with_everything_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let command = shell("sleep 300 & echo $! > \"$0\"; wait", &pid);
        let ended = output(command, Duration::from_secs(2)).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        gone(&pid).await;
    }

    #[tokio::test]
    async fn a_helper_that_is_stopped_has_its_grace() {
        let dir = tempfile::tempdir().unwrap();
        let (saved, up) = (dir.path().join("saved"), dir.path().join("up"));
        let script = format!(
            "trap 'echo done > {}; exit' TERM; echo up > {}; while :; do sleep 0.1; done",
            saved.display(),
            up.display()
        );
        let helper = Helper { grace: Duration::from_secs(60), ..Helper::default() };
        let stop = async {
            while !up.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            7
        };
        let ended = helper.run(shell(&script, dir.path()), stop).await.unwrap_err();
        assert!(matches!(ended, NoOutput::Stopped(7)), "{ended:?}");
        assert_eq!(std::fs::read_to_string(&saved).unwrap(), "done\n");
    }

    #[tokio::test]
    async fn what_a_helper_leaves_behind_lives_or_ends_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        for end_children in [true, false] {
            let pid = dir.path().join(format!("pid-{end_children}"));
            let helper = Helper { end_children, ..Helper::default() };
            let command = shell("sleep 300 > /dev/null 2>&1 & echo $! > \"$0\"", &pid);
            assert!(helper.output(command, Duration::from_mins(1)).await.unwrap().status.success());
            if end_children {
                gone(&pid).await;
            } else {
                let left: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
                let left = Pid::from_raw(left).unwrap();
                rustix::process::test_kill_process(left).unwrap();
                rustix::process::kill_process(left, Signal::KILL).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_helper_reads_its_input_and_gives_its_output() {
        let mut command = Command::from(child::command("sh"));
        command.args(["-c", "cat; echo err >&2; exit 3"]);
        let helper = Helper { input: Some(b"out\n".to_vec()), ..Helper::default() };
        let output = helper.output(command, Duration::from_mins(1)).await.unwrap();
        assert_eq!(
            (output.stdout, output.stderr, output.status.code()),
            (b"out\n".to_vec(), b"err\n".to_vec(), Some(3))
        );
    }

    #[tokio::test]
    async fn a_process_that_holds_the_pipes_delays_no_helper() {
        let mut command = Command::from(child::command("sh"));
        command.args(["-c", "echo out; sleep 300 & exit 0"]);
        let helper = Helper { end_children: true, ..Helper::default() };
        let output = helper.output(command, Duration::from_mins(4)).await.unwrap();
        assert_eq!(output.stdout, b"out\n");
    }
}
