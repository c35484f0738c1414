//! Logs over the cluster's own API: one stream per pod, each resumed exactly.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weftrun_core::log::{Cursor, Fed, LogBatch, Mark, Resume, SourceId, clean_text};
use weftrun_core::{Error, ErrorKind, Result};

use super::Reader;
use super::cluster_api::{self, Ask, Next};
use super::view::{Fate, View};
use crate::runai::resolve::text;
use crate::runai::status::{self, Roles};
use crate::runai::watch;

/// How often the stream of an ended pod may break before the rest counts as lost.
const TRIES_AFTER_END: u32 = 5;
/// Default limit of open streams.
const STREAMS: usize = 1024;
/// Requests of readers within this time share one poll.
const GATHER: Duration = Duration::from_millis(100);

/// An ended pod whose log could not be read.
struct Unread {
    source: Arc<SourceId>,
    reason: String,
    cursor: Cursor,
}

type PodRead = Result<Option<Unread>>;

/// Reads all pods, including those that appear later, until the workload and they have ended.
pub async fn read(reader: &Reader, base: &str, workload: &Value, roles: Roles) -> Result<()> {
    let framework = super::framework(workload);
    let most = if reader.options.max_streams == 0 { STREAMS } else { reader.options.max_streams };
    let pods = Pods {
        reader: reader.clone(),
        base: base.to_owned(),
        framework,
        roles,
        view: Arc::default(),
        permits: Arc::new(Semaphore::new(most)),
    };
    let mut followed = HashSet::new();
    let mut tasks: JoinSet<PodRead> = JoinSet::new();
    let mut unread = Vec::new();
    let (mut over, mut waiting) = (false, false);
    loop {
        over |= pods.look(&mut followed, &mut tasks).await?;
        if tasks.is_empty() && (over || !reader.options.follow) {
            return pods.finish(followed.len(), unread, over).await;
        }
        if followed.is_empty() && !std::mem::replace(&mut waiting, true) {
            reader.note(format!("{}; waiting for its first pod", pods.state(workload).await)).await?;
        }
        tokio::select! {
            Some(done) = tasks.join_next() => {
                unread.extend(joined(done)?);
                // Usually the others end too; only then is there something new.
                tokio::time::sleep(GATHER).await;
                while let Some(done) = tasks.try_join_next() {
                    unread.extend(joined(done)?);
                }
            }
            () = pods.view.asked() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(watch::interval(&reader.shared)) => {}
        }
    }
}

fn joined(done: std::result::Result<PodRead, tokio::task::JoinError>) -> PodRead {
    done.map_err(|error| Error::new(ErrorKind::Unexpected, "a log reader stopped").with_source(error))?
}

/// The pods of a workload that is being read.
#[derive(Clone)]
struct Pods {
    reader: Reader,
    base: String,
    framework: &'static str,
    roles: Roles,
    view: Arc<View>,
    permits: Arc<Semaphore>,
}

impl Pods {
    /// Polls the workload and its pods, and starts a reader for each new one. Returns true when the workload
    /// is over.
    async fn look(&self, followed: &mut HashSet<String>, tasks: &mut JoinSet<PodRead>) -> Result<bool> {
        let Reader { shared, handle, options, .. } = &self.reader;
        self.view.begin();
        let read = async {
            let workload = shared.typed(handle).await?;
            let over = status::phase(text(&workload, "actualPhase").unwrap_or_default()).is_terminal();
            Ok::<_, Error>((over, watch::pods(shared, handle).await?))
        };
        let (over, pods) = match read.await {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.view.finish(HashSet::new(), true);
                return Ok(true);
            }
            // The readers wait for the next poll.
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => return Err(error),
        };
        for pod in &pods {
            let (Some(id), Some(name)) = (text(pod, "id"), text(pod, "name")) else { continue };
            if !has_log(pod) || !self.roles.is_wanted(name, &options.roles) || !followed.insert(id.to_owned())
            {
                continue;
            }
            let replica = self.roles.replica(pod, 0);
            let mut source = SourceId::new(name);
            id.clone_into(&mut source.uid);
            (source.role, source.replica) = (replica.role, replica.index);
            let (this, source) = (self.clone(), Arc::new(source));
            tasks.spawn(async move { this.pod(source).await });
        }
        let live = pods.iter().filter(|pod| !status::replica(pod, 0).phase.is_terminal());
        self.view.finish(live.filter_map(|pod| text(pod, "id").map(str::to_owned)).collect(), false);
        Ok(over)
    }

    /// Returns the phase of the workload, with its reason.
    async fn state(&self, workload: &Value) -> String {
        let job = watch::detailed(&self.reader.shared, &self.reader.handle, workload).await;
        let reason = if job.reason.is_empty() { String::new() } else { format!(" ({})", job.reason) };
        format!("the workload is {}{reason}", job.phase)
    }

    /// Reports what could not be read. If that is everything, the error names the other ways to get the logs.
    async fn finish(&self, followed: usize, unread: Vec<Unread>, over: bool) -> Result<()> {
        let Reader { shared, handle, options, .. } = &self.reader;
        if followed == 0 && !over {
            let workload = shared.typed(handle).await?;
            let text = format!(
                "{}; it has no log yet (`weftrun logs -f` waits for it)",
                self.state(&workload).await
            );
            return self.reader.note(text).await;
        }
        if followed == 0 && !options.roles.is_empty() {
            let message = format!("the workload has no pod of the role {}", options.roles.join(", "));
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        if followed > unread.len() {
            for Unread { source, reason, cursor } in unread {
                self.mark(&source, Mark::Gap { reason }, cursor).await?;
            }
            return Ok(());
        }
        let message = match unread.into_iter().next() {
            Some(Unread { reason, .. }) => format!("no log of the workload can be read: {reason}"),
            None => "the workload has ended, and its pods are gone with their logs".to_owned(),
        };
        Err(self.reader.other_routes(Error::new(ErrorKind::NotFound, message), self.framework).await)
    }

    /// Reads one pod to its end, over as many connections as necessary.
    async fn pod(&self, source: Arc<SourceId>) -> PodRead {
        let Ok(_permit) = self.permits.acquire().await else { return Ok(None) };
        let options = &self.reader.options;
        // Cursors of the Kubernetes API also name the container.
        let is_of = |cursor: &&Cursor| cursor.uid.split('/').next() == Some(source.uid.as_str());
        let stored = options.from.iter().find(is_of).cloned();
        let mut opened = stored.is_some();
        let mut resume = match stored {
            Some(cursor) => Resume::from_cursor(cursor),
            None if options.tail.is_some() || options.since.is_some() => {
                Resume::new(&source.uid, 0).in_the_middle()
            }
            None => Resume::new(&source.uid, 0),
        };
        let (mut breaks, mut tail) = (0, options.tail);
        loop {
            let ask = Ask {
                pod: source.name.clone(),
                follow: options.follow,
                since: resume.since().or(options.since),
                tail: tail.take(),
                previous: options.previous,
            };
            let broke = self.stream(&source, &ask, &mut resume).await?;
            opened |= broke.as_ref().is_none_or(|broke| broke.opened);
            let fate = if options.follow { self.view.fate(&source.uid).await } else { Fate::Ended };
            let Some(broke) = broke else {
                if fate == Fate::Live {
                    breaks = 0;
                    tokio::time::sleep(GATHER).await;
                    continue;
                }
                self.mark(&source, Mark::Ended { exit_code: None }, resume.cursor()).await?;
                return Ok(None);
            };
            breaks = if fate == Fate::Live { 0 } else { breaks + 1 };
            if let Some(reason) = lost(&broke, fate, breaks) {
                let cursor = resume.cursor();
                if !opened && fate == Fate::Ended {
                    return Ok(Some(Unread { source, reason, cursor }));
                }
                self.mark(&source, Mark::Gap { reason }, cursor).await?;
                return Ok(None);
            }
            if broke.is_final && fate == Fate::Live {
                return Err(broke.error());
            }
            tokio::time::sleep(Duration::from_millis(500) * (breaks + 1)).await;
        }
    }

    /// Reads over one connection; returns none if the other side closed it properly.
    async fn stream(&self, source: &Arc<SourceId>, ask: &Ask, resume: &mut Resume) -> Result<Option<Broke>> {
        let Reader { shared, handle, .. } = &self.reader;
        let mut socket = match cluster_api::open(shared, &self.base, handle, self.framework, ask).await {
            Ok(socket) => socket,
            Err(error) => return Ok(Some(Broke::unopened(&error))),
        };
        resume.opened();
        loop {
            let mut fed = Fed::default();
            let next = cluster_api::next(&mut socket).await;
            let moved = match &next {
                Next::Bytes(bytes) => resume.feed(bytes, &mut fed),
                Next::Closed => resume.finish(&mut fed),
                Next::Broken(_) => Ok(()),
            };
            if moved.is_err() {
                resume.rotated();
                let _ = resume.feed(&[], &mut fed);
            }
            self.give(source, fed, resume.cursor()).await?;
            match next {
                Next::Bytes(_) => {}
                Next::Closed => return Ok(None),
                Next::Broken(why) => {
                    return Ok(Some(Broke {
                        why,
                        opened: true,
                        is_final: false,
                        kind: ErrorKind::Unreachable,
                    }));
                }
            }
        }
    }

    async fn give(&self, source: &Arc<SourceId>, fed: Fed, cursor: Cursor) -> Result<()> {
        if !(fed.bytes.is_empty() && fed.mark.is_none()) {
            let mut batch = LogBatch::new(source.clone(), fed.bytes, cursor.clone());
            (batch.lines, batch.mark) = (fed.lines, fed.mark);
            self.reader.give(batch).await?;
        }
        for note in fed.notes {
            let reason = clean_text(&note).into_owned();
            self.mark(source, Mark::Gap { reason }, cursor.clone()).await?;
        }
        Ok(())
    }

    async fn mark(&self, source: &Arc<SourceId>, mark: Mark, cursor: Cursor) -> Result<()> {
        self.reader.give(LogBatch::marked(source.clone(), mark, cursor)).await
    }
}

/// Why a connection did not end properly.
struct Broke {
    why: String,
    /// Whether the connection was open before.
    opened: bool,
    /// Whether a retry cannot help while nothing else changes.
    is_final: bool,
    kind: ErrorKind,
}

impl Broke {
    fn unopened(error: &Error) -> Self {
        let is_final = !error.is_retryable() && error.kind() != ErrorKind::NotFound;
        Self { why: error.message().to_owned(), opened: false, is_final, kind: error.kind() }
    }

    fn error(self) -> Error {
        Error::new(self.kind, self.why)
    }
}

/// Returns why the rest of a log is given up, if it is.
fn lost(broke: &Broke, fate: Fate, breaks: u32) -> Option<String> {
    let why = clean_text(&broke.why).into_owned();
    match fate {
        Fate::Live => None,
        Fate::Deleted => Some("the workload was deleted, and its logs with it".to_owned()),
        // A refusal is permanent: the platform streams only the logs of running workloads.
        Fate::Ended if broke.is_final || breaks >= TRIES_AFTER_END => Some(format!(
            "the pod has ended, and the cluster's API does not give the rest of its log ({why}); with `kubeconfig` in \
             the target's table it is read from Kubernetes while the pod is there"
        )),
        Fate::Ended => None,
    }
}

fn has_log(pod: &Value) -> bool {
    let phase = text(pod, "k8sPhase").unwrap_or_default().to_lowercase();
    matches!(phase.as_str(), "running" | "succeeded" | "failed")
}
