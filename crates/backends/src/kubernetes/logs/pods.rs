//! Starts one reader per container from the watch of the pods.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use weftrun_core::Result;

use super::follower::Follower;
use super::limiter::Limiter;
use super::view::View;
use super::{LogJob, Out};
use crate::kubernetes::{Change, Pod, Resource, changes};

/// How long pods that are not being deleted may run on after their job has ended (a PyTorchJob with
/// `cleanPodPolicy: None` leaves its workers running).
const LINGER: Duration = Duration::from_secs(15);
/// How long pods that are being deleted may take: the grace period of a pod is 30 s by default, and a
/// controller that lost the API server needs up to 45 s to recover.
const DELETING: Duration = Duration::from_secs(90);

struct Readers<'a> {
    job: &'a LogJob,
    out: &'a Out,
    limiter: Limiter,
    /// By source uid.
    views: HashMap<String, watch::Sender<View>>,
    pods: HashMap<String, Pod>,
    tasks: JoinSet<()>,
    listed: bool,
    /// Roles and numbers of all pods seen so far.
    places: HashSet<(String, u32)>,
}

/// Follows all containers until the job and they have ended.
pub async fn follow(job: &LogJob, out: &Out) -> Result<()> {
    let mut readers = Readers {
        job,
        out,
        limiter: job.limiter(),
        views: HashMap::new(),
        pods: HashMap::new(),
        tasks: JoinSet::new(),
        listed: false,
        places: HashSet::new(),
    };
    let mut ended = job.ended.clone();
    let mut pods = changes(&job.cluster, &Resource::PODS, &job.selector, |object| Pod::of(&object));
    let mut since: Option<Instant> = None;
    let mut waiting = false;
    loop {
        if *ended.borrow_and_update() {
            let since = *since.get_or_insert_with(Instant::now);
            if readers.nothing_more(since.elapsed()) {
                break;
            }
        }
        let tick = Instant::now() + Duration::from_millis(500);
        tokio::select! {
            change = pods.next() => match change {
                Some(change) => {
                    readers.change(change?);
                    let waits = readers.listed && !*ended.borrow() && !readers.has_log();
                    if waits && !std::mem::replace(&mut waiting, true) {
                        job.note(out, "no container has started yet; waiting for the first line").await;
                    }
                }
                None => break,
            },
            // The job's watcher is gone only if the job is not followed: then only its pods decide.
            changed = ended.changed(), if since.is_none() => if changed.is_err() {
                since = Some(Instant::now());
            },
            () = sleep_until(tick), if since.is_some() => {}
            Some(_) = readers.tasks.join_next() => {}
            () = out.closed() => return Ok(()),
        }
    }
    readers.finish().await;
    Ok(())
}

impl Readers<'_> {
    fn change(&mut self, change: Change<Pod>) {
        match change {
            Change::All(there) => {
                self.listed = true;
                let uids: HashSet<&str> = there.iter().map(|pod| pod.uid.as_str()).collect();
                let gone: Vec<_> =
                    self.pods.keys().filter(|uid| !uids.contains(uid.as_str())).cloned().collect();
                there.into_iter().for_each(|pod| self.set(pod));
                gone.iter().for_each(|uid| self.gone(uid));
            }
            Change::Set(pod) => self.set(pod),
            Change::Gone(pod) => {
                let uid = pod.uid.clone();
                self.set(pod);
                self.gone(&uid);
            }
            Change::Lost(_) | Change::Back => {}
        }
    }

    fn set(&mut self, pod: Pod) {
        let Some(place) = (self.job.place)(&pod) else { return };
        self.places.insert((place.role, place.replica));
        for (container, source) in self.job.sources(&pod) {
            let view = View::of(&pod, &container);
            if let Some(sender) = self.views.get(&source.uid) {
                sender.send_if_modified(|old| {
                    let changed = *old != view;
                    *old = view;
                    changed
                });
                continue;
            }
            let (sender, receiver) = watch::channel(view);
            self.views.insert(source.uid.clone(), sender);
            let follower =
                Follower::new(self.job, &pod, source, receiver, self.out.clone(), self.limiter.clone());
            self.tasks.spawn(follower.run());
        }
        self.pods.insert(pod.uid.clone(), pod);
    }

    fn gone(&mut self, uid: &str) {
        self.pods.remove(uid);
        let prefix = format!("{uid}/");
        for (source, sender) in &self.views {
            if source.starts_with(&prefix) {
                sender.send_modify(|view| view.gone = true);
            }
        }
    }

    /// Returns whether a container has a log.
    fn has_log(&self) -> bool {
        self.views.values().any(|view| view.borrow().container.has_log())
    }

    /// Returns whether no pod will write anything more, this long after the job ended.
    fn nothing_more(&self, since: Duration) -> bool {
        let quiet = |pod: &Pod| pod.ended() || if pod.deleting { since > DELETING } else { since > LINGER };
        self.listed && self.pods.values().all(quiet)
    }

    /// Waits for the readers to end.
    async fn finish(mut self) {
        if self.views.is_empty() {
            self.job.nothing(self.out, &self.places.iter().map(|(role, _)| role.clone()).collect()).await;
        } else {
            self.job.missing(self.out, &self.places).await;
        }
        for sender in self.views.values() {
            sender.send_modify(|view| view.over = true);
        }
        while self.tasks.join_next().await.is_some() {}
    }
}
