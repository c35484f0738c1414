//! The order of the events of a watch.

use futures_util::StreamExt;
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};

use super::bench::{Bench, must, said};
use super::{Checked, Verdict};

/// A watch of all jobs reports of each job its status first, and the end of a deleted job before that it is
/// gone.
pub(super) async fn the_end_comes_before_the_disappearance(bench: Bench<'_>) -> Checked {
    let mut events = bench.connect().await?.watch(JobFilter::all());
    let job = bench.submit("echo weft-up; sleep 600").await?;
    let deletes = job.backend.capability().delete;
    let (mut first, mut last, mut asked) = (true, None, false);
    while let Some(event) = events.next().await {
        let event = event.map_err(said("watch"))?;
        let gone = match &event {
            JobEvent::Status { job: about } if about.handle == job.handle => {
                last = Some(about.phase);
                false
            }
            JobEvent::Gone { job: about } if *about == job.handle => true,
            JobEvent::Replica { job: about, .. }
            | JobEvent::Message { job: about, .. }
            | JobEvent::Stuck { job: about, .. }
            | JobEvent::Attempt { job: about, .. }
                if *about == job.handle =>
            {
                false
            }
            _ => continue,
        };
        must(!std::mem::take(&mut first) || event.phase().is_some(), || {
            format!("the first event of a job is no status: {event:?}")
        })?;
        let ended = last.is_some_and(JobPhase::is_terminal);
        must(!gone || ended, || format!("the job is gone, and its last phase was {last:?}"))?;
        if gone || ended && !deletes {
            return if deletes { Ok(Verdict::Passed) } else { job.done().await };
        }
        if !asked && last == Some(JobPhase::Running) {
            asked = true;
            let action = if deletes { Action::Delete } else { Action::Cancel };
            job.backend.act(&job.handle, action).await.map_err(said("ending the job"))?;
        }
    }
    Err("a watch of all jobs ended".to_owned())
}

/// The watch of a job that has ended reports its end and stops.
pub(super) async fn an_ended_job_is_reported_once(bench: Bench<'_>) -> Checked {
    let job = bench.submit("exit 0").await?;
    job.wait().await?;
    let events: Vec<_> = job.backend.watch(JobFilter::one(&job.handle)).collect().await;
    let mut phases = Vec::new();
    for event in events {
        phases.extend(event.map_err(said("watch"))?.phase());
    }
    must(phases == [JobPhase::Succeeded], || format!("the phases of an ended job are {phases:?}"))?;
    job.done().await
}
