//! `list`: the jobs of a target.

use clap::Args;
use jiff::Timestamp;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobFilter, JobPhase, JobSummary, age};
use weftrun::core::log::clean_text;
use weftrun::core::report::ListReport;
use weftrun::core::text::did_you_mean;
use weftrun::{Outcome, Record, Result};

use crate::args::Format;
use crate::context::Context;

/// Arguments of `list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Include jobs that have ended
    #[arg(short, long)]
    pub all: bool,
    /// Include jobs that were not submitted by weftrun
    #[arg(long)]
    pub foreign: bool,
    /// Only jobs in this phase (repeatable); a phase of ended jobs implies --all
    #[arg(long, value_parser = phase, value_name = "PHASE")]
    pub phase: Vec<JobPhase>,
    /// Maximum number of jobs, newest first
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Lists the jobs of a target, and submissions with an unknown outcome.
pub fn run(context: &Context, args: &ListArgs) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    let mut filter = JobFilter::all();
    let ended = args.all || args.phase.iter().any(|phase| phase.is_terminal());
    (filter.ended, filter.foreign) = (ended, args.foreign);
    // Jobs of other phases do not count for the limit.
    filter.limit = args.limit.filter(|_| args.phase.is_empty());
    let mut jobs = context.block_on(async {
        for (record, outcome) in client.unresolved_on(&target).await? {
            context.out.stderr(&clean_text(&note(&record, &outcome)));
            if matches!(outcome, Outcome::Absent) {
                client.forget(&record.submission)?;
            }
        }
        client.list_on(&target, &filter).await
    })?;
    if !args.phase.is_empty() {
        jobs.retain(|job| args.phase.contains(&job.phase));
        jobs.truncate(args.limit.unwrap_or(usize::MAX));
    }
    match context.out.format {
        Format::Table => {
            context.out.text(&table(&jobs))?;
            if jobs.is_empty() && !args.all && args.phase.is_empty() {
                context.out.say("no job waits or runs; `weftrun list --all` shows those that have ended");
            }
        }
        Format::Name => jobs.iter().try_for_each(|job| context.out.line(job.handle.to_string()))?,
        _ => context.out.value(&ListReport::new(&jobs))?,
    }
    Ok(exit_codes::OK)
}

fn phase(text: &str) -> std::result::Result<JobPhase, String> {
    let words = JobPhase::ALL.map(JobPhase::as_str);
    JobPhase::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or_else(|| {
        let near = did_you_mean(text, words);
        near.map_or_else(
            || format!("use one of {}", words.join(", ")),
            |near| format!("did you mean `{near}`?"),
        )
    })
}

/// Describes the outcome of a submission that was unknown.
fn note(record: &Record, outcome: &Outcome) -> String {
    let Record { name, created, target, .. } = record;
    match outcome {
        Outcome::Found(handle) => {
            format!("note: the submission of `{name}` had lost its answer; it is {handle}")
        }
        Outcome::InFlight => {
            let by = record
                .owner
                .as_ref()
                .map_or_else(String::new, |owner| format!(" by process {} on {}", owner.pid, owner.host));
            let since = age(Timestamp::now(), *created);
            format!("note: the submission of `{name}` is being sent to {target}{by}, begun {since} ago")
        }
        Outcome::MayArrive => format!(
            "note: the submission of `{name}` at {created} has not appeared on {target} and still may; \
             run `weftrun list` again before you submit it again"
        ),
        _ => format!(
            "note: the submission of `{name}` at {created} never reached {target}, or its job was deleted since; \
             submit it again if you still need it"
        ),
    }
}

fn table(jobs: &[JobSummary]) -> String {
    let now = Timestamp::now();
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["HANDLE", "NAME", "PHASE", "READY", "FABRIC", "AGE", "REASON"]);
    for job in jobs {
        table.add_row([
            job.handle.to_string(),
            clean_text(&job.name).into_owned(),
            job.phase.to_string(),
            format!("{}/{}", job.ready.0, job.ready.1),
            job.fabric.map_or_else(|| "-".to_owned(), |fabric| format!("{fabric:?}").to_lowercase()),
            job.created.map_or_else(|| "-".to_owned(), |then| age(now, then)),
            clean_text(&job.reason).into_owned(),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}
