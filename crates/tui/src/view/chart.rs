//! A curve of bus bandwidths beside the expected one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Span;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use super::paint::Paint;
use crate::theme::Meaning;

/// Draws points (GB/s upwards) as a line, the expected bandwidth as dots, and what stands at both ends of the other axis.
pub(super) fn draw(
    points: &[(f64, f64)],
    expected: Option<f64>,
    ends: [String; 2],
    frame: &mut Frame,
    paint: Paint,
    area: Rect,
) {
    let across = |pick: fn(f64, f64) -> f64, from: f64| points.iter().map(|(x, _)| *x).fold(from, pick);
    let (left, right) = (across(f64::min, f64::INFINITY), across(f64::max, 0.0));
    let highest = points.iter().map(|(_, y)| *y).chain(expected).fold(1.0, f64::max) * 1.1;
    let expected: Vec<(f64, f64)> = expected.iter().flat_map(|y| [(left, *y), (right, *y)]).collect();
    let line = |data, meaning, marker| {
        Dataset::default().data(data).graph_type(GraphType::Line).marker(marker).style(paint.style(meaning))
    };
    let mut sets = vec![line(points, Meaning::Busy, Marker::Braille)];
    if !expected.is_empty() {
        sets.insert(0, line(&expected, Meaning::Good, Marker::Dot));
    }
    let muted = paint.style(Meaning::Muted);
    let top = if highest < 10.0 { format!("{highest:.1} GB/s") } else { format!("{highest:.0} GB/s") };
    let chart = Chart::new(sets)
        .x_axis(Axis::default().bounds([left, right]).style(muted).labels(ends.map(Span::raw)))
        .y_axis(
            Axis::default().bounds([0.0, highest]).style(muted).labels(["0".to_owned(), top].map(Span::raw)),
        );
    frame.render_widget(chart, area);
}
