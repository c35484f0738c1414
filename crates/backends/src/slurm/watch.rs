//! Watches jobs: one query of the queue every two seconds, shared by all watchers, converted to events.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase};
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::ids::JobId;
use super::lookup::{self, JobRows};
use super::records::Job;
use super::{findings, status};
use crate::changes::{Look, Reported};
use crate::outage::Link;
use crate::stream::{Feed, put};

/// What is known of a job.
#[derive(Debug, Default)]
struct Known {
    reported: Reported,
    started: Option<Timestamp>,
    nodes: String,
    ran: bool,
    ended: bool,
    /// The tasks of an array whose end was seen: slurmctld forgets them while others run.
    tasks: BTreeMap<u64, Job>,
}

impl Known {
    /// Keeps the tasks that have ended, and adds those that slurmctld has forgotten since.
    fn remember(&mut self, rows: &mut Vec<Job>) {
        for row in rows.iter().filter(|row| row.is_of_array()) {
            let Some(task) = row.task else { continue };
            if row.phase().is_terminal() {
                self.tasks.insert(task, row.clone());
            } else {
                self.tasks.remove(&task);
            }
        }
        lookup::add_unknown(rows, self.tasks.values().cloned().collect());
    }
}

/// Feeds the events of all jobs of a filter; ends when every job that the filter names by handle has ended.
pub async fn watch(client: Arc<Client>, filter: JobFilter, feed: Feed<JobEvent>) -> Result<()> {
    let ids: Vec<(JobHandle, JobId)> = filter
        .handles
        .iter()
        .map(|handle| Ok((handle.clone(), JobId::of(handle)?)))
        .collect::<Result<_>>()?;
    let mut known: BTreeMap<JobHandle, Known> = BTreeMap::new();
    let mut link = Link::default();
    loop {
        let round = if ids.is_empty() {
            all(&client, &filter, &mut known, &feed).await
        } else {
            some(&client, &ids, &mut known, &feed).await
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
    known: &mut BTreeMap<JobHandle, Known>,
    feed: &Feed<JobEvent>,
) -> Result<bool> {
    let mut open = false;
    for (handle, id) in ids {
        let known = known.entry(handle.clone()).or_default();
        if known.ended {
            continue;
        }
        let was_seen = known.reported.summary.is_some();
        match lookup::look_again(client, id, was_seen).await? {
            Some(mut found) => {
                known.remember(&mut found.rows);
                tell(client, handle, &found, known, feed).await?;
            }
            None if known.reported.summary.is_none() => return Err(lookup::not_found(client, id)),
            None => {
                put(feed, JobEvent::Gone { job: handle.clone() }).await;
                known.ended = true;
            }
        }
        open |= !known.ended;
    }
    Ok(open && !feed.is_closed())
}

async fn all(
    client: &Client,
    filter: &JobFilter,
    known: &mut BTreeMap<JobHandle, Known>,
    feed: &Feed<JobEvent>,
) -> Result<bool> {
    let snapshot = client.snapshot().await?;
    let mut groups: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
    for job in snapshot.iter() {
        groups.entry(job.number).or_default().push(job.clone());
    }
    for (number, rows) in &groups {
        let marker = rows.iter().find_map(|job| job.marker.as_ref());
        let labels = marker.map(|marker| &marker.labels);
        if !filter.foreign && marker.is_none() || !filter.fits(labels.unwrap_or(&BTreeMap::new())) {
            continue;
        }
        let handle = super::submit::handle(client, &JobId::whole(*number));
        let entry = known.entry(handle.clone()).or_default();
        let found = JobRows { rows: rows.clone(), shown: None };
        if entry.ended || (entry.reported.summary.is_none() && !filter.ended && found.phase().is_terminal()) {
            continue;
        }
        // A whole array that has ended may have tasks that slurmctld has forgotten.
        let ended_array = found.phase().is_terminal() && found.rows.iter().any(Job::is_of_array);
        let mut found = if ended_array || found.phase() == JobPhase::Failed {
            lookup::look(client, &JobId::whole(*number)).await?.unwrap_or(found)
        } else {
            found
        };
        entry.remember(&mut found.rows);
        tell(client, &handle, &found, entry, feed).await?;
    }
    let is_gone = |handle: &&JobHandle| JobId::of(handle).is_ok_and(|id| !groups.contains_key(&id.number));
    let gone: Vec<JobHandle> = known.keys().filter(is_gone).cloned().collect();
    for job in gone {
        known.remove(&job);
        put(feed, JobEvent::Gone { job }).await;
    }
    Ok(!feed.is_closed())
}

/// Reports what changed of one job.
async fn tell(
    client: &Client,
    handle: &JobHandle,
    found: &JobRows,
    known: &mut Known,
    feed: &Feed<JobEvent>,
) -> Result<()> {
    let summary = found.summary(handle.clone());
    let alive = matches!(summary.phase, JobPhase::Running | JobPhase::Starting);
    let started = found.rows.iter().filter_map(|job| job.started).min();
    let waits_again = summary.phase == JobPhase::Pending
        && (known.ran
            || (known.reported.summary.is_none() && found.rows.iter().any(|job| job.reason == "BeginTime")));
    let restarted =
        alive && known.ran && known.started.is_some() && known.started != started && found.rows.len() == 1;
    let (mut attempt, mut why) = (known.reported.attempt, String::new());
    if waits_again || restarted {
        (attempt, why) = requeued(client, handle, known).await?;
    }
    let replicas = status::replicas(&found.rows.iter().collect::<Vec<_>>());
    let findings = findings::stuck(&found.rows, found.shown.as_ref()).into_iter().collect();
    known.ended = summary.phase.is_terminal();
    let look = Look { replicas, attempt, why, findings, ..Look::of(summary) };
    for event in known.reported.changes(look) {
        put(feed, event).await;
    }
    if alive {
        known.ran = true;
        known.started = started;
        known.nodes = found
            .rows
            .iter()
            .map(|job| job.nodes.as_str())
            .filter(|nodes| !nodes.is_empty())
            .collect::<Vec<_>>()
            .join(",");
    }
    if known.ended {
        for finding in findings::at_end(client, found).await? {
            put(feed, message(handle, finding)).await;
        }
    }
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

/// Returns the attempt of a job that was requeued, and why: the failed node, if there is one.
async fn requeued(client: &Client, handle: &JobHandle, known: &mut Known) -> Result<(u32, String)> {
    let restarts =
        client.shown(&JobId::of(handle)?).await?.iter().map(|shown| shown.restarts).max().unwrap_or(0);
    if restarts <= known.reported.attempt {
        return Ok((known.reported.attempt, String::new()));
    }
    known.ran = false;
    let sick = lookup::sick_nodes(client, &known.nodes).await.unwrap_or_default();
    let sick: Vec<String> = sick.into_iter().map(|(_, why)| format!("{why}, ")).collect();
    let sick = sick.concat();
    Ok((
        restarts,
        match sick.strip_suffix(", ") {
            Some(sick) => format!("{sick}: the job was queued again"),
            None => "the job was queued again".to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_task_that_is_forgotten_meanwhile_still_counts() {
        let task = Job::task_of_array;
        let mut known = Known::default();
        known.remember(&mut vec![task(0, "FAILED"), task(1, "RUNNING")]);
        let mut rows = vec![task(1, "COMPLETED")];
        known.remember(&mut rows);
        assert_eq!(JobRows { rows, shown: None }.phase(), JobPhase::Failed);
        let mut rows = vec![task(0, "RUNNING"), task(1, "COMPLETED")];
        known.remember(&mut rows);
        assert_eq!(rows.len(), 2, "it was queued again");
    }
}
