//! What is sent, compared with what would be sent without the fabric's changes; each changed line names its rule, and
//! the lines of the change under the cursor are marked.

use ratatui::text::{Line, Span};

use super::paint::{Paint, cell, fit};
use super::submit::change_text;
use crate::model::compare::{self, Row};
use crate::model::draft::{NewJobForm, Planned};
use crate::theme::Meaning;

/// The lines that are seen, which of all they are, and how many there are.
pub(super) type Part<'a> = (Vec<Line<'a>>, std::ops::Range<usize>, usize);

/// Columns of the rule behind a line.
const RULE: usize = 22;

/// Draws the document as a diff: the lines that change, some context, and what is switched off.
pub(super) fn diff<'a>(
    draft: &NewJobForm,
    planned: &Planned,
    paint: Paint,
    columns: usize,
    rows: usize,
) -> Part<'a> {
    if let Err(error) = &planned.rows {
        return cannot(error, paint, columns);
    }
    let lines = draft.diff(planned);
    let space = columns.saturating_sub(RULE + 3);
    let draw = |line: &compare::Line| {
        let (sign, text, meaning) = match *line {
            compare::Line::Same(text) => {
                return Line::from(format!("   {}", fit(text, columns.saturating_sub(3))));
            }
            compare::Line::Skipped(count) => {
                return Line::from(paint.span(format!("   ··· {count} lines are the same"), Meaning::Muted));
            }
            compare::Line::Repeated(count) => {
                let text = format!("   ··· {count} more times the same");
                return Line::from(paint.span(text, Meaning::Muted));
            }
            compare::Line::Removed(text, _) => ("-", text.to_owned(), Meaning::Removed),
            compare::Line::Added(text, _) => ("+", text.to_owned(), Meaning::Added),
            compare::Line::Off(at) => {
                let text = planned.all.get(at).map(change_text).unwrap_or_default();
                ("o", format!("off: {text}"), Meaning::Muted)
            }
        };
        let here = draft.marks(line.change());
        let shown = Line::from(vec![
            Span::raw(if here { ">" } else { " " }),
            paint.span(format!("{sign} {}", cell(&text, space)), meaning),
            paint.span(format!(" {}", rule(planned, line.change(), RULE - 1)), Meaning::Muted),
        ]);
        if here { paint.under_cursor(&shown, columns) } else { shown }
    };
    let seen = window(draft, lines.len(), rows);
    (lines.get(seen.clone()).unwrap_or_default().iter().map(draw).collect(), seen, lines.len())
}

/// Draws the document without the changes on the left, as it is sent on the right.
pub(super) fn beside<'a>(
    draft: &NewJobForm,
    planned: &Planned,
    paint: Paint,
    columns: usize,
    rows: usize,
) -> Part<'a> {
    let all = match &planned.rows {
        Ok(all) => all,
        Err(error) => return cannot(error, paint, columns),
    };
    let rule_width = if columns >= 100 { RULE } else { 0 };
    let half = columns.saturating_sub(4 + rule_width) / 2;
    let draw = |row: &Row| {
        let (before, after, sign) = match row {
            Row::Same(text) => (Some(text), Some(text), ' '),
            Row::Other { before: None, after, .. } => (None, after.as_ref(), '+'),
            Row::Other { before, after: None, .. } => (before.as_ref(), None, '-'),
            Row::Other { before, after, .. } => (before.as_ref(), after.as_ref(), '~'),
        };
        let same = sign == ' ';
        let look = |meaning| paint.style(if same { Meaning::Muted } else { meaning });
        let text = |side: Option<&String>| cell(side.map_or("", String::as_str), half);
        let here = draft.marks(row.change());
        let line = Line::from(vec![
            Span::raw(if here { ">" } else { " " }),
            Span::styled(text(before), look(Meaning::Removed)),
            Span::raw(format!(" {sign} ")),
            Span::styled(text(after), look(Meaning::Added)),
            paint.span(rule(planned, row.change(), rule_width), Meaning::Muted),
        ]);
        if here { paint.under_cursor(&line, columns) } else { line }
    };
    let seen = window(draft, all.len(), rows);
    (all.get(seen.clone()).unwrap_or_default().iter().map(draw).collect(), seen, all.len())
}

/// Returns the visible lines: from the scroll position, else around the change under the cursor.
fn window(draft: &NewJobForm, count: usize, rows: usize) -> std::ops::Range<usize> {
    let last = count.saturating_sub(rows);
    let first = draft.scroll.unwrap_or_else(|| draft.line().saturating_sub(rows / 3)).min(last);
    first..(first + rows).min(count)
}

fn rule(planned: &Planned, change: Option<usize>, columns: usize) -> String {
    let rule = change.and_then(|at| planned.all.get(at)).map_or("", |op| op.rule.as_str());
    fit(rule, columns).into_owned()
}

fn cannot<'a>(error: &str, paint: Paint, columns: usize) -> Part<'a> {
    let text = format!(" ! {}", fit(error, columns.saturating_sub(3)));
    (vec![Line::from(paint.span(text, Meaning::Bad))], 0..1, 1)
}
