//! `submit`: plan, print the mutation, submit, follow.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use weftrun::core::exit_codes;
use weftrun::core::job::{JobPhase, JobSummary, age};
use weftrun::core::log::clean_text;
use weftrun::report::{EventLine, OwnEvent, PlanShape};
use weftrun::{Error, ErrorKind, Finding, Job, Outcome, Plan, Result};

use super::{plan, render};
use crate::context::Context;
use crate::follow::{self, with_limits};
use crate::job_flags::JobFlags;

const EXAMPLES: &str = "\
Examples:
  weftrun submit --follow job.toml -b prod
  weftrun submit --nodes 2 --gpus-per-node 8 --image IMAGE --launch torchrun -- train.py --epochs 3
  weftrun submit --no-fabric-rule efa.hugepages job.toml
  H=$(weftrun submit job.toml) && weftrun logs -f \"$H\"

stdout holds only the handle; with -o json, one event a line, the first with the handle.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SubmitArgs {
    /// The job
    #[command(flatten)]
    pub job: JobFlags,
    /// Follow events and logs until the job ends (implies --wait)
    #[arg(long, short)]
    pub follow: bool,
    /// Wait until the job ends and exit with its result
    #[arg(long)]
    pub wait: bool,
    /// Return once the cluster has accepted the job (the default)
    #[arg(long, conflicts_with_all = ["follow", "wait"])]
    pub detach: bool,
    /// Stop waiting after this time; the job keeps running
    #[arg(long, value_parser = crate::job_flags::duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Cancel the job if it has not started after this time, and say why it did not; without --wait or --follow, return once
    /// it has started
    #[arg(long, value_parser = crate::job_flags::duration, value_name = "TIME", conflicts_with_all = ["detach", "dry_run"])]
    pub start_timeout: Option<Duration>,
    /// Print what would be sent without submitting it; `server` asks the cluster to validate it
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "client", require_equals = true, value_name = "WHERE")]
    pub dry_run: Option<DryRun>,
    /// Read the image from its registry first, and refuse one that cannot load the planned fabric
    #[arg(long)]
    pub check_image: bool,
    /// Submit another job even if an interrupted submission of the same job is in the cluster
    #[arg(long)]
    pub again: bool,
    /// Continue with the job of an interrupted submission without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// How far a dry run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Nothing is sent
    Client,
    /// The cluster checks it
    Server,
}

/// Plans a job, prints what changes, submits it.
pub fn run(context: &Context, args: &SubmitArgs) -> Result<u8> {
    let spec = args.job.spec(context)?;
    let client = context.client()?;
    let target = context.target(&client)?;
    context.block_on(async {
        let mut planned = match args.dry_run {
            Some(DryRun::Client) => client.plan_offline_for(target, &spec)?,
            _ => client.plan_for(target, &spec).await?,
        };
        if args.check_image {
            plan::check_image(context, &mut planned).await?;
        }
        let rendered = planned.render().await;
        let fabric =
            rendered.map_or_else(|_| planned.fabric().clone(), |rendered| planned.announced(&rendered));
        context.out.say(plan::text(&planned, &fabric).trim_end());
        let mut findings = planned.findings();
        if args.dry_run.is_none() {
            // The refusal of the submission has these errors.
            let of_plan: Vec<_> =
                planned.fabric().findings.iter().filter(|finding| finding.is_error()).collect();
            findings
                .retain(|finding| !finding.is_error() || !(of_plan.is_empty() || of_plan.contains(&finding)));
        }
        context.out.findings(&findings);
        if let Some(dry_run) = args.dry_run {
            return dry(context, &planned, dry_run).await;
        }
        Box::pin(submit(context, args, &planned)).await
    })
}

async fn dry(context: &Context, planned: &Plan, dry_run: DryRun) -> Result<u8> {
    let mut findings = planned.findings();
    if dry_run == DryRun::Server {
        let refused = planned.check().await?;
        context.out.findings(&refused);
        findings.extend(refused);
    }
    let rendered = planned.render_document().await?;
    let new = plan::without(&rendered.findings, &findings);
    context.out.findings(&new);
    findings.extend(new);
    render::print(context, &rendered, &findings)?;
    let failed = findings.iter().any(Finding::is_error);
    Ok(if failed { exit_codes::INVALID_SPEC } else { exit_codes::OK })
}

async fn submit(context: &Context, args: &SubmitArgs, planned: &Plan) -> Result<u8> {
    // If it cannot be rendered, the submission reports why.
    if let Ok(rendered) = planned.render().await {
        context.out.findings(&rendered.findings);
    }
    let earlier = if args.again { None } else { earlier(context, args, planned).await? };
    let (job, interrupted) = match earlier {
        Some(found) => found,
        None => follow::submit(context, planned).await?,
    };
    announce(context, &job, planned)?;
    if let Some(error) = interrupted {
        return Err(error);
    }
    let policy = planned.planned().spec.retry;
    if policy.is_some() && !(args.follow || args.wait) {
        context.out.say("the job is not submitted again by itself: use --follow or --wait, or `weftrun wait` or `weftrun retry` later");
    }
    let mut job = job;
    // One for all attempts.
    let deadline = args.timeout.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let code = watch(context, args, left, planned, &job).await?;
        let Some(policy) = policy.filter(|_| code == exit_codes::JOB_FAILED && (args.follow || args.wait))
        else {
            return Ok(code);
        };
        match Box::pin(super::retry::next(context, &job, policy)).await? {
            Some(next) => {
                announce_attempt(context, &next)?;
                job = next;
            }
            None => return Ok(code),
        }
    }
}

/// Prints the event of an attempt, which follows the end of the one before. For people its handle is among the messages: the
/// output has that of the first submission alone.
fn announce_attempt(context: &Context, job: &Job) -> Result<()> {
    let (Some(spec), Some(plan)) = (job.spec(), job.plan()) else { return Ok(()) };
    if !context.out.is_data() {
        return Ok(());
    }
    context.out.item(&EventLine::from(OwnEvent::Submitted {
        handle: job.handle(),
        backend: job.handle().backend(),
        name: &spec.name,
        phase: JobPhase::Submitted,
        roles: &spec.roles,
        plan: PlanShape::new(&plan.decisions, &plan.findings),
    }))
}

/// Watches a submitted job as far as was asked, and returns the exit code.
async fn watch(
    context: &Context,
    args: &SubmitArgs,
    left: Option<Duration>,
    planned: &Plan,
    job: &Job,
) -> Result<u8> {
    if args.follow {
        let following = Box::pin(with_limits(follow::follow(context, job), left, job.handle()));
        let followed = match follow::if_started(context, job, args.start_timeout, following).await? {
            Ok(followed) => followed,
            Err(error) => return late(context, job, error).await,
        };
        return Box::pin(follow::conclude(context, job, &followed, planned.planned().spec.fabric.strict))
            .await;
    }
    if args.wait {
        let waiting = Box::pin(with_limits(job.wait(), left, job.handle()));
        return match follow::if_started(context, job, args.start_timeout, waiting).await? {
            Ok(summary) => {
                super::wait::keep(context, job).await;
                Ok(ended(context, &summary))
            }
            Err(error) => late(context, job, error).await,
        };
    }
    if args.start_timeout.is_some() {
        let starting = Box::pin(with_limits(follow::started(job), left, job.handle()));
        follow::if_started(context, job, args.start_timeout, starting).await??;
    }
    Ok(exit_codes::OK)
}

/// How long to wait for a job whose submission was interrupted: longer than a request is in flight on any
/// cluster but Slurm, whose controller may take minutes.
const ARRIVAL: Duration = Duration::from_secs(65);
/// How long to wait for a submission by another process.
const OTHER: Duration = Duration::from_secs(5);

/// For how long the same command counts as a repetition of the interrupted one. Later it is a new run: a scheduled command
/// that was killed once must not skip its next run.
const REPEATED: Duration = Duration::from_mins(10);

/// Returns whether the same command continues with a job whose submission was interrupted, recently or not, instead of
/// submitting another one.
fn continues(phase: JobPhase, recent: bool) -> bool {
    !phase.is_terminal() || (phase == JobPhase::Succeeded && recent)
}

/// Returns the state of a job as a verb phrase; of one that the cluster no longer knows if there is no phase.
fn state(phase: Option<JobPhase>) -> String {
    match phase {
        Some(phase @ (JobPhase::Succeeded | JobPhase::Failed)) => format!("has {phase}"),
        Some(JobPhase::Cancelled) => "was cancelled".to_owned(),
        Some(phase) => format!("is {phase}"),
        None => "is no longer known to the cluster".to_owned(),
    }
}

/// Returns the job of an earlier submission of the same job file that was interrupted before its handle was
/// known, if the cluster has it and the user does not want another one; with the error to end with where the user interrupted its
/// continuation.
async fn earlier(
    context: &Context,
    args: &SubmitArgs,
    planned: &Plan,
) -> Result<Option<(Job, Option<Error>)>> {
    let began = Instant::now();
    let mut said = false;
    loop {
        let Some((record, outcome)) = planned.earlier().await? else { return Ok(None) };
        let now = weftrun::clock::now();
        let since = age(now, record.created);
        if let Outcome::Found(handle) = outcome {
            context.out.say(format!(
                "the submission of `{}` that was interrupted {since} ago had reached the cluster: its job is {handle}",
                record.name
            ));
            let client = context.client()?;
            let job = client.attach(&handle).await?;
            let known = match job.describe().await {
                Ok(detail) => Some(detail.summary),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let phase = known.as_ref().map(|job| job.phase);
            // Tasks of a set that were not submitted are submitted now, whatever became of the others.
            let lacks = record.state.is_unresolved();
            let state = match known.and_then(|job| job.tasks).filter(|_| lacks) {
                Some(tasks) => format!("is not whole ({tasks})"),
                None => state(phase),
            };
            let recent = now.duration_since(record.created).unsigned_abs() < REPEATED;
            if !(lacks || phase.is_some_and(|phase| continues(phase, recent))) {
                context.out.say(format!("that job {state}; submitting another one"));
            } else if !another_is_wanted(context, args) {
                context.out.say(format!(
                    "continuing with this job, which {state}; `weftrun submit --again` submits another one"
                ));
                if lacks {
                    return Ok(Some(follow::submit(context, &planned.continuing(&record)).await?));
                }
                return Ok(Some((job, None)));
            }
            client.delivered(&handle)?;
            return Ok(None);
        }
        if began.elapsed() < if outcome == Outcome::InFlight { OTHER } else { ARRIVAL } {
            if !std::mem::replace(&mut said, true) {
                context.out.say(format!(
                    "waiting to see whether the submission of `{}` that was interrupted {since} ago reaches the cluster",
                    record.name
                ));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        }
        let sending = record.owner.as_ref().filter(|_| outcome == Outcome::InFlight);
        let message = match sending {
            Some(owner) => format!(
                "the same job is being submitted by process {} on {}, begun {since} ago",
                owner.pid, owner.host
            ),
            None => format!(
                "the submission of `{}` that was interrupted {since} ago may still reach the cluster",
                record.name
            ),
        };
        return Err(Error::new(ErrorKind::Timeout, message)
            .with("submission", &record.submission)
            .hint("run the same command again later: it continues with that job if the cluster has it")
            .hint("`weftrun submit --again` submits another job now")
            .retryable());
    }
}

/// Returns whether the user confirms on a terminal that another job is wanted in addition to the one that was
/// found.
fn another_is_wanted(context: &Context, args: &SubmitArgs) -> bool {
    if args.yes || !std::io::stdin().is_terminal() || !context.out.is_terminal() {
        return false;
    }
    matches!(&*context.ask("continue with this job? `n` submits another one [Y/n]"), "n" | "N" | "no")
}

/// Returns the result of a job that had ended when the time limit passed; else the error.
async fn late(context: &Context, job: &Job, error: Error) -> Result<u8> {
    let Some(summary) = follow::ended_meanwhile(job, &error).await else { return Err(error) };
    Ok(ended(context, &summary))
}

fn ended(context: &Context, summary: &JobSummary) -> u8 {
    context.out.say(format!("{} {}", summary.phase, clean_text(&summary.reason)));
    follow::exit_code_of(summary)
}

/// Prints the handle: the only output on stdout, or the first JSON event. Then records that it was printed: the same command
/// after a kill before that moment continues with the job.
pub fn announce(context: &Context, job: &Job, planned: &Plan) -> Result<()> {
    if context.out.is_data() {
        let findings = planned.findings();
        context.out.item(&EventLine::from(OwnEvent::Submitted {
            handle: job.handle(),
            backend: job.handle().backend(),
            name: &planned.planned().spec.name,
            phase: JobPhase::Submitted,
            roles: &planned.planned().spec.roles,
            plan: PlanShape::new(&job.plan().unwrap_or(planned.fabric()).decisions, &findings),
        }))?;
    } else {
        context.out.document(format!("{}\n", job.handle()))?;
    }
    if let Err(error) = context.client()?.delivered(job.handle()) {
        context.out.say(format!("the next submission of this job will continue with it: {error}"));
    }
    Ok(())
}
