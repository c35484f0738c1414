//! Nodes, judged by the jobs that ran on them, and whether a job that failed is submitted again without one. Pure functions over
//! the records that `weftrun` keeps of jobs that have ended.

mod fault;
mod judgement;
mod record;
mod retry;

pub use fault::{Fault, faults};
pub(crate) use fault::{is_dead_nic, is_hardware_xid};
pub use judgement::{FoldedRuns, Judgement, LEAST_EVENTS, NodeEvent, NodeReport, NodeRuns, WINDOW, judge};
pub(crate) use record::unnamed_nodes;
pub use record::{BandwidthRecord, CauseRecord, JobRecord, RunId, SlowNode};
pub use retry::{Decision, MOST_LEFT_OUT, RetryInput, decide};

#[cfg(test)]
mod tests;
