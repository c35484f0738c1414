//! The exit codes of the command line. Scripts rely on them; they do not change.

use crate::ErrorKind;

/// Success.
pub const OK: u8 = 0;
/// The job failed. Takes precedence over [`FABRIC_NOT_AS_PLANNED`].
pub const JOB_FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// A job file, manifest or script is invalid, or lint found errors.
pub const INVALID_SPEC: u8 = 3;
/// The cluster refused the request, credentials are invalid, or the backend cannot do this.
pub const REFUSED: u8 = 4;
/// The cluster could not be reached.
pub const UNREACHABLE: u8 = 5;
/// There is no such job, target, backend or file.
pub const NOT_FOUND: u8 = 6;
/// The pairs of ranks prove another fabric than planned.
pub const FABRIC_NOT_AS_PLANNED: u8 = 7;
/// A bug in weftrun.
pub const BUG: u8 = 70;
/// The time allowed ran out.
pub const TIMEOUT: u8 = 124;
/// Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Returns the exit code of an error kind.
pub fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage => USAGE,
        ErrorKind::InvalidSpec | ErrorKind::InvalidConfig => INVALID_SPEC,
        ErrorKind::Refused
        | ErrorKind::Credentials
        | ErrorKind::Unsupported
        | ErrorKind::AlreadyExists
        | ErrorKind::Protocol
        | ErrorKind::Io => REFUSED,
        ErrorKind::Unreachable => UNREACHABLE,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Timeout => TIMEOUT,
        ErrorKind::Interrupted => INTERRUPTED,
        ErrorKind::FabricNotAsPlanned => FABRIC_NOT_AS_PLANNED,
        ErrorKind::Unexpected => BUG,
    }
}
