//! Where a job is: asked of slurmctld first, of accounting second (which lags, and is wrong about exit codes before
//! 26.05), of the job's own exit file last.

use weftrun_core::job::{JobHandle, JobPhase, JobSummary, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::Client;
use super::ids::JobId;
use super::records::{Job, Shown};
use super::{quote, state, status, submit};

/// What is known of one job.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its rows: one, or one for each task or component.
    pub rows: Vec<Job>,
    /// What `scontrol` told, where it was asked: only of jobs that failed.
    pub shown: Option<Shown>,
}

impl Found {
    /// The job's summary.
    pub fn summary(&self, handle: JobHandle) -> JobSummary {
        status::summary(handle, &self.rows.iter().collect::<Vec<_>>(), self.shown.as_ref())
    }

    /// The job's phase.
    pub fn phase(&self) -> JobPhase {
        self.summary(JobHandle::new("slurm", "x", ["0"])).phase
    }
}

/// Looks for a job; none if nobody knows it any more.
pub async fn look(client: &Client, id: &JobId) -> Result<Option<Found>> {
    let rows = client.rows(id).await?;
    if !rows.is_empty() {
        let failed = rows.iter().any(|job| state::phase(&job.state, &job.reason) == JobPhase::Failed);
        let shown = if failed { client.shown(id).await? } else { Vec::new() };
        let shown = shown
            .into_iter()
            .filter(|shown| state::phase(&shown.state, "") == JobPhase::Failed)
            .max_by_key(|shown| shown.exit_code);
        return Ok(Some(Found { rows, shown }));
    }
    gone(client, id).await
}

/// A job that slurmctld has forgotten.
async fn gone(client: &Client, id: &JobId) -> Result<Option<Found>> {
    let own = exit_file(client, id).await?;
    let lives = client.accounted(id).await?.unwrap_or_default();
    let mut rows: Vec<Job> = Vec::new();
    for life in lives.into_iter().filter(|job| job.belongs_to(id)) {
        // The last life of each task counts.
        rows.retain(|job| job.printed != life.printed);
        rows.push(life);
    }
    if let (Some((code, name)), true) = (&own, rows.is_empty()) {
        rows.push(Job {
            printed: id.to_string(),
            number: id.number,
            state: if *code == 0 { "COMPLETED" } else { "FAILED" }.to_owned(),
            name: name.clone(),
            exit_code: Some(*code),
            ..Job::default()
        });
    }
    if let ([row], Some((code, _))) = (rows.as_mut_slice(), own) {
        row.exit_code = Some(code);
    }
    Ok((!rows.is_empty()).then_some(Found { rows, shown: None }))
}

/// The exit code a job of ours left behind, and the job's name.
async fn exit_file(client: &Client, id: &JobId) -> Result<Option<(i32, String)>> {
    if !client.has_files() {
        return Ok(None);
    }
    let program = format!(
        "{}for f in \"$dir\"/*-{id}-????????.exit; do [ -f \"$f\" ] && printf '%s/' \"${{f##*/}}\" && head -c 64 -- \"$f\"; done\n:",
        client.enter_log_dir()?
    );
    let text = client.read(&program).await?.text();
    let read = |line: &str| {
        let (file, rest) = line.split_once('/')?;
        let code: i32 = rest.split(' ').next()?.trim().parse().ok()?;
        let name = file.rsplit_once(&format!("-{id}-")).map_or(file, |(name, _)| name);
        Some((code, name.to_owned()))
    };
    Ok(text.lines().last().and_then(read))
}

/// Looks for a job that must be there.
pub async fn must_find(client: &Client, handle: &JobHandle) -> Result<(JobId, Found)> {
    let id = JobId::of(handle)?;
    match look(client, &id).await? {
        Some(found) => Ok((id, found)),
        None => Err(not_found(client, &id)),
    }
}

/// The error of a job nobody knows.
pub fn not_found(client: &Client, id: &JobId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no Slurm job {id}"))
        .with("target", &client.target)
        .hint("slurmctld forgets ended jobs after MinJobAge, and accounting does not know it either")
}

/// All jobs of the user, ended ones too where asked.
pub async fn list(client: &Client, ended: bool) -> Result<Vec<Job>> {
    let mut rows: Vec<Job> = client.snapshot().await?.iter().cloned().collect();
    if ended {
        let known: std::collections::BTreeSet<u64> = rows.iter().map(|job| job.number).collect();
        let older = client.accounted_since(7).await?.unwrap_or_default();
        let mut last: std::collections::BTreeMap<String, Job> = std::collections::BTreeMap::new();
        for job in older.into_iter().filter(|job| !known.contains(&job.number)) {
            last.insert(job.printed.clone(), job);
        }
        let mut older: Vec<Job> = last.into_values().collect();
        correct_codes(client, &mut older).await?;
        rows.extend(older);
    }
    Ok(rows)
}

/// Replaces accounting's exit codes by those of the exit files of our jobs, all read in one look.
async fn correct_codes(client: &Client, rows: &mut [Job]) -> Result<()> {
    let doubtful = |job: &Job| job.marker.is_some() && job.exit_code.is_some_and(|code| code != 0);
    if !client.has_files() || !rows.iter().any(doubtful) {
        return Ok(());
    }
    let program = format!(
        "{}find \"$dir\" -maxdepth 1 -name '*.exit' -mtime -9 -exec grep -a -H -m 1 '^[0-9]' -- {{}} + 2> /dev/null\n:",
        client.enter_log_dir()?
    );
    let text = client.read(&program).await?.text();
    let codes: std::collections::BTreeMap<&str, i32> = text
        .lines()
        .filter_map(|line| {
            let (file, rest) = line.rsplit_once(".exit:")?;
            Some((file, rest.split(' ').next()?.parse().ok()?))
        })
        .collect();
    for job in rows.iter_mut().filter(|job| doubtful(job)) {
        let short: String =
            job.marker.iter().flat_map(|marker| marker.submission.as_str().chars().take(8)).collect();
        let end = format!("-{}-{short}", job.printed);
        let own = codes.iter().find(|(file, _)| file.ends_with(&end));
        job.exit_code = own.map(|(_, code)| *code).or(job.exit_code);
    }
    Ok(())
}

/// Rows grouped into jobs, newest first.
pub fn grouped(client: &Client, rows: &[Job]) -> Vec<JobSummary> {
    let mut groups: std::collections::BTreeMap<u64, Vec<&Job>> = std::collections::BTreeMap::new();
    for row in rows {
        groups.entry(row.number).or_default().push(row);
    }
    let summary = |(number, rows): (u64, Vec<&Job>)| {
        status::summary(submit::handle(client, &JobId::whole(number)), &rows, None)
    };
    groups.into_iter().rev().map(summary).collect()
}

/// Drops the jobs that are copies: their submission was claimed by another job, so that they run nothing.
pub async fn drop_copies(client: &Client, jobs: &mut Vec<JobSummary>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    let of_several =
        jobs.iter().filter_map(|job| job.submission.clone()).filter(|id| !seen.insert(id.clone()));
    let several: Vec<SubmissionId> = of_several.collect();
    if several.is_empty() || !client.has_files() {
        return Ok(());
    }
    for (submission, claim) in submit::claims(client, &several).await? {
        let claim = submit::handle(client, &claim);
        jobs.retain(|job| job.submission.as_ref() != Some(&submission) || job.handle == claim);
    }
    Ok(())
}

/// The states of the nodes that are not well, for the reason of a requeue.
pub async fn sick_nodes(client: &Client, nodes: &str) -> Result<Vec<String>> {
    // slurmrestd tells of a node's failure in the job's own state only.
    if nodes.is_empty() || client.access.is_rest() {
        return Ok(Vec::new());
    }
    let cluster = client.cluster()?;
    let program = format!("sinfo{cluster} -h -N -n {} -o '%N\u{1f}%T\u{1f}%E'", quote::word(nodes)?);
    let answer = client.read(&program).await?;
    let sick = |line: &str| {
        let mut parts = line.split('\u{1f}');
        let (node, state, why) = (parts.next()?, parts.next()?, parts.next()?);
        let ill = ["down", "drain", "fail", "unknown"].iter().any(|word| state.starts_with(word))
            || state.ends_with('*');
        let why = if why == "none" { String::new() } else { format!(" ({})", super::error::clean(why)) };
        ill.then(|| format!("{node} is {state}{why}"))
    };
    let mut nodes: Vec<String> = answer.text().lines().filter_map(sick).collect();
    nodes.dedup();
    Ok(nodes)
}
