//! Every capture of a real run gives the expected result, with any split of its bytes. The captures are our
//! own; `cases/nccl/captures/README.md` explains how they were made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_diagnose::report::TransportReport;

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/nccl")
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs
}

fn source(path: &Path) -> Arc<SourceId> {
    Arc::new(SourceId::new(path.file_name().unwrap().to_string_lossy()))
}

/// Reads files one after the other, in chunks of a size.
fn read(paths: &[PathBuf], piece: usize) -> TransportMap {
    let mut map = TransportMap::new();
    for path in paths {
        let source = source(path);
        for chunk in fs::read(path).unwrap().chunks(piece) {
            map.read(&source, chunk);
        }
        map.end(&source);
    }
    map
}

/// Reads the chunks of `merged.jsonl` as they arrived.
fn read_merged(path: &Path) -> TransportMap {
    let mut map = TransportMap::new();
    let sources: Vec<_> = (0..4).map(|rank| Arc::new(SourceId::new(format!("rank{rank}.log")))).collect();
    for line in fs::read_to_string(path).unwrap().lines() {
        let chunk: Value = serde_json::from_str(line).unwrap();
        let rank = usize::try_from(chunk["rank"].as_u64().unwrap()).unwrap();
        map.read(&sources[rank], chunk["bytes"].as_str().unwrap().as_bytes());
    }
    for source in &sources {
        map.end(source);
    }
    map
}

fn report(map: &TransportMap) -> Value {
    serde_json::to_value(TransportReport::new(None, map)).unwrap()
}

fn pairs(report: &Value) -> BTreeSet<String> {
    report["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            Value::from(vec![
                pair["global_from"].clone(),
                pair["global_to"].clone(),
                pair["kind"].clone(),
                pair["net"].clone(),
            ])
            .to_string()
        })
        .collect()
}

fn check(name: &str, report: &Value, expected: &Value) {
    let wanted: BTreeSet<String> =
        expected["pairs"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(pairs(report), wanted, "{name}: pairs");
    assert_eq!(report["verdict"]["fabric"], expected["verdict_fabric"], "{name}: verdict");
    assert_eq!(report["nccl_versions"], expected["nccl_versions"], "{name}: versions");
    let announced: BTreeSet<&str> =
        report["ranks"].as_array().unwrap().iter().filter_map(|rank| rank["announced"].as_str()).collect();
    let wanted: BTreeSet<&str> =
        expected["announced"].as_object().unwrap().values().filter_map(Value::as_str).collect();
    assert_eq!(announced, wanted, "{name}: announced");
    let providers: Vec<&Value> = report["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plugin| &plugin["provider"])
        .filter(|provider| !provider.is_null())
        .collect();
    assert_eq!(
        Value::from(providers.into_iter().cloned().collect::<Vec<_>>()),
        expected["providers"],
        "{name}: providers"
    );
    for pattern in expected["finding_evidence"].as_array().unwrap() {
        let pattern = pattern.as_str().unwrap();
        assert!(
            report["findings"].as_array().unwrap().iter().any(|finding| matches(pattern, finding)),
            "{name}: no finding says {pattern}: {:#}",
            report["findings"]
        );
    }
}

/// Returns whether a finding's message or evidence contains one of the pattern's alternatives. The patterns
/// are plain words with `|`, `[Ww]` and `(a|b)`, which are expanded here without a regex engine.
fn matches(pattern: &str, finding: &Value) -> bool {
    let text = finding.to_string();
    let alternatives: Vec<&str> = match pattern {
        "P2P.*(disabled|off)|SHM" => vec!["P2P is disabled", "SHM"],
        other => other.split('|').collect(),
    };
    alternatives.iter().any(|alternative| {
        let plain = alternative.replace("[Ww]", "W");
        text.contains(&plain) || text.contains(&plain.replace('W', "w"))
    })
}

#[test]
fn every_capture_gives_its_truth_however_it_is_cut() {
    let mut seen = 0;
    for entry in fs::read_dir(cases().join("captures")).unwrap() {
        let folder = entry.unwrap().path();
        let expected = folder.join("expected.json");
        if !expected.is_file() {
            continue;
        }
        seen += 1;
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let expected: Value = serde_json::from_str(&fs::read_to_string(expected).unwrap()).unwrap();
        let whole = report(&read(&logs(&folder), usize::MAX));
        check(&name, &whole, &expected);
        assert_eq!(whole["totals"]["lines"], expected["lines"], "{name}: lines");
        for piece in [1, 7, 4096] {
            assert_eq!(report(&read(&logs(&folder), piece)), whole, "{name} in pieces of {piece}");
        }
        let merged = folder.join("merged.jsonl");
        if merged.is_file() {
            check(&format!("{name}, as it arrived"), &report(&read_merged(&merged)), &expected);
        }
    }
    assert!(seen >= 15);
}

#[test]
fn torchrun_prefixes_change_nothing() {
    let captures = cases().join("captures");
    let plain = report(&read(&logs(&captures.join("train_2x2")), usize::MAX));
    let prefixed = report(&read(&logs(&captures.join("torchrun_train_2x2")), usize::MAX));
    assert_eq!(pairs(&plain), pairs(&prefixed));
    assert_eq!(prefixed["verdict"]["fabric"], "socket");
}

#[test]
fn other_versions_of_nccl_read_alike() {
    let versions = cases().join("versions");
    for (folder, version, fabric) in [
        ("v2.27.7-1-p2p", "2.27.7", "intra-node"),
        ("v2.27.7-1-socket_2x2", "2.27.7", "socket"),
        ("v2.30.7-1-ofi_tcp_2x2", "2.30.7", "libfabric-tcp"),
    ] {
        let report = report(&read(&logs(&versions.join(folder)), usize::MAX));
        assert_eq!(report["verdict"]["fabric"], fabric, "{folder}");
        assert!(report["nccl_versions"][0].as_str().unwrap().starts_with(version), "{folder}");
        for pair in report["pairs"].as_array().unwrap() {
            assert!(pair["global_from"].is_u64() && pair["global_to"].is_u64(), "{folder}: {pair}");
        }
    }
}
