//! Asks NCCL's RAS service in a running job for NCCL's own diagnostics.

use std::sync::Arc;

use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::{self, DiagnosticsReport};
use weftrun_core::text::numbers;
use weftrun_diagnose::Sources;
use weftrun_diagnose::health::{HealthState, Policy, RAS};
use weftrun_diagnose::report::HealthDiagnostics;

use super::{COLLECT, HealthOptions, NoReport, Target};
use crate::report::HealthReport;

/// Asks the service that gave a report for the diagnostics of all ranks. They change nothing in the job.
pub(super) async fn ask(
    target: &mut Target<'_>,
    logs: &TransportMap,
    report: &HealthReport,
    options: &HealthOptions,
) -> HealthDiagnostics {
    if let Some(reason) = refusal(report, options) {
        return HealthDiagnostics::refused(reason);
    }
    let answer: DiagnosticsReport =
        match target.ask(&ras::diagnostics_request(COLLECT), options.timeout).await {
            Ok(answer) => answer,
            Err(NoReport::Final(_, reason) | NoReport::Next(reason)) => {
                return HealthDiagnostics::refused(reason);
            }
        };
    // All processes of a node share the port, and those of another job may answer the second time.
    let hashes: Vec<String> = report.communicators.iter().map(|comm| format!("{:#x}", comm.hash)).collect();
    if !hashes.is_empty() && !hashes.iter().any(|hash| answer.text.contains(hash)) {
        return HealthDiagnostics::refused("another job's RAS service answered in between: ask again");
    }
    let mut known = logs.clone();
    let source = Arc::new(SourceId::new(RAS));
    known.read(&source, answer.text.as_bytes());
    known.end(&source);
    let diagnosis = Sources::of_logs(&known).running().diagnose();
    HealthDiagnostics::new(&known, diagnosis.findings)
}

/// Returns why the service is not asked.
fn refusal(report: &HealthReport, options: &HealthOptions) -> Option<String> {
    if matches!(report.state, HealthState::Unreachable | HealthState::Unsupported) {
        return Some("NCCL's RAS service gave no report".to_owned());
    }
    let Some(version) = report.nccl_version.as_deref() else {
        return Some("the answer does not name the version of NCCL".to_owned());
    };
    if numbers(version).as_slice() < &ras::DIAGNOSTICS_SINCE {
        return Some(format!("NCCL {version} has no diagnostics of its own; they exist since 2.31"));
    }
    let once = Policy::of_version(version) != Policy::Repeat;
    (once && !options.force)
        .then(|| format!("NCCL {version} is not safe to query more than once; --force does it anyway"))
}
