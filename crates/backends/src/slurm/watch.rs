//! Watches jobs: one query of the queue every two seconds, shared by all watchers, converted to events.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::ids::JobId;
use super::lookup::{self, JobRows};
use super::{findings, status};
use crate::outage::Link;
use crate::stream::{Feed, put};

/// The last reported state of a job.
#[derive(Debug, Default)]
struct Reported {
    summary: Option<JobSummary>,
    replicas: BTreeMap<String, JobPhase>,
    started: Option<Timestamp>,
    nodes: String,
    ran: bool,
    attempt: u32,
    stuck: Option<String>,
    ended: bool,
}

/// Feeds the events of all jobs of a filter; ends when every job that the filter names by handle has ended.
pub async fn watch(client: Arc<Client>, filter: JobFilter, feed: Feed<JobEvent>) -> Result<()> {
    let ids: Vec<(JobHandle, JobId)> = filter
        .handles
        .iter()
        .map(|handle| Ok((handle.clone(), JobId::of(handle)?)))
        .collect::<Result<_>>()?;
    let mut reported: BTreeMap<JobHandle, Reported> = BTreeMap::new();
    let mut link = Link::default();
    loop {
        let round = if ids.is_empty() {
            all(&client, &filter, &mut reported, &feed).await
        } else {
            some(&client, &ids, &mut reported, &feed).await
        };
        match round {
            Ok(false) => return Ok(()),
            Ok(true) => link.is_back(&feed).await,
            Err(error) if error.is_retryable() => link.is_lost(&error, &feed).await,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(client.settings.poll() + link.pause()).await;
    }
}

async fn some(
    client: &Client,
    ids: &[(JobHandle, JobId)],
    reported: &mut BTreeMap<JobHandle, Reported>,
    feed: &Feed<JobEvent>,
) -> Result<bool> {
    let mut open = false;
    for (handle, id) in ids {
        let reported = reported.entry(handle.clone()).or_default();
        if reported.ended {
            continue;
        }
        match lookup::look(client, id).await? {
            Some(found) => tell(client, handle, &found, reported, feed).await?,
            None if reported.summary.is_none() => return Err(lookup::not_found(client, id)),
            None => {
                put(feed, JobEvent::Gone { job: handle.clone() }).await;
                reported.ended = true;
            }
        }
        open |= !reported.ended;
    }
    Ok(open && !feed.is_closed())
}

async fn all(
    client: &Client,
    filter: &JobFilter,
    reported: &mut BTreeMap<JobHandle, Reported>,
    feed: &Feed<JobEvent>,
) -> Result<bool> {
    let snapshot = client.snapshot().await?;
    let mut groups: BTreeMap<u64, Vec<super::records::Job>> = BTreeMap::new();
    for job in snapshot.iter() {
        groups.entry(job.number).or_default().push(job.clone());
    }
    for (number, rows) in &groups {
        if !filter.foreign && rows.iter().all(|job| job.marker.is_none()) {
            continue;
        }
        let handle = super::submit::handle(client, &JobId::whole(*number));
        let entry = reported.entry(handle.clone()).or_default();
        let found = JobRows { rows: rows.clone(), shown: None };
        if entry.ended || (entry.summary.is_none() && !filter.ended && found.phase().is_terminal()) {
            continue;
        }
        let found = if found.phase() == JobPhase::Failed {
            lookup::look(client, &JobId::whole(*number)).await?.unwrap_or(found)
        } else {
            found
        };
        tell(client, &handle, &found, entry, feed).await?;
    }
    let is_gone = |handle: &&JobHandle| JobId::of(handle).is_ok_and(|id| !groups.contains_key(&id.number));
    let gone: Vec<JobHandle> = reported.keys().filter(is_gone).cloned().collect();
    for job in gone {
        reported.remove(&job);
        put(feed, JobEvent::Gone { job }).await;
    }
    Ok(!feed.is_closed())
}

/// Reports what changed of one job.
async fn tell(
    client: &Client,
    handle: &JobHandle,
    found: &JobRows,
    reported: &mut Reported,
    feed: &Feed<JobEvent>,
) -> Result<()> {
    let summary = found.summary(handle.clone());
    let alive = matches!(summary.phase, JobPhase::Running | JobPhase::Starting);
    let started = found.rows.iter().filter_map(|job| job.started).min();
    let waits_again = summary.phase == JobPhase::Pending
        && (reported.ran
            || (reported.summary.is_none() && found.rows.iter().any(|job| job.reason == "BeginTime")));
    let restarted = alive
        && reported.ran
        && reported.started.is_some()
        && reported.started != started
        && found.rows.len() == 1;
    if waits_again || restarted {
        tell_requeue(client, handle, reported, feed).await?;
    }
    if reported.summary.as_ref() != Some(&summary) {
        put(feed, JobEvent::Status { job: summary.clone() }).await;
    }
    for replica in status::replicas(&found.rows.iter().collect::<Vec<_>>()) {
        tell_replica(handle, replica, reported, feed).await;
    }
    if let Some(finding) = findings::stuck(&found.rows, found.shown.as_ref())
        && reported.stuck.as_deref() != Some(finding.message.as_str())
    {
        reported.stuck = Some(finding.message.clone());
        put(feed, JobEvent::Stuck { job: handle.clone(), finding }).await;
    }
    if alive {
        reported.ran = true;
        reported.started = started;
        reported.nodes = found
            .rows
            .iter()
            .map(|job| job.nodes.as_str())
            .filter(|nodes| !nodes.is_empty())
            .collect::<Vec<_>>()
            .join(",");
    }
    reported.ended = summary.phase.is_terminal();
    if reported.ended {
        for finding in findings::at_end(client, found).await? {
            put(feed, message(handle, finding)).await;
        }
    }
    reported.summary = Some(summary);
    Ok(())
}

fn message(handle: &JobHandle, finding: Finding) -> JobEvent {
    let fix = finding.fix.as_ref().map_or_else(String::new, |fix| format!(": {}", fix.text));
    JobEvent::Message {
        job: handle.clone(),
        severity: finding.severity,
        text: format!("{}{fix}", finding.message),
        reason: finding.code,
        time: None,
    }
}

/// Reports that the job was requeued, with the failed node if there is one.
async fn tell_requeue(
    client: &Client,
    handle: &JobHandle,
    reported: &mut Reported,
    feed: &Feed<JobEvent>,
) -> Result<()> {
    let restarts =
        client.shown(&JobId::of(handle)?).await?.iter().map(|shown| shown.restarts).max().unwrap_or(0);
    if restarts <= reported.attempt {
        return Ok(());
    }
    reported.attempt = restarts;
    reported.ran = false;
    reported.replicas.clear();
    let sick = lookup::sick_nodes(client, &reported.nodes).await.unwrap_or_default();
    let reason = if sick.is_empty() {
        "the job was queued again".to_owned()
    } else {
        let sick: Vec<String> = sick.into_iter().map(|(_, why)| why).collect();
        format!("{}: the job was queued again", sick.join(", "))
    };
    put(feed, JobEvent::Attempt { job: handle.clone(), attempt: restarts, reason }).await;
    Ok(())
}

async fn tell_replica(
    handle: &JobHandle,
    replica: ReplicaStatus,
    reported: &mut Reported,
    feed: &Feed<JobEvent>,
) {
    if reported.replicas.get(&replica.name) != Some(&replica.phase) {
        reported.replicas.insert(replica.name.clone(), replica.phase);
        put(feed, JobEvent::Replica { job: handle.clone(), replica }).await;
    }
}
