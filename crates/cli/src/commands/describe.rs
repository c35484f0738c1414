//! `describe`: the details of a job.

use clap::Args;
use jiff::Timestamp;
use weftrun::Result;
use weftrun::convert::decision_text;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobDetail, JobPhase, JobSummary, age};
use weftrun::core::log::clean_text as printable;
use weftrun::report::{DescribeReport, WhyReport};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

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
        let detail = job.describe().await?;
        let why = job.trouble(&detail).await;
        Ok((job, detail, why))
    })?;
    let decisions = job.plan().map(|plan| plan.decisions.as_slice()).unwrap_or_default();
    if context.out.format == Format::Table {
        if let Some(why) = &why {
            for line in why.lines() {
                context.out.line(printable(&line))?;
            }
        }
        context.out.text(&text(&detail))?;
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
    let said = |time: Timestamp| time.strftime("%FT%TZ").to_string();
    let mut times = Vec::new();
    times.extend(job.created.map(|time| ("created", said(time))));
    match job.started {
        // Where a job waits, it is the cluster's expectation.
        Some(time) if job.phase == JobPhase::Pending && time > now => {
            times.push(("starts", format!("{} (expected)", said(time))));
        }
        Some(time) if job.phase != JobPhase::Pending => {
            times.push(("started", said(time)));
            let until =
                job.ended.or((!job.phase.is_terminal()).then_some(now)).filter(|until| *until >= time);
            times.extend(until.map(|until| ("elapsed", age(until, time))));
        }
        _ => {}
    }
    times.extend(job.ended.map(|time| ("ended", said(time))));
    times
}

fn text(detail: &JobDetail) -> String {
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
        let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.push_str(&format!("  labels  {}\n", printable(&labels.join(","))));
    }
    for (key, value) in &detail.facts {
        text.push_str(&format!("  {:<7} {}\n", printable(key), printable(value)));
    }
    for replica in &detail.replicas {
        let exit = replica.exit_code.map_or_else(String::new, |code| format!(" exit {code}"));
        let node = printable(replica.node.as_deref().unwrap_or("-"));
        text.push_str(&format!(
            "  {:<24} {:<10} node {node}{exit} {}\n",
            printable(&replica.name),
            replica.phase,
            printable(&replica.reason)
        ));
    }
    text
}
