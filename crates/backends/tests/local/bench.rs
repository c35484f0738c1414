//! The tests' main, and what they share: a target in a folder of its own.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use weftrun_backends::local;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, TargetConfig};
use weftrun_core::job::JobHandle;
use weftrun_testkit::child;
use weftrun_testkit::conformance::{self, Fixture};

use crate::{bad_input, clones, crashes};

macro_rules! tests {
    ($wanted:expr, [$($test:path),+ $(,)?]) => {{
        let mut failed = 0;
        $(
            let name = stringify!($test);
            if $wanted.is_empty() || $wanted.iter().any(|word| name.contains(word.as_str())) {
                failed += one(name, || $test());
            }
        )+
        failed
    }};
}

/// Runs `supervise DIR`, or the tests.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [verb, folder] = arguments.as_slice()
        && verb == "supervise"
    {
        return match local::supervise(folder.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    if let [verb, state, planned] = arguments.as_slice()
        && verb == "submit"
    {
        return crashes::submit_and_end(state, planned);
    }
    let wanted: Vec<_> = arguments.into_iter().filter(|word| !word.starts_with('-')).collect();
    let failed = tests!(
        wanted,
        [
            conformance_detached,
            conformance_attached,
            bad_input::a_signal_and_a_code_are_told_apart,
            bad_input::exec_of_an_unknown_program_is_127,
            bad_input::children_left_behind_are_ended_and_told,
            bad_input::one_that_ignores_term_is_killed_and_told,
            bad_input::a_gigabyte_in_seconds_is_read_whole,
            bad_input::a_truncated_log_is_told,
            bad_input::a_replaced_log_is_told,
            bad_input::a_working_folder_that_is_not_there,
            bad_input::files_are_for_their_owner_only,
            clones::a_clone_that_fails_says_why,
            clones::a_clone_that_hangs_is_cancelled,
            clones::a_clone_that_hangs_ends_at_the_time_limit,
            clones::a_clone_that_hangs_ends_with_its_supervisor,
            crashes::a_killed_supervisor_leaves_orphans_that_are_listed_and_ended,
            crashes::no_byte_is_lost_with_the_supervisor,
            crashes::killed_before_the_claim_nothing_is_there,
            crashes::killed_after_the_claim_it_is_told_and_started_by_the_same_id,
            crashes::a_supervisor_that_does_not_start_is_started_again,
            crashes::two_submits_at_once_are_one_job,
            crashes::a_terminated_supervisor_ends_its_job,
            crashes::a_damaged_record_is_listed,
            crashes::killed_at_any_moment_of_a_submit,
            crashes::a_claim_of_a_killed_submit_is_no_job,
            crashes::a_cancel_waits_for_a_supervisor_that_starts,
            crashes::a_cancel_before_the_supervisor_is_a_job_that_never_runs,
            crashes::a_process_without_the_jobs_environment_ends_with_the_job,
            crashes::a_job_that_a_job_submits_outlives_it,
            crashes::a_process_without_the_jobs_environment_is_an_orphan_of_a_killed_supervisor,
            crashes::a_process_without_the_jobs_environment_is_found_after_its_supervisor_by_its_identity_or_its_parent,
            crashes::a_claim_that_cannot_be_removed_blocks_no_submit,
        ]
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(name: &str, test: impl FnOnce() + std::panic::UnwindSafe) -> usize {
    let began = std::time::Instant::now();
    let failed = std::panic::catch_unwind(test).is_err();
    println!(
        "test {name} … {} ({:.1}s)",
        if failed { "FAILED" } else { "ok" },
        began.elapsed().as_secs_f64()
    );
    usize::from(failed)
}

/// Runs a test's future.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// A local target with a folder of its own.
pub struct Local {
    pub state: TempDir,
    pub detached: bool,
}

impl Local {
    pub fn new() -> Self {
        Self { state: tempfile::Builder::new().prefix("weftrun-local-").tempdir().unwrap(), detached: true }
    }
}

#[async_trait]
impl Fixture for Local {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let mut target = TargetConfig::new("test", "local", self.state.path()).with("grace", 1.0);
        target.env = child::environment();
        target.binary = self.detached.then(|| std::env::current_exe().unwrap());
        local::connect(target).await
    }

    fn shared_folder(&self) -> Option<std::path::PathBuf> {
        Some(self.state.path().to_owned())
    }

    /// The check's job is the only one whose folder is still there.
    async fn lose_logs(&self, _job: &JobHandle) -> bool {
        let jobs = std::fs::read_dir(self.state.path().join("jobs")).unwrap();
        let removed =
            jobs.filter(|job| std::fs::remove_dir_all(job.as_ref().unwrap().path().join("logs")).is_ok());
        removed.count() > 0
    }
}

fn conformance_detached() {
    let report = block_on(conformance::run(&Local::new()));
    println!("{report}");
    report.assert();
}

fn conformance_attached() {
    let report = block_on(conformance::run(&Local { detached: false, ..Local::new() }));
    report.assert();
}
