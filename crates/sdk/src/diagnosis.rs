//! Finds out what is wrong with a job, from all that its state allows: its logs, the cluster's reports, NCCL's RAS service
//! while it runs, and what was seen before it ended.

use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use weftrun_core::finding::Evidence;
use weftrun_core::job::{JobDetail, JobPhase, JobSummary};
use weftrun_core::log::{Entry, LogBatch, LogOptions, LogStore, clean_text};
use weftrun_core::nccl::{FabricSeen, TransportMap};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::cause::{Why, WhyState};
use weftrun_diagnose::health::{HealthState, INTERVAL};
use weftrun_diagnose::nodes::JobRecord;
use weftrun_diagnose::{Diagnosis, OF_SPEED, Sources};

use crate::Job;
use crate::job_tasks::task_of;
use crate::runtime::on_runtime;
use crate::sightings::is_end_from_outside;

/// Largest size of the logs that are read.
pub(crate) const MOST: usize = 1 << 30;

/// How long NCCL's RAS service is observed: long enough for a second answer.
const RAS_OBSERVED: Duration = INTERVAL.saturating_add(Duration::from_secs(3));

/// The code of the note that a job was not added to the history of its nodes.
pub(crate) const HISTORY_UNWRITTEN: &str = "HISTORY-UNWRITTEN";

/// What the logs of a job contain.
pub(crate) struct ReadLogs {
    pub map: TransportMap,
    /// Why they were not read to their end.
    pub unread: Option<String>,
    last: Option<LastLine>,
}

/// The newest line of all ranks, where the cluster or the file has a time of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LastLine {
    time: Timestamp,
    source: String,
    text: String,
}

impl LastLine {
    fn of(batch: &LogBatch) -> Option<Self> {
        let line = batch.lines.last()?;
        let time = line.time.or(batch.written)?;
        let before = batch.lines.len().checked_sub(2).and_then(|at| batch.lines.get(at));
        let bytes = batch.bytes.get(before.map_or(0, |before| before.end)..line.end)?;
        let text = clean_text(&String::from_utf8_lossy(bytes)).trim().chars().take(200).collect();
        Some(Self { time, source: batch.source.name.clone(), text })
    }

    /// Returns a note where a running job has written nothing for longer than a step takes.
    fn quiet(self) -> Option<Finding> {
        const LONG: i64 = 120;
        let silent = weftrun_backends::clock::now().duration_since(self.time).as_secs();
        (silent >= LONG).then(|| {
            let message = format!(
                "no rank has written a line for {silent} s; the last is of {}: {}",
                self.source, self.text
            );
            Finding::info("WHY-QUIET", message)
                .fix("see what the ranks do: `weftrun why JOB --stacks`, `weftrun health JOB`")
        })
    }
}

fn runs(job: &JobSummary) -> bool {
    matches!(job.phase, JobPhase::Running | JobPhase::Restarting)
}

impl Job {
    /// Compares the transports that its logs prove with the plan.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job, map: weftrun::core::nccl::TransportMap) -> weftrun::Result<()> {
    /// job.diagnose(&map).into_result()?; // an error when planned EFA ran on sockets
    /// # Ok(())
    /// # }
    /// ```
    pub fn diagnose(&self, map: &TransportMap) -> Diagnosis {
        Sources::of_logs(map).plan(self.plan()).diagnose()
    }

    /// Finds out why it failed or hangs: the first cause, from its logs and the cluster's reports.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// if let Some(cause) = job.why().await?.cause {
    ///     println!("{}: {}", cause.who(), cause.what);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// At most 1 GiB of logs is read, and of a large job those of [`Job::telling_logs`]. Of a running job whose logs show nothing, NCCL's RAS service is asked where its
    /// version is safe to ask; of a job that was cancelled or is gone, what was seen while it ran is the answer.
    ///
    /// # Errors
    /// As [`Job::describe`]. Unreadable logs are not an error: the answer then relies on what was read.
    pub async fn why(&self) -> Result<Why> {
        match self.describe().await {
            Ok(detail) => Ok(self.why_with(&detail).await),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // What the cluster says of its absence: its namespace was deleted.
                let mut absent = JobDetail::new(JobSummary::new(self.handle().clone(), JobPhase::Failed));
                absent.findings = error.findings().to_vec();
                let is_explained = !absent.findings.is_empty();
                let job = is_explained.then_some(&absent);
                let mut why = Sources::of_logs(&TransportMap::new()).job(job).diagnose().why;
                if !is_explained {
                    self.sightings().recall(self.handle(), &mut why);
                }
                let gone = Finding::warning("WHY-GONE", error.to_string());
                why.findings.extend((!is_explained).then_some(gone));
                if why.cause.is_some() { Ok(why) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Diagnoses a job like [`Job::why`], from a description that is known.
    pub async fn why_with(&self, detail: &JobDetail) -> Why {
        if let Some(mut why) = self.why_of_tasks(detail).await {
            why.findings.extend(self.keep_tasks(detail).await);
            return why;
        }
        let (options, chosen) = self.telling_logs(detail);
        let ReadLogs { map, unread, last } = self.read_logs(options).await;
        let Diagnosis { mut why, verdict, .. } =
            Sources::of_logs(&map).plan(self.plan()).job(Some(detail)).diagnose();
        why.findings.extend(chosen);
        why.findings.extend(unread.map(|message| Finding::warning("WHY-LOGS-UNREAD", message)));
        if runs(&detail.summary) {
            self.explain_running(&mut why, &map, RAS_OBSERVED).await;
            if why.cause.is_none() {
                why.findings.extend(last.and_then(LastLine::quiet));
            }
        } else if detail.summary.phase == JobPhase::Stopping {
            // The log of a job that is being cancelled says already that it was ended from outside.
            if why.cause.as_ref().is_some_and(is_end_from_outside) {
                why.state = WhyState::Cancelled;
                self.sightings().recall(self.handle(), &mut why);
            }
        } else if matches!(detail.summary.phase, JobPhase::Failed | JobPhase::Cancelled)
            && !self.sightings().recall(self.handle(), &mut why)
        {
            self.sightings().keep(self.handle(), &why);
        }
        let note = self.keep_end(detail, Some(&why), verdict.fabric).await;
        why.findings.extend(note);
        why
    }

    /// Adds the job to the history of its target, once it has ended: its nodes, its outcome, the cause of its failure, and the
    /// fabric that its logs show. Of a job of many tasks, each task that has ended is added, and the job itself is not: it is no run.
    /// Returns a note where that failed, which has no effect on the job.
    pub async fn keep_end(
        &self,
        detail: &JobDetail,
        why: Option<&Why>,
        fabric: FabricSeen,
    ) -> Option<Finding> {
        if detail.summary.tasks.is_some() {
            return self.keep_tasks(detail).await;
        }
        self.keep_record(self.record_of_end(detail, why, fabric)?).await
    }

    /// Returns what the history says of the job's end; none before it, and where no history is kept.
    pub(crate) fn record_of_end(
        &self,
        detail: &JobDetail,
        why: Option<&Why>,
        fabric: FabricSeen,
    ) -> Option<JobRecord> {
        self.history()?;
        let mut record = JobRecord::of(detail, why, weftrun_backends::clock::now())?;
        (record.set, record.task) = task_of(detail).unzip();
        record.fabric = (fabric != FabricSeen::Unknown).then(|| fabric.label().to_owned());
        let gpus = |spec: &JobSpec| {
            spec.workers()
                .fold(0_u32, |sum, role| sum.saturating_add(role.nodes.saturating_mul(role.gpus_per_node)))
        };
        record.gpus = self.spec().map(gpus);
        Some(record)
    }

    pub(crate) async fn keep_record(&self, record: JobRecord) -> Option<Finding> {
        let history = self.history()?.clone();
        // It waits for other processes and for the disk.
        let written = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(move || history.append(&record)).await,
            Err(_) => Ok(history.append(&record)),
        };
        let error = match written {
            Ok(written) => written.err()?,
            Err(failed) => {
                Error::new(ErrorKind::Unexpected, "writing it was not finished").with_source(failed)
            }
        };
        let message = format!("the end of the job was not added to the history of its nodes: {error}");
        let fix = "free some space or check the permissions, or set `[history] path` to another folder; `enabled = false` keeps none";
        Some(Finding::info(HISTORY_UNWRITTEN, message).fix(fix))
    }

    /// Adds what NCCL's RAS service says where the logs of a running job show no cause, and keeps what was found.
    async fn explain_running(&self, why: &mut Why, map: &TransportMap, observed: Duration) {
        let health = match why.cause {
            None => self.explain_by_ras(why, map, observed).await,
            Some(_) => None,
        };
        self.sightings().compare(self.handle(), why);
        self.keep_seen(why, health == Some(HealthState::Healthy));
        // The cluster says whether it has ended.
        if why.state == WhyState::Failed {
            why.state = WhyState::Running;
        }
    }

    /// Keeps what was found of a running job, or forgets what was seen of one that is well.
    pub(crate) fn keep_seen(&self, why: &Why, is_well: bool) {
        if is_well && why.cause.is_none() {
            self.sightings().forget(self.handle());
        } else {
            self.sightings().keep(self.handle(), why);
        }
    }

    /// What is wrong with a job, for a summary of it. A job that has ended is diagnosed as by [`Job::why`]. Of one that runs,
    /// its logs and one answer of NCCL's RAS service are read for a few seconds at most: the answer is none if they show
    /// neither a failure nor a hang nor a rank for which the others wait, or a rank that goes on training afterwards, and its
    /// state stays that of a running job.
    /// Jobs with more than 64 replicas are left out: [`Job::why_with`] reads any job whole.
    pub async fn trouble(&self, detail: &JobDetail) -> Option<Why> {
        const REPLICAS: usize = 64;
        match detail.summary.phase {
            JobPhase::Failed | JobPhase::Cancelled => Some(self.why_with(detail).await)
                .filter(|why| why.state == WhyState::Failed || why.cause.is_some()),
            _ if !runs(&detail.summary) || detail.replicas.len() > REPLICAS => None,
            _ => self.trouble_while_running(detail).await,
        }
    }

    async fn trouble_while_running(&self, detail: &JobDetail) -> Option<Why> {
        let map = on_runtime(async { Ok(self.read_logs_soon().await) }).await.ok()??;
        let mut why = Sources::of_logs(&map).plan(self.plan()).job(Some(detail)).diagnose().why;
        // A program that continues training has coped with it, for example with a smaller batch.
        let snapshot = map.snapshot();
        let goes_on = why.cause.iter().flat_map(|cause| &cause.evidence).any(|evidence| {
            let mut series = snapshot.throughput();
            series.any(|(source, series)| source == evidence.source && series.last().line > evidence.line)
        });
        if goes_on {
            return None;
        }
        self.explain_running(&mut why, &map, Duration::ZERO).await;
        let slow = why.findings.iter().any(|finding| OF_SPEED.contains(&&*finding.code));
        (why.cause.is_some() || slow).then_some(why)
    }

    /// Keeps what is wrong with a job that is about to be cancelled or deleted, so that [`Job::why`] can say it afterwards: a
    /// rank that hangs leaves nothing in its log. Takes two seconds at most.
    pub async fn keep_trouble(&self) {
        const TIME: Duration = Duration::from_secs(2);
        let look = async {
            if let Ok(detail) = self.describe().await {
                self.trouble(&detail).await;
            }
        };
        let limited = Box::pin(on_runtime(async { Ok(tokio::time::timeout(TIME, look).await) }));
        let _ = limited.await;
    }

    /// Reads the present logs as far as a few seconds allow: whole, or else their last lines.
    async fn read_logs_soon(&self) -> Option<TransportMap> {
        const LINES: u64 = 2000;
        const WHOLE: Duration = Duration::from_secs(3);
        const TAIL: Duration = Duration::from_secs(5);
        let whole = self.read_logs(LogOptions::default());
        if let Ok(ReadLogs { map, unread: None, .. }) = tokio::time::timeout(WHOLE, whole).await {
            return Some(map);
        }
        let mut options = LogOptions::default();
        options.tail = Some(LINES);
        tokio::time::timeout(TAIL, self.read_logs(options)).await.ok().map(|read| read.map)
    }

    /// Returns the last line of a rank.
    pub(crate) async fn last_line(&self, rank: u32) -> Option<Evidence> {
        const LINES: u64 = 200;
        const TIME: Duration = Duration::from_secs(5);
        let mut options = LogOptions::default();
        (options.tail, options.ranks) = (Some(LINES), vec![rank]);
        let mut store = LogStore::new(1 << 20);
        let reading = async {
            let mut logs = self.logs(options);
            while let Some(Ok(batch)) = logs.next().await {
                store.ingest(&batch);
            }
        };
        tokio::time::timeout(TIME, reading).await.ok()?;
        let of_rank = |entry: &Entry| {
            let stream = store.streams().get(entry.stream as usize)?;
            let text = entry.clean().text;
            let wanted = stream.rank == Some(rank) && !entry.mark && !text.trim().is_empty();
            wanted.then(|| Evidence {
                source: stream.source.name.clone(),
                line: 0,
                text: text.chars().take(200).collect(),
            })
        };
        store.before(store.end()).find_map(|entry| of_rank(&entry))
    }

    /// Reads the present logs.
    pub(crate) async fn read_logs(&self, options: LogOptions) -> ReadLogs {
        let mut map = TransportMap::new();
        let (mut read, mut unread, mut last) = (0usize, None, None);
        let mut logs = self.logs(options);
        while let Some(batch) = logs.next().await {
            match batch {
                Ok(batch) => {
                    read = read.saturating_add(batch.bytes.len());
                    last = last.max(LastLine::of(&batch));
                    batch.read_into(&mut map);
                }
                Err(error) => unread = Some(format!("the logs cannot be read to their end: {error}")),
            }
            if read > MOST {
                unread = Some("the logs are longer than 1 GiB; the rest was not read".to_owned());
            }
            if unread.is_some() {
                break;
            }
        }
        map.end_all();
        ReadLogs { map, unread, last }
    }
}
