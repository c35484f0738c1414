//! Watches jobs: the hosts are asked again and again, more seldom while nothing changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Instant, sleep};
use weftrun_core::job::{JobEvent, JobFilter, JobHandle};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, Silent, silent};
use super::look::Looks;
use super::status::{Job, Jobs};
use crate::changes::{Look, Reported, compare};
use crate::outage::Link;
use crate::stream::{Feed, put};

/// Feeds the events of all jobs of a filter; ends when every job that the filter names by handle has ended.
pub async fn watch(client: Arc<Client>, filter: JobFilter, feed: Feed<JobEvent>) -> Result<()> {
    let mut reported: BTreeMap<JobHandle, Reported> = BTreeMap::new();
    let mut known: BTreeMap<JobHandle, (Look, Vec<String>)> = BTreeMap::new();
    let (mut last, mut link, mut first) = (Instant::now(), Link::default(), true);
    let mut hosts = Vec::new();
    loop {
        let looks = match first && !filter.handles.is_empty() {
            true => client.look_for(&filter.handles).await?,
            false => client.look(&hosts, None, Silent::Skip).await,
        };
        let gone = looks.values().all(std::result::Result::is_err).then(|| silent(&looks)).flatten();
        match gone {
            Some(error) if first => return Err(error),
            Some(error) => link.is_lost(&error, &feed).await,
            None => {
                link.is_back(&feed).await;
                let all = Job::gather(&looks);
                let here: BTreeSet<JobHandle> = all.values().map(|job| job.handle(&client.target)).collect();
                let jobs = chosen(&client, &filter, &looks, all, first)?;
                for job in &jobs {
                    client.carry_out(job).await;
                }
                if first && !filter.handles.is_empty() {
                    let seats = jobs.iter().flat_map(|job| &job.place.hosts);
                    hosts = seats.map(|seat| seat.host.clone()).collect();
                }
                // A job of which no host answers is not gone.
                let is_silent = |host: &String| matches!(looks.get(host), Some(Err(_)));
                known.retain(|handle, (_, hosts)| !here.contains(handle) && hosts.iter().any(is_silent));
                let held: Vec<Look> = known.values().map(|(look, _)| look.clone()).collect();
                let seen: Vec<Look> = jobs.iter().map(|job| look(&client, job)).chain(held).collect();
                for (job, look) in jobs.iter().zip(&seen) {
                    let handle = &look.summary.handle;
                    let hosts = job.place.hosts.iter().map(|seat| seat.host.clone()).collect();
                    known.insert(handle.clone(), (look.clone(), hosts));
                }
                let (events, over) = compare(&mut reported, seen, &filter);
                if !events.is_empty() {
                    last = Instant::now();
                }
                for event in events {
                    put(&feed, event?).await;
                }
                if over {
                    return Ok(());
                }
            }
        }
        if feed.is_closed() {
            return Ok(());
        }
        first = false;
        sleep(client.pause(last.elapsed())).await;
    }
}

/// Returns the jobs of a filter. One that is not there is an error only in the first look.
fn chosen(client: &Client, filter: &JobFilter, looks: &Looks, all: Jobs, first: bool) -> Result<Vec<Job>> {
    if !filter.handles.is_empty() {
        let mut jobs = Vec::new();
        for handle in &filter.handles {
            match client.pick(handle, looks, &all) {
                Ok(job) => jobs.push(job),
                Err(error) if first => return Err(error),
                Err(_) => {}
            }
        }
        return Ok(jobs);
    }
    let mut jobs: Vec<Job> = all.into_values().filter(Job::is_committed).collect();
    jobs.retain(|job| filter.fits(&job.place.labels) && (filter.ended || !job.phase().0.is_terminal()));
    jobs.sort_by(|a, b| {
        b.place.created.cmp(&a.place.created).then_with(|| a.place.submission.cmp(&b.place.submission))
    });
    jobs.truncate(filter.limit.unwrap_or(usize::MAX));
    Ok(jobs)
}

fn look(client: &Client, job: &Job) -> Look {
    let (replicas, attempt, findings) = (job.replicas(), job.attempt(), job.troubles());
    Look { replicas, attempt, findings, ..Look::of(job.summary(&client.target)) }
}

/// Lists jobs.
///
/// # Errors
/// [`ErrorKind::Unreachable`] if no host answers.
pub async fn list(client: &Client, filter: &JobFilter) -> Result<Vec<weftrun_core::job::JobSummary>> {
    let looks = match filter.handles.is_empty() {
        true => client.look(&[], None, Silent::Skip).await,
        false => client.look_for(&filter.handles).await?,
    };
    if looks.is_empty() {
        return Err(no_hosts(client));
    }
    if looks.values().all(std::result::Result::is_err)
        && let Some(error) = silent(&looks)
    {
        return Err(error);
    }
    let unseen: Vec<&str> =
        looks.iter().filter(|(_, look)| look.is_err()).map(|(host, _)| host.as_str()).collect();
    if filter.handles.is_empty() && !unseen.is_empty() {
        tracing::warn!("no answer from {}: jobs that run only there are not listed", unseen.join(", "));
    }
    let jobs = Job::gather(&looks);
    if filter.handles.is_empty() {
        client.conclude(jobs.values()).await;
    }
    Ok(chosen(client, filter, &looks, jobs, true)?.iter().map(|job| job.summary(&client.target)).collect())
}

/// Returns the error of a target without hosts.
pub fn no_hosts(client: &Client) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("target `{}` names no hosts", client.target))
        .hint("set `hosts = [\"a\", \"b\"]` or `hostfile` in the target")
}
