//! `logs`: the output of the ranks.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use futures_util::{Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use weftrun::core::exit_codes;
use weftrun::core::job::JobDetail;
use weftrun::core::log::{LogOptions, parse_ranks};
use weftrun::core::text::counted;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::follow::with_limits;
use crate::log_print::{LogPrinter, PrintOptions};

#[derive(Args, Debug)]
pub struct LogsArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
    /// Follow until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print only this task of a job of many
    #[arg(long, value_name = "N")]
    pub task: Option<u32>,
    /// Print only these global ranks (0,8-15)
    #[arg(long, value_name = "RANKS")]
    pub rank: Option<String>,
    /// Print only this role
    #[arg(long, value_name = "ROLE")]
    pub role: Vec<String>,
    /// Print only lines newer than this (30s, 5m, 2h)
    #[arg(long, value_parser = crate::job_flags::duration, value_name = "TIME")]
    pub since: Option<std::time::Duration>,
    /// Print only the last lines of each source
    #[arg(long, value_name = "N")]
    pub tail: Option<u64>,
    /// Print the time of each line, where the cluster provides it
    #[arg(long)]
    pub timestamps: bool,
    /// Print the previous attempt
    #[arg(long)]
    pub previous: bool,
    /// Include init containers
    #[arg(long)]
    pub init: bool,
    /// Print only lines that match this regular expression
    #[arg(long, value_name = "RE")]
    pub grep: Option<String>,
    /// Do not print the rank before each line
    #[arg(long)]
    pub no_prefix: bool,
    /// Print also the lines that `bandwidth = true` adds, which `weftrun bandwidth` reads
    #[arg(long)]
    pub measurements: bool,
    /// Maximum number of sources to read at once; 0 for the backend's own limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_streams: usize,
}

/// Prints the logs of a job, all ranks merged.
pub fn run(context: &Context, args: LogsArgs) -> Result<u8> {
    let bad = |what: String| Error::new(ErrorKind::Usage, what);
    let ranges = match &args.rank {
        Some(text) => {
            parse_ranks(text).ok_or_else(|| bad(format!("`{text}` is not a list of ranks such as 0,8-15")))?
        }
        None => Vec::new(),
    };
    let mut options = LogOptions::default();
    options.follow = args.follow;
    options.tail = args.tail;
    // Longer ago than a timestamp can be is from the beginning.
    options.since = args.since.map(|ago| {
        let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
        weftrun::clock::now().checked_sub(ago).unwrap_or(Timestamp::MIN)
    });
    options.previous = args.previous;
    options.init = args.init;
    options.roles = args.role;
    options.max_streams = args.max_streams;
    let print = PrintOptions {
        to_stdout: true,
        timestamps: args.timestamps,
        bare: args.no_prefix,
        measurements: args.measurements,
    };
    let mut printer = LogPrinter::new(print).only(&ranges, args.grep.as_deref())?;
    let client = context.client()?;
    context.block_on(async {
        let mut job = context.job(&client, &args.handle).await?;
        if let Some(task) = args.task {
            job = job.task(task).await?;
        }
        if !options.roles.is_empty() {
            refuse_unknown(&options.roles, &job.describe().await?)?;
        }
        let read = async {
            let (follows, mut batches) = (options.follow, job.logs(options));
            let waits = || {
                let ranks = job.spec().and_then(weftrun::prelude::JobSpec::ranks);
                let ranks = ranks.map_or_else(|| "the job".to_owned(), |ranks| counted(ranks as usize, "rank"));
                if follows {
                    context.out.say(format!(
                        "no line for {} s: still waiting for the logs of {ranks} (Ctrl-C stops waiting, and the job goes on)",
                        QUIET.as_secs()
                    ));
                }
            };
            while let Some(batch) = next_batch(&mut batches, QUIET, waits).await {
                printer.print(&context.out, &batch?)?;
            }
            printer.finish(&context.out)
        };
        with_limits(read, None, job.handle()).await?;
        Ok(exit_codes::OK)
    })
}

/// Time without a line after which a followed log says that it waits.
const QUIET: Duration = Duration::from_mins(1);

/// Returns the next item of a stream. If none comes for a while, says so, once until the next one.
async fn next_batch<T>(
    batches: &mut (impl Stream<Item = T> + Unpin),
    quiet: Duration,
    waits: impl FnOnce(),
) -> Option<T> {
    if let Ok(batch) = tokio::time::timeout(quiet, batches.next()).await {
        return batch;
    }
    waits();
    batches.next().await
}

/// Returns an error for a role that the job does not have.
fn refuse_unknown(roles: &[String], job: &JobDetail) -> Result<()> {
    let known: BTreeSet<&str> = job.replicas.iter().map(|replica| replica.role.as_str()).collect();
    let Some(role) = roles.iter().find(|role| !known.contains(role.as_str())) else { return Ok(()) };
    if known.is_empty() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::NotFound, format!("the job has no role `{role}`"));
    Err(error.with("roles", known.into_iter().collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_followed_log_says_once_that_it_waits_and_loses_no_batch() {
        let pause = Duration::from_millis(40);
        let mut batches = Box::pin(futures_util::stream::unfold(0, |number| async move {
            if number % 2 == 1 {
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            (number < 4).then_some((number, number + 1))
        }));
        let (mut seen, mut said) = (Vec::new(), 0);
        while let Some(batch) = next_batch(&mut batches, pause, || said += 1).await {
            seen.push(batch);
        }
        assert_eq!((seen, said), (vec![0, 1, 2, 3], 2));
    }
}
