//! Cancel, delete, suspend, resume and signal.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use weftrun_core::job::{Action, JobHandle};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, Silent, ask};
use super::status::Job;
use super::{BACKEND, error};
use crate::refusals;
use crate::remote::signal;

pub async fn act(client: &Client, handle: &JobHandle, action: Action) -> Result<()> {
    if let Action::Signal(number) = action {
        signal::check(number)?;
    }
    let job = client.job(handle).await?;
    match action {
        Action::Cancel => cancel(client, &job).await,
        Action::Delete => delete(client, &job).await,
        Action::Suspend => tell_running(client, &job, handle, "suspend").await,
        Action::Resume => tell_running(client, &job, handle, "resume").await,
        Action::Signal(number) => tell_running(client, &job, handle, &format!("signal {number}")).await,
        Action::Hold | Action::Release => Err(Error::unsupported(BACKEND, "hold")),
        Action::Requeue => Err(Error::unsupported(BACKEND, "requeue")),
        _ => Err(Error::unsupported(BACKEND, "action")),
    }
}

async fn tell_running(client: &Client, job: &Job, handle: &JobHandle, word: &str) -> Result<()> {
    refusals::ended(handle, job.phase().0)?;
    tell(client, job, word).await
}

async fn cancel(client: &Client, job: &Job) -> Result<()> {
    if job.phase().0.is_terminal() {
        return Ok(());
    }
    tell(client, job, "cancel").await
}

/// Tells every host of a job; one that has ended there already has nothing to do.
async fn tell(client: &Client, job: &Job, word: &str) -> Result<()> {
    let programs: Vec<(String, String)> = job
        .place
        .hosts
        .iter()
        .map(|seat| Ok((seat.host.clone(), ask(&job.place.submission, word, None)?)))
        .collect::<Result<_>>()?;
    let mut failed = None;
    for (host, answer) in client.each(programs, Silent::Ask).await {
        let outcome = match answer {
            Ok(answer) if matches!(answer.code, 0 | error::ENDED | error::NO_JOB) => continue,
            Ok(answer) => {
                error::failed(&host, &format!("the job did not receive the request to {word}"), &answer)
            }
            Err(error) => {
                let message =
                    format!("host {host} does not answer: its ranks did not receive the request to {word}");
                Error::new(error.kind(), message).with_source(error).retryable()
            }
        };
        failed.get_or_insert(outcome);
    }
    failed.map_or(Ok(()), Err)
}

/// Ends a job, and removes its folders: only where all hosts answer. A removal that was cut off is gone on with by the next one.
async fn delete(client: &Client, job: &Job) -> Result<()> {
    if let Some((host, why)) = job.silent().next() {
        let more = if job.is_partly_gone() { "nothing more" } else { "nothing" };
        let text = format!("host {host} does not answer, and its ranks may still run: {more} was removed");
        let error = Error::new(ErrorKind::Unreachable, text).with("because", why);
        return Err(why.hint(error).retryable());
    }
    cancel(client, job).await?;
    // Every host was told: what is left is to wait. An order of a look could start the job again.
    let patience = Duration::from_secs(u64::from(job.place.grace) + 20);
    let began = Instant::now();
    let mut now = job.clone();
    while !now.phase().0.is_terminal() {
        if began.elapsed() > patience {
            return Err(
                Error::new(ErrorKind::Timeout, "the job does not end; nothing was removed").retryable()
            );
        }
        sleep(Duration::from_millis(100)).await;
        match client.again(&now).await? {
            Some(next) => now = next,
            None => return Ok(()),
        }
    }
    // What is left after a failure is still a job that has ended so.
    client.conclude([&now]).await;
    let program = format!("weftrun_remove {}\n", job.place.submission);
    let programs: Vec<_> = job.place.hosts.iter().map(|seat| (seat.host.clone(), program.clone())).collect();
    let (mut left, mut failure) = (Vec::new(), None);
    for (host, answer) in client.each(programs, Silent::Ask).await {
        let outcome = match answer {
            Ok(answer) if answer.code == 0 => continue,
            Ok(answer) => error::failed(&host, "the job's folder was not removed", &answer),
            Err(error) => error,
        };
        left.push(host);
        failure.get_or_insert(outcome);
    }
    let Some(cause) = failure else { return Ok(()) };
    let message =
        format!("the job was not removed from {}; its other hosts have nothing of it", left.join(", "));
    Err(Error::new(cause.kind(), message).hint("`weftrun delete` again removes the rest").with_source(cause))
}
