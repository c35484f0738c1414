//! One container's log, over all its attempts and any number of connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use weftrun_core::log::{Cursor, LogOptions, Mark, Resume, SourceId};

use super::limiter::Limiter;
use super::reader::{Attempt, End, Reader};
use super::view::View;
use super::{LogJob, Out};
use crate::kubernetes::{Pod, Resource, is_not_found};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often in succession a stream may be opened without any output before its reopening is rate limited for
/// all streams together.
const SOME: u32 = 3;
/// How long a container's status may lag behind its log. The kubelet serves the next attempt's log before the
/// API server has that attempt: lines read too early would be attributed to the previous one.
const BEHIND: Duration = Duration::from_secs(6);
/// How long a log may be unreadable before that is reported: a kubelet that restarts needs a few seconds.
const SILENCE: Duration = Duration::from_secs(20);

/// Reads one container over all its attempts.
pub struct Follower {
    reader: Reader,
    source: SourceId,
    options: LogOptions,
}

impl Follower {
    pub fn new(
        job: &LogJob,
        pod: &Pod,
        source: SourceId,
        view: watch::Receiver<View>,
        out: Out,
        limiter: Limiter,
    ) -> Self {
        let (cluster, container) = (job.cluster.clone(), source.container.clone());
        let (pod, uid) = (pod.name.clone(), pod.uid.clone());
        let reader = Reader { cluster, pod, uid, container, view, out, limiter, quiet: job.quiet };
        Self { reader, source, options: job.options.clone() }
    }

    /// Starts an attempt, at its cursor if there is one. The limits on the last lines apply only to the first
    /// attempt that is read: later ones begin while they are followed.
    fn attempt(&self, number: u32, first: bool) -> Attempt {
        // Cursors of Run:ai's own API name only the pod, and are resumed here after the workload has ended.
        let pod = self.source.uid.split('/').next();
        let stored = |cursor: &&Cursor| {
            (cursor.uid == self.source.uid || Some(cursor.uid.as_str()) == pod) && cursor.attempt == number
        };
        let stored = self.options.from.iter().find(stored).cloned();
        let (tail, since) = (self.options.tail, self.options.since);
        let whole = Resume::new(&self.source.uid, number);
        let attempt = |resume| Attempt::new(number, self.source.clone(), resume);
        match stored {
            Some(cursor) => attempt(Resume::from_cursor(cursor)),
            None if first && (tail.is_some() || since.is_some()) => {
                attempt(whole.in_the_middle()).only(tail, since)
            }
            None => attempt(whole),
        }
    }

    /// Reads the present log, once.
    pub async fn once(self) {
        let view = self.reader.view.borrow().clone();
        let previous = self.options.previous;
        let container = &view.container;
        if !container.has_log() || (previous && container.restarts == 0) {
            return;
        }
        let number = container.restarts - u32::from(previous);
        let mut attempt = self.attempt(number, true);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.reader.read(&mut attempt, false, previous).await {
                End::Clean => {
                    let exit = if previous { container.last.as_ref() } else { container.exit() };
                    if let Some(exit) = exit {
                        self.reader.mark(&attempt, Mark::Ended { exit_code: Some(exit.code) }).await;
                    }
                    return;
                }
                End::Gone(reason) => {
                    self.reader.mark(&attempt, Mark::Gap { reason }).await;
                    return;
                }
                End::Broken | End::Cut | End::Yielded if pause < LONGEST_PAUSE => {
                    sleep(pause).await;
                    pause *= 2;
                }
                End::Broken | End::Cut | End::Yielded => {
                    self.reader
                        .mark(&attempt, Mark::Gap { reason: "the API server does not answer".into() })
                        .await;
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
        let mut fruitless = 0u32;
        loop {
            let before = attempt.resume.cursor();
            let was_over = self.reader.view.borrow().container.exit().is_some();
            let end = self.reader.read(&mut attempt, true, false).await;
            if matches!(end, End::Stop) {
                return;
            }
            let moved_on = before != attempt.resume.cursor() || !matches!(end, End::Broken);
            broken = if moved_on { None } else { broken.or_else(|| Some(Instant::now())) };
            pause =
                if before == attempt.resume.cursor() { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
            // A stream without output is reopened with a delay: one such stream costs two requests, a
            // thousand cost two thousand.
            let idle = before == attempt.resume.cursor() && !matches!(end, End::Yielded | End::Moved);
            fruitless = if idle { fruitless + 1 } else { 0 };
            let view = match end {
                // The wait for its next permit may be long, and it checks the watch then.
                End::Yielded => Some(self.reader.view.borrow_and_update().clone()),
                End::Clean if fruitless <= SOME => self.settled(&attempt).await,
                _ => {
                    if idle {
                        self.paced(&attempt).await;
                    }
                    self.fresh().await
                }
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
                    let _ = timeout(FIRST_PAUSE, self.reader.view.changed()).await;
                }
                (End::Gone(reason), false) => {
                    // The node is gone while the pod's record still exists.
                    if !std::mem::replace(&mut attempt.told, true) {
                        self.reader.mark(&attempt, Mark::Gap { reason: reason.clone() }).await;
                    }
                    if self.reader.view.borrow().over {
                        return;
                    }
                    let _ = timeout(LONGEST_PAUSE, self.reader.view.changed()).await;
                }
                (_, false) if self.reader.view.borrow().over => {
                    // The present log is read before the attempt is left.
                    self.reader.read(&mut attempt, false, false).await;
                    let reason = "the job has ended, but this container runs on".to_owned();
                    self.reader.mark(&attempt, Mark::Gap { reason }).await;
                    return;
                }
                (End::Yielded, false) => {}
                (_, false) => {
                    // The API server answers, and reports that the container runs: its node is unreachable.
                    if broken.is_some_and(|since| since.elapsed() > SILENCE)
                        && attempt.refused.is_none()
                        && !std::mem::replace(&mut attempt.told, true)
                    {
                        let reason =
                            "the pod's node does not let the log be read; it is tried again".to_owned();
                        self.reader.mark(&attempt, Mark::Gap { reason }).await;
                    }
                    sleep(pause).await;
                    if idle {
                        self.paced(&attempt).await;
                    }
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
            let view = self.reader.view.borrow_and_update().clone();
            let newer = after.is_none_or(|after| view.container.restarts > after);
            if newer && view.container.has_log() {
                return Some(view);
            }
            if view.last() {
                return None;
            }
            self.reader.view.changed().await.ok()?;
        }
    }

    /// Returns the container as the server has it now, since the watch may lag. None if the reader is gone.
    async fn fresh(&mut self) -> Option<View> {
        let mut pause = FIRST_PAUSE * 2;
        loop {
            let watched = self.reader.view.borrow_and_update().clone();
            if watched.gone {
                return Some(watched);
            }
            match self.reader.cluster.get(&Resource::PODS, &self.reader.pod).await {
                Ok(object) => {
                    let pod = Pod::of_json(&object);
                    let container = pod.container(&self.reader.container);
                    return Some(match container.filter(|_| pod.uid == self.reader.uid) {
                        Some(container) => View { over: watched.over, ..View::of(&pod, container) },
                        None => View { gone: true, ..watched },
                    });
                }
                Err(error) if is_not_found(&error) => return Some(View { gone: true, ..watched }),
                // Without the right to get, the watch must suffice.
                Err(error) if !error.is_retryable() => return Some(watched),
                Err(_) => {}
            }
            if self.reader.out.is_closed() {
                return None;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until a request may be sent that most likely returns nothing, or the watch has news of the
    /// container, which justify one.
    async fn paced(&mut self, attempt: &Attempt) {
        let number = attempt.number;
        tokio::select! {
            () = self.reader.limiter.pace(attempt.open_for) => {}
            _ = self.reader.view.wait_for(|view| view.settled(number)) => {}
        }
    }

    /// Returns the container after a stream that the server ended, most likely because the container did:
    /// waits until its status shows that too. None if the reader is gone.
    async fn settled(&mut self, attempt: &Attempt) -> Option<View> {
        let number = attempt.number;
        let until = Instant::now() + BEHIND;
        let mut pause = FIRST_PAUSE * 5;
        loop {
            if timeout(pause, self.reader.view.wait_for(|view| view.settled(number))).await.is_err() {
                self.paced(attempt).await;
            }
            let view = self.fresh().await?;
            if view.settled(number) || Instant::now() > until {
                return Some(view);
            }
            pause *= 2;
        }
    }

    /// Reads the rest of an attempt that was followed by another, and starts the new one.
    async fn restarted(&self, attempt: &mut Attempt, view: &View, end: &End) -> Option<Attempt> {
        let now = view.container.restarts;
        attempt.complete = matches!(end, End::Clean);
        // Up to twice: an answer may break off inside a line.
        let mut complete = false;
        let mut tries = if now == attempt.number + 1 { 2 } else { 0 };
        while !complete && tries > 0 {
            complete = matches!(self.reader.read(attempt, false, true).await, End::Clean);
            tries -= 1;
        }
        if !complete && !matches!(end, End::Clean) {
            let reason = "the container was replaced before its last lines could be read".to_owned();
            self.reader.mark(attempt, Mark::Gap { reason }).await;
        }
        let exit = view.container.last.as_ref().filter(|_| now == attempt.number + 1);
        self.reader.mark(attempt, Mark::Ended { exit_code: exit.map(|exit| exit.code) }).await;
        let next = self.attempt(now, false);
        if now > attempt.number + 1 {
            let missed = now - attempt.number - 1;
            let reason = format!("{missed} attempts came and went between two looks; their logs are gone");
            self.reader.mark(&next, Mark::Gap { reason }).await;
        }
        (!self.reader.out.is_closed()).then_some(next)
    }

    /// Makes sure that nothing of an ended container's log is left. Returns false if nothing comes after it.
    async fn ended(&self, attempt: &mut Attempt, view: &View, end: &End, certain: bool) -> bool {
        attempt.complete = matches!(end, End::Clean);
        // If the container may restart, its log may soon be replaced. A line without a newline is read again: where the
        // stream ended before the watch knew of the end, it was not known to be the last.
        let torn = attempt.resume.torn();
        let mut whole = certain || (matches!(end, End::Clean) && !view.last() && !torn);
        for pause in [0, 1, 2, 4, 8] {
            if whole {
                break;
            }
            sleep(FIRST_PAUSE * pause).await;
            match self.reader.read(attempt, false, false).await {
                End::Clean => whole = true,
                End::Stop => return false,
                End::Gone(_) | End::Moved | End::Waiting => break,
                End::Broken | End::Cut | End::Yielded => {}
            }
        }
        // A kubelet that removes a container while its log is followed closes the stream as if all had been
        // read. A container that was killed had its grace period; one that ended by itself may have written
        // its last lines in that moment.
        let ended_by_itself = view.container.exit().is_some_and(|exit| exit.code < 128);
        if !whole && (!matches!(end, End::Clean) || ended_by_itself) {
            let reason =
                "the pod was deleted while its log was read; its last lines may be missing".to_owned();
            self.reader.mark(attempt, Mark::Gap { reason }).await;
        }
        let exit_code = view.container.exit().map(|exit| exit.code);
        self.reader.mark(attempt, Mark::Ended { exit_code }).await && !view.last()
    }
}
