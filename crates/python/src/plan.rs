//! The client, and plans of jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use weftrun::core::backend::Scope;
use weftrun::core::job::{JobFilter, JobHandle};
use weftrun::core::spec::{JobSpec, Overrides};
use weftrun::report::{DoctorReport, ListReport, PlanReport};
use weftrun::verify::Collective;
use weftrun::verify::{Bisection, Verification, Verified};
use weftrun::{Config, Error, ErrorKind, JobSource};

use crate::job::Job;
use crate::run::{Owned, Session, plain, raised};

/// A client with the configuration of the user and of the project.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Client {
    session: Session,
}

impl Client {
    /// Reads a job: the text of a `dict`, or the file of a path.
    fn spec(&self, path: Option<PathBuf>, text: Option<String>) -> PyResult<JobSpec> {
        let source = match (path, text) {
            (Some(path), _) => JobSource::read(path).map_err(raised)?,
            // JSON is YAML. The name begins the place of a finding: `the job:1:12`.
            (None, text) => JobSource::new("the job", text.unwrap_or_default()),
        };
        let file = self.session.client()?.job_file(Some(&source), &Overrides::default());
        Ok(file.map_err(raised)?.spec)
    }

    /// Returns a target; without a name the default one.
    fn target(&self, name: Option<String>) -> PyResult<weftrun::core::backend::TargetConfig> {
        let client = self.session.client()?;
        let name = name.or_else(|| client.config().default_target.clone());
        client.target(name.as_deref().unwrap_or("local")).map_err(raised)
    }

    fn verified(&self, py: Python<'_>, verification: &Verification) -> PyResult<Verified> {
        self.session.run(py, verification.run())
    }
}

#[pymethods]
impl Client {
    /// `config` replaces the user's configuration file; `binary` is the program that supervises local jobs. Without
    /// `environment` it is that of the process.
    #[new]
    #[pyo3(signature = (config = None, binary = None, environment = None))]
    fn new(
        config: Option<PathBuf>,
        binary: Option<PathBuf>,
        environment: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let open = || {
            let mut loaded = match environment {
                Some(environment) => Config::load_from(config.as_deref(), environment)?,
                None => Config::load_with(config.as_deref())?,
            };
            loaded.binary = binary.or(loaded.binary);
            Ok(Self { session: Session::start(weftrun::Client::builder().config(loaded).build()?)? })
        };
        open().map_err(raised)
    }

    /// Plans a job: `text` is a job file, or `path` is the path of one.
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
        let client = self.session.client()?;
        let spec = self.spec(path, text)?;
        let mut target = self.target(backend)?;
        target.profile = profile.or(target.profile);
        let plan = self.session.run(py, async {
            if online { client.plan_for(target, &spec).await } else { client.plan_offline_for(target, &spec) }
        })?;
        Ok(Plan::new(plan, self.session.clone()))
    }

    /// Returns a plan that was made before the process was forked, for this process.
    fn adopt(&self, plan: &Plan) -> PyResult<Plan> {
        let plan = plan.plan.read()?.with_client(self.session.client()?.clone());
        Ok(Plan::new(plan, self.session.clone()))
    }

    /// Returns the backend of a target.
    #[pyo3(signature = (target))]
    fn backend(&self, target: Option<String>) -> PyResult<String> {
        Ok(self.target(target)?.backend)
    }

    /// Binds a job by its handle. `known` tells that it exists, so that the cluster is not asked.
    #[pyo3(signature = (handle, known))]
    fn attach(&self, py: Python<'_>, handle: &str, known: bool) -> PyResult<Job> {
        let client = self.session.client()?;
        let job = self.session.run(py, async {
            let handle: JobHandle = handle.parse()?;
            let job = client.attach(&handle).await?;
            if !known {
                job.describe().await?;
            }
            Ok(job)
        })?;
        Ok(Job::new(job, self.session.clone()))
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
        let (client, target) = (self.session.client()?, self.target(backend)?);
        let mut filter = if all { JobFilter::all() } else { JobFilter::default() };
        filter.labels = labels;
        let jobs = self.session.run(py, client.list_on(&target, &filter))?;
        plain(py, &ListReport::new(&jobs))
    }

    /// Returns what is reachable, as `weftrun doctor -o json` does.
    #[pyo3(signature = (backend))]
    fn doctor<'py>(&self, py: Python<'py>, backend: Option<String>) -> PyResult<Bound<'py, PyAny>> {
        let (client, target) = (self.session.client()?, self.target(backend)?);
        let mut scope = Scope::default();
        (scope.thorough, scope.fresh) = (true, true);
        let facts = self.session.run(py, async { client.connect(&target).await?.discover(&scope).await })?;
        plain(py, &DoctorReport::new(env!("CARGO_PKG_VERSION"), &target.name, &target.backend, &facts))
    }

    /// Measures collectives on the nodes of a job, as `weftrun verify -o json` does.
    #[pyo3(signature = (path, text, backend, collectives, sizes, rounds, bisect, force, seconds))]
    #[allow(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
        text: Option<String>,
        backend: Option<String>,
        collectives: Vec<String>,
        sizes: (u64, u64),
        rounds: u32,
        bisect: bool,
        force: bool,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let named = |name: &String| {
            Collective::parse(name).ok_or_else(|| {
                let error = Error::new(ErrorKind::Usage, format!("there is no collective `{name}`"));
                raised(error.hint("use all-reduce, all-gather, reduce-scatter or alltoall"))
            })
        };
        let collectives = collectives.iter().map(named).collect::<PyResult<Vec<_>>>()?;
        let spec = self.spec(path, text)?;
        let bisect = if bisect { Bisection::Degraded } else { Bisection::Never };
        let verification = Verification::new(self.session.client()?, self.target(backend)?, spec)
            .sizes(sizes.0, sizes.1)
            .rounds(rounds)
            .collectives(collectives)
            .bisect(bisect)
            .force(force)
            .timeout(limit(seconds));
        plain(py, &self.verified(py, &verification)?.report())
    }

    /// Returns what the nodes of a job have, as `weftrun probe -o json` does.
    #[pyo3(signature = (path, text, backend, seconds))]
    fn probe<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
        text: Option<String>,
        backend: Option<String>,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let spec = self.spec(path, text)?;
        let verification = Verification::new(self.session.client()?, self.target(backend)?, spec)
            .collectives([])
            .timeout(limit(seconds));
        plain(py, &self.verified(py, &verification)?.probe_report())
    }
}

/// Returns a time limit; one that is no time ends at once.
fn limit(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A planned job; nothing was sent yet.
#[pyclass(module = "weftrun._native", frozen)]
pub struct Plan {
    plan: Owned<weftrun::Plan>,
    session: Session,
    sent: OnceLock<String>,
}

impl Plan {
    fn new(plan: weftrun::Plan, session: Session) -> Self {
        Self { plan: Owned::new(plan), session, sent: OnceLock::new() }
    }
}

#[pymethods]
impl Plan {
    /// The handle of its job, once it was submitted.
    #[getter]
    fn handle(&self) -> Option<String> {
        self.sent.get().cloned()
    }

    /// Returns the plan, as `weftrun plan -o json` does.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let plan = self.plan.read()?;
        let (spec, findings) = (&plan.planned().spec, plan.findings());
        let mut report = PlanReport::new(&spec.name, plan.fabric(), &findings);
        report.code = spec.code_content();
        plain(py, &report)
    }

    /// Returns every decision with its reason, as text.
    fn explain(&self) -> PyResult<String> {
        Ok(self.plan.read()?.explain())
    }

    /// Returns the documents that would be sent.
    fn render(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let rendered = self.session.run(py, self.plan.get()?.render())?;
        Ok(rendered.documents.into_iter().map(|document| (document.title, document.text)).collect())
    }

    /// Submits the job exactly once; a second call returns the same job.
    fn submit(&self, py: Python<'_>) -> PyResult<Job> {
        let job = self.session.submit(py, self.plan.get()?)?;
        drop(self.sent.set(job.handle().to_string()));
        Ok(Job::new(job, self.session.clone()))
    }
}
