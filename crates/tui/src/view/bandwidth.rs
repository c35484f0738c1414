//! How fast each collective is, over time and beside what is expected, and how long each rank waits for the last one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::core::catalogue::{Expected, ExpectedBasis};
use weftrun::core::nccl::bandwidth::{Order, RankWait};
use weftrun::core::text::{counted, rounded_size};
use weftrun::diagnose::Measured;

use super::chart;
use super::heading::Head;
use super::mouse_targets::{Bar, Heading, MouseTarget};
use super::paint::{Paint, cell, fit, timeline, wrap};
use crate::model::Model;
use crate::model::bandwidth::CollectiveRow;
use crate::model::open::Open;
use crate::model::sorting::CollectiveColumn;
use crate::theme::Meaning;

/// Rows from which the chart is drawn: below, the list shows the course of the bandwidth.
const CHART: u16 = 6;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let Some(measured) = open.measured() else { return nothing(model, open, frame, paint, area) };
    let columns = usize::from(area.width.saturating_sub(4));
    let (sentence, more) = (sentence(measured, paint, columns), notes(measured, paint, columns));
    let rows = open.collectives();
    let told = sentence.len() + if area.height >= 24 { more.len() } else { 0 };
    let top = u16::try_from(told.min(6) + 1).unwrap_or(3).min(area.height / 3).max(2);
    let rest = area.height.saturating_sub(top);
    let list = u16::try_from(rows.len() + 2).unwrap_or(u16::MAX).min((rest / 2).max(4));
    let [top, list, below] =
        Layout::vertical([Constraint::Length(top), Constraint::Length(list), Constraint::Min(3)]).areas(area);
    paint.panel(
        frame,
        top,
        format!("Bandwidth ─ {}", open.handle.name()),
        sentence.into_iter().chain(more).collect(),
    );
    let paint = paint.quiet();
    list_panel(open, measured, &rows, frame, paint, list);
    let Some(chosen) = open.chosen_collective() else { return };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(below);
    if below.height >= CHART && below.width >= 76 {
        course_panel(measured, chosen, frame, paint, left);
        waits_panel(open, chosen, frame, paint, right);
    } else {
        waits_panel(open, chosen, frame, paint, below);
    }
}

/// Says why there is nothing to see, and what to do.
fn nothing(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let yet = open.yet();
    let text = match (open.measures(), open.end()) {
        (Some(false), _) => format!(
            "This job does not measure its collectives: set `bandwidth` in a new job ({} makes one like this), or submit it with \
             --bandwidth.",
            model.keymap.first_key("again")
        ),
        (Some(true), None) => {
            "No measurement yet: the first lines come some seconds after NCCL's first collective.".to_owned()
        }
        _ => format!(
            "No line of the log is a measurement of NCCL's collectives{yet}: `bandwidth = true` in the job file or --bandwidth of \
             `weftrun submit` measures them."
        ),
    };
    let lines = wrap(&text, usize::from(area.width.saturating_sub(4)));
    let lines = lines.into_iter().map(|line| Line::from(paint.span(format!(" {line}"), Meaning::Muted)));
    paint.panel(frame, area, format!("Bandwidth ─ {}", open.handle.name()), lines.collect());
}

fn sentence<'a>(measured: &Measured, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    let (sign, meaning) = match measured.limit {
        Some("slow") => ("!", Meaning::Bad),
        Some(_) => (" ", Meaning::Warn),
        None => (" ", Meaning::Title),
    };
    let lines = wrap(&measured.sentence(), columns.saturating_sub(2));
    let line = |(at, text): (usize, String)| {
        let sign = if at == 0 { sign } else { " " };
        Line::from(paint.span(format!(" {sign} {text}"), meaning))
    };
    lines.into_iter().enumerate().map(line).collect()
}

fn notes<'a>(measured: &Measured, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    let notes = measured.speeds.notes.iter().flat_map(|note| wrap(note, columns.saturating_sub(2)));
    notes.map(|note| Line::from(paint.span(format!("   {note}"), Meaning::Muted))).collect()
}

/// The columns that fit.
struct Widths {
    size: usize,
    course: usize,
    comm: usize,
}

impl Widths {
    /// Columns that are always there: mark, collective, ranks, bus bandwidth, expected, time.
    const FIXED: usize = 2 + 14 + 6 + 10 + 10 + 8;

    fn of(columns: usize) -> Self {
        let spare = columns.saturating_sub(Self::FIXED);
        let size = if spare >= 20 { 11 } else { 0 };
        let comm = if spare >= 62 { 20 } else { 0 };
        Self { size, comm, course: spare.saturating_sub(size + comm).min(32) }
    }
}

fn list_panel(
    open: &Open,
    measured: &Measured,
    rows: &[CollectiveRow<'_>],
    frame: &mut Frame,
    paint: Paint,
    area: Rect,
) {
    let inside = paint.frame(frame, area, format!("Collectives {} (enter: sizes and sources)", rows.len()));
    let (columns, height) = (usize::from(inside.width), usize::from(inside.height).saturating_sub(1).max(1));
    let widths = Widths::of(columns);
    let at = open.collective_at(rows);
    let first = at.saturating_sub(height - 1);
    let heads = [
        Head::left("  collective", CollectiveColumn::Collective, 2 + 14),
        Head::right("ranks", CollectiveColumn::Ranks, 6),
        Head::right("size", CollectiveColumn::Size, widths.size),
        Head::right("bus GB/s", CollectiveColumn::BusBandwidth, 10),
        Head::right("expected", CollectiveColumn::Expected, 10),
        Head::right("time", CollectiveColumn::Time, 8),
        Head::left("  over time", None, widths.course),
        Head::left("  communicator", CollectiveColumn::Communicator, widths.comm),
    ];
    let mut lines = vec![paint.headings((inside, 0), open.collectives_sorted, &heads, Heading::Collective)];
    for (index, row) in rows.iter().enumerate().skip(first).take(height) {
        paint.spot(inside, lines.len(), || MouseTarget::Collective(index));
        let expected = measured.expected(&row.communicator.id, row.speed.collective);
        let line = list_line(*row, expected, &widths, index == at, paint);
        lines.push(if index == at { paint.under_cursor(&line, columns) } else { line });
    }
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Collectives, first..(first + height).min(rows.len()), rows.len());
}

fn list_line<'a>(
    row: CollectiveRow<'_>,
    expected: Option<&Expected>,
    widths: &Widths,
    here: bool,
    paint: Paint,
) -> Line<'a> {
    let size = row.speed.main_size();
    let mark = if row.is_late() { "!" } else { " " };
    let share = row.speed.time_share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let course: Vec<f64> = row.speed.over_time.iter().copied().flatten().collect();
    let course = timeline(&course, widths.course.saturating_sub(2));
    Line::from(vec![
        Span::raw(if here { ">" } else { " " }),
        paint.span(mark, Meaning::Bad),
        paint.span(
            cell(row.speed.collective.as_str(), 14),
            if row.is_late() { Meaning::Bad } else { Meaning::Title },
        ),
        Span::raw(format!("{:>6}", row.communicator.ranks)),
        Span::raw(right(&size.map_or_else(String::new, |size| rounded_size(size.most_bytes)), widths.size)),
        Span::raw(format!("{:>10}", gbps(size.and_then(|size| size.busbw_gbps)))),
        paint.span(
            format!("{:>10}", expected.map_or("unknown".to_owned(), Expected::numbers)),
            Meaning::Muted,
        ),
        Span::raw(format!("{share:>8}")),
        // Without a colour, which would be a bar of its own under the cursor.
        Span::raw(if widths.course > 2 {
            cell(&format!("  {course}"), widths.course)
        } else {
            String::new()
        }),
        paint.span(
            if widths.comm > 0 {
                cell(&format!("  {}", row.communicator.id), widths.comm)
            } else {
                String::new()
            },
            Meaning::Muted,
        ),
    ])
}

/// Draws the bandwidth of the collective over time, beside the expected one.
fn course_panel(measured: &Measured, row: CollectiveRow<'_>, frame: &mut Frame, paint: Paint, area: Rect) {
    let expected = measured.expected(&row.communicator.id, row.speed.collective);
    let beside = match expected {
        Some(expected) if area.width >= 60 => {
            format!("over time ─ expected {} ({}, dots)", expected.numbers(), expected.basis)
        }
        Some(expected) => format!("─ expected {} (dots)", expected.numbers()),
        None => "over time ─ expected: unknown".to_owned(),
    };
    let title = format!("{} {beside}", row.speed.collective);
    let inside = paint.frame(frame, area, title);
    let over_time = row.speed.over_time.iter().enumerate();
    let points: Vec<(f64, f64)> = over_time.filter_map(|(at, gbps)| Some((at as f64, (*gbps)?))).collect();
    if points.len() < 2 {
        let text = "  too few records for a curve";
        frame.render_widget(Line::from(paint.span(text, Meaning::Muted)), inside);
        return;
    }
    let end = match row.speed.seconds {
        Some(seconds) => format!("{seconds:.0} s"),
        None => "last".to_owned(),
    };
    let ends = ["0".to_owned(), end];
    chart::draw(&points, expected.map(|expected| expected.low), ends, frame, paint, inside);
}

/// Draws how long each rank waited for the last one: the late rank has the shortest bar.
fn waits_panel(open: &Open, row: CollectiveRow<'_>, frame: &mut Frame, paint: Paint, area: Rect) {
    let arrival = &row.speed.arrival;
    let waits = row.waits();
    let title = match arrival.order {
        Order::Late => {
            let names: Vec<u32> = arrival.late.iter().map(RankWait::job_rank).collect();
            format!("Waiting in {} ─ r{} last", row.speed.collective, super::paint::ranges(&names))
        }
        order => format!("Waiting in {} ─ {order}", row.speed.collective),
    };
    let inside = paint.frame(frame, area, title);
    let (columns, height) = (usize::from(inside.width), usize::from(inside.height));
    let first = open.first_wait.min(waits.len().saturating_sub(height));
    let most = waits.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    let host = if columns >= 44 { 14 } else { 0 };
    let space = columns.saturating_sub(2 + 7 + host + 11).max(1);
    let line = |rank: &&RankWait| {
        let late = row.has_late(rank);
        let meaning = if late { Meaning::Bad } else { Meaning::Busy };
        Line::from(vec![
            paint.span(if late { " !" } else { "  " }, Meaning::Bad),
            paint.span(cell(&format!("r{rank}"), 7), if late { Meaning::Bad } else { Meaning::Title }),
            paint.span(cell(&rank.host, host), Meaning::Muted),
            paint.span(cell(&bar(rank.seconds, most, space), space), meaning),
            Span::raw(format!("{:>10}", format!("{:.2} s", rank.seconds))),
        ])
    };
    let mut lines: Vec<Line> = waits.iter().skip(first).take(height).map(line).collect();
    if waits.is_empty() {
        let text = match arrival.order {
            Order::PointToPoint => "its ranks wait for some others only".to_owned(),
            order => order.to_string(),
        };
        lines.push(Line::from(paint.span(fit(&format!("  {text}"), columns).into_owned(), Meaning::Muted)));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Waits, first..(first + height).min(waits.len()), waits.len());
}

/// Returns a bar in eighths of a column.
fn bar(value: f64, most: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most eight times the columns"
    )]
    let eighths = (part * 8.0 * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

fn right(text: &str, columns: usize) -> String {
    if columns == 0 { String::new() } else { format!("{text:>columns$}") }
}

fn gbps(gbps: Option<f64>) -> String {
    gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.1}"))
}

/// Returns the title and text of the collective under the cursor: its sizes, what is expected of it by which source, and the
/// waiting of each rank.
pub(crate) fn collective_text(measured: &Measured, row: CollectiveRow<'_>) -> (String, Vec<String>) {
    let comm = row.communicator;
    let title = format!("{} of communicator {}", row.speed.collective, comm.id);
    let nodes =
        if comm.nodes > 0 { format!(" on {}", counted(comm.nodes as usize, "node")) } else { String::new() };
    let mut lines = vec![
        format!("{}{nodes}, {} recorded", counted(comm.ranks as usize, "rank"), comm.seen_ranks),
        String::new(),
        format!("{:>16} {:>10} {:>10} {:>10}", "size", "count", "bus GB/s", "slowest"),
    ];
    for size in &row.speed.sizes {
        let sizes = match (rounded_size(size.least_bytes), rounded_size(size.most_bytes)) {
            (least, most) if least == most => least,
            (least, most) => format!("{least}-{most}"),
        };
        let (busbw, slowest) = (gbps(size.busbw_gbps), gbps(size.slowest_gbps));
        lines.push(format!("{sizes:>16} {:>10} {busbw:>10} {slowest:>10}", size.operations));
    }
    lines.push(String::new());
    match measured.expected(&comm.id, row.speed.collective) {
        Some(expected) => {
            lines.push(format!("expected   {}, for messages of 1 GiB and more", expected.range()));
            lines.push(format!("  {}: {}", expected.basis, expected.what));
            match expected.basis {
                ExpectedBasis::LineRate => lines.push(format!("  sources: {}", expected.sources.join(", "))),
                _ => lines.extend(expected.sources.iter().map(|source| format!("  source: {source}"))),
            }
        }
        None => lines
            .push("expected   unknown: no figure is published, or the instance type is not known".to_owned()),
    }
    lines.push(String::new());
    lines.push(format!("waiting    {}", row.speed.arrival.order));
    lines.extend(row.waits().into_iter().map(|rank| {
        let late = if row.has_late(rank) { "! last" } else { "" };
        format!("  r{rank:<6} {:<20} {:>10.3} s  {late}", rank.host, rank.seconds).trim_end().to_owned()
    }));
    (title, lines)
}
