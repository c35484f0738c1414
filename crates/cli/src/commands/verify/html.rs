//! The report as one self-contained page: no script, no network, every text escaped.

use std::collections::BTreeMap;

use askama::Template;
use weftrun::Result;
use weftrun::core::text::binary_size;
use weftrun::report::{VerifyReport, VerifyRun};
use weftrun::verify::{Collective, Verdict};

use crate::commands::transport::html::rendered;

/// Size of the drawing and of the margin around it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 24.0;
/// Largest number of rows, of groups and of pairs printed.
const ROWS: usize = 2048;

#[derive(Template)]
#[template(path = "verify.html")]
struct Page<'a> {
    report: &'a VerifyReport<'a>,
    verdict: &'static str,
    runs: Vec<Section<'a>>,
    transports: Vec<(String, usize)>,
}

struct Section<'a> {
    run: &'a VerifyRun<'a>,
    name: &'static str,
    rows: Vec<Line>,
    curve: Option<Curve>,
}

/// One row of the table; the better of both measurements.
struct Line {
    size: String,
    time: String,
    algbw: String,
    busbw: String,
    wrong: u64,
}

/// The bus bandwidth by size.
struct Curve {
    points: String,
    /// From the left, from the top, and the text of each.
    dots: Vec<(f64, f64, String)>,
    /// From the left, and the text of each.
    across: Vec<(f64, String)>,
    /// From the top, and the text of each.
    up: Vec<(f64, String)>,
    /// Top and height of the published range or of the line rate, and its text.
    expected: Option<(f64, f64, String)>,
}

pub fn page(report: &VerifyReport<'_>) -> Result<String> {
    let mut transports: BTreeMap<&str, usize> = BTreeMap::new();
    for pair in report.transport.iter().flat_map(|transport| &transport.pairs) {
        *transports.entry(&pair.transport).or_default() += 1;
    }
    let page = Page {
        report,
        verdict: match report.verdict {
            Verdict::Pass => "As fast as published figures.",
            Verdict::NoReference => "Nothing comparable was published.",
            Verdict::Degraded => "Slower than it should be.",
            Verdict::Fail => "The benchmark failed.",
        },
        runs: report.runs.iter().map(section).collect(),
        transports: transports.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    };
    rendered(&page)
}

fn section<'a>(run: &'a VerifyRun<'a>) -> Section<'a> {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
    let line = |row: &weftrun::verify::Row| {
        let figures = row.best();
        Line {
            size: binary_size(row.size),
            time: shown(figures.time_us),
            algbw: shown(figures.algbw),
            busbw: shown(figures.busbw),
            wrong: row.wrong(),
        }
    };
    Section {
        run,
        name: run.collective.map_or("collective not known", Collective::as_str),
        rows: run.rows.iter().take(ROWS).map(line).collect(),
        curve: curve(run),
    }
}

/// Draws the bus bandwidth by size, the size as a logarithm; none with fewer than two sizes.
fn curve(run: &VerifyRun<'_>) -> Option<Curve> {
    let figures: BTreeMap<u64, f64> = run
        .rows
        .iter()
        .take(ROWS)
        .filter(|row| row.size > 0)
        .filter_map(|row| Some((row.size, row.busbw()?)))
        .collect();
    let (first, last) = (*figures.keys().next()?, *figures.keys().next_back()?);
    if first == last {
        return None;
    }
    let expected = run.expected.or(run.limit);
    let high = expected.map(|expected| expected.high);
    let most = figures.values().copied().chain(high).fold(0.0, f64::max);
    let step = step(most / 5.0);
    let most = (most / step).ceil().max(1.0) * step;
    let log = |size: u64| (size as f64).log2();
    let x = |size: u64| LEFT + (log(size) - log(first)) / (log(last) - log(first)) * (WIDTH - LEFT - 16.0);
    let y = |busbw: f64| TOP + (1.0 - busbw / most) * (HEIGHT - TOP - BOTTOM);
    let dot = |(bytes, busbw): (&u64, &f64)| {
        (x(*bytes), y(*busbw), format!("{}: {busbw:.2} GB/s", binary_size(*bytes)))
    };
    let dots: Vec<_> = figures.iter().map(dot).collect();
    // At most eight labels fit.
    let every = figures.len().div_ceil(8);
    Some(Curve {
        points: dots.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" "),
        across: figures.keys().step_by(every).map(|bytes| (x(*bytes), binary_size(*bytes))).collect(),
        up: std::iter::successors(Some(0.0), |busbw| Some(busbw + step))
            .take_while(|busbw| *busbw < most + step / 2.0)
            .map(|busbw| (y(busbw), ((busbw * 1000.0).round() / 1000.0).to_string()))
            .collect(),
        expected: expected.map(|expected| {
            let top = y(expected.high);
            (top, y(expected.low) - top, format!("{}: {}", expected.basis, expected.range()))
        }),
        dots,
    })
}

/// Returns the smallest of 1, 2, 5, 10, 20, … that is not below a value.
fn step(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (value, expected) in
            [(0.7, 1.0), (1.0, 1.0), (70.0, 100.0), (13.0, 20.0), (41.0, 50.0), (0.0, 0.001)]
        {
            assert!((step(value) / expected - 1.0).abs() < 1e-9, "{value}: {}", step(value));
        }
    }
}
