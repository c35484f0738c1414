//! Reads one attempt of a container over successive connections.

use std::sync::Arc;
use std::time::Duration;

use futures_util::AsyncBufReadExt;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use weftrun_core::log::{Fed, LogBatch, Mark, Resume, SourceId};

use super::Out;
use super::limiter::Limiter;
use super::open::{Ask, NotOpen, next, open};
use super::view::{View, given_up};
use crate::kubernetes::{Cluster, Pod, Resource};
use crate::stream::put;

/// How long a refusal is tolerated after access was granted before, and when it never was.
const REFUSED: Duration = Duration::from_secs(90);
const REFUSED_FIRST: Duration = Duration::from_secs(5);
/// How long a container's status may lag behind its log if the log no longer begins as it did, which almost
/// always means the log of another attempt.
const FAR_BEHIND: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);
/// Lines that come this soon after the last batch are merged into one: servers send a line or two at a time,
/// and a batch costs more than its lines. The first line after a silence is sent at once.
const GATHERED: Duration = Duration::from_millis(20);
/// How long a stream may be silent while others of the job write, before it is reopened: kubelets up to 1.29
/// keep following a file that was rotated away (<https://github.com/kubernetes/kubernetes/issues/115701>,
/// read 2026-11-21), and a connection may be dead without an end. Then exactly the missing lines are read.
pub const QUIET: Duration = Duration::from_mins(1);
/// Each reopening without new lines doubles the wait, this often: in most jobs one rank writes and all others
/// are silent.
const PATIENT: u32 = 5;
/// How long a silent stream waits to be reopened if others are before it.
const AGAIN: Duration = Duration::from_secs(1);
/// Size at which a batch is sent without further delay.
const FULL: usize = 64 * 1024;

/// One attempt of a container.
pub struct Attempt {
    pub number: u32,
    pub source: Arc<SourceId>,
    pub resume: Resume,
    /// Whether it was reported that the stream could not be opened since the node is gone.
    pub told: bool,
    /// It was read to its end; reading it again only verifies that, and its absence is no loss.
    pub complete: bool,
    /// Its last line once came unterminated: read again, since an API server that loses the node ends its
    /// answer normally.
    torn: bool,
    /// Only this many of its last lines.
    tail: Option<u64>,
    /// Only lines since this time.
    since: Option<Timestamp>,
    /// Whether the log was ever opened.
    opened: bool,
    /// Start of the refusals.
    pub refused: Option<Instant>,
    /// How often it was reopened because of its silence without new lines.
    in_vain: u32,
    /// How long its last stream was open.
    pub open_for: Duration,
}

/// How a connection ended.
pub enum End {
    /// The server closed it.
    Clean,
    /// The job has ended, so a container that may run on is no longer followed.
    Cut,
    /// Other streams wait for a permit.
    Yielded,
    /// It broke.
    Broken,
    /// The container has not started.
    Waiting,
    /// The log is not there.
    Gone(String),
    /// The log of another container came.
    Moved,
    /// The reader is gone, or access is denied.
    Stop,
}

impl Attempt {
    /// Creates an attempt that is read from the beginning, or from its cursor.
    pub fn new(number: u32, mut source: SourceId, resume: Resume) -> Self {
        source.attempt = number;
        Self {
            number,
            source: Arc::new(source),
            resume,
            told: false,
            complete: false,
            torn: false,
            tail: None,
            since: None,
            opened: false,
            refused: None,
            in_vain: 0,
            open_for: Duration::ZERO,
        }
    }

    /// Limits it to its last lines, or those since a time.
    pub fn only(mut self, tail: Option<u64>, since: Option<Timestamp>) -> Self {
        (self.tail, self.since) = (tail, since);
        self
    }

    /// Returns the request parameters: once a line was seen, everything from there on.
    fn ask(&self, follow: bool, previous: bool) -> Ask {
        let first = !self.resume.started();
        let since = self.resume.since().or(self.since);
        Ask { follow, previous, since, tail: self.tail.filter(|_| first) }
    }
}

/// Reads one container.
pub struct Reader {
    pub cluster: Cluster,
    pub pod: String,
    pub uid: String,
    pub container: String,
    pub view: watch::Receiver<View>,
    pub out: Out,
    pub limiter: Limiter,
    /// [`QUIET`], except in tests.
    pub quiet: Duration,
}

impl Reader {
    /// Reads over one connection.
    pub async fn read(&self, attempt: &mut Attempt, follow: bool, previous: bool) -> End {
        let permit = self.limiter.next(!attempt.opened).await;
        // A log of which nothing was read yet cannot be distinguished from another: the next attempt's must
        // not be taken for it.
        if !previous && self.view.borrow().container.restarts > attempt.number {
            return End::Moved;
        }
        let ask = attempt.ask(follow, previous);
        attempt.open_for = Duration::ZERO;
        let mut stream = match open(&self.cluster, &self.pod, &self.container, &ask).await {
            Ok(stream) => stream,
            Err(NotOpen::Waiting) => return End::Waiting,
            Err(NotOpen::Gone(reason)) => return End::Gone(reason),
            Err(NotOpen::Later) => return End::Broken,
            Err(NotOpen::Refused(error)) => {
                // An API server that has just started has not loaded Roles yet, and refuses what it allows a
                // moment later.
                let since = attempt.refused.get_or_insert_with(Instant::now);
                if since.elapsed() < if attempt.opened { REFUSED } else { REFUSED_FIRST } {
                    return End::Broken;
                }
                let _ = self.out.send(Err(error)).await;
                return End::Stop;
            }
        };
        attempt.resume.opened();
        (attempt.opened, attempt.refused) = (true, None);
        let mut view = self.view.clone();
        let mut over = std::pin::pin!(permit.over());
        let mut fed = Fed::default();
        let opened = Instant::now();
        let mut due = opened;
        let mut heard = permit.activity();
        let mut stale = opened + self.quiet * 2u32.pow(attempt.in_vain);
        let end = loop {
            let arrived = tokio::select! {
                bytes = next(&mut stream) => bytes.map(|bytes| {
                    bytes.map(|bytes| (bytes.len(), attempt.resume.feed(bytes, &mut fed).is_err()))
                }),
                () = sleep_until(due), if !fed.is_empty() => Ok(Some((0, false))),
                () = given_up(&mut view), if follow => break End::Cut,
                () = &mut over, if follow => break End::Yielded,
                () = sleep_until(stale), if follow => {
                    if permit.activity() == heard {
                        stale = Instant::now() + self.quiet * 2u32.pow(attempt.in_vain);
                    } else if self.limiter.may_send(opened.elapsed()) {
                        attempt.in_vain = (attempt.in_vain + 1).min(PATIENT);
                        break End::Yielded;
                    } else {
                        stale = Instant::now() + AGAIN;
                    }
                    continue;
                }
            };
            let (len, moved) = match arrived {
                Ok(Some(read)) => read,
                Ok(None) => break End::Clean,
                Err(_) => break End::Broken,
            };
            stream.consume_unpin(len);
            // Lines that are repeated after a reopening are not fed, since they are not new.
            if len > 0 && !fed.is_empty() {
                (heard, stale, attempt.in_vain) = (permit.note_activity(), Instant::now() + self.quiet, 0);
            }
            if moved && !previous && self.newer(attempt.number).await {
                break End::Moved;
            }
            if moved {
                attempt.resume.rotated();
                let _ = attempt.resume.feed(&[], &mut fed);
            }
            if fed.bytes.len() < FULL && Instant::now() < due {
                continue;
            }
            if !self.give(attempt, std::mem::take(&mut fed)).await {
                return End::Stop;
            }
            due = Instant::now() + GATHERED;
        };
        attempt.open_for = opened.elapsed();
        // The cursor includes the gathered lines, however the connection ended.
        if !self.give(attempt, fed).await {
            return End::Stop;
        }
        if matches!(end, End::Clean) { self.close(attempt, follow).await } else { end }
    }

    /// Handles a stream that the server closed. The last line of a container that ended may be unterminated;
    /// one that was cut by the connection is read again.
    async fn close(&self, attempt: &mut Attempt, follow: bool) -> End {
        let over = self.view.borrow().container.exit().is_some();
        if !follow || over {
            if attempt.resume.torn() && !std::mem::replace(&mut attempt.torn, true) {
                return End::Broken;
            }
            let mut fed = Fed::default();
            let _ = attempt.resume.finish(&mut fed);
            if !self.give(attempt, fed).await {
                return End::Stop;
            }
        }
        End::Clean
    }

    /// Returns whether there is a later attempt, which the server may report only after a while.
    async fn newer(&self, number: u32) -> bool {
        let until = Instant::now() + FAR_BEHIND;
        loop {
            let Ok(object) = self.cluster.get(&Resource::PODS, &self.pod).await else { return false };
            let pod = Pod::of_json(&object);
            let restarts = pod.container(&self.container).map_or(0, |container| container.restarts);
            if pod.uid != self.uid || restarts > number {
                return true;
            }
            if pod.ended() || Instant::now() > until {
                return false;
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends the lines read; returns false if the reader is gone.
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
            return !self.out.is_closed();
        }
        let mut batch = LogBatch::new(Arc::clone(&attempt.source), Vec::new(), attempt.resume.cursor());
        (batch.bytes, batch.lines) = (fed.bytes, fed.lines);
        put(&self.out, batch).await
    }

    pub async fn mark(&self, attempt: &Attempt, mark: Mark) -> bool {
        let batch = LogBatch::marked(Arc::clone(&attempt.source), mark, attempt.resume.cursor());
        put(&self.out, batch).await
    }
}
