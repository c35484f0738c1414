//! `list`: the jobs of a target.

use std::collections::BTreeMap;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use jiff::Timestamp;
use weftrun::core::backend::TargetConfig;
use weftrun::core::exit_codes;
use weftrun::core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, age};
use weftrun::core::log::clean_text;
use weftrun::core::text::suggestion;
use weftrun::report::{EventLine, ListReport};
use weftrun::{Attempts, Client, Outcome, Record, Result};

use crate::context::Context;
use crate::global::Format;
use crate::interrupt::interrupted;
use crate::output::{because, labels_text, time_text};

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Include jobs that have ended
    #[arg(short, long)]
    pub all: bool,
    /// Include jobs that were not submitted by weftrun
    #[arg(long)]
    pub foreign: bool,
    /// Only your own jobs: of your account, or where a cluster does not say whose they are, submitted from this machine
    #[arg(long, conflicts_with_all = ["foreign", "watch"])]
    pub mine: bool,
    /// Only jobs in this phase (repeatable); a phase of ended jobs implies --all
    #[arg(long, value_parser = phase, value_name = "PHASE")]
    pub phase: Vec<JobPhase>,
    /// Only jobs with this label (repeatable, or `KEY=VALUE,KEY=VALUE`); backends that list no labels refuse it
    #[arg(short, long, value_parser = label, value_delimiter = ',', value_name = "KEY=VALUE")]
    pub label: Vec<(String, String)>,
    /// Maximum number of jobs, newest first
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Each task of a set of jobs on a line of its own
    #[arg(long)]
    pub all_tasks: bool,
    /// Jobs of every configured target, and of the default one
    #[arg(short = 'A', long, conflicts_with = "backend")]
    pub all_targets: bool,
    /// Print each job that changes, until Ctrl-C
    #[arg(short, long, conflicts_with = "limit")]
    pub watch: bool,
}

/// Lists the jobs of a target, and submissions with an unknown outcome.
pub fn run(context: &Context, args: &ListArgs) -> Result<u8> {
    let client = context.client()?;
    let mut targets = vec![context.target(&client)?];
    if args.all_targets {
        let default = targets[0].name.clone();
        targets.extend(client.config().targets.values().filter(|target| target.name != default).cloned());
    }
    let mut filter = JobFilter::all();
    let ended = args.all || args.phase.iter().any(|phase| phase.is_terminal());
    (filter.ended, filter.foreign, filter.mine) = (ended, args.foreign, args.mine);
    filter.tasks = args.all_tasks;
    filter.labels.extend(args.label.iter().cloned());
    if args.watch {
        return context.block_on(watch(context, &client, &targets, &filter, &args.phase));
    }
    // Jobs of other phases do not count for the limit.
    filter.limit = args.limit.filter(|_| args.phase.is_empty());
    let (mut jobs, mut failed) = (Vec::new(), None);
    for target in &targets {
        match context.block_on(of_target(context, &client, target, &filter)) {
            Ok(found) => jobs.extend(found),
            Err(error) if args.all_targets => {
                context.out.stderr(&clean_text(&format!("{}: {error}", target.name)));
                failed = failed.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    if !args.phase.is_empty() {
        jobs.retain(|job| args.phase.contains(&job.phase));
    }
    if args.all_targets {
        jobs = once(jobs);
        jobs.sort_by_key(|job| std::cmp::Reverse(job.created));
    }
    as_attempts(&client.attempts()?, &mut jobs);
    jobs.truncate(args.limit.unwrap_or(usize::MAX));
    match context.out.format {
        Format::Table | Format::Wide => {
            context.out.text(&table(&client, &jobs, context.out.format))?;
            if jobs.is_empty() && failed.is_none() && !args.all && args.phase.is_empty() {
                let of = if args.label.is_empty() { "no job" } else { "no job with these labels" };
                context
                    .out
                    .say(format!("{of} waits or runs; `weftrun list --all` shows those that have ended"));
            }
        }
        Format::Name => jobs.iter().try_for_each(|job| context.out.line(job.handle.to_string()))?,
        _ => context.out.value(&ListReport::new(&jobs))?,
    }
    // The list of the other targets is printed, and is not the whole answer.
    Ok(failed.map_or(exit_codes::OK, |error| exit_codes::of(error.kind())))
}

/// Makes one line of a job that was submitted again: that of its newest attempt in the list.
fn as_attempts(attempts: &Attempts, jobs: &mut Vec<JobSummary>) {
    let handles: Vec<JobHandle> = jobs.iter().map(|job| job.handle.clone()).collect();
    let replaced = attempts.replaced_in(&handles);
    jobs.retain(|job| !replaced.contains(&job.handle));
    for job in jobs {
        if let Some(attempt) = attempts.of(&job.handle) {
            job.reason = format!("{}{}", attempt.label(), because(&job.reason));
        }
    }
}

/// What tells a job from all others, through whichever target it is seen: its id in the cluster, else its place there with the
/// time of its creation.
type Identity = (String, Vec<String>, Option<String>, Option<Timestamp>, Option<String>);

fn identity(job: &JobSummary) -> Option<Identity> {
    let handle = &job.handle;
    let uid = handle.uid().map(str::to_owned);
    let time = job.created.filter(|_| uid.is_none());
    let is_certain = uid.is_some() || time.is_some();
    let submission = job.submission.as_ref().map(ToString::to_string);
    is_certain.then(|| (handle.backend().to_owned(), handle.parts().to_vec(), uid, time, submission))
}

/// Returns the jobs without those that another target has, too: several targets may be the same cluster. The one that weftrun
/// submitted to stays, else the first.
fn once(jobs: Vec<JobSummary>) -> Vec<JobSummary> {
    let mut found: Vec<JobSummary> = Vec::new();
    let mut places: BTreeMap<Identity, usize> = BTreeMap::new();
    for job in jobs {
        let id = identity(&job);
        let known = id.as_ref().and_then(|id| places.get(id)).and_then(|at| found.get_mut(*at));
        match known {
            Some(known) if known.fabric.is_none() && job.fabric.is_some() => *known = job,
            Some(_) => {}
            None => {
                places.extend(id.map(|id| (id, found.len())));
                found.push(job);
            }
        }
    }
    found
}

async fn of_target(
    context: &Context,
    client: &Client,
    target: &TargetConfig,
    filter: &JobFilter,
) -> Result<Vec<JobSummary>> {
    for (record, outcome) in client.unresolved_on(target).await? {
        if let Outcome::Found(set) = &outcome
            && record.state.is_unresolved()
        {
            // The same command continues with it.
            let set = client.attach(set).await?.describe().await?.summary;
            if let Some(note) = note_of_part(&set) {
                context.out.stderr(&clean_text(&note));
            }
            continue;
        }
        context.out.stderr(&clean_text(&note(&record, &outcome)));
        match outcome {
            Outcome::Absent => client.forget(&record.submission)?,
            // On a full disk, the next submission of the job tells its handle once more.
            Outcome::Found(handle) => drop(client.delivered(&handle)),
            _ => {}
        }
    }
    client.list_on(target, filter).await
}

/// Prints the jobs of the targets, and each again when its line changes.
async fn watch(
    context: &Context,
    client: &Client,
    targets: &[TargetConfig],
    filter: &JobFilter,
    phases: &[JobPhase],
) -> Result<u8> {
    let (mut shown, mut widths) = (BTreeMap::new(), Vec::new());
    let mut by: BTreeMap<Identity, JobHandle> = BTreeMap::new();
    // The end of a job that was shown is shown too.
    let ended = filter.ended;
    let mut filter = filter.clone();
    filter.ended = true;
    let mut events = SelectAll::new();
    for target in targets {
        events.push(client.connect(target).await?.watch(filter.clone()));
    }
    let mut interrupted = std::pin::pin!(interrupted());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut interrupted => None,
        };
        let Some(event) = event.transpose()? else { return Ok(exit_codes::OK) };
        let JobEvent::Status { job } = event else { continue };
        let first = identity(&job).map(|id| by.entry(id).or_insert_with(|| job.handle.clone()));
        if first.is_some_and(|first| *first != job.handle) {
            continue;
        }
        // Its age alone is no change.
        let seen = (job.phase, job.ready, job.reason.clone());
        let is_new = !shown.contains_key(&job.handle);
        let is_meant = |phase| {
            if phases.is_empty() { ended || !JobPhase::is_terminal(phase) } else { phases.contains(&phase) }
        };
        if is_new && !is_meant(job.phase)
            || shown.insert(job.handle.clone(), seen.clone()).is_some_and(|before| before == seen)
        {
            continue;
        }
        match context.out.format {
            Format::Table | Format::Wide => {
                let row = row(client, &job, context.out.format);
                if widths.is_empty() {
                    // The titles stand above the first row.
                    widths = row.iter().map(|cell| cell.chars().count()).collect();
                    context.out.line(aligned(&titles(context.out.format), &mut widths))?;
                }
                context.out.line(aligned(&row, &mut widths))?;
            }
            Format::Name => context.out.line(job.handle.to_string())?,
            _ => context.out.item(&EventLine::from(&JobEvent::Status { job }))?,
        }
    }
}

/// Returns the cells as a line. A column grows with its widest cell so far.
fn aligned(cells: &[String], widths: &mut [usize]) -> String {
    let mut line = " ".to_owned();
    for (cell, width) in cells.iter().zip(widths) {
        *width = cell.chars().count().max(*width);
        line.push_str(&format!("{cell:width$}  ", width = *width));
    }
    line.trim_end().to_owned()
}

fn label(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "write `KEY=VALUE`".to_owned())
}

fn phase(text: &str) -> std::result::Result<JobPhase, String> {
    let words = JobPhase::ALL.map(JobPhase::as_str);
    JobPhase::ALL
        .into_iter()
        .find(|phase| phase.as_str() == text)
        .ok_or_else(|| suggestion(text, words).unwrap_or_else(|| format!("use one of {}", words.join(", "))))
}

/// Says how far the submission of a set came that was interrupted or refused; nothing once all of it has ended.
fn note_of_part(set: &JobSummary) -> Option<String> {
    let (counts, handle) = (set.tasks.as_ref()?, &set.handle);
    let total = counts.total?;
    let there = total.saturating_sub(counts.missing());
    let ended: u32 =
        counts.phases.iter().filter(|(phase, _)| phase.is_terminal()).map(|(_, count)| count).sum();
    (ended < there).then(|| {
        format!(
            "note: the submission of `{}` was not completed: {there} of {total} tasks are there; the same `submit` command submits \
             the rest, `weftrun cancel '{handle}'` ends it",
            set.name
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
            let since = age(weftrun::clock::now(), *created);
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

/// The columns: the title, whether only `-o wide` has it, and the cell of a job.
type Column = (&'static str, bool, fn(&Client, &JobSummary) -> String);

const COLUMNS: [Column; 16] = [
    ("HANDLE", false, |_, job| job.handle.to_string()),
    ("NAME", false, |_, job| clean_text(&job.name).into_owned()),
    ("PHASE", false, |_, job| job.phase.to_string()),
    ("READY", false, |_, job| format!("{}/{}", job.ready.0, job.ready.1)),
    ("FABRIC", false, |_, job| or_dash(job.fabric.map(|fabric| fabric.to_string()))),
    ("AGE", false, |_, job| or_dash(job.created.map(|then| age(weftrun::clock::now(), then)))),
    ("KIND", true, |_, job| text(&job.kind)),
    ("QUEUE", true, |_, job| text(job.queue.as_deref().unwrap_or_default())),
    ("OWNER", true, |_, job| text(job.owner.as_deref().unwrap_or_default())),
    ("SUBMITTED", true, |_, job| time(job.created)),
    ("STARTED", true, |_, job| time(job.started.filter(|_| job.phase != JobPhase::Pending))),
    ("ENDED", true, |_, job| time(job.ended)),
    ("EXIT", true, |_, job| or_dash(job.exit_code.map(|code| code.to_string()))),
    ("LABELS", true, |_, job| text(&labels_text(&job.labels))),
    ("LAST SEEN", true, |client, job| {
        or_dash(client.last_seen(&job.handle).map(|(seen, at)| {
            clean_text(&format!("{seen} ({} ago)", age(weftrun::clock::now(), at))).into_owned()
        }))
    }),
    ("REASON", false, |_, job| clean_text(&job.reason).into_owned()),
];

fn columns(format: Format) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |(_, wide, _)| !wide || format == Format::Wide)
}

fn titles(format: Format) -> Vec<String> {
    columns(format).map(|(title, ..)| (*title).to_owned()).collect()
}

fn row(client: &Client, job: &JobSummary, format: Format) -> Vec<String> {
    columns(format).map(|(.., cell)| cell(client, job)).collect()
}

fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

fn text(text: &str) -> String {
    or_dash((!text.is_empty()).then(|| clean_text(text).into_owned()))
}

fn time(at: Option<Timestamp>) -> String {
    or_dash(at.map(time_text))
}

fn table(client: &Client, jobs: &[JobSummary], format: Format) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(titles(format));
    for job in jobs {
        table.add_row(row(client, job, format));
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(handle: &str, second: i64) -> JobSummary {
        let mut job = JobSummary::new(handle.parse().unwrap(), JobPhase::Running);
        job.created = Timestamp::from_second(second).ok();
        job
    }

    #[test]
    fn an_attempt_is_left_out_only_beside_one_that_replaces_it() {
        let attempt = serde_json::json!({
            "first": "0123456789abcdef0123456789abcdef", "name": "a", "number": 3, "left_out": [], "for_network": 0,
            "earlier": [{"job": "slurm://a/1", "why": "w"}, {"job": "slurm://a/2", "why": "w"}],
        });
        let attempt = serde_json::from_value(attempt).unwrap();
        let attempts: Attempts = [("slurm://a/3".parse().unwrap(), attempt)].into_iter().collect();
        let listed = |handles: &[&str]| {
            let mut jobs: Vec<JobSummary> = handles.iter().map(|handle| job(handle, 1)).collect();
            as_attempts(&attempts, &mut jobs);
            jobs.iter().map(|job| format!("{} {}", job.handle, job.reason)).collect::<Vec<_>>()
        };
        assert_eq!(listed(&["slurm://a/3", "slurm://a/2", "slurm://a/1"]), ["slurm://a/3 attempt 3"]);
        // The third is not listed: it was deleted, or has another phase.
        assert_eq!(listed(&["slurm://a/1", "slurm://a/4"]), ["slurm://a/1 ", "slurm://a/4 "]);
    }

    #[test]
    fn a_job_that_several_targets_see_is_listed_once() {
        let mut submitted = job("kubeflow://b/ns/pytorchjob/llama#1", 1);
        submitted.fabric = Some(weftrun::core::fabric::Fabric::Efa);
        let jobs = vec![
            job("kubeflow://a/ns/pytorchjob/llama#1", 1),
            submitted,
            job("kubeflow://c/ns/pytorchjob/llama#2", 1),
            job("slurm://a/8", 5),
            job("slurm://b/8", 5),
            job("slurm://c/8", 6),
        ];
        let handles: Vec<String> = once(jobs).iter().map(|job| job.handle.to_string()).collect();
        let expected = [
            "kubeflow://b/ns/pytorchjob/llama#1",
            "kubeflow://c/ns/pytorchjob/llama#2",
            "slurm://a/8",
            "slurm://c/8",
        ];
        assert_eq!(handles, expected);
        let unknown = |target: &str| {
            let mut job = job(&format!("slurm://{target}/9"), 1);
            job.created = None;
            job
        };
        assert_eq!(once(vec![unknown("a"), unknown("b")]).len(), 2, "nothing says that they are one");
    }

    #[test]
    fn a_set_that_was_submitted_in_part_says_how_much_of_it_is_there() {
        use weftrun::core::job::TaskCounts;
        let note = |phases: &[JobPhase]| {
            let mut set = job("local://local/set/tw#abc", 1);
            set.tasks = Some(TaskCounts::new(6, phases.iter().copied()));
            note_of_part(&set)
        };
        let said = note(&[JobPhase::Succeeded, JobPhase::Running, JobPhase::Pending]).unwrap();
        assert!(said.contains("`tw` was not completed: 3 of 6 tasks are there"), "{said}");
        assert!(said.contains("`weftrun cancel 'local://local/set/tw#abc'` ends it"), "{said}");
        assert_eq!(note(&[JobPhase::Succeeded, JobPhase::Cancelled]), None);
    }
}
