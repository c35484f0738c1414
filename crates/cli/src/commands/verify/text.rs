//! The result of `verify` as text.

use std::collections::BTreeMap;

use weftrun::Result;
use weftrun::core::Severity;
use weftrun::core::log::clean_text;
use weftrun::core::text::{binary_size, counted};
use weftrun::report::{VerifyGroup, VerifyHistoryReport, VerifySearch};
use weftrun::verify::Verified;
use weftrun::verify::{Collective, Judgement, KeptFigure, Run};

use crate::context::Context;
use crate::map_view;
use crate::output::style;

/// The number of runs that a history shows.
const SHOWN: usize = 20;

/// Prints the tables, the transports, what the nodes reported, the search for slow nodes and the verdict.
pub fn print(context: &Context, verified: &Verified) -> Result<()> {
    let out = &context.out;
    for (run, judgement) in &verified.runs {
        out.text(&table(run, judgement))?;
    }
    if verified.has_transport() {
        out.findings(&verified.transport.findings);
        out.say(map_view::verdict(&verified.transport));
    }
    if verified.transport.why.is_failure() {
        crate::commands::why::say(out, &verified.transport.why);
    }
    out.findings(&verified.findings());
    if let Some(search) = &verified.search {
        out.text(&found(search))?;
        out.findings(&search.findings);
    }
    let slower = verified.regressions.iter().find(|finding| finding.severity >= Severity::Warning);
    if let Some(slower) = slower {
        out.text(&format!("{}: {}\n", verified.verdict(), clean_text(&slower.message)))?;
    }
    if let Some(error) = verified.unmet() {
        out.text(&format!("{}: {}\n", verified.verdict(), clean_text(error.message())))?;
    }
    Ok(())
}

/// Returns the nodes of a target, the slowest first, and its latest runs as text.
pub fn history(report: &VerifyHistoryReport) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let count = counted(report.runs.len(), "kept run");
    let mut text = format!("{bold}{}{bold:#}: {count}\n", clean_text(&report.target));
    if report.runs.is_empty() {
        text.push_str("`weftrun verify --baseline save` keeps one\n");
        return text;
    }
    let wide = |name: &str| clean_text(name).chars().count();
    let width = report.nodes.iter().map(|node| wide(&node.host)).max().unwrap_or(0).max(4);
    if !report.nodes.is_empty() {
        text.push_str(&format!("{dim}{:width$}  {:>5}  of the usual bandwidth{dim:#}\n", "node", "runs"));
    }
    for node in &report.nodes {
        let host = clean_text(&node.host);
        text.push_str(&format!("{host:width$}  {:>5}  {:.0} %\n", node.runs, node.of_usual * 100.0));
    }
    text.push_str(&format!(
        "{dim}{:20}  nodes  {:14}  {:>10}  busbw GB/s{dim:#}\n",
        "ended", "collective", "size"
    ));
    for run in report.runs.iter().rev().take(SHOWN) {
        let nodes = run.nodes.map_or_else(|| "?".to_owned(), |nodes| nodes.to_string());
        // The best of each collective stands for the run.
        let mut best: BTreeMap<_, &KeptFigure> = BTreeMap::new();
        for figure in &run.figures {
            let best = best.entry(figure.collective).or_insert(figure);
            if figure.busbw > best.busbw {
                *best = figure;
            }
        }
        for figure in best.into_values() {
            let name = figure.collective.map_or("not known", Collective::as_str);
            text.push_str(&format!(
                "{:.0}  {nodes:>5}  {name:14}  {:>10}  {:.1}\n",
                run.at,
                binary_size(figure.size),
                figure.busbw
            ));
        }
    }
    text
}

/// Returns one measurement of a search as a line.
pub fn group(group: &VerifyGroup) -> String {
    let why = group.failed.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let text = format!("round {}: {} on {}{why}", group.round, group.bandwidth(), group.nodes.join(", "));
    clean_text(&text).into_owned()
}

/// Returns the result of a search for slow nodes as text.
fn found(search: &VerifySearch) -> String {
    let mut lines = Vec::new();
    match &search.reason {
        Some(reason) => lines.push(format!("no slow node is named: {reason}")),
        None => {
            lines.push(format!("slow nodes: {}", search.slow_nodes.join(", ")));
            // The measurements of the pairs prove the result.
            let pairs = search.groups.iter().filter(|group| group.nodes.len() == 2);
            lines.extend(
                pairs.map(|group| format!("  {:>12}  {}", group.bandwidth(), group.nodes.join(" and "))),
            );
        }
    }
    lines.iter().map(|line| format!("{}\n", clean_text(line))).collect()
}

/// Returns the figures of a run and the verdict as text.
fn table(run: &Run, judgement: &Judgement) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let name = run.collective.map_or("collective not known", Collective::as_str);
    let ranks = run.ranks.map_or(String::new(), |ranks| format!(", {ranks} ranks"));
    let mut text = format!("{bold}{name}{bold:#}{ranks}\n");
    if !run.rows.is_empty() {
        text.push_str(&format!(
            "{dim}{:>10} {:>12} {:>10} {:>10}{dim:#}\n",
            "size", "time (us)", "algbw GB/s", "busbw GB/s"
        ));
    }
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for row in &run.rows {
        let figures = row.best();
        text.push_str(&format!(
            "{:>10} {:>12} {:>10} {:>10}\n",
            binary_size(row.size),
            shown(figures.time_us),
            shown(figures.algbw),
            shown(figures.busbw)
        ));
    }
    text.push_str(&format!("{bold}{}{bold:#}: {}\n", judgement.verdict, clean_text(&judgement.reason)));
    for source in judgement.expected.iter().flat_map(|expected| &expected.sources) {
        text.push_str(&format!("  {dim}{source}{dim:#}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_search_has_a_line_for_each_pair() {
        let nodes = vec!["a".to_owned(), "b\u{1b}[2J".to_owned()];
        let pair = VerifyGroup::new(1, nodes, Some(20.0), None);
        let slow_nodes = vec!["b".to_owned()];
        let groups = vec![pair.clone(), pair];
        let mut search = VerifySearch::new(slow_nodes, None, groups);
        let text = found(&search);
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(
            text.starts_with("slow nodes: b\n") && text.ends_with('\n') && !text.contains('\u{1b}'),
            "{text:?}"
        );
        search.reason = Some("the search failed".to_owned());
        assert_eq!(found(&search), "no slow node is named: the search failed\n");
    }
}
