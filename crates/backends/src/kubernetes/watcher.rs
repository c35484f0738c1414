//! A list and a watch as one stream that continues after 410 Gone, a restarted API server and a rotated
//! token.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use tokio::time::Instant;
use weftrun_core::{ErrorKind, Result};

use super::{Cluster, Resource, from_kube};

/// A change of the watched objects.
#[derive(Debug)]
pub enum Change<T> {
    /// The complete list: the first, or a new one after the watch could not be continued. Objects that are
    /// not in it are gone.
    All(Vec<T>),
    /// An object is new or changed.
    Set(T),
    /// An object is gone.
    Gone(T),
    /// The connection is lost; it is retried until it is back.
    Lost(String),
    /// The connection is back.
    Back,
}

/// How often credentials that never worked may be refused before the refusal is final.
const REFUSALS: u32 = 3;
/// How long credentials that did work may be refused: a token's file is read again after a minute, and an API
/// server that has just started has not loaded Roles yet.
pub(super) const ROTATION: Duration = Duration::from_secs(90);
/// Objects per page, which is held in memory as JSON: a pod takes some 20 KiB, an event 2.
const PAGE: u32 = 200;
const EVENTS_PAGE: u32 = 1000;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Watches the objects of a label selector (all if empty) in the cluster's namespace. `read` keeps the needed
/// part of each, so that thousands of whole objects are never in memory. The stream ends only with an error
/// that no retry can fix: missing rights, a kind that is not served.
pub fn changes<T: Send + 'static>(
    cluster: &Cluster,
    resource: &Resource,
    selector: &str,
    read: impl Fn(DynamicObject) -> T + Send + 'static,
) -> BoxStream<'static, Result<Change<T>>> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource.api_resource());
    let page = if *resource == Resource::EVENTS { EVENTS_PAGE } else { PAGE };
    let mut config = watcher::Config::default().page_size(page);
    if !selector.is_empty() {
        config = config.labels(selector);
    }
    let state = Watch {
        events: watcher::watcher(api, config).boxed(),
        read: Box::new(read),
        what: format!("watch {}", resource.plural),
        ready: VecDeque::new(),
        listed: Vec::new(),
        failures: 0,
        failing: None,
        worked: false,
        lost: false,
        over: false,
    };
    stream::unfold(state, |mut state| async move {
        let next = state.next().await?;
        Some((next, state))
    })
    .boxed()
}

struct Watch<T> {
    events: BoxStream<'static, watcher::Result<Event<DynamicObject>>>,
    read: Box<dyn Fn(DynamicObject) -> T + Send>,
    what: String,
    ready: VecDeque<Change<T>>,
    listed: Vec<T>,
    failures: u32,
    /// Start of the failures.
    failing: Option<Instant>,
    /// Whether it ever worked.
    worked: bool,
    lost: bool,
    over: bool,
}

impl<T> Watch<T> {
    async fn next(&mut self) -> Option<Result<Change<T>>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(Ok(change));
            }
            if self.over {
                return None;
            }
            match self.events.next().await? {
                Ok(event) => self.event(event),
                Err(error) => {
                    if let Some(error) = self.failed(error).await {
                        self.over = true;
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    fn event(&mut self, event: Event<DynamicObject>) {
        match event {
            // The start of a relist does not prove that the connection works.
            Event::Init => {
                self.listed.clear();
                return;
            }
            Event::InitApply(object) => {
                self.listed.push((self.read)(object));
                return;
            }
            _ => {}
        }
        (self.failures, self.failing, self.worked) = (0, None, true);
        if std::mem::take(&mut self.lost) {
            self.ready.push_back(Change::Back);
        }
        self.ready.push_back(match event {
            Event::Apply(object) => Change::Set((self.read)(object)),
            Event::Delete(object) => Change::Gone((self.read)(object)),
            _ => Change::All(std::mem::take(&mut self.listed)),
        });
    }

    /// Returns the error if it is final; otherwise waits for a while.
    async fn failed(&mut self, error: watcher::Error) -> Option<weftrun_core::Error> {
        let error = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error,
            watcher::Error::WatchError(status) => kube::Error::Api(status),
            watcher::Error::NoResourceVersion => return None,
        };
        if matches!(&error, kube::Error::Api(status) if status.code == 410) {
            // Too old to be continued: the watcher lists again by itself.
            return None;
        }
        let error = from_kube(error, &self.what);
        self.failures += 1;
        let since = *self.failing.get_or_insert_with(Instant::now);
        let enough = if self.worked { since.elapsed() > ROTATION } else { self.failures >= REFUSALS };
        let refused = error.kind() == ErrorKind::Credentials && enough;
        let final_one =
            !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Credentials | ErrorKind::Protocol);
        if refused || (final_one && !error.is_retryable()) {
            return Some(error);
        }
        // A watch that ended by itself is renewed at once; only a repeated failure is a lost connection.
        if self.failures > 1 && !self.lost {
            self.lost = true;
            self.ready.push_back(Change::Lost(error.message().to_owned()));
        }
        tokio::time::sleep((FIRST_PAUSE * 2u32.saturating_pow(self.failures.min(8) - 1)).min(LONGEST_PAUSE))
            .await;
        None
    }
}
