//! How likely a fact is a cause, and not a consequence.

/// How much a fact explains: smaller is closer to the start of the chain of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    /// The cluster removed a process or a node.
    Cluster,
    /// The kernel or a person killed a process that its launcher saw fail first.
    Killed,
    /// The program failed by itself.
    Own,
    /// The cluster ended a job that ran.
    Ended,
    /// NCCL or its network failed on a rank, as a rule says.
    Nccl,
    /// Native code crashed, which also happens to victims while they end.
    Crashed,
    /// A link between two ranks failed, as a rule says.
    Link,
    /// An exception after a failure of NCCL on the same rank.
    Followed,
    /// An exception whose traceback is not in the log, as it is not of one that was handled either.
    Alone,
    /// A process ended with an exit code.
    Exited,
    /// Ranks disagree about a collective, or one did not join.
    Collective,
    /// NCCL warned of something that no rule explains.
    Warned,
    /// The program reports an error in its own words.
    Reported,
    /// Aborted, as watchdogs do with the ranks that wait for another.
    Aborted,
    /// Killed, as a launcher also does with the others.
    KilledWithOthers,
    /// The launcher saw another failure before, which is not in the log.
    Later,
    /// The processes did not find each other.
    Rendezvous,
    /// The time limit was reached.
    TimeLimit,
    /// A connection broke, as it does when another process ends.
    Broken,
    /// NCCL reports that another process ended.
    Remote,
    /// Ranks wait for one that is not named.
    Waiting,
    /// A line speaks of an error, which need not have ended anything.
    Quoted,
    /// A line says that something failed, in words that healthy programs print too.
    Mentioned,
}

impl Grade {
    /// Returns whether the cluster ended the job as a whole.
    pub fn ends_job(self) -> bool {
        matches!(self, Self::Ended | Self::TimeLimit)
    }

    /// Returns whether it only quotes a line: what that led to is not known.
    pub fn is_quote(self) -> bool {
        matches!(self, Self::Warned | Self::Quoted | Self::Mentioned)
    }
}
