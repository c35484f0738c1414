//! A job after it was submitted: its handle, its phase, its events.

mod age;
mod event;
mod handle;
mod odd;
mod order;
mod status;
mod tasks;

pub use age::age;
pub use event::{Action, JobEvent};
pub use handle::{JobHandle, SubmissionId};
pub use odd::odd;
pub use order::{EventOrder, ordered};
pub use status::{JobDetail, JobFilter, JobPhase, JobSummary, ReplicaStatus, TIME_LIMIT_REACHED};
pub use tasks::{Lane, SET_LABEL, TASK_LABEL, TASK_ROLE, TASKS_LABEL, TaskCounts};
