//! What `mutate` says: a few lines on stderr, or all of it in a file.

use std::path::Path;

use serde_json::{Value as Json, json};
use weftrun::core::exit_codes;
use weftrun::core::manifest::{JobReport, Start};
use weftrun::core::report::MutateReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::{Given, MutateArgs, Source, each_document};
use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// Says on stderr what was done, what was not, and why.
pub fn say(context: &Context, given: &Given, jobs: &[JobReport], findings: &[Finding]) -> Result<()> {
    let out = &context.out;
    if out.format != Format::Table {
        let report = serde_json::to_string(&MutateReport::new(jobs, findings));
        out.stderr(&report.unwrap_or_default());
        return Ok(());
    }
    for name in &given.assumed {
        out.say(format!("note: profile `{name}` is assumed; --profile NAME chooses another"));
    }
    if jobs.is_empty() && findings.is_empty() {
        out.say(
            "note: no PyTorchJob, MPIJob, TrainJob or sbatch script is in it; everything is passed through",
        );
    }
    for job in jobs {
        out.say(summary(job));
        if context.out.is_verbose() {
            job.actions.iter().for_each(|action| out.detail(format!("  {action}")));
        }
        out.findings(&job.notes);
        out.findings(job.error.as_slice());
    }
    out.findings(findings);
    Ok(())
}

fn summary(job: &JobReport) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let namespace = job.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let name = format!("{bold}{} {namespace}{}{bold:#}", job.kind, job.name);
    let skip_why = job.skip_why.as_deref().unwrap_or_default();
    match (&job.error, &job.skip) {
        (Some(_), _) => format!("{name}: not changed, because of an error"),
        (None, Some(skip)) => format!("{name}: not changed ({skip}) {dim}{skip_why}{dim:#}"),
        (None, None) if job.changed => format!("{name}: {} changes", job.actions.len()),
        (None, None) => format!("{name}: nothing to change"),
    }
}

/// Writes the report into a file.
pub fn to_file(path: &Path, jobs: &[JobReport], findings: &[Finding]) -> Result<()> {
    let value = MutateReport::new(jobs, findings);
    let yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let text =
        if yaml { serde_saphyr::to_string(&value).ok() } else { serde_json::to_string_pretty(&value).ok() };
    let text =
        text.ok_or_else(|| Error::new(ErrorKind::Unexpected, "the report cannot be written as text"))?;
    std::fs::write(path, text + "\n").map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write the report: {error}")).with("file", path.display())
    })
}

/// Runs as a KRM function: the items of a ResourceList are mutated, findings become its results
/// (<https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md>).
pub fn krm(context: &Context, args: &MutateArgs) -> Result<u8> {
    let mut given = Given::read(context, &args.input, &args.fabric, true)?;
    let mut text = String::new();
    let sources = Source::all(&args.input)?;
    for source in &sources {
        each_document(source, |document, _| {
            text.push_str(document);
            Ok(())
        })?;
    }
    let invalid = |message: String| Error::new(ErrorKind::InvalidSpec, message);
    let documents = weftrun::core::span::yaml(&text).map_err(|error| invalid(error.to_string()))?;
    let mut list = documents.root.to_json();
    if list["kind"] != "ResourceList" {
        return Err(invalid("stdin holds no ResourceList".to_owned())
            .hint("without --krm, manifests are read as they are"));
    }
    configure(&list["functionConfig"], &mut given)?;
    let (mut results, mut failed) = (Vec::new(), false);
    for item in list["items"].as_array_mut().into_iter().flatten() {
        let object = item.to_string();
        let done = given.mutate(&object, Start::of("<stdin>"));
        let (jobs, findings) = match &done {
            Ok(done) => (done.jobs.as_slice(), Vec::new()),
            Err(finding) => (&[][..], vec![finding.clone()]),
        };
        for finding in jobs.iter().flat_map(|job| job.notes.iter().chain(&job.error)).chain(&findings) {
            failed |= finding.is_error();
            results.push(result(finding, item));
        }
        if let Ok(done) = done
            && done.jobs.iter().any(|job| job.changed)
        {
            *item = serde_json::from_str(&done.text).map_err(|error| invalid(error.to_string()))?;
        }
    }
    if !results.is_empty() {
        list["results"] = Json::Array(results);
    }
    if failed {
        context.out.stderr(&serde_json::to_string_pretty(&list["results"]).unwrap_or_default());
        return Ok(exit_codes::INVALID_SPEC);
    }
    let text = serde_saphyr::to_string(&list)
        .map_err(|error| Error::new(ErrorKind::Unexpected, format!("cannot write as YAML: {error}")))?;
    context.out.data(&text)?;
    Ok(exit_codes::OK)
}

/// Takes the options of a `functionConfig`: the flags' words under `spec` or, in a ConfigMap, `data`.
fn configure(config: &Json, given: &mut Given) -> Result<()> {
    let usage = |message: String| Error::new(ErrorKind::Usage, message).with("functionConfig", "stdin");
    let words = [&config["spec"], &config["data"]].into_iter().filter_map(Json::as_object).flatten();
    for (key, value) in words {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let options = given.options_mut();
        match key.as_str() {
            "profile" => given.with_profile(&text)?,
            "fabric" => {
                options.kind = serde_json::from_value(json!(text))
                    .map_err(|_| usage(format!("`{text}` is no fabric")))?;
            }
            "instance-type" => options.instance_type = Some(text),
            "memory" => options.memory = Some(text),
            "strict" => options.strict = text == "true",
            "detect" => options.detect = Some(text == "true"),
            other => return Err(usage(format!("`{other}` is not understood"))),
        }
    }
    Ok(())
}

fn result(finding: &Finding, item: &Json) -> Json {
    json!({
        "message": format!("{} [{}]", finding.message, finding.code),
        "severity": finding.severity,
        "resourceRef": {
            "apiVersion": item["apiVersion"], "kind": item["kind"],
            "name": item["metadata"]["name"], "namespace": item["metadata"]["namespace"],
        },
    })
}
