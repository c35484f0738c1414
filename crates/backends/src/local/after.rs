//! The jobs that a job waits for. Its supervisor waits for them, so that nothing else needs to run.

use weftrun_core::backend::PlannedJob;
use weftrun_core::job::{JobHandle, JobPhase, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::NAME;
use super::document::{Dependency, ProcessList};
use super::store::{Job, Store};

/// Returns the dependencies of a planned job.
pub(super) fn dependencies(job: &PlannedJob) -> Result<Vec<Dependency>> {
    let read = |text: &String| {
        let (succeeded, named) = match text.split_once(':') {
            Some(("afterok", named)) => (true, named),
            Some(("afterany", named)) => (false, named),
            Some((condition, _)) if condition.starts_with("after") => {
                let message = format!("`after`: the local backend has no condition `{condition}`");
                return Err(Error::new(ErrorKind::Unsupported, message).hint("use `afterok` or `afterany`"));
            }
            _ => (true, text.as_str()),
        };
        Ok(Dependency { job: named.to_owned(), succeeded })
    };
    let before = job.follows.iter().map(|task| Dependency { job: task.to_string(), succeeded: false });
    job.spec.after.iter().map(read).chain(before.map(Ok)).collect()
}

impl Store {
    /// Returns whether the job that a dependency names has ended as it requires.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a job that does not exist, [`ErrorKind::Refused`] where it has ended otherwise.
    pub(super) fn met(&self, dependency: &Dependency) -> Result<bool> {
        let job = self.depended_on(dependency)?;
        let phase = Self::snapshot(&job)?.phase;
        if !phase.is_terminal() {
            return Ok(false);
        }
        if dependency.succeeded && phase != JobPhase::Succeeded {
            let message =
                format!("{} has ended ({phase}), and the job was to start after its success", job.handle);
            return Err(Error::new(ErrorKind::Refused, message)
                .hint("`--after afterany:HANDLE` starts a job whatever the result of the other one"));
        }
        Ok(true)
    }

    /// Returns the list with submissions in place of handles and names, which may mean another job later.
    pub(super) fn resolved(&self, list: &ProcessList) -> Result<ProcessList> {
        let mut list = list.clone();
        for dependency in &mut list.after {
            dependency.job = self.depended_on(dependency)?.submission;
        }
        Ok(list)
    }

    fn depended_on(&self, dependency: &Dependency) -> Result<Job> {
        let named = &dependency.job;
        // A name may look like a submission, which is 32 digits long.
        if let Some(id) = SubmissionId::parse(named)
            && self.jobs().join(id.as_str()).is_dir()
        {
            return Ok(self.job(id.as_str(), named));
        }
        let handle = match named.contains("://") {
            true => named.parse()?,
            false => JobHandle::new(NAME, &self.target, [named]),
        };
        self.get(&handle)
    }
}
