//! Texts and files, without a cluster: manifests, scripts and logs.

use pyo3::prelude::*;
use weftrun::core::catalogue::Catalogue;
use weftrun::core::convert::{MutateOptions, Splitter, Start, mutate as mutate_document, mutate_sbatch};
use weftrun::core::fabric::{Fabric, FabricPlan, FabricRequest, Profile, Profiles};
use weftrun::core::text::did_you_mean;
use weftrun::diagnose::Sources;
use weftrun::report::{MutateReport, TransportReport, WhyReport};
use weftrun::{Error, ErrorKind, Result, open_logs};

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
) -> Result<(String, Vec<weftrun::core::convert::MutatedJob>)> {
    let (profiles, catalogue) = (Profiles::builtin(), Catalogue::builtin());
    let options = FabricRequest { instance_type, ..FabricRequest::default() };
    let named = profile.map(|name| profiles.get(name)).transpose()?;
    let sites = profiles.of_sites()?;
    let none = Profile::default();
    let settings = MutateOptions::offline(named.as_ref().unwrap_or(&none), &options, &catalogue);
    let settings =
        if named.is_some() { settings } else { MutateOptions { by_evidence: Some(&sites), ..settings } };
    if text.starts_with("#!") {
        let done = mutate_sbatch(text, Start::of("script"), &settings);
        return Ok((done.text.into_owned(), done.jobs));
    }
    let (mut out, mut jobs) = (String::with_capacity(text.len() + 4096), Vec::new());
    let mut documents = Splitter::default();
    documents.push(text.as_bytes());
    documents.finish();
    let (mut offset, mut line) = (0, 0);
    while let Some(document) = documents.next_document() {
        let part = String::from_utf8_lossy(&document);
        let start = Start { file: "manifest", offset, line };
        let done = mutate_document(&part, start, &settings)?;
        if let Some(finding) = done.jobs.iter().find_map(|job| job.error()) {
            return Err(Error::from_finding(ErrorKind::InvalidSpec, finding.clone()));
        }
        out.push_str(&done.text);
        jobs.extend(done.jobs);
        offset += document.len();
        line += document.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok((out, jobs))
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
