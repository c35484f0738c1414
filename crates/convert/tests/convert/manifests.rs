//! Every manifest of `tests/cases/mutate` is mutated under every profile, or the reason is reported; a
//! second mutation changes nothing; and a manifest that was valid by its schema stays valid.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use weftrun_convert::{MutateOptions, MutatedJob, Splitter, Start, TrainerVersion, lint_document, mutate};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, Gid, Profile, Profiles, RuleSetting, Webhook};
use weftrun_core::request::{FabricRequest, RULES};
use weftrun_core::span::yaml_documents;

fn manifests() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        Some((path.display().to_string(), fs::read_to_string(path.join("before.yaml")).ok()?))
    };
    let mut found: Vec<(String, String)> = cases.filter_map(read).collect();
    found.sort();
    assert!(found.len() > 20, "{}", found.len());
    found
}

struct With {
    profile: Profile,
    options: FabricRequest,
    trainer: Option<TrainerVersion>,
}

fn with(profile: &str, change: impl Fn(&mut FabricRequest)) -> With {
    let mut options = FabricRequest::default();
    change(&mut options);
    With { profile: Profiles::builtin().get(profile).unwrap(), options, trainer: None }
}

/// Returns the settings that are tried on every manifest.
fn ways() -> Vec<With> {
    vec![
        with("dgxc", |_| {}),
        with("dgxc", |o| {
            o.memory = Some("900Gi".into());
            o.webhook = Webhook::Yes;
            o.detect = Some(true);
        }),
        with("eks-image", |o| o.instance_type = Some("p4d.24xlarge".into())),
        with("roce", |o| {
            o.kind = Fabric::Roce;
            o.gid = Some(Gid::Index(3));
        }),
        with("roce", |o| {
            o.kind = Fabric::Roce;
            o.gid = Some(Gid::Compute);
        }),
        with("infiniband", |o| o.kind = Fabric::InfiniBand),
    ]
}

fn run(text: &str, way: &With) -> Result<(String, Vec<MutatedJob>), String> {
    let catalogue = Catalogue::builtin();
    let settings = MutateOptions {
        trainer: way.trainer,
        ..MutateOptions::offline(&way.profile, &way.options, &catalogue)
    };
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    let (mut out, mut jobs) = (String::new(), Vec::new());
    while let Some(document) = splitter.next_document() {
        let document = String::from_utf8(document).unwrap();
        let done =
            mutate(&document, Start::of("x"), &settings).map_err(|error| error.message().to_owned())?;
        lint_document(&document, Start::of("x"), &settings);
        out.push_str(&done.text);
        jobs.extend(done.jobs);
    }
    Ok((out, jobs))
}

#[test]
fn every_manifest_mutates_or_says_why_not() {
    let mut lines = Vec::new();
    for (name, text) in manifests() {
        for way in ways() {
            match run(&text, &way) {
                Err(why) => lines.push(format!("{name}: unreadable: {why}")),
                Ok((out, jobs)) => {
                    for job in &jobs {
                        let said =
                            job.changed || job.skip().is_some() || job.error().is_some() || out == text;
                        assert!(said, "{name}: {job:?}");
                        lines.push(format!(
                            "{name} {} {}: changed {} skip {:?} error {:?}",
                            way.profile.name,
                            job.name,
                            job.changed,
                            job.skip(),
                            job.error().map(|error| (&error.code, &error.message))
                        ));
                    }
                    let (again, second) = run(&out, &way).unwrap();
                    assert_eq!(again, out, "{name} with {}: {:?}", way.profile.name, second[0].actions);
                }
            }
        }
    }
    println!("{}", lines.join("\n"));
}

#[test]
fn an_opted_out_rule_adds_nothing() {
    for (name, text) in manifests() {
        for rule in RULES {
            let way = with("dgxc", |o| {
                o.memory = Some("900Gi".into());
                o.detect = Some(true);
                o.rules.insert(rule.id.to_owned(), RuleSetting::Off);
            });
            let Ok((_, jobs)) = run(&text, &way) else { continue };
            for op in jobs.iter().flat_map(|job| &job.plan.ops) {
                assert_ne!(op.rule, rule.id, "{name}");
            }
        }
    }
}

#[test]
fn what_the_schema_accepts_it_accepts_afterwards() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/kubeflow-schemas");
    let mut checked = 0;
    let mut validators: HashMap<&'static str, jsonschema::Validator> = HashMap::new();
    for (name, text) in manifests() {
        let Ok(documents) = yaml_documents(&text) else { continue };
        for way in ways() {
            let Ok((out, _)) = run(&text, &way) else { continue };
            for (before, after) in documents.iter().zip(yaml_documents(&out).unwrap()) {
                let (before, after) = (before.root.to_json(), after.root.to_json());
                if before == after {
                    continue;
                }
                let Some(file) = schema_file(&before) else { continue };
                let validator = validators
                    .entry(file)
                    .or_insert_with(|| jsonschema::validator_for(&schema(&folder.join(file))).unwrap());
                if validator.is_valid(&before) {
                    let errors: Vec<String> =
                        validator.iter_errors(&after).map(|error| error.to_string()).collect();
                    assert!(errors.is_empty(), "{name} with {}: {errors:?}", way.profile.name);
                    checked += 1;
                }
            }
        }
    }
    println!("{checked} documents were checked");
    assert!(checked >= 20, "{checked}");
}

fn schema_file(object: &Json) -> Option<&'static str> {
    Some(match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("kubeflow.org/v1", "PyTorchJob") => "PyTorchJob.v1@training-operator-v1.9.4.json",
        ("kubeflow.org/v1", "MPIJob") => "MPIJob.v1@training-operator-v1.9.4.json",
        ("kubeflow.org/v2beta1", "MPIJob") => "MPIJob.v2beta1@mpi-operator-v0.8.0.json",
        ("trainer.kubeflow.org/v1alpha1", "TrainJob") => "TrainJob.v1alpha1@trainer-v2.3.0.json",
        _ => return None,
    })
}

fn schema(file: &Path) -> Json {
    let whole: Json = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    whole["openAPIV3Schema"].clone()
}
