//! A submitted job.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weftrun::core::backend::{ExecRequest, ExecStream};
use weftrun::core::job::{Action, JobEvent, JobPhase};
use weftrun::core::log::LogOptions;
use weftrun::core::nccl::TransportMap;
use weftrun::core::spec::{JobSpec, to_toml};
use weftrun::diagnose::Sources;
use weftrun::report::{
    DescribeReport, EventLine, JobReport, PlanReport, TransportReport, WaitReport, WhyReport,
};
use weftrun::{Error, ErrorKind, HealthOptions};

use crate::logs::{Logs, Taken};
use crate::run::{Owned, Session, plain};

/// A submitted job.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Job {
    job: Owned<weftrun::Job>,
    session: Session,
}

impl Job {
    pub fn new(job: weftrun::Job, session: Session) -> Self {
        Self { job: Owned::new(job), session }
    }

    fn act(&self, py: Python<'_>, action: Action) -> PyResult<()> {
        self.session.run(py, self.job.get()?.act(action))
    }

    /// Reads all logs.
    fn map(&self, py: Python<'_>) -> PyResult<(TransportMap, Option<weftrun::core::job::JobDetail>)> {
        let job = self.job.get()?;
        self.session.run(py, async {
            let (mut map, mut logs) = (TransportMap::new(), job.logs(LogOptions::default()));
            while let Some(batch) = logs.try_next().await? {
                batch.read_into(&mut map);
            }
            Ok((map, job.describe().await.ok()))
        })
    }
}

/// A duration in seconds; none if it is no time.
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

#[pymethods]
impl Job {
    #[getter]
    fn handle(&self) -> PyResult<String> {
        Ok(self.job.read()?.handle().to_string())
    }

    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.job.read()?.handle().name().to_owned())
    }

    /// Returns its plan, as `weftrun plan -o json` does; none for a job that was submitted elsewhere.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let job = self.job.read()?;
        let Some(plan) = job.plan() else { return Ok(None) };
        plain(py, &PlanReport::new(job.handle().name(), plan, &plan.findings)).map(Some)
    }

    /// Returns everything known of the job, as `weftrun describe -o json` does.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let job = self.job.get()?;
        let detail = self.session.run(py, job.describe())?;
        plain(py, &DescribeReport::new(job.handle(), &detail, job.plan(), job.spec()))
    }

    /// Waits for the end of the job, and returns it as `weftrun wait -o json` does.
    #[pyo3(signature = (timeout))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = timeout.and_then(duration);
        let job = self.job.get()?;
        let (end, why) = self.session.run(py, async {
            let end = match limit {
                None => job.wait().await?,
                Some(limit) => tokio::time::timeout(limit, job.wait()).await.map_err(|_| {
                    let message = format!("the job did not end within {} s", limit.as_secs_f64());
                    Error::new(ErrorKind::Timeout, message).with("job", job.handle())
                })??,
            };
            let failed = end.phase == JobPhase::Failed;
            let why = if failed { Some(WhyReport::from(job.why().await?)) } else { None };
            Ok((end, why))
        })?;
        plain(py, &WaitReport::new(&end, why))
    }

    /// Begins to read the logs.
    #[pyo3(signature = (follow, ranks, tail, previous))]
    fn logs(&self, follow: bool, ranks: Vec<u32>, tail: Option<u64>, previous: bool) -> PyResult<Logs> {
        let mut options = if follow { LogOptions::follow() } else { LogOptions::default() };
        (options.ranks, options.tail, options.previous) = (ranks, tail, previous);
        Ok(Logs::new(self.job.get()?.logs(options), self.session.clone()))
    }

    /// Begins to read the events, as `weftrun watch -o json` prints them.
    fn watch(&self) -> PyResult<Events> {
        let events = Mutex::new(Some(self.job.get()?.watch()));
        Ok(Events { events: Owned::new(events), session: self.session.clone() })
    }

    /// Returns why the job failed or hangs, as `weftrun why -o json` does.
    fn why<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, String)> {
        let why = self.session.run(py, self.job.get()?.why())?;
        let text = why.to_string();
        Ok((plain(py, &WhyReport::from(why))?, text))
    }

    /// Returns the transports that the job's logs prove so far, as `weftrun transport -o json` does, and the
    /// first cause of a failure.
    fn transport<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, String)> {
        let (map, detail) = self.map(py)?;
        let plan = self.job.get()?.plan();
        let diagnosis = Sources::of_logs(&map).plan(plan).job(detail.as_ref()).diagnose();
        let why = diagnosis.why.to_string();
        Ok((plain(py, &TransportReport::of(diagnosis, &map))?, why))
    }

    /// Returns everything known of the job, as `weftrun report -o json` does.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (map, detail) = self.map(py)?;
        let job = self.job.get()?;
        let diagnosis = Sources::of_logs(&map).plan(job.plan()).job(detail.as_ref()).diagnose();
        let why = WhyReport::from(diagnosis.why.clone());
        let transport = TransportReport::of(diagnosis, &map);
        let mut report = JobReport::new(&transport, why);
        report.job =
            detail.as_ref().map(|detail| DescribeReport::new(job.handle(), detail, job.plan(), job.spec()));
        report.spec = job.spec().cloned().map(JobSpec::masked).as_ref().map(to_toml);
        plain(py, &report)
    }

    /// Returns what NCCL's RAS service reports, as `weftrun health -o json` does.
    #[pyo3(signature = (observe, timeout, force, diagnose))]
    fn health<'py>(
        &self,
        py: Python<'py>,
        observe: f64,
        timeout: f64,
        force: bool,
        diagnose: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = HealthOptions::default();
        options.observe = duration(observe).unwrap_or(options.observe);
        options.timeout = duration(timeout).unwrap_or(options.timeout);
        (options.force, options.diagnose) = (force, diagnose);
        let report = self.session.run(py, self.job.get()?.health(&options))?;
        plain(py, &report)
    }

    /// Runs a command beside a rank; returns its exit code and what it printed on both outputs.
    #[pyo3(signature = (command, rank))]
    fn exec<'py>(
        &self,
        py: Python<'py>,
        command: Vec<String>,
        rank: Option<u32>,
    ) -> PyResult<(i32, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let mut request = ExecRequest::new(command);
        request.rank = rank;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let job = self.job.get()?;
        let code = self.session.run(py, async {
            let mut sink = |stream, bytes: &[u8]| {
                let to = if stream == ExecStream::Stdout { &mut out } else { &mut err };
                to.extend_from_slice(bytes);
                Ok(())
            };
            job.exec(&request, &mut sink).await
        })?;
        Ok((code, PyBytes::new(py, &out), PyBytes::new(py, &err)))
    }

    /// Ends the job; its record stays.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let job = self.job.get()?;
        self.session.run(py, async {
            job.keep_trouble().await;
            job.cancel().await
        })
    }

    /// Suspends the job and releases its nodes.
    fn suspend(&self, py: Python<'_>) -> PyResult<()> {
        self.act(py, Action::Suspend)
    }

    /// Resumes a suspended job.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.act(py, Action::Resume)
    }

    /// Removes the job and its record.
    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        self.act(py, Action::Delete)
    }
}

/// The events of a job, one at a time.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Events {
    events: Owned<Mutex<Option<BoxStream<'static, weftrun::Result<JobEvent>>>>>,
    session: Session,
}

#[pymethods]
impl Events {
    /// Returns the next event; none after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut events = Taken::of(self.events.get()?)?;
        let event = self.session.run(py, async { events.value()?.next().await.transpose() })?;
        event.map(|event| plain(py, &EventLine::from(&event))).transpose()
    }
}
