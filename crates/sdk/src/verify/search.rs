//! Searches for slow nodes: runs the benchmark on parts of the nodes of a run.

use crate::report::{VerifyGroup, VerifySearch};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use weftrun_core::job::JobPhase;
use weftrun_core::spec::{JobSpec, RoleKind};
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_verify::{Answer, Bisect, Step};

use super::{Progress, Stop, Verification, cancelled, measure, submit};
use crate::Job;

/// Largest number of jobs at a time.
const AT_ONCE: usize = 32;

/// Measures until the slow nodes are found, or no single node explains the low bandwidth.
pub(super) async fn search(
    verification: &Verification,
    spec: &JobSpec,
    job: &Job,
    stop: &Stop<'_>,
    progress: &mut impl FnMut(Progress<'_>) -> Result<()>,
) -> Result<VerifySearch> {
    let nodes = nodes_of(job).await?;
    let names = |group: &[usize]| -> Vec<String> {
        group.iter().filter_map(|node| nodes.get(*node)).cloned().collect()
    };
    let mut bisect = Bisect::new(nodes.len());
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    let answer = loop {
        let groups = match bisect.step() {
            Step::Done(answer) => break answer,
            Step::Measure(groups) => groups,
        };
        let round = bisect.rounds().len() + 1;
        let mut jobs = Vec::new();
        for (index, group) in groups.into_iter().enumerate() {
            let (nodes, stop) = (names(&group), stop.clone());
            let name = format!("{}-{round}-{index}", spec.name);
            let job = async move {
                let (measured, findings) = bandwidth(verification, spec, &nodes, &name, stop).await?;
                let (busbw_gbps, failed) =
                    measured.map_or_else(|why| (None, Some(why)), |busbw| (Some(busbw), None));
                Ok::<_, Error>((group, VerifyGroup::new(round, nodes, busbw_gbps, failed), findings))
            };
            jobs.push(job.boxed());
        }
        let mut results = Vec::new();
        until_error(jobs, |(group, measured, findings)| {
            seen.extend(findings.into_iter().map(|finding| (measured.nodes.clone(), finding)));
            progress(Progress::Group(&measured))?;
            results.push((group, measured.busbw_gbps));
            all.push(measured);
            Ok(())
        })
        .await?;
        bisect.record(results);
    };
    let (slow_nodes, reason) = match answer {
        Answer::Slow(nodes) => (names(&nodes), None),
        Answer::NoSingleNode(reason) => (Vec::new(), Some(reason)),
    };
    let mut findings: Vec<Finding> = Vec::new();
    for (nodes, finding) in seen {
        let slow = nodes.iter().any(|node| slow_nodes.contains(node));
        if slow && !findings.iter().any(|known| known.message == finding.message) {
            findings.push(finding);
        }
    }
    let mut search = VerifySearch::new(slow_nodes, reason, all);
    search.findings = findings;
    Ok(search)
}

/// Runs jobs, [`AT_ONCE`] at a time. After an error no further one starts, and those that run are waited for; an interruption
/// cancels them.
async fn until_error<T>(
    jobs: Vec<BoxFuture<'_, Result<T>>>,
    mut done: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut waiting = jobs.into_iter();
    let mut running: FuturesUnordered<_> = waiting.by_ref().take(AT_ONCE).collect();
    let mut first = Ok(());
    while let Some(job) = running.next().await {
        first = first.and(job.and_then(&mut done));
        if first.is_ok() {
            running.extend(waiting.next());
        }
    }
    first
}

/// Turns an error of a search into the reason why it names no node: the benchmark before it was measured, and is the result.
pub(super) fn or_why(searched: Result<VerifySearch>) -> Result<VerifySearch> {
    searched.or_else(|error| match error.kind() {
        ErrorKind::Interrupted => Err(error),
        _ => {
            let reason = Some(format!("the search failed: {error}"));
            Ok(VerifySearch::new(Vec::new(), reason, Vec::new()))
        }
    })
}

/// The bandwidth of a group, or why it has none, and what its interfaces showed.
type Bandwidth = (Result<f64, String>, Vec<Finding>);

/// Runs the benchmark on a group of nodes.
async fn bandwidth(
    verification: &Verification,
    spec: &JobSpec,
    nodes: &[String],
    name: &str,
    stop: Stop<'_>,
) -> Result<Bandwidth> {
    let failed = |why: String| Ok((Err(why), Vec::new()));
    let Verification { client, target, timeout, .. } = verification;
    let mut spec = spec.clone();
    name.clone_into(&mut spec.name);
    for role in spec.roles.iter_mut().filter(|role| role.kind == RoleKind::Worker) {
        role.nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    }
    client.connect(target).await?.pin(&mut spec, nodes)?;
    let plan = client.plan_for(target.clone(), &spec).await?;
    let job = match submit(&plan, stop.clone()).await {
        Ok(job) => job,
        // A node that has died since, for example: the other groups show which one.
        Err(error) if error.kind() == ErrorKind::Refused => return failed(error.to_string()),
        Err(error) => return Err(error),
    };
    let measured = match measure(&job, *timeout, stop, &mut |_| Ok(())).await {
        Ok(measured) => measured,
        Err(error) => {
            let kind = error.kind();
            let error = cancelled(&job, error).await;
            return match kind {
                ErrorKind::Timeout | ErrorKind::NotFound => failed(error.to_string()),
                _ => Err(error),
            };
        }
    };
    if let Some(ended) = measured.last.filter(|job| job.phase != JobPhase::Succeeded) {
        return failed(format!("the job ended as {}: {}", ended.phase, ended.reason));
    }
    // The bandwidth of the largest size is compared between groups.
    let rows = measured.logs.runs().into_iter().flat_map(|run| run.rows);
    let largest = rows.max_by_key(|row| row.size).and_then(|row| row.busbw());
    let findings = measured.logs.probes().findings();
    Ok((largest.ok_or_else(|| "the job printed no figures".to_owned()), findings))
}

/// Returns the nodes of a job, each once; an error if the backend does not name them.
async fn nodes_of(job: &Job) -> Result<Vec<String>> {
    let detail = job.describe().await?;
    let mut nodes: Vec<String> = detail.replicas.into_iter().filter_map(|replica| replica.node).collect();
    nodes.sort();
    nodes.dedup();
    if nodes.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, "the cluster does not name the nodes of the job"));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn no_job_starts_after_one_failed() {
        let started = AtomicUsize::new(0);
        let jobs = (0..10 * AT_ONCE).map(|job| {
            let started = &started;
            let job = async move {
                started.fetch_add(1, Ordering::Relaxed);
                match job {
                    0 => Err(Error::new(ErrorKind::Protocol, "first")),
                    _ => {
                        tokio::task::yield_now().await;
                        Ok(job)
                    }
                }
            };
            job.boxed()
        });
        let mut ended = 0;
        let result = until_error(jobs.collect(), |_| {
            ended += 1;
            Ok(())
        })
        .await;
        assert_eq!(result.unwrap_err().message(), "first");
        assert_eq!(started.into_inner(), AT_ONCE, "no job was submitted after the error");
        assert_eq!(ended, AT_ONCE - 1, "the running ones are waited for");
    }

    #[test]
    fn a_failed_search_leaves_the_result_of_the_benchmark() {
        let failed = |kind| or_why(Err(Error::new(kind, "no nodes")));
        let search = failed(ErrorKind::Unsupported).unwrap();
        assert!(search.reason.unwrap().contains("no nodes") && search.slow_nodes.is_empty());
        assert!(failed(ErrorKind::Interrupted).is_err());
    }
}
