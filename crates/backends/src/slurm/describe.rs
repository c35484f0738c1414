//! The details of one job.

use weftrun_core::job::{JobDetail, JobEvent, JobHandle, JobPhase};
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::ids::JobId;
use super::records::Job;
use super::{findings, lookup, nodelist, state, status, usage};

pub async fn describe(client: &Client, handle: &JobHandle) -> Result<JobDetail> {
    let (id, mut found) = lookup::must_find(client, handle).await?;
    if found.shown.is_none() {
        let shown = client.shown(&id).await?;
        lookup::add_restarts(&mut found.rows, &shown);
        found.shown = shown.into_iter().next();
    }
    let (runs, attempts, used) =
        tokio::join!(client.accounted_if_up(Some(&id), 0), attempts(client, &id), usage::facts(client, &id),);
    let ((runs, down), attempts) = (runs?, attempts?);
    client.note(down);
    let mut detail = JobDetail::new(found.summary(handle.clone()));
    let mut tasks: Vec<Job> = found.rows.iter().flat_map(Job::each_task).collect();
    tasks.sort_by_key(|job| job.task);
    detail.replicas = status::replicas(&tasks.iter().collect::<Vec<_>>());
    if let ([one], Some(_)) = (found.rows.as_slice(), id.task) {
        detail.replicas.extend(status::further_nodes(one));
    }
    let is_array = found.rows.iter().any(Job::is_of_array);
    for replica in &mut detail.replicas {
        replica.restarts = replica.restarts.max(attempts.saturating_sub(1));
    }
    if !is_array {
        status::end(&mut detail.replicas, &detail.summary);
    }
    detail.findings = findings::at_end(client, &found).await?;
    detail.findings.extend(queued_again(client, &detail, &runs).await?);
    detail.findings.extend(client.take_notes());
    detail.history = history(handle, &runs);
    detail.facts = facts(client, &id, &found);
    detail.facts.extend(used);
    Ok(detail)
}

/// Returns why a job that waits is queued again, if it ran before.
async fn queued_again(client: &Client, detail: &JobDetail, runs: &[Job]) -> Result<Option<Finding>> {
    let before = runs.iter().rfind(|run| !matches!(run.state.as_str(), "PENDING" | "RUNNING"));
    let Some(run) = before.filter(|_| detail.summary.phase == JobPhase::Pending) else { return Ok(None) };
    Ok(match run.state.as_str() {
        "NODE_FAIL" => {
            Some(findings::node_failed(client, &run.nodes, "exclude that node if it fails again").await?)
        }
        _ => findings::of_failure(std::slice::from_ref(run), None).into_iter().next(),
    })
}

/// Returns how often the job's script started, according to the file beside its log.
pub async fn attempts(client: &Client, id: &JobId) -> Result<u32> {
    if !client.has_files() {
        return Ok(0);
    }
    let program = format!(
        "{}for f in \"$dir\"/*-{id}-????????.exit; do\n[ ! -f \"$f\" ] || head -n 1 -- \"$f\"\ndone\n:",
        client.enter_log_dir()?
    );
    let text = client.transport.read(&program).await?.text();
    let last = |line: &str| line.split_once(' ')?.1.trim().parse::<u32>().ok();
    Ok(text.lines().filter_map(last).max().map_or(0, |attempt| attempt.saturating_add(1)))
}

/// Returns the earlier runs of a requeued job as events.
fn history(handle: &JobHandle, runs: &[Job]) -> Vec<JobEvent> {
    let mut events = Vec::new();
    let earlier = runs.len().saturating_sub(1);
    for (number, run) in runs.iter().take(earlier).enumerate() {
        if runs.get(number + 1).is_none_or(|next| next.printed != run.printed) {
            continue;
        }
        let nodes = if run.nodes.is_empty() { String::new() } else { format!(" on {}", run.nodes) };
        events.push(JobEvent::Attempt {
            job: handle.clone(),
            attempt: u32::try_from(number + 1).unwrap_or(u32::MAX),
            reason: format!("{}{nodes}: the job was queued again", state::sentence(&run.state, &run.reason)),
        });
    }
    events
}

fn facts(client: &Client, id: &JobId, found: &lookup::JobRows) -> Vec<(String, String)> {
    let mut facts =
        vec![("job id".to_owned(), id.to_string()), ("host".to_owned(), client.host().to_owned())];
    if let Some(job) = found.rows.first() {
        // The tasks of an array have rows of their own.
        let is_one = found.rows.len() == 1;
        if is_one {
            facts.push(("state".to_owned(), super::error::clean(&job.state)));
        }
        if is_one && !job.nodes.is_empty() {
            facts.push(("node list".to_owned(), job.nodes.clone()));
            facts.push(("nodes".to_owned(), nodelist::count(&job.nodes).to_string()));
        }
    }
    if let Some(shown) = &found.shown {
        facts.extend(shown.facts.iter().map(|(key, value)| (key.to_lowercase(), super::error::clean(value))));
        facts.extend(shown.stdout.iter().map(|path| ("log".to_owned(), super::error::clean(path))));
    }
    facts
}
