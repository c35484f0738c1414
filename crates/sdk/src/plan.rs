//! A planned job, bound to the client that can submit it.

use std::fmt::Write as _;

use weftrun_convert::decision_text;
use weftrun_core::backend::{PlannedJob, RANKS_HAVE_IT, Rendered, TargetConfig};
use weftrun_core::fabric::{Decision, FabricPlan, Op};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::attempts::Attempt;
use crate::journal::{Owner, Record, RecordState};
use crate::left_out::finding_of;
#[cfg(feature = "image")]
use crate::runtime::on_runtime;
use crate::{Client, Job, Outcome, task_sets};

/// A planned job. Nothing was sent yet. It contains its submission's id, so that calling [`Plan::submit`]
/// twice on one plan creates one job.
///
/// ```no_run
/// use weftrun::prelude::*;
///
/// # async fn example(client: Client, spec: JobSpec) -> weftrun::Result<()> {
/// let plan = client.plan("prod", &spec).await?;
/// println!("{}", plan.explain());
/// for finding in plan.check().await? {
///     println!("{finding}");
/// }
/// let job = plan.submit().await?;
/// println!("{}", job.handle());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    client: Client,
    target: TargetConfig,
    planned: PlannedJob,
    attempt: Option<Attempt>,
}

impl Plan {
    pub(crate) fn new(client: Client, target: TargetConfig, planned: PlannedJob) -> Self {
        Self { client, target, planned, attempt: None }
    }

    /// Makes it the plan of an attempt, whose submission has an id that every process makes alike.
    pub(crate) fn with_attempt(mut self, submission: SubmissionId, attempt: Attempt) -> Self {
        let PlannedJob { left_out, plan, .. } = &mut self.planned;
        // The node that failed is left out for the evidence against it, and not since its name stands in the attempt's job.
        for failed in &attempt.left_out {
            for left in left_out.iter_mut().filter(|left| left.node == failed.node) {
                let (before, now) = (finding_of(left), finding_of(failed));
                left.clone_from(failed);
                plan.findings
                    .iter_mut()
                    .filter(|finding| **finding == before)
                    .for_each(|finding| finding.clone_from(&now));
            }
        }
        (self.planned.submission, self.attempt) = (submission, Some(attempt));
        self
    }

    /// Adds what the cluster lacks.
    pub(crate) fn add_notes(&mut self, findings: Vec<Finding>) {
        self.planned.facts.notes.extend(findings);
    }

    /// Returns the fabric's plan.
    pub fn fabric(&self) -> &FabricPlan {
        &self.planned.plan
    }

    /// Returns the findings of planning: about the fabric, and about what the cluster lacks for this job.
    pub fn findings(&self) -> Vec<Finding> {
        self.planned.plan.findings.iter().chain(&self.planned.facts.notes).cloned().collect()
    }

    /// Returns the spec, the plan, and the profile and facts that the plan is based on.
    pub fn planned(&self) -> &PlannedJob {
        &self.planned
    }

    /// Returns its target.
    pub fn target(&self) -> &TargetConfig {
        &self.target
    }

    /// Returns the fabric's plan with the decisions that the rendered documents contain; the others are among what did not apply.
    pub fn announced(&self, rendered: &Rendered) -> FabricPlan {
        let mut fabric = self.planned.plan.clone();
        let (of_ranks, lost): (Vec<_>, Vec<_>) =
            rendered.inexpressible.iter().partition(|lost| lost.reason == RANKS_HAVE_IT);
        let ops: Vec<&Op> = of_ranks.iter().map(|lost| &lost.op).collect();
        if let Some(first) = ops.first() {
            let names: Vec<String> = ops.iter().map(|op| op.change.target()).collect();
            let what = format!("{}: {}", first.role, names.join(", "));
            fabric.leave_out(&ops, format!("{what}: not applied: {RANKS_HAVE_IT}"));
        }
        for lost in lost {
            let (op, target) = (&lost.op, format!("{}: {}", lost.op.role, lost.op.change.target()));
            let is_its = |decision: &&Decision| decision.rule == op.rule && decision.target == target;
            let what = fabric.decisions.iter().find(is_its).map(|decision| {
                let (target, value, _) = decision_text(decision, &self.target.backend);
                format!("{target} = {value}")
            });
            let what = what.unwrap_or(target);
            fabric.leave_out(&[op], format!("{what} is not applied: {}", lost.reason));
        }
        fabric
    }

    /// Returns every decision with its reason, as text.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        for decision in &self.planned.plan.decisions {
            let (target, value, why) = decision_text(decision, &self.target.backend);
            let _ = writeln!(text, "{} {target} = {value}\n    {why}", decision.rule);
        }
        for skipped in &self.planned.plan.skipped {
            let _ = writeln!(text, "{} skipped ({}): {}", skipped.rule, skipped.reason, skipped.why);
        }
        text
    }

    /// Returns exactly what would be sent, as [`Rendered`]: the documents, the ops they contain, those the
    /// backend cannot express, and values that only the server can fill in. No I/O except reading the
    /// target's credentials file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] for what the backend does not support.
    pub async fn render(&self) -> Result<Rendered> {
        self.client.connect(&self.target).await?.render(&self.planned)
    }

    /// Returns the same as [`Plan::render`], but with a submission's id made of the documents: the same job gives the same
    /// text, which can be kept in a repository. What [`Plan::submit`] sends has an id of its own.
    ///
    /// # Errors
    /// As [`Plan::render`].
    pub async fn render_document(&self) -> Result<Rendered> {
        let backend = self.client.connect(&self.target).await?;
        let mut planned = self.planned.clone();
        planned.submission = SubmissionId::from_text([]);
        let texts = backend.render(&planned)?.documents;
        planned.submission = SubmissionId::from_text(texts.iter().map(|document| document.text.as_str()));
        backend.render(&planned)
    }

    /// Checks on the cluster whether it would accept the job, without submitting it: a refusal is a finding
    /// of severity error.
    ///
    /// # Errors
    /// As [`Plan::render`], and [`ErrorKind::Unreachable`] without an answer.
    pub async fn check(&self) -> Result<Vec<Finding>> {
        self.check_rendered(&self.render().await?).await
    }

    /// Checks a job like [`Plan::check`], from the result of [`Plan::render`].
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] without an answer.
    pub async fn check_rendered(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.client.connect(&self.target).await?.check(rendered).await
    }

    /// Reads the job's images from their registries, without a container engine, and compares their contents
    /// with the plan: a mismatch (`GLIBC 2.31 < 2.34: the mounted EFA stack will not load`) becomes a finding
    /// of the plan, and fails [`Plan::submit`] if it is an error. Layers that were read before are found by
    /// their digests; `say` is called with how much is read. Credentials are those of `docker login`.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::NotFound`] and [`ErrorKind::Credentials`] as the registry
    /// answers; [`ErrorKind::InvalidSpec`] for a job whose image is not in a registry.
    #[cfg(feature = "image")]
    pub async fn check_image(
        &mut self,
        say: impl Fn(String) + Send + Sync,
    ) -> Result<Vec<weftrun_core::image::ImageFacts>> {
        let spec = &self.planned.spec;
        let images: std::collections::BTreeSet<&String> =
            spec.roles.iter().filter_map(|role| role.image.as_ref().or(spec.image.as_ref())).collect();
        if images.is_empty() {
            return Err(Error::new(ErrorKind::InvalidSpec, "the job names no image that could be read"));
        }
        let (mut read, mut findings) = (Vec::new(), Vec::new());
        for image in images {
            let facts = on_runtime(crate::image::read(self.client.config(), image, &say)).await?;
            findings.extend(weftrun_core::image::judge(
                &facts,
                spec,
                &self.planned.plan,
                &self.planned.profile,
            ));
            read.push(facts);
        }
        self.planned.plan.findings.extend(findings);
        Ok(read)
    }

    /// Returns the same plan for another client, whose connections are used. Its submission id stays: submitted by both, it is one
    /// job.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Returns the plan as a continuation of an earlier submission of the same job that was interrupted: submitting it creates what
    /// the cluster does not have of it, such as the rest of a job of many tasks.
    #[must_use]
    pub fn continuing(&self, earlier: &Record) -> Self {
        let mut plan = self.clone();
        plan.planned.submission = earlier.submission.clone();
        plan
    }

    /// Returns an earlier submission of the same job to the same target that was interrupted, because the answer was
    /// lost or the process was killed, with its outcome. [`Outcome::Found`] also means a job whose handle nobody has seen
    /// ([`Client::delivered`]). The cluster is queried only if the journal has a record without an outcome. Submissions that
    /// the cluster does not have are omitted, and so are those that a process of this machine is sending now.
    ///
    /// # Errors
    /// As [`Client::unresolved_on`].
    pub async fn earlier(&self) -> Result<Option<(Record, Outcome)>> {
        let spec = &self.planned.spec;
        // As text: secrets are not in the journal.
        let text = serde_json::to_value(spec).ok();
        let same = |record: &Record| {
            record.name == spec.name
                && record.submission != self.planned.submission
                && record.spec.as_ref().is_some_and(|known| serde_json::to_value(known).ok() == text)
        };
        let here = Owner::this().host;
        let elsewhere = |record: &Record| record.owner.as_ref().is_some_and(|owner| owner.host != here);
        let found = self.client.unresolved(&self.target, same).await?;
        let open = found.into_iter().find(|(record, outcome)| match outcome {
            Outcome::Found(_) | Outcome::MayArrive => true,
            Outcome::InFlight => elsewhere(record),
            Outcome::Absent => false,
        });
        if open.is_some() {
            return Ok(open);
        }
        let record =
            self.client.journal().undelivered(|record| record.target == self.target.name && same(record))?;
        Ok(record.and_then(|record| Some((record.clone(), Outcome::Found(record.handle?)))))
    }

    /// Returns an error if an earlier submission of the same job was interrupted and its job may run ([`Plan::earlier`]). The
    /// error names that job, once: the next call succeeds.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] with the handle of the job; [`ErrorKind::Timeout`] while the job may still reach the
    /// cluster; those of [`Plan::earlier`].
    pub async fn refuse_earlier(&self) -> Result<()> {
        let Some((record, outcome)) = self.earlier().await? else { return Ok(()) };
        let name = &record.name;
        let Outcome::Found(handle) = outcome else {
            let message = format!("an interrupted submission of `{name}` may still reach the cluster");
            return Err(Error::new(ErrorKind::Timeout, message)
                .with("submission", &record.submission)
                .hint("submit again later: it is known then whether the cluster has the job")
                .retryable());
        };
        let message = format!(
            "a submission of `{name}` that was interrupted had reached the cluster: its job is {handle}"
        );
        self.client.delivered(&handle)?;
        Err(Error::new(ErrorKind::AlreadyExists, message)
            .with("handle", &handle)
            .hint(format!("attach to the job to continue with it, or `weftrun cancel '{handle}'` ends it"))
            .hint("submit again to run another one"))
    }

    /// Submits the job, exactly once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] for errors of the plan; [`ErrorKind::Refused`] if the cluster refuses it.
    /// After [`ErrorKind::Unreachable`] the job may exist: [`Client::unresolved_on`] finds it by its
    /// submission id. Those of [`Plan::refuse_earlier`].
    pub async fn submit(&self) -> Result<Job> {
        self.refuse_earlier().await?;
        let job = self.submit_unless(|| false).await?;
        self.delivered(&job);
        Ok(job)
    }

    /// Records that the caller has the handle of a job.
    pub(crate) fn delivered(&self, job: &Job) {
        // Without it, the next submission of the same job is told of this one again.
        if let Err(error) = self.client.delivered(job.handle()) {
            tracing::debug!(%error, "the delivery of a handle was not recorded");
        }
    }

    /// Submits it like [`Plan::submit`], unless `stop` returns true after all checks and before anything is
    /// sent. A set of tasks is also stopped between two of them. Does not look for an earlier submission of the same job; [`Client::delivered`] must follow once the handle was
    /// shown.
    ///
    /// # Errors
    /// Those of [`Plan::submit`] but [`Plan::refuse_earlier`], and [`ErrorKind::Interrupted`] if it was stopped: then nothing
    /// was sent, or the error has the handle of the set (`set`), and submitting [`Plan::continuing`] submits the rest.
    pub async fn submit_unless(&self, stop: impl Fn() -> bool + Send) -> Result<Job> {
        self.refuse_errors(
            &self.planned.plan.findings,
            ErrorKind::InvalidSpec,
            "the fabric plan has errors",
        )?;
        self.refuse_errors(&self.planned.facts.notes, ErrorKind::Refused, "the cluster cannot run the job")?;
        let backend = self.client.connect(&self.target).await?;
        let rendered = backend.render(&self.planned)?;
        self.refuse_errors(
            &backend.check(&rendered).await?,
            ErrorKind::Refused,
            "the cluster would refuse the job",
        )?;

        if stop() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted before anything was sent"));
        }
        let mut record = Record {
            submission: self.planned.submission.clone(),
            target: self.target.name.clone(),
            name: self.planned.spec.name.clone(),
            state: RecordState::Intended,
            handle: None,
            created: weftrun_backends::clock::now(),
            owner: Some(Owner::this()),
            plan: self.announced(&rendered),
            spec: Some(self.planned.spec.clone()),
            undelivered: false,
            namespace: self.target.namespace.clone(),
            project: self.target.project.clone(),
            attempt: self.attempt.clone(),
        };
        // For an attempt after it, which another process may make.
        crate::code_folder::kept::keep(&self.client.config().state_dir, &self.planned.spec);
        let journal = self.client.journal();
        // Held until the outcome is written, so that no other process treats the record as interrupted.
        let _sending = journal.begin(&record.submission)?;
        let known = journal.read(&record.submission)?;
        // Of a set that is continued.
        record.handle = known.as_ref().and_then(|known| known.handle.clone());
        self.refuse_other_document(known.as_ref())?;
        // Another process that watches the same job has made this attempt.
        let made = known.filter(|known| self.attempt.is_some() && known.state == RecordState::Submitted);
        if let Some(handle) = made.and_then(|known| known.handle) {
            return self.client.attach(&handle).await;
        }
        journal.write(&record)?;
        match task_sets::submit_unless(backend.as_ref(), &rendered, stop).await {
            Ok(handle) => {
                record.state = RecordState::Submitted;
                record.handle = Some(handle.clone());
                record.undelivered = true;
                // The cluster has the job even if this write fails; then `unresolved_on` finds the job again.
                let _ = journal.write(&record);
                Ok(self.client.bind(backend, handle, Some(record)))
            }
            Err(error) => {
                // Tasks of a set that were made before it run: the same command continues with it.
                let made = task_sets::made_before(&error);
                let may_run = may_have_arrived(error.kind()) || made.is_some();
                record.state = if may_run { RecordState::Unknown } else { RecordState::Refused };
                record.handle = made.or(record.handle);
                let _ = journal.write(&record);
                Err(error.with("submission", &record.submission))
            }
        }
    }

    /// Refuses a submission id under which another job was submitted: the cluster would return that job's handle, and this one
    /// would never run.
    fn refuse_other_document(&self, earlier: Option<&Record>) -> Result<()> {
        let Some(earlier) = earlier else { return Ok(()) };
        // As text: secrets are not in the journal.
        let text = |spec: &JobSpec| serde_json::to_value(spec).ok();
        let spec = &self.planned.spec;
        let is_same = earlier.spec.as_ref().is_none_or(|known| text(known) == text(spec));
        if is_same && earlier.target == self.target.name {
            return Ok(());
        }
        let message = format!(
            "the submission id {} belongs to another job, `{}` on target `{}`",
            self.planned.submission, earlier.name, earlier.target
        );
        Err(Error::new(ErrorKind::AlreadyExists, message)
            .with("job", &spec.name)
            .hint("plan the job again, which makes a new id"))
    }

    fn refuse_errors(&self, findings: &[Finding], kind: ErrorKind, what: &str) -> Result<()> {
        let errors: Vec<Finding> = findings.iter().filter(|finding| finding.is_error()).cloned().collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::from_findings(kind, what, errors).with("job", &self.planned.spec.name))
    }
}

/// Returns whether a failed submit may still have reached the cluster: always, unless the error proves that
/// the job was refused.
fn may_have_arrived(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Usage
            | ErrorKind::InvalidSpec
            | ErrorKind::InvalidConfig
            | ErrorKind::Refused
            | ErrorKind::Credentials
            | ErrorKind::Unsupported
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::FabricNotAsPlanned
    )
}
