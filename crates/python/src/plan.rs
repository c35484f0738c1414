//! The client, and plans of jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use weftrun::core::job::{JobFilter, JobHandle};
use weftrun::core::spec::Overrides;
use weftrun::report::{ListReport, PlanReport};
use weftrun::{Config, JobSource};

use crate::job::Job;
use crate::run::{Threads, plain, raised};

/// A client with the configuration of the user and of the project.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Client {
    client: weftrun::Client,
    threads: Threads,
}

#[pymethods]
impl Client {
    /// `config` replaces the user's configuration file; `binary` is the program that supervises local jobs.
    #[new]
    #[pyo3(signature = (config = None, binary = None))]
    fn new(config: Option<PathBuf>, binary: Option<PathBuf>) -> PyResult<Self> {
        let open = || {
            let mut loaded = Config::load_with(config.as_deref())?;
            loaded.binary = binary.or(loaded.binary);
            Ok(Self {
                client: weftrun::Client::builder().config(loaded).build()?,
                threads: Threads::start()?,
            })
        };
        open().map_err(raised)
    }

    /// Plans a job. `name` and `bytes` are a job file, or `path` is the path of one.
    #[pyo3(signature = (path, text, backend, profile, online))]
    fn plan(
        &self,
        py: Python<'_>,
        path: Option<PathBuf>,
        text: Option<String>,
        backend: Option<String>,
        profile: Option<String>,
        online: bool,
    ) -> PyResult<Plan> {
        let client = &self.client;
        let name = backend.or_else(|| client.config().default_target.clone());
        let plan = self.threads.run(py, async {
            let source = match (path, text) {
                (Some(path), _) => JobSource::read(path)?,
                // JSON is YAML.
                (None, text) => JobSource::new("job.yaml", text.unwrap_or_default()),
            };
            let spec = client.job_file(Some(&source), &Overrides::default())?.spec;
            let mut target = client.target(name.as_deref().unwrap_or("local"))?;
            target.profile = profile.or(target.profile);
            if online { client.plan_for(target, &spec).await } else { client.plan_offline_for(target, &spec) }
        })?;
        Ok(Plan { client: client.clone(), plan, threads: self.threads.clone() })
    }

    /// Binds a job by its handle.
    fn attach(&self, py: Python<'_>, handle: &str) -> PyResult<Job> {
        let job = self.threads.run(py, async {
            let handle: JobHandle = handle.parse()?;
            self.client.attach(&handle).await
        })?;
        Ok(Job::new(job, self.threads.clone()))
    }

    /// Returns the jobs of a target that have all of these labels, as `weftrun list -o json` does.
    #[pyo3(signature = (backend, all, labels))]
    fn list<'py>(
        &self,
        py: Python<'py>,
        backend: Option<String>,
        all: bool,
        labels: BTreeMap<String, String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = backend.or_else(|| self.client.config().default_target.clone());
        let mut filter = if all { JobFilter::all() } else { JobFilter::default() };
        filter.labels = labels;
        let jobs = self.threads.run(py, self.client.list(name.as_deref().unwrap_or("local"), &filter))?;
        plain(py, &ListReport::new(&jobs))
    }
}

/// A planned job; nothing was sent yet.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Plan {
    client: weftrun::Client,
    plan: weftrun::Plan,
    threads: Threads,
}

#[pymethods]
impl Plan {
    /// Returns the plan, as `weftrun plan -o json` does.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (fabric, findings) = (self.plan.fabric(), self.plan.findings());
        plain(py, &PlanReport::new(&self.plan.planned().spec.name, fabric, &findings))
    }

    /// Returns every decision with its reason, as text.
    fn explain(&self) -> String {
        self.plan.explain()
    }

    /// Returns the documents that would be sent.
    fn render(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let rendered = self.threads.run(py, self.plan.render())?;
        Ok(rendered.documents.into_iter().map(|document| (document.title, document.text)).collect())
    }

    /// Submits the job exactly once; a second call returns the same job.
    fn submit(&self, py: Python<'_>) -> PyResult<Job> {
        let job = self.threads.submit(py, &self.client, &self.plan)?;
        Ok(Job::new(job, self.threads.clone()))
    }
}
