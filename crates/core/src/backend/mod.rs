//! The interface to every kind of cluster.

mod capability;
mod entry;
mod exec;
mod found;
mod placement;
mod planned;
mod port;
mod registry;
mod rendered;
mod target;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

pub use crate::fabric::{ClusterFacts, NetworkApi, NodeGroup, NodeState, PodNetwork, Queue, Scope};
pub use capability::{Arrays, Capability};
pub use entry::{BackendEntry, ConnectFuture};
pub use exec::{ExecRequest, ExecSink, ExecStream};
pub use found::FoundTarget;
pub use placement::fix_of_placement;
pub use planned::PlannedJob;
pub use port::PortConnection;
pub use registry::Registry;
pub use rendered::{Document, Inexpressible, Language, Placeholder, Prepared, RANKS_HAVE_IT, Rendered};
pub use target::TargetConfig;

use crate::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId};
use crate::log::{LogBatch, LogOptions};
use crate::spec::JobSpec;
use crate::{Error, ErrorKind, Finding, Result};

/// A place where jobs run: one implementation for each kind of cluster, one value for each configured
/// target.
///
/// Every operation is implemented; one that the cluster cannot do returns
/// [`ErrorKind::Unsupported`] naming the [`Capability`], never nothing.
/// All streams are cancel-safe: dropping one at any point loses nothing that a new one would not give.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Returns what this backend can do.
    fn capability(&self) -> Capability;

    /// Queries what the cluster has: nodes, queues, limits, versions, rights. Missing permissions are
    /// reported in [`ClusterFacts::notes`], and are not an error.
    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts>;

    /// Translates a planned job into exactly what will be sent. Pure.
    fn render(&self, job: &PlannedJob) -> Result<Rendered>;

    /// Places a job on the named nodes of the cluster only. The job uses each of them as a whole.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot place jobs on named nodes.
    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        let _ = (job, nodes);
        let message = format!("backend `{}` cannot run a job on named nodes", self.capability().backend);
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Asks the cluster whether it would accept this, without submitting it.
    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>>;

    /// Sends the rendered documents, exactly once: after a lost answer it searches for
    /// [`Rendered::submission`] before it sends again.
    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle>;

    /// Finds the job of a submission, after a lost answer or a crash.
    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>>;

    /// Returns how long after the start of a submission its job may still appear, though [`Backend::find`]
    /// did not find it and it is no longer being sent: until then it is not reported as lost. Zero where a
    /// job appears at once or never.
    fn arrives_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Lists jobs. A filter has labels only where [`Capability::labels`] is set.
    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>>;

    /// Returns everything known about one job.
    async fn describe(&self, job: &JobHandle) -> Result<JobDetail>;

    /// Acts on a job.
    async fn act(&self, job: &JobHandle, action: Action) -> Result<()>;

    /// Watches all jobs of a filter over one connection. The stream ends when every job named by handle has
    /// ended; a filter without handles never ends. The first event of a job is its status, and a terminal
    /// status comes before [`JobEvent::Gone`]: [`ordered`](crate::job::ordered) sees to both.
    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>>;

    /// Returns the logs of a job, of all its containers or ranks. With [`LogOptions::follow`] the stream
    /// ends after the job has ended and every byte was returned.
    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>>;

    /// Returns and clears the notes of earlier calls, such as a daemon that did not answer.
    fn take_notes(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Runs a command beside a rank of a running job, passes its output to the sink as it comes, and
    /// returns its exit code. Dropping the future ends the command. A rank that the job does not have is
    /// [`ErrorKind::NotFound`], and a job that does not run is
    /// [`ErrorKind::Refused`].
    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        let _ = (job, request, sink);
        Err(Error::unsupported(&self.capability().backend, "exec"))
    }

    /// Runs a command beside a rank with this process's own standard input and output, and returns its exit code:
    /// in a terminal of its own with [`ExecRequest::terminal`], whose size follows this process's. The command gets
    /// Ctrl-C. The errors are those of [`Backend::exec`].
    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        let _ = (job, request);
        Err(Error::unsupported(&self.capability().backend, "exec with input"))
    }

    /// Connects to a port of localhost beside a rank of a running job, or in its first node, pod or process if none is named.
    ///
    /// The errors are those of [`Backend::exec`]; [`ErrorKind::Unreachable`] where nothing listens on
    /// the port, which the connection may also report when it is first used.
    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        let _ = (job, rank, port);
        Err(Error::unsupported(&self.capability().backend, "ports"))
    }
}
