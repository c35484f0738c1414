//! `transport -o json` over every capture of a real run matches its expected result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::place::{Done, Place, repo};

/// The captures of the tree.
fn captures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repo("crates/diagnose/tests/cases/nccl/captures")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    logs.sort();
    logs
}

fn report(place: &Place, inputs: &[PathBuf]) -> Value {
    let mut command = place.command(["transport", "-o", "json"]);
    command.args(inputs);
    Done::of(command).ok().json()
}

fn pairs(report: &Value) -> BTreeSet<String> {
    let pair = |p: &Value| json!([p["global_from"], p["global_to"], p["kind"], p["net"]]).to_string();
    report["pairs"].as_array().unwrap().iter().map(pair).collect()
}

#[test]
fn every_capture_gives_what_stands_beside_it() {
    let place = Place::new();
    let mut seen = 0;
    for folder in captures() {
        let Ok(expected) = std::fs::read_to_string(folder.join("expected.json")) else { continue };
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let name = folder.display();
        seen += 1;
        let report = report(&place, &logs(&folder));
        let wanted: BTreeSet<String> =
            expected["pairs"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert_eq!(pairs(&report), wanted, "{name}: pairs");
        let announced: BTreeSet<&str> =
            report["ranks"].as_array().unwrap().iter().filter_map(|r| r["announced"].as_str()).collect();
        let wanted: BTreeSet<&str> =
            expected["announced"].as_object().unwrap().values().filter_map(Value::as_str).collect();
        assert_eq!(announced, wanted, "{name}: announced");
        assert_eq!(report["nccl_versions"], expected["nccl_versions"], "{name}: versions");
        assert_eq!(report["verdict"]["fabric"], expected["verdict_fabric"], "{name}: verdict");
        for pattern in expected["finding_evidence"].as_array().into_iter().flatten() {
            let pattern = regex::Regex::new(pattern.as_str().unwrap()).unwrap();
            let said = report["findings"].as_array().unwrap().iter().any(|finding| {
                let evidence = finding["evidence"].as_array().into_iter().flatten();
                evidence
                    .filter_map(|line| line["text"].as_str())
                    .chain([&finding["message"], &finding["code"]].into_iter().filter_map(Value::as_str))
                    .any(|text| pattern.is_match(text))
            });
            assert!(said, "{name}: no finding matches {pattern}: {:#}", report["findings"]);
        }
    }
    assert!(seen >= 15, "{seen}");
}

#[test]
fn torchruns_prefixes_change_nothing() {
    let place = Place::new();
    let folder = repo("crates/diagnose/tests/cases/nccl/captures");
    let plain = report(&place, &logs(&folder.join("train_2x2")));
    let prefixed = report(&place, &logs(&folder.join("torchrun_train_2x2")));
    assert!(!pairs(&plain).is_empty());
    assert_eq!(pairs(&plain), pairs(&prefixed));
}

/// A folder and stdin are other ways to the same report.
#[test]
fn however_the_logs_are_named_the_pairs_are_the_same() {
    let place = Place::new();
    let folder = repo("crates/diagnose/tests/cases/nccl/captures/socket_2x2");
    let files = report(&place, &logs(&folder));
    assert_eq!(pairs(&report(&place, std::slice::from_ref(&folder))), pairs(&files));
    let all: Vec<u8> = logs(&folder).iter().flat_map(|path| std::fs::read(path).unwrap()).collect();
    let piped = place.feed("transport -o json -", &all).ok().json();
    assert_eq!(pairs(&piped), pairs(&files));
}
