//! `cancel`, `delete`, `suspend`, `resume`, `hold`, `release`, `requeue`.

use std::io::{BufRead, IsTerminal};

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::job::{Action, JobPhase};
use weftrun::core::report::{ActReport, SchemaName};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;

/// Arguments of verbs that take handles only.
#[derive(Args, Debug)]
pub struct HandleArgs {
    /// Handles of jobs, or their names on the target of -b
    #[arg(required = true, value_name = "HANDLE")]
    pub handles: Vec<String>,
}

/// Arguments of `cancel`.
#[derive(Args, Debug)]
pub struct CancelArgs {
    /// Handles of jobs, or their names on the target of -b
    #[arg(required = true, value_name = "HANDLE")]
    pub handles: Vec<String>,
    /// Send this signal (a number) instead of stopping the job
    #[arg(long, value_name = "N")]
    pub signal: Option<i32>,
}

/// Arguments of `delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Handles of jobs, or their names on the target of -b
    #[arg(required = true, value_name = "HANDLE")]
    pub handles: Vec<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// Stops jobs.
pub fn cancel(context: &Context, args: &CancelArgs) -> Result<u8> {
    run(context, &args.handles, args.signal.map_or(Action::Cancel, Action::Signal))
}

/// Stops jobs and removes their records, after a confirmation on a terminal.
pub fn delete(context: &Context, args: &DeleteArgs) -> Result<u8> {
    if !args.yes && std::io::stdin().is_terminal() {
        context.out.stderr(&format!("delete {} and the logs kept with it? [y/N]", args.handles.join(", ")));
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Error::new(ErrorKind::Interrupted, "nothing was deleted"));
        }
    }
    run(context, &args.handles, Action::Delete)
}

/// Applies one action to each job; the first failure is the result, and the other jobs are still processed.
pub fn run(context: &Context, handles: &[String], action: Action) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let mut first = None;
        for text in handles {
            let done = async {
                let job = context.job(&client, text).await?;
                // Cancelling an ended job is not an error, and changes nothing: the user is shown how it had
                // ended.
                let ended = if action == Action::Cancel { ended(&job).await } else { None };
                job.act(action).await?;
                let said = ended
                    .map_or_else(|| word(action).to_owned(), |phase| format!("had ended before: {phase}"));
                context.out.say(format!("{}: {said}", job.handle()));
                if context.out.is_data() {
                    context.out.item(&ActReport { schema: SchemaName, handle: job.handle(), action })?;
                }
                Ok::<(), Error>(())
            };
            if let Err(error) = done.await {
                match &first {
                    None => first = Some(error),
                    Some(_) => {
                        crate::report_error::report(&context.out, &error);
                    }
                }
            }
        }
        first.map_or(Ok(exit_codes::OK), Err)
    })
}

/// Returns how a job has ended, if it has and its cluster reports it.
async fn ended(job: &weftrun::Job) -> Option<JobPhase> {
    let phase = job.describe().await.ok()?.summary.phase;
    phase.is_terminal().then_some(phase)
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Cancel => "cancelled",
        Action::Delete => "deleted",
        Action::Suspend => "suspended",
        Action::Resume => "resumed",
        Action::Hold => "held",
        Action::Release => "released",
        Action::Requeue => "queued again",
        Action::Signal(_) => "signalled",
        _ => "done",
    }
}
