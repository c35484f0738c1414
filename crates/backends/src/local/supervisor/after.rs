//! Waits for the jobs that this one was to start after.

use std::path::Path;
use std::time::{Duration, Instant};

use weftrun_core::job::JobPhase;
use weftrun_core::text::counted;

use super::requests::Requests;
use super::{Stop, Supervisor};
use crate::local::document::Dependency;
use crate::local::folder::Folder;
use crate::local::status::Snapshot;

/// Time between two looks at the other jobs: many may wait.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until all of them have ended, and starts the time limit then. Returns why the job is ended before: it was cancelled, or
/// one of them did not end as required.
pub(super) async fn wait(supervisor: &mut Supervisor, requests: &mut Requests) -> Result<(), Stop> {
    loop {
        let (mut waits, mut unmet) = (Vec::new(), None);
        for dependency in &supervisor.list.after {
            match look(supervisor.folder.path(), dependency) {
                Seen::Met => {}
                Seen::Waits(why) => waits.push(why),
                Seen::Unmet(why) => unmet = unmet.or(Some(why)),
            }
        }
        if let Some(why) = unmet {
            return Err(Stop::Cancelled(why.into()));
        }
        let Some(first) = waits.first() else { break };
        let more = waits.len() - 1;
        let others = if more > 0 { format!(" and {}", counted(more, "other job")) } else { String::new() };
        let reason = format!("waits for {first}{others}");
        if supervisor.record.reason != reason {
            (supervisor.record.phase, supervisor.record.reason) = (JobPhase::Pending, reason);
            supervisor.unwritten = true;
        }
        supervisor.write();
        if let Ok(stop) = tokio::time::timeout(LOOK, supervisor.stopped(requests)).await {
            return Err(stop);
        }
    }
    if !supervisor.list.after.is_empty() {
        (supervisor.record.phase, supervisor.record.reason) = (JobPhase::Starting, String::new());
        supervisor.unwritten = true;
        supervisor.write();
    }
    let limit = supervisor.list.time_limit.map(Duration::from_secs);
    supervisor.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    Ok(())
}

/// What is seen of a job that another one waits for.
#[derive(Debug)]
enum Seen {
    Met,
    /// What is waited for.
    Waits(String),
    Unmet(String),
}

/// Looks at another job, whose folder is beside that of this one. A record that cannot be read says nothing about how its job has
/// ended: it is waited for, and looked at again.
fn look(own: &Path, dependency: &Dependency) -> Seen {
    let id = &dependency.job;
    let Some(jobs) = own.parent() else {
        return Seen::Unmet(format!("the job {id} that it was to start after cannot be looked for"));
    };
    let folder = Folder::new(jobs.join(id));
    let seen = match Snapshot::read(&folder, id) {
        Ok(seen) => seen,
        Err(error) => {
            let (path, why) = (folder.path().display(), error.one_line());
            return Seen::Waits(format!(
                "a job whose record cannot be read, so that its end is not known ({path}: {why})"
            ));
        }
    };
    match seen {
        Some(job) if !job.phase.is_terminal() => Seen::Waits(format!("the end of {}", job.origin.name)),
        Some(job) if dependency.succeeded && job.phase != JobPhase::Succeeded => Seen::Unmet(format!(
            "{} has ended ({}), and this job was to start after its success",
            job.origin.name, job.phase
        )),
        None if dependency.succeeded => Seen::Unmet(
            "the job that it was to start after was deleted, and its result is not known".to_owned(),
        ),
        _ => Seen::Met,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        for succeeded in [true, false] {
            let dependency = Dependency { job: "other".to_owned(), succeeded };
            let deleted = look(&own, &dependency);
            assert_eq!(matches!(deleted, Seen::Met), !succeeded, "{deleted:?}");
            let folder = Folder::new(place.path().join("other"));
            std::fs::create_dir(folder.path()).unwrap();
            std::fs::write(folder.of(crate::local::folder::ORIGIN), "{").unwrap();
            let seen = look(&own, &dependency);
            let Seen::Waits(why) = &seen else { panic!("{seen:?}") };
            assert!(why.contains("cannot be read") && why.contains("damaged"), "{why}");
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
}
