//! Programs and files on other hosts, over the system's `ssh`: what the backends of Slurm and of plain hosts share.

pub mod code_store;
pub mod envelope;
pub mod error;
pub mod follow;
pub mod ops;
pub mod piece;
pub mod quote;
pub mod script;
pub mod signal;
pub mod ssh;
pub mod transport;

/// The output of a program, and its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, converted lossily.
    pub stderr: String,
    /// Exit code.
    pub code: i32,
}

impl Answer {
    /// Returns standard output as text, converted lossily.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}
