//! The report as one self-contained page: no script, no network, every text escaped.

use std::collections::BTreeMap;

use askama::Template;
use weftrun::core::nccl::{GdrSeen, Kind, PairView};
use weftrun::core::text::counted;
use weftrun::diagnose::Judge;
use weftrun::diagnose::cause::Why;
use weftrun::report::TransportReport;
use weftrun::{Error, ErrorKind, Finding, Result, Severity};

use super::drawing::{Drawing, graph};
use crate::map_view::placed;

/// Largest number of ranks drawn individually; more are drawn by node.
const RANKS: usize = 64;
/// Largest number of rows in the table of phases.
pub const ROWS: usize = 2048;

#[derive(Template)]
#[template(path = "transport.html")]
struct Page<'a> {
    report: &'a TransportReport,
    ok: &'static str,
    gdr: &'static str,
    stack: String,
    counts: String,
    heads: Vec<String>,
    rows: Vec<Row>,
    any_wrong: bool,
    unproved: usize,
    graph: Option<Drawing>,
    hidden_ranks: usize,
    why: &'a Why,
    why_lines: Vec<String>,
}

struct Row {
    head: String,
    cells: Vec<Cell>,
}

#[derive(Clone, Default)]
struct Cell {
    class: &'static str,
    /// Which of its transports is named: the one of the greatest weight.
    weight: u8,
    wrong: bool,
    word: String,
    title: String,
}

pub fn page(report: &TransportReport, judge: Judge, why: &Why) -> Result<String> {
    let (heads, rows, unproved) = matrix(report, judge);
    let page = Page {
        report,
        ok: match report.verdict.ok {
            Some(true) => "As it should be.",
            Some(false) => "Not as it should be.",
            None => "Nothing proves whether it is as it should be.",
        },
        gdr: gdr(report.verdict.gdr),
        stack: stack(report),
        counts: [
            counted(report.ranks.len(), "process"),
            counted(report.communicators.len(), "communicator"),
            counted(report.pairs.len(), "pair"),
        ]
        .join(", "),
        any_wrong: rows.iter().flat_map(|row| &row.cells).any(|cell| cell.wrong),
        heads,
        rows,
        unproved,
        graph: graph(report, judge),
        hidden_ranks: report.ranks.len().saturating_sub(ROWS),
        why,
        why_lines: why.lines(),
    };
    rendered(&page)
}

/// Returns a value of a table, or a dash where there is none.
pub fn dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), ToString::to_string)
}

/// Says where GPUDirect RDMA is used.
pub fn gdr(seen: GdrSeen) -> &'static str {
    match seen {
        GdrSeen::All => "on all network connections",
        GdrSeen::Some => "on some network connections",
        GdrSeen::None => "none",
        GdrSeen::Unknown => "not known",
    }
}

/// Returns the text of a page.
pub fn rendered(page: &impl Template) -> Result<String> {
    page.render()
        .map_err(|error| Error::new(ErrorKind::Unexpected, format!("cannot write the page: {error}")))
}

/// Returns the versions of NCCL and of its plugins.
pub fn stack(report: &TransportReport) -> String {
    // Exceptions print a version without its CUDA.
    let all = &report.nccl_versions;
    let is_part = |version: &&String| {
        all.iter().any(|other| other.strip_prefix(version.as_str()).is_some_and(|rest| rest.starts_with('+')))
    };
    let versions = all.iter().filter(|version| !is_part(version)).map(|version| format!("NCCL {version}"));
    let plugins = report.plugins.iter().map(|plugin| {
        let version = plugin.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let provider = plugin.provider.as_ref().map(|name| format!(" (provider {name})")).unwrap_or_default();
        format!("{}{version}{provider}", plugin.name)
    });
    versions.chain(plugins).collect::<Vec<_>>().join(", ")
}

/// Returns the matrix by rank, or by node if there are many ranks.
fn matrix(report: &TransportReport, judge: Judge) -> (Vec<String>, Vec<Row>, usize) {
    let highest = report.pairs.iter().flat_map(|pair| [pair.global_from, pair.global_to]).flatten().max();
    let by_rank = highest.is_none_or(|highest| (highest as usize) < RANKS);
    let mut cells: BTreeMap<(u32, u32), Cell> = BTreeMap::new();
    let mut unproved = 0;
    for (pair, ends, inside) in placed(&report.ranks, &report.pairs, by_rank) {
        let Some(ends) = ends else {
            unproved += 1;
            continue;
        };
        let wrong = |network| judge.is_wrong(network, inside);
        add(cells.entry(ends).or_default(), pair, pair.network.is_some_and(wrong));
    }
    let size = cells.keys().flat_map(|(from, to)| [*from, *to]).max().map_or(0, |last| (last + 1).min(256));
    let letter = if by_rank { 'r' } else { 'n' };
    let heads = (0..size).map(|at| format!("{letter}{at}")).collect();
    let rows = (0..size)
        .map(|from| Row {
            head: format!("{letter}{from}"),
            cells: (0..size).map(|to| cells.get(&(from, to)).cloned().unwrap_or_default()).collect(),
        })
        .collect();
    (heads, rows, unproved)
}

/// Adds a pair's transport to a cell; a network takes precedence over transports inside a node, and sockets
/// over other networks.
fn add(cell: &mut Cell, pair: &PairView, wrong: bool) {
    cell.wrong |= wrong;
    let (class, word, weight) = match (pair.kind, pair.network) {
        (_, Some(network)) if network.is_tcp() => ("socket", network.name(), 3),
        (Kind::Collnet, _) => ("collnet", "CollNet", 2),
        (_, Some(network)) => ("net", network.name(), 2),
        (Kind::P2p, _) => ("p2p", "P2P", 1),
        (Kind::Shm, _) => ("shm", "SHM", 1),
        (Kind::Nvls, _) => ("nvls", "NVLS", 1),
        (Kind::Own, _) => ("self", "self", 1),
        _ => ("unknown", &*pair.transport, 2),
    };
    if weight > cell.weight {
        (cell.class, cell.word, cell.weight) = (class, word.to_owned(), weight);
    }
    let gdr = if pair.gdr == Some(true) { ", GPUDirect" } else { "" };
    let line =
        format!("{} → {} {} ({} channels{gdr})", pair.from, pair.to, pair.transport, pair.channels.count());
    if cell.title.len() < 400 {
        if !cell.title.is_empty() {
            cell.title.push('\n');
        }
        cell.title.push_str(&line);
    }
}

pub fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}
