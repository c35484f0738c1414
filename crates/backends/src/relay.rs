//! Runs a program and forwards its output as it arrives, for `exec`.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::Instant;
use weftrun_core::backend::{ExecSink, ExecStream};
use weftrun_core::{Error, ErrorKind, Result};

use crate::helper::GroupGuard;

/// How long the pipes of a program that has ended are still read while a process it started holds them open.
const AFTER_EXIT: Duration = Duration::from_secs(2);
const PIECE: usize = 32 << 10;

/// Runs a program to its end. When the future is dropped, a program without input is killed with its process
/// group. One with input is left to end itself: its input stays open only as long as the future exists, and a
/// program that is killed cannot end what it started on other hosts.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be started or read; [`ErrorKind::NotFound`] if there is no such program;
/// the error of the sink.
pub async fn relay(mut command: Command, input: Option<&str>, sink: &mut ExecSink<'_>) -> Result<ExitStatus> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(input.is_none());
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot read the output of `{program}`")).with_source(error)
    };
    let mut child = command.spawn().map_err(|error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("cannot start `{program}`")).with_source(error)
    })?;
    let mut guard = input.is_none().then(|| GroupGuard::of(&child));
    let mut stdin = child.stdin.take();
    if let (Some(stdin), Some(input)) = (&mut stdin, input) {
        // A shell that ended early closes its input; its output contains the reason.
        let _ = stdin.write_all(input.as_bytes()).await;
        let _ = stdin.flush().await;
    }
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Error::new(ErrorKind::Unexpected, "a program was started without its outputs"));
    };
    let (mut out, mut err) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut out_open, mut err_open) = (true, true);
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        let give_up = ended.map(|(_, last)| last + AFTER_EXIT);
        let read = tokio::select! {
            read = stdout.read(&mut out), if out_open => {
                let count = read.map_err(failed)?;
                out_open = count > 0;
                if let Some(bytes) = out.get(..count).filter(|bytes| !bytes.is_empty()) {
                    sink(ExecStream::Stdout, bytes)?;
                }
                true
            }
            read = stderr.read(&mut err), if err_open => {
                let count = read.map_err(failed)?;
                err_open = count > 0;
                if let Some(bytes) = err.get(..count).filter(|bytes| !bytes.is_empty()) {
                    sink(ExecStream::Stderr, bytes)?;
                }
                true
            }
            status = child.wait(), if ended.is_none() => {
                ended = Some((status.map_err(failed)?, Instant::now()));
                guard.iter_mut().for_each(GroupGuard::disarm);
                false
            }
            () = tokio::time::sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                out_open = false;
                err_open = false;
                false
            }
        };
        if let (Some((_, last)), true) = (&mut ended, read) {
            *last = Instant::now();
        }
        if let (Some((status, _)), false, false) = (ended, out_open, err_open) {
            return Ok(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    fn shell(script: &str) -> Command {
        let mut command = Command::from(child::command("sh"));
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_comes_before_the_program_ends_and_byte_for_byte() {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        let script = format!(
            "printf 'a\\000\\377'; echo err >&2; while [ ! -e '{}' ]; do sleep 0.05; done; printf b; exit 7",
            go.display()
        );
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = relay(shell(&script), None, &mut |stream, bytes| {
            if stream == ExecStream::Stdout {
                out.extend_from_slice(bytes);
            } else {
                err.extend_from_slice(bytes);
            }
            // The program continues only after its first bytes were read.
            if !out.is_empty() {
                std::fs::write(&go, "").unwrap();
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(
            (out.as_slice(), err.as_slice(), status.code()),
            (&b"a\0\xffb"[..], &b"err\n"[..], Some(7))
        );
    }

    #[tokio::test]
    async fn a_process_that_holds_the_pipes_delays_nothing_and_a_sink_that_fails_ends_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 300 & echo $! > '{}'; exit 4", pid.display());
        let status = relay(shell(&script), None, &mut |_, _| Ok(())).await.unwrap();
        assert_eq!(status.code(), Some(4));
        // The process belongs to the program and may continue; a test must leave nothing behind.
        let left = std::fs::read_to_string(&pid).unwrap();
        assert!(child::command("kill").arg(left.trim()).status().unwrap().success());
        let script = format!("echo $$ > '{}'; echo x; exec sleep 300", pid.display());
        let full = || Err(Error::new(ErrorKind::Io, "full"));
        let failed = relay(shell(&script), None, &mut |_, _| full()).await;
        assert_eq!(failed.unwrap_err().message(), "full");
        crate::helper::tests::gone(&pid).await;
    }
}
