//! A new job: the form, and what its fabric adds, each line with its rule.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::Finding;
use weftrun::core::mutation::{Change, Op};

use super::paint::{Paint, cell, fit};
use crate::model::Model;
use crate::model::draft::{Draft, FABRICS, Field, LAUNCHES, Planned};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let Some(draft) = &model.draft else {
        paint.panel(frame, area, "New job", vec![Line::from("n begins one")]);
        return;
    };
    if area.width >= 120 {
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(42), Constraint::Percentage(58)]).areas(area);
        let [form, checks] = Layout::vertical([Constraint::Length(13), Constraint::Min(3)]).areas(left);
        form_panel(draft, frame, paint, form);
        check_panel(draft, frame, paint, checks);
        changes_panel(draft, frame, paint, right);
        return;
    }
    // On a small screen the pane under the cursor gets the room.
    let on_changes = draft.field == Field::Changes;
    let fields = if on_changes { 3 } else { u16::try_from(Field::ALL.len() + 1).unwrap_or(13) };
    let checks = if area.height >= 20 { 5 } else { 0 };
    let form = fields.min(area.height.saturating_sub(5 + checks).max(3));
    let [form, changes, checks] =
        Layout::vertical([Constraint::Length(form), Constraint::Min(3), Constraint::Length(checks)])
            .areas(area);
    form_panel(draft, frame, paint, form);
    changes_panel(draft, frame, paint, changes);
    if checks.height > 0 {
        check_panel(draft, frame, paint, checks);
    }
}

fn form_panel(draft: &Draft, frame: &mut Frame, paint: Paint, area: Rect) {
    let from = draft.file.as_ref().map_or(String::new(), |file| format!(" ─ from {file}"));
    let inside = paint.frame(frame, area, format!("New job ─ {}{from}", draft.target_name()));
    let columns = usize::from(inside.width);
    let rows = usize::from(inside.height);
    let at = Field::ALL.iter().position(|field| *field == draft.field).unwrap_or(0);
    let fields = &Field::ALL[..Field::ALL.len() - 1];
    let first = at.min(fields.len() - 1).saturating_sub(rows.saturating_sub(1));
    let mut lines = Vec::new();
    for field in fields.iter().skip(first).take(rows) {
        let here = *field == draft.field;
        let value = match field {
            Field::Target => choice(&draft.targets, draft.target),
            Field::Launch => choice(&LAUNCHES.map(|(_, word)| word.to_owned()), draft.launch),
            Field::Fabric => choice(&FABRICS.map(|(_, word)| word.to_owned()), draft.fabric),
            field => draft.text(*field).to_owned(),
        };
        let label = format!("{} {}", if here { ">" } else { " " }, cell(field.label(), 10));
        let room = columns.saturating_sub(13);
        let mut shown = value.clone();
        if here && field.is_text() {
            let input = draft.inputs.iter().find(|(known, _)| known == field).map(|(_, input)| input);
            let scroll = input.map_or(0, |input| input.visual_scroll(room.saturating_sub(1)));
            shown = value.chars().skip(scroll).collect();
            let cursor = input.map_or(0, |input| input.visual_cursor().saturating_sub(scroll));
            let row = inside.y + u16::try_from(lines.len()).unwrap_or(0);
            let column = u16::try_from(13 + cursor).unwrap_or(0).min(inside.width);
            frame.set_cursor_position((inside.x + column, row));
        }
        lines.push(Line::from(vec![
            paint.span(label, if here { Meaning::Selected } else { Meaning::Muted }),
            Span::raw(format!(" {}", fit(&shown, room))),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The chosen word in brackets between the others.
fn choice(words: &[String], at: usize) -> String {
    let words: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(i, word)| if i == at { format!("[{word}]") } else { word.clone() })
        .collect();
    words.join(" ")
}

fn changes_panel(draft: &Draft, frame: &mut Frame, paint: Paint, area: Rect) {
    let here = draft.field == Field::Changes;
    let ops = draft.changes();
    let on = ops.iter().filter(|op| !draft.is_off(op)).count();
    let what = if draft.document { "whole document" } else { "what the fabric adds" };
    let focus = if here { "> " } else { "" };
    let inside =
        paint.frame(frame, area, format!("{focus}{what}: {on} changes, {} off (ctrl-d)", ops.len() - on));
    let columns = usize::from(inside.width);
    let rows = usize::from(inside.height);
    let lines = match &draft.planned {
        None => vec![Line::from(paint.span(" planning …", Meaning::Busy))],
        Some(Err(error)) => vec![Line::from(
            paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad),
        )],
        Some(Ok(planned)) if draft.document => document(draft, planned, paint, columns, rows),
        Some(Ok(planned)) => changes(draft, planned, paint, columns, rows),
    };
    frame.render_widget(Paragraph::new(lines), inside);
}

fn changes<'a>(draft: &Draft, planned: &Planned, paint: Paint, columns: usize, rows: usize) -> Vec<Line<'a>> {
    let here = draft.field == Field::Changes;
    let mut lines = Vec::new();
    let list = rows.saturating_sub(1).max(1);
    let first = draft.change.saturating_sub(list.saturating_sub(1));
    for (at, op) in planned.all.iter().enumerate().skip(first).take(list) {
        let off = draft.is_off(op);
        let selected = here && at == draft.change;
        let sign = if off { "  off" } else { "+" };
        let rule_width = 24.min(columns / 3);
        let room = columns.saturating_sub(rule_width + 8);
        let line = Line::from(vec![
            Span::raw(if selected { ">" } else { " " }),
            paint.span(cell(sign, 6), if off { Meaning::Muted } else { Meaning::Added }),
            paint.span(cell(&change_text(op), room), if off { Meaning::Muted } else { Meaning::Added }),
            paint.span(format!(" {}", fit(&op.rule, rule_width)), Meaning::Muted),
        ]);
        lines.push(if selected { line.style(paint.style(Meaning::Selected)) } else { line });
    }
    if planned.all.is_empty() {
        lines.push(Line::from(paint.span(" nothing: the job is sent as it is", Meaning::Muted)));
        for skipped in planned.plan.skipped.iter().take(rows.saturating_sub(1)) {
            let text = format!("   {}: {}", skipped.rule, skipped.why);
            lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), Meaning::Muted)));
        }
    } else if let (true, Some(op)) = (here, planned.all.get(draft.change)) {
        lines.push(Line::from(
            paint.span(fit(&format!(" why: {}", op.why), columns).into_owned(), Meaning::Busy),
        ));
    }
    lines
}

/// A change in one line.
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
        Change::Command { after, .. } => format!("command {}", after.join(" ")),
        _ => "change".to_owned(),
    };
    let what = if op.role == "worker" { what } else { format!("{}: {what}", op.role) };
    weftrun::core::log::clean_text(&what).into_owned()
}

/// The words by which a change is found in a document.
fn tokens(op: &Op) -> Vec<String> {
    match &op.change {
        Change::Env { name, .. } => vec![name.clone()],
        Change::Mount { name, host_path, mount_path, .. } => {
            vec![mount_path.clone(), host_path.clone(), name.clone()]
        }
        Change::Resource { name, .. } => vec![name.clone()],
        Change::Annotation { key, value } => vec![key.clone(), value.clone()],
        Change::Capability { name } => vec![name.clone()],
        Change::NodeSelector { key, .. } => vec![key.clone()],
        Change::Colocate { topology_key } => vec![topology_key.clone()],
        Change::Toleration { key, .. } => vec![key.clone()],
        Change::Command { after, .. } => after.iter().filter(|word| word.len() > 3).cloned().collect(),
        _ => Vec::new(),
    }
}

/// The document as a diff against the one without any fabric change; each changed line names its rule.
fn document<'a>(
    draft: &Draft,
    planned: &Planned,
    paint: Paint,
    columns: usize,
    rows: usize,
) -> Vec<Line<'a>> {
    let Some(rendered) = &planned.rendered else {
        let error = planned.error.as_deref().unwrap_or("this target does not show what it sends");
        return vec![Line::from(
            paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad),
        )];
    };
    let text = |documents: &weftrun::core::backend::Rendered| {
        documents
            .documents
            .iter()
            .map(|d| format!("# {}\n{}", d.title, d.text.trim_end()))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let after = text(rendered);
    let before = planned.bare.as_ref().map_or_else(|| after.clone(), text);
    let diff = similar::TextDiff::from_lines(&before, &after);
    let mut lines = Vec::new();
    let mut rule: Option<String> = None;
    for change in diff.iter_all_changes() {
        let (sign, meaning) = match change.tag() {
            similar::ChangeTag::Equal => (' ', None),
            similar::ChangeTag::Insert => ('+', Some(Meaning::Added)),
            similar::ChangeTag::Delete => ('-', Some(Meaning::Removed)),
        };
        let body = weftrun::core::log::clean_line(change.value().trim_end_matches('\n').as_bytes()).text;
        let Some(meaning) = meaning else {
            rule = None;
            lines.push(Line::from(format!("  {}", fit(&body, columns.saturating_sub(2)))));
            continue;
        };
        let found = planned
            .all
            .iter()
            .find(|op| tokens(op).iter().any(|token| !token.is_empty() && body.contains(token.as_str())));
        rule = found.map(|op| op.rule.clone()).or(rule);
        let room = columns.saturating_sub(26);
        lines.push(Line::from(vec![
            paint.span(format!("{sign} {}", cell(&body, room)), meaning),
            paint.span(format!(" {}", fit(rule.as_deref().unwrap_or(""), 22)), Meaning::Muted),
        ]));
    }
    let last = lines.len().saturating_sub(rows);
    lines.into_iter().skip(draft.scroll.min(last)).take(rows).collect()
}

fn check_panel(draft: &Draft, frame: &mut Frame, paint: Paint, area: Rect) {
    let inside = paint.frame(frame, area, "Checks (ctrl-r asks the cluster) ─ same as (ctrl-y copies)");
    let columns = usize::from(inside.width);
    let mut lines = vec![Line::from(vec![
        paint.span(" $ ", Meaning::Key),
        Span::raw(fit(&draft.command(), columns.saturating_sub(3)).into_owned()),
    ])];
    let finding = |finding: &Finding| {
        let (meaning, word) = Paint::severity(finding.severity);
        let room = columns.saturating_sub(8);
        Line::from(vec![
            paint.span(format!(" {word:<6}"), meaning),
            Span::raw(fit(&finding.message, room).into_owned()),
        ])
    };
    if let Some(Ok(planned)) = &draft.planned {
        if let Some(error) = &planned.error {
            lines.push(Line::from(
                paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad),
            ));
        }
        lines.extend(planned.plan.findings.iter().map(finding));
    }
    match &draft.checked {
        Some((revision, _)) if *revision != draft.revision => {
            lines.push(Line::from(paint.span(" changed since the last check", Meaning::Muted)));
        }
        Some((_, Ok(findings))) if findings.is_empty() => {
            lines.push(Line::from(
                paint.span(format!(" ok     {} would take it", draft.target_name()), Meaning::Good),
            ));
        }
        Some((_, Ok(findings))) => lines.extend(findings.iter().map(finding)),
        Some((_, Err(error))) => {
            lines.push(Line::from(
                paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad),
            ));
        }
        None => {}
    }
    frame.render_widget(Paragraph::new(lines), inside);
}
