//! A submitted job.

use std::time::Duration;

use futures_util::TryStreamExt;
use pyo3::prelude::*;
use weftrun::core::job::{Action, JobPhase};
use weftrun::core::log::LogOptions;
use weftrun::core::nccl::TransportMap;
use weftrun::diagnose::Sources;
use weftrun::report::{DescribeReport, TransportReport, WaitReport, WhyReport};
use weftrun::{Error, ErrorKind};

use crate::logs::Logs;
use crate::run::{Threads, plain};

/// A submitted job.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Job {
    job: weftrun::Job,
    threads: Threads,
}

impl Job {
    pub fn new(job: weftrun::Job, threads: Threads) -> Self {
        Self { job, threads }
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn handle(&self) -> String {
        self.job.handle().to_string()
    }

    /// Returns everything known of the job, as `weftrun describe -o json` does.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let detail = self.threads.run(py, self.job.describe())?;
        plain(py, &DescribeReport::new(self.job.handle(), &detail, self.job.plan()))
    }

    /// Waits for the end of the job, and returns it as `weftrun wait -o json` does.
    #[pyo3(signature = (timeout))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let (job, why) = self.threads.run(py, async {
            let job = match limit {
                None => self.job.wait().await?,
                Some(limit) => tokio::time::timeout(limit, self.job.wait()).await.map_err(|_| {
                    let message = format!("the job did not end within {} s", limit.as_secs_f64());
                    Error::new(ErrorKind::Timeout, message).with("job", self.job.handle())
                })??,
            };
            let failed = job.phase == JobPhase::Failed;
            let why = if failed { Some(WhyReport::from(self.job.why().await?)) } else { None };
            Ok((job, why))
        })?;
        plain(py, &WaitReport::new(&job, why))
    }

    /// Begins to read the logs.
    #[pyo3(signature = (follow, ranks, tail, previous))]
    fn logs(&self, follow: bool, ranks: Vec<u32>, tail: Option<u64>, previous: bool) -> Logs {
        let mut options = if follow { LogOptions::follow() } else { LogOptions::default() };
        (options.ranks, options.tail, options.previous) = (ranks, tail, previous);
        Logs::new(self.job.logs(options), self.threads.clone())
    }

    /// Returns why the job failed or hangs, as `weftrun why -o json` does.
    fn why<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, String)> {
        let why = self.threads.run(py, self.job.why())?;
        let text = why.to_string();
        Ok((plain(py, &WhyReport::from(why))?, text))
    }

    /// Returns the transports that the job's logs prove so far, as `weftrun transport -o json` does, and the
    /// first cause of a failure.
    fn transport<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, String)> {
        let (map, detail) = self.threads.run(py, async {
            let (mut map, mut logs) = (TransportMap::new(), self.job.logs(LogOptions::default()));
            while let Some(batch) = logs.try_next().await? {
                batch.read_into(&mut map);
            }
            Ok((map, self.job.describe().await.ok()))
        })?;
        let diagnosis = Sources::of_logs(&map).plan(self.job.plan()).job(detail.as_ref()).diagnose();
        let why = diagnosis.why.to_string();
        Ok((plain(py, &TransportReport::of(diagnosis, &map))?, why))
    }

    /// Ends the job; its record stays.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.threads.run(py, async {
            self.job.keep_trouble().await;
            self.job.cancel().await
        })
    }

    /// Removes the job and its record.
    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        self.threads.run(py, self.job.act(Action::Delete))
    }
}
