//! A new job: the form, and what its fabric adds, each line with its rule.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::Finding;
use weftrun::core::fabric::{Change, Fabric, Op};
use weftrun::core::log::clean_text;

use super::document::{self, Part};
use super::mouse_targets::Bar;
use super::paint::{Paint, cell, fit, width, wrap};
use crate::model::Model;
use crate::model::draft::{Basis, Field, LAUNCHES, MEASURING, NewJobForm, Planned, Shown};
use crate::model::words::on_one_line;
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let Some(draft) = &model.draft else {
        paint.panel(frame, area, "New job", vec![Line::from("n begins one")]);
        return;
    };
    let whole = u16::try_from(Field::ROWS.len() + 1).unwrap_or(12);
    if area.width >= 120 {
        // The form takes what its values need, up to most of the screen.
        let needed = Field::ROWS.iter().map(|row| row.iter().map(|field| needs(draft, *field)).sum()).max();
        let needed = u16::try_from(needed.unwrap_or(0usize).saturating_add(2)).unwrap_or(u16::MAX);
        let form = needed.clamp(area.width * 21 / 50, area.width * 3 / 5);
        let [left, right] = Layout::horizontal([Constraint::Length(form), Constraint::Min(1)]).areas(area);
        let [form, checks] = Layout::vertical([Constraint::Length(whole), Constraint::Min(3)]).areas(left);
        form_panel(draft, frame, paint, form);
        check_panel(model, draft, frame, paint, checks);
        changes_panel(draft, frame, paint, right);
        return;
    }
    // On a small screen the pane under the cursor gets most of the space.
    let on_changes = draft.field == Field::Changes;
    let checks = if area.height >= 20 { 5 } else { 0 };
    let fields = if on_changes { 2 } else { whole };
    let form = fields.min(area.height.saturating_sub(3 + checks).max(3));
    let [form, changes, checks] =
        Layout::vertical([Constraint::Length(form), Constraint::Min(3), Constraint::Length(checks)])
            .areas(area);
    form_panel(draft, frame, paint, form);
    changes_panel(draft, frame, paint, changes);
    if checks.height > 0 {
        check_panel(model, draft, frame, paint, checks);
    }
}

/// Columns of a field's label.
const LABEL: usize = 13;

fn form_panel(draft: &NewJobForm, frame: &mut Frame, paint: Paint, area: Rect) {
    let from = draft.file.as_ref().map_or(String::new(), |file| format!(" ─ from {file}"));
    let title = format!("New job ─ {}{from}", draft.target_name());
    let long = width(&title);
    let inside = paint.frame(frame, area, title);
    let mistakes = draft.mistakes();
    let rows = usize::from(inside.height);
    // If the cursor is in the changes, one line with the whole job is more useful than the last field.
    let here = Field::ROWS.iter().position(|row| row.contains(&draft.field));
    let first = here.unwrap_or(1).saturating_sub(rows.saturating_sub(1));
    let mut lines = Vec::new();
    for (at, row) in Field::ROWS.iter().enumerate().skip(first).take(rows) {
        let y = inside.y + u16::try_from(at - first).unwrap_or(0);
        let (mut spans, mut x) = (Vec::new(), inside.x);
        for (field, width) in row.iter().zip(shares(draft, row, usize::from(inside.width))) {
            let wrong = mistakes.iter().any(|(known, _)| known == field);
            spans.extend(form_field(draft, *field, frame, (paint, wrong), (x, y, width)));
            x = x.saturating_add(u16::try_from(width).unwrap_or(0));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    let below = Field::ROWS.len().saturating_sub(first + rows);
    let text = match (first, below) {
        (0, 0) => return,
        (0, below) => format!(" more: {below} below "),
        (above, 0) => format!(" more: {above} above "),
        (above, below) => format!(" more: {above} above, {below} below "),
    };
    if here.is_some() {
        paint.corner(frame, area, long, &text);
    }
}

/// Returns the columns that a field needs. A profile is chosen from a list that may be any length.
fn needs(draft: &NewJobForm, field: Field) -> usize {
    let value = match options(draft, field) {
        _ if field.is_text() => width(&on_one_line(draft.text(field))) + 1,
        Some((words, at)) if field != Field::Profile => width(&choice(&words, at, usize::MAX)),
        _ => 0,
    };
    LABEL + 2 + value
}

/// Returns the words of a field that is a choice, and which of them is chosen.
fn options(draft: &NewJobForm, field: Field) -> Option<(Vec<String>, usize)> {
    Some(match field {
        Field::Target => (draft.targets.clone(), draft.target),
        Field::Launch => (LAUNCHES.map(|launch| launch.to_string()).to_vec(), draft.launch),
        Field::Fabric => (Fabric::ALL.map(|fabric| fabric.to_string()).to_vec(), draft.fabric),
        Field::Bandwidth => (MEASURING.map(str::to_owned).to_vec(), draft.measuring),
        Field::Profile => (profiles(draft), draft.profile),
        _ => return None,
    })
}

/// Divides the columns of a row between its fields: alike, unless one needs what another has left.
fn shares(draft: &NewJobForm, row: &[Field], columns: usize) -> Vec<usize> {
    let each = columns / row.len().max(1);
    let needed: Vec<usize> = row.iter().map(|field| needs(draft, *field)).collect();
    let mut spare: usize = needed.iter().map(|needed| each.saturating_sub(*needed)).sum();
    let share = |needed: &usize| {
        let more = needed.saturating_sub(each).min(spare);
        spare -= more;
        each + more
    };
    let mut shares: Vec<usize> = needed.iter().map(share).collect();
    // What one takes is missing to the others.
    let mut taken = shares.iter().sum::<usize>().saturating_sub(columns);
    for (share, needed) in shares.iter_mut().zip(&needed) {
        let back = share.saturating_sub((*needed).min(each)).min(taken);
        if *share <= each {
            *share -= back;
            taken -= back;
        }
    }
    shares
}

/// Draws a field: its label and its value. The terminal's cursor is in the field that is being edited.
fn form_field<'a>(
    draft: &NewJobForm,
    field: Field,
    frame: &mut Frame,
    (paint, wrong): (Paint, bool),
    (x, y, width): (u16, u16, usize),
) -> [Span<'a>; 2] {
    let here = field == draft.field;
    let space = width.saturating_sub(LABEL + 1);
    let value = match options(draft, field) {
        Some((words, at)) => choice(&words, at, space),
        None => on_one_line(draft.text(field)),
    };
    let (here_mark, wrong_mark) = (if here { ">" } else { " " }, if wrong { "!" } else { " " });
    let label = format!("{here_mark}{wrong_mark}{}", cell(field.label(), LABEL - 3));
    let mut shown = value.clone();
    if here && field.is_text() {
        let input = draft.inputs.iter().find(|(known, _)| *known == field).map(|(_, input)| input);
        let scroll = input.map_or(0, |input| input.visual_scroll(space.saturating_sub(1)));
        shown = value.chars().skip(scroll).collect();
        let cursor = input.map_or(0, |input| input.visual_cursor().saturating_sub(scroll));
        let column = u16::try_from((LABEL + cursor).min(width)).unwrap_or(0);
        frame.set_cursor_position((x + column, y));
    }
    let meaning = match (here, wrong) {
        (true, _) => Meaning::Selected,
        (_, true) => Meaning::Wrong,
        _ => Meaning::Muted,
    };
    let label = paint.span(label, meaning);
    [label, Span::raw(format!(" {} ", cell(&shown, space)))]
}

/// Returns the chosen word in brackets between the others; earlier ones are omitted if they do not fit.
fn choice(words: &[String], at: usize, space: usize) -> String {
    let words: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(i, word)| if i == at { format!("[{word}]") } else { word.clone() })
        .collect();
    let needs = |first: usize| {
        let shown: usize = words.iter().take(at + 1).skip(first).map(|word| width(word) + 1).sum();
        shown.saturating_sub(1) + if first > 0 { 2 } else { 0 }
    };
    let first = (0..at).find(|first| needs(*first) <= space).unwrap_or(at);
    let text = words.get(first..).unwrap_or_default().join(" ");
    if first > 0 { format!("… {text}") } else { text }
}

fn profiles(draft: &NewJobForm) -> Vec<String> {
    let word = |name: &String| if name.is_empty() { "the target's own".to_owned() } else { name.clone() };
    draft.profiles.iter().map(word).collect()
}

fn changes_panel(draft: &NewJobForm, frame: &mut Frame, paint: Paint, area: Rect) {
    let here = draft.field == Field::Changes;
    let ops = draft.changes();
    let lost = |at: &usize| match &draft.planned {
        Some(Ok(planned)) => planned.inexpressible.contains_key(at),
        _ => false,
    };
    let on: Vec<usize> = (0..ops.len()).filter(|at| !draft.is_off(&ops[*at])).collect();
    let sent = on.iter().filter(|at| !lost(at)).count();
    let what = match draft.shown {
        Shown::Changes => "what the fabric adds",
        Shown::Diff => "what is sent, as a diff",
        Shown::Beside => "your job | what is sent",
    };
    let focus = if here { "> " } else { "" };
    let off = if ops.len() > on.len() { format!(", {} off", ops.len() - on.len()) } else { String::new() };
    let not = if on.len() > sent { format!(", {} not applied", on.len() - sent) } else { String::new() };
    let title = format!("{focus}{what}: {sent}{off}{not}");
    let long = width(&title);
    let inside = paint.frame(frame, area, title);
    let columns = usize::from(inside.width);
    let rows = usize::from(inside.height);
    let mut bar = (0..0, 0);
    let mut lines = match &draft.planned {
        None => vec![Line::from(paint.span(" planning …", Meaning::Busy))],
        Some(Err(_)) => vec![Line::from(paint.span(" nothing yet: see the checks", Meaning::Muted))],
        Some(Ok(planned)) => {
            let why = here.then(|| planned.all.get(draft.change)).flatten();
            let space = rows.saturating_sub(usize::from(why.is_some())).max(1);
            let (mut lines, seen, all) = match draft.shown {
                Shown::Changes => changes(draft, planned, paint, columns, space),
                Shown::Diff => document::diff(draft, planned, paint, columns, space),
                Shown::Beside => document::beside(draft, planned, paint, columns, space),
            };
            bar = (seen, all);
            if let Some(op) = why {
                let (text, meaning) = match planned.inexpressible.get(&draft.change) {
                    Some(reason) => (format!(" not applied: {reason}"), Meaning::Warn),
                    None => (format!(" why: {}", op.why), Meaning::Busy),
                };
                lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), meaning)));
            }
            lines
        }
    };
    lines.truncate(rows);
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Changes, bar.0, bar.1);
    let basis = match &draft.planned {
        Some(Ok(planned)) if planned.basis == Basis::Assumed => {
            "assumed, checking with the cluster ─ ".to_owned()
        }
        Some(Ok(planned)) if planned.basis == Basis::Unanswered => {
            format!("assumed: {} does not answer ─ ", fit(draft.target_name(), 16))
        }
        _ => String::new(),
    };
    paint.corner(frame, area, long, &format!(" {basis}ctrl-d "));
}

fn changes<'a>(draft: &NewJobForm, planned: &Planned, paint: Paint, columns: usize, rows: usize) -> Part<'a> {
    let mut lines = Vec::new();
    let first = draft.change.saturating_sub(rows.saturating_sub(1));
    let longest = planned.all.iter().map(|op| width(&op.rule)).max().unwrap_or(0);
    let rule_width = longest.min(24).min(columns / 3);
    let space = columns.saturating_sub(rule_width + 8);
    for (at, op) in planned.all.iter().enumerate().skip(first).take(rows) {
        let off = draft.is_off(op);
        let selected = draft.marks(Some(at));
        let (sign, meaning) = match (off, planned.inexpressible.contains_key(&at), &op.change) {
            (true, ..) => ("  off", Meaning::Muted),
            (false, true, _) => ("! not", Meaning::Warn),
            (false, false, Change::Remove { .. }) => ("-", Meaning::Removed),
            (false, false, _) => ("+", Meaning::Added),
        };
        let line = Line::from(vec![
            Span::raw(if selected { ">" } else { " " }),
            paint.span(cell(sign, 6), meaning),
            paint.span(cell(&change_text(op), space), meaning),
            paint.span(format!(" {}", fit(&op.rule, rule_width)), Meaning::Muted),
        ]);
        lines.push(if selected { paint.under_cursor(&line, columns) } else { line });
    }
    if planned.all.is_empty() {
        lines.push(Line::from(paint.span(" nothing: the job is sent as it is", Meaning::Muted)));
        for skipped in planned.plan.skipped.iter().take(rows.saturating_sub(1)) {
            let text = format!("   {}: {}", skipped.rule, skipped.why);
            lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), Meaning::Muted)));
        }
    }
    let all = planned.all.len();
    (lines, first..(first + rows).min(all), all)
}

/// Returns a change as one line.
pub fn change_text(op: &Op) -> String {
    let what = match &op.change {
        Change::Env { name, value } => format!("env {name}={value}"),
        Change::Mount { host_path, mount_path, read_only, .. } => {
            format!("mount {host_path} -> {mount_path}{}", if *read_only { " (ro)" } else { "" })
        }
        Change::Resource { name, quantity } => format!("resource {name}: {quantity}"),
        Change::Annotation { key, value } => format!("annotation {key}: {value}"),
        Change::Capability { name } => format!("capability {name}"),
        Change::NodeSelector { key, value } => format!("node selector {key}={value}"),
        Change::Colocate { topology_key } => format!("colocate by {topology_key}"),
        Change::Toleration { key, .. } => format!("toleration {key}"),
        removed @ Change::Remove { .. } => format!("no {}", removed.target()),
        Change::Command { after, .. } => format!("command {}", after.join(" ")),
        other => format!("{} {}", other.target(), other.value()),
    };
    let what = if op.role == "worker" { what } else { format!("{}: {what}", op.role) };
    weftrun::core::log::clean_text(&what).into_owned()
}

fn check_panel(model: &Model, draft: &NewJobForm, frame: &mut Frame, paint: Paint, area: Rect) {
    let title = "Checks and equal command";
    let inside = paint.frame(frame, area, title);
    paint.corner(frame, area, width(title), " ctrl-r checks with the cluster ─ ctrl-y copies ");
    let columns = usize::from(inside.width);
    let rows = usize::from(inside.height);
    let told = told(model, draft, paint, columns, rows >= 10);
    // The complete command if it fits, so that it can be read before it is copied. A form with a mistake has none.
    let (sign, meaning) = (" $ ", Meaning::Key);
    let command = draft.command().ok();
    let wrapped = command.map(|command| wrap(&on_one_line(&command), columns.saturating_sub(3)));
    let wrapped = wrapped.unwrap_or_default();
    let most = rows.saturating_sub(told.len().min(rows / 2)).max(1);
    let cut = wrapped.len() > most;
    let mut lines: Vec<Line> = wrapped
        .into_iter()
        .enumerate()
        .take(most)
        .map(|(at, part)| {
            let head = if at == 0 { sign } else { "   " };
            let tail = if cut && at + 1 == most { "…" } else { "" };
            Line::from(vec![
                paint.span(head, meaning),
                Span::raw(part.trim_end().to_owned()),
                paint.span(tail, Meaning::Muted),
            ])
        })
        .collect();
    lines.extend(told);
    lines.truncate(rows);
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Lists what prevents the job, the plan's warnings and the cluster's verdict; complete if they fit.
fn told<'a>(model: &Model, draft: &NewJobForm, paint: Paint, columns: usize, tall: bool) -> Vec<Line<'a>> {
    let one = |text: String, meaning| Line::from(paint.span(fit(&text, columns).into_owned(), meaning));
    let finding = |finding: &Finding| {
        let (meaning, word) = Paint::severity(finding.severity);
        let space = columns.saturating_sub(8);
        let parts = if tall {
            wrap(&finding.message, space)
        } else {
            vec![fit(&finding.message, space).into_owned()]
        };
        let line = move |(at, part): (usize, String)| {
            let head = if at == 0 { word } else { "" };
            Line::from(vec![paint.span(format!(" {head:<6}"), meaning), Span::raw(part)])
        };
        parts.into_iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let refused = match &draft.planned {
        Some(Err(error)) if draft.mistakes().is_empty() => vec![error.clone()],
        _ => draft.mistakes().into_iter().map(|(_, mistake)| mistake).collect(),
    };
    let unknown = refused.into_iter().chain(draft.unknown_names(&model.instances));
    let unknown = unknown.flat_map(|text| wrap(&format!("! {text}"), columns.saturating_sub(2)));
    let red = |(at, part): (usize, String)| {
        // Only the first is the worst.
        one(format!(" {part}"), if at == 0 { Meaning::Bad } else { Meaning::Wrong })
    };
    let mut lines: Vec<Line> = unknown.enumerate().map(red).collect();
    let paint = if lines.is_empty() { paint } else { paint.quiet() };
    let one = |text: String, meaning| Line::from(paint.span(fit(&text, columns).into_owned(), meaning));
    match &draft.checked {
        Some((revision, _)) if *revision != draft.revision => {
            lines.push(one(" changed since the last check".to_owned(), Meaning::Muted));
        }
        Some((_, Ok(findings))) if findings.is_empty() => {
            lines.push(one(format!(" ok     {} would take it", draft.target_name()), Meaning::Good));
        }
        Some((_, Ok(findings))) => lines.extend(findings.iter().flat_map(finding)),
        Some((_, Err(error))) if tall => {
            let parts = wrap(&format!("! {error}"), columns.saturating_sub(2));
            lines.extend(parts.into_iter().map(|part| one(format!(" {part}"), Meaning::Bad)));
        }
        Some((_, Err(error))) => lines.push(one(format!(" ! {error}"), Meaning::Bad)),
        None => {}
    }
    if let Some(Ok(planned)) = &draft.planned {
        if let Err(error) = &planned.rows {
            lines.push(one(format!(" ! {error}"), Meaning::Bad));
        }
        for (at, reason) in planned
            .inexpressible
            .iter()
            .filter(|(at, _)| planned.all.get(**at).is_some_and(|op| !draft.is_off(op)))
        {
            let rule = planned.all.get(*at).map_or("", |op| op.rule.as_str());
            let parts = wrap(&format!("{rule} is not applied: {reason}"), columns.saturating_sub(8));
            let parts = parts.into_iter().take(if tall { 4 } else { 1 }).enumerate();
            lines.extend(parts.map(|(at, part)| {
                let head = if at == 0 { "note" } else { "" };
                Line::from(vec![paint.span(format!(" {head:<6}"), Meaning::Warn), Span::raw(part)])
            }));
        }
        let mut findings: Vec<&Finding> = planned.plan.findings.iter().chain(&planned.findings).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        lines.extend(findings.into_iter().flat_map(finding));
    }
    if let Some(why) = draft.why_file() {
        let text = clean_text(&format!("{why}: ctrl-g saves the file that this command names")).into_owned();
        let parts = wrap(&text, columns.saturating_sub(2));
        lines.extend(parts.into_iter().map(|part| one(format!(" {part}"), Meaning::Warn)));
    }
    lines
}
