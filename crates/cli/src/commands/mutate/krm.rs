//! `--krm`: a KRM function, as kustomize and kpt call it.

use serde_json::{Value as Json, json};
use weftrun::convert::{Start, TrainerVersion, to_yaml};
use weftrun::core::exit_codes;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::{Given, MutateArgs, Source, each_document};
use crate::context::Context;
use crate::key_flags::FabricFlags;

/// Runs as a function: the items of a ResourceList are mutated, findings become its results
/// (<https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md>).
pub fn run(context: &Context, args: &MutateArgs) -> Result<u8> {
    let mut given = Given::read(context, &args.fabric, true)?;
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
    configure(&list["functionConfig"], &args.fabric, &mut given)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    // A runtime may come after the job that names it.
    items.iter().for_each(|item| given.learn(&item.to_string()));
    let (mut out, mut results, mut failed) = (Vec::new(), Vec::new(), false);
    for item in items {
        let object = item.to_string();
        let done = given.mutate(&object, Start::of("<stdin>"));
        let (jobs, findings) = match &done {
            Ok(done) => (done.jobs.as_slice(), Vec::new()),
            Err(error) => (&[][..], error.findings().to_vec()),
        };
        for finding in jobs.iter().flat_map(|job| &job.plan.findings).chain(&findings) {
            failed |= finding.is_error();
            results.push(result(finding, &item));
        }
        match done {
            Ok(done) if done.jobs.iter().any(|job| job.changed) => {
                // A job may include its own runtime, which comes before it.
                let objects = serde_json::Deserializer::from_str(&done.text).into_iter::<Json>();
                for object in objects {
                    out.push(object.map_err(|error| invalid(error.to_string()))?);
                }
            }
            _ => out.push(item),
        }
    }
    list["items"] = Json::Array(out);
    if !results.is_empty() {
        list["results"] = Json::Array(results);
    }
    if failed {
        context.out.stderr(&serde_json::to_string_pretty(&list["results"]).unwrap_or_default());
        return Ok(exit_codes::INVALID_SPEC);
    }
    let text = to_yaml(&list);
    context.out.document(&text)?;
    Ok(exit_codes::OK)
}

/// Reads the options of a `functionConfig`: the names of the flags under `spec` or, in a ConfigMap, `data`.
/// They are added to the flags of the command line; its networks are replaced.
fn configure(config: &Json, flags: &FabricFlags, given: &mut Given) -> Result<()> {
    let (mut flags, mut networks) = (flags.given.clone(), None);
    let words = [&config["spec"], &config["data"]].into_iter().filter_map(Json::as_object).flatten();
    for (key, value) in words {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match key.as_str() {
            "profile" => given.with_profile(&text)?,
            "trainer-version" => {
                given.with_trainer(TrainerVersion::parse(&text).ok_or_else(|| wrong(key, &text))?);
            }
            _ => {
                // Its value would be a file, and a function reads only stdin.
                let flag = FabricFlags::named(key).filter(|_| key != "runtime").ok_or_else(|| {
                    Error::new(ErrorKind::Usage, format!("`{key}` is not understood"))
                        .with("functionConfig", "stdin")
                        .hint("the keys are the flags of `weftrun mutate`: profile, fabric, instance-type, …")
                })?;
                if flag.words().is_some_and(|words| !words.iter().any(|word| word.is(&text))) {
                    return Err(wrong(key, &text));
                }
                let items: Vec<&str> = match value.as_array() {
                    Some(items) => items.iter().filter_map(Json::as_str).collect(),
                    None if flag.is_list() => text.split([',', ' ']).filter(|one| !one.is_empty()).collect(),
                    None => vec![&text],
                };
                items.iter().for_each(|one| flags.set(flag.name(), *one));
                if flag.name() == "--network" {
                    networks = Some(items.into_iter().map(str::to_owned).collect());
                }
            }
        }
    }
    // The flags of the command line were read before, so the mistakes are those of the `functionConfig`.
    let mut options = flags.fabric_request().map_err(|error| of_config(&error))?;
    options.networks = networks.unwrap_or(options.networks);
    given.with_options(options);
    Ok(())
}

/// Returns an error about flags as one about the keys of the same names.
fn of_config(error: &Error) -> Error {
    let mut findings = error.findings().to_vec();
    for subject in findings.iter_mut().filter_map(|finding| finding.subject.as_mut()) {
        *subject = format!("functionConfig: {}", subject.trim_start_matches('-'));
    }
    Error::from_findings(error.kind(), "a key of `functionConfig` has a value that cannot be read", findings)
}

fn wrong(key: &str, text: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("`{key}` cannot be `{text}`")).with("functionConfig", "stdin")
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
