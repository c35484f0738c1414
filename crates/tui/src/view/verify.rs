//! The benchmark of a job's nodes: curves beside the published figure, and the search for slow nodes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use weftrun::core::text::binary_size;
use weftrun::verify::Verdict;

use super::chart;
use super::paint::{Paint, fit};
use crate::model::verify::{Curve, VerifyView, Verifying};
use crate::theme::Meaning;

/// Rows of the chart.
const CHART: u16 = 12;

/// Draws it on top of a screen.
pub fn draw(verifying: &Verifying, frame: &mut Frame, paint: Paint, area: Rect) {
    let view = &verifying.view;
    let keys = if view.ended { "V again ─ esc closes" } else { "x stops ─ esc hides" };
    let size = (area.width.saturating_sub(4).min(130), area.height.saturating_sub(1));
    let inside =
        paint.popup(frame, area, size, format!("bandwidth like {} ─ {keys}", verifying.handle.name()));
    let curve = view.curves.iter().rev().find(|curve| curve.points.len() > 1);
    let chart = if curve.is_some() { CHART.min(inside.height / 2) } else { 0 };
    let [top, below] = Layout::vertical([Constraint::Length(chart), Constraint::Min(1)]).areas(inside);
    if let Some(curve) = curve.filter(|_| chart >= 5) {
        draw_curve(curve, frame, paint, top);
    }
    let lines: Vec<Line> = lines(view, paint, usize::from(below.width));
    // The latest lines are the ones that change.
    let first = lines.len().saturating_sub(usize::from(below.height));
    frame.render_widget(Paragraph::new(lines.into_iter().skip(first).collect::<Vec<_>>()), below);
}

fn draw_curve(curve: &Curve, frame: &mut Frame, paint: Paint, area: Rect) {
    let across = |at: Option<&(f64, f64)>| at.map_or_else(String::new, |(log, _)| size(*log));
    let by_size = |one: &&(f64, f64), other: &&(f64, f64)| one.0.total_cmp(&other.0);
    let ends = [across(curve.points.iter().min_by(by_size)), across(curve.points.iter().max_by(by_size))];
    chart::draw(&curve.points, curve.expected.map(|(_, low)| low), ends, frame, paint, area);
}

/// Returns a size by its logarithm: `1 GiB`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what a size can be")]
fn size(log: f64) -> String {
    binary_size(log.clamp(0.0, 60.0).exp2().round() as u64)
}

fn lines<'a>(view: &VerifyView, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    let mut add = |text: String, meaning| {
        lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), meaning)));
    };
    let state = if view.job.is_empty() { "planning the benchmark …" } else { &view.job };
    add(format!("{state}  {}", view.phase), Meaning::Muted);
    for curve in &view.curves {
        let last = curve
            .points
            .last()
            .map_or_else(String::new, |(log, busbw)| format!("  {} {busbw:.1} GB/s", size(*log)));
        let published =
            curve.expected.map_or_else(String::new, |(basis, low)| format!("  {basis} {low} GB/s (dots)"));
        add(format!("{}{last}{published}", curve.name), Meaning::Title);
        if let Some((verdict, reason)) = &curve.verdict {
            add(format!("  {verdict}: {reason}"), meaning(*verdict));
        }
    }
    for finding in &view.findings {
        add(finding.clone(), Meaning::Warn);
    }
    let best = view.groups.iter().filter_map(|group| group.busbw_gbps).fold(0.0, f64::max);
    let mut round = 0;
    for group in &view.groups {
        if group.round != round {
            round = group.round;
            add(format!("round {round}"), Meaning::Title);
        }
        let part = group.busbw_gbps.filter(|_| best > 0.0).map_or(0.0, |busbw| busbw / best);
        let bar: String =
            (1..=10).filter(|tenth| f64::from(*tenth) <= (part * 10.0).round()).map(|_| '▇').collect();
        let why = group.failed.as_ref().map_or_else(String::new, |why| format!("  {why}"));
        let text = format!("  {bar:<10} {:>12}  {}{why}", group.bandwidth(), group.nodes.join(" "));
        add(text, if part < 0.85 { Meaning::Bad } else { Meaning::Good });
    }
    match &view.search {
        Some(search) if search.slow_nodes.is_empty() => {
            let reason = search.reason.as_deref().unwrap_or_default();
            add(format!("no slow node is named: {reason}"), Meaning::Warn);
        }
        Some(search) => add(format!("slow nodes: {}", search.slow_nodes.join(", ")), Meaning::Bad),
        None => {}
    }
    if let Some(error) = &view.error {
        add(error.clone(), Meaning::Bad);
    }
    lines
}

fn meaning(verdict: Verdict) -> Meaning {
    match verdict {
        Verdict::Pass => Meaning::Good,
        Verdict::NoReference => Meaning::Warn,
        Verdict::Degraded | Verdict::Fail => Meaning::Bad,
    }
}
