//! Searches for slow nodes: runs the benchmark on parts of the nodes of a run.

use futures_util::StreamExt;
use futures_util::stream;
use weftrun::core::backend::TargetConfig;
use weftrun::core::job::JobPhase;
use weftrun::core::log::clean_text;
use weftrun::core::report::{VerifyGroup, VerifySearch};
use weftrun::core::spec::{JobSpec, RoleKind};
use weftrun::core::verify::{Answer, Bisect, Group, Step};
use weftrun::{Client, Error, ErrorKind, Result};

use super::{Logs, cancelled, quietly};
use crate::context::Context;
use crate::follow::{self, limited};

/// Largest number of jobs at a time.
const AT_ONCE: usize = 32;

/// The nodes of a run, and the settings for measuring groups of them.
pub struct Search<'a> {
    pub client: &'a Client,
    pub target: TargetConfig,
    pub spec: &'a JobSpec,
    pub nodes: Vec<String>,
    pub timeout: std::time::Duration,
}

impl Search<'_> {
    /// Measures until the slow nodes are found, or no single node explains the low bandwidth.
    pub async fn run(&self, context: &Context) -> Result<VerifySearch> {
        let mut bisect = Bisect::new(self.nodes.len());
        let mut jobs = 0;
        let answer = loop {
            match bisect.step() {
                Step::Done(answer) => break answer,
                Step::Measure(groups) => {
                    let round = bisect.rounds().len() + 1;
                    let measured =
                        stream::iter(groups.into_iter().enumerate()).map(|(index, group)| async move {
                            let name = format!("{}-{round}-{index}", self.spec.name);
                            let busbw = self.measure(context, &group, &name).await?;
                            Ok::<_, Error>((group, busbw))
                        });
                    let mut measured = measured.buffer_unordered(AT_ONCE);
                    let (mut results, mut failed) = (Vec::new(), None);
                    // After an error weftrun still waits for the other jobs; an interruption cancels them.
                    while let Some(result) = measured.next().await {
                        match result {
                            Ok(result) => {
                                context.out.say(self.line(round, &result));
                                results.push(result);
                            }
                            Err(error) => failed = Some(failed.unwrap_or(error)),
                        }
                    }
                    if let Some(error) = failed {
                        return Err(error);
                    }
                    jobs += results.len();
                    bisect.record(results);
                }
            }
        };
        let names = |group: &Group| group.iter().filter_map(|node| self.nodes.get(*node)).cloned().collect();
        let groups = bisect.rounds().iter().enumerate().flat_map(|(round, results)| {
            results.iter().map(move |(group, busbw)| VerifyGroup {
                round: round + 1,
                nodes: names(group),
                busbw_gbps: *busbw,
            })
        });
        let (slow, reason) = match &answer {
            Answer::Slow(nodes) => (names(nodes), None),
            Answer::NoSingleNode(reason) => (Vec::new(), Some(reason.clone())),
        };
        Ok(VerifySearch { slow_nodes: slow, reason, jobs, groups: groups.collect() })
    }

    fn line(&self, round: usize, (group, busbw): &(Group, Option<f64>)) -> String {
        let names: Vec<&str> =
            group.iter().filter_map(|node| self.nodes.get(*node)).map(String::as_str).collect();
        let busbw = busbw.map_or_else(|| "failed".to_owned(), |busbw| format!("{busbw:.1} GB/s"));
        clean_text(&format!("round {round}: {busbw} on {}", names.join(", "))).into_owned()
    }

    /// Runs the benchmark on a group of nodes. Returns none if the benchmark failed.
    async fn measure(&self, context: &Context, group: &Group, name: &str) -> Result<Option<f64>> {
        let nodes: Vec<String> = group.iter().filter_map(|node| self.nodes.get(*node)).cloned().collect();
        let mut spec = self.spec.clone();
        name.clone_into(&mut spec.name);
        for role in spec.roles.iter_mut().filter(|role| role.kind == RoleKind::Worker) {
            role.nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        }
        self.client.connect(&self.target).await?.pin(&mut spec, &nodes)?;
        let planned = self.client.plan_for(self.target.clone(), &spec).await?;
        let (job, interrupted) = follow::submit(context, &planned).await?;
        if let Some(error) = interrupted {
            return Err(cancelled(&job, error).await);
        }
        let mut logs = Logs::default();
        let followed = quietly(&job, |batch| logs.add(&batch.source, &batch.bytes));
        let followed = match limited(followed, Some(self.timeout)).await.flatten() {
            Ok(followed) => followed,
            // A group that exceeds the time limit counts as failed.
            Err(error) if error.kind() == ErrorKind::Timeout => {
                context.out.say(clean_text(&cancelled(&job, error).await.to_string()));
                return Ok(None);
            }
            Err(error) => return Err(cancelled(&job, error).await),
        };
        let succeeded = followed.summary.is_some_and(|summary| summary.phase == JobPhase::Succeeded);
        let rows = logs.runs().into_iter().flat_map(|run| run.rows);
        // The bandwidth of the largest size is compared between groups.
        let largest = rows.max_by_key(|row| row.size).and_then(|row| row.busbw());
        Ok(largest.filter(|_| succeeded))
    }
}

/// Returns the nodes of a job, each once; an error if the backend does not name them.
pub async fn nodes_of(job: &weftrun::Job) -> Result<Vec<String>> {
    let detail = job.describe().await?;
    let mut nodes: Vec<String> = detail.replicas.into_iter().filter_map(|replica| replica.node).collect();
    nodes.sort();
    nodes.dedup();
    if nodes.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, "the cluster does not name the nodes of the job"));
    }
    Ok(nodes)
}
