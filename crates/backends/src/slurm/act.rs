//! Actions, each confirmed by the job's state, since `scancel` prints nothing about jobs that it did not
//! find.

use std::time::Duration;

use weftrun_core::job::{Action, JobHandle, JobPhase};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Access, Client};
use super::ids::JobId;
use super::lookup::{self, JobRows};
use super::records::Job;
use super::{BACKEND, error, findings};
use crate::remote::signal;

pub async fn act(client: &Client, handle: &JobHandle, action: Action) -> Result<()> {
    if let Action::Signal(number) = action {
        signal::check(number)?;
    }
    // A snapshot may be two seconds old, which is too old here.
    client.forget_snapshot().await;
    let (id, found) = lookup::must_find(client, handle).await?;
    let phase = found.phase();
    let (name, argv): (&'static str, Vec<String>) = match action {
        // Plain scancel: TERM to the ranks and the script, KILL after KillWait. `--batch` alone would KILL at once.
        Action::Cancel => ("scancel", vec![id.to_string()]),
        Action::Hold => ("scontrol", vec!["hold".to_owned(), id.to_string()]),
        Action::Release => ("scontrol", vec!["release".to_owned(), id.to_string()]),
        Action::Requeue => ("scontrol", vec!["requeue".to_owned(), id.to_string()]),
        // Reaches the ranks (the steps) and not the script.
        Action::Signal(number) => ("scancel", vec![format!("--signal={number}"), id.to_string()]),
        Action::Suspend | Action::Resume => {
            return Err(Error::unsupported(BACKEND, "suspend").hint(
                "on Slurm only administrators suspend jobs; `hold` keeps a pending one from starting",
            ));
        }
        Action::Delete => {
            return Err(Error::unsupported(BACKEND, "delete")
                .hint("Slurm's accounting keeps its records; `cancel` stops the job"));
        }
        _ => return Err(Error::unsupported(BACKEND, "this action")),
    };
    if action == Action::Requeue && client.access.is_rest() {
        return Err(no_requeue());
    }
    if phase.is_terminal() {
        // Cancelling a job that has ended is not a failure; any other action on it is.
        return if action == Action::Cancel { Ok(()) } else { Err(wrong_phase(&id, action, phase)) };
    }
    let any = |phases: &[JobPhase]| found.rows.iter().any(|row| phases.contains(&row.phase()));
    if action == Action::Hold && !any(&[JobPhase::Pending, JobPhase::Suspended]) {
        return Err(wrong_phase(&id, action, phase)
            .hint("only a pending job can be held, and the tasks of an array that wait"));
    }
    if action == Action::Release && !any(&[JobPhase::Suspended]) {
        return Err(wrong_phase(&id, action, phase).hint("only what is held can be released"));
    }
    if matches!(action, Action::Signal(_)) && phase != JobPhase::Running {
        return Err(wrong_phase(&id, action, phase).hint("only a running job gets signals"));
    }
    if let Access::Rest(rest) = &client.access {
        if let Action::Signal(number) = action
            && !(SURVIVED.contains(&number) && found.rows.iter().all(|job| job.marker.is_some()))
        {
            return Err(Error::unsupported(BACKEND, "signal").hint(
                "slurmrestd sends a signal to the job's script as well, which would end the job: weftrun's own \
                 scripts survive USR1 and USR2; `scancel --signal` on the cluster, or a target with `ssh`, reaches \
                 the ranks alone",
            ));
        }
        match action {
            Action::Signal(number) => rest.cancel(&id, Some(number)).await?,
            Action::Hold | Action::Release => {
                if let Err(error) = rest.hold(&id, action == Action::Hold).await {
                    return despite(error, client, &id, action, &found).await;
                }
            }
            _ => rest.cancel(&id, None).await?,
        }
        return confirm(client, &id, action, &found).await;
    }
    let answer = client.answer(name, &argv).await?;
    if action == Action::Requeue && answer.code != 0 && answer.stderr.contains("presently disabled") {
        // The job forbids a requeue by Slurm itself; its owner may still request one.
        let allow = ["update".to_owned(), format!("JobId={id}"), "Requeue=1".to_owned()];
        client.command("scontrol", &allow).await?;
        client.command(name, &argv).await?;
    } else if answer.code != 0 {
        let error = error::of_command(name, &answer.stderr, answer.code);
        return despite(error, client, &id, action, &found).await;
    }
    confirm(client, &id, action, &found).await
}

/// The signals that do not end the rendered script: USR1 and USR2, which it handles (`render/bookkeeping.rs`), and
/// CONT.
const SURVIVED: [i32; 3] = [10, 12, 18];

fn no_requeue() -> Error {
    Error::unsupported(BACKEND, "requeue")
        .hint("no version of slurmrestd queues a job again: `scontrol requeue ID` on the cluster does, or a target with `ssh`")
}

fn wrong_phase(id: &JobId, action: Action, phase: JobPhase) -> Error {
    let verb = match action {
        Action::Hold => "held",
        Action::Release => "released",
        Action::Requeue => "queued again",
        Action::Signal(_) => "signalled",
        _ => "changed",
    };
    Error::new(ErrorKind::Refused, format!("job {id} is {phase} and cannot be {verb}"))
}

/// Returns the result of an action that Slurm reports as failed. Of an array, 22.05 reports the tasks that it cannot hold or release
/// (they run, or have ended), and does so with the others.
async fn despite(error: Error, client: &Client, id: &JobId, action: Action, before: &JobRows) -> Result<()> {
    let may_be_partial =
        matches!(action, Action::Hold | Action::Release) && before.rows.iter().any(Job::is_of_array);
    if may_be_partial && confirm(client, id, action, before).await.is_ok() {
        return Ok(());
    }
    Err(error)
}

/// Waits until the state shows the effect, for up to 10 s: slurmctld acts asynchronously.
async fn confirm(client: &Client, id: &JobId, action: Action, before: &JobRows) -> Result<()> {
    for _ in 0..20 {
        client.forget_snapshot().await;
        let Some(now) = lookup::look_again(client, id, true).await? else { return Ok(()) };
        let phase = now.phase();
        let done = match action {
            Action::Cancel => phase.is_terminal() || phase == JobPhase::Stopping,
            // Of an array, the tasks that run are not held.
            Action::Hold => now.rows.iter().all(|row| row.phase() != JobPhase::Pending),
            Action::Release => now.rows.iter().all(|row| row.phase() != JobPhase::Suspended),
            Action::Requeue => {
                phase != JobPhase::Running
                    || now.rows.first().map(|job| job.started) != before.rows.first().map(|job| job.started)
            }
            _ => true,
        };
        if done {
            return Ok(());
        }
        if let Some(finding) =
            findings::stuck(&now.rows, now.shown.as_ref()).filter(|_| action == Action::Release)
        {
            return Err(Error::new(ErrorKind::Refused, finding.message));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(Error::new(
        ErrorKind::Refused,
        format!("Slurm took the command, but job {id} has not changed within 10 s"),
    )
    .with("state", before.phase())
    .retryable())
}
