//! The jobs that a job waits for. Its supervisor waits for them, so that nothing else needs to run.

use weftrun_core::backend::PlannedJob;
use weftrun_core::job::{JobHandle, JobPhase, SET_LABEL, SubmissionId, TASKS_LABEL};
use weftrun_core::spec::split_dependency;
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Result};

use super::NAME;
use super::document::{Dependency, ProcessList};
use super::store::{Job, Store};
use crate::refusals;

/// Returns the dependencies of a planned job.
pub(super) fn dependencies(job: &PlannedJob) -> Result<Vec<Dependency>> {
    let read = |text: &String| {
        let (condition, named) = split_dependency(text);
        if !matches!(condition, "afterok" | "afterany") {
            let message = format!("`after`: the local backend has no condition `{condition}`");
            return Err(Error::new(ErrorKind::Unsupported, message).hint("use `afterok` or `afterany`"));
        }
        Ok(Dependency { job: named.to_owned(), succeeded: condition == "afterok" })
    };
    job.spec.after.iter().map(read).collect()
}

impl Store {
    /// Checks that the jobs that a dependency names have not ended otherwise than it requires.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a job that does not exist, [`ErrorKind::Refused`] where one has ended otherwise.
    pub(super) fn may_be_met(&self, dependency: &Dependency) -> Result<()> {
        for job in self.depended_on(dependency)? {
            let phase = Self::snapshot(&job)?.phase;
            if dependency.succeeded && phase.is_terminal() && phase != JobPhase::Succeeded {
                let message =
                    format!("{} has ended ({phase}), and the job was to start after its success", job.handle);
                return Err(Error::new(ErrorKind::Refused, message)
                    .hint("`--after afterany:HANDLE` starts a job whatever the result of the other one"));
            }
        }
        Ok(())
    }

    /// Returns the list with submissions in place of handles and names, which may mean another job later, and with the tasks of a
    /// set in its place.
    pub(super) fn resolved(&self, list: &ProcessList) -> Result<ProcessList> {
        let mut resolved = list.clone();
        resolved.after.clear();
        for dependency in &list.after {
            let jobs = self.depended_on(dependency)?.into_iter();
            resolved.after.extend(jobs.map(|job| Dependency { job: job.submission, ..dependency.clone() }));
        }
        Ok(resolved)
    }

    fn depended_on(&self, dependency: &Dependency) -> Result<Vec<Job>> {
        let named = &dependency.job;
        // A name may look like a submission, which is 32 digits long.
        if let Some(id) = SubmissionId::parse(named)
            && self.jobs().join(id.as_str()).is_dir()
        {
            return Ok(vec![self.job(id.as_str(), named)]);
        }
        let handle = match named.contains("://") {
            true => named.parse()?,
            false => JobHandle::new(NAME, &self.target, [named]),
        };
        match handle.set() {
            Some(id) => self.tasks_of(&handle, id),
            None => self.get(&handle).map(|job| vec![job]),
        }
    }

    /// Returns all tasks of a set.
    fn tasks_of(&self, set: &JobHandle, id: &str) -> Result<Vec<Job>> {
        refusals::other_target(set, NAME, &self.target)?;
        let (mut tasks, mut total) = (Vec::new(), 0);
        for job in self.all()? {
            let Ok(now) = Self::snapshot(&job) else { continue };
            if now.origin.labels.get(SET_LABEL).is_some_and(|set| set == id) {
                let count = now.origin.labels.get(TASKS_LABEL).and_then(|count| count.parse().ok());
                total = count.unwrap_or(total);
                tasks.push(job);
            }
        }
        if tasks.is_empty() {
            return Err(refusals::no_job(set));
        }
        if tasks.len() < total {
            let message = format!("only {} of the {} are there", tasks.len(), counted(total, "task"));
            return Err(Error::new(ErrorKind::NotFound, message)
                .with("set", set)
                .hint("the others were not submitted, or were deleted: name the tasks that it waits for, which `weftrun list --all-tasks` prints"));
        }
        Ok(tasks)
    }
}
