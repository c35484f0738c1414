//! Job ids as Slurm writes them: `123`, array task `123_4`, pending part of an array `123_[2-5%2]`, component of a
//! heterogeneous job `123+1`.

use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

/// A job id that is safe on a command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// Number of the job, of the array, or of the first component.
    pub number: u64,
    /// Task of an array.
    pub task: Option<u64>,
}

impl JobId {
    /// Returns the id of a whole job.
    pub fn whole(number: u64) -> Self {
        Self { number, task: None }
    }

    /// Parses `123`, `123_4`, `123+1` (as its whole job) and `123;cluster`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.split_once(';').map_or(text, |(id, _)| id);
        let text = text.split_once('+').map_or(text, |(id, _)| id);
        match text.split_once('_') {
            None => Some(Self::whole(number(text)?)),
            Some((job, task)) if task.starts_with('[') => Some(Self::whole(number(job)?)),
            Some((job, task)) => Some(Self { number: number(job)?, task: Some(number(task)?) }),
        }
    }

    /// Returns the job that a handle names.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the last part of the handle is not a job id.
    pub fn of(handle: &JobHandle) -> Result<Self> {
        Self::parse(handle.name()).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("`{handle}` names no Slurm job"))
                .hint("a Slurm handle looks like `slurm://TARGET/12345`, or `slurm://TARGET/12345_6` for a task of an array")
        })
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            None => write!(f, "{}", self.number),
            Some(task) => write!(f, "{}_{task}", self.number),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Returns the job id that sbatch printed: the last line of the `--parsable` output that is an id, since site
/// wrappers and plugins print other lines around it.
pub fn submitted(stdout: &str) -> Option<JobId> {
    stdout.lines().rev().find_map(|line| {
        let (id, cluster) = line.split_once(';').map_or((line, "x"), |(id, cluster)| (id, cluster));
        let plain = !cluster.is_empty() && !cluster.contains(char::is_whitespace);
        (plain && number(id).is_some()).then(|| JobId::parse(id)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_arrays_and_heterogeneous_jobs_are_read() {
        assert_eq!(JobId::parse("50_3"), Some(JobId { number: 50, task: Some(3) }));
        assert_eq!(JobId::parse("50_[2-5%2]"), Some(JobId::whole(50)));
        assert_eq!(JobId::parse("55+1"), Some(JobId::whole(55)));
        assert_eq!(JobId::parse("12; rm -rf /"), Some(JobId::whole(12)), "only the number is ever used");
        assert_eq!(JobId::parse("x12"), None);
        assert_eq!(JobId::parse("-1"), None);
    }

    #[test]
    fn the_id_is_found_between_what_sites_print() {
        assert_eq!(submitted("123\n"), Some(JobId::whole(123)));
        assert_eq!(submitted("Welcome!\n7 credits left\n123;cluster-a\n"), Some(JobId::whole(123)));
        assert_eq!(submitted("Submitted batch job 12\n"), None, "not what --parsable prints");
        assert_eq!(submitted(""), None);
    }
}
