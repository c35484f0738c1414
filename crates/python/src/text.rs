//! Texts and files, without a cluster: manifests, scripts and logs.

use pyo3::prelude::*;
use weftrun::convert::{
    Imported, MutateOptions, Splitter, Start, import, import_runai, import_sbatch, is_sbatch, kinds,
    lint_document, mutate as mutate_document, mutate_sbatch, no_job, nothing_in,
};
use weftrun::core::catalogue::Catalogue;
use weftrun::core::fabric::{Fabric, FabricPlan, FabricRequest, Profile, Profiles};
use weftrun::core::spec::to_toml;
use weftrun::core::text::did_you_mean;
use weftrun::diagnose::Sources;
use weftrun::report::{ImportReport, LintReport, MutateReport, TransportReport, WhyReport};
use weftrun::{Error, ErrorKind, Finding, Result, open_logs};

use crate::run::{plain, raised};

/// Applies the fabric to Kubernetes manifests, or to a batch script (a text that begins with `#!`). Returns
/// the new text and the report, as `weftrun mutate -o json` does.
#[pyfunction]
#[pyo3(signature = (text, profile, instance_type))]
pub fn mutate<'py>(
    py: Python<'py>,
    text: String,
    profile: Option<String>,
    instance_type: Option<String>,
) -> PyResult<(String, Bound<'py, PyAny>)> {
    let (text, jobs) = py.detach(|| mutated(&text, profile.as_deref(), instance_type)).map_err(raised)?;
    let report = plain(py, &MutateReport::new(&jobs, &[]))?;
    Ok((text, report))
}

fn mutated(
    text: &str,
    profile: Option<&str>,
    instance_type: Option<String>,
) -> Result<(String, Vec<weftrun::convert::MutatedJob>)> {
    let given = Given::new(profile, instance_type)?;
    let settings = given.settings();
    if text.starts_with("#!") {
        let done = mutate_sbatch(text, Start::of("script"), &settings);
        return Ok((done.text.into_owned(), done.jobs));
    }
    let (mut out, mut jobs) = (String::with_capacity(text.len() + 4096), Vec::new());
    each_document(text, |part, start| {
        let done = mutate_document(part, start, &settings)?;
        if let Some(finding) = done.jobs.iter().find_map(|job| job.error()) {
            return Err(Error::from_finding(ErrorKind::InvalidSpec, finding.clone()));
        }
        out.push_str(&done.text);
        jobs.extend(done.jobs);
        Ok(())
    })?;
    if let Some(finding) = nothing_in(text, Start::of("manifest")) {
        return Err(Error::from_finding(ErrorKind::InvalidSpec, finding));
    }
    Ok((out, jobs))
}

/// What the fabric of a text is decided by: a named profile, or those of all sites.
struct Given {
    named: Option<Profile>,
    sites: Vec<Profile>,
    options: FabricRequest,
    catalogue: Catalogue,
    none: Profile,
}

impl Given {
    fn new(profile: Option<&str>, instance_type: Option<String>) -> Result<Self> {
        let profiles = Profiles::builtin();
        Ok(Self {
            named: profile.map(|name| profiles.get(name)).transpose()?,
            sites: profiles.of_sites()?,
            options: FabricRequest { instance_type, ..FabricRequest::default() },
            catalogue: Catalogue::builtin(),
            none: Profile::default(),
        })
    }

    fn settings(&self) -> MutateOptions<'_> {
        let profile = self.named.as_ref().unwrap_or(&self.none);
        let settings = MutateOptions::offline(profile, &self.options, &self.catalogue);
        MutateOptions { by_evidence: self.named.is_none().then_some(self.sites.as_slice()), ..settings }
    }
}

/// Visits each document of a stream of manifests, with its place.
fn each_document(text: &str, mut visit: impl FnMut(&str, Start<'_>) -> Result<()>) -> Result<()> {
    let mut documents = Splitter::default();
    documents.push(text.as_bytes());
    documents.finish();
    let (mut offset, mut line) = (0, 0);
    while let Some(document) = documents.next_document() {
        visit(&String::from_utf8_lossy(&document), Start { file: "manifest", offset, line })?;
        offset += document.len();
        line += document.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(())
}

/// Returns what is wrong with a job file, manifests or a batch script, as `weftrun lint -o json` does. A text without the name of a
/// file is a job file if `is_job` is set.
#[pyfunction]
#[pyo3(signature = (name, text, is_job, profile, instance_type))]
pub fn lint<'py>(
    py: Python<'py>,
    name: String,
    text: String,
    is_job: bool,
    profile: Option<String>,
    instance_type: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = py.detach(|| {
        if is_job {
            return Ok(weftrun::lint_job_file(&name, text.as_bytes()));
        }
        let given = Given::new(profile.as_deref(), instance_type)?;
        if text.starts_with("#!") {
            return Ok(lint_document(&text, Start::of(&name), &given.settings()));
        }
        let mut findings = Vec::new();
        each_document(&text, |part, start| {
            findings.extend(lint_document(part, Start { file: &name, ..start }, &given.settings()));
            Ok(())
        })?;
        findings.extend(nothing_in(&text, Start::of(&name)));
        Ok(findings)
    });
    plain(py, &LintReport::new(&found.map_err(raised)?))
}

/// Converts a manifest, a batch script or a command line of `runai` to a job file, as `weftrun import -o json` does.
#[pyfunction]
#[pyo3(signature = (text, name, whole))]
pub fn import_job(
    py: Python<'_>,
    text: String,
    name: Option<String>,
    whole: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let imported = py.detach(|| imported(&text, name.as_deref(), whole)).map_err(raised)?;
    let file = to_toml(&imported.spec);
    plain(py, &ImportReport::new(&imported.spec, &file, &imported.findings))
}

fn imported(text: &str, name: Option<&str>, whole: bool) -> Result<Imported> {
    let refused = |finding: Finding| {
        Error::from_findings(ErrorKind::InvalidSpec, finding.message.clone(), vec![finding])
    };
    let (mut jobs, mut found) = (Vec::new(), Vec::new());
    if is_sbatch(text) {
        let (spec, findings) = import_sbatch(text, whole).map_err(refused)?;
        jobs.push(Imported::new(spec, findings));
    } else if text.trim_start().starts_with("runai ") {
        jobs.push(import_runai(text).map_err(refused)?);
    } else {
        each_document(text, |part, start| {
            jobs.extend(import(part, start).map_err(refused)?);
            found.extend(kinds(part));
            Ok(())
        })?;
    }
    let names: Vec<String> = jobs.iter().map(|job| job.spec.name.clone()).collect();
    jobs.retain(|job| name.is_none_or(|name| name == job.spec.name));
    let (Some(mut job), true) = (jobs.pop(), jobs.is_empty()) else {
        if let Some(refusal) = no_job(&found).filter(|_| names.is_empty()) {
            return Err(refusal);
        }
        let message = if names.is_empty() {
            "the text is neither the manifest of a job, nor a batch script, nor a command line of runai"
                .to_owned()
        } else {
            format!("the text holds the jobs {}: choose one of them by `name`", names.join(", "))
        };
        return Err(Error::new(ErrorKind::InvalidSpec, message));
    };
    job.findings.extend(job.spec.validate_with(&Catalogue::builtin()));
    if job.findings.iter().any(Finding::is_error) {
        let message = format!("`{}` makes no job file", job.spec.name);
        return Err(Error::from_findings(ErrorKind::InvalidSpec, message, job.findings));
    }
    Ok(job)
}

/// Returns the transports that log files prove, as `weftrun transport -o json` does, and the first cause of a
/// failure.
#[pyfunction]
#[pyo3(signature = (paths, fabric))]
pub fn transport<'py>(
    py: Python<'py>,
    paths: Vec<String>,
    fabric: Option<String>,
) -> PyResult<(Bound<'py, PyAny>, String)> {
    let planned = fabric.as_deref().map(fabric_named).transpose().map_err(raised)?;
    let map = py.detach(|| open_logs(&paths).and_then(|logs| logs.map())).map_err(raised)?;
    let plan = planned.map(FabricPlan::unchanged);
    let diagnosis = Sources::of_logs(&map).plan(plan.as_ref()).diagnose();
    let why = diagnosis.why.to_string();
    Ok((plain(py, &TransportReport::of(diagnosis, &map))?, why))
}

fn fabric_named(name: &str) -> Result<Fabric> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|_| {
        let known = ["auto", "efa", "roce", "infiniband", "tcp", "off"];
        let error = Error::new(ErrorKind::Usage, format!("there is no fabric `{name}`"));
        match did_you_mean(name, known) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("use one of {}", known.join(", "))),
        }
    })
}

/// Returns why the job of some log files failed or hangs, as `weftrun why -o json` does, and as text.
#[pyfunction]
pub fn why(py: Python<'_>, paths: Vec<String>) -> PyResult<(Bound<'_, PyAny>, String)> {
    let map = py.detach(|| open_logs(&paths).and_then(|logs| logs.map())).map_err(raised)?;
    let why = Sources::of_logs(&map).diagnose().why;
    let text = why.to_string();
    Ok((plain(py, &WhyReport::from(why))?, text))
}
