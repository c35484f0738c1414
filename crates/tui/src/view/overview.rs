//! A job at a glance: the progress of its ranks, their network, what is wrong.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::core::fabric::Fabric;
use weftrun::core::log::LogStream;
use weftrun::diagnose::cause::CAUSE_CODE;
use weftrun::diagnose::health::HealthState;

use super::mouse_targets::{Bar, MouseTarget};
use super::paint::{Paint, age, cell, fit, timeline, width};
use super::{LARGE, diagnosis, event, logs, matrix};
use crate::model::Model;
use crate::model::open::{Open, Ras, Suspects};
use crate::model::transport_view::{Lap, Node, Rank, Step, TransportView};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    if model.size.0 >= LARGE.0 && model.size.1 >= LARGE.1 {
        return large(model, open, frame, paint, area);
    }
    let phases = match area.height {
        26.. => 12,
        20..26 => 9,
        _ => 7,
    };
    let [top, rest] = Layout::vertical([Constraint::Length(phases), Constraint::Min(2)]).areas(area);
    phase_panel(model, open, frame, paint, top);
    let events = match rest.height {
        16.. => 5,
        11..16 => 4,
        _ => 0,
    };
    // Space that the list does not need is for what is wrong.
    let needed = u16::try_from(open.listed().saturating_add(3)).unwrap_or(u16::MAX).max(6);
    let spare = rest.height.saturating_sub(events).saturating_sub(needed);
    let wrong = if spare >= 5 && !open.findings().is_empty() { spare } else { 0 };
    let [ranks, findings, below] =
        Layout::vertical([Constraint::Min(2), Constraint::Length(wrong), Constraint::Length(events)])
            .areas(rest);
    rank_panel(model, open, frame, paint, ranks);
    if wrong > 0 {
        diagnosis::draw(open, frame, paint, findings);
    }
    if events > 0 {
        event_panel(open, frame, paint, below);
    }
}

fn large(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let upper = (area.height / 2).clamp(14, 26);
    let [upper, findings, log] =
        Layout::vertical([Constraint::Length(upper), Constraint::Length(7), Constraint::Min(5)]).areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(upper);
    let [phases, ranks] = Layout::vertical([Constraint::Length(12), Constraint::Min(2)]).areas(left);
    phase_panel(model, open, frame, paint, phases);
    rank_panel(model, open, frame, paint, ranks);
    matrix::panel(open, frame, paint, right);
    let [findings, events] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(findings);
    diagnosis::draw(open, frame, paint, findings);
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
    let mut lines = vec![fabric_line(model, open, paint, columns)];
    if let Some(error) = &open.error {
        lines.push(Line::from(
            paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad),
        ));
    }
    if let Some(cause) = transport_view.findings.iter().find(|finding| finding.code == CAUSE_CODE) {
        let text = format!(" ! {}", fit(&cause.message, columns.saturating_sub(3)));
        lines.push(Line::from(paint.span(text, Meaning::Bad)));
    }
    if let Some(ras) = &open.ras {
        let (text, meaning) = ras_line(ras, model.now);
        lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), meaning)));
    }
    let total = transport_view.ranks.len();
    // On a wide screen, the last rank fits too.
    let strip = columns.saturating_sub(44).min(34).max(columns.saturating_sub(60)).clamp(24, 64);
    if let Some(job) = summary {
        let (ready, asked) = job.ready;
        // Nothing is ready once the job has ended.
        let (signs, count) = match (asked, job.phase.is_terminal()) {
            (0, _) => (String::new(), "-".to_owned()),
            (_, true) => (String::new(), asked.to_string()),
            (_, false) => (bar(ready, asked, strip), format!("{ready}/{asked}")),
        };
        let text = format!(" {} {} {count:>7}", cell("nodes", 9), cell(&signs, strip));
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

/// Returns planned, connected and announced network and GPUDirect RDMA; items that do not fit are omitted.
fn fabric_line<'a>(model: &Model, open: &Open, paint: Paint, columns: usize) -> Line<'a> {
    let transport_view = &open.transport_view;
    let planned = intended(model, open).unwrap_or("not known");
    let (seen, meaning) = match transport_view.ok {
        Some(true) => (format!("{} ok", transport_view.verdict), Meaning::Good),
        Some(false) => (format!("{} !", transport_view.verdict), Meaning::Bad),
        None if transport_view.verdict.is_empty() => ("unknown".to_owned(), Meaning::Muted),
        None => (transport_view.verdict.clone(), Meaning::Muted),
    };
    let mut spans = vec![Span::raw(format!(" planned {planned}  connected ")), paint.span(seen, meaning)];
    let announced: Vec<String> =
        transport_view.announced().iter().map(|(name, count)| format!("{name} x{count}")).collect();
    let announced =
        if announced.is_empty() { format!("nothing{}", open.yet()) } else { announced.join(", ") };
    let gdr = if transport_view.gdr.is_empty() { "unknown" } else { &transport_view.gdr };
    for text in [format!("  announced {announced}"), format!("  GDR {gdr}")] {
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
    let all = all.max(1);
    let columns = columns.min(all as usize).max(1);
    let full = columns * done.min(all) as usize / all as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(columns - full))
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

/// Returns one sign per rank, or per group of ranks if there are more than columns: `#` for all, `>` for
/// some, `.` for none, `!` if one failed.
fn strip(transport_view: &TransportView, at: usize, columns: usize) -> String {
    let step = Step::LIFE[at];
    let total = transport_view.ranks.len();
    let group = total.div_ceil(columns.max(1)).max(1);
    let sign = |ranks: &[Rank]| {
        if ranks.iter().any(|rank| rank.failed && !rank.has_reached(step)) {
            return '!';
        }
        let there = ranks.iter().filter(|rank| rank.has_reached(step)).count();
        match there {
            0 => '.',
            n if n == ranks.len() => '#',
            _ => '>',
        }
    };
    transport_view.ranks.chunks(group).map(sign).collect()
}

fn rank_panel(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    if !open.lists_nodes() {
        return ranks(model, open, frame, paint, area);
    }
    let title = format!("Nodes {} (z: ranks, enter: its log)", open.transport_view.nodes.len());
    let inside = paint.frame(frame, area, title);
    let strip = node_strip(open, paint, usize::from(inside.width), usize::from(inside.height));
    let rows = usize::from(inside.height).saturating_sub(1 + strip.len());
    let first = open
        .row
        .min(open.transport_view.nodes.len().saturating_sub(1))
        .saturating_sub(rows.saturating_sub(1));
    let widths = node_widths(usize::from(inside.width));
    let head = format!(
        "  {} {} {} ranks",
        cell("node", widths[0]),
        cell("reached", widths[1]),
        cell("announced", widths[2])
    );
    let mut lines = strip;
    lines.push(Line::from(paint.span(head, Meaning::Muted)));
    let suspects = open.suspects();
    for (number, node) in open.transport_view.nodes.iter().enumerate().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Row(number));
        lines.push(node_line(open, &suspects, paint, number, node, widths));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    let all = open.transport_view.nodes.len();
    paint.scroll_bar(frame, area, Bar::Rows, first..(first + rows).min(all), all);
}

/// Returns one sign for each node, on as many lines as that takes, if the list of nodes does not fit: `!` where a rank
/// failed or is a suspect, `#` where all ranks trained or are connected, `>` where they are on the way, `.` where none
/// has begun. More nodes than fit share a sign, which is the worst of them.
fn node_strip<'a>(open: &Open, paint: Paint, columns: usize, rows: usize) -> Vec<Line<'a>> {
    let nodes = &open.transport_view.nodes;
    let most = rows / 3;
    if nodes.len() < rows || most == 0 {
        return Vec::new();
    }
    let space = columns.saturating_sub(2).max(1);
    let group = nodes.len().div_ceil(space * most).max(1);
    let suspects = open.suspects();
    let ranks = &open.transport_view.ranks;
    let connected = |at: &usize| ranks.get(*at).is_some_and(Rank::is_connected);
    let state = |node: &Node| {
        if node.failed > 0 || suspects.contain_any(&open.transport_view, &node.ranks) {
            3
        } else if node.reached[0] == 0 {
            2
        } else {
            usize::from(!node.ranks.iter().all(connected))
        }
    };
    let worst: Vec<usize> =
        nodes.chunks(group).map(|nodes| nodes.iter().map(state).max().unwrap_or_default()).collect();
    let sign = |state: &usize| match state {
        0 => paint.span("#", Meaning::Good),
        1 => paint.span(">", Meaning::Busy),
        2 => paint.span(".", Meaning::Muted),
        _ => paint.span("!", Meaning::Bad),
    };
    let line = |states: &[usize]| {
        Line::from(std::iter::once(Span::raw(" ")).chain(states.iter().map(sign)).collect::<Vec<_>>())
    };
    worst.chunks(space).map(line).collect()
}

/// Returns the widths of name, step, networks and ranks.
fn node_widths(columns: usize) -> [usize; 4] {
    let [name, reached, announced] = if columns >= 76 { [20, 22, 18] } else { [15, 15, 13] };
    [name, reached, announced, columns.saturating_sub(name + reached + announced + 5)]
}

fn node_line<'a>(
    open: &Open,
    suspects: &Suspects,
    paint: Paint,
    number: usize,
    node: &Node,
    widths: [usize; 4],
) -> Line<'a> {
    let (reached, all) = open.node_word(node);
    let meaning = match (node.failed > 0, all) {
        (true, _) => Meaning::Bad,
        _ if open.end().is_some() => Meaning::Muted,
        (_, true) => Meaning::Good,
        _ => Meaning::Busy,
    };
    let announced: Vec<String> = node.announced.iter().map(|(name, _)| name.clone()).collect();
    let odd = matrix::odd_node(&open.transport_view, number);
    let announced = format!("{}{}", announced.join("+"), if odd { " !" } else { "" });
    let ranks: Vec<u32> =
        node.ranks.iter().filter_map(|index| open.transport_view.ranks[*index].rank).collect();
    let suspect = suspects.contain_any(&open.transport_view, &node.ranks);
    let text = format!("{number:>3}{} {}", if suspect { "!" } else { "" }, node.host);
    let here = number == open.row.min(open.transport_view.nodes.len().saturating_sub(1));
    let line = Line::from(vec![
        Span::raw(format!("{} {} ", if here { ">" } else { " " }, cell(&text, widths[0]))),
        paint.span(cell(&reached, widths[1]), meaning),
        paint.span(
            format!(" {} ", cell(&announced, widths[2])),
            if odd { Meaning::Bad } else { Meaning::Muted },
        ),
        Span::raw(fit(&format!("r{}", super::paint::ranges(&ranks)), widths[3]).into_owned()),
    ]);
    if here { paint.under_cursor(line, widths.iter().sum::<usize>() + 5) } else { line }
}

/// Returns the widths of host and network in the list of ranks, which shrink on a small screen, and whether
/// the ages of the last line and the last step fit.
fn rank_widths(columns: usize, timed: bool) -> (usize, usize, bool) {
    let fixed = 2 + 7 + 4 + 11 + 5 + 4;
    let silence = if timed { 15 } else { 0 };
    let left = columns.saturating_sub(fixed + 2);
    let timed = timed && left >= silence + 8;
    let left = left.saturating_sub(if timed { silence } else { 0 });
    // How long a rank is silent says more than what it announced, which the matrix shows too.
    let announced = if timed && left < 20 { 0 } else { (left * 2 / 5).clamp(8, 15) };
    (left.saturating_sub(announced).clamp(8, 24), announced, timed)
}

/// Time without a line after which a rank of a running job is marked as silent.
const SILENT: SignedDuration = SignedDuration::from_secs(60);

fn ranks(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let title = match open.transport_view.ranks.len() {
        0 => "Ranks (none known)".to_owned(),
        known => format!("Ranks {known} (s sorts, enter: its log)"),
    };
    let inside = paint.frame(frame, area, title);
    let rows = usize::from(inside.height).saturating_sub(1);
    let columns = usize::from(inside.width);
    let order = open.rank_rows();
    let first = open.row.saturating_sub(rows.saturating_sub(1));
    let store = open.logs.store.read();
    let ended = open.ended();
    let is_over = open.end().is_some();
    let has_times = store.has_times() || store.watched().is_some();
    let (host, announced, timed) = rank_widths(columns, has_times && (!is_over || ended.is_some()));
    let now = ended.unwrap_or(model.now);
    let head = format!(
        "  {} {} gpu {} {} warn err{}",
        cell("rank", 6),
        cell("host:pid", host),
        cell("phase", 10),
        cell("announced", announced),
        match (timed, is_over) {
            (false, _) => "",
            (true, false) => "  silent   step",
            // How long before the end of the job.
            (true, true) => " last line step",
        }
    );
    let mut lines = vec![Line::from(paint.span(fit(&head, columns).into_owned(), Meaning::Muted))];
    let suspects = open.suspects();
    for (index, at) in order.iter().enumerate().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Row(index));
        let rank = &open.transport_view.ranks[*at];
        let own = |stream: &&LogStream| stream.rank.is_some() && stream.rank == rank.rank && !stream.is_past;
        let streams = store.streams().iter().filter(own);
        let (warnings, errors, last) = streams.fold((0, 0, None), |sum, stream| {
            (sum.0 + stream.warnings, sum.1 + stream.errors, stream.last.max(sum.2))
        });
        // Which lines are those of an unknown rank is unknown too.
        let count = |of: u64| if rank.rank.is_some() { of.to_string() } else { "-".to_owned() };
        // Lines that were written before the log was opened have no time.
        let since = last.or(store.watched().filter(|_| rank.bring_up != Step::Awaited && !store.has_times()));
        let more = if last.is_none() && since.is_some() { ">" } else { "" };
        let silent = if timed {
            let before = |time: Option<Timestamp>| match age(now, time) {
                text if is_over && time.is_some() => format!("-{text}"),
                text => text,
            };
            format!(" {:>7} {:>6}", format!("{more}{}", before(since)), before(rank.last_step))
        } else {
            String::new()
        };
        let quiet = !is_over && since.is_some_and(|since| now.duration_since(since) >= SILENT);
        let number = rank.rank.map_or("?".to_owned(), |rank| format!("r{rank}"));
        let meaning = match (rank.step(), open.end()) {
            (Step::Failed, _) => Meaning::Bad,
            (Step::Stepping, None) => Meaning::Good,
            (_, Some(_)) => Meaning::Muted,
            (Step::Awaited, None) => Meaning::Warn,
            (_, None) => Meaning::Busy,
        };
        let process = match (rank.host.as_str(), rank.pid) {
            ("", _) => "-".to_owned(),
            (host, 0) => host.to_owned(),
            (host, pid) => format!("{host}:{pid}"),
        };
        let here = index == open.row;
        let suspect = suspects.contains(rank.rank);
        let line = Line::from(vec![
            Span::raw(if here { ">" } else { " " }),
            if suspect { paint.span("!", Meaning::Bad) } else { Span::raw(" ") },
            if suspect {
                paint.span(format!("{} ", cell(&number, 6)), Meaning::Bad)
            } else {
                Span::raw(format!("{} ", cell(&number, 6)))
            },
            Span::raw(format!("{} ", cell(&process, host))),
            Span::raw(format!("{} ", cell(&rank.device.map_or("-".to_owned(), |d| d.to_string()), 3))),
            paint.span(format!("{} ", cell(open.phase_word(rank), 10)), meaning),
            Span::raw(cell(rank.announced.as_deref().unwrap_or("-"), announced)),
            paint.span(
                format!(" {:>4}", count(warnings)),
                if warnings > 0 { Meaning::Warn } else { Meaning::Muted },
            ),
            paint.span(
                format!(" {:>3}", count(errors)),
                if errors > 0 { Meaning::Bad } else { Meaning::Muted },
            ),
            paint.span(silent, if quiet { Meaning::Warn } else { Meaning::Muted }),
        ]);
        lines.push(if here { paint.under_cursor(line, columns) } else { line });
    }
    if order.is_empty() {
        let text = if store.count() > 0 {
            let key = model.keymap.first_key("logs");
            format!("  there is output, but no line names its rank; {key} opens the logs")
        } else {
            format!("  no rank output{}; see the events for the nodes", open.yet())
        };
        lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), Meaning::Muted)));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Rows, first..(first + rows).min(order.len()), order.len());
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
