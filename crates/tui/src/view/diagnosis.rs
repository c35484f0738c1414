//! What is wrong, how it is known, and what to do.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::core::finding::{Confidence, Evidence};
use weftrun::core::job::JobPhase;
use weftrun::{Finding, Severity};

use super::mouse_targets::{Bar, MouseTarget};
use super::paint::{Paint, fit, ranges, wrap};
use crate::model::Model;
use crate::model::open::Open;
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let findings = open.findings();
    let inside = paint.frame(frame, area, title(&findings));
    let columns = usize::from(inside.width);
    if findings.is_empty() {
        let failed = open.detail.as_ref().is_some_and(|detail| detail.summary.phase == JobPhase::Failed);
        let text = match open.transport_view.ok {
            _ if failed => " The job failed, and its logs do not show why.".to_owned(),
            Some(true) => " Nothing is wrong: the pairs use the fabric that was asked for.".to_owned(),
            _ if open.transport_view.ranks.is_empty() => format!(" Nothing is known{}.", open.yet()),
            _ => " Nothing wrong was seen.".to_owned(),
        };
        frame.render_widget(Line::from(text), inside);
        return;
    }
    let selected = open.finding.min(findings.len() - 1);
    let rows = usize::from(inside.height);
    // Complete if all of them fit, else only the one under the cursor.
    let blocks_of = |whole: bool| -> Vec<Vec<Line>> {
        let block = |(at, finding)| {
            // The first of them is the worst.
            let paint = if at == 0 { paint } else { paint.quiet() };
            let applies = crate::update::changes_job(model, finding);
            let fix = finding.fix.as_ref().map(|fix| in_ui(model, open, &fix.text));
            block(paint, finding, columns, fix, (at == selected, whole || at == selected, applies))
        };
        findings.iter().copied().enumerate().map(block).collect()
    };
    let mut blocks = blocks_of(true);
    if blocks.iter().map(Vec::len).sum::<usize>() > rows {
        blocks = blocks_of(false);
    }
    let mut first = 0;
    while first < selected && blocks[first..=selected].iter().map(Vec::len).sum::<usize>() > rows {
        first += 1;
    }
    let mut row = 0;
    for (at, block) in blocks.iter().enumerate().skip(first) {
        for _ in block {
            paint.spot(inside, row, || MouseTarget::Finding(at));
            row += 1;
        }
    }
    let all = blocks.iter().map(Vec::len).sum();
    let above: usize = blocks.iter().take(first).map(Vec::len).sum();
    let lines: Vec<Line> = blocks.drain(first..).flatten().collect();
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Findings, above..(above + rows).min(all), all);
}

/// Returns the title: the number of findings of each severity.
fn title(findings: &[&Finding]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "info")];
    let words: Vec<String> = kinds
        .iter()
        .map(|(severity, word)| (count(*severity), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}{}", if count > 1 && *word != "info" { "s" } else { "" }))
        .collect();
    if words.is_empty() { "Diagnosis".to_owned() } else { format!("Diagnosis ─ {}", words.join(", ")) }
}

fn confidence(finding: &Finding) -> &'static str {
    match finding.confidence {
        Some(Confidence::High) => " [high]",
        Some(Confidence::Medium) => " [medium]",
        Some(Confidence::Low) => " [low]",
        None => "",
    }
}

/// Draws a finding: whether it is under the cursor, whether all of it is drawn, and whether its fix changes the job.
fn block<'a>(
    paint: Paint,
    finding: &Finding,
    columns: usize,
    fix_text: Option<String>,
    (here, whole, applies): (bool, bool, bool),
) -> Vec<Line<'a>> {
    let (meaning, word) = Paint::severity(finding.severity);
    let space = columns.saturating_sub(10);
    let ranks = if finding.ranks.is_empty() {
        String::new()
    } else {
        // The finding under the cursor lists all of them.
        let ranks = ranges(&finding.ranks);
        format!(" r{}", if here { ranks } else { fit(&ranks, 24).into_owned() })
    };
    let text = format!("{}{}{ranks}", finding.message, confidence(finding));
    let mut lines = Vec::new();
    for (number, part) in wrap(&text, space).into_iter().enumerate() {
        let head = if number == 0 { format!("{word:<6}") } else { " ".repeat(6) };
        let mark = if here && number == 0 { "> " } else { "  " };
        let line =
            Line::from(vec![Span::raw(mark), paint.span(head, meaning), Span::raw(" "), Span::raw(part)]);
        lines.push(if here && number == 0 { paint.under_cursor(&line, columns) } else { line });
    }
    let most = if whole { 3 } else { 1 };
    for evidence in finding.evidence.iter().take(most) {
        let place = format!("         {} ", place(evidence));
        let space = columns.saturating_sub(place.len());
        lines.push(Line::from(paint.span(format!("{place}{}", fit(&evidence.text, space)), Meaning::Muted)));
    }
    if let Some((fix, text)) = finding.fix.as_ref().zip(fix_text) {
        let edits: Vec<String> = fix.patch.iter().map(crate::update::edit_text).collect();
        let hint =
            if edits.is_empty() || !applies { String::new() } else { format!(" [A: {}]", edits.join(", ")) };
        let text = format!("{text}{hint}");
        let parts = if whole { wrap(&text, space) } else { vec![fit(&text, space).into_owned()] };
        for (number, part) in parts.into_iter().enumerate() {
            let head = if number == 0 { "    fix: " } else { "         " };
            lines.push(Line::from(vec![paint.span(head, Meaning::Good), Span::raw(part)]));
        }
    }
    lines
}

/// Returns an advice with the name of the job, and with the key that does here what a command does elsewhere.
pub(crate) fn in_ui(model: &Model, open: &Open, text: &str) -> String {
    let health = format!("{} (queries NCCL's RAS service)", model.keymap.first_key("query-health"));
    let name = crate::model::words::quote(open.handle.name());
    text.replace("`weftrun health JOB`", &health).replace(" JOB", &format!(" {name}"))
}

/// Returns the place of a piece of evidence. What the cluster reports is no line of a log.
fn place(evidence: &Evidence) -> String {
    match evidence.line {
        0 => evidence.source.clone(),
        line => format!("{}:{line}", evidence.source),
    }
}

/// Returns the whole text of a finding, for reading and copying.
pub fn finding_lines(finding: &Finding) -> Vec<String> {
    let (_, word) = Paint::severity(finding.severity);
    let mut lines = vec![format!("{word}{} {}", confidence(finding), finding.code), finding.message.clone()];
    if !finding.ranks.is_empty() {
        let word = if finding.ranks.len() == 1 { "rank" } else { "ranks" };
        lines.push(format!("{word} {}", ranges(&finding.ranks)));
    }
    if let Some(subject) = &finding.subject {
        lines.push(format!("at {subject}"));
    }
    if !finding.evidence.is_empty() {
        lines.push(String::new());
        lines.push("How it is known:".to_owned());
        lines.extend(finding.evidence.iter().map(|e| format!("  {}  {}", place(e), e.text)));
    }
    if let Some(fix) = &finding.fix {
        lines.push(String::new());
        lines.push(format!("What to do: {}", fix.text));
        lines.extend(fix.patch.iter().map(|edit| format!("  {}", crate::update::edit_text(edit))));
    }
    if let Some(source) = &finding.source {
        lines.push(String::new());
        lines.push(format!("Source: {source}"));
    }
    lines
}
