//! The report as one self-contained page: no script, no network, every text escaped.

use std::collections::BTreeMap;

use askama::Template;
use weftrun::Result;
use weftrun::core::report::{VerifyReport, VerifyRun};
use weftrun::core::text::binary_size;
use weftrun::core::verify::{Collective, Verdict};

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
    dots: Vec<Dot>,
    across: Vec<Tick>,
    up: Vec<Tick>,
    expected: Option<Band>,
}

/// The published range.
struct Band {
    top: f64,
    height: f64,
    text: String,
}

impl Band {
    /// Returns where the lowest published figure is.
    fn low(&self) -> f64 {
        self.top + self.height
    }
}

struct Dot {
    x: f64,
    y: f64,
    title: String,
}

struct Tick {
    at: f64,
    text: String,
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
    let line = |row: &weftrun::core::verify::Row| {
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
    let high = run.expected.as_ref().map(|expected| expected.high);
    let most = figures.values().copied().chain(high).fold(0.0, f64::max);
    let step = step(most / 5.0);
    let most = (most / step).ceil().max(1.0) * step;
    let log = |size: u64| (size as f64).log2();
    let x = |size: u64| LEFT + (log(size) - log(first)) / (log(last) - log(first)) * (WIDTH - LEFT - 16.0);
    let y = |busbw: f64| TOP + (1.0 - busbw / most) * (HEIGHT - TOP - BOTTOM);
    let dots: Vec<Dot> = figures
        .iter()
        .map(|(bytes, busbw)| Dot {
            x: x(*bytes),
            y: y(*busbw),
            title: format!("{}: {busbw:.2} GB/s", binary_size(*bytes)),
        })
        .collect();
    // At most eight labels fit.
    let every = figures.len().div_ceil(8);
    Some(Curve {
        points: dots.iter().map(|dot| format!("{:.1},{:.1}", dot.x, dot.y)).collect::<Vec<_>>().join(" "),
        across: figures
            .keys()
            .step_by(every)
            .map(|bytes| Tick { at: x(*bytes), text: binary_size(*bytes) })
            .collect(),
        up: std::iter::successors(Some(0.0), |busbw| Some(busbw + step))
            .take_while(|busbw| *busbw < most + step / 2.0)
            .map(|busbw| Tick { at: y(busbw), text: format!("{}", (busbw * 1000.0).round() / 1000.0) })
            .collect(),
        expected: run.expected.as_ref().map(|expected| Band {
            top: y(expected.high),
            height: y(expected.low) - y(expected.high),
            text: expected.range(),
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
