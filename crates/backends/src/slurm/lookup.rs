//! Finds a job: first in slurmctld, then in accounting (which lags, and reports wrong exit codes before
//! 26.05), then in the job's own exit file.

use std::collections::{BTreeMap, BTreeSet};

use weftrun_core::job::{JobHandle, JobPhase, JobSummary, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::Client;
use super::cluster::out_of_service;
use super::ids::JobId;
use super::records::{Job, Marker, Shown};
use super::{quote, state, status, submit};

/// The state of one job.
#[derive(Clone, Debug)]
pub struct JobRows {
    /// Its rows: one, or one for each task or component.
    pub rows: Vec<Job>,
    /// Output of `scontrol show job`; fetched only for jobs that failed.
    pub shown: Option<Shown>,
}

impl JobRows {
    /// Returns the job's summary.
    pub fn summary(&self, handle: JobHandle) -> JobSummary {
        status::summary(handle, &self.rows.iter().collect::<Vec<_>>(), self.shown.as_ref())
    }

    /// Returns the job's phase.
    pub fn phase(&self) -> JobPhase {
        self.summary(JobHandle::new("slurm", "x", ["0"])).phase
    }
}

/// Looks for a job; none if it is unknown everywhere. Of an array that still runs, accounting is asked for the tasks that slurmctld
/// has forgotten.
pub async fn look(client: &Client, id: &JobId) -> Result<Option<JobRows>> {
    look_again(client, id, false).await
}

/// Looks for a job as [`look`], where the tasks of an array that had ended may be known from an earlier look.
pub async fn look_again(client: &Client, id: &JobId, is_known: bool) -> Result<Option<JobRows>> {
    let mut rows = client.rows(id).await?;
    if !rows.is_empty() {
        let is_over = rows.iter().all(|job| job.phase().is_terminal());
        if id.task.is_none() && rows.iter().any(Job::is_of_array) && (is_over || !is_known) {
            add_forgotten(client, id, &mut rows).await?;
        }
        let failed = rows.iter().any(|job| job.phase() == JobPhase::Failed);
        let shown = if failed { client.shown(id).await? } else { Vec::new() };
        // Each task of an array ends with a code of its own.
        for row in rows.iter_mut().filter(|row| row.task.is_some()) {
            let own = shown.iter().find(|shown| shown.task == row.task);
            row.exit_code = own.and_then(|own| own.exit_code).or(row.exit_code);
        }
        add_restarts(&mut rows, &shown);
        let shown = shown
            .into_iter()
            .filter(|shown| state::phase(&shown.state, "") == JobPhase::Failed)
            .max_by_key(|shown| shown.exit_code);
        return Ok(Some(JobRows { rows, shown }));
    }
    gone(client, id).await
}

/// Adds how often each row was queued again: each task of an array for itself.
pub fn add_restarts(rows: &mut [Job], shown: &[Shown]) {
    let mut of_task: BTreeMap<Option<u64>, u32> = BTreeMap::new();
    for shown in shown {
        let most = of_task.entry(shown.task).or_default();
        *most = shown.restarts.max(*most);
    }
    for row in rows {
        row.restarts = of_task.get(&row.task).copied().unwrap_or(0).max(row.restarts);
    }
}

/// Adds the tasks that slurmctld has forgotten to those of an array that it still has: without them, an array would seem to have
/// succeeded whose first task failed long ago.
async fn add_forgotten(client: &Client, id: &JobId, rows: &mut Vec<Job>) -> Result<()> {
    let (forgotten, down) = gone_rows(client, id).await?;
    client.note(down);
    add_unknown(rows, forgotten);
    Ok(())
}

/// Adds the tasks of which there is no row.
pub fn add_unknown(rows: &mut Vec<Job>, more: Vec<Job>) {
    let known: BTreeSet<u64> = rows.iter().flat_map(Job::task_numbers).collect();
    rows.extend(more.into_iter().filter(|job| job.task.is_some_and(|task| !known.contains(&task))));
}

/// Looks for a job that slurmctld has forgotten.
async fn gone(client: &Client, id: &JobId) -> Result<Option<JobRows>> {
    match gone_rows(client, id).await? {
        // The sources that answered do not have the job, and the one that may have it did not answer.
        (rows, Some(error)) if rows.is_empty() => Err(error),
        (rows, down) => {
            client.note(down);
            Ok((!rows.is_empty()).then_some(JobRows { rows, shown: None }))
        }
    }
}

/// Returns the rows of a job, or of the tasks of an array, that accounting and the exit files have, and the error where accounting is
/// down.
async fn gone_rows(client: &Client, id: &JobId) -> Result<(Vec<Job>, Option<Error>)> {
    let own = exit_files_of(client, id).await?;
    let (runs, down) = client.accounted_if_up(Some(id), 0).await?;
    Ok((joined(runs.into_iter().filter(|job| job.belongs_to(id)), own), down))
}

/// Joins the runs in accounting, of which the last of each task counts, with the exit files.
fn joined(runs: impl Iterator<Item = Job>, exits: Vec<Job>) -> Vec<Job> {
    let last: BTreeMap<String, Job> = runs.map(|run| (run.printed.clone(), run)).collect();
    let mut rows: Vec<Job> = last.into_values().collect();
    let mut places: BTreeMap<Option<u64>, usize> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.task.is_some())
        .map(|(at, row)| (row.task, at))
        .collect();
    for own in exits {
        let place =
            if own.task.is_some() { places.get(&own.task).copied() } else { (rows.len() == 1).then_some(0) };
        let is_none = rows.is_empty();
        match place.and_then(|at| rows.get_mut(at)) {
            // slurmctld does not have the task any more, and accounting has not heard of its end.
            Some(row) if own.task.is_some() && !row.phase().is_terminal() => *row = own,
            Some(row) => row.exit_code = own.exit_code,
            None if own.task.is_some() || is_none => {
                places.insert(own.task, rows.len());
                rows.push(own);
            }
            // The components of a job have no files of their own.
            None => {}
        }
    }
    rows
}

/// A job's exit file, written when it ended.
#[derive(Debug)]
struct Exit {
    job: Job,
    /// The beginning of the submission id, which is the end of the file's name.
    short: String,
}

/// Returns the row of a weftrun job from its exit file, or those of the tasks of an array.
async fn exit_files_of(client: &Client, id: &JobId) -> Result<Vec<Job>> {
    let tasks = if id.task.is_none() { format!(" -o -name '*-{id}_*-????????.exit'") } else { String::new() };
    let found = exit_files(client, &format!("'(' -name '*-{id}-????????.exit'{tasks} ')'")).await?;
    Ok(found.into_iter().map(|exit| exit.job).filter(|job| job.belongs_to(id)).collect())
}

/// Returns the exit files that `find` selects, oldest first. The full submission ids are the names of folders
/// beside them.
async fn exit_files(client: &Client, selection: &str) -> Result<Vec<Exit>> {
    if !client.has_files() {
        return Ok(Vec::new());
    }
    // grep, so that a file with other contents is ignored.
    let program = format!(
        "{}cd -- \"$dir\" 2> /dev/null || exit 0\n\
         find . -maxdepth 1 -type f {selection} -exec stat -c 'time %Y %n' -- {{}} + -exec grep -a -H -m 1 '^[0-9]' -- {{}} + 2> /dev/null\n\
         find . -maxdepth 1 -type d -name '.submit-*' 2> /dev/null\n:",
        client.enter_log_dir()?
    );
    Ok(read_exits(&client.transport.read(&program).await?.text()))
}

/// Parses `time SECONDS ./NAME-ID-SHORT.exit`, `./NAME-ID-SHORT.exit:CODE ATTEMPT` and
/// `./.submit-SUBMISSION`.
fn read_exits(text: &str) -> Vec<Exit> {
    let submissions: Vec<SubmissionId> =
        text.lines().filter_map(|line| SubmissionId::parse(line.strip_prefix("./.submit-")?)).collect();
    let time = |wanted: &str| {
        text.lines().find_map(|line| {
            let (seconds, file) = line.strip_prefix("time ")?.split_once(' ')?;
            (file == wanted).then(|| jiff::Timestamp::from_second(seconds.parse().ok()?).ok())?
        })
    };
    let exit = |line: &str| {
        let (file, rest) = line.strip_prefix("./")?.rsplit_once(".exit:")?;
        let code: i32 = rest.split(' ').next()?.trim().parse().ok()?;
        let (before, short) = file.rsplit_once('-')?;
        let (name, printed) = before.rsplit_once('-')?;
        let id = JobId::parse(printed)?;
        let submission = submissions.iter().find(|submission| submission.as_str().starts_with(short));
        let job = Job {
            printed: printed.to_owned(),
            number: id.number,
            task: id.task,
            state: if code == 0 { "COMPLETED" } else { "FAILED" }.to_owned(),
            name: name.to_owned(),
            exit_code: Some(code),
            ended: time(&format!("./{file}.exit")),
            marker: submission.map(Marker::of),
            ..Job::default()
        };
        Some(Exit { job, short: short.to_owned() })
    };
    let mut exits: Vec<Exit> = text.lines().filter_map(exit).collect();
    exits.sort_by_key(|exit| exit.job.ended);
    exits
}

/// Looks for a job that must exist.
pub async fn must_find(client: &Client, handle: &JobHandle) -> Result<(JobId, JobRows)> {
    let id = JobId::of(handle)?;
    match look(client, &id).await? {
        Some(found) => Ok((id, found)),
        None => Err(not_found(client, &id)),
    }
}

/// Returns the error for a job that is unknown everywhere.
pub fn not_found(client: &Client, id: &JobId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no Slurm job {id}"))
        .with("target", &client.target)
        .hint("slurmctld forgets ended jobs after MinJobAge, and accounting does not know it either")
}

/// Returns all jobs of the user, and the ended ones if requested. Of an array that still runs, all tasks count.
pub async fn list(client: &Client, ended: bool) -> Result<Vec<Job>> {
    let mut rows: Vec<Job> = client.snapshot().await?.iter().cloned().collect();
    if !ended && !rows.iter().any(|job| job.is_of_array() && job.marker.is_some()) {
        return Ok(rows);
    }
    let (older, down) = client.accounted_if_up(None, 7).await?;
    client.note(down);
    let mut last = forgotten(&rows, older, ended);
    if !ended {
        rows.extend(last.into_values());
        return Ok(rows);
    }
    let exits = exit_files(client, "-name '*-*-????????.exit' -mtime -9").await?;
    last.values_mut().for_each(|job| correct_code(job, &exits));
    rows.extend(last.into_values());
    // Jobs that are neither in slurmctld nor in accounting: there is no accounting, or slurmdbd is down.
    let known: BTreeSet<u64> = rows.iter().map(|job| job.number).collect();
    rows.extend(exits.into_iter().map(|exit| exit.job).filter(|job| !known.contains(&job.number)));
    Ok(rows)
}

/// Returns what accounting has of what slurmctld has forgotten, by id, of which the last run counts: tasks of the arrays that it
/// still has, and other jobs if `ended` ones are requested.
fn forgotten(rows: &[Job], older: Vec<Job>, ended: bool) -> BTreeMap<String, Job> {
    let known: BTreeSet<u64> = rows.iter().map(|job| job.number).collect();
    let arrays: BTreeSet<u64> = rows.iter().filter(|job| job.is_of_array()).map(|job| job.number).collect();
    let tasks = rows.iter().flat_map(|job| job.task_numbers().map(|task| (job.number, task)));
    let queued: BTreeSet<(u64, u64)> = tasks.collect();
    let is_forgotten = |job: &Job| match job.task.filter(|_| arrays.contains(&job.number)) {
        Some(task) => job.phase().is_terminal() && !queued.contains(&(job.number, task)),
        None => ended && !known.contains(&job.number),
    };
    older.into_iter().filter(is_forgotten).map(|job| (job.printed.clone(), job)).collect()
}

/// Replaces accounting's exit code by that of the exit file, for a weftrun job that has one.
fn correct_code(job: &mut Job, exits: &[Exit]) {
    let Some(marker) = job.marker.as_ref().filter(|_| job.exit_code.is_some_and(|code| code != 0)) else {
        return;
    };
    let own = exits.iter().find(|exit| {
        exit.job.printed == job.printed && marker.submission.as_str().starts_with(exit.short.as_str())
    });
    job.exit_code = own.and_then(|own| own.job.exit_code).or(job.exit_code);
}

/// Returns the rows grouped into jobs, newest first.
pub fn grouped(client: &Client, rows: &[Job]) -> Vec<JobSummary> {
    let mut groups: BTreeMap<u64, Vec<&Job>> = BTreeMap::new();
    for row in rows {
        groups.entry(row.number).or_default().push(row);
    }
    let summary = |(number, rows): (u64, Vec<&Job>)| {
        status::summary(submit::handle(client, &JobId::whole(number)), &rows, None)
    };
    groups.into_iter().rev().map(summary).collect()
}

/// Returns jobs with the tasks of arrays in their place.
pub fn with_tasks(client: &Client, jobs: Vec<JobSummary>, rows: &[Job]) -> Vec<JobSummary> {
    let mut tasks: BTreeMap<JobHandle, Vec<JobSummary>> = BTreeMap::new();
    let mut each: Vec<Job> = rows.iter().filter(|row| row.is_of_array()).flat_map(Job::each_task).collect();
    each.sort_by_key(|row| row.task);
    for row in each {
        let id = JobId { number: row.number, task: row.task };
        let task = status::summary(submit::handle(client, &id), &[&row], None);
        tasks.entry(submit::handle(client, &row.whole())).or_default().push(task);
    }
    jobs.into_iter().flat_map(|job| tasks.remove(&job.handle).unwrap_or_else(|| vec![job])).collect()
}

/// Drops duplicates: jobs whose submission was claimed by another job, so that they run nothing.
pub async fn drop_copies(client: &Client, jobs: &mut Vec<JobSummary>) -> Result<()> {
    let mut seen = BTreeSet::new();
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

/// Returns the unhealthy nodes, each with its state and the reason for it.
pub async fn sick_nodes(client: &Client, nodes: &str) -> Result<Vec<(String, String)>> {
    // slurmrestd reports a node's failure only in the job's own state.
    if nodes.is_empty() || client.access.is_rest() {
        return Ok(Vec::new());
    }
    let cluster = client.cluster()?;
    let program = format!("sinfo{cluster} -h -N -n {} -o '%N\u{1f}%T\u{1f}%E'", quote::word(nodes)?);
    let answer = client.transport.read(&program).await?;
    let sick = |line: &str| {
        let mut parts = line.split('\u{1f}');
        let (node, state, why) = (parts.next()?, parts.next()?, parts.next()?);
        out_of_service(state, why).map(|out| (node.to_owned(), format!("{node} is {out}")))
    };
    let mut nodes: Vec<(String, String)> = answer.text().lines().filter_map(sick).collect();
    nodes.dedup();
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_files_complete_what_accounting_has() {
        let task = |number: u64, state: &str, exit_code: i32| Job {
            printed: format!("7_{number}"),
            number: 7,
            task: Some(number),
            state: state.to_owned(),
            exit_code: Some(exit_code),
            ..Job::default()
        };
        let runs = [task(0, "FAILED", 1), task(0, "COMPLETED", 0), task(1, "RUNNING", 0)];
        let rows = joined(runs.into_iter(), vec![task(1, "FAILED", 3), task(2, "FAILED", 255)]);
        let seen: Vec<_> = rows.iter().map(|job| (job.task, job.phase(), job.exit_code)).collect();
        let (succeeded, failed) = (JobPhase::Succeeded, JobPhase::Failed);
        let expected =
            [(Some(0), succeeded, Some(0)), (Some(1), failed, Some(3)), (Some(2), failed, Some(255))];
        assert_eq!(seen, expected);
    }

    /// Task 0 failed longer ago than MinJobAge, while others wait.
    #[test]
    fn a_running_array_has_the_tasks_that_only_accounting_has() {
        let task = Job::task_of_array;
        let waiting = Job { printed: "7_[2-3]".to_owned(), task: None, ..task(2, "PENDING") };
        let rows = [task(1, "RUNNING"), waiting];
        let other = Job { printed: "8".to_owned(), number: 8, ..Job::default() };
        let older = vec![task(0, "FAILED"), task(1, "RUNNING"), task(2, "FAILED"), other];
        let ids = |ended| forgotten(&rows, older.clone(), ended).into_keys().collect::<Vec<_>>();
        assert_eq!(ids(false), ["7_0"], "task 2 is queued again");
        assert_eq!(ids(true), ["7_0", "8"]);
    }

    #[test]
    fn forgotten_tasks_of_an_array_count() {
        let task = Job::task_of_array;
        let mut rows = vec![task(1, "COMPLETED"), task(2, "COMPLETED")];
        add_unknown(&mut rows, vec![task(0, "FAILED"), task(1, "FAILED")]);
        let found = JobRows { rows, shown: None };
        assert_eq!(found.phase(), JobPhase::Failed);
        let summary = found.summary(JobHandle::new("slurm", "x", ["7"]));
        assert_eq!(summary.tasks.unwrap().phases[&JobPhase::Succeeded], 2, "what slurmctld has counts first");
    }

    #[test]
    fn each_task_has_its_own_restarts() {
        let mut rows = vec![Job::task_of_array(0, "FAILED"), Job::task_of_array(1, "COMPLETED")];
        let shown = |task: u64, restarts: u32| Shown { task: Some(task), restarts, ..Shown::default() };
        add_restarts(&mut rows, &[shown(0, 3), shown(1, 0)]);
        let replicas = status::replicas(&rows.iter().collect::<Vec<_>>());
        assert_eq!(replicas.iter().map(|replica| replica.restarts).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn exit_files_are_jobs_with_their_code_time_and_submission() {
        let text = "time 1700000100 ./two-words.v1-7_3-0123abcd.exit\ntime 1700000000 ./a-5-ffffffff.exit\n\
            ./two-words.v1-7_3-0123abcd.exit:137 2\n./a-5-ffffffff.exit:0 0\n./broken.exit:x\n\
            ./.submit-0123abcd0000000000000000000000ff\n./.submit-not-an-id\n";
        let exits = read_exits(text);
        let read: Vec<_> = exits
            .iter()
            .map(|exit| {
                (
                    exit.job.name.as_str(),
                    exit.job.printed.as_str(),
                    exit.job.exit_code,
                    exit.job.marker.is_some(),
                )
            })
            .collect();
        assert_eq!(read, [("a", "5", Some(0), false), ("two-words.v1", "7_3", Some(137), true)]);
        let second = |exit: &Exit| exit.job.ended.map(jiff::Timestamp::as_second);
        assert_eq!(exits.iter().map(second).collect::<Vec<_>>(), [Some(1_700_000_000), Some(1_700_000_100)]);
    }
}
