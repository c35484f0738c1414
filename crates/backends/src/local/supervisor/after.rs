//! Waits for the jobs that this one was to start after.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use weftrun_core::job::{JobPhase, Lane, SubmissionId};
use weftrun_core::text::counted;

use super::requests::Requests;
use super::{Stop, Supervisor};
use crate::local::document::{Dependency, ProcessList};
use crate::local::folder::Folder;
use crate::local::status::Snapshot;

/// Time between two looks at the other jobs: many may wait.
const LOOK: Duration = Duration::from_millis(500);

/// Jobs that still run that are looked at each time: a job may wait for all tasks of a set, and many for the same.
const AT_ONCE: usize = 16;

/// Waits until all of them have ended, and starts the time limit then. Returns why the job is ended before: it was cancelled, or
/// one of them did not end as required.
pub(super) async fn wait(supervisor: &mut Supervisor, requests: &mut Requests) -> Result<(), Stop> {
    let mut before = Before::of(&supervisor.list);
    loop {
        let reason = match before.look(supervisor.folder.path()) {
            Seen::Met => break,
            Seen::Waits(reason) => reason,
            Seen::Unmet(why) => return Err(Stop::Cancelled(why.into())),
        };
        if supervisor.record.reason != reason {
            (supervisor.record.phase, supervisor.record.reason) = (JobPhase::Pending, reason);
            supervisor.unwritten = true;
        }
        supervisor.write();
        if let Ok(stop) = tokio::time::timeout(LOOK, supervisor.stopped(requests)).await {
            return Err(stop);
        }
    }
    if supervisor.record.phase == JobPhase::Pending {
        (supervisor.record.phase, supervisor.record.reason) = (JobPhase::Starting, String::new());
        supervisor.unwritten = true;
        supervisor.write();
    }
    let limit = supervisor.list.time_limit.map(Duration::from_secs);
    supervisor.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    Ok(())
}

/// The jobs that have not been seen to end.
struct Before {
    /// Those that the user named.
    others: VecDeque<Dependency>,
    /// The earlier tasks of its lane. They are looked at from the last one: it starts when those before it have ended, unless it is
    /// cancelled or deleted.
    lane: Vec<SubmissionId>,
}

impl Before {
    fn of(list: &ProcessList) -> Self {
        let lane = list.lane.as_ref().map(Lane::submissions).unwrap_or_default();
        Self { others: list.after.iter().cloned().collect(), lane }
    }

    /// Looks at those that may still run, a few at a time, and forgets those that have ended as required. The one that is named
    /// stays the first while it runs, so that the reason changes only when one has ended.
    fn look(&mut self, own: &Path) -> Seen {
        let (mut waits, mut looked) = (Vec::new(), VecDeque::new());
        while waits.len() < AT_ONCE
            && let Some(other) = self.others.pop_front()
        {
            match look(own, &other.job, other.succeeded) {
                Seen::Met => continue,
                Seen::Waits(why) => waits.push(why),
                unmet @ Seen::Unmet(_) => return unmet,
            }
            looked.push_back(other);
        }
        let first = looked.pop_front();
        self.others.append(&mut looked);
        first.into_iter().for_each(|first| self.others.push_front(first));
        while let Some(task) = self.lane.last() {
            if let Seen::Waits(why) = look(own, task.as_str(), false) {
                waits.push(why);
                break;
            }
            self.lane.pop();
        }
        let Some(first) = waits.first() else { return Seen::Met };
        let more = (self.others.len() + usize::from(!self.lane.is_empty())).saturating_sub(1);
        let others = if more > 0 { format!(" and {}", counted(more, "other job")) } else { String::new() };
        Seen::Waits(format!("waits for {first}{others}"))
    }
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
fn look(own: &Path, id: &str, must_succeed: bool) -> Seen {
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
        Some(job) if must_succeed && job.phase != JobPhase::Succeeded => Seen::Unmet(format!(
            "{} has ended ({}), and this job was to start after its success",
            job.origin.name, job.phase
        )),
        None if must_succeed => Seen::Unmet(
            "the job that it was to start after was deleted, and its result is not known".to_owned(),
        ),
        _ => Seen::Met,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::record::Origin;

    #[test]
    fn the_job_that_is_named_is_the_same_while_it_runs() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        let names: Vec<String> = (0..40).map(|number| format!("job-{number}")).collect();
        let of = |name: &String| Folder::new(place.path().join(name));
        for name in &names {
            std::fs::create_dir(of(name).path()).unwrap();
            let origin = Origin {
                created: crate::clock::now(),
                folder: std::path::PathBuf::new(),
                name: name.clone(),
                nodes: 1,
                fabric: weftrun_core::fabric::Fabric::Efa,
                labels: std::collections::BTreeMap::new(),
                attached: false,
                submitter: Some(crate::process::Identity::me()),
            };
            let file = of(name).of(crate::local::folder::ORIGIN);
            std::fs::write(file, serde_json::to_vec(&origin).unwrap()).unwrap();
        }
        let others = names.iter().map(|name| Dependency { job: name.clone(), succeeded: false }).collect();
        let mut before = Before { others, lane: Vec::new() };
        let mut seen = || match before.look(&own) {
            Seen::Waits(why) => why,
            other => panic!("{other:?}"),
        };
        for _ in 0..5 {
            assert_eq!(seen(), "waits for the end of job-0 and 39 other jobs");
        }
        // Deleted jobs have ended: all of them are looked at in a few looks.
        names.iter().skip(1).step_by(2).for_each(|name| std::fs::remove_dir_all(of(name).path()).unwrap());
        let last = (0..4).map(|_| seen()).last();
        assert_eq!(last.as_deref(), Some("waits for the end of job-0 and 19 other jobs"));
        std::fs::remove_dir_all(of(&names[0]).path()).unwrap();
        let (next, again) = (seen(), seen());
        assert_eq!(next, again);
        assert!(!next.contains("job-0 ") && next.ends_with("and 18 other jobs"), "{next}");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        for succeeded in [true, false] {
            let deleted = look(&own, "other", succeeded);
            assert_eq!(matches!(deleted, Seen::Met), !succeeded, "{deleted:?}");
            let folder = Folder::new(place.path().join("other"));
            std::fs::create_dir(folder.path()).unwrap();
            std::fs::write(folder.of(crate::local::folder::ORIGIN), "{").unwrap();
            let seen = look(&own, "other", succeeded);
            let Seen::Waits(why) = &seen else { panic!("{seen:?}") };
            assert!(why.contains("cannot be read") && why.contains("damaged"), "{why}");
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
}
