//! `describe`: the details of a job.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use weftrun::Result;
use weftrun::convert::decision_text;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobDetail, JobPhase, JobSummary, ReplicaStatus, TASK_ROLE, age, odd};
use weftrun::core::log::clean_text as printable;
use weftrun::core::nccl::FabricSeen;
use weftrun::report::{DescribeReport, WhyReport};

use crate::context::Context;
use crate::global::Format;
use crate::output::{labels_text, style, time_text};

#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
}

/// Prints the details of a job.
pub fn run(context: &Context, args: &DescribeArgs) -> Result<u8> {
    let client = context.client()?;
    let (job, detail, why) = context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let mut detail = job.describe().await?;
        if let Ok(Some((newest, attempt))) = client.newest_attempt(job.handle()) {
            detail.facts.push(("after".to_owned(), format!("{} {newest}", attempt.count())));
        }
        let why = job.trouble(&detail).await;
        if why.is_none() {
            let note = job.keep_end(&detail, None, FabricSeen::Unknown).await;
            context.out.findings(note.as_slice());
        }
        Ok((job, detail, why))
    })?;
    let decisions = job.plan().map(|plan| plan.decisions.as_slice()).unwrap_or_default();
    if matches!(context.out.format, Format::Table | Format::Wide) {
        if let Some(why) = &why {
            for line in why.lines() {
                context.out.line(printable(&line))?;
            }
        }
        context.out.text(&text(&detail, context.out.format == Format::Wide))?;
        for decision in decisions {
            let (target, value, _) = decision_text(decision, job.handle().backend());
            context.out.line(format!("  {} {target} = {value}", decision.rule))?;
        }
        context.out.findings(&detail.findings);
    } else {
        let mut report = DescribeReport::new(job.handle(), &detail, job.plan(), job.spec());
        report.why = why.map(WhyReport::from);
        context.out.value(&report)?;
    }
    Ok(exit_codes::OK)
}

/// Returns when the job was submitted, began and ended, and how long it ran.
fn times(job: &JobSummary, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut times = Vec::new();
    times.extend(job.created.map(|time| ("created", time_text(time))));
    match job.started {
        // Where a job waits, it is the cluster's expectation.
        Some(time) if job.phase == JobPhase::Pending && time > now => {
            times.push(("starts", format!("{} (expected)", time_text(time))));
        }
        Some(time) if job.phase != JobPhase::Pending => {
            times.push(("started", time_text(time)));
            let until =
                job.ended.or((!job.phase.is_terminal()).then_some(now)).filter(|until| *until >= time);
            times.extend(until.map(|until| ("elapsed", age(until, time))));
        }
        _ => {}
    }
    times.extend(job.ended.map(|time| ("ended", time_text(time))));
    times
}

/// Number of replicas up to which all are printed.
const ALL: usize = 64;
/// Largest number of replicas that are printed of more, because their state is not that of most.
const MOST_ODD: usize = 32;

/// Returns the number of replicas in each phase, of a job with too many to print all.
fn counts(replicas: &[ReplicaStatus]) -> String {
    let mut counts = BTreeMap::new();
    for replica in replicas {
        *counts.entry(replica.phase).or_insert(0_usize) += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    format!("  replicas {}: {} (`-o wide` prints all)\n", replicas.len(), counts.join(", "))
}

fn text(detail: &JobDetail, wide: bool) -> String {
    let bold = style::BOLD;
    let job = &detail.summary;
    let mut text = format!("{bold}{}{bold:#}\n  phase   {}", job.handle, job.phase);
    if !job.reason.is_empty() {
        text.push_str(&format!(" ({})", printable(&job.reason)));
    }
    text.push_str(&format!("\n  ready   {} of {}\n", job.ready.0, job.ready.1));
    if let Some(code) = job.exit_code {
        text.push_str(&format!("  exit    {code}\n"));
    }
    for (key, value) in times(job, weftrun::clock::now()) {
        text.push_str(&format!("  {key:<7} {value}\n"));
    }
    if let Some(owner) = &job.owner {
        text.push_str(&format!("  owner   {}\n", printable(owner)));
    }
    if !job.labels.is_empty() {
        text.push_str(&format!("  labels  {}\n", printable(&labels_text(&job.labels))));
    }
    for (key, value) in &detail.facts {
        text.push_str(&format!("  {:<7} {}\n", printable(key), printable(value)));
    }
    let shown: Vec<&ReplicaStatus> = if wide || detail.replicas.len() <= ALL {
        detail.replicas.iter().collect()
    } else {
        text.push_str(&counts(&detail.replicas));
        odd(&detail.replicas).into_iter().take(MOST_ODD).collect()
    };
    for replica in shown {
        let exit = replica.exit_code.map_or_else(String::new, |code| format!(" exit {code}"));
        let (name, reason) = (printable(&replica.name), printable(&replica.reason));
        let node = match &replica.node {
            None if replica.role == TASK_ROLE => String::new(),
            node => format!(" node {}", printable(node.as_deref().unwrap_or("-"))),
        };
        let values = printable(&replica.values);
        let about = format!("{values}{node}{exit} {reason}");
        let line = format!("  {name:<24} {:<10} {}", replica.phase, about.trim_start());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use weftrun::core::job::{JobHandle, JobPhase, JobSummary};

    use super::*;

    #[test]
    fn of_thousands_of_replicas_those_that_are_not_like_most_are_printed() {
        let mut detail =
            JobDetail::new(JobSummary::new(JobHandle::new("b", "t", ["job"]), JobPhase::Running));
        let replica = |index| ReplicaStatus::new(format!("w-{index}"), "worker", index, JobPhase::Running);
        detail.replicas = (0..4000).map(replica).collect();
        detail.replicas[1234].phase = JobPhase::Pending;
        let short = text(&detail, false);
        assert!(short.contains("replicas 4000: 1 pending, 3999 running (`-o wide` prints all)"), "{short}");
        assert!(
            short.contains("w-1234") && !short.contains("w-1235") && short.lines().count() < 10,
            "{short}"
        );
        let whole = text(&detail, true);
        assert!(whole.contains("w-1235") && whole.lines().count() > 4000);
        detail.replicas.truncate(ALL);
        assert!(text(&detail, false).contains("w-63 ") && !text(&detail, false).contains("-o wide"));
    }
}
