//! The log pane: only the lines that are seen are looked at.

use std::collections::{BTreeMap, BTreeSet};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthChar;
use weftrun::core::log::{self, CleanLine, Entry, Level, LogStore, Projection};
use weftrun::core::text::counted;

use super::mouse_targets::{Bar, MouseTarget};
use super::paint::{Paint, cell, fit, fit_ends, ranges, width};
use crate::model::Model;
use crate::model::layer::{Layer, Prompt};
use crate::model::logs::{LogPane, Times};
use crate::model::open::Open;
use crate::theme::Meaning;

/// Rows from which the strip of ranks is drawn below the lines.
const STRIP_FROM: usize = 16;

/// Returns how many lines fit into an area of this height.
pub(super) fn height(pane: &LogPane, rows: usize) -> usize {
    let strip = if rows >= STRIP_FROM { 2 } else { 0 };
    rows.saturating_sub(1 + strip + pinned_rows(pane, rows)).max(1)
}

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let strip = if usize::from(area.height) >= STRIP_FROM { 2 } else { 0 };
    let quiet = paint.quiet();
    let pinned = pinned_rows(&open.logs, usize::from(area.height));
    let [pin, upper, lower] = Layout::vertical([
        Constraint::Length(u16::try_from(pinned).unwrap_or(0)),
        Constraint::Min(3),
        Constraint::Length(strip),
    ])
    .areas(area);
    let pane = &open.logs;
    let store = pane.store.read();
    if pinned > 0 {
        pinned_panel(pane, &store, frame, quiet, pin);
    }
    let inside = paint.frame(frame, upper, title(model, open, &store));
    let lines = if pane.projection.is_empty() {
        let text = match (store.count(), open.logs_ended) {
            (0, true) if pane.previous => " No log of an earlier attempt. p shows the current one.",
            (0, _) if open.measured().is_some() => " No line but measurements of NCCL's collectives.",
            (0, false) => " Waiting for the first line …",
            (0, true) => " The job wrote nothing.",
            _ => " No line is left by the filter. & changes it, r the ranks, v the level.",
        };
        vec![Line::from(paint.span(text, Meaning::Muted))]
    } else {
        visible(pane, &store, paint, inside)
    };
    frame.render_widget(Paragraph::new(lines), inside);
    let (first, all) = (pane.first(usize::from(inside.height)), pane.projection.len());
    paint.scroll_bar(frame, upper, Bar::Log, first..(first + usize::from(inside.height)).min(all), all);
    if strip > 0 {
        frame.render_widget(Paragraph::new(stream_strip(&store, quiet, usize::from(lower.width))), lower);
    }
}

/// The most important part comes first: a title is cut at its end.
fn title(model: &Model, open: &Open, store: &LogStore) -> String {
    let pane = &open.logs;
    let mut parts = vec![open.handle.name().to_owned()];
    parts.push(match (pane.follows(), open.logs_ended) {
        (true, true) => "END".to_owned(),
        (true, false) => "FOLLOW".to_owned(),
        _ => format!("PAUSED, +{} new", pane.new_lines()),
    });
    let shown = pane.projection.len() as u64;
    parts.push(if pane.projection.filter().is_empty() || shown >= store.count() {
        format!("{} lines", store.count())
    } else {
        format!("{shown} of {} lines", store.count())
    });
    let all = |of: fn(&log::LogStream) -> u64| store.streams().iter().map(of).sum::<u64>();
    for (sign, count) in [("E", all(|stream| stream.errors)), ("W", all(|stream| stream.warnings))] {
        if count > 0 {
            parts.push(format!("{count} {sign}"));
        }
    }
    if pane.previous {
        parts.push("attempt before".to_owned());
    }
    let (ranks, filter) = (typed(model, Prompt::Ranks), typed(model, Prompt::LogFilter));
    parts.push(match ranks.as_deref().unwrap_or(&pane.ranks) {
        "" => "all ranks".to_owned(),
        ranks => format!("r{ranks}"),
    });
    if pane.level != Level::Debug {
        parts.push(format!(">= {:?}", pane.level).to_uppercase());
    }
    match filter.as_deref().unwrap_or(&pane.filter) {
        "" => {}
        filter => parts.push(format!("& {filter}")),
    }
    if let Some(find) = &pane.find {
        let count = match pane.found() {
            Some((Some(at), all)) => format!(" {at} of {all}"),
            Some((None, all)) => format!(" {all} found"),
            None => format!(" searching, {} %", find.searched),
        };
        parts.push(format!("/ {}{count}", find.text));
    }
    if pane.folded {
        parts.push("folded".to_owned());
    }
    if let Some(filtering) = &pane.filtering {
        parts.push(format!("filtering, {} %", filtering.read));
    }
    if store.streams().len() > 1 {
        parts.push(order(open, store).to_owned());
    }
    let dropped = store.dropped() + pane.projection.left_out();
    if dropped > 0 {
        parts.push(format!("{dropped} oldest dropped"));
    }
    if store.reads_history() {
        parts.push("reading the beginning".to_owned());
    }
    parts.join(" ─ ")
}

/// Returns what is being typed into a prompt; a filter that cannot be read yet counts as none.
fn typed(model: &Model, wanted: Prompt) -> Option<String> {
    match model.layers.last() {
        Some(Layer::Prompt { prompt, input, error }) if *prompt == wanted => {
            let text = input.value().trim();
            Some(if error.is_some() { format!("{text} (not a filter yet)") } else { text.to_owned() })
        }
        _ => None,
    }
}

/// Says how the lines of several writers are merged.
fn order(open: &Open, store: &LogStore) -> &'static str {
    // Without times, a stream has one only if its lines were seen to come.
    let came = || store.streams().iter().any(|stream| stream.last.is_some());
    match (store.has_times(), store.is_ordered()) {
        (true, _) => "by time",
        (false, true) => "by the stamps in lines",
        _ if came() && opened_late(open, store) => "older by rank, then as they came",
        _ if came() => "as they came",
        _ if open.logs_ended || !store.history_range().is_empty() => "by rank, times not known",
        _ => "as they came",
    }
}

/// Time after its start at which a job's first lines may be older than the view of them.
const LATE: jiff::SignedDuration = jiff::SignedDuration::from_secs(3);

/// Returns whether a job had lines before its log was opened, or may have had some.
fn opened_late(open: &Open, store: &LogStore) -> bool {
    let created = open.detail.as_ref().and_then(|detail| detail.summary.created);
    let since = created.zip(store.watched()).map(|(created, watched)| watched.duration_since(created));
    !store.history_range().is_empty() || since.is_none_or(|since| since >= LATE)
}

/// Returns the height of the pinned rank's panel, including its frame; none without one, or if it does not
/// fit.
fn pinned_rows(pane: &LogPane, rows: usize) -> usize {
    if pane.pinned.is_empty() || rows < 12 { 0 } else { (rows / 3).clamp(4, 5 + 4 * pane.pinned.len()) }
}

/// Draws the last lines of the pinned rank.
fn pinned_panel(pane: &LogPane, store: &LogStore, frame: &mut Frame, paint: Paint, area: Rect) {
    let ranks: Vec<u32> = pane.pinned.iter().map(|(rank, _)| *rank).collect();
    let title = format!("r{} pinned ─ last lines ─ K to unpin", ranges(&ranks));
    let inside = paint.frame(frame, area, title);
    let rows = (usize::from(inside.height) / pane.pinned.len().max(1)).max(1);
    let shown = Shown { pane, store, paint, columns: usize::from(inside.width), label: 0, start: None };
    let entries = |lines: &Projection| {
        let first = lines.len().saturating_sub(rows);
        (first..lines.len()).filter_map(|at| store.get(lines.seq(at)?)).collect::<Vec<Entry>>()
    };
    let label = label_width(store, pane.pinned.iter().flat_map(|(_, lines)| entries(lines)), shown.columns);
    let shown = Shown { label, ..shown };
    let last = |lines: &Projection| {
        let entries = entries(lines).into_iter();
        entries.filter_map(|entry| shown.entry(&entry).into_iter().next()).collect::<Vec<Line>>()
    };
    let text: Vec<Line> = pane.pinned.iter().flat_map(|(_, lines)| last(lines)).collect();
    frame.render_widget(Paragraph::new(text), inside);
}

fn visible<'a>(pane: &LogPane, store: &LogStore, paint: Paint, area: Rect) -> Vec<Line<'a>> {
    let mut numbers: Vec<Option<u64>> = Vec::new();
    let (rows, columns) = (usize::from(area.height), usize::from(area.width));
    let first = pane.first(rows);
    let start = pane.projection.seq(0).and_then(|seq| store.get(seq)).and_then(|entry| entry.time);
    let seen = (first..pane.projection.len()).take(rows.max(1));
    let seen = seen.filter_map(|at| store.get(pane.projection.seq(at)?));
    let label = label_width(store, seen, columns);
    let mut lines = Vec::new();
    let mut last: Option<u64> = None;
    // A gap in the numbers means lost lines only if every line is shown.
    let filtered = !pane.projection.filter().is_empty() || pane.folded || store.dropped() == 0;
    for index in first..pane.projection.len() {
        if lines.len() >= rows && !pane.follows() {
            break;
        }
        let Some(seq) = pane.projection.seq(index) else { break };
        let Some(entry) = store.get(seq) else { continue };
        if let (Some(last), false, false) = (last, filtered, store.has_times())
            && let missing @ 1.. = store.missing(last, seq)
        {
            let text = format!("{missing} lines dropped to stay inside the memory bound");
            lines.push(gap(paint, &text, columns));
            numbers.push(None);
        }
        last = Some(seq);
        let shown = Shown { pane, store, paint, columns, label, start };
        let mut drawn = shown.entry(&entry);
        if pane.cursor == Some(seq) {
            drawn = drawn.into_iter().map(|line| paint.under_cursor(&line, columns)).collect();
        }
        lines.append(&mut drawn);
        numbers.resize(lines.len(), Some(seq));
    }
    if lines.len() > rows {
        // While following, the newest line is whole at the bottom; while paused the top stays.
        if pane.follows() {
            lines.drain(..lines.len() - rows);
            numbers.drain(..numbers.len() - rows);
        } else {
            lines.truncate(rows);
        }
    }
    for (row, seq) in numbers.into_iter().enumerate() {
        if let Some(seq) = seq {
            paint.spot(area, row, || MouseTarget::Line(seq));
        }
    }
    lines
}

/// Returns the columns of the widest name of a writer among some lines: who spoke is not cut, unless the name leaves no
/// space for what was said.
fn label_width(store: &LogStore, lines: impl Iterator<Item = Entry>, columns: usize) -> usize {
    let streams: BTreeSet<u32> = lines.map(|entry| entry.stream).collect();
    let labels = streams.iter().filter_map(|stream| store.streams().get(*stream as usize));
    let longest = labels.map(|stream| width(&stream.label())).max().unwrap_or(2);
    longest.clamp(2, (columns / 2).max(2))
}

fn gap<'a>(paint: Paint, text: &str, columns: usize) -> Line<'a> {
    Line::from(paint.span(fit(&format!("     ~~~~ {text} ~~~~"), columns).into_owned(), Meaning::Warn))
}

struct Shown<'s> {
    pane: &'s LogPane,
    store: &'s LogStore,
    paint: Paint<'s>,
    columns: usize,
    label: usize,
    start: Option<jiff::Timestamp>,
}

impl Shown<'_> {
    fn entry<'a>(&self, entry: &Entry) -> Vec<Line<'a>> {
        let clean = entry.clean();
        if entry.mark {
            return vec![gap(self.paint, &clean.text, self.columns)];
        }
        let head = self.head(entry);
        let used: usize = head.iter().map(Span::width).sum();
        let note = note(&clean, self.pane.projection.more(entry.seq));
        let space = self.columns.saturating_sub(used + note.len());
        let found = self.pane.find.as_ref().and_then(|find| find.pattern.find(clean.text.as_bytes()));
        let pieces = self.styled(&clean, found.as_ref());
        let parts = if self.pane.wrap { split(&pieces, space) } else { vec![self.cut(&pieces, space)] };
        let count = parts.len();
        let mut lines = Vec::with_capacity(count);
        for (number, part) in parts.into_iter().enumerate() {
            let mut spans = if number == 0 { head.clone() } else { vec![Span::raw(" ".repeat(used))] };
            let width: usize = part.iter().map(Span::width).sum();
            spans.extend(part);
            if number + 1 == count && !note.is_empty() {
                spans.push(Span::raw(
                    " ".repeat(self.columns.saturating_sub(used + width + note.len()).min(self.columns)),
                ));
                spans.push(self.paint.span(note.clone(), Meaning::Muted));
            }
            lines.push(Line::from(spans));
        }
        lines
    }

    /// Returns the visible part of a line, marked on each side where it is cut.
    fn cut<'a>(&self, pieces: &[(String, Style)], space: usize) -> Vec<Span<'a>> {
        let from = self.pane.column;
        let all: usize = pieces.iter().map(|(text, _)| width(text)).sum();
        let (left, right) = (usize::from(from > 0 && all > 0), usize::from(all > from + space));
        let mut spans = cut(pieces, from + left, space.saturating_sub(left + right));
        if left > 0 {
            spans.insert(0, self.paint.span("<", Meaning::Key));
        }
        if right > 0 {
            let used: usize = spans.iter().map(Span::width).sum();
            let blanks = space.saturating_sub(used + 1);
            spans.push(self.paint.span(format!("{}>", " ".repeat(blanks)), Meaning::Key));
        }
        spans
    }

    fn head<'a>(&self, entry: &Entry) -> Vec<Span<'a>> {
        let mut spans = Vec::new();
        if self.store.has_times() && self.pane.times != Times::Off {
            let text = match (self.pane.times, entry.time, self.start) {
                (Times::Relative, Some(time), Some(start)) => {
                    let millis = time.as_millisecond() - start.as_millisecond();
                    format!("{:>9.3} ", millis as f64 / 1000.0)
                }
                (_, Some(time), _) => time.strftime("%H:%M:%S%.3f ").to_string(),
                _ => " ".repeat(13),
            };
            spans.push(self.paint.span(text, Meaning::Muted));
        }
        let stream = self.store.streams().get(entry.stream as usize);
        let label = stream.map_or(String::new(), log::LogStream::label);
        let mark = if self.pane.bookmarks.contains(&entry.seq) { "*" } else { " " };
        let rank = stream.and_then(|stream| stream.rank).filter(|_| !self.pane.one_colour);
        let style = rank.map_or(self.paint.style(Meaning::Muted), |rank| self.paint.rank(rank));
        spans.push(Span::styled(format!("{}{mark}", cell(&fit_ends(&label, self.label), self.label)), style));
        let meaning = match entry.level {
            Level::Error => Meaning::Bad,
            Level::Warn => Meaning::Warn,
            _ => Meaning::Muted,
        };
        spans.push(self.paint.span(format!("{} ", entry.level.letter()), meaning));
        spans
    }

    fn styled(&self, clean: &CleanLine, found: Option<&std::ops::Range<usize>>) -> Vec<(String, Style)> {
        let mut pieces: Vec<(String, Style)> = Vec::new();
        let mut at = 0;
        for (text, style) in clean.pieces() {
            let style = if self.paint.colours() { terminal_style(style) } else { Style::new() };
            let end = at + text.len();
            match &found {
                Some(hit) if hit.start < end && hit.end > at => {
                    let (from, to) = (hit.start.max(at) - at, hit.end.min(end) - at);
                    let cuts = [(0, from, false), (from, to, true), (to, text.len(), false)];
                    for (a, b, inside) in cuts {
                        if let Some(part) = text.get(a..b).filter(|part| !part.is_empty()) {
                            let style =
                                if inside { style.patch(self.paint.style(Meaning::Found)) } else { style };
                            pieces.push((part.to_owned(), style));
                        }
                    }
                }
                _ => pieces.push((text.to_owned(), style)),
            }
            at = end;
        }
        pieces
    }
}

/// Returns what was left out of a line, for its end.
fn note(clean: &CleanLine, more: u32) -> String {
    let note = match (clean.updates, clean.cut) {
        (0, 0) => String::new(),
        (updates, 0) => format!(" (\\r x{updates})"),
        (_, cut) => format!(" +{cut} B"),
    };
    if more > 0 { format!("{note} (x{})", more + 1) } else { note }
}

fn terminal_style(style: log::Style) -> Style {
    let colour = |colour: log::Colour| match colour {
        log::Colour::Indexed(number) => Color::Indexed(number),
        log::Colour::Rgb(r, g, b) => Color::Rgb(r, g, b),
    };
    let mut out = Style::new();
    out.fg = style.foreground.map(colour);
    out.bg = style.background.map(colour);
    for (on, modifier) in [
        (style.bold, Modifier::BOLD),
        (style.dim, Modifier::DIM),
        (style.italic, Modifier::ITALIC),
        (style.underline, Modifier::UNDERLINED),
        (style.reverse, Modifier::REVERSED),
    ] {
        if on {
            out = out.add_modifier(modifier);
        }
    }
    out
}

/// Returns the visible part of a line, from a column on.
fn cut<'a>(pieces: &[(String, Style)], from: usize, columns: usize) -> Vec<Span<'a>> {
    let (mut at, mut used) = (0, 0);
    let mut spans = Vec::new();
    for (text, style) in pieces {
        let mut part = String::new();
        for c in text.chars() {
            let wide = c.width().unwrap_or(0);
            if at >= from && used + wide <= columns {
                part.push(c);
                used += wide;
            }
            at += wide;
            if used + 1 > columns && wide > 0 {
                break;
            }
        }
        if !part.is_empty() {
            spans.push(Span::styled(part, *style));
        }
        if used >= columns {
            break;
        }
    }
    spans
}

/// Breaks a line into rows, at most as many as a screen has: a 64 KiB line would need more.
fn split<'a>(pieces: &[(String, Style)], columns: usize) -> Vec<Vec<Span<'a>>> {
    const MOST_ROWS: usize = 200;
    let columns = columns.max(8);
    let mut rows: Vec<Vec<Span>> = vec![Vec::new()];
    let mut used = 0;
    for (text, style) in pieces {
        let mut part = String::new();
        for c in text.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > columns {
                if let Some(row) = rows.last_mut() {
                    row.push(Span::styled(std::mem::take(&mut part), *style));
                }
                if rows.len() == MOST_ROWS {
                    return rows;
                }
                rows.push(Vec::new());
                used = 0;
            }
            part.push(c);
            used += wide;
        }
        if let (Some(row), false) = (rows.last_mut(), part.is_empty()) {
            row.push(Span::styled(part, *style));
        }
    }
    rows
}

/// Draws one sign per rank: `E` where it wrote errors, `W` warnings, `.` neither; then what the store holds.
fn stream_strip<'a>(store: &LogStore, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    let mut ranks: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for stream in store.streams() {
        if let Some(rank) = stream.rank {
            let sum = ranks.entry(rank).or_default();
            sum.0 += stream.errors;
            sum.1 += stream.warnings;
        }
    }
    let sources: BTreeSet<_> = store.streams().iter().map(|stream| &stream.source.uid).collect();
    let memory = format!(
        " {}, {:.1} MB held, {}",
        counted(sources.len(), "source"),
        store.size() as f64 / 1e6,
        counted(usize::try_from(store.gaps()).unwrap_or(usize::MAX), "gap")
    );
    let memory = Line::from(paint.span(fit(&memory, columns).into_owned(), Meaning::Muted));
    let all: Vec<(u64, u64)> = ranks.values().copied().collect();
    if all.is_empty() {
        let text = " which rank wrote which line is not known";
        return vec![Line::from(paint.span(fit(text, columns).into_owned(), Meaning::Muted)), memory];
    }
    let numbers: Vec<u32> = ranks.keys().copied().collect();
    let label = format!(" r{} ", fit(&ranges(&numbers), 14));
    let bad = |of: fn(&(u64, u64)) -> u64| all.iter().filter(|rank| of(rank) > 0).count();
    let said = match (bad(|rank| rank.0), bad(|rank| rank.1)) {
        (0, 0) => "  no rank wrote errors or warnings".to_owned(),
        (errors, warnings) => format!("  E errors: {errors}  W warnings: {warnings} of {} ranks", all.len()),
    };
    let space = columns.saturating_sub(width(&label) + width(&said)).max(8);
    let group = all.len().div_ceil(space).max(1);
    let mut spans = vec![paint.span(label, Meaning::Muted)];
    for chunk in all.chunks(group) {
        let (text, meaning) = if chunk.iter().any(|(errors, _)| *errors > 0) {
            ("E", Meaning::Bad)
        } else if chunk.iter().any(|(_, warnings)| *warnings > 0) {
            ("W", Meaning::Warn)
        } else {
            (".", Meaning::Muted)
        };
        spans.push(paint.span(text, meaning));
    }
    spans.push(Span::raw(said));
    vec![Line::from(spans), memory]
}
