//! The logs of all containers of a set of pods, followed and resumed exactly.
//!
//! One watch of the pods lists the containers and their states; one `follower` per container reads its log
//! over as many connections as necessary. Containers are distinguished by pod uid, name and attempt, since a
//! pod that is created again has the same name.

mod follower;
mod limiter;
mod open;
mod pods;
mod reader;
mod view;

pub use reader::QUIET;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::text::listed;
use weftrun_core::{Error, ErrorKind, Result};

use super::pod::ContainerState;
use super::{Cluster, Pod, Resource, is_not_found};
use crate::refusals::missing_rank;
use crate::stream::{self, Feed, put};
use follower::Follower;
use limiter::Limiter;
use view::View;

/// Default limit of open streams, each with one connection.
const STREAMS: usize = 512;
/// Number of pods that are read at once, where some are chosen.
const GETS: usize = 16;
/// Largest number of pods named in one message.
const MOST_NAMED: usize = 4;

/// The role and number of a pod in its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankPosition {
    /// Role.
    pub role: String,
    /// Number in the role.
    pub replica: u32,
    /// Global rank, if the pod has exactly one and it is known.
    pub rank: Option<u32>,
    /// The container that runs the ranks; others are sidecars.
    pub main: Option<String>,
}

/// Returns the place of a pod in its job; none if the pod does not belong to it.
pub type Placing = Arc<dyn Fn(&Pod) -> Option<RankPosition> + Send + Sync>;

/// The logs to read.
pub struct LogJob {
    /// The job's name.
    pub name: String,
    /// The cluster.
    pub cluster: Cluster,
    /// Label selector of the pods.
    pub selector: String,
    /// The place of each pod.
    pub place: Placing,
    /// Turns true when the job has ended: then the stream ends after the last byte.
    pub ended: watch::Receiver<bool>,
    /// For a job that has ended, the pods it had: role, number, name. Logs of deleted pods are gone.
    pub expected: Vec<(String, u32, String)>,
    /// The options.
    pub options: LogOptions,
    /// How long a stream may be silent while others write, before it is reopened: [`QUIET`], except in tests.
    pub quiet: Duration,
}

impl std::fmt::Debug for LogJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, selector, options, .. } = self;
        let mut shown = f.debug_struct("LogJob");
        shown
            .field("name", name)
            .field("selector", selector)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

/// Returns the batches of all containers. The stream ends when every container and the job have ended; an
/// error is final.
pub fn logs(mut job: LogJob) -> BoxStream<'static, Result<LogBatch>> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (place, ranks) = (job.place.clone(), seen.clone());
    job.place = Arc::new(move |pod| {
        let place = place(pod)?;
        ranks.lock().unwrap_or_else(PoisonError::into_inner).insert(place.rank);
        Some(place)
    });
    stream::fed(move |out| async move {
        if job.follows() {
            pods::follow(&job, &out).await?;
        } else {
            once(&job, &out).await?;
        }
        job.knows_ranks(&seen.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

/// The sender of batches.
type Out = Feed<LogBatch>;

impl LogJob {
    /// Refuses a rank that the job does not have, if each pod is one known rank. The pods of an ended job may
    /// be gone; their number is known.
    fn knows_ranks(&self, seen: &BTreeSet<Option<u32>>) -> Result<()> {
        let known: Option<Vec<u32>> = seen.iter().copied().collect();
        let Some(last) = known.and_then(|ranks| ranks.into_iter().max()) else { return Ok(()) };
        let expected = u32::try_from(self.expected.len()).unwrap_or(u32::MAX);
        let ranks = last.saturating_add(1).max(expected);
        missing_rank(&self.options, ranks)
    }

    /// Returns the pods whose logs may be requested.
    async fn pods(&self) -> Result<Vec<Pod>> {
        let names = &self.options.replicas;
        let mut pods = if names.is_empty() {
            let read = |object| Pod::of_json(&object);
            self.cluster.list_as(&Resource::PODS, &self.selector, "", read).await?
        } else {
            // Some of thousands: a list of all would take longer than their logs.
            let gets = names.iter().cloned().map(|name| {
                let cluster = self.cluster.clone();
                async move { cluster.get(&Resource::PODS, &name).await }
            });
            let found: Vec<Result<Value>> =
                futures_util::stream::iter(gets).buffer_unordered(GETS).collect().await;
            let there = |found: Result<Value>| match found {
                Err(error) if is_not_found(&error) => None,
                found => Some(found.map(|object| Pod::of_json(&object))),
            };
            found.into_iter().filter_map(there).collect::<Result<_>>()?
        };
        pods.retain(|pod| (self.place)(pod).is_some());
        pods.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
        Ok(pods)
    }

    /// Returns the selected containers of a pod, each as its log source.
    fn sources(&self, pod: &Pod) -> Vec<(ContainerState, SourceId)> {
        let Some(place) = (self.place)(pod) else { return Vec::new() };
        let options = &self.options;
        let is_chosen = options.replicas.is_empty() || options.replicas.contains(&pod.name);
        if !is_chosen || !options.wants(&place.role, place.rank.map(|rank| rank..rank.saturating_add(1))) {
            return Vec::new();
        }
        let wanted = pod.containers.iter().filter(|container| options.init || !container.init);
        wanted
            .map(|container| {
                let mut source = SourceId::new(&pod.name);
                source.uid = format!("{}/{}", pod.uid, container.name);
                // The name omits the container if it is the main one.
                if place.main.as_ref().is_some_and(|main| *main != container.name) {
                    source.name = format!("{}/{}", pod.name, container.name);
                }
                source.container.clone_from(&container.name);
                source.role.clone_from(&place.role);
                source.replica = place.replica;
                source.rank =
                    place.rank.filter(|_| place.main.as_ref().is_none_or(|main| *main == container.name));
                (container.clone(), source)
            })
            .collect()
    }

    /// Returns whether new lines may come: an attempt that is over writes no more.
    pub fn follows(&self) -> bool {
        self.options.follow && !self.options.previous
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(if self.options.max_streams == 0 { STREAMS } else { self.options.max_streams })
    }

    /// Reports which pods of an ended job are gone, and their logs with them.
    async fn missing(&self, out: &Out, there: &HashSet<(String, u32)>) {
        let roles = &self.options.roles;
        let wanted = |role: &String| roles.is_empty() || roles.contains(role);
        let gone = |role: &String, number: u32| wanted(role) && !there.contains(&(role.clone(), number));
        let gone = self.expected.iter().filter(|(role, number, _)| gone(role, *number));
        let names: Vec<&str> = gone.map(|(_, _, name)| name.as_str()).collect();
        let shown = listed(&names, MOST_NAMED);
        let reason = match names.len() {
            0 => return,
            1 => format!("the pod {shown} is gone, and its log with it"),
            count => format!("{count} pods are gone, and their logs with them: {shown}"),
        };
        let source = Arc::new(SourceId::new(&self.name));
        put(out, LogBatch::marked(source, Mark::Gap { reason }, Cursor::default())).await;
    }

    /// Reports why there is nothing to read: an empty answer would only mean that nothing was written.
    async fn nothing(&self, out: &Out, roles: &BTreeSet<String>) {
        let options = &self.options;
        let ended = !self.expected.is_empty() || *self.ended.borrow();
        if roles.is_empty() && ended {
            let reason = "the job has ended and has no pods, so its logs are gone".to_owned();
            let source = Arc::new(SourceId::new(&self.name));
            put(out, LogBatch::marked(source, Mark::Gap { reason }, Cursor::default())).await;
        } else if roles.is_empty() {
            self.note(out, "the job has no pods yet, so there is no log (`weftrun logs -f` waits for it)")
                .await;
        } else if options.roles.iter().any(|role| !roles.contains(role)) {
            let unknown = options.roles.iter().find(|role| !roles.contains(*role));
            let message = format!("the job has no pod of the role `{}`", unknown.map_or("", String::as_str));
            let known = roles.iter().cloned().collect::<Vec<_>>().join(", ");
            let _ = out.send(Err(Error::new(ErrorKind::NotFound, message).with("roles", known))).await;
        } else if options.previous {
            self.note(out, "no container was restarted, so there is no previous attempt").await;
        } else {
            self.note(out, "no container of the job matches the selection").await;
        }
    }

    /// Sends the reader a note that is not a line of a log.
    async fn note(&self, out: &Out, text: &str) {
        let (source, text) = (Arc::new(SourceId::new(&self.name)), text.to_owned());
        put(out, LogBatch::marked(source, Mark::Note { text }, Cursor::default())).await;
    }
}

/// Reads the present logs.
async fn once(job: &LogJob, out: &Out) -> Result<()> {
    let limiter = job.limiter();
    let mut tasks = JoinSet::new();
    let pods = job.pods().await?;
    let mut started = false;
    for pod in &pods {
        for (container, source) in job.sources(pod) {
            if job.options.previous && container.restarts == 0 {
                continue;
            }
            started |= container.has_log();
            let (_, view) = watch::channel(View::of(pod, &container));
            let follower = Follower::new(job, pod, source, view, out.clone(), limiter.clone());
            tasks.spawn(follower.once());
        }
    }
    if tasks.is_empty() {
        let places = pods.iter().filter_map(|pod| (job.place)(pod));
        job.nothing(out, &places.map(|place| place.role).collect()).await;
    } else if !started {
        job.note(out, "no container has started, so there is no log yet (`weftrun logs -f` waits for it)")
            .await;
    }
    if !pods.is_empty() && job.options.replicas.is_empty() {
        let places = pods.iter().filter_map(|pod| (job.place)(pod));
        job.missing(out, &places.map(|place| (place.role, place.replica)).collect()).await;
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests;
