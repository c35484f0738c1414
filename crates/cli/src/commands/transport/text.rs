//! The report as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weftrun::core::log::clean_text;
use weftrun::core::nccl::{GdrSeen, Phase, TransportMap};
use weftrun::core::text::counted;
use weftrun::diagnose::Diagnosis;
use weftrun::report::TransportReport;

use super::html::stack;
use crate::map_view;
use crate::output::{finding_text, style};

/// Formats verdict, ranks, matrix, findings and throughput.
pub fn report(diagnosis: &Diagnosis, map: &TransportMap) -> String {
    let mut text = map_view::verdict(diagnosis);
    text.push('\n');
    let report = TransportReport::of(diagnosis.clone(), map);
    let _ = writeln!(text, "{}", summary(&report));
    if let Some(cause) = diagnosis.why.cause.as_ref().filter(|_| diagnosis.why.is_failure()) {
        let said = format!("{}: {}: {}: {}", diagnosis.why.state, cause.class, cause.who(), cause.what);
        let bad = style::ERROR;
        let _ = writeln!(text, "{bad}{}{bad:#} (`weftrun why` says more)", clean_text(&said));
    }
    let drawn = map_view::draw(map, diagnosis.judge());
    if !drawn.is_empty() {
        let _ = write!(text, "\n{drawn}");
    }
    for finding in &diagnosis.findings {
        let _ = write!(text, "\n{}\n", finding_text(finding));
    }
    text.push_str(&throughput(&report));
    text
}

fn summary(report: &TransportReport) -> String {
    let ranks = &report.ranks;
    let nodes = ranks.iter().map(|rank| rank.node).max().map_or(0, |last| last + 1);
    let mut phases: BTreeMap<Phase, usize> = BTreeMap::new();
    for rank in ranks {
        *phases.entry(rank.phase).or_default() += 1;
    }
    let phases: Vec<String> = phases.iter().rev().map(|(phase, count)| format!("{count} {phase}")).collect();
    let gdr = match report.verdict.gdr {
        GdrSeen::All => "GPUDirect RDMA on all network connections",
        GdrSeen::Some => "GPUDirect RDMA on some network connections only",
        GdrSeen::None => "no GPUDirect RDMA",
        GdrSeen::Unknown => "GPUDirect RDMA not known",
    };
    let dim = style::DIM;
    format!(
        "{} on {}: {}; {gdr}\n{dim}{}{dim:#}",
        counted(ranks.len(), "process"),
        counted(nodes as usize, "node"),
        if phases.is_empty() { "nothing seen".to_owned() } else { phases.join(", ") },
        clean_text(&stack(report))
    )
}

fn throughput(report: &TransportReport) -> String {
    const MOST: usize = 8;
    let mut text = String::new();
    for value in report.throughput.iter().take(MOST) {
        let expected = value.expected.as_ref().map_or_else(String::new, |usual| {
            let range = if usual.low < usual.high {
                format!("{}–{}", usual.low, usual.high)
            } else {
                usual.low.to_string()
            };
            format!("; expected {range} {} ({})", value.unit, usual.source)
        });
        let _ = write!(
            text,
            "\n{} {} {} (last of {}, {}:{}){expected}",
            value.metric,
            value.value,
            value.unit,
            value.count,
            clean_text(&value.source),
            value.line
        );
    }
    if report.throughput.len() > MOST {
        let _ = write!(text, "\n… and {} more series", report.throughput.len() - MOST);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
