//! `wait`: waits until jobs have ended.

use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobPhase, JobSummary};
use weftrun::core::log::clean_text;
use weftrun::core::nccl::FabricSeen;
use weftrun::core::spec::RetryPolicy;
use weftrun::report::{WaitReport, WhyReport};
use weftrun::{Job, Result};

use crate::commands::act::HandleArgs;
use crate::commands::why::{say, why_of};
use crate::context::Context;
use crate::follow::{exit_code_of, with_limits};
use crate::output::because;

#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    pub jobs: HandleArgs,
    /// Return when the first of the jobs has ended, with its result
    #[arg(long)]
    pub any: bool,
    /// Stop waiting after this time (90s, 15m, 4h); the jobs keep running
    #[arg(long, value_parser = crate::job_flags::duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Submit a job again, at most N times, after a failure of its nodes or of the cluster, without the node that failed; a job
    /// that was submitted with --retry is without this flag, too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub retry: Option<u32>,
}

/// Waits for jobs; the exit code is 0 only if all that were waited for succeeded.
pub fn run(context: &Context, args: &WaitArgs) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let mut jobs = Vec::new();
        for handle in &args.jobs.handles {
            let job = context.job(&client, handle).await?;
            if !jobs.iter().any(|known: &Job| known.handle() == job.handle()) {
                jobs.push(job);
            }
        }
        let several = args.jobs.handles.len() > 1;
        // One for all attempts of all jobs.
        let deadline = args.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let waits = jobs.into_iter().map(|job| to_the_end(context, args, deadline, several, job));
        let mut waits: FuturesUnordered<_> = waits.collect();
        let mut code = exit_codes::OK;
        while let Some(of_job) = waits.next().await {
            code = code.max(of_job?);
            if args.any {
                break;
            }
        }
        Ok(code)
    })
}

/// Waits for a job and for the attempts after it, and returns the exit code of the last.
async fn to_the_end(
    context: &Context,
    args: &WaitArgs,
    deadline: Option<Instant>,
    several: bool,
    mut job: Job,
) -> Result<u8> {
    loop {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let summary = with_limits(job.wait(), left, job.handle()).await?;
        let code = exit_code_of(&summary);
        let of_job = job.spec().and_then(|spec| spec.retry);
        let policy = match (args.retry, of_job) {
            (Some(max), Some(mut policy)) => {
                policy.max = max;
                Some(policy)
            }
            (max, of_job) => max.map(RetryPolicy::new).or(of_job),
        };
        // The attempts after it are lines of their own.
        print(context, &job, &summary, several || policy.is_some()).await?;
        let Some(policy) = policy.filter(|_| code != exit_codes::OK) else { return Ok(code) };
        match Box::pin(super::retry::next(context, &job, policy)).await? {
            Some(next) => job = next,
            None => return Ok(code),
        }
    }
}

/// Adds a job that has ended to the history of its nodes. The job's own result counts, whatever comes of this.
pub async fn keep(context: &Context, job: &Job) {
    let Ok(detail) = job.describe().await else { return };
    let note = match detail.summary.phase {
        // Why it failed is kept with it.
        JobPhase::Failed => {
            drop(job.why_with(&detail).await);
            None
        }
        _ => job.keep_end(&detail, None, FabricSeen::Unknown).await,
    };
    context.out.findings(note.as_slice());
}

/// Prints how a job ended, and why it failed. Several jobs are a line each as JSON.
async fn print(context: &Context, job: &Job, summary: &JobSummary, several: bool) -> Result<()> {
    let why = match summary.phase {
        JobPhase::Failed => Some(why_of(job).await),
        _ => {
            keep(context, job).await;
            None
        }
    };
    if context.out.is_data() {
        let report = WaitReport::new(summary, why.map(WhyReport::from));
        return if several { context.out.item(&report) } else { context.out.value(&report) };
    }
    let reason = because(&clean_text(&summary.reason));
    let line = format!("{}: {}{reason}", summary.handle, summary.phase);
    // The cause stands first; among several jobs it needs the name of its job.
    let (before, after) = if several { (Some(&line), None) } else { (None, Some(&line)) };
    before.into_iter().for_each(|line| context.out.say(line));
    if let Some(why) = &why {
        say(&context.out, why);
    }
    after.into_iter().for_each(|line| context.out.say(line));
    Ok(())
}
