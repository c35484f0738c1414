//! Submits a job again after a failure of its nodes or of the cluster: exactly once for each attempt, without the node that
//! failed.
//!
//! The id of an attempt's submission is made of the first one's and of the number of the attempt. It is in the journal before
//! anything is sent, with the nodes that the attempt leaves out: a client that was killed meanwhile, or a second one that
//! watches the same job, finds it there and makes no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobHandle, JobPhase, SubmissionId};
use weftrun_core::spec::{JobSpec, LeftOut, RetryPolicy};
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::ended_by_cluster;
use weftrun_diagnose::nodes::{Decision, JobRecord, RetryInput, decide};

use crate::job_tasks::task_of;
use crate::journal::{Record, RecordState};
use crate::{Client, Job, Outcome, Plan};

/// How long an interrupted submission of an attempt is waited for.
const ARRIVAL: Duration = Duration::from_secs(65);
/// Longest name of a job with the number of its attempt: pods have suffixes of their own.
const LONGEST_NAME: usize = 50;

/// Which attempt of a job a submission is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenAttempt")]
#[non_exhaustive]
pub struct Attempt {
    /// The first submission.
    pub first: SubmissionId,
    /// The name of the first job.
    pub name: String,
    /// Its number; the first submission is 1.
    pub number: u32,
    /// Most attempts that are made by themselves; none where it was made by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// The attempts before it, the first one first; an older version wrote only the last of them.
    pub earlier: Vec<EarlierAttempt>,
    /// The nodes that failed, which it and the attempts before it leave out.
    pub left_out: Vec<LeftOut>,
    /// Retries so far for a failure that names no node.
    pub for_network: u32,
}

/// An attempt as this version or an older one wrote it: an attempt that cannot be read would be made a second time.
#[derive(Deserialize)]
struct WrittenAttempt {
    first: SubmissionId,
    name: String,
    number: u32,
    #[serde(default)]
    most: Option<u32>,
    #[serde(default)]
    earlier: Vec<EarlierAttempt>,
    /// The job of the attempt before, and why that failed.
    previous: Option<JobHandle>,
    #[serde(default)]
    why: String,
    left_out: Vec<LeftOut>,
    for_network: u32,
}

impl From<WrittenAttempt> for Attempt {
    fn from(written: WrittenAttempt) -> Self {
        let WrittenAttempt { first, name, number, most, mut earlier, previous, why, left_out, for_network } =
            written;
        if earlier.is_empty() {
            earlier.extend(previous.map(|job| EarlierAttempt { job, why }));
        }
        Self { first, name, number, most, earlier, left_out, for_network }
    }
}

/// An attempt that was followed by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EarlierAttempt {
    /// Its job.
    pub job: JobHandle,
    /// Why it failed: the evidence for the next one.
    pub why: String,
}

impl Attempt {
    /// Returns its number, with the most that are made: `2/3`.
    pub fn count(&self) -> String {
        let most = self.most.map_or_else(String::new, |most| format!("/{most}"));
        format!("{}{most}", self.number)
    }

    /// Returns its number in words: `attempt 2/3`.
    pub fn label(&self) -> String {
        format!("attempt {}", self.count())
    }

    /// Returns the attempts before it, a line each: `1 slurm://prod/12: GPU-LOST: …`.
    pub fn earlier_lines(&self) -> impl Iterator<Item = String> {
        let known = u32::try_from(self.earlier.len()).unwrap_or(u32::MAX);
        (self.number.saturating_sub(known)..)
            .zip(&self.earlier)
            .map(|(number, earlier)| format!("{number} {}: {}", earlier.job, earlier.why))
    }

    /// Returns why it was made: the evidence.
    fn why(&self) -> &str {
        self.earlier.last().map_or("", |earlier| &earlier.why)
    }
}

/// The attempts after the first among the newest submissions, by their jobs: a job with its attempts is shown as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts(BTreeMap<JobHandle, Attempt>);

impl FromIterator<(JobHandle, Attempt)> for Attempts {
    fn from_iter<I: IntoIterator<Item = (JobHandle, Attempt)>>(attempts: I) -> Self {
        Self(attempts.into_iter().collect())
    }
}

impl Attempts {
    /// Returns which attempt a job is; none for a first submission.
    pub fn of(&self, job: &JobHandle) -> Option<&Attempt> {
        self.0.get(job)
    }

    /// Returns the jobs for which a later attempt in a list stands: those that it follows. Where the list has no later attempt of a
    /// job, the job stands for itself.
    pub fn replaced_in<'a>(
        &'a self,
        list: impl IntoIterator<Item = &'a JobHandle>,
    ) -> BTreeSet<&'a JobHandle> {
        let later = list.into_iter().filter_map(|job| self.of(job));
        later.flat_map(|attempt| &attempt.earlier).map(|earlier| &earlier.job).collect()
    }
}

/// Whether a job is submitted again, with what is needed to do so.
#[derive(Debug)]
pub struct NextAttempt {
    /// The decision, with its evidence.
    pub decision: Decision,
    /// The number of the attempt; the first submission is 1.
    pub number: u32,
    /// The job, where another process, or this one before it was killed, has submitted it.
    pub job: Option<Job>,
    /// The planned attempt; none where there is nothing to submit.
    pub plan: Option<Plan>,
}

impl Client {
    /// Decides whether a job that has ended is submitted again, and plans that attempt. Nothing is sent. The decision follows from
    /// the cause of the failure, which is looked for as by [`Job::why`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a job that was not submitted from this machine, [`ErrorKind::Timeout`] while an interrupted
    /// submission of the attempt may still reach the cluster, and those of [`Client::plan`].
    pub async fn next_attempt(&self, job: &Job, policy: RetryPolicy) -> Result<NextAttempt> {
        if job.record().is_none() && is_task(job).await {
            return Ok(NextAttempt { decision: no_tasks(), number: 2, job: None, plan: None });
        }
        let (record, spec) = recorded(job)?;
        let number = record.attempt.as_ref().map_or(1, |attempt| attempt.number).saturating_add(1);
        if spec.tasks().is_some() {
            return Ok(NextAttempt { decision: no_tasks(), number, job: None, plan: None });
        }
        let submission = id_of(record, number);
        let target = self.target_of(record)?;
        let known = self.journal().read(&submission)?;
        if let Some(known) = known.filter(|known| known.state != RecordState::Refused) {
            return self.known_attempt(target, known).await;
        }
        let decision = self.decide_attempt(job, &target, record, number, policy).await?;
        let Some((mut next, mut attempt)) = following(job, record, spec, &decision, number) else {
            return Ok(NextAttempt { decision, number, job: None, plan: None });
        };
        attempt.most = (policy.max != RetryPolicy::BY_HAND.max).then(|| policy.max.saturating_add(1));
        self.add_code(&mut next)?;
        let plan = self.plan_for(target, &next).await?.with_attempt(submission, attempt);
        match plan.render().await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let why = format!("the target cannot run the job without the node: {error}");
                Ok(NextAttempt { decision: Decision::Stop { why }, number, job: None, plan: None })
            }
            Err(error) => Err(error),
            Ok(_) => Ok(NextAttempt { decision, number, job: None, plan: Some(plan) }),
        }
    }

    /// Decides by the job's description, the cause of its failure, and the history of its target.
    async fn decide_attempt(
        &self,
        job: &Job,
        target: &TargetConfig,
        record: &Record,
        number: u32,
        policy: RetryPolicy,
    ) -> Result<Decision> {
        let detail = job.describe().await?;
        let why = match detail.summary.phase {
            JobPhase::Failed | JobPhase::Cancelled => Some(job.why_with(&detail).await),
            _ => None,
        };
        let history = self.job_history(target);
        let ended = JobRecord::of(&detail, why.as_ref(), weftrun_backends::clock::now());
        // The logs may be gone since the job was watched to its end.
        let past = history.as_ref().and_then(|history| history.read().ok()).unwrap_or_default();
        let ended = ended.map(|ended| match past.records.iter().find(|known| known.run() == ended.run()) {
            Some(known) => ended.over(known),
            None => ended,
        });
        let suspects = past.suspects();
        let before = record.attempt.as_ref();
        Ok(decide(&RetryInput {
            phase: detail.summary.phase,
            by_cluster: ended_by_cluster(&detail),
            cause: ended.as_ref().and_then(|ended| ended.cause.as_ref()),
            made: number.saturating_sub(2),
            max: policy.max,
            for_network: before.map_or(0, |attempt| attempt.for_network),
            left_out: before.map_or(&[], |attempt| &attempt.left_out),
            suspects: &suspects,
            avoid: policy.avoid,
        }))
    }

    /// Continues with an attempt that is in the journal: what it leaves out was decided before.
    async fn known_attempt(&self, target: TargetConfig, mut known: Record) -> Result<NextAttempt> {
        let Some(attempt) = known.attempt.clone() else {
            let message = format!("the record {} of the journal is of another job", known.submission);
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        };
        let decision = Decision::Retry {
            proven: attempt.left_out.clone(),
            suspects: Vec::new(),
            for_network: attempt.for_network > 0,
            why: attempt.why().to_owned(),
        };
        let number = attempt.number;
        let began = Instant::now();
        let mut handle = known.handle.clone();
        while handle.is_none() {
            let of_attempt = |record: &Record| record.submission == known.submission;
            let found = self.unresolved(&target, of_attempt).await?.into_iter().next();
            match found {
                Some((_, Outcome::Found(found))) => handle = Some(found),
                Some((_, Outcome::Absent)) => {
                    let mut spec = known.spec.take().unwrap_or_default();
                    self.add_code(&mut spec)?;
                    let plan = self.plan_for(target, &spec).await?.with_attempt(known.submission, attempt);
                    return Ok(NextAttempt { decision, number, job: None, plan: Some(plan) });
                }
                Some(_) if began.elapsed() >= ARRIVAL => {
                    let message =
                        format!("attempt {number} of `{}` may still reach the cluster", attempt.name);
                    return Err(Error::new(ErrorKind::Timeout, message)
                        .with("submission", &known.submission)
                        .hint("run the same command again later: it continues with that attempt")
                        .retryable());
                }
                Some(_) => tokio::time::sleep(Duration::from_millis(500)).await,
                // Another process has resolved it meanwhile.
                None => match self.journal().read(&known.submission)?.filter(|now| now.handle.is_some()) {
                    Some(now) => handle = now.handle,
                    None => {
                        let message =
                            format!("attempt {number} of `{}` was refused by the cluster", attempt.name);
                        return Err(
                            Error::new(ErrorKind::Refused, message).with("submission", &known.submission)
                        );
                    }
                },
            }
        }
        let made = match handle {
            Some(handle) => Some(self.attach(&handle).await?),
            None => None,
        };
        Ok(NextAttempt { decision, number, job: made, plan: None })
    }

    fn target_of(&self, record: &Record) -> Result<TargetConfig> {
        let mut target = self.target(&record.target)?;
        target.namespace = record.namespace.clone().or(target.namespace);
        target.project = record.project.clone().or(target.project);
        Ok(target)
    }

    /// Returns the jobs of the newest submissions that are attempts after the first.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the journal cannot be read.
    pub fn attempts(&self) -> Result<Attempts> {
        let heads = self.journal().recent()?;
        Ok(heads.into_iter().filter_map(|head| Some((head.handle?, head.attempt?))).collect())
    }

    /// Returns the newest of the attempts that followed a job; none where it was not submitted again.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for the journal.
    pub fn newest_attempt(&self, job: &JobHandle) -> Result<Option<(JobHandle, Attempt)>> {
        let Attempts(attempts) = self.attempts()?;
        let follows = |attempt: &Attempt| attempt.earlier.iter().any(|earlier| earlier.job == *job);
        let later = attempts.into_iter().filter(|(_, attempt)| follows(attempt));
        Ok(later.max_by_key(|(_, attempt)| attempt.number))
    }

    /// Adds the files of the folder that is sent with a job, as they were when it was first submitted.
    fn add_code(&self, spec: &mut JobSpec) -> Result<()> {
        crate::code_folder::kept::add(&self.config().state_dir, spec)
    }
}

/// Decides for a job of many tasks, of which some may have succeeded.
fn no_tasks() -> Decision {
    let why = "the job has many tasks, and those that succeeded would run again; submit the tasks that failed, by their numbers (`--array 3,7`) or values (`--sweep lr=1e-4`), with `--avoid NODE` for a node that `weftrun nodes` suspects";
    Decision::Stop { why: why.to_owned() }
}

/// Returns whether a job that is not in the journal is a task of one that is.
async fn is_task(job: &Job) -> bool {
    job.describe().await.is_ok_and(|detail| task_of(&detail).is_some())
}

/// Returns the job of the next attempt, and what the journal says of it; none if the decision is to stop.
fn following(
    job: &Job,
    record: &Record,
    spec: &JobSpec,
    decision: &Decision,
    number: u32,
) -> Option<(JobSpec, Attempt)> {
    let Decision::Retry { proven, suspects, for_network, why } = decision else { return None };
    let before = record.attempt.as_ref();
    let name = before.map_or(&record.name, |attempt| &attempt.name).clone();
    let next = without(spec, numbered(&name, number), proven.iter().chain(suspects));
    let left_out = before.map_or(&[][..], |attempt| &attempt.left_out);
    let failed = EarlierAttempt { job: job.handle().clone(), why: why.clone() };
    let attempt = Attempt {
        first: before.map_or(&record.submission, |attempt| &attempt.first).clone(),
        name,
        number,
        most: None,
        earlier: before.iter().flat_map(|before| before.earlier.clone()).chain([failed]).collect(),
        left_out: left_out.iter().chain(proven).cloned().collect(),
        for_network: before.map_or(0, |attempt| attempt.for_network).saturating_add(u32::from(*for_network)),
    };
    Some((next, attempt))
}

/// Returns a job under another name, that leaves out these nodes too.
fn without<'l>(spec: &JobSpec, name: String, left_out: impl Iterator<Item = &'l LeftOut>) -> JobSpec {
    let mut next = spec.clone();
    next.name = name;
    // Those have ended, or the first attempt would not have run, and the cluster may have forgotten them.
    next.after.clear();
    for left in left_out {
        if !next.avoid.contains(&left.node) {
            next.avoid.push(left.node.clone());
        }
    }
    next
}

fn recorded(job: &Job) -> Result<(&Record, &JobSpec)> {
    let recorded = job.record().and_then(|record| Some((record, record.spec.as_ref()?)));
    recorded.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "the job was not submitted from this machine, so it cannot be submitted again",
        )
        .with("job", job.handle())
        .hint("submit its job file again, with `--avoid NODE`")
    })
}

/// Returns the id of an attempt's submission, which every process makes alike.
fn id_of(record: &Record, number: u32) -> SubmissionId {
    let first = record.attempt.as_ref().map_or(&record.submission, |attempt| &attempt.first);
    SubmissionId::from_text([first.as_str(), " attempt ", &number.to_string()])
}

/// Returns the name of an attempt: `train-r2`.
fn numbered(name: &str, number: u32) -> String {
    let end = format!("-r{number}");
    let base: String = name.chars().take(LONGEST_NAME.saturating_sub(end.len())).collect();
    format!("{}{end}", base.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_waits_for_no_job() {
        let mut spec = JobSpec::default();
        spec.after = vec!["afterok:slurm://prod/7".to_owned()];
        let next = without(&spec, numbered("train", 2), [].iter());
        assert_eq!((next.name.as_str(), next.after.len()), ("train-r2", 0));
    }

    #[test]
    fn names_of_attempts_are_names_of_jobs() {
        assert_eq!(numbered("train", 2), "train-r2");
        let long = numbered(&format!("{}-x", "a".repeat(46)), 12);
        assert_eq!((long.len(), long.ends_with("a-r12")), (50, true), "{long}");
    }
}
