//! The jobs that a job waits for, by their names.

use std::borrow::Cow;

use weftrun_core::backend::Backend;
use weftrun_core::job::{JobFilter, JobSummary};
use weftrun_core::spec::{JobSpec, split_dependency};
use weftrun_core::{Error, ErrorKind, Result};

/// Returns the job with handles in place of the names in `after`, as the target knows them now: a name may mean another job later.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a name that no job has, [`ErrorKind::Usage`] for one that several have.
pub(crate) async fn with_handles<'s>(backend: &dyn Backend, spec: &'s JobSpec) -> Result<Cow<'s, JobSpec>> {
    if !backend.capability().dependencies || !spec.after.iter().any(|text| is_name(split_dependency(text).1))
    {
        return Ok(Cow::Borrowed(spec));
    }
    let jobs = backend.list(&JobFilter::all()).await?;
    let mut named = spec.clone();
    for text in &mut named.after {
        let (condition, job) = split_dependency(text);
        if is_name(job) {
            *text = format!("{condition}:{}", only(&jobs, job)?.handle);
        }
    }
    Ok(Cow::Owned(named))
}

/// Returns whether a text is no handle and no id of a scheduler.
fn is_name(job: &str) -> bool {
    !job.contains("://") && job.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Returns the one job of a name: the one that has not ended, where there are others.
fn only<'j>(jobs: &'j [JobSummary], name: &str) -> Result<&'j JobSummary> {
    let all: Vec<&JobSummary> = jobs.iter().filter(|job| job.name == name).collect();
    let open: Vec<&JobSummary> = all.iter().copied().filter(|job| !job.phase.is_terminal()).collect();
    match (all.as_slice(), open.as_slice()) {
        ([one], _) | (_, [one]) => Ok(one),
        ([], _) => Err(Error::new(ErrorKind::NotFound, format!("`after`: there is no job `{name}`"))
            .hint("`weftrun list --all` prints the handles")),
        (all, _) => {
            let error =
                Error::new(ErrorKind::Usage, format!("`after`: {} jobs are named `{name}`", all.len()));
            let error = error.hint("name one by its handle");
            Err(all.iter().take(20).fold(error, |error, job| error.with("job", &job.handle)))
        }
    }
}

#[cfg(test)]
mod tests {
    use weftrun_core::job::JobPhase;

    use super::*;

    fn job(number: u32, name: &str, phase: JobPhase) -> JobSummary {
        let mut job = JobSummary::new(format!("slurm://s/{number}").parse().unwrap(), phase);
        name.clone_into(&mut job.name);
        job
    }

    #[test]
    fn a_name_is_one_job() {
        let jobs = [
            job(1, "a", JobPhase::Failed),
            job(2, "a", JobPhase::Running),
            job(3, "b", JobPhase::Running),
            job(4, "b", JobPhase::Running),
        ];
        assert_eq!(only(&jobs, "a").unwrap().handle.name(), "2");
        assert_eq!(only(&jobs, "b").unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(only(&jobs, "c").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn handles_and_ids_are_no_names() {
        for (text, name) in [
            ("prepare", true),
            ("afterany:prepare", true),
            ("afterany:slurm://s/1", false),
            ("slurm://s/1", false),
            ("4711", false),
            ("afterok:4711_2", false),
        ] {
            assert_eq!(is_name(split_dependency(text).1), name, "{text}");
        }
    }
}
