//! The bottom line: the last notice, else the keys of the screen, cut at whole items.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::paint::{Paint, fit, fit_ends, width, wrap};
use crate::action::{Action, KeyScope};
use crate::model::layer::Layer;
use crate::model::open::Open;
use crate::model::{Model, NoticeKind, Screen};
use crate::theme::Meaning;

const MOST: usize = 9;
/// Most lines of a notice.
const MOST_LINES: usize = 4;

pub(super) fn draw(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let columns = usize::from(area.width);
    if let Some(Layer::Prompt { prompt, input, error }) = model.layers.last() {
        let label = format!(" {}: ", prompt.label());
        let used = width(&label);
        let space = columns.saturating_sub(used + 1);
        let scroll = input.visual_scroll(space);
        let shown: String = input.value().chars().skip(scroll).collect();
        let mut spans = vec![paint.span(label, Meaning::Key), Span::raw(fit(&shown, space).into_owned())];
        if let Some(error) = error {
            let space = space.saturating_sub(width(&shown) + 2);
            spans.push(paint.span(format!("  {}", fit_ends(error, space)), Meaning::Bad));
        }
        frame.render_widget(Line::from(spans), area);
        let column = used + input.visual_cursor().saturating_sub(scroll);
        frame.set_cursor_position((area.x + u16::try_from(column.min(columns)).unwrap_or(0), area.y));
        return;
    }
    if let Some(notice) = model.said() {
        let is_error = notice.kind == NoticeKind::Error;
        let (sign, meaning) = if is_error { (" !", Meaning::Bad) } else { (" ", Meaning::Busy) };
        // What does not fit into the line lies over the lines above: the reason stands at the end.
        let mut parts = wrap(&notice.text, columns.saturating_sub(4));
        let rest = parts.split_off(parts.len().min(MOST_LINES));
        if let (Some(last), false) = (parts.last_mut(), rest.is_empty()) {
            *last = fit_ends(&format!("{last}{}", rest.concat()), columns.saturating_sub(4)).into_owned();
        }
        let rows = u16::try_from(parts.len()).unwrap_or(1).min(area.bottom());
        let place = Rect { y: area.bottom() - rows, height: rows, ..area };
        let line = |(at, part): (usize, String)| {
            let sign = if at == 0 { sign } else { " " };
            Line::from(paint.span(format!("{sign:<3}{part}"), meaning))
        };
        frame.render_widget(Clear, place);
        let lines: Vec<Line> = parts.into_iter().enumerate().map(line).collect();
        frame.render_widget(Paragraph::new(lines), place);
        return;
    }
    frame.render_widget(keys(model, paint, columns), area);
}

fn keys(model: &Model, paint: Paint, columns: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    // A field that is typed into takes every letter: the keys shown are those that still do something.
    let typed = model.screen == Screen::Submit && model.draft.as_ref().is_some_and(|d| d.field.is_text());
    let pressed =
        |keys: &str| keys.split(' ').find(|key| key.chars().count() > usize::from(typed)).map(str::to_owned);
    let help =
        model.keymap.rows(KeyScope::Everywhere).into_iter().find(|(row, _)| row.action == Action::Help);
    let help = help.and_then(|(_, keys)| pressed(&keys)).unwrap_or_default();
    let space = columns.saturating_sub(width(&help) + width(" help") + 1);
    let mut seen = Vec::new();
    let rows = model.screen.places().iter().flat_map(|place| model.keymap.rows(*place));
    for (row, keys) in rows {
        let Some(word) = row.footer else { continue };
        let Some(key) = pressed(&keys) else { continue };
        if row.name == "help" || seen.contains(&row.action) || !leads_somewhere(model, row.action) {
            continue;
        }
        let needs = width(&key) + width(word) + 3;
        if seen.len() == MOST || used + needs > space {
            break;
        }
        seen.push(row.action);
        used += needs;
        spans.push(paint.span(key, Meaning::Key));
        spans.push(Span::raw(format!(" {word}  ")));
    }
    spans.push(paint.span(help, Meaning::Key));
    spans.push(Span::raw(" help"));
    Line::from(spans)
}

/// Returns whether there is nothing to go back to.
fn is_at_root(model: &Model) -> bool {
    model.screen == Screen::Jobs && model.jobs.filter.is_empty() && model.jobs.marked.is_empty()
}

/// Returns whether an action has an effect here: it may need a job, or be already done.
fn leads_somewhere(model: &Model, action: Action) -> bool {
    let here = |screen| model.screen != screen && model.current().is_some();
    match action {
        Action::Overview => here(Screen::Overview),
        Action::Fabric => here(Screen::Fabric),
        Action::Logs => here(Screen::Logs),
        Action::Diagnosis => here(Screen::Diagnosis),
        Action::Bandwidth => here(Screen::Bandwidth),
        Action::Open if model.screen == Screen::Bandwidth => {
            model.open.as_ref().is_some_and(|open| open.measured().is_some())
        }
        Action::Evidence if model.screen == Screen::Bandwidth => {
            model.open.as_ref().and_then(Open::chosen_collective).is_some_and(|row| row.is_late())
        }
        // One of them has an effect that the other has not.
        Action::Back => !is_at_root(model),
        Action::Leave => is_at_root(model),
        Action::Demo => model.has_demo,
        Action::AddTarget => model.addable().is_some(),
        Action::OpenLogs => model.opens_logs,
        Action::Cancel => crate::update::can_cancel(model),
        Action::Fix => model.open.as_ref().is_some_and(|open| {
            open.findings()
                .get(open.finding)
                .is_some_and(|finding| crate::update::changes_job(model, finding))
        }),
        Action::Open | Action::Mark | Action::Filter => model.current().is_some(),
        Action::Communicator => model.open.as_ref().is_some_and(|open| open.transport_view.views() > 1),
        _ => true,
    }
}
