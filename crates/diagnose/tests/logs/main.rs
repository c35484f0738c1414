//! NCCL's logs: real captures with expected results, the laws of the parser, every rule, every format, and
//! misleading logs.
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

mod advisories;
mod bounds;
mod captures;
mod codes;
mod diagnostics;
mod failures;
mod flight_recorder;
mod formats;
mod late_ranks;
mod laws;
mod lies;
mod networks;
mod rules;
mod throughput;

use std::sync::Arc;

use serde_json::Value;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_diagnose::report::TransportReport;

/// Returns the report of one log.
fn report(log: &str) -> Value {
    let source = Arc::new(SourceId::new("log"));
    let mut map = TransportMap::new();
    map.read(&source, log.as_bytes());
    map.end(&source);
    serde_json::to_value(TransportReport::new(None, &map)).unwrap()
}

/// Returns the ids of the rules that fired, in order.
fn rules_of(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap();
    let mut rules: Vec<String> =
        findings.iter().filter_map(|finding| finding["ref"].as_str().map(str::to_owned)).collect();
    rules.sort();
    rules
}

/// Returns the codes of all findings.
fn codes_of(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().filter_map(|finding| finding["code"].as_str().map(str::to_owned)).collect()
}
