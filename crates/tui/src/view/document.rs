//! What is sent, compared with what would be sent without the fabric's changes; each changed line names its rule.

use ratatui::text::{Line, Span};
use similar::{ChangeTag, DiffOp, TextDiff};
use weftrun::core::backend::Rendered;
use weftrun::core::log::clean_line;
use weftrun::core::mutation::{Change, Op};

use super::paint::{Paint, cell, fit};
use crate::model::draft::{Draft, Planned};
use crate::theme::Meaning;

/// The document as a diff.
pub(super) fn diff<'a>(
    draft: &Draft,
    planned: &Planned,
    paint: Paint,
    columns: usize,
    rows: usize,
) -> Vec<Line<'a>> {
    let Some((before, after)) = both(planned) else { return vec![cannot(planned, paint, columns)] };
    let compared = TextDiff::from_lines(&before, &after);
    let mut lines = Vec::new();
    let mut rules = Rules::new(planned);
    for change in compared.iter_all_changes() {
        let (sign, meaning) = match change.tag() {
            ChangeTag::Equal => (' ', None),
            ChangeTag::Insert => ('+', Some(Meaning::Added)),
            ChangeTag::Delete => ('-', Some(Meaning::Removed)),
        };
        let body = safe(change.value());
        let Some(meaning) = meaning else {
            rules.equal();
            lines.push(Line::from(format!("  {}", fit(&body, columns.saturating_sub(2)))));
            continue;
        };
        let rule = rules.of(&body);
        let room = columns.saturating_sub(26);
        lines.push(Line::from(vec![
            paint.span(format!("{sign} {}", cell(&body, room)), meaning),
            paint.span(format!(" {}", fit(&rule, 22)), Meaning::Muted),
        ]));
    }
    window(lines, draft.scroll, rows)
}

/// The document without the changes on the left, as it is sent on the right.
pub(super) fn beside<'a>(
    draft: &Draft,
    planned: &Planned,
    paint: Paint,
    columns: usize,
    rows: usize,
) -> Vec<Line<'a>> {
    let Some((before, after)) = both(planned) else { return vec![cannot(planned, paint, columns)] };
    let compared = TextDiff::from_lines(&before, &after);
    let old: Vec<&str> = compared.iter_old_slices().collect();
    let new: Vec<&str> = compared.iter_new_slices().collect();
    let rule_width = if columns >= 100 { 22 } else { 0 };
    let half = columns.saturating_sub(3 + rule_width) / 2;
    let mut rules = Rules::new(planned);
    let mut lines = Vec::new();
    for op in compared.ops() {
        let (left, right) = (&old[op.old_range()], &new[op.new_range()]);
        let same = matches!(op, DiffOp::Equal { .. });
        for at in 0..left.len().max(right.len()) {
            let text = |side: &[&str]| side.get(at).map(|line| safe(line));
            let (left, right) = (text(left), text(right));
            let sign = match (&left, &right) {
                _ if same => ' ',
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            let rule = if same {
                rules.equal();
                String::new()
            } else {
                rules.of(right.as_deref().or(left.as_deref()).unwrap_or_default())
            };
            let look = |meaning| if same { paint.style(Meaning::Muted) } else { paint.style(meaning) };
            lines.push(Line::from(vec![
                Span::styled(cell(left.as_deref().unwrap_or(""), half), look(Meaning::Removed)),
                Span::raw(format!(" {sign} ")),
                Span::styled(cell(right.as_deref().unwrap_or(""), half), look(Meaning::Added)),
                paint.span(fit(&rule, rule_width).into_owned(), Meaning::Muted),
            ]));
        }
    }
    window(lines, draft.scroll, rows)
}

fn window(lines: Vec<Line<'_>>, scroll: usize, rows: usize) -> Vec<Line<'_>> {
    let last = lines.len().saturating_sub(rows);
    lines.into_iter().skip(scroll.min(last)).take(rows).collect()
}

fn safe(line: &str) -> String {
    clean_line(line.trim_end_matches('\n').as_bytes()).text
}

fn cannot<'a>(planned: &Planned, paint: Paint, columns: usize) -> Line<'a> {
    let error = planned.error.as_deref().unwrap_or("this target does not show what it sends");
    Line::from(paint.span(format!(" ! {}", fit(error, columns.saturating_sub(3))), Meaning::Bad))
}

/// The documents without and with the changes.
fn both(planned: &Planned) -> Option<(String, String)> {
    let text = |rendered: &Rendered| {
        let texts = rendered.documents.iter().map(|d| format!("# {}\n{}\n", d.title, d.text.trim_end()));
        texts.collect::<String>()
    };
    let after = text(planned.rendered.as_ref()?);
    let before = planned.bare.as_ref().map_or_else(|| after.clone(), text);
    // Each plan has an id of its own; that is no change of the fabric's.
    let ids = planned.bare.as_ref().zip(planned.rendered.as_ref());
    let before = ids.map_or(before.clone(), |(bare, sent)| {
        before.replace(bare.submission.as_str(), sent.submission.as_str())
    });
    Some((before, after))
}

/// Finds the rule behind each changed line: the one whose words it holds, else the one of the line before it.
struct Rules<'p> {
    words: Vec<(Vec<String>, &'p str)>,
    last: Option<String>,
}

impl<'p> Rules<'p> {
    fn new(planned: &'p Planned) -> Self {
        Self { words: planned.all.iter().map(|op| (words(op), op.rule.as_str())).collect(), last: None }
    }

    fn equal(&mut self) {
        self.last = None;
    }

    fn of(&mut self, line: &str) -> String {
        let holds = |(words, _): &&(Vec<String>, &str)| {
            words.iter().any(|word| !word.is_empty() && line.contains(word.as_str()))
        };
        let found = self.words.iter().find(holds).map(|(_, rule)| (*rule).to_owned());
        self.last = found.or_else(|| self.last.take());
        self.last.clone().unwrap_or_default()
    }
}

/// The words by which a change is found in a document.
fn words(op: &Op) -> Vec<String> {
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
