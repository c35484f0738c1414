//! A backend without a cluster, controlled by a test: phases, log bytes, silence, garbage, outages.
//!
//! It is for tests of the layers above the backend (the SDK, the CLI, the TUI); a backend's own tests run
//! against a real system.
//!
//! ```
//! # use weftrun_core::{backend::Backend, job::{JobFilter, JobPhase}};
//! # use weftrun_testkit::fake::Fake;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let fake = Fake::new("fake");
//! let job = fake.add("llama", 2, 4);
//! fake.phase(&job, JobPhase::Running, "");
//! fake.log(&job, 3, b"hello\n");
//! assert_eq!(fake.list(&JobFilter::all()).await?[0].phase, JobPhase::Running);
//! # Ok::<(), weftrun_core::Error>(()) }).unwrap();
//! ```

mod backend;
mod state;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use weftrun_core::backend::Capability;
use weftrun_core::job::{
    JobEvent, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId, TASK_ROLE, TaskCounts,
};
use weftrun_core::log::Mark;
use weftrun_core::{Error, ErrorKind};

use state::{Job, State};

/// Returns the error of a job that does not exist.
fn no_job(handle: &JobHandle) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no job {handle}"))
        .hint("`weftrun list -a` shows those there are")
}

/// A backend that a test controls. Clones are the same backend.
#[derive(Clone, Debug)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    /// Incremented by every change; wakes the streams.
    changed: watch::Sender<u64>,
}

impl Fake {
    /// Creates a backend that supports everything.
    pub fn new(name: &str) -> Self {
        let capability = Capability {
            backend: name.to_owned(),
            detach: true,
            dry_run: true,
            suspend: true,
            hold: true,
            requeue: true,
            signal: true,
            delete: true,
            containers: true,
            mpi: true,
            previous_logs: true,
            rank_logs: true,
            exact_resume: true,
            restarts: true,
            time_limit: true,
            max_name: 63,
            ..Capability::default()
        };
        Self {
            state: Arc::new(Mutex::new(State { capability, ..State::default() })),
            changed: watch::Sender::new(0),
        }
    }

    /// Changes its capability.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut Capability)) -> Self {
        self.edit(|state| change(&mut state.capability));
        self
    }

    pub(crate) fn edit<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        drop(state);
        self.changed.send_modify(|generation| *generation += 1);
        result
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an existing job with this many nodes and ranks per node.
    pub fn add(&self, name: &str, nodes: u32, ranks_per_node: u32) -> JobHandle {
        let id = SubmissionId::from_random(fastrand::u128(..));
        self.edit(|state| state.add(name, id, nodes, ranks_per_node))
    }

    fn job(&self, handle: &JobHandle, change: impl FnOnce(&mut Job)) {
        self.edit(|state| {
            if let Some(job) = state.jobs.get_mut(handle) {
                change(job);
            }
        });
    }

    /// Sets a job's phase. A terminal one ends its logs.
    pub fn phase(&self, handle: &JobHandle, phase: JobPhase, reason: &str) {
        self.job(handle, |job| job.set_phase(phase, reason));
    }

    /// Sets the exit code of a job and makes it fail.
    pub fn fail(&self, handle: &JobHandle, exit_code: i32, reason: &str) {
        self.job(handle, |job| {
            job.summary.exit_code = Some(exit_code);
            job.set_phase(JobPhase::Failed, reason);
        });
    }

    /// Places the replicas of a job on nodes, in their order.
    pub fn place(&self, handle: &JobHandle, nodes: &[&str]) {
        self.job(handle, |job| {
            for (replica, node) in job.replicas.iter_mut().zip(nodes) {
                replica.node = Some((*node).to_owned());
            }
        });
    }

    /// Makes a job an array with tasks in these phases, each of which is a job of its own, too.
    pub fn array(&self, handle: &JobHandle, phases: &[JobPhase]) {
        self.edit(|state| {
            let mut counts = TaskCounts::default();
            let mut replicas = Vec::new();
            for (number, &phase) in (0..).zip(phases) {
                let name = format!("{}_{number}", handle.name());
                let task = ReplicaStatus::new(&name, TASK_ROLE, number, phase);
                counts.add(phase, 1);
                replicas.push(task.clone());
                let own = JobHandle::new(handle.backend(), handle.target(), [name]);
                let mut job = Job::of(JobSummary::new(own.clone(), JobPhase::Submitted), vec![task]);
                job.set_phase(phase, "");
                state.jobs.insert(own, job);
            }
            if let Some(job) = state.jobs.get_mut(handle) {
                job.set_phase(JobPhase::of_many(phases.iter().copied()), "");
                (job.summary.tasks, job.replicas) = (Some(counts), replicas);
            }
        });
    }

    /// Sends an event as the cluster would; the job itself is not changed by it.
    pub fn tell(&self, handle: &JobHandle, event: JobEvent) {
        self.job(handle, |job| job.events.push(event));
    }

    /// Adds bytes to the log of a rank.
    pub fn log(&self, handle: &JobHandle, rank: u32, bytes: &[u8]) {
        self.job(handle, |job| job.write(rank, bytes));
    }

    /// Adds a mark to a rank's log.
    pub fn mark(&self, handle: &JobHandle, rank: u32, mark: Mark) {
        self.job(handle, |job| job.mark(rank, mark));
    }

    /// Removes a job, as another user would.
    pub fn remove(&self, handle: &JobHandle) {
        self.edit(|state| state.jobs.remove(handle));
    }

    /// Makes the next call of an operation (`submit`, `list`, `act`, …) fail.
    pub fn fail_next(&self, operation: &'static str, kind: ErrorKind, message: &str) {
        self.edit(|state| state.failures.push((operation, kind, message.to_owned())));
    }

    /// Accepts the next submit, but returns an error instead of the answer.
    pub fn lose_next_answer(&self) {
        self.edit(|state| state.lose_answer = true);
    }

    /// Makes all calls and streams hang until it is reset.
    pub fn hang(&self, hang: bool) {
        self.edit(|state| state.hangs = hang);
    }

    /// Makes all calls and streams fail as unreachable until it is reset.
    pub fn die(&self, dead: bool) {
        self.edit(|state| state.dead = dead);
    }

    /// Returns the calls in order: `submit llama`, `act cancel fake://…`.
    pub fn calls(&self) -> Vec<String> {
        self.see(|state| state.calls.clone())
    }

    /// Returns the number of open streams: a dropped one must not count.
    pub fn open_streams(&self) -> usize {
        self.changed.receiver_count()
    }
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable, "the fake cluster is dead").retryable()
}
