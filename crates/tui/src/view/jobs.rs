//! The list of jobs, and the rail of jobs beside an open one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use weftrun::Attempt;
use weftrun::core::fabric::Fabric;
use weftrun::core::log::clean_text;

use super::heading::Head;
use super::mouse_targets::{Bar, Heading, MouseTarget};
use super::paint::{Paint, age, cell, fit, fit_ends, width, wrap};
use crate::model::jobs::{Entry, Health, JobColumn};
use crate::model::{Model, Screen};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let shown = model.jobs.shown();
    let attempts = model.jobs.current().map_or(0, |entry| earlier(model, entry).count());
    let peek = if area.height >= 18 && !shown.is_empty() { 7 + attempts.min(MOST_EARLIER) } else { 0 };
    let peek = u16::try_from(peek).unwrap_or(7);
    let [list, below] = Layout::vertical([Constraint::Min(3), Constraint::Length(peek)]).areas(area);
    let mut title = format!("Jobs {}", shown.len());
    if !model.jobs.filter.is_empty() {
        title = format!("Jobs {} of {} with `{}`", shown.len(), model.jobs.entries.len(), model.jobs.filter);
    }
    if !model.jobs.marked.is_empty() {
        title.push_str(&format!(", {} marked", model.jobs.marked.len()));
    }
    let inside = paint.frame(frame, list, title);
    if model.jobs.entries.is_empty() {
        frame.render_widget(ratatui::widgets::Paragraph::new(welcome(model, paint, inside.width)), inside);
        return;
    }
    let columns = usize::from(inside.width);
    let why = why_down(model, paint, columns, (usize::from(inside.height) / 3).max(1));
    let rows = usize::from(inside.height).saturating_sub(1 + why.len());
    let selected =
        model.jobs.current().and_then(|c| shown.iter().position(|e| e.summary.handle == c.summary.handle));
    let first = selected.unwrap_or(0).saturating_sub(rows.saturating_sub(1));
    let mut lines = vec![heading(model, paint, inside)];
    let worst = shown.iter().position(|entry| entry.is_in_trouble());
    for (index, entry) in shown.iter().enumerate().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Job(entry.summary.handle.clone()));
        let own = if Some(index) == worst { paint } else { paint.quiet() };
        lines.push(row(model, own, entry, columns, Some(index) == selected));
    }
    lines.resize(rows + 1, Line::default());
    lines.extend(why);
    frame.render_widget(ratatui::widgets::Paragraph::new(lines), inside);
    paint.scroll_bar(frame, list, Bar::Jobs, first..(first + rows).min(shown.len()), shown.len());
    if let (true, Some(entry)) = (peek > 0, model.jobs.current()) {
        paint.panel(
            frame,
            below,
            fit(&entry.summary.name, 60),
            peek_lines(model, entry, usize::from(below.width)),
        );
    }
}

/// Returns why targets do not answer, one line each, below their known jobs.
fn why_down<'a>(model: &Model, paint: Paint, columns: usize, most: usize) -> Vec<Line<'a>> {
    let down = model.jobs.targets.iter().filter_map(|target| match &target.health {
        Health::Down(since, why) => {
            let text = format!(" ! {} DOWN {}: {why}", target.name, age(model.now, Some(*since)));
            Some(Line::from(paint.span(fit_ends(&text, columns).into_owned(), Meaning::Wrong)))
        }
        _ => None,
    });
    down.take(most).collect()
}

/// Returns the widths of name and target; the latter is 0 if it does not fit.
fn widths(columns: usize) -> (usize, usize) {
    let target = if columns >= 76 { 10 } else { 0 };
    let name = (columns.saturating_sub(8 + target + 8 + 11 + 6 + 2)).clamp(14, 34).min((columns / 5).max(14));
    (name, target)
}

fn heading<'a>(model: &Model, paint: Paint, inside: Rect) -> Line<'a> {
    let (name, target) = widths(usize::from(inside.width));
    let heads = [
        Head::left("  state", JobColumn::State, 10),
        Head::left("name", JobColumn::Name, name + 1),
        Head::left("target", JobColumn::Target, target),
        Head::left(" ready", JobColumn::Ready, 9),
        Head::left("fabric", JobColumn::Fabric, 10),
        Head::left(" age", JobColumn::Age, 7),
        Head::left("last event", None, 10),
    ];
    paint.headings((inside, 0), model.jobs.sorted, &heads, Heading::Job)
}

/// Returns a job's fabric: the one that its logs prove, else the planned one.
fn fabric(entry: &Entry) -> (String, Meaning) {
    let planned = entry.summary.fabric.map(Fabric::as_str);
    match &entry.learned.verdict {
        Some((verdict, Some(false))) => (format!("{verdict} !"), Meaning::Bad),
        Some((verdict, Some(true))) => (format!("{verdict} ok"), Meaning::Good),
        _ => match entry.proved_fabric() {
            Some(verdict) => (verdict.to_owned(), Meaning::Muted),
            None => (planned.map_or("-".to_owned(), |word| format!("({word})")), Meaning::Muted),
        },
    }
}

fn row<'a>(model: &Model, paint: Paint, entry: &Entry, columns: usize, here: bool) -> Line<'a> {
    let (name_width, target_width) = widths(columns);
    let job = &entry.summary;
    let (meaning, word) = Paint::phase(job.phase);
    let (fabric, fabric_meaning) = fabric(entry);
    let ready = if job.ready.1 == 0 { "-".to_owned() } else { format!("{}/{}", job.ready.0, job.ready.1) };
    let mut spans = vec![
        Span::raw(if here { ">" } else { " " }),
        paint.span(if model.jobs.marked.contains(&job.handle) { "*" } else { " " }, Meaning::Key),
        paint.span(cell(word, 5), meaning),
        if entry.alarm { paint.span(" ! ", Meaning::Bad) } else { Span::raw("   ") },
        Span::raw(cell(&job.name, name_width)),
        Span::raw(" "),
    ];
    if target_width > 0 {
        spans.push(Span::raw(cell(job.handle.target(), target_width)));
    }
    spans.push(Span::raw(format!(" {} ", cell(&ready, 7))));
    spans.push(paint.span(cell(&fabric, 10), fabric_meaning));
    spans.push(Span::raw(format!(" {} ", cell(&age(model.now, job.created), 5))));
    if let Some(attempt) = model.jobs.attempts.of(&job.handle) {
        spans.push(paint.span(format!("{} ", attempt.label()), Meaning::Warn));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let space = columns.saturating_sub(used);
    spans.push(match &entry.learned.cause {
        Some(cause) => Span::raw(fit(cause, space).into_owned()),
        None => paint.span(fit(&entry.last, space).into_owned(), Meaning::Muted),
    });
    let line = Line::from(spans);
    if here { paint.under_cursor(&line, columns) } else { line }
}

/// Most earlier attempts that are listed of the job under the cursor, the newest ones.
const MOST_EARLIER: usize = 4;

/// Returns the attempts before a job, the newest first, each with the cause of its failure.
fn earlier(model: &Model, entry: &Entry) -> impl Iterator<Item = String> {
    let attempt = model.jobs.attempts.of(&entry.summary.handle);
    let mut lines: Vec<String> = attempt.into_iter().flat_map(Attempt::earlier_lines).collect();
    lines.reverse();
    lines.into_iter()
}

fn peek_lines<'a>(model: &Model, entry: &Entry, columns: usize) -> Vec<Line<'a>> {
    let job = &entry.summary;
    let space = columns.saturating_sub(14);
    let mut facts = vec![("handle", job.handle.to_string())];
    let attempt = model.jobs.attempts.of(&job.handle);
    let mut state = attempt.map_or_else(String::new, |attempt| format!("{}, ", attempt.label()));
    state.push_str(job.phase.as_str());
    if !job.reason.is_empty() {
        state.push_str(&format!(": {}", job.reason));
    }
    if let Some(code) = job.exit_code.filter(|code| !job.reason.contains(&format!("exit code {code}"))) {
        state.push_str(&format!(", exit code {code}"));
    }
    facts.push(("state", state));
    let asked = job.fabric.map_or("not known", Fabric::as_str);
    let used = entry.learned.verdict.as_ref();
    let used = used.map_or("logs not read yet".to_owned(), |(fabric, _)| format!("in use {fabric}"));
    facts.push(("fabric", format!("asked for {asked}, {used}")));
    let nodes = match job.ready {
        (_, 0) => "number not known".to_owned(),
        (_, nodes) if job.phase.is_terminal() => nodes.to_string(),
        (ready, nodes) => format!("{ready} of {nodes} ready"),
    };
    facts.push(("nodes", format!("{nodes}, {}", job.kind)));
    let began =
        job.created.map_or("time not known".to_owned(), |at| format!("{} ago", age(model.now, Some(at))));
    let queue = job.queue.as_ref().map_or(String::new(), |queue| format!(", queue {queue}"));
    facts.push(("begun", format!("{began}{queue}")));
    match &entry.learned.cause {
        Some(cause) => facts.push(("cause", cause.clone())),
        None => facts.push(("last", entry.last.clone())),
    }
    facts.extend(
        earlier(model, entry).take(MOST_EARLIER).map(|line| ("before", clean_text(&line).into_owned())),
    );
    facts
        .into_iter()
        .map(|(key, text)| Line::from(format!(" {} {}", cell(key, 8), fit(&text, space))))
        .collect()
}

/// Draws the screen of a first start.
fn welcome<'a>(model: &Model, paint: Paint, columns: u16) -> Vec<Line<'a>> {
    let key = |key: &str| paint.span(format!("  {key}  "), Meaning::Key);
    let mut lines = vec![Line::from(""), Line::from(" No jobs yet."), Line::from("")];
    if model.has_demo {
        let text = "starts a demo on this machine: no GPU, no cluster";
        lines.push(Line::from(vec![key(model.keymap.first_key("demo")), Span::raw(text)]));
    }
    lines.push(Line::from(vec![key(model.keymap.first_key("new-job")), Span::raw("makes a new job")]));
    if model.opens_logs {
        let text = "opens logs of a run: a file or a folder";
        lines.push(Line::from(vec![key(model.keymap.first_key("open-log-files")), Span::raw(text)]));
    }
    lines.push(Line::from(vec![key(model.keymap.first_key("help")), Span::raw("shows all keys")]));
    lines.push(Line::from(""));
    for target in &model.jobs.targets {
        let (text, meaning) = match &target.health {
            Health::Asking => ("connecting …".to_owned(), Meaning::Busy),
            Health::Up => ("ok, no jobs".to_owned(), Meaning::Good),
            Health::Down(since, why) => {
                (format!("DOWN {}: {why}", age(model.now, Some(*since))), Meaning::Bad)
            }
        };
        let space = usize::from(columns).saturating_sub(16);
        for (at, part) in wrap(&text, space).into_iter().take(3).enumerate() {
            let name = cell(if at == 0 { &target.name } else { "" }, 12);
            lines.push(Line::from(vec![Span::raw(format!("  {name} ")), paint.span(part, meaning)]));
        }
    }
    lines.extend(found_targets(model, paint, usize::from(columns)));
    lines
}

/// Lists what further targets could be made of; the key makes one of that under the cursor.
fn found_targets<'a>(model: &Model, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    const MOST: usize = 8;
    if model.found.is_empty() {
        return Vec::new();
    }
    let all = model.found.len();
    let which = if all > 1 { "up and down choose, " } else { "" };
    let mut lines = vec![
        Line::from(""),
        Line::from(vec![
            Span::raw(format!(" Found here, and no target yet ({which}")),
            paint.span(model.keymap.first_key("add-target").to_owned(), Meaning::Key),
            Span::raw(" adds):"),
        ]),
    ];
    let space = columns.saturating_sub(32);
    let here = model.found_row.min(all.saturating_sub(1));
    let first = here.saturating_sub(MOST - 1);
    for (at, (backend, found)) in model.found.iter().enumerate().skip(first).take(MOST) {
        let sign = if at == here { ">" } else { " " };
        let line = Line::from(vec![
            Span::raw(format!("{sign}    {} {} ", cell(&found.name, 14), cell(backend, 9))),
            paint.span(fit(&found.sign, space).into_owned(), Meaning::Muted),
        ]);
        lines.push(if at == here { paint.under_cursor(&line, columns) } else { line });
    }
    if all > MOST {
        lines.push(Line::from(format!("     {all} in all; `weftrun config add` lists them")));
    }
    lines
}

/// Draws the list of jobs beside the open one.
pub(super) fn rail(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let paint = paint.quiet();
    let inside = paint.frame(frame, area, "Jobs");
    let columns = usize::from(inside.width);
    let open = model.open.as_ref().map(|open| &open.handle);
    let mut lines = Vec::new();
    let shown = model.jobs.shown();
    let rows = usize::from(inside.height).saturating_sub(model.jobs.targets.len() + 2);
    let at = shown.iter().position(|entry| Some(&entry.summary.handle) == open);
    let first = at.unwrap_or(0).saturating_sub(rows.saturating_sub(1));
    for entry in shown.iter().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Job(entry.summary.handle.clone()));
        let here = Some(&entry.summary.handle) == open;
        let (meaning, word) = Paint::phase(entry.summary.phase);
        let alarm = if entry.alarm { "!" } else { " " };
        let name = cell(&entry.summary.name, columns.saturating_sub(9));
        let line = Line::from(vec![
            Span::raw(if here { "> " } else { "  " }),
            Span::raw(name),
            paint.span(format!(" {}", cell(word, 5)), meaning),
            if entry.alarm { paint.span(alarm, Meaning::Bad) } else { Span::raw(alarm) },
        ]);
        lines.push(if here { paint.under_cursor(&line, columns) } else { line });
    }
    lines.push(Line::from(""));
    for target in &model.jobs.targets {
        let (text, _, meaning) = super::badge(model, target);
        let used = columns.saturating_sub(width(&text) + 3);
        lines.push(Line::from(vec![
            Span::raw(format!("  {}", cell(&target.name, used))),
            paint.span(text, meaning),
        ]));
    }
    debug_assert!(model.screen != Screen::Jobs);
    frame.render_widget(ratatui::widgets::Paragraph::new(lines), inside);
}
