//! Messages to the model, and its effects. Log bytes are in neither.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::KeyEvent;
use jiff::Timestamp;
use weftrun::core::backend::{Capability, FoundTarget};
use weftrun::core::fabric::FabricPlan;
use weftrun::core::finding::Evidence;
use weftrun::core::job::{Action as JobAction, JobDetail, JobEvent, JobHandle, JobSummary};
use weftrun::core::log::{Filter, LogPosition, Pattern, Projection};
use weftrun::core::spec::JobSpec;
use weftrun::report::HealthReport;
use weftrun::{Attempts, Finding};

use crate::action::Action;
use crate::model::draft::Planned;
use crate::model::logs::SharedStore;
use crate::model::transport_view::TransportView;
use crate::model::verify::VerifyView;
use crate::view::mouse_targets::MouseTarget;

/// Something that happened. Errors are already texts, for display only.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a queue of a thousand holds them, once")]
pub enum Msg {
    Key(KeyEvent),
    Paste(String),
    Click(MouseTarget),
    /// The wheel was turned: lines down, or up if negative.
    Wheel(i16),
    /// The terminal has another size: columns, rows.
    Resize(u16, u16),
    Now(Timestamp),
    /// An action was chosen without a key.
    Do(Action),
    Connected(String, Capability),
    Listed(String, Result<Vec<JobSummary>, String>),
    /// Which jobs are attempts of others.
    Attempts(Attempts),
    /// Something happened to a job of a target.
    Event(String, JobEvent),
    /// A target's events have stopped coming.
    Lost(String, String),
    Detail(JobHandle, Result<Box<Known>, String>),
    /// The open job's logs are read into this store.
    LogsOpened(JobHandle, SharedStore),
    /// The store has new lines.
    LogsGrew,
    /// How much of the log a count has searched, in percent.
    Searched(u64, u8),
    /// What a count has found: the ends of the history and of the live lines that it has reached, and the new lines with
    /// the text.
    Counted(u64, (u64, u64), Vec<LogPosition>),
    /// How much of a log a filter has read, in percent.
    Filtering(u64, u8),
    /// The lines that a filter shows.
    Filtered(u64, Box<Projection>),
    /// The number of the line of this store that proves a finding, if there is one.
    Evidence(SharedStore, Option<u64>),
    /// The logs were read to their end, or could not be read on.
    LogsEnded(JobHandle, Option<String>),
    TransportView(JobHandle, Arc<TransportView>),
    Planned(u64, Result<Box<Planned>, String>),
    /// A draft of this revision was checked by the cluster.
    Checked(u64, Result<Vec<Finding>, String>),
    Submitted(Result<JobHandle, String>),
    /// NCCL's RAS service in a job answered, or not.
    Health(JobHandle, Result<Box<HealthReport>, String>),
    Verify(Arc<VerifyView>),
    Acted(JobHandle, JobAction, Result<(), String>),
    /// The editor was closed, or a job file was read.
    Spec(Option<String>, Result<Box<JobSpec>, String>),
    /// A copied text was kept in a file, or not.
    Kept(Result<PathBuf, String>),
    Saved(Result<PathBuf, String>),
    /// Nothing was saved, since the file exists.
    Exists(PathBuf),
    /// Two jobs were described, to be compared.
    Compared(Result<Box<[Known; 2]>, String>),
    /// Something failed that only needs to be said.
    Failed(String),
    Demo(Result<JobHandle, String>),
    /// A path that is being typed was completed: the text before, and the paths that begin with it.
    Paths(String, Vec<String>),
    /// A found target was written into the configuration, or not.
    TargetAdded(String, Result<(), String>),
    /// Logs in files were opened as a job of a target of their own.
    LogsFound(Result<JobHandle, String>),
}

/// What is known of the open job.
#[derive(Debug)]
pub struct Known {
    pub detail: JobDetail,
    /// What was planned for it, if it was submitted here.
    pub plan: Option<FabricPlan>,
    /// The job as it was submitted, if it was submitted here.
    pub spec: Option<JobSpec>,
}

/// A count of the lines with a text.
#[derive(Debug)]
pub struct Count {
    pub number: u64,
    pub store: SharedStore,
    pub pattern: Pattern,
    /// What the lines must also match.
    pub filter: Filter,
    /// Ends of the history and of the live lines up to which they are counted already.
    pub counted: (u64, u64),
}

/// Something to do outside of the model.
#[derive(Debug)]
pub enum Effect {
    Quit,
    /// Give the terminal back to the shell.
    Sleep,
    /// Redraw everything, regardless of the terminal's contents.
    Redraw,
    /// Listen to the mouse wheel, or not.
    Mouse(bool),
    /// Query the jobs of all targets again.
    Refresh,
    /// Query the details of a job, and read its logs; `previous` for the attempt before.
    Open(JobHandle, bool),
    /// Ask for all of the open job again.
    Describe(JobHandle),
    /// Stop reading the open job's logs.
    Close,
    /// Query NCCL's RAS service in a job.
    Health(JobHandle),
    /// Run a benchmark with the nodes of a job.
    Verify(JobHandle),
    /// Stop the benchmark and cancel its jobs.
    StopVerify,
    Act(JobHandle, JobAction),
    /// Plan a draft: revision, target, job.
    Plan(u64, String, Box<JobSpec>),
    /// Ask the cluster about a draft.
    Check(u64, String, Box<JobSpec>),
    Submit(String, Box<JobSpec>),
    /// Open a draft in the editor.
    Edit(Box<JobSpec>),
    ReadJob(PathBuf),
    /// Put a text on the clipboard.
    Copy(String),
    /// Keep a copied text in a file, instead of the one copied before.
    Keep(PathBuf, String),
    Save(PathBuf, Vec<Vec<u8>>),
    /// Count the lines of a log with a text that a filter shows.
    Count(Box<Count>),
    /// Apply a filter to a large log: its number, the log, and the lines that it shows so far.
    Filter(u64, SharedStore, Box<Projection>),
    StopFilter,
    /// Find the first line of a log that proves a finding.
    Evidence(SharedStore, Vec<Evidence>),
    /// Save the lines of a log that a projection shows.
    Export(PathBuf, SharedStore, Box<Projection>),
    /// Describe two jobs, to compare them.
    Compare([JobHandle; 2]),
    /// List the paths that begin with a typed text.
    Paths(String),
    /// Run a command of the user, with variables.
    Run(String, Vec<(&'static str, String)>),
    Demo,
    /// Make a target of what was found.
    AddTarget(&'static str, FoundTarget),
    OpenLogs(PathBuf),
}
