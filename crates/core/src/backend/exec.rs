//! Running a command beside the ranks of a job.

/// A command to run where a job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecRequest {
    /// The program and its arguments; no shell reads them.
    pub command: Vec<String>,
    /// The global rank beside which it runs; the job's first node, pod or process if none.
    pub rank: Option<u32>,
    /// Whether it gets a terminal of its own, where it is attached to one.
    pub terminal: bool,
}

impl ExecRequest {
    /// Makes the request to run a command beside the first rank.
    pub fn new<W: Into<String>>(command: impl IntoIterator<Item = W>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Runs it beside this rank.
    #[must_use]
    pub fn on_rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }
}

/// The output of a command that bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives the output of a command as it comes. An error ends the command.
pub type ExecSink<'a> = dyn FnMut(ExecStream, &[u8]) -> crate::Result<()> + Send + 'a;
