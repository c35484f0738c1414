//! The hosts' errors become [`weftrun_core::Error`].

use weftrun_core::{Error, ErrorKind};

use crate::remote::Answer;
use crate::remote::error::last_line;

/// Exit codes of the functions in `node.sh`.
pub const BUSY: i32 = 90;
/// The folder cannot be written.
pub const NO_ROOM: i32 = 91;
/// The rendered document is not a shell program.
pub const NO_SHELL: i32 = 92;
/// There is no such job.
pub const NO_JOB: i32 = 93;
/// The supervisor did not start.
pub const NO_START: i32 = 94;
/// The job has ended.
pub const ENDED: i32 = 95;
/// The supervisor does not answer.
pub const MUTE: i32 = 96;

/// Returns the error of a program that failed on a host.
pub fn failed(host: &str, what: &str, answer: &Answer) -> Error {
    let said = last_line(&answer.stderr);
    let because = if said.is_empty() { format!("exit code {}", answer.code) } else { said };
    let error = Error::new(ErrorKind::Refused, format!("host {host}: {what}: {because}"));
    match answer.code {
        NO_ROOM => error.hint(format!(
            "free space or check the rights on {host}, or set `folder` of the target to a folder that you may write"
        )),
        NO_SHELL => Error::new(ErrorKind::InvalidSpec, format!("host {host}: the job is not a shell program: {because}"))
            .hint("correct the lines of `setup`, in `[backend.hosts]` of the job or in the target; `weftrun submit --dry-run` prints the document"),
        NO_START => Error::new(ErrorKind::Io, format!("host {host}: the job's supervisor does not start: {because}"))
            .retryable(),
        MUTE => Error::new(ErrorKind::Timeout, format!("host {host}: the job's supervisor does not answer")).retryable(),
        _ => error,
    }
}
