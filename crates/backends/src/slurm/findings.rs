//! Why a job waits forever or failed, and what to do.

use weftrun_core::job::JobPhase;
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::lookup::JobRows;
use super::records::{Job, Shown};
use super::state;

/// Returns the findings of a job that has ended, from its rows and from whether its log could be written.
pub async fn at_end(client: &Client, found: &JobRows) -> Result<Vec<Finding>> {
    let mut findings = of_failure(&found.rows, found.shown.as_ref());
    let failed = found.rows.iter().any(|job| job.phase() == JobPhase::Failed);
    if failed && found.rows.iter().any(|job| job.marker.is_some()) && disk_is_full(client).await? {
        findings.push(
            Finding::error(
                "SLURM-DISK-FULL",
                "the file system of the log folder is full: the end of the log may be missing",
            )
            .at(client.settings.log_dir())
            .fix("free some space, or set `log-dir` of the target to another shared folder"),
        );
    }
    Ok(findings)
}

/// Returns whether nothing more can be written to the log folder.
async fn disk_is_full(client: &Client) -> Result<bool> {
    if !client.has_files() {
        return Ok(false);
    }
    let program =
        format!("{}df -P -- \"$dir\" 2> /dev/null | awk 'NR == 2 {{ print $4 }}'", client.enter_log_dir()?);
    Ok(client.transport.read(&program).await?.text().trim() == "0")
}

/// Returns the finding of a job that can never start.
pub fn stuck(rows: &[Job]) -> Option<Finding> {
    rows.iter().filter(|job| job.state == "PENDING").find_map(|job| {
        let why = state::never(&job.reason)?;
        let fix = match job.reason.as_str() {
            "PartitionNodeLimit" | "PartitionConfig" => {
                "cancel it and request fewer nodes, or another partition (`sinfo -s`)"
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

/// Returns what the rows of a failed job show beyond their state.
pub fn of_failure(rows: &[Job], shown: Option<&Shown>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = stuck(rows).into_iter().collect();
    for job in rows.iter().filter(|job| job.phase() == JobPhase::Failed) {
        let word = job.state.as_str();
        let finding = match word {
            "FAILED" if shown.and_then(|shown| shown.exit_code).or(job.exit_code) == Some(state::UNUSABLE_OUTPUT) => {
                Finding::error("SLURM-OUTPUT-UNUSABLE", "the job could not be started: its output file or working directory is not usable on the first node")
                    .at(shown.and_then(|shown| shown.stdout.clone()).unwrap_or_default())
                    .fix("set `log-dir` of the target to a shared folder that every node can write")
            }
            "NODE_FAIL" => Finding::error("SLURM-NODE-FAILED", format!("a node of {} failed", job.nodes))
                .fix("set `restart` in the job so that it is queued again after a node failure"),
            "TIMEOUT" => Finding::error("SLURM-TIME-LIMIT", "the job ran into its time limit")
                .fix("raise `time_limit`, and set `signal = \"USR1@300\"` in `[backend.slurm]` and handle USR1 in the program for a last checkpoint"),
            "OUT_OF_MEMORY" => Finding::error("SLURM-OUT-OF-MEMORY", "the job used more memory than it requested").fix("raise `memory` of the role"),
            _ => continue,
        };
        findings.push(finding);
    }
    if let Some(code) = shown.and_then(|shown| shown.step_exit_code).filter(|code| *code != 0)
        && rows.iter().all(|job| job.phase() == JobPhase::Succeeded)
    {
        findings.push(
            Finding::warning(
                "SLURM-STEP-FAILED",
                format!("the job succeeded, but one of its steps ended with {code}"),
            )
            .fix("put `set -e` into the script, or let its last command be srun"),
        );
    }
    findings
}
