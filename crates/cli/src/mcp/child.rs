//! Runs a verb of this program in a process of its own: it has its own output and its own end, and can be stopped.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use weftrun::{Error, ErrorKind, Result};

/// How long a verb that was told to end has, before it is killed: `submit` names the job that it has made.
const GRACE: Duration = Duration::from_secs(5);
/// The part of stderr that is kept.
const MESSAGES: usize = 64 << 10;

/// The verbs that run, by their process groups.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Tells all verbs to end: the server ends, and nobody waits for their answers.
pub fn stop_all() {
    for group in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = kill_process_group(group, Signal::TERM);
    }
}

/// How a verb ended, and the last part of what it printed.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: Printed,
    pub err: Printed,
}

/// The last part of a stream.
#[derive(Debug, Default)]
pub struct Printed {
    pub text: String,
    /// The lines of the whole stream.
    pub lines: usize,
    pub is_whole: bool,
}

/// Runs a verb to its end. If this future is dropped, because the request was cancelled or its time ran out, the verb and the
/// programs that it started are told to end.
///
/// # Errors
/// [`ErrorKind::Io`] if the program cannot be started.
pub async fn run(program: &Path, args: &[String], keep: usize) -> Result<Ran> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot run `{}`: {error}", program.display())).with_source(error)
    };
    let mut command = Command::new(program);
    // Not the streams of the protocol.
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).extend(group);
    let mut child = Stop(Some(child), group);
    let Some(running) = child.0.as_mut() else { return Err(Error::new(ErrorKind::Io, "no process")) };
    let (out, err) = (running.stdout.take(), running.stderr.take());
    let (out, err) = tokio::try_join!(last(out, keep), last(err, MESSAGES)).map_err(failed)?;
    let status = running.wait().await.map_err(failed)?;
    child.0 = None;
    Ok(Ran { code: status.code().unwrap_or(-1), out, err })
}

/// Reads a stream to its end, and keeps its last part.
async fn last(stream: Option<impl AsyncRead + Unpin>, keep: usize) -> std::io::Result<Printed> {
    let Some(mut stream) = stream else { return Ok(Printed::default()) };
    let (mut kept, mut chunk, mut lines, mut is_whole) = (Vec::new(), vec![0; 1 << 16], 0, true);
    loop {
        let read = stream.read(&mut chunk).await?;
        lines += memchr::memchr_iter(b'\n', &chunk[..read]).count();
        kept.extend_from_slice(&chunk[..read]);
        let surplus = kept.len().saturating_sub(keep);
        // Moved seldom, so that a long stream is read in linear time.
        if surplus > 0 && (read == 0 || surplus > keep) {
            kept.drain(..surplus);
            is_whole = false;
        }
        if read == 0 {
            return Ok(Printed { text: String::from_utf8_lossy(&kept).into_owned(), lines, is_whole });
        }
    }
}

/// A process that is told to end when this is dropped before it has ended.
#[derive(Debug)]
struct Stop(Option<Child>, Option<Pid>);

impl Drop for Stop {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| Some(*group) != self.1);
        let (Some(mut child), Some(group)) = (self.0.take(), self.1) else { return };
        let _ = kill_process_group(group, Signal::TERM);
        // Without a runtime the server itself ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait().await;
            }
        });
    }
}
