//! `wait`: waits until jobs have ended.

use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobPhase, JobSummary};
use weftrun::core::log::clean_text;
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
        let waits = jobs.iter().map(|job| async move {
            let summary = with_limits(job.wait(), args.timeout, job.handle()).await;
            (job, summary)
        });
        let mut waits: FuturesUnordered<_> = waits.collect();
        let mut code = exit_codes::OK;
        while let Some((job, summary)) = waits.next().await {
            let summary = summary?;
            code = code.max(exit_code_of(&summary));
            print(context, job, &summary, args.jobs.handles.len() > 1).await?;
            if args.any {
                break;
            }
        }
        Ok(code)
    })
}

/// Prints how a job ended, and why it failed. Several jobs are a line each as JSON.
async fn print(context: &Context, job: &Job, summary: &JobSummary, several: bool) -> Result<()> {
    let why = match summary.phase {
        JobPhase::Failed => Some(why_of(job).await),
        _ => None,
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
