//! A job at a glance: the progress of its ranks, their network, what is wrong.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::Severity;
use weftrun::core::fabric::Fabric;
use weftrun::diagnose::health::HealthState;

use super::paint::{FULL, NONE, PART, Paint, age, cell, fit, fit_ends, timeline, width, wrap};
use super::{LARGE, diagnosis, event, logs, matrix, ranks};
use crate::model::Model;
use crate::model::open::{Open, Ras};
use crate::model::transport_view::{Lap, Rank, Step, TransportView};
use crate::theme::Meaning;

/// Rows of the panel of steps on a tall screen.
const STEPS: u16 = 11;
/// Fewest columns of the list of ranks beside the matrix.
const LIST: u16 = 60;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    if model.size.0 >= LARGE.0 && model.size.1 >= LARGE.1 {
        return large(model, open, frame, paint, area);
    }
    let phases = match area.height {
        26.. => STEPS,
        20..26 => 8,
        _ => 6,
    };
    let [top, rest] = Layout::vertical([Constraint::Length(phases), Constraint::Min(2)]).areas(area);
    phase_panel(model, open, frame, paint, top);
    let paint = paint.quiet();
    let events = match rest.height {
        16.. => 4,
        11..16 => 3,
        _ => 0,
    };
    // What is wrong stands above the ranks, and has at least a third where the list is long.
    let needed = u16::try_from(open.listed().saturating_add(2)).unwrap_or(u16::MAX).max(5);
    let spare = rest.height.saturating_sub(events).saturating_sub(needed);
    let least = if rest.height >= 18 { rest.height / 3 } else { 0 };
    let wrong = if spare >= 5 { spare } else { least };
    let wrong = if open.findings().is_empty() || wrong < 4 { 0 } else { wrong };
    let [findings, ranks, below] =
        Layout::vertical([Constraint::Length(wrong), Constraint::Min(2), Constraint::Length(events)])
            .areas(rest);
    if wrong > 0 {
        diagnosis::draw(model, open, frame, paint, findings);
    }
    let map = matrix::width(open, usize::from(ranks.height.saturating_sub(1)));
    let map = map.filter(|map| ranks.width >= LIST + map).unwrap_or(0);
    let [ranks, map] = Layout::horizontal([Constraint::Min(1), Constraint::Length(map)]).areas(ranks);
    ranks::draw(model, open, frame, paint, ranks);
    if map.width > 0 {
        matrix::panel(open, frame, paint, map);
    }
    if events > 0 {
        event_panel(open, frame, paint, below);
    }
}

fn large(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let upper = (area.height / 2).clamp(13, 26);
    let [upper, findings, log] =
        Layout::vertical([Constraint::Length(upper), Constraint::Length(7), Constraint::Min(5)]).areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(upper);
    let [phases, ranks] = Layout::vertical([Constraint::Length(STEPS), Constraint::Min(2)]).areas(left);
    phase_panel(model, open, frame, paint, phases);
    let paint = paint.quiet();
    ranks::draw(model, open, frame, paint, ranks);
    matrix::panel(open, frame, paint, right);
    let [findings, events] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(findings);
    diagnosis::draw(model, open, frame, paint, findings);
    event_panel(open, frame, paint, events);
    logs::draw(model, open, frame, paint, log);
}

/// Returns the planned fabric of a job.
pub(super) fn intended(model: &Model, open: &Open) -> Option<&'static str> {
    let planned = open.plan.as_ref().map(|plan| plan.fabric);
    let known = planned.or_else(|| model.jobs.get(&open.handle).and_then(|entry| entry.summary.fabric));
    known.map(Fabric::as_str)
}

fn phase_panel(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let transport_view = &open.transport_view;
    let summary =
        open.detail.as_ref().map(|d| &d.summary).or_else(|| model.jobs.get(&open.handle).map(|e| &e.summary));
    let mut title = format!("{} ─ {}", open.handle.name(), open.handle.target());
    if let Some(job) = summary {
        let (_, word) = Paint::phase(job.phase);
        let lived = match (job.created, job.ended) {
            (None, _) => String::new(),
            (created, Some(ended)) => format!(" after {}", age(ended, created)),
            (created, None) => format!(" {}", age(model.now, created)),
        };
        title.push_str(&format!(" ─ {word}{lived}"));
    }
    let inside = paint.frame(frame, area, title);
    let columns = usize::from(inside.width);
    let worst = open.findings().into_iter().find(|finding| finding.severity == Severity::Error);
    let told = open.error.is_some() || worst.is_some();
    let mut lines = vec![fabric_line(model, open, if told { paint.quiet() } else { paint }, columns)];
    if let Some(error) = &open.error {
        lines.extend(wrong_lines(error, paint, inside));
    }
    if let Some(worst) = worst {
        let paint = if open.error.is_some() { paint.quiet() } else { paint };
        lines.extend(wrong_lines(&worst.message, paint, inside));
    }
    let paint = paint.quiet();
    if let Some(ras) = &open.ras {
        let (text, meaning) = ras_line(ras, model.now);
        lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), meaning)));
    }
    let total = transport_view.ranks.len();
    // On a wide screen, the last rank fits too.
    let strip = columns.saturating_sub(44).min(34).max(columns.saturating_sub(60)).clamp(24, 96);
    if let Some(job) = summary {
        let (ready, asked) = job.ready;
        // Nothing is ready once the job has ended.
        let (signs, count) = match (asked, job.phase.is_terminal()) {
            (0, _) => (String::new(), format!("{:>5}", "-")),
            (_, true) => (String::new(), format!("{asked:>5}")),
            (_, false) => (bar(ready, asked, strip), format!("{ready:>5}/{asked}")),
        };
        // As wide as the counts of the steps.
        let count = cell(&count, count.len().max(6 + total.to_string().len()));
        let text = format!(" {} {} {count}", cell("nodes", 9), cell(&signs, strip));
        let mut spans = vec![Span::raw(text)];
        let used: usize = spans.iter().map(Span::width).sum();
        spans.push(
            paint.span(format!(" {}", fit(&job.reason, columns.saturating_sub(used + 1))), Meaning::Muted),
        );
        lines.push(Line::from(spans));
    }
    if total == 0 {
        let lines_came = open.logs.store.read().count() > 0;
        let text = match (lines_came, open.logs_ended) {
            (false, _) if open.measured().is_some() => format!(
                "no line but measurements of NCCL's collectives; {} shows them",
                model.keymap.first_key("bandwidth")
            ),
            (false, false) => "waiting for the ranks' logs …".to_owned(),
            (false, true) => "the job wrote nothing".to_owned(),
            (true, false) => format!("no NCCL line yet; {} opens the logs", model.keymap.first_key("logs")),
            (true, true) => "no line of the logs is from NCCL".to_owned(),
        };
        lines.push(Line::from(paint.span(format!(" {text}"), Meaning::Muted)));
    }
    let now = summary.is_none_or(|job| !job.phase.is_terminal()).then_some(model.now);
    let speed = usize::from(!transport_view.throughput.is_empty());
    let space = usize::from(inside.height).saturating_sub(lines.len() + speed);
    for at in steps(transport_view, now.is_none(), space) {
        lines.push(step_line(transport_view, paint, at, (strip, columns), now));
    }
    if !transport_view.throughput.is_empty() {
        let last = transport_view.throughput.last().copied().unwrap_or_default();
        let bars = timeline(&transport_view.throughput, strip);
        let drawn = &transport_view.throughput[transport_view.throughput.len().saturating_sub(2 * strip)..];
        let least = drawn.iter().copied().fold(f64::MAX, f64::min);
        let most = drawn.iter().copied().fold(f64::MIN, f64::max);
        let range = if most > least { format!(" ({least:.1}-{most:.1})") } else { String::new() };
        let text =
            format!(" {} {} {last:.1} {}{range}", cell("speed", 9), cell(&bars, strip), transport_view.unit);
        let mut spans = vec![Span::raw(fit(&text, columns).into_owned())];
        if let Some((low, high)) = transport_view.expected.filter(|_| transport_view.is_bus_bandwidth) {
            let slow = last < low * 0.8;
            let text = format!("  expected {low:.0}-{high:.0}{}", if slow { " !" } else { "" });
            let space = columns.saturating_sub(spans[0].width());
            let meaning = if slow { Meaning::Bad } else { Meaning::Good };
            spans.push(paint.span(fit(&text, space).into_owned(), meaning));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Returns what is wrong, on two lines where there is room. Its end is never cut: the reason stands there.
fn wrong_lines<'a>(text: &str, paint: Paint, inside: Rect) -> Vec<Line<'a>> {
    let space = usize::from(inside.width).saturating_sub(3);
    let first = wrap(text, space).into_iter().next().unwrap_or_default();
    let begin = if inside.height + 1 < STEPS { "" } else { first.as_str() };
    let rest = text.get(begin.len()..).map(str::trim_start).unwrap_or_default();
    let parts = [begin.trim_end(), rest].into_iter().filter(|part| !part.is_empty()).enumerate();
    let line = |(at, part): (usize, &str)| {
        let sign = if at == 0 { " ! " } else { "   " };
        Line::from(paint.span(format!("{sign}{}", fit_ends(part, space)), Meaning::Bad))
    };
    parts.map(line).collect()
}

/// Returns the network that was asked for, that in use, those loaded, and GPUDirect RDMA; items that do not fit are
/// omitted.
fn fabric_line<'a>(model: &Model, open: &Open, paint: Paint, columns: usize) -> Line<'a> {
    let transport_view = &open.transport_view;
    let planned = intended(model, open).unwrap_or("unknown");
    let (seen, meaning) = match transport_view.ok {
        Some(true) => (format!("{} ok", transport_view.verdict), Meaning::Good),
        Some(false) => (format!("{} !", transport_view.verdict), Meaning::Bad),
        None if transport_view.verdict.is_empty() => ("unknown".to_owned(), Meaning::Muted),
        None => (transport_view.verdict.clone(), Meaning::Muted),
    };
    let mut spans = vec![Span::raw(format!(" asked for {planned}  in use ")), paint.span(seen, meaning)];
    let announced: Vec<String> =
        transport_view.announced().iter().map(|(name, count)| format!("{name} x{count}")).collect();
    let announced =
        if announced.is_empty() { format!("nothing{}", open.yet()) } else { announced.join(", ") };
    let gdr = if transport_view.gdr.is_empty() { "unknown" } else { &transport_view.gdr };
    for text in [format!("  loaded {announced}"), format!("  GDR {gdr}")] {
        let used: usize = spans.iter().map(Span::width).sum();
        if used + width(&text) <= columns {
            spans.push(Span::raw(text));
        }
    }
    Line::from(spans)
}

/// Formats the answer of NCCL's RAS service and its time, or since when it is queried.
fn ras_line(ras: &Ras, now: Timestamp) -> (String, Meaning) {
    let when = age(now, Some(ras.at));
    match &ras.answer {
        None => (format!(" RAS: querying for {when} …"), Meaning::Busy),
        Some(Err(error)) => (format!(" RAS {when} ago: {error}"), Meaning::Warn),
        Some(Ok(report)) => {
            let (sign, meaning) = match report.state {
                HealthState::Healthy => (' ', Meaning::Good),
                HealthState::Stuck | HealthState::Incomplete => ('!', Meaning::Bad),
                HealthState::Suspect => ('!', Meaning::Warn),
                _ => (' ', Meaning::Muted),
            };
            let what = report.culprits.first().map_or_else(
                || report.reason.clone(),
                |culprit| match report.culprits.len() - 1 {
                    0 => culprit.sentence(),
                    more => format!("{} (and {more} more)", culprit.sentence()),
                },
            );
            (format!(" {sign} RAS {when} ago: {}: {what}", report.state.as_str()), meaning)
        }
    }
}

/// Returns the steps that fit: those completed by all ranks are omitted first.
fn steps(transport_view: &TransportView, ended: bool, space: usize) -> Vec<usize> {
    let total = transport_view.ranks.len();
    // Without a line of NCCL, nothing is known of its steps.
    let of_nccl = |step: &Step| (Step::Bootstrap..=Step::Trees).contains(step);
    let nccl = !transport_view.communicators.is_empty()
        || transport_view.ranks.iter().any(|rank| rank.has_reached(Step::Bootstrap));
    // Ranks that train have passed the steps that no line shows.
    let train = transport_view.ranks.iter().any(|rank| rank.stepping);
    let passed = |at: usize| train && transport_view.counts[at] == 0;
    let shown = |at: &usize| total > 0 && (!of_nccl(&Step::LIFE[*at]) || nccl && !passed(*at));
    let mut steps: Vec<usize> = (0..Step::LIFE.len()).filter(shown).collect();
    if ended {
        // What no rank has reached is still to come only for a job that runs. The step at which ranks failed is shown.
        let failed_in =
            transport_view.ranks.iter().filter(|rank| rank.failed && !rank.is_connected()).map(|rank| {
                let next = rank.bring_up.place().map_or(0, |at| at + 1);
                steps.iter().copied().find(|at| *at >= next)
            });
        let failed_in: BTreeSet<usize> = failed_in.flatten().collect();
        steps.retain(|at| transport_view.counts[*at] > 0 || failed_in.contains(at));
    }
    while steps.len() > space.max(1) {
        let next_is_done = steps.get(1).is_some_and(|next| transport_view.counts[*next] as usize == total);
        if next_is_done {
            steps.remove(0);
        } else {
            steps.pop();
        }
    }
    steps
}

fn bar(done: u32, all: u32, columns: usize) -> String {
    let full = columns * done.min(all) as usize / all.max(1) as usize;
    format!("{}{}", FULL.repeat(full), NONE.repeat(columns - full))
}

/// Formats a step: which ranks completed it, how many, its duration and the last rank; or since when which
/// ranks are waited for.
fn step_line<'a>(
    transport_view: &TransportView,
    paint: Paint,
    at: usize,
    (strip_width, columns): (usize, usize),
    now: Option<Timestamp>,
) -> Line<'a> {
    let step = Step::LIFE[at];
    let total = u32::try_from(transport_view.ranks.len()).unwrap_or(u32::MAX);
    let reached = transport_view.counts[at];
    let mut spans = vec![Span::raw(format!(" {} ", cell(step.word(), 9)))];
    let signs = strip(transport_view, at, strip_width);
    let failed = signs.contains('!');
    let meaning = if failed {
        Meaning::Bad
    } else if reached == total {
        Meaning::Good
    } else {
        Meaning::Busy
    };
    spans.push(paint.span(cell(&signs, strip_width), meaning));
    spans.push(Span::raw(format!(" {reached:>5}/{total}")));
    let space = columns.saturating_sub(spans.iter().map(Span::width).sum());
    if let Some(lap) = &transport_view.laps[at] {
        spans.push(paint.span(lap_text(lap, at, space), Meaning::Muted));
    } else if at > 0 && reached > 0 && reached == total {
        spans.push(paint.span(fit(UNKNOWN, space).into_owned(), Meaning::Muted));
    } else if reached > 0 && reached < total {
        spans.push(paint.span(waited_for(transport_view, at, now, space), Meaning::Warn));
    }
    Line::from(spans)
}

/// Stands for a duration that the log does not show.
const UNKNOWN: &str = "        -";

/// Describes the duration of a step and the last rank with its delay, as far as that fits.
fn lap_text(lap: &Lap, at: usize, space: usize) -> String {
    let unknown = || if at == 0 { " ".repeat(9) } else { UNKNOWN.to_owned() };
    let took = lap.took.map_or_else(unknown, |took| format!(" {:>8}", seconds(took)));
    // If ranks arrive within a moment of each other, the last one is not named.
    let apart = lap.spread.as_millis() >= 100;
    let Some(rank) = lap.slowest.filter(|_| apart) else { return took };
    let texts = [
        format!("{took}  r{rank} last, {} after the first", seconds(lap.spread)),
        format!("{took}  r{rank} last +{}", seconds(lap.spread)),
        format!("{took}  r{rank} last"),
    ];
    texts.into_iter().find(|text| width(text) <= space).unwrap_or(took)
}

/// Describes which ranks a step waits for, and if it fits, for how long.
fn waited_for(transport_view: &TransportView, at: usize, now: Option<Timestamp>, space: usize) -> String {
    let step = Step::LIFE[at];
    // Often one rank prints the training steps of all.
    if step == Step::Stepping {
        return String::new();
    }
    let behind = transport_view.ranks.iter().filter(|rank| !rank.has_reached(step) && !rank.stepping);
    let behind: Vec<u32> = behind.filter_map(|rank| rank.rank).collect();
    // Without a step that all have completed before, they are waited for since the first one completed this one.
    let before = at.checked_sub(1).and_then(|before| transport_view.laps[before]).map(|lap| lap.end);
    let since = before.or_else(|| transport_view.first_reached(at));
    let since = since.zip(now).map(|(since, now)| now.duration_since(since).max(SignedDuration::ZERO));
    let since = since.map_or_else(String::new, |since| format!(" for {}", seconds(since)));
    if behind.is_empty() {
        return String::new();
    }
    let who = format!(" not r{}", fit(&super::paint::ranges(&behind), 20));
    if width(&who) + width(&since) <= space { who + &since } else { fit(&who, space).into_owned() }
}

/// Formats a short time: `0.4 s`, `42 s`, `3m12s`.
fn seconds(time: SignedDuration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        whole @ 10..120 => format!("{whole} s"),
        whole @ 120..7200 => format!("{}m{:02}s", whole / 60, whole % 60),
        whole => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// Returns a bar of the ranks, as wide as its columns: each shows the ranks at its place, complete, on the way or not
/// begun, and `!` if one of them failed.
fn strip(transport_view: &TransportView, at: usize, columns: usize) -> String {
    let step = Step::LIFE[at];
    let total = transport_view.ranks.len();
    let sign = |ranks: &[Rank]| {
        if ranks.iter().any(|rank| rank.failed && !rank.has_reached(step)) {
            return "!";
        }
        match ranks.iter().filter(|rank| rank.has_reached(step)).count() {
            0 => NONE,
            reached if reached == ranks.len() => FULL,
            _ => PART,
        }
    };
    let place = |column: usize| {
        let first = column * total / columns;
        let end = ((column + 1) * total / columns).max(first + 1);
        transport_view.ranks.get(first..end.min(total)).unwrap_or_default()
    };
    (0..columns).map(|column| sign(place(column))).collect()
}

fn event_panel(open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let inside = paint.frame(frame, area, "Events");
    let rows = usize::from(inside.height);
    let lines = open
        .events
        .iter()
        .rev()
        .take(rows)
        .map(|(at, e)| event::line(paint, *at, e, usize::from(inside.width)))
        .collect::<Vec<_>>();
    frame.render_widget(Paragraph::new(lines), inside);
}
