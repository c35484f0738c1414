//! Runs small shell programs on a host: this one, or another over the system's `ssh`.
//!
//! A program is passed to `/bin/sh` on its standard input, so that only `sh` parses it and not the login
//! shell, none of it is visible in a process list, and no length limit applies. Its output is enclosed in two
//! unguessable marker lines: output of login scripts before the first is dropped, and if the second is
//! missing, the connection was lost, regardless of the exit code of `ssh`. The whole program is one function,
//! so that a partially received program does not run.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use weftrun_core::backend::{ExecSink, ExecStream};
use weftrun_core::{Error, ErrorKind, Result};

use super::ssh::Ssh;
use super::{Answer, envelope, error, quote};
use crate::helper::{GroupGuard, drain};

/// Largest output of a program: 100,000 jobs are 20 MB.
const MOST_OUTPUT: u64 = 256 << 20;

/// What fails sooner is tried again at once.
const SOON: Duration = Duration::from_secs(1);

/// The host where programs run.
pub struct Transport {
    /// The host that `ssh` reaches; none for this host.
    pub ssh: Option<Ssh>,
    /// Environment of the shell here, or of `ssh`.
    pub env: Vec<(String, String)>,
    /// Shell code before every program.
    pub preamble: String,
    /// Time limit of a program.
    pub timeout: Duration,
    /// The hint of an error about the time limit.
    pub late: &'static str,
}

/// Written by hand, since the environment contains secrets.
impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("ssh", &self.ssh).finish_non_exhaustive()
    }
}

impl Transport {
    /// Returns the host, for messages.
    pub fn host(&self) -> &str {
        self.ssh.as_ref().map_or("this host", Ssh::host)
    }

    /// Runs a program. An exit code other than 0 is an answer, not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] (retryable) if no complete answer came: the program may have run or not.
    pub async fn run(&self, program: &str) -> Result<Answer> {
        self.exchange(program, AtLimit::Kill).await.map_err(|failure| failure.error)
    }

    /// Runs a program that continues after the time limit: an `sbatch` that is killed leaves no answer.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub async fn run_detached(&self, program: &str) -> Result<Answer> {
        self.exchange(program, AtLimit::Leave).await.map_err(|failure| failure.error)
    }

    /// Runs a program that may run twice, and repeats it after a lost connection: a shared connection that died is noticed only when it
    /// is used. Where no connection was made in a second, another try would only take as long again.
    ///
    /// # Errors
    /// As [`Transport::run`].
    pub async fn read(&self, program: &str) -> Result<Answer> {
        match self.exchange(program, AtLimit::Kill).await {
            Err(Failure { error, again: true }) if error.is_retryable() => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.run(program).await
            }
            answer => answer.map_err(|failure| failure.error),
        }
    }

    /// Runs a program without a time limit, forwards its output to the sink, and returns its exit code. For
    /// the program's descriptor 3 see [`envelope::Envelope::wrap_open`].
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if the connection ended first, and the error of the sink.
    pub async fn relay(&self, program: &str, sink: &mut ExecSink<'_>) -> Result<i32> {
        let envelope = envelope::Envelope::new();
        let text = envelope.wrap_open(&self.preamble, program);
        let command = self.shell().await;
        let (mut out, mut err, mut before) = (envelope.reader(), envelope.reader(), Vec::new());
        crate::relay::relay(command, Some(&text), &mut |stream, bytes| {
            let ready = if stream == ExecStream::Stdout { out.take(bytes) } else { err.take(bytes) };
            if stream == ExecStream::Stderr && !err.has_begun() {
                before = bytes.to_vec();
            }
            if ready.is_empty() { Ok(()) } else { sink(stream, &ready) }
        })
        .await?;
        out.code().ok_or_else(|| self.lost(&before, out.has_begun()))
    }

    /// Returns the command that runs a program on the host with the caller's input and output; with a terminal of its own if
    /// asked for. The program is an argument, since the input is the user's: it is visible in the host's process list.
    pub async fn interactive(&self, program: &str, terminal: bool) -> Result<Command> {
        let text = format!("{}{program}", self.preamble);
        let mut command = match &self.ssh {
            None => {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", &text]);
                command
            }
            Some(ssh) => ssh.interactive(&format!("exec /bin/sh -c {}", quote::word(&text)?), terminal).await,
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Returns a shell on the host, with the environment.
    async fn shell(&self) -> Command {
        let mut command = match &self.ssh {
            None => here(),
            Some(ssh) => ssh.command().await,
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    async fn exchange(&self, program: &str, at_limit: AtLimit) -> std::result::Result<Answer, Failure> {
        let (timeout, began) = (self.timeout, Instant::now());
        let envelope = envelope::Envelope::new();
        let text = envelope.wrap(&self.preamble, program);
        let command = self.shell().await;
        // Over ssh the program runs on the other host, and only the local client is killed.
        let at_limit = if self.ssh.is_none() { at_limit } else { AtLimit::Kill };
        let once = |error| Failure { error, again: false };
        let (child, guard) = start(command, at_limit).map_err(|cause| once(self.could_not_start(cause)))?;
        let Ok(outcome) = tokio::time::timeout(timeout, exchange(child, guard, text)).await else {
            let error = Error::new(
                ErrorKind::Timeout,
                format!("no answer from {} within {} s", self.host(), timeout.as_secs()),
            )
            .hint(self.late);
            return Err(once(self.with_check(error.retryable())));
        };
        let lost = |said: &[u8], started| Failure {
            error: self.lost(said, started),
            again: started
                || began.elapsed() < SOON
                || !error::is_no_connection(&String::from_utf8_lossy(said)),
        };
        let raw = outcome
            .map_err(|cause| Failure { error: self.lost(&[], true).with_source(cause), again: true })?;
        envelope.unwrap(&raw.0, &raw.1).map_err(|started| lost(&raw.1, started))
    }

    /// Adds to the error of a host that did not answer how the user checks the connection.
    pub fn with_check(&self, error: Error) -> Error {
        match &self.ssh {
            Some(ssh) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout) => {
                error.hint(ssh.check())
            }
            _ => error,
        }
    }

    fn could_not_start(&self, cause: std::io::Error) -> Error {
        let program = if self.ssh.is_none() { "/bin/sh" } else { "ssh" };
        Error::new(ErrorKind::Io, format!("`{program}` could not be started")).with_source(cause)
    }

    fn lost(&self, stderr: &[u8], started: bool) -> Error {
        let stderr = String::from_utf8_lossy(stderr);
        match &self.ssh {
            Some(ssh) => {
                let error = error::of_ssh(ssh.host(), &stderr, started);
                match error.kind() {
                    ErrorKind::Credentials => error.hint(ssh.by_hand()),
                    _ => self.with_check(error),
                }
            }
            None => Error::new(ErrorKind::Unreachable, "a shell on this host ended before it answered")
                .with("it said", error::last_line(&stderr))
                .retryable(),
        }
    }
}

/// Why no complete answer came.
struct Failure {
    error: Error,
    /// Whether another try may have an answer at once.
    again: bool,
}

/// What happens to a program at its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtLimit {
    /// The program and everything it started are killed.
    Kill,
    /// The program continues to its own end.
    Leave,
}

/// Returns a shell on this host that reads its program from standard input, in a process group of its own: Ctrl-C at the
/// terminal ends weftrun, not a running submission.
fn here() -> Command {
    let mut command = Command::new("/bin/sh");
    command.process_group(0);
    command
}

/// Starts a program as the leader of a new process group.
fn start(mut command: Command, at_limit: AtLimit) -> std::io::Result<(Child, Option<GroupGuard>)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(at_limit == AtLimit::Kill);
    let child = command.spawn()?;
    let guard = (at_limit == AtLimit::Kill).then(|| GroupGuard::of(&child));
    Ok((child, guard))
}

/// Writes the program and reads both outputs to their end, concurrently.
async fn exchange(
    mut child: Child,
    mut guard: Option<GroupGuard>,
    program: String,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A shell that ended early closes its input; its output contains the reason.
            let _ = stdin.write_all(program.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let read_out = drain(stdout, MOST_OUTPUT, &mut out);
    let read_err = drain(stderr, 1 << 20, &mut err);
    let ((), read, complained) = tokio::join!(write, read_out, read_err);
    read?;
    complained?;
    child.wait().await?;
    if let Some(guard) = &mut guard {
        guard.disarm();
    }
    Ok((out, err))
}

/// Parses bytes as the output of a framed program.
#[cfg(fuzzing)]
pub fn fuzz_frame(bytes: &[u8]) {
    let _ = envelope::Envelope::new().unwrap(bytes, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(seconds: u64) -> Transport {
        Transport {
            ssh: None,
            env: Vec::new(),
            preamble: String::new(),
            timeout: Duration::from_secs(seconds),
            late: "wait",
        }
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let program = format!("sleep 300 &\necho $! > '{}'\nwait\n", pid.display());
        let ended = here(2).run(&program).await.unwrap_err();
        assert_eq!((ended.kind(), ended.is_retryable()), (ErrorKind::Timeout, true));
        crate::helper::tests::gone(&pid).await;
    }

    #[tokio::test]
    async fn a_submitting_program_goes_on_after_the_time_limit() {
        let dir = tempfile::tempdir().unwrap();
        let done = dir.path().join("done");
        let program = format!("sleep 3\necho done > '{}'\n", done.display());
        let ended = here(1).run_detached(&program).await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Timeout);
        for _ in 0..200 {
            if std::fs::read_to_string(&done).is_ok_and(|text| text == "done\n") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the program was ended");
    }
}
