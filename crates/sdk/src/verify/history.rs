//! The runs that later ones are compared with: records of the history of their target.

use weftrun_core::job::JobPhase;
use weftrun_core::spec::is_node_name;
use weftrun_core::text::fnv1a;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::nodes::{BandwidthRecord, JobRecord};
use weftrun_verify::{Collective, KeptFigure, KeptRun, Verdict, regressions};

use super::{Verification, Verified};
use crate::JobHistory;

/// The number of runs that are compared with, the newest ones.
const MOST: usize = 500;
/// What stands before the id of a run whose job another program submitted.
const OF_LOGS: &str = "logs:";

/// The runs that later ones are compared with.
///
/// ```
/// use weftrun::core::backend::TargetConfig;
/// use weftrun::core::log::SourceId;
/// use weftrun::core::nccl::TransportMap;
/// use weftrun::verify::{Logs, Subject, Verified};
/// use weftrun::{Config, JobHistory};
///
/// # let state = tempfile::tempdir().unwrap();
/// let config = Config::empty(state.path());
/// let history = JobHistory::of(&config, &TargetConfig::new("prod", "slurm", state.path())).unwrap();
/// let mut logs = Logs::default();
/// logs.add(&SourceId::new("log"), b"2147483648 536870912 float sum -1 9000.0 238.6 78.3 0\n");
/// let mut verified = Verified::of_logs(&logs, TransportMap::new(), &Subject::default());
/// history.keep_baseline(&verified)?;
/// verified.compare(&history.baselines()?);
/// assert!(verified.findings().is_empty(), "it is as fast as it was");
/// # Ok::<(), weftrun::Error>(())
/// ```
impl JobHistory {
    /// Reads the newest 500 runs that later ones are compared with, the oldest first.
    ///
    /// # Errors
    /// As [`JobHistory::read`].
    pub fn baselines(&self) -> Result<Vec<KeptRun>> {
        Ok(baselines_of(&self.read()?.records))
    }

    /// Keeps a run for later comparison. That of a job is its record in the history, if it is there.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a run that failed or was disturbed, whose figures are none to compare with; [`ErrorKind::AlreadyExists`] for one with
    /// exactly the figures of another, which would count twice; those of [`JobHistory::append`].
    pub fn keep_baseline(&self, verified: &Verified) -> Result<()> {
        let run = verified.kept();
        if verified.verdict() == Verdict::Fail || run.figures.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the run is not kept: it failed, or has no figures"));
        }
        if let Some(why) = &verified.disturbed {
            return Err(Error::new(ErrorKind::Usage, format!("the run is not kept: {why}"))
                .hint("`--force` keeps and compares it all the same"));
        }
        let records = self.read()?.records;
        if baselines_of(&records)
            .iter()
            .any(|kept| (&kept.figures, &kept.hosts) == (&run.figures, &run.hosts))
        {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "a run with exactly these figures is kept already",
            ));
        }
        let of_job = |record: &JobRecord| Some(&record.job) == run.job.as_ref();
        let known = records.into_iter().rev().find(of_job);
        let mut record = known.unwrap_or_else(|| record_of(&run));
        record.bandwidth = bandwidth(&run);
        record.baseline = true;
        self.append(&record)
    }
}

/// Returns the newest runs that later ones are compared with, the oldest first.
fn baselines_of(records: &[JobRecord]) -> Vec<KeptRun> {
    let mut runs: Vec<KeptRun> = records.iter().filter(|record| record.baseline).map(kept_run).collect();
    runs.sort_by_key(|run| run.at);
    runs.drain(..runs.len().saturating_sub(MOST));
    runs
}

/// Returns the figures of a run, as the history keeps them.
pub(super) fn bandwidth(run: &KeptRun) -> Vec<BandwidthRecord> {
    let figure = |figure: &KeptFigure| {
        let collective = figure.collective.map(|collective| collective.as_str().to_owned());
        BandwidthRecord::new(collective, figure.size, figure.busbw).among(run.nodes, figure.ranks)
    };
    run.figures.iter().map(figure).collect()
}

/// Makes the record of a run that is not in the history.
fn record_of(run: &KeptRun) -> JobRecord {
    let id = || {
        let text = format!("{:?} {:?}", run.hosts, run.figures);
        format!("{OF_LOGS}{:016x}", fnv1a(text.as_bytes()))
    };
    let mut record = JobRecord::new(run.job.clone().unwrap_or_else(id), run.at, JobPhase::Succeeded);
    record.nodes = run.hosts.iter().filter(|host| is_node_name(host)).cloned().collect();
    record
}

fn kept_run(record: &JobRecord) -> KeptRun {
    let figure = |figure: &BandwidthRecord| {
        let collective = figure.collective.as_deref().and_then(Collective::parse);
        KeptFigure::new(collective, figure.ranks, figure.size, figure.busbw)
    };
    let mut run = KeptRun::new(record.at, None, record.nodes.iter().map(String::as_str), &[]);
    run.nodes = record.bandwidth.iter().find_map(|figure| figure.nodes);
    run.job = Some(record.job.clone()).filter(|job| !job.starts_with(OF_LOGS));
    run.figures = record.bandwidth.iter().map(figure).collect();
    run
}

impl Verification {
    /// Compares the run with earlier ones (of [`JobHistory::baselines`]); one that is slower is degraded.
    #[must_use]
    pub fn compare(mut self, earlier: Vec<KeptRun>) -> Self {
        self.earlier = Some(earlier);
        self
    }
}

impl Verified {
    /// Compares the run with earlier ones; one that is slower than they were, by more than they differ, is degraded.
    pub fn compare(&mut self, earlier: &[KeptRun]) {
        if self.disturbed.is_none() {
            self.regressions = regressions(&self.kept(), earlier);
        }
    }

    pub(super) fn kept(&self) -> KeptRun {
        let runs: Vec<_> = self.runs.iter().map(|(run, _)| run.clone()).collect();
        let mut kept = KeptRun::new(weftrun_backends::clock::now(), self.nodes, self.probes.hosts(), &runs);
        kept.job = self.job.as_ref().map(ToString::to_string);
        kept
    }
}
