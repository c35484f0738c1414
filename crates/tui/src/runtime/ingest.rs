//! Reads the open job's logs: bytes into the store, NCCL's lines into the transport_view, each batch once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::SignedDuration;
use tokio::sync::{Notify, mpsc};
use weftrun::core::fabric::FabricPlan;
use weftrun::core::job::{JobDetail, JobHandle};
use weftrun::core::log::{LogBatch, LogOptions, LogStore, LogStream, SourceId};
use weftrun::core::nccl::TransportMap;
use weftrun::core::spec::JobSpec;
use weftrun::{Client, Job, Result};

use super::backfill::Backfill;
use super::spill::TempFile;
use super::view_builder::ViewBuilder;
use crate::model::logs::SharedStore;
use crate::model::transport_view::Rank;
use crate::msg::Msg;

/// Bytes of lines held in memory; with everything else, 256 MB in all. The rest goes to the spill.
const BUDGET: usize = 64 << 20;

/// Lines of each source that are read first, where a log can be opened at its end.
const FIRST: u64 = 2_000;

/// Age up to which all lines of a job are taken to come as they are written.
const YOUNG: SignedDuration = SignedDuration::from_secs(3);

/// The same, where a log is opened at its end: there, lines that are not old are known from the others.
const NEW: SignedDuration = SignedDuration::from_secs(1);

/// How long the lines that are written already take to arrive, where a log is opened at its end.
const BACKLOG: Duration = Duration::from_secs(2);

/// Longest that the lines of a job wait for the answer to how old it is.
const SOON: Duration = Duration::from_secs(2);

/// Least time between two transport_views; one that takes long to make comes less often.
const PICTURE: Duration = Duration::from_millis(100);

/// Reads a job's logs until they end or the task is dropped.
pub(super) async fn read(
    client: Client,
    handle: JobHandle,
    previous: bool,
    outbox: mpsc::Sender<Msg>,
    grew: Arc<Notify>,
) {
    let answer = follow(&client, &handle, previous, &outbox, &grew).await;
    let error = answer.err().map(|error| error.to_string());
    let _ = outbox.send(Msg::LogsEnded(handle, error)).await;
}

async fn follow(
    client: &Client,
    handle: &JobHandle,
    previous: bool,
    outbox: &mpsc::Sender<Msg>,
    grew: &Notify,
) -> Result<()> {
    let job = client.attach(handle).await?;
    let from_end = job.backend().capability().log_offsets && !previous;
    let store = LogStore::new(BUDGET).with_attic(Box::new(TempFile::default()));
    let store = SharedStore::new(if from_end { store.with_history() } else { store });
    let _ = outbox.send(Msg::LogsOpened(handle.clone(), store.clone())).await;
    let mut options = LogOptions::follow();
    // Followed, the attempts behind it would come too.
    (options.previous, options.follow) = (previous, !previous);
    let whole = job.logs(options.clone());
    let mut transport_views = TransportViews {
        handle: handle.clone(),
        plan: job.plan().cloned(),
        asked: job.spec().map_or(0, JobSpec::world_size),
        live: false,
        store: store.clone(),
        builder: ViewBuilder::default(),
        outbox: outbox.clone(),
        ended: None,
        touched: false,
        last: Instant::now(),
        spacing: PICTURE,
    };
    let untimed = !previous && !job.backend().capability().log_times;
    transport_views.live = untimed && is_younger(&job, if from_end { NEW } else { YOUNG }).await;
    if from_end {
        options.tail = Some(FIRST);
        return both(&job, (job.logs(options), whole), &store, transport_views, grew).await;
    }
    one(&job, whole, &store, transport_views, grew).await
}

/// Returns whether a running job was made so recently that its lines come as they are written; false if its age is
/// unknown.
async fn is_younger(job: &Job, age: SignedDuration) -> bool {
    let running = describe(job).await.filter(|detail| !detail.summary.phase.is_terminal());
    let created = running.and_then(|detail| detail.summary.created);
    created.is_some_and(|then| weftrun::clock::now().duration_since(then).abs() < age)
}

/// Returns what the cluster reports of a job, if it answers soon.
async fn describe(job: &Job) -> Option<JobDetail> {
    tokio::time::timeout(SOON, job.describe()).await.ok().and_then(Result::ok)
}

type Batches = BoxStream<'static, Result<LogBatch>>;

/// Reads a log from its beginning.
async fn one(
    job: &Job,
    mut stream: Batches,
    store: &SharedStore,
    mut transport_views: TransportViews,
    grew: &Notify,
) -> Result<()> {
    let live = transport_views.live;
    if live {
        store.write(|store| store.watch(weftrun::clock::now()));
    }
    loop {
        tokio::select! {
            biased;
            batch = stream.next() => {
                let Some(batch) = batch else { break };
                let batch = batch?;
                // Before the store: what it drops has been looked at.
                transport_views.observe(&batch, live).await;
                store.write(|store| if live { store.ingest_at(&batch, weftrun::clock::now()) } else { store.ingest(&batch) });
                grew.notify_one();
            }
            () = sleep_until(transport_views.due()) => transport_views.send().await,
        }
    }
    transport_views.finish(job).await;
    Ok(())
}

/// Reads a log from its end, to be shown at once, and from its beginning, for NCCL's lines and the history.
async fn both(
    job: &Job,
    (mut end, mut whole): (Batches, Batches),
    store: &SharedStore,
    mut transport_views: TransportViews,
    grew: &Notify,
) -> Result<()> {
    let mut backfill = Backfill::default();
    let begun = Instant::now();
    let live = transport_views.live;
    let untimed = !job.backend().capability().log_times;
    let patience = if live { Duration::ZERO } else { BACKLOG };
    store.write(|store| store.watch(weftrun::clock::now() + patience));
    let (mut end_over, mut whole_over, mut noted) = (false, false, false);
    while !(end_over && whole_over) {
        let read_on = end_over || !backfill.waits();
        tokio::select! {
            biased;
            batch = end.next(), if !end_over => {
                let Some(batch) = batch else { end_over = true; continue };
                let batch = batch?;
                if begun.elapsed() < BACKLOG || !backfill.has_caught_up() {
                    backfill.note_old(&batch);
                }
                let waited = backfill.end(&batch);
                store.write(|store| {
                    waited.iter().for_each(|batch| store.ingest_history(batch));
                    // The first lines were written before they were asked for.
                    if begun.elapsed() >= patience {
                        store.ingest_at(&batch, weftrun::clock::now());
                    } else {
                        store.ingest(&batch);
                    }
                });
            }
            batch = whole.next(), if !whole_over && read_on => {
                let Some(batch) = batch else { whole_over = true; continue };
                let batch = batch?;
                let caught_up = begun.elapsed() >= BACKLOG && backfill.has_caught_up();
                let comes = caught_up && untimed && backfill.is_new(&batch);
                transport_views.observe(&batch, live || comes).await;
                if let Some(history) = backfill.beginning(batch) {
                    store.write(|store| store.ingest_history(&history));
                }
            }
            () = sleep_until(transport_views.due()) => {
                transport_views.send().await;
                continue;
            }
        }
        if !noted && backfill.is_whole() {
            noted = true;
            store.write(LogStore::end_history);
        }
        grew.notify_one();
    }
    store.write(LogStore::end_history);
    transport_views.finish(job).await;
    Ok(())
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Makes transport_views of what was read, not more often than is worth it.
struct TransportViews {
    handle: JobHandle,
    plan: Option<FabricPlan>,
    /// Number of ranks of the job; 0 if unknown.
    asked: u32,
    /// Whether lines without a time come when they are written.
    live: bool,
    store: SharedStore,
    builder: ViewBuilder,
    outbox: mpsc::Sender<Msg>,
    /// What the cluster reports of the job, once its logs have ended.
    ended: Option<JobDetail>,
    touched: bool,
    last: Instant,
    spacing: Duration,
}

impl TransportViews {
    /// Adds a batch; `comes` if its lines come as they are written.
    async fn observe(&mut self, batch: &LogBatch, comes: bool) {
        self.builder.observe(batch, comes.then(weftrun::clock::now));
        self.touched = true;
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.send().await;
        }
    }

    /// Makes the last view. How a process ended is often reported by the cluster alone.
    async fn finish(&mut self, job: &Job) {
        self.builder.end();
        self.store.write(LogStore::end_sources);
        self.touched = true;
        self.send().await;
        self.ended = describe(job).await.filter(|detail| detail.summary.phase.is_terminal());
        if self.ended.is_some() {
            self.touched = true;
            self.send().await;
        }
    }

    fn due(&self) -> Option<Instant> {
        self.touched.then(|| self.last + self.spacing)
    }

    async fn send(&mut self) {
        if !self.touched {
            return;
        }
        let begun = Instant::now();
        let heard = heard(&self.store.read(), self.builder.map());
        let ended = self.ended.as_ref();
        let transport_view = self.builder.transport_view(self.plan.as_ref(), self.asked, &heard, ended);
        let known = |rank: &Rank| Some(((rank.host.clone(), rank.pid), rank.rank?));
        let ranks = transport_view.ranks.iter().filter_map(known).collect();
        let map = self.builder.map();
        self.store.write(|store| {
            store.learn(&ranks);
            store.mark_past(|source| map.is_earlier_attempt(source));
        });
        self.touched = false;
        self.last = Instant::now();
        self.spacing = PICTURE.max((self.last - begun) * 10);
        let _ = self.outbox.send(Msg::TransportView(self.handle.clone(), Arc::new(transport_view))).await;
    }
}

/// Returns the ranks with output, each with the place that wrote it: a pod, a node.
fn heard(store: &LogStore, map: &TransportMap) -> BTreeMap<u32, String> {
    // A file has no role, and its name is no place.
    let place = |source: &SourceId| match source.role.as_str() {
        "" => String::new(),
        _ => source.name.split('/').next().unwrap_or_default().to_owned(),
    };
    let last = |stream: &&LogStream| stream.lines > 0 && !map.is_earlier_attempt(&stream.source);
    let known = store.streams().iter().filter(last);
    known.filter_map(|stream| Some((stream.rank?, place(&stream.source)))).collect()
}
