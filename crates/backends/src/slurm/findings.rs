//! Why a job waits for ever or failed, and what to do.

use weftrun_core::Finding;
use weftrun_core::job::JobPhase;

use super::records::{Job, Shown};
use super::state;

/// The finding of a job that can never start.
pub fn stuck(rows: &[Job]) -> Option<Finding> {
    rows.iter().filter(|job| job.state == "PENDING").find_map(|job| {
        let why = state::never(&job.reason)?;
        let fix = match job.reason.as_str() {
            "PartitionNodeLimit" | "PartitionConfig" => {
                "cancel it and ask fewer nodes, or another partition (`sinfo -s`)"
            }
            "PartitionTimeLimit" => "cancel it and set a shorter `time_limit` (`sinfo -o '%P %l'`)",
            "DependencyNeverSatisfied" => "cancel it and submit it without the dependency",
            _ => "cancel it and change what the reason names",
        };
        Some(
            Finding::error("SLURM-NEVER-STARTS", format!("the job will never start: {why}"))
                .at(job.reason.clone())
                .fix(fix),
        )
    })
}

/// What a failed job's rows say beyond their state.
pub fn of_failure(rows: &[Job], shown: Option<&Shown>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = stuck(rows).into_iter().collect();
    for job in rows.iter().filter(|job| state::phase(&job.state, &job.reason) == JobPhase::Failed) {
        let word = job.state.as_str();
        let finding = match word {
            // 53 is the real-time signal slurmstepd ends a job with whose output or folder it cannot open.
            "FAILED" if shown.and_then(|shown| shown.exit_code) == Some(128 + 53) => {
                Finding::error("SLURM-OUTPUT-UNUSABLE", "the job could not be started: its output file or working directory is not usable on the first node")
                    .at(shown.and_then(|shown| shown.stdout.clone()).unwrap_or_default())
                    .fix("set `log-dir` of the target to a shared folder that every node can write")
            }
            "NODE_FAIL" => Finding::error("SLURM-NODE-FAILED", format!("a node of {} failed", job.nodes))
                .fix("set `restart` in the job so that it is queued again after a node failure"),
            "TIMEOUT" => Finding::error("SLURM-TIME-LIMIT", "the job ran into its time limit")
                .fix("raise `time_limit`, and set `signal = \"USR1@300\"` in `[backend.slurm]` for a last checkpoint"),
            "OUT_OF_MEMORY" => Finding::error("SLURM-OUT-OF-MEMORY", "the job used more memory than it asked for").fix("raise `memory` of the role"),
            _ => continue,
        };
        findings.push(finding);
    }
    if let Some(code) = shown.and_then(|shown| shown.step_exit_code).filter(|code| *code != 0) {
        if rows.iter().all(|job| state::phase(&job.state, &job.reason) == JobPhase::Succeeded) {
            findings.push(
                Finding::warning(
                    "SLURM-STEP-FAILED",
                    format!("the job succeeded, but one of its steps ended with {code}"),
                )
                .fix("put `set -e` into the script, or let its last command be srun"),
            );
        }
    }
    findings
}
