//! One container's log, over all its attempts and any number of connections.

use std::sync::Arc;
use std::time::Duration;

use futures_util::AsyncBufReadExt;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use weftrun_core::log::{Cursor, Fed, LogBatch, LogOptions, Mark, Resume, SourceId};

use super::open::{Ask, NotOpen, next, open};
use super::{LogJob, Out};
use crate::kubernetes::pod::ContainerState;
use crate::kubernetes::{Cluster, Pod, Resource, is_not_found};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a container's status may be behind its log. The kubelet serves the next attempt's log before the API server knows of that
/// attempt: lines read too early would be counted to the one before.
const BEHIND: Duration = Duration::from_secs(6);
/// The same for a log that no longer begins as it did, which is almost always that of another attempt.
const FAR_BEHIND: Duration = Duration::from_secs(15);

/// What the watch says of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub container: ContainerState,
    /// None of the pod's containers will start again.
    pub pod_ended: bool,
    /// The pod is gone.
    pub gone: bool,
    /// The job has ended and nobody waits any longer.
    pub over: bool,
}

impl View {
    pub fn of(pod: &Pod, container: &ContainerState) -> Self {
        Self { container: container.clone(), pod_ended: pod.ended(), gone: false, over: false }
    }

    /// Whether the container will never run again.
    fn last(&self) -> bool {
        self.gone
            || self.over
            || self.pod_ended
            || (self.container.init && self.container.exit().is_some_and(|exit| exit.code == 0))
    }
}

/// How long one may be refused what one was allowed before, and what one never was.
const REFUSED: Duration = Duration::from_secs(90);
const REFUSED_FIRST: Duration = Duration::from_secs(5);
/// How long a log may be unreadable until that is said: a kubelet that restarts needs a few seconds.
const SILENCE: Duration = Duration::from_secs(20);

/// Reads one container.
pub struct Follower {
    cluster: Cluster,
    pod: String,
    uid: String,
    source: SourceId,
    view: watch::Receiver<View>,
    out: Out,
    permits: Arc<Semaphore>,
    options: LogOptions,
}

/// One attempt of the container.
struct Attempt {
    number: u32,
    source: Arc<SourceId>,
    resume: Resume,
    tail: Option<u64>,
    /// The stream could not be opened since the node is gone: said once.
    told: bool,
    /// It was read to its end; what is read once more only makes sure, and its absence is no loss.
    complete: bool,
    /// Whether the log could ever be opened.
    opened: bool,
    /// Since when one may not.
    refused: Option<Instant>,
}

/// How a connection ended.
enum End {
    /// The server closed it.
    Clean,
    /// The job has ended, so nobody waits for more of a container that may run on.
    Cut,
    /// It broke.
    Broken,
    /// The container has not started.
    Waiting,
    /// The log is not there.
    Gone(String),
    /// The log of another container came.
    Moved,
    /// Nobody listens, or nobody may.
    Stop,
}

impl Follower {
    pub fn new(
        job: &LogJob,
        pod: &Pod,
        source: SourceId,
        view: watch::Receiver<View>,
        out: Out,
        permits: Arc<Semaphore>,
    ) -> Self {
        Self {
            cluster: job.cluster.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            source,
            view,
            out,
            permits,
            options: job.options.clone(),
        }
    }

    /// Starts an attempt, where a cursor left it if there is one.
    fn attempt(&self, number: u32, first: bool) -> Attempt {
        let source = Arc::new(with_attempt(&self.source, number));
        let stored = |cursor: &&Cursor| cursor.uid == self.source.uid && cursor.attempt == number;
        let stored = self.options.from.iter().find(stored).cloned();
        let partial = first && (self.options.tail.is_some() || self.options.since.is_some());
        let tail = self.options.tail.filter(|_| first && stored.is_none());
        let resume = match stored {
            Some(cursor) => Resume::from_cursor(cursor),
            None if partial => Resume::new(&self.source.uid, number).in_the_middle(),
            None => Resume::new(&self.source.uid, number),
        };
        Attempt { number, source, resume, tail, told: false, complete: false, opened: false, refused: None }
    }

    /// Reads what is there, once.
    pub async fn once(self) {
        let view = self.view.borrow().clone();
        let previous = self.options.previous;
        let container = &view.container;
        if !container.has_log() || (previous && container.restarts == 0) {
            return;
        }
        let number = container.restarts - u32::from(previous);
        let mut attempt = self.attempt(number, true);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.read(&mut attempt, false, previous).await {
                End::Clean => {
                    let exit = if previous { container.last.as_ref() } else { container.exit() };
                    if let Some(exit) = exit {
                        self.mark(&attempt, Mark::Ended { exit_code: Some(exit.code) }).await;
                    }
                    return;
                }
                End::Gone(reason) => {
                    self.mark(&attempt, Mark::Gap { reason }).await;
                    return;
                }
                End::Broken | End::Cut if pause < LONGEST_PAUSE => {
                    sleep(pause).await;
                    pause *= 2;
                }
                End::Broken | End::Cut => {
                    self.mark(&attempt, Mark::Gap { reason: "the API server does not answer".into() }).await;
                    return;
                }
                End::Waiting | End::Moved | End::Stop => return,
            }
        }
    }

    /// Reads until the container will never run again.
    pub async fn run(mut self) {
        let Some(first) = self.started(None).await else { return };
        let mut attempt = self.attempt(first.container.restarts, true);
        let mut pause = FIRST_PAUSE;
        let mut broken: Option<Instant> = None;
        loop {
            let before = attempt.resume.cursor();
            let was_over = self.view.borrow().container.exit().is_some();
            let end = self.read(&mut attempt, true, false).await;
            if matches!(end, End::Stop) {
                return;
            }
            let moved_on = before != attempt.resume.cursor() || !matches!(end, End::Broken);
            broken = if moved_on { None } else { broken.or_else(|| Some(Instant::now())) };
            pause =
                if before == attempt.resume.cursor() { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
            let view = if matches!(end, End::Clean) {
                self.settled(attempt.number).await
            } else {
                self.fresh().await
            };
            let Some(view) = view else { return };
            let container = &view.container;
            if container.restarts > attempt.number {
                let Some(next) = self.restarted(&mut attempt, &view, &end).await else { return };
                attempt = next;
                continue;
            }
            let over = view.gone || (container.exit().is_some() && container.has_log());
            match (&end, over) {
                (End::Waiting, false) => {
                    let _ = timeout(FIRST_PAUSE, self.view.changed()).await;
                }
                (End::Gone(reason), false) => {
                    // The node is gone while the pod's record is still there.
                    if !std::mem::replace(&mut attempt.told, true) {
                        self.mark(&attempt, Mark::Gap { reason: reason.clone() }).await;
                    }
                    if self.view.borrow().over {
                        return;
                    }
                    let _ = timeout(LONGEST_PAUSE, self.view.changed()).await;
                }
                (_, false) if self.view.borrow().over => {
                    let reason = "the job has ended, but this container runs on".to_owned();
                    self.mark(&attempt, Mark::Gap { reason }).await;
                    return;
                }
                (_, false) => {
                    // The API server answers, and says that the container runs: it is its node that does not.
                    if broken.is_some_and(|since| since.elapsed() > SILENCE)
                        && !std::mem::replace(&mut attempt.told, true)
                    {
                        let reason =
                            "the pod's node does not let the log be read; it is tried again".to_owned();
                        self.mark(&attempt, Mark::Gap { reason }).await;
                    }
                    sleep(pause).await;
                }
                (end, true) => {
                    let certain = matches!(end, End::Clean) && was_over;
                    if !self.ended(&mut attempt, &view, end, certain).await {
                        return;
                    }
                    let Some(view) = self.started(Some(attempt.number)).await else { return };
                    attempt = self.attempt(view.container.restarts, false);
                    pause = FIRST_PAUSE;
                }
            }
        }
    }

    /// Waits until there is a log of an attempt after this one; none if there never will be.
    async fn started(&mut self, after: Option<u32>) -> Option<View> {
        loop {
            let view = self.view.borrow_and_update().clone();
            let newer = after.is_none_or(|after| view.container.restarts > after);
            if newer && view.container.has_log() {
                return Some(view);
            }
            if view.last() {
                return None;
            }
            self.view.changed().await.ok()?;
        }
    }

    /// The container as the server has it now; the watch may be behind. None if nobody listens any more.
    async fn fresh(&mut self) -> Option<View> {
        loop {
            let watched = self.view.borrow_and_update().clone();
            if watched.gone {
                return Some(watched);
            }
            match self.cluster.get(&Resource::PODS, &self.pod).await {
                Ok(object) => {
                    let pod = Pod::of_json(&object);
                    let container = pod.container(&self.source.container);
                    return Some(match container.filter(|_| pod.uid == self.uid) {
                        Some(container) => View { over: watched.over, ..View::of(&pod, container) },
                        None => View { gone: true, ..watched },
                    });
                }
                Err(error) if is_not_found(&error) => return Some(View { gone: true, ..watched }),
                // Without the right to get, the watch must do.
                Err(error) if !error.is_retryable() => return Some(watched),
                Err(_) => {}
            }
            if self.out.0.is_closed() {
                return None;
            }
            sleep(FIRST_PAUSE * 2).await;
        }
    }

    /// The container after a stream that the server ended, most likely because the container did: waits until its status says
    /// so too. None if nobody listens any more.
    async fn settled(&mut self, number: u32) -> Option<View> {
        let until = Instant::now() + BEHIND;
        loop {
            let _ = timeout(FIRST_PAUSE * 5, self.view.wait_for(|view| settled(view, number))).await;
            let view = self.fresh().await?;
            if settled(&view, number) || Instant::now() > until {
                return Some(view);
            }
        }
    }

    /// The attempt has been followed by another: takes what is left of it, and starts the new one.
    async fn restarted(&self, attempt: &mut Attempt, view: &View, end: &End) -> Option<Attempt> {
        let now = view.container.restarts;
        attempt.complete = matches!(end, End::Clean);
        let complete = if now == attempt.number + 1 {
            matches!(self.read(attempt, false, true).await, End::Clean)
        } else {
            false
        };
        if !complete && !matches!(end, End::Clean) {
            let reason = "the container was replaced before its last lines could be read".to_owned();
            self.mark(attempt, Mark::Gap { reason }).await;
        }
        let exit = view.container.last.as_ref().filter(|_| now == attempt.number + 1);
        self.mark(attempt, Mark::Ended { exit_code: exit.map(|exit| exit.code) }).await;
        let next = self.attempt(now, false);
        if now > attempt.number + 1 {
            let missed = now - attempt.number - 1;
            let reason = format!("{missed} attempts came and went between two looks; their logs are gone");
            self.mark(&next, Mark::Gap { reason }).await;
        }
        (!self.out.0.is_closed()).then_some(next)
    }

    /// The container ended: makes sure that nothing of its log is left. False if nothing comes after it.
    async fn ended(&self, attempt: &mut Attempt, view: &View, end: &End, certain: bool) -> bool {
        attempt.complete = matches!(end, End::Clean);
        // Where the container may start again, its log may soon be another one.
        let mut whole = certain || (matches!(end, End::Clean) && !view.last());
        for pause in [0, 1, 2, 4, 8] {
            if whole {
                break;
            }
            sleep(FIRST_PAUSE * pause).await;
            match self.read(attempt, false, false).await {
                End::Clean => whole = true,
                End::Stop => return false,
                End::Gone(_) | End::Moved | End::Waiting => break,
                End::Broken | End::Cut => {}
            }
        }
        if !whole && !matches!(end, End::Clean) {
            let reason = "the pod went away before its last lines could be read".to_owned();
            self.mark(attempt, Mark::Gap { reason }).await;
        }
        let exit_code = view.container.exit().map(|exit| exit.code);
        self.mark(attempt, Mark::Ended { exit_code }).await && !view.last()
    }

    /// Reads over one connection.
    async fn read(&self, attempt: &mut Attempt, follow: bool, previous: bool) -> End {
        let Ok(_permit) = self.permits.acquire().await else { return End::Stop };
        let since = attempt.resume.since().or(self.options.since.filter(|_| attempt.number == 0 || !follow));
        let ask = Ask { follow, previous, since, tail: attempt.tail };
        let mut stream = match open(&self.cluster, &self.pod, &self.source.container, &ask).await {
            Ok(stream) => stream,
            Err(NotOpen::Waiting) => return End::Waiting,
            Err(NotOpen::Gone(reason)) => return End::Gone(reason),
            Err(NotOpen::Later) => return End::Broken,
            Err(NotOpen::Refused(error)) => {
                // An API server that has just started knows no Roles yet, and refuses what it will allow in a moment.
                let since = attempt.refused.get_or_insert_with(Instant::now);
                if since.elapsed() < if attempt.opened { REFUSED } else { REFUSED_FIRST } {
                    return End::Broken;
                }
                self.out.send(Err(error)).await;
                return End::Stop;
            }
        };
        attempt.resume.opened();
        (attempt.opened, attempt.refused, attempt.tail) = (true, None, None);
        let mut view = self.view.clone();
        loop {
            let mut fed = Fed::default();
            let arrived = tokio::select! {
                bytes = next(&mut stream) => bytes.map(|bytes| {
                    bytes.map(|bytes| (bytes.len(), attempt.resume.feed(bytes, &mut fed).is_err()))
                }),
                () = over(&mut view), if follow => return End::Cut,
            };
            let (len, moved) = match arrived {
                Ok(Some(read)) => read,
                Ok(None) => return self.close(attempt, follow).await,
                Err(_) => return End::Broken,
            };
            stream.consume_unpin(len);
            if moved && !previous && self.newer(attempt.number).await {
                return End::Moved;
            }
            if moved {
                attempt.resume.rotated();
                let _ = attempt.resume.feed(&[], &mut fed);
            }
            if !self.give(attempt, fed).await {
                return End::Stop;
            }
        }
    }

    /// The server closed the stream. The last line of a container that ended may have no end; one that was torn by
    /// the connection comes again.
    async fn close(&self, attempt: &mut Attempt, follow: bool) -> End {
        let over = self.view.borrow().container.exit().is_some();
        if !follow || over {
            let mut fed = Fed::default();
            let _ = attempt.resume.finish(&mut fed);
            if !self.give(attempt, fed).await {
                return End::Stop;
            }
        }
        End::Clean
    }

    /// Whether there is a later attempt, of which the server may know only after a while.
    async fn newer(&self, number: u32) -> bool {
        let until = Instant::now() + FAR_BEHIND;
        loop {
            let Ok(object) = self.cluster.get(&Resource::PODS, &self.pod).await else { return false };
            let pod = Pod::of_json(&object);
            let restarts = pod.container(&self.source.container).map_or(0, |container| container.restarts);
            if pod.uid != self.uid || restarts > number {
                return true;
            }
            if pod.ended() || Instant::now() > until {
                return false;
            }
            sleep(FIRST_PAUSE).await;
        }
    }

    /// Hands out what was read; false if nobody listens.
    async fn give(&self, attempt: &Attempt, fed: Fed) -> bool {
        for note in fed.notes.into_iter().filter(|_| !attempt.complete) {
            let reason = crate::kubernetes::one_line(&note);
            if !self.mark(attempt, Mark::Gap { reason }).await {
                return false;
            }
        }
        if let Some(mark) = fed.mark
            && !self.mark(attempt, mark).await
        {
            return false;
        }
        if fed.bytes.is_empty() {
            return !self.out.0.is_closed();
        }
        let mut batch = LogBatch::new(Arc::clone(&attempt.source), Vec::new(), attempt.resume.cursor());
        (batch.bytes, batch.lines) = (fed.bytes, fed.lines);
        self.out.send(Ok(batch)).await
    }

    async fn mark(&self, attempt: &Attempt, mark: Mark) -> bool {
        let batch = LogBatch::marked(Arc::clone(&attempt.source), mark, attempt.resume.cursor());
        self.out.send(Ok(batch)).await
    }
}

fn with_attempt(source: &SourceId, attempt: u32) -> SourceId {
    let mut source = source.clone();
    source.attempt = attempt;
    source
}

/// Whether a status says that an attempt has ended.
fn settled(view: &View, number: u32) -> bool {
    view.gone || view.over || view.container.exit().is_some() || view.container.restarts > number
}

/// Waits until nobody waits for the container any longer.
async fn over(view: &mut watch::Receiver<View>) {
    if view.wait_for(|view| view.over).await.is_err() {
        std::future::pending::<()>().await;
    }
}
