//! `cancel`, `delete`, `suspend`, `resume`, `hold`, `release`, `requeue`.

use std::io::IsTerminal;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::job::{Action, JobPhase};
use weftrun::report::ActReport;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;

/// Arguments of verbs that take handles only.
#[derive(Args, Debug)]
pub struct HandleArgs {
    /// Handles of jobs, or their names on the target of -b
    #[arg(required = true, value_name = "HANDLE")]
    pub handles: Vec<String>,
}

#[derive(Args, Debug)]
pub struct CancelArgs {
    #[command(flatten)]
    pub jobs: HandleArgs,
    /// Send this signal (`USR1` or a number) instead of stopping the job
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub signal: Option<i32>,
    /// Print the jobs that would be stopped without stopping them
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub jobs: HandleArgs,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Print the jobs that would be removed without removing them
    #[arg(long)]
    pub dry_run: bool,
}

/// Signals by name; their numbers are those of Linux on x86-64 and arm64 (signal(7)).
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];

fn signal(text: &str) -> std::result::Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number))).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        format!("use a number from 1 to 64, or one of {}", names.join(", "))
    })
}

pub fn cancel(context: &Context, args: &CancelArgs) -> Result<u8> {
    let action = args.signal.map_or(Action::Cancel, Action::Signal);
    let handles = &args.jobs.handles;
    if args.dry_run { would(context, handles, action) } else { run(context, handles, action) }
}

/// Stops jobs and removes their records, after a confirmation on a terminal.
pub fn delete(context: &Context, args: &DeleteArgs) -> Result<u8> {
    let handles = &args.jobs.handles;
    if args.dry_run {
        return would(context, handles, Action::Delete);
    }
    if !args.yes && std::io::stdin().is_terminal() {
        let question = format!("delete {} and the logs kept with it? [y/N]", handles.join(", "));
        if !matches!(&*context.ask(&question), "y" | "Y" | "yes") {
            return Err(Error::new(ErrorKind::Interrupted, "nothing was deleted"));
        }
    }
    run(context, handles, Action::Delete)
}

/// Applies one action to each job; the first failure is the result, and the other jobs are still processed.
pub fn run(context: &Context, handles: &[String], action: Action) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let (jobs, mut failures) = jobs(context, &client, handles, action).await;
        for job in jobs {
            let done = async {
                // Cancelling an ended job is not an error, and changes nothing: the user is shown how it had
                // ended.
                let ended = if action == Action::Cancel { ended(&job).await } else { None };
                if ended.is_none() && matches!(action, Action::Cancel | Action::Delete) {
                    job.keep_trouble().await;
                }
                job.act(action).await?;
                let has_tasks = job.spec().is_some_and(|spec| spec.tasks().is_some());
                if has_tasks && matches!(action, Action::Cancel | Action::Delete) {
                    settle(context, &client, &job);
                }
                let mut said = ended
                    .map_or_else(|| word(action).to_owned(), |phase| format!("had ended before: {phase}"));
                if action == Action::Cancel {
                    said.push_str(&of_tasks(&job).await);
                    said.push_str(&of_attempts(&client, &job).await);
                }
                context.out.say(format!("{}: {said}", job.handle()));
                if context.out.is_data() {
                    context.out.item(&ActReport::new(job.handle(), action))?;
                }
                Ok::<(), Error>(())
            };
            failures.extend(done.await.err());
        }
        result(context, failures)
    })
}

/// Returns the jobs of names and handles, each once, and the errors of those that mean no job. All are looked up before
/// anything changes, since a name may mean another job afterwards.
async fn jobs(
    context: &Context,
    client: &weftrun::Client,
    handles: &[String],
    action: Action,
) -> (Vec<weftrun::Job>, Vec<Error>) {
    let (mut jobs, mut failures): (Vec<weftrun::Job>, _) = (Vec::new(), Vec::new());
    for text in handles {
        match context.job_for(client, text, action).await {
            Ok(job) if jobs.iter().any(|known| known.handle() == job.handle()) => {}
            Ok(job) => jobs.push(job),
            Err(error) => failures.push(error),
        }
    }
    (jobs, failures)
}

/// Returns the first failure, and prints the others.
fn result(context: &Context, failures: Vec<Error>) -> Result<u8> {
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|error| {
        crate::report_error::report(&context.out, &error);
    });
    first.map_or(Ok(exit_codes::OK), Err)
}

/// Prints which jobs an action would be applied to, and their phases. A job that cannot be found does not stop it.
fn would(context: &Context, handles: &[String], action: Action) -> Result<u8> {
    context.out.text_only("--dry-run")?;
    let client = context.client()?;
    context.block_on(async {
        let (jobs, mut failures) = jobs(context, &client, handles, action).await;
        for job in jobs {
            let printed = async {
                let phase = job.describe().await?.summary.phase;
                let what = match action {
                    Action::Cancel | Action::Signal(_) if phase.is_terminal() => {
                        format!("has ended ({phase}), would stay as it is")
                    }
                    _ => format!("{phase}, would be {}", word(action)),
                };
                context.out.line(format!("{}: {what}", job.handle()))
            };
            failures.extend(printed.await.err());
        }
        result(context, failures)
    })
}

/// Records that the rest of a set that was ended is not submitted by the same command any more.
fn settle(context: &Context, client: &weftrun::Client, job: &weftrun::Job) {
    if let Err(error) = client.delivered(job.handle()) {
        context.out.say(format!("the same `submit` command may continue with it: {error}"));
    }
}

/// Says how many tasks a cancelled job had, where some are not in the cluster.
async fn of_tasks(job: &weftrun::Job) -> String {
    let tasks = job.describe().await.ok().and_then(|detail| detail.summary.tasks);
    let lacking = tasks.filter(|tasks| tasks.missing() > 0);
    let Some((total, tasks)) = lacking.and_then(|tasks| Some((tasks.total?, tasks))) else {
        return String::new();
    };
    let missing = tasks.missing();
    format!(
        ": {} of its {total} tasks; {missing} {} not in the cluster",
        total.saturating_sub(missing),
        if missing == 1 { "is" } else { "are" }
    )
}

/// Names the newest attempt of a job that was submitted again, where that has not ended: only the job that is named is cancelled.
async fn of_attempts(client: &weftrun::Client, job: &weftrun::Job) -> String {
    let Ok(Some((newest, attempt))) = client.newest_attempt(job.handle()) else { return String::new() };
    let Ok(newest) = client.attach(&newest).await else { return String::new() };
    match ended(&newest).await {
        Some(_) => String::new(),
        None => {
            format!("; its {} is {1}: `weftrun cancel '{1}'` ends that", attempt.label(), newest.handle())
        }
    }
}

/// Returns how a job has ended, if it has and its cluster reports it.
async fn ended(job: &weftrun::Job) -> Option<JobPhase> {
    let job = job.describe().await.ok()?.summary;
    // The phase of an array that has ended is unknown where some of its tasks are.
    (job.phase.is_terminal() || job.ended.is_some()).then_some(job.phase)
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
