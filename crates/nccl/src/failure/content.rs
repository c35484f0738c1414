//! What a line may contain of a failure.

use super::Fact;

/// The content of a line.
pub(super) enum Content<'a> {
    /// A fact of a failure.
    Fact(Fact),
    /// A process is a rank of a communicator.
    Joined { rank: u32, world: u32, host: &'a [u8] },
    /// A rank or task runs on a host.
    On(&'a [u8]),
    /// A process runs on a host, with its `NCCL_HOSTID` if it has one.
    Host(&'a str, Option<&'a str>),
    /// A local rank is a global rank.
    Is { local: u32, rank: u32 },
    /// The process whose exit code stands above was ended by a signal.
    EndedBy(i32),
    /// The launcher of a node saw a worker fail.
    WorkerFailed,
    /// The launcher of a node ends.
    AgentEnded,
    /// The launcher starts its workers again.
    Restarts,
}
