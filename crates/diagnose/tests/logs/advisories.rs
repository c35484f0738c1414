//! Versions in a log that are known to be bad.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::report;

fn capture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/nccl/versions").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

fn advisories(log: &str) -> Vec<(String, String)> {
    let report = report(log);
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().unwrap();
    let ours = findings.iter().filter(|finding| finding["code"] == "W-ADVISORY");
    ours.map(|finding| (text(finding, "severity"), text(finding, "message"))).collect()
}

#[test]
fn a_version_that_is_known_to_be_bad_is_a_note_about_the_log() {
    let found = advisories(&capture("v2.27.7-1-p2p"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "info", "the log need not show the effect");
    assert!(found[0].1.contains("NCCL-RAS-CRASH-2.27.7"), "{found:?}");
}

#[test]
fn a_version_without_an_advisory_gets_no_note() {
    let log = capture("v2.30.7-1-ofi_tcp_2x2");
    assert!(log.contains("Initializing aws-ofi-nccl 1.21.1"));
    assert_eq!(advisories(&log), []);
    let bad = log.replace("aws-ofi-nccl 1.21.1", "aws-ofi-nccl 1.18.0");
    let found = advisories(&bad);
    assert!(matches!(&found[..], [(_, message)] if message.contains("AWS-OFI-NCCL-BCAST")), "{found:?}");
}
