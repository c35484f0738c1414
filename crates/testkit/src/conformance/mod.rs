//! The test suite that every backend must pass, selected by its [`Capability`].
//!
//! A backend's own test implements [`Fixture`] (how to connect, and what a job of a POSIX shell script looks like
//! there) and calls [`run`]:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use weftrun_core::{Result, backend::{Backend, TargetConfig}};
//! use weftrun_testkit::conformance::{self, Fixture};
//!
//! #[derive(Debug)]
//! struct Mine;
//!
//! #[async_trait::async_trait]
//! impl Fixture for Mine {
//!     async fn connect(&self) -> Result<Arc<dyn Backend>> {
//!         # unimplemented!()
//!         // (entry.connect)(TargetConfig::new("test", "mine", "/tmp/mine-test")).await
//!     }
//! }
//!
//! # async fn test() {
//! conformance::run(&Mine).await.assert();
//! # }
//! ```
//!
//! An unsupported capability is not skipped: the suite checks that it is refused with an error of kind
//! [`Unsupported`](weftrun_core::ErrorKind::Unsupported).

mod actions;
mod bench;
mod claims;
mod errors;
mod logs;
mod reports;
mod submit;
mod watch;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, Capability, PlannedJob};
use weftrun_core::job::{Action, JobHandle};
use weftrun_core::spec::{JobSpec, Launch, Role};

use bench::SubmittedJobs;
pub use bench::{Bench, Read, Submitted};

/// The parts of a backend's test that the suite needs.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Creates a new connection, as another process of weftrun would: nothing may be shared with earlier
    /// connections but the cluster and the target's state folder.
    async fn connect(&self) -> Result<Arc<dyn Backend>>;

    /// Returns the job that runs a POSIX shell script once on each rank. The script finds its rank in `RANK`.
    fn job(&self, name: &str, nodes: u32, ranks_per_node: u32, script: &str) -> JobSpec {
        let role = Role::worker().nodes(nodes).ranks_per_node(ranks_per_node).command(["sh", "-c", script]);
        let built = JobSpec::builder(name).launch(Launch::PerRank).role(role).build();
        built.unwrap_or_else(|error| unreachable!("a job of the suite is invalid: {error}"))
    }

    /// Returns the planned job.
    fn plan(&self, spec: JobSpec) -> PlannedJob {
        crate::planned(spec)
    }

    /// Returns the shape of the suite's jobs: nodes, and ranks on each.
    fn shape(&self) -> (u32, u32) {
        (2, 2)
    }

    /// Returns the time limit of one check.
    fn patience(&self) -> Duration {
        Duration::from_mins(1)
    }

    /// Returns the shortest time limit that the backend can enforce.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Removes the logs of an ended job; `false` if the fixture cannot do that.
    async fn lose_logs(&self, _job: &JobHandle) -> bool {
        false
    }

    /// Returns a folder that the ranks of a job can write to and this process can read, in which executions
    /// are counted; none if there is none.
    fn shared_folder(&self) -> Option<PathBuf> {
        None
    }

    /// Returns a connection that forwards the next submit but loses its answer; none if the fixture cannot do
    /// that. Then the suite forgets the answer itself.
    async fn losing_answers(&self) -> Option<Arc<dyn Backend>> {
        None
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The behavior is as expected.
    Passed,
    /// Not in the backend's capability, or not possible for the fixture.
    Skipped(String),
    /// The behavior differs: expected and actual.
    Failed(String),
}

/// The results of the suite.
#[derive(Clone, Debug)]
pub struct Report {
    /// The backend's capability.
    pub capability: Capability,
    /// Each check with its verdict and the time it took.
    pub checks: Vec<(&'static str, Verdict, Duration)>,
}

impl Report {
    /// Returns the checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.checks
            .iter()
            .filter(|(_, verdict, _)| matches!(verdict, Verdict::Failed(_)))
            .map(|(name, ..)| *name)
    }

    /// Panics with the whole report if a check failed.
    ///
    /// # Panics
    /// If a check failed: call this on the last line of a test.
    pub fn assert(&self) {
        assert!(self.failures().next().is_none(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of `{}`:", self.capability.backend)?;
        for (name, verdict, took) in &self.checks {
            let mut line = format!("{name:28} {:>6.2}s  ", took.as_secs_f64());
            match verdict {
                Verdict::Passed => line.push_str("passed"),
                Verdict::Skipped(why) => write!(line, "skipped: {why}")?,
                Verdict::Failed(why) => write!(line, "FAILED: {why}")?,
            }
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// The result of a check: an error text is a failure.
pub(crate) type Checked = Result<Verdict, String>;

macro_rules! checks {
    ($fixture:expr, $only:expr, [$($path:path),+ $(,)?]) => {{
        let mut done = Vec::new();
        $(
            let name = stringify!($path);
            if $only.is_empty() || $only.iter().any(|word| name.contains(word)) {
                let bench = Bench::new($fixture);
                let jobs = bench.jobs.clone();
                done.push(one(name, $fixture.patience(), Box::pin($path(bench)), jobs).await);
            }
        )+
        done
    }};
}

/// Runs the suite.
pub async fn run(fixture: &dyn Fixture) -> Report {
    run_some(fixture, &[]).await
}

/// Runs the checks whose name contains one of the words; all if there are none.
pub async fn run_some(fixture: &dyn Fixture, only: &[&str]) -> Report {
    let capability = match fixture.connect().await {
        Ok(backend) => backend.capability(),
        Err(error) => {
            let checks = vec![("connect", Verdict::Failed(error.to_string()), Duration::ZERO)];
            return Report { capability: Capability::default(), checks };
        }
    };
    let checks = checks!(
        fixture,
        only,
        [
            submit::renders_the_same_twice,
            submit::is_found_by_its_id,
            submit::submits_once_when_sent_twice,
            submit::submits_once_when_the_answer_is_lost,
            submit::runs_once_however_often_it_is_sent,
            submit::outlives_its_connection,
            submit::a_taken_name_makes_no_confusion,
            submit::watch_ends_with_success,
            submit::failure_has_its_exit_code,
            submit::exit_codes_are_as_they_were,
            submit::a_command_that_is_not_there_fails,
            logs::every_line_of_every_rank,
            logs::exact_over_cuts,
            logs::exact_wherever_it_is_cut,
            logs::a_last_line_without_newline_is_read,
            logs::bytes_are_kept,
            logs::a_finished_job_is_read_whole,
            logs::tail_is_the_end,
            logs::only_the_ranks_asked_for,
            actions::cancel_ends_it,
            actions::delete_removes_it,
            actions::suspend_and_resume,
            actions::signal_reaches_the_ranks,
            actions::exec_runs_beside_a_rank,
            actions::hold_and_release,
            actions::requeue_starts_again,
            actions::restarts_are_counted,
            actions::the_time_limit_is_kept,
            watch::the_end_comes_before_the_disappearance,
            watch::an_ended_job_is_reported_once,
            claims::a_check_creates_no_job,
            claims::mpi_is_rendered_or_refused,
            claims::an_image_is_used_or_refused,
            claims::a_restart_policy_is_kept_or_refused,
            claims::a_port_is_reached_or_refused,
            claims::lines_have_times_as_claimed,
            claims::cursors_are_offsets_if_claimed,
            claims::earlier_logs_are_read_or_refused,
            claims::the_longest_name_works,
            claims::the_longest_arguments_arrive,
            claims::labels_are_listed_if_claimed,
            claims::an_impossible_signal_is_refused,
            errors::an_unknown_job_is_not_found,
            errors::an_unknown_id_finds_nothing,
            errors::a_foreign_handle_is_refused,
            reports::a_job_runs_in_its_working_directory,
            reports::a_rank_is_read_or_unknown,
            reports::describe_has_the_reasons,
            reports::what_cannot_be_expressed_is_named,
            reports::lost_logs_are_reported,
        ]
    );
    Report { capability, checks }
}

async fn one(
    name: &'static str,
    patience: Duration,
    check: futures_util::future::BoxFuture<'_, Checked>,
    jobs: SubmittedJobs,
) -> (&'static str, Verdict, Duration) {
    let began = Instant::now();
    let verdict = match tokio::time::timeout(patience, check).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(why)) => Verdict::Failed(why),
        Err(_) => Verdict::Failed(format!("did not end in {} s", patience.as_secs())),
    };
    if matches!(verdict, Verdict::Failed(_)) {
        // What it left would take the nodes of the checks after it. They may have ended.
        for (backend, job) in jobs.take() {
            let _ = tokio::time::timeout(patience, backend.act(&job, Action::Cancel)).await;
        }
    }
    (name, verdict, began.elapsed())
}
