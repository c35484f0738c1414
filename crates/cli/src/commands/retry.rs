//! `retry`: submits a job again that failed for its nodes or for the cluster, and `--retry` of the verbs that watch one.

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::core::spec::RetryPolicy;
use weftrun::diagnose::nodes::Decision;
use weftrun::report::RetryReport;
use weftrun::{Client, ErrorKind, Job, NextAttempt, Result};

use crate::context::Context;
use crate::{follow, report_error};

const EXAMPLES: &str = "\
Examples:
  weftrun retry llama                                again without the node that failed, if a node failed
  weftrun submit --follow --retry 3 job.toml         the same by itself, three times at most
  weftrun wait --retry 3 \"$H\"
  weftrun explain faults                             which causes are retried";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RetryArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
    /// Decide and print the evidence, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Submits a job again if its nodes or the cluster failed.
pub fn run(context: &Context, args: &RetryArgs) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let policy = job.spec().and_then(|spec| spec.retry);
        let mut by_hand = RetryPolicy::BY_HAND;
        by_hand.avoid = policy.map_or(by_hand.avoid, |policy| policy.avoid);
        let next = client.next_attempt(&job, by_hand).await?;
        say(context, &next);
        let made = if args.dry_run { None } else { submit(context, &client, &next).await? };
        let handle = made.as_ref().or(next.job.as_ref()).map(Job::handle);
        if context.out.is_data() {
            context.out.value(&RetryReport::new(job.handle(), next.number, handle, &next.decision))?;
        } else if let Some(handle) = handle {
            context.out.document(format!("{handle}\n"))?;
        }
        let stopped = matches!(next.decision, Decision::Stop { .. });
        Ok(if stopped { exit_codes::REFUSED } else { exit_codes::OK })
    })
}

/// Submits a job again that has ended, if the decision is so; none if it stays ended. Every decision is printed with its
/// evidence. An error is printed, and the job's own end stays what it was; only an interruption is returned.
pub async fn next(context: &Context, job: &Job, policy: RetryPolicy) -> Result<Option<Job>> {
    let attempt = async {
        let client = context.client()?;
        let next = client.next_attempt(job, policy).await?;
        say(context, &next);
        submit(context, &client, &next).await
    };
    match attempt.await {
        Err(error) if error.kind() != ErrorKind::Interrupted => {
            context.out.say(format!("{} was not submitted again:", job.handle()));
            report_error::report(&context.out, &error);
            Ok(None)
        }
        made => made,
    }
}

/// Returns the job of an attempt, which another process may have made.
async fn submit(context: &Context, client: &Client, next: &NextAttempt) -> Result<Option<Job>> {
    let job = match (&next.job, &next.plan) {
        (Some(job), _) => job.clone(),
        (None, None) => return Ok(None),
        (None, Some(plan)) => {
            let (job, interrupted) = follow::submit(context, plan).await?;
            if let Some(error) = interrupted {
                return Err(error);
            }
            job
        }
    };
    client.delivered(job.handle())?;
    context.out.say(format!("attempt {} is {}", next.number, job.handle()));
    Ok(Some(job))
}

fn say(context: &Context, next: &NextAttempt) {
    let line = match &next.decision {
        Decision::Stop { why } => format!("not submitted again: {why}"),
        Decision::Retry { proven, suspects, why, .. } => {
            let nodes: Vec<&str> = proven.iter().chain(suspects).map(|left| left.node.as_str()).collect();
            let without = match nodes.as_slice() {
                [] => "no node is left out".to_owned(),
                nodes => format!("without {}", nodes.join(", ")),
            };
            let made = if next.job.is_some() { "was submitted before" } else { "follows" };
            format!("attempt {} {made}, {without}: {why}", next.number)
        }
    };
    context.out.say(clean_text(&line));
}
