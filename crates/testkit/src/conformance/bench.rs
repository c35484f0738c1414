//! The helpers of a check: a connection, jobs, and their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use weftrun_core::backend::{Backend, Capability, Rendered};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind};

use super::{Checked, Fixture, Verdict};

/// The environment of a check.
pub struct Bench<'a> {
    /// The backend's fixture.
    pub fixture: &'a dyn Fixture,
    /// What it submitted.
    pub(super) jobs: SubmittedJobs,
}

/// A job with the connection that it was submitted by.
type Connected = (Arc<dyn Backend>, JobHandle);

/// Jobs that a check submitted.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmittedJobs(Arc<Mutex<Vec<Connected>>>);

impl SubmittedJobs {
    /// Adds one.
    pub fn add(&self, backend: &Arc<dyn Backend>, job: &JobHandle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((backend.clone(), job.clone()));
    }

    /// Returns those that were added since it was called last.
    pub fn take(&self) -> Vec<Connected> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").finish_non_exhaustive()
    }
}

/// A submitted job, with its connection.
#[derive(Debug)]
pub struct Submitted {
    /// The connection.
    pub backend: Arc<dyn Backend>,
    /// What was sent.
    pub rendered: Rendered,
    /// What came back.
    pub handle: JobHandle,
}

/// Everything read from a job's logs.
#[derive(Debug, Default)]
pub struct Read {
    /// Bytes of each source, by its uid and attempt.
    pub bytes: BTreeMap<(String, u32), Vec<u8>>,
    /// Where each source continues.
    pub cursors: BTreeMap<String, Cursor>,
    /// Ranks that the sources report.
    pub ranks: Vec<u32>,
    /// Marks other than the end.
    pub marks: Vec<Mark>,
    /// Batches read.
    pub batches: usize,
    /// Sources that ended.
    pub ended: usize,
}

impl Read {
    /// Adds a batch; an error describes an invalid batch.
    pub fn take(&mut self, batch: &LogBatch) -> Result<(), String> {
        let ends: Vec<_> = memchr::memchr_iter(b'\n', &batch.bytes).map(|at| at + 1).collect();
        if batch.lines.iter().map(|line| line.end).ne(ends) {
            return Err(format!("the line ends of a batch of {} are not those of its bytes", batch.source));
        }
        self.batches += 1;
        let id = (batch.source.uid.clone(), batch.source.attempt);
        self.bytes.entry(id).or_default().extend_from_slice(&batch.bytes);
        self.cursors.insert(batch.source.uid.clone(), batch.cursor.clone());
        match &batch.mark {
            Some(Mark::Ended { .. }) => self.ended += 1,
            Some(mark) => self.marks.push(mark.clone()),
            None => {}
        }
        if let Some(rank) = batch.source.rank
            && !self.ranks.contains(&rank)
        {
            self.ranks.push(rank);
        }
        Ok(())
    }

    /// Adds what was read after it.
    pub fn extend(&mut self, later: Self) {
        for (source, bytes) in later.bytes {
            self.bytes.entry(source).or_default().extend(bytes);
        }
        self.cursors.extend(later.cursors);
        self.marks.extend(later.marks);
    }

    /// Returns how often these bytes occur in all sources.
    pub fn count(&self, word: &[u8]) -> usize {
        self.bytes.values().map(|bytes| memchr::memmem::find_iter(bytes, word).count()).sum()
    }

    /// Returns the lines that contain a word, of all sources, from that word on.
    pub fn lines_with(&self, word: &str) -> Vec<String> {
        let text = self.bytes.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let lines = text.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.filter_map(|line| line.find(word).map(|at| line[at..].to_owned())).collect()
    }
}

/// Converts an error to the text of a failed check.
pub fn said(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

impl<'a> Bench<'a> {
    /// Creates a bench.
    pub fn new(fixture: &'a dyn Fixture) -> Self {
        Self { fixture, jobs: SubmittedJobs::default() }
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Arc<dyn Backend>, String> {
        self.fixture.connect().await.map_err(said("connect"))
    }

    /// Returns the backend's capability.
    pub async fn capability(&self) -> Result<Capability, String> {
        Ok(self.connect().await?.capability())
    }

    /// Returns a unique job name.
    pub fn name(&self) -> String {
        format!("weft-{:08x}", fastrand::u32(..))
    }

    /// Returns the job of a script in the suite's shape.
    pub fn job(&self, script: &str) -> JobSpec {
        let (nodes, ranks) = self.fixture.shape();
        self.fixture.job(&self.name(), nodes, ranks, script)
    }

    /// Returns the number of ranks of the suite's jobs.
    pub fn world(&self) -> u32 {
        let (nodes, ranks) = self.fixture.shape();
        nodes * ranks
    }

    /// Submits the job of a script.
    pub async fn submit(&self, script: &str) -> Result<Submitted, String> {
        self.submit_spec(self.job(script)).await
    }

    /// Submits a job.
    pub async fn submit_spec(&self, spec: JobSpec) -> Result<Submitted, String> {
        let backend = self.connect().await?;
        let rendered = backend.render(&self.fixture.plan(spec)).map_err(said("render"))?;
        let handle = backend.submit(&rendered).await.map_err(said("submit"))?;
        self.jobs.add(&backend, &handle);
        Ok(Submitted { backend, rendered, handle })
    }
}

impl Submitted {
    /// Watches until the stream ends; the last summary must be of an ended job.
    pub async fn wait(&self) -> Result<JobSummary, String> {
        let mut last = None;
        let mut events = self.backend.watch(JobFilter::one(&self.handle));
        while let Some(event) = events.next().await {
            match event.map_err(said("watch"))? {
                JobEvent::Status { job } if job.handle == self.handle => last = Some(job),
                JobEvent::Status { job } => {
                    return Err(format!("the watch of {} told of {}", self.handle, job.handle));
                }
                _ => {}
            }
        }
        match last {
            Some(job) if job.phase.is_terminal() => Ok(job),
            Some(job) => Err(format!("the watch ended while the job was {}", job.phase)),
            None => Err("the watch ended without a word of the job".to_owned()),
        }
    }

    /// Watches until the stream ends; the job must then be in a phase.
    pub async fn ends(&self, wanted: JobPhase) -> Result<JobSummary, String> {
        let end = self.wait().await?;
        must(end.phase == wanted, || format!("it is {} ({}), not {wanted}", end.phase, end.reason))?;
        Ok(end)
    }

    /// Watches until the job is in a phase.
    pub async fn until(&self, wanted: JobPhase) -> Result<(), String> {
        let mut events = self.backend.watch(JobFilter::one(&self.handle));
        while let Some(event) = events.next().await {
            match event.map_err(said("watch"))?.phase() {
                Some(phase) if phase == wanted => return Ok(()),
                Some(phase) if phase.is_terminal() => {
                    return Err(format!("the job is {phase} before {wanted}"));
                }
                _ => {}
            }
        }
        Err(format!("the watch ended before the job was {wanted}"))
    }

    /// Reads logs until the stream ends or enough batches have come.
    pub async fn read(&self, options: LogOptions, most: usize) -> Result<Read, String> {
        let mut read = Read::default();
        let mut batches = self.backend.logs(&self.handle, options);
        while read.batches < most {
            let Some(batch) = batches.next().await else { break };
            read.take(&batch.map_err(said("logs"))?)?;
        }
        Ok(read)
    }

    /// Follows the logs to their end.
    pub async fn follow(&self) -> Result<Read, String> {
        self.read(LogOptions::follow(), usize::MAX).await
    }

    /// Waits until every rank has written a word.
    pub async fn until_written(&self, word: &str, times: usize) -> Result<(), String> {
        let mut read = Read::default();
        let mut batches = self.backend.logs(&self.handle, LogOptions::follow());
        while let Some(batch) = batches.next().await {
            read.take(&batch.map_err(said("logs"))?)?;
            if read.lines_with(word).len() >= times {
                return Ok(());
            }
        }
        Err(format!("the logs ended with {} lines of `{word}`, not {times}", read.lines_with(word).len()))
    }

    /// Ends the job and removes it if possible, as a check's last step.
    pub async fn done(self) -> Checked {
        let end = if self.backend.capability().delete { Action::Delete } else { Action::Cancel };
        let Err(error) = self.backend.act(&self.handle, end).await else { return Ok(Verdict::Passed) };
        // A job that ends just then can no longer be cancelled, and need not.
        let ended =
            self.backend.describe(&self.handle).await.is_ok_and(|job| job.summary.phase.is_terminal());
        if ended && end == Action::Cancel {
            Ok(Verdict::Passed)
        } else {
            Err(said("ending the check's job")(error))
        }
    }
}

/// Checks that an action is refused with the capability's name.
pub async fn refuses(job: Submitted, action: Action, capability: &str) -> Checked {
    match job.backend.act(&job.handle, action).await {
        Ok(()) => Err(format!("{action:?} is not among its capabilities, and yet was no error")),
        Err(error) if error.kind() != ErrorKind::Unsupported => {
            Err(format!("{action:?} is of kind {:?}, not Unsupported: {error}", error.kind()))
        }
        Err(error) if !error.to_string().contains(capability) => {
            Err(format!("the refusal of {action:?} does not name the capability `{capability}`: {error}"))
        }
        Err(error) if error.hints().is_empty() => {
            Err(format!("the refusal of {action:?} does not say what to try: {error}"))
        }
        Err(_) => job.done().await,
    }
}

/// Checks a claim.
pub fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
