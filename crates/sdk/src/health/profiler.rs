//! Switches the profiler of a running job off, through NCCL's RAS service.

use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::{self, Report};
use weftrun_core::{Error, ErrorKind, Result};

use super::{COLLECT, HealthOptions, NoReport, Target};
use crate::Job;
use crate::runtime::on_runtime;

impl Job {
    /// Switches off what measures the job's collectives: all events of NCCL's profiler, in all processes, for the rest of the job.
    /// The service must prove by a communicator that it is of this job. Needs NCCL 2.31 or later. Returns its version.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without a measurement in the log, [`ErrorKind::Unsupported`] if NCCL is too old or refuses,
    /// [`ErrorKind::Unreachable`] if its service does not answer, and the errors of [`Job::describe`].
    pub async fn stop_measuring(&self) -> Result<String> {
        let phase = self.describe().await?.summary.phase;
        if phase.is_terminal() {
            return Err(Error::new(ErrorKind::NotFound, format!("the job is {}", phase.as_str()))
                .hint("a job that has ended measures nothing"));
        }
        let (target, logs) = Target::of(self).await;
        on_runtime(switch_off(target, &logs)).await
    }
}

async fn switch_off(mut target: Target<'_>, logs: &TransportMap) -> Result<String> {
    let measured: Vec<u64> = logs.snapshot().bandwidth().communicators().collect();
    if measured.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "the log has no measurement of NCCL's collectives")
            .hint("only `--bandwidth` measures, and lines come some seconds after the first collective"));
    }
    let limit = HealthOptions::default().timeout;
    let of_job = |report: &Report| report.communicators.iter().any(|comm| measured.contains(&comm.hash));
    let reason = loop {
        let reason = match target.ask(&ras::request(COLLECT), limit).await {
            Ok(report) if of_job(&report) => break None,
            Ok(_) => "the service that answers has none of the communicators that were measured".to_owned(),
            Err(NoReport::Next(reason)) => reason,
            Err(NoReport::Final(_, reason)) => break Some(reason),
        };
        if !target.has_further_place() {
            break Some(reason);
        }
        target.advance();
    };
    if let Some(reason) = reason {
        let message = format!("NCCL's RAS service of this job is not reached: {reason}");
        return Err(Error::new(ErrorKind::Unreachable, message)
            .hint("NCCL has it since 2.24.3; `weftrun health JOB` says more"));
    }
    match target.ask(&ras::request_after(Some(ras::PROFILER_OFF), COLLECT), limit).await {
        Ok(report) if of_job(&report) => switched(&report),
        // All processes of a node share the port, and the one that answered first may have ended.
        Ok(_) => Err(Error::new(ErrorKind::Unreachable, "another job's RAS service answered in between")
            .hint("see by `weftrun bandwidth` whether the job still measures, and ask again")),
        Err(NoReport::Final(_, reason) | NoReport::Next(reason)) => {
            let message =
                format!("NCCL was told to switch its profiler off, and did not say that it has: {reason}");
            Err(Error::new(ErrorKind::Unreachable, message)
                .hint("see by `weftrun bandwidth` whether the job still measures, and ask again"))
        }
    }
}

/// Returns the version of NCCL that obeyed. An old one refuses the format of the report too.
fn switched(report: &Report) -> Result<String> {
    let version = report.nccl_version.clone().unwrap_or_default();
    match report.refused.iter().find(|refused| !refused.contains("SET FORMAT")) {
        None => Ok(version),
        Some(refused) => Err(Error::new(ErrorKind::Unsupported, "NCCL refuses to switch the profiler off")
            .with("answer", refused)
            .with("version", version)
            .hint("NCCL can since 2.31; before that, the library measures until the job ends")),
    }
}
