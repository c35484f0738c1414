//! `watch`: the events of a job.

use clap::Args;
use futures_util::StreamExt;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::core::job::JobEvent;
use weftrun::report::EventLine;

use crate::context::Context;
use crate::follow::{event_text, exit_code_of, with_limits};

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
}

/// Prints the events of a job until it ends; the exit code is the job's result.
pub fn run(context: &Context, args: &WatchArgs) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let watched = async {
            let mut events = job.watch();
            let mut code = exit_codes::OK;
            while let Some(event) = events.next().await {
                let event = event?;
                if let JobEvent::Status { job } = &event {
                    code = if job.phase.is_terminal() { exit_code_of(job) } else { exit_codes::OK };
                }
                if context.out.is_data() {
                    context.out.item(&EventLine::from(&event))?;
                } else {
                    context.out.line(event_text(&event))?;
                }
            }
            Ok(code)
        };
        with_limits(watched, None, job.handle()).await
    })
}
