//! Watches NCCL's RAS service in a running job: a report for each change of its state.

use std::time::Duration;

use crate::report::{Asked, HealthReport};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use weftrun_core::Result;
use weftrun_core::backend::PortConnection;
use weftrun_core::log::LogOptions;
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::{self, EventReader, MONITOR, PeerEvent};
use weftrun_diagnose::health::INTERVAL;

use super::{
    Answer, COLLECT, HealthOptions, Judged, Next, NoReport, PLACES, Tcp, Watch, Way, check_address, places,
    port, query_address, refusal,
};
use crate::Job;
use crate::runtime::on_runtime;

/// Receives each report of a watch.
type OnReport<'a> = &'a mut dyn FnMut(&HealthReport) -> Result<()>;

/// Consecutive requests without an answer that end a watch after earlier answers.
const SILENT: usize = 3;

/// Largest number of events between two reports; further events are dropped.
const EVENTS: usize = 256;

impl Job {
    /// Watches NCCL's RAS service inside the job until the job ends: `on_report` is called with the first state, with
    /// each change, and with each event that NCCL reports. The service is queried every ten seconds; over a port, a
    /// monitor connection also reports events at once. A version of NCCL that is not safe to query repeatedly is queried
    /// once.
    ///
    /// # Errors
    /// Those of [`Job::describe`] and of `on_report`. A missing answer is a state, not an error.
    pub async fn watch_health(&self, options: &HealthOptions, on_report: OnReport<'_>) -> Result<()> {
        let summary = self.describe().await?.summary;
        if summary.phase.is_terminal() {
            return on_report(&self.health(options).await?);
        }
        let (target, logs) = Target::of(self).await;
        watch(target, &logs, options, on_report).await
    }
}

/// Does the same with the RAS service at `HOST:PORT`, until it no longer answers.
///
/// # Errors
/// [`ErrorKind::Usage`](weftrun_core::ErrorKind::Usage) if it is not an address, and the errors of `on_report`.
pub async fn watch_health_at(
    address: &str,
    logs: &TransportMap,
    options: &HealthOptions,
    on_report: OnReport<'_>,
) -> Result<()> {
    check_address(address)?;
    on_runtime(watch(Target::Address(address), logs, options, on_report)).await
}

/// The RAS service that is queried.
pub(super) enum Target<'a> {
    Address(&'a str),
    Job { job: &'a Job, port: u16, places: Vec<u32>, at: usize, way: Way },
}

impl<'a> Target<'a> {
    /// Returns the service of a job, and what the job's logs prove.
    pub async fn of(job: &'a Job) -> (Self, TransportMap) {
        let logs = job.read_logs(LogOptions::default()).await.map;
        (Self::new(job, &logs), logs)
    }

    /// Returns the service of a job whose logs were read.
    pub fn new(job: &'a Job, logs: &TransportMap) -> Self {
        let mut places = places(logs);
        places.truncate(PLACES);
        let way = if job.backend().capability().ports { Way::Port } else { Way::Exec(String::new()) };
        Self::Job { job, port: port(logs, job.plan()), places, at: 0, way }
    }

    /// Sends one query.
    pub async fn ask<A: Answer>(
        &mut self,
        request: &str,
        limit: Duration,
    ) -> std::result::Result<A, NoReport> {
        let answer = async {
            match self {
                Self::Address(address) => query_address(address, request).await.map_err(NoReport::Next),
                Self::Job { job, port, places, at, way } => {
                    job.query(*port, places.get(*at).copied(), way, request).await
                }
            }
        };
        let late = |_| Err(NoReport::Next(format!("no answer within {} s", limit.as_secs())));
        timeout(limit, answer).await.unwrap_or_else(late)
    }

    /// Describes how queries are sent.
    pub fn via(&self) -> String {
        match self {
            Self::Address(address) => format!("tcp {address}"),
            Self::Job { places, at, way, .. } => {
                let name = way.name();
                places.get(*at).map_or_else(|| name.to_owned(), |rank| format!("{name} on rank {rank}"))
            }
        }
    }

    /// Returns whether a place of the job was not tried yet.
    pub fn has_further_place(&self) -> bool {
        matches!(self, Self::Job { places, at, .. } if *at + 1 < places.len())
    }

    /// Opens a connection that reports events; none if the service is reached by a command.
    async fn connect(&self) -> Option<Box<dyn PortConnection>> {
        match self {
            Self::Address(address) => {
                Some(Box::new(Tcp::from(tokio::net::TcpStream::connect(address).await.ok()?)))
            }
            Self::Job { way: Way::Exec(_), .. } => None,
            Self::Job { job, port, places, at, .. } => {
                job.open_port(places.get(*at).copied(), *port).await.ok()
            }
        }
    }

    /// Returns how many places can be tried at once, before the first answer.
    fn places(&self) -> usize {
        match self {
            Self::Address(_) => 1,
            Self::Job { places, .. } => places.len().max(1),
        }
    }

    /// Moves on to another place of the job after one that did not answer.
    pub fn advance(&mut self) {
        if let Self::Job { places, at, .. } = self {
            *at = if *at + 1 < places.len() { *at + 1 } else { 0 };
        }
    }

    /// Returns why there can be no further answer, once the job has ended.
    async fn ended(&self) -> Result<Option<String>> {
        let Self::Job { job, .. } = self else { return Ok(None) };
        let phase = job.describe().await?.summary.phase;
        Ok(phase.is_terminal().then(|| format!("the job is {}", phase.as_str())))
    }
}

async fn watch(
    mut target: Target<'_>,
    logs: &TransportMap,
    options: &HealthOptions,
    on_report: OnReport<'_>,
) -> Result<()> {
    if let Some((state, reason)) = refusal(logs, options) {
        return on_report(&HealthReport::without_answer(state, reason, Asked::default()));
    }
    let mut watch = Watch::new(logs, options);
    let mut monitor: Option<Monitor> = None;
    let mut last: Option<HealthReport> = None;
    let mut silent = 0;
    loop {
        let next = Instant::now() + INTERVAL;
        let answer = target.ask(&ras::request(COLLECT), options.timeout).await;
        match watch.judge(answer, &target.via()) {
            Ok(Judged { report, repeatable }) => {
                silent = 0;
                if last.as_ref().is_none_or(|last| differs(last, &report)) {
                    on_report(&report)?;
                }
                last = Some(report);
                if !repeatable {
                    return Ok(());
                }
                if monitor.as_ref().is_none_or(Monitor::is_over) {
                    monitor = timeout(options.timeout, Monitor::open(&target)).await.ok().flatten();
                }
            }
            Err(Next::Done(report)) => return on_report(&report),
            Err(Next::Elsewhere(mut report)) => {
                silent += 1;
                let ended = target.ended().await?;
                report.reason = ended.clone().unwrap_or(report.reason);
                monitor = None;
                target.advance();
                if last.is_none() && ended.is_none() && silent < target.places() {
                    continue;
                }
                // The ranks of a running job may not have initialised NCCL yet; an address without a job is given up.
                let gives_up = match target {
                    Target::Address(_) => last.is_none() || silent >= SILENT,
                    Target::Job { .. } => false,
                };
                let is_last = ended.is_some() || gives_up;
                if is_last || last.as_ref().is_none_or(|before| differs(before, &report)) {
                    on_report(&report)?;
                }
                if is_last {
                    return Ok(());
                }
                last = Some(report);
            }
            Err(Next::Repeat) => {}
        }
        while let Some(events) = Monitor::until(&mut monitor, next).await {
            if let Some(last) = &last {
                let mut report = last.clone();
                report.events = events;
                on_report(&report)?;
            }
        }
    }
}

/// Returns whether the state or the culprits differ from the previous report. Counts that grow are not a change.
fn differs(last: &HealthReport, report: &HealthReport) -> bool {
    let named = |report: &HealthReport| -> Vec<(String, u64)> {
        report.culprits.iter().map(|culprit| (culprit.host.clone(), culprit.pid)).collect()
    };
    last.state != report.state || named(last) != named(report)
}

/// A monitor connection, read by a separate task.
struct Monitor {
    events: mpsc::Receiver<PeerEvent>,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Opens a monitor connection; none if the server does not support the command.
    async fn open(target: &Target<'_>) -> Option<Self> {
        let connection = target.connect().await?;
        let mut first = Vec::new();
        for line in MONITOR {
            connection.send(format!("{line}\n").as_bytes()).await.ok()?;
            let mut answer = Vec::new();
            while !answer.contains(&b'\n') && answer.len() < 4096 {
                let bytes = connection.receive().await.ok().filter(|bytes| !bytes.is_empty())?;
                answer.extend_from_slice(&bytes);
            }
            if answer.starts_with(b"ERROR") {
                return None;
            }
            // The answer to the last line may also contain an event.
            first = answer;
        }
        let (to, events) = mpsc::channel(EVENTS);
        let task = tokio::spawn(async move {
            let mut reader = EventReader::default();
            let mut bytes = first;
            while !bytes.is_empty() {
                for event in reader.feed(&bytes) {
                    // Events beyond the capacity are dropped, since the next query shows the state.
                    let _ = to.try_send(event);
                }
                bytes = connection.receive().await.unwrap_or_default();
            }
        });
        Some(Self { events, task })
    }

    fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for events until `deadline`.
    async fn until(monitor: &mut Option<Self>, deadline: Instant) -> Option<Vec<PeerEvent>> {
        let Some(open) = monitor else {
            tokio::time::sleep_until(deadline).await;
            return None;
        };
        let mut events = Vec::new();
        let count = tokio::time::timeout_at(deadline, open.events.recv_many(&mut events, EVENTS)).await;
        match count {
            Ok(0) => {
                *monitor = None;
                tokio::time::sleep_until(deadline).await;
                None
            }
            Ok(_) => Some(events),
            Err(_) => None,
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}
