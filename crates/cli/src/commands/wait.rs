//! `wait`: waits until a job has ended.

use std::time::Duration;

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::core::job::JobPhase;
use weftrun::core::log::clean_text;
use weftrun::core::report::{SchemaName, WaitReport, WhyReport};

use crate::commands::why::{say, why_of};
use crate::context::Context;
use crate::follow::with_limits;

/// Arguments of `wait`.
#[derive(Args, Debug)]
pub struct WaitArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
    /// Stop waiting after this time (90s, 15m, 4h); the job keeps running
    #[arg(long, value_parser = crate::job_flags::duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
}

/// Waits for a job; the exit code is the job's result.
pub fn run(context: &Context, args: &WaitArgs) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let summary = with_limits(job.wait(), args.timeout, job.handle()).await?;
        let why = match summary.phase {
            JobPhase::Failed => Some(why_of(&job).await),
            _ => None,
        };
        if context.out.is_data() {
            let why = why.map(WhyReport::from);
            context.out.value(&WaitReport { schema: SchemaName, job: &summary, why })?;
        } else {
            if let Some(why) = &why {
                say(&context.out, why);
            }
            let reason = clean_text(&summary.reason);
            context.out.say(format!("{}: {} {reason}", summary.handle, summary.phase));
        }
        Ok(if summary.phase == JobPhase::Succeeded { exit_codes::OK } else { exit_codes::JOB_FAILED })
    })
}
