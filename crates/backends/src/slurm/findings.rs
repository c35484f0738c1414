//! Why a job waits forever or failed, and what to do.

use weftrun_core::job::JobPhase;
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::lookup::JobRows;
use super::records::{Job, Shown};
use super::state;

const NODE_FAILED: &str = "SLURM-NODE-FAILED";
const STEP_FAILED: &str = "SLURM-STEP-FAILED";

/// Returns the finding of a job of which one of these nodes failed. A node that is well again is not known any more.
pub async fn node_failed(client: &Client, nodes: &str, fix: &str) -> Result<Finding> {
    let sick = super::lookup::sick_nodes(client, nodes).await.unwrap_or_default();
    let (names, states): (Vec<_>, Vec<_>) = sick.into_iter().unzip();
    let (subject, message) = match names.len() {
        0 => (nodes.to_owned(), format!("a node of {nodes} failed")),
        1 => (names.join(","), format!("the node {} failed: {}", names.join(","), states.join(", "))),
        _ => (names.join(","), format!("nodes of the job failed: {}", states.join(", "))),
    };
    Ok(Finding::error(NODE_FAILED, message).at(subject).fix(fix))
}

/// Returns the findings of a job that has ended, from its rows and from whether its log could be written.
pub async fn at_end(client: &Client, found: &JobRows) -> Result<Vec<Finding>> {
    let mut findings = of_failure(&found.rows, found.shown.as_ref());
    for finding in findings.iter_mut().filter(|finding| finding.code == NODE_FAILED) {
        let nodes = finding.subject.clone().unwrap_or_default();
        *finding = node_failed(
            client,
            &nodes,
            "set `restart` in the job so that it is queued again after a node failure",
        )
        .await?;
    }
    // A job that started its ranks again succeeded although a step of it failed.
    if findings.iter().any(|finding| finding.code == STEP_FAILED)
        && found.rows.iter().any(|job| job.marker.is_some())
    {
        let whole: Vec<_> = found.rows.iter().map(super::records::Job::whole).collect();
        let id = whole.first().cloned();
        let again = match &id {
            Some(id) => super::describe::attempts(client, id).await? > 1,
            None => false,
        };
        findings.retain(|finding| finding.code != STEP_FAILED || !again);
    }
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
pub fn stuck(rows: &[Job], shown: Option<&Shown>) -> Option<Finding> {
    let waits = |job: &&Job| job.state == "PENDING" || job.phase() == JobPhase::Cancelled;
    rows.iter().filter(waits).find_map(|job| {
        let why = state::never(&job.reason)?;
        let facts = shown.map_or(&[][..], |shown| &shown.facts);
        let on = facts.iter().find(|(key, _)| key == "Dependency" && job.reason.starts_with("Dependency"));
        let on = on.map_or_else(String::new, |(_, on)| format!(" ({})", super::error::clean(on)));
        let will = if job.state == "PENDING" { "will never start" } else { "never started" };
        let fix = match job.reason.as_str() {
            "PartitionNodeLimit" | "PartitionConfig" => {
                "cancel it and request fewer nodes, or another partition (`sinfo -s`)"
            }
            "PartitionTimeLimit" => "cancel it and set a shorter `time_limit` (`sinfo -o '%P %l'`)",
            "DependencyNeverSatisfied" => {
                "find out why that job failed (`weftrun why`), and submit this one again, after a job that succeeds or without `--after`"
            }
            _ => "cancel it and change what the reason names",
        };
        Some(
            Finding::error("SLURM-NEVER-STARTS", format!("the job {will}: {why}{on}"))
                .at(job.reason.clone())
                .fix(fix),
        )
    })
}

/// Returns what the rows of a failed job show beyond their state.
pub fn of_failure(rows: &[Job], shown: Option<&Shown>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = stuck(rows, shown).into_iter().collect();
    for job in rows.iter().filter(|job| job.phase() == JobPhase::Failed) {
        let word = job.state.as_str();
        let finding = match word {
            "FAILED" if shown.and_then(|shown| shown.exit_code).or(job.exit_code) == Some(state::UNUSABLE_OUTPUT) => {
                Finding::error("SLURM-OUTPUT-UNUSABLE", "the job could not be started: its output file or working directory is not usable on the first node")
                    .at(shown.and_then(|shown| shown.stdout.clone()).unwrap_or_default())
                    .fix("set `log-dir` of the target to a shared folder that every node can write")
            }
            "NODE_FAIL" => Finding::error(NODE_FAILED, format!("a node of {} failed", job.nodes)).at(job.nodes.clone()),
            "PREEMPTED" => Finding::error("SLURM-PREEMPTED", "the job was preempted: Slurm gave its nodes to a job of a higher priority or QOS")
                .fix("submit it again with a QOS or a partition that is not preempted (`scontrol show partition`, `sacctmgr show qos`), or write checkpoints and set `restart`"),
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
                STEP_FAILED,
                format!("the job succeeded, but one of its steps ended with {code}"),
            )
            .fix("put `set -e` into the script, or let its last command be srun"),
        );
    }
    findings
}
