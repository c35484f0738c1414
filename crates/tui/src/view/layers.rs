//! What lies on top: help, palette, questions, texts.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use tui_input::Input;
use weftrun::core::job::{JobHandle, JobPhase};
use weftrun::core::log::clean_text;

use super::mouse_targets::Bar;
use super::paint::{Paint, cell, fit, wrap};
use crate::action::{KeyScope, Row};
use crate::model::Model;
use crate::model::draft::{Field, NewJobForm};
use crate::model::layer::{Layer, Question, picked};
use crate::model::transport_view::{Path, Step};
use crate::theme::Meaning;
use crate::update::layers_verb;

/// Most jobs that a question names.
const MOST_NAMED: usize = 10;

/// Returns the size of the help and of texts, on a screen's body of this size.
fn popup_size(columns: u16, rows: u16) -> (u16, u16) {
    (columns.saturating_sub(4).min(130), rows.saturating_sub(1))
}

/// Returns how far the topmost layer can be scrolled on a terminal of this size.
pub(crate) fn last_line(model: &Model) -> usize {
    let (columns, rows) = (model.size.0, model.size.1.saturating_sub(2));
    let (columns, rows) = popup_size(columns, rows);
    let (columns, rows) = (columns.saturating_sub(2), usize::from(rows.saturating_sub(2)));
    match model.layers.last() {
        Some(Layer::Text { lines, .. }) => wrapped(lines, columns).len().saturating_sub(rows),
        Some(Layer::Help { filter, signs, .. }) => {
            let (lines, beside) = help(model, Paint::new(model.theme), filter.value(), *signs, columns);
            lines.len().saturating_sub(rows * beside)
        }
        _ => 0,
    }
}

fn wrapped(lines: &[String], columns: u16) -> Vec<String> {
    lines.iter().flat_map(|line| wrap(line, usize::from(columns))).collect()
}

/// Returns the lines of the help or of the signs, and the number of columns that they are arranged in.
fn help<'a>(model: &Model, paint: Paint, filter: &str, signs: bool, columns: u16) -> (Vec<Line<'a>>, usize) {
    if signs {
        return (signs_lines(usize::from(columns)), 1);
    }
    let beside = if columns >= 100 { 2 } else { 1 };
    (help_lines(model, paint, filter, usize::from(columns) / beside), beside)
}

pub(super) fn draw(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let size = popup_size(area.width, area.height);
    match model.layers.last() {
        Some(Layer::Help { filter, scroll, signs }) => {
            let title = if *signs {
                "Signs ─ ? keys ─ esc closes"
            } else {
                "Help ─ type to filter ─ ? signs ─ esc closes"
            };
            let inside = paint.popup(frame, area, size, title);
            let (lines, beside) = help(model, paint, filter.value(), *signs, inside.width);
            let columns = u16::try_from(beside).unwrap_or(1);
            let each = inside.width / columns;
            let rows = usize::from(inside.height);
            let all = lines.len();
            let first = (*scroll).min(all.saturating_sub(rows * beside));
            let mut rest = lines.into_iter().skip(first);
            for column in 0..columns {
                let text: Vec<Line> = rest.by_ref().take(rows).collect();
                let place = Rect { x: inside.x + column * each, width: each, ..inside };
                frame.render_widget(Paragraph::new(text), place);
            }
            more(frame, paint, inside, rest.next().is_some());
            paint.scroll_bar(frame, around(inside), Bar::Layer, first..(first + rows * beside).min(all), all);
        }
        Some(Layer::Palette { input, selected }) => palette(model, frame, paint, area, input, *selected),
        Some(Layer::Pick { field, values, input, selected }) => {
            let found = picked(values, input.value());
            let title = format!(
                "{} ─ {} of {} ─ type to filter ─ enter takes",
                field.label(),
                found.len(),
                values.len()
            );
            pick(frame, paint, area, &title, &found, input, *selected);
        }
        Some(Layer::Confirm(question)) => confirm(model, frame, paint, area, question),
        Some(Layer::Text { title, lines, scroll }) => {
            let inside = paint.popup(frame, area, size, format!("{title} ─ y copies ─ esc closes"));
            let lines = wrapped(lines, inside.width);
            let rows = usize::from(inside.height);
            let first = (*scroll).min(lines.len().saturating_sub(rows));
            more(frame, paint, inside, first + rows < lines.len());
            let seen = first..(first + rows).min(lines.len());
            paint.scroll_bar(frame, around(inside), Bar::Layer, seen, lines.len());
            let shown: Vec<Line> = lines.into_iter().skip(first).take(rows).map(Line::from).collect();
            frame.render_widget(Paragraph::new(shown), inside);
        }
        Some(Layer::Verify) => {
            if let Some(verifying) = &model.verifying {
                super::verify::draw(verifying, frame, paint, area);
            }
        }
        Some(Layer::Prompt { .. }) | None => {}
    }
}

fn around(inside: Rect) -> Rect {
    let (x, y) = (inside.x.saturating_sub(1), inside.y.saturating_sub(1));
    Rect { x, y, width: inside.width.saturating_add(2), height: inside.height.saturating_add(1) }
}

/// Says on the lower border that there is more.
fn more(frame: &mut Frame, paint: Paint, inside: Rect, there_is: bool) {
    if there_is {
        let place = Rect { x: inside.right().saturating_sub(12), y: inside.bottom(), width: 11, height: 1 };
        frame.render_widget(Line::from(paint.span(" more: pgdn", Meaning::Key)), place);
    }
}

fn help_lines<'a>(model: &Model, paint: Paint, filter: &str, columns: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    let needle = filter.to_lowercase();
    // Those of the screen first.
    let here = model.screen.places();
    let mut places = KeyScope::TITLES;
    places.sort_by_key(|(place, _)| here.iter().position(|known| known == place).unwrap_or(here.len()));
    if !filter.is_empty() {
        lines.push(Line::from(format!(" with `{filter}`")));
    }
    let own: Vec<_> = model.own_actions.iter().filter(|own| own.name.contains(&needle)).collect();
    if !own.is_empty() {
        lines.push(Line::from(paint.span(" Your own", Meaning::Title)));
    }
    for own in own {
        let text = clean_text(&format!("{}: {}", own.name, own.command)).into_owned();
        lines.push(Line::from(vec![
            paint.span(format!("  {} ", cell(&own.key, 15)), Meaning::Key),
            Span::raw(fit(&text, columns.saturating_sub(20)).into_owned()),
        ]));
    }
    for (place, title) in places {
        let rows: Vec<_> = model
            .keymap
            .rows(place)
            .filter(|(row, keys)| {
                row.help.to_lowercase().contains(&needle) || row.name.contains(&needle) || keys == &needle
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        lines.push(Line::from(paint.span(format!(" {title}"), Meaning::Title)));
        for (row, keys) in rows {
            for (at, part) in wrap(row.help, columns.saturating_sub(20)).into_iter().enumerate() {
                let keys = if at == 0 { &*keys } else { "" };
                lines.push(Line::from(vec![
                    paint.span(format!("  {} ", cell(keys, 15)), Meaning::Key),
                    Span::raw(part),
                ]));
            }
        }
    }
    if needle.is_empty() {
        lines.push(Line::from(paint.span(" Filter of the logs (&)", Meaning::Title)));
        for text in [
            "rank:32-39  rank:!0  node:ip-1-16  role:worker",
            "level:>=warn  since:5m  until:12:04",
            "word  !word  /regular expression/  !/…/",
        ] {
            lines.push(Line::from(format!("   {text}")));
        }
        lines.push(Line::from(paint.span(" Actions with a word behind them (:)", Meaning::Title)));
        for text in [
            ":logs 3  :ranks 0-7  :filter err  :find TEXT  :level warn",
            ":open NAME  :fabric NAME  :jobs TEXT  :sort NAME  :theme dark",
            ":submit FILE  :export FILE  :save-job FILE",
        ] {
            lines.push(Line::from(format!("   {text}")));
        }
    }
    lines
}

fn signs_lines<'a>(columns: usize) -> Vec<Line<'a>> {
    let mut lines = vec![Line::from(" Matrix: how two nodes or ranks are connected")];
    let known = Path::known().map(|path| format!("   {}  {}", path.sign(), path.name()));
    lines.extend(known.map(Line::from));
    for text in [
        "   .  no channel: rings and trees connect neighbours only",
        "   ?  not known: a channel may exist, or its transport is unknown",
        "   *  more than one transport",
        "   !  wrong: not what was asked for, or a finding is about it",
    ] {
        lines.push(Line::from(text));
    }
    lines.push(Line::from(" Ranks: how many have come so far"));
    for text in ["   ▄  all", "   ▂  some", "   ▁  none", "   !  one failed"] {
        lines.push(Line::from(text));
    }
    let steps: Vec<&str> = Step::LIFE.iter().map(|step| step.word()).collect();
    let steps = format!(" Steps: {}; `not seen`: nothing has come of the rank", steps.join(", "));
    let logs =
        " Logs: E error  W warning  I info  D debug  * bookmark  ~~~~ something is missing  < > cut here";
    let states: Vec<String> =
        JobPhase::ALL.iter().map(|phase| format!("{} {phase}", Paint::phase(*phase).1)).collect();
    let states = format!(
        " Jobs: {}; `!` after a state: the cluster or the logs report an error; ▲ ▼: sorted by this column, the other way round",
        states.join(", ")
    );
    for text in [states.as_str(), &steps, logs] {
        lines.extend(wrap(text, columns).into_iter().map(Line::from));
    }
    lines
}

fn palette(model: &Model, frame: &mut Frame, paint: Paint, area: Rect, input: &Input, selected: usize) {
    let size = (area.width.saturating_sub(8).min(76), area.height.saturating_sub(2).min(20));
    let inside = paint.popup(frame, area, size, "Actions ─ enter runs ─ esc closes");
    let (name, key) = if inside.width >= 66 { (20, 16) } else { (16, 8) };
    let rows = crate::update::palette_rows(model, input.value());
    let row = |(row, keys): &(Row, String)| {
        let text = fit(row.help, usize::from(inside.width).saturating_sub(name + key + 4)).into_owned();
        let name = Span::raw(format!("{} ", cell(row.name, name - 1)));
        vec![name, paint.span(format!("{} ", cell(keys, key - 1)), Meaning::Key), Span::raw(text)]
    };
    list(frame, paint, inside, " : ", input, selected, &rows.iter().map(row).collect::<Vec<_>>());
}

/// Draws values to pick from, below what was typed.
fn pick(
    frame: &mut Frame,
    paint: Paint,
    area: Rect,
    title: &str,
    found: &[&(String, String)],
    input: &Input,
    selected: usize,
) {
    let size = (area.width.saturating_sub(8).min(76), area.height.saturating_sub(2).min(24));
    let inside = paint.popup(frame, area, size, title);
    let name = found.iter().map(|(value, _)| value.chars().count()).max().unwrap_or(0).clamp(8, 32);
    let row = |(value, about): &&(String, String)| {
        let about = fit(about, usize::from(inside.width).saturating_sub(name + 5)).into_owned();
        vec![Span::raw(format!("{} ", cell(value, name))), paint.span(about, Meaning::Muted)]
    };
    list(frame, paint, inside, " > ", input, selected, &found.iter().map(row).collect::<Vec<_>>());
    if found.is_empty() {
        let text = paint.span("   none with this text", Meaning::Warn);
        let below = Rect { y: inside.y + 1, height: 1, ..inside };
        frame.render_widget(Line::from(text), below.intersection(inside));
    }
}

/// Draws what was typed, and below it the part of the rows that is around the cursor.
fn list(
    frame: &mut Frame,
    paint: Paint,
    inside: Rect,
    prompt: &'static str,
    input: &Input,
    selected: usize,
    rows: &[Vec<Span>],
) {
    let selected = selected.min(rows.len().saturating_sub(1));
    let space = usize::from(inside.height).saturating_sub(1);
    let first = selected.saturating_sub(space.saturating_sub(1));
    let typed = Span::raw(input.value().to_owned());
    let mut lines = vec![Line::from(vec![paint.span(prompt, Meaning::Key), typed])];
    for (at, row) in rows.iter().enumerate().skip(first).take(space) {
        let here = at == selected;
        let mark = Span::raw(if here { " > " } else { "   " });
        let line: Line = std::iter::once(mark).chain(row.iter().cloned()).collect();
        lines.push(if here { paint.under_cursor(&line, usize::from(inside.width)) } else { line });
    }
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, around(inside), Bar::Layer, first..(first + space).min(rows.len()), rows.len());
    let column = u16::try_from(3 + input.visual_cursor()).unwrap_or(0).min(inside.width);
    frame.set_cursor_position((inside.x + column, inside.y));
}

/// Describes the cluster's verdict on the draft.
fn checked(draft: &crate::model::draft::NewJobForm) -> String {
    match &draft.checked {
        Some((revision, Ok(findings))) if *revision == draft.revision => match findings.first() {
            Some(finding) => format!("{}: {}", Paint::severity(finding.severity).1, finding.message),
            None => format!("ok, {} would take it", draft.target_name()),
        },
        Some((revision, Err(error))) if *revision == draft.revision => format!("failed: {error}"),
        _ => format!("checking with {} …", draft.target_name()),
    }
}

/// Returns the command that a draft is equal to, or its mistake.
fn same_as(draft: &NewJobForm) -> String {
    draft
        .command()
        .map_or_else(|mistake| format!("mistake {mistake}"), |command| format!("same as {command}"))
}

fn confirm(model: &Model, frame: &mut Frame, paint: Paint, area: Rect, question: &Question) {
    let mut lines = Vec::new();
    let title = match question {
        Question::Act { jobs, action, left_out } if jobs.len() != 1 => {
            let name = |handle: &JobHandle| format!("  {handle}");
            lines.extend(jobs.iter().take(MOST_NAMED).map(name));
            if jobs.len() > MOST_NAMED {
                lines.push(format!("  and {} more", jobs.len() - MOST_NAMED));
            }
            if !left_out.is_empty() {
                lines.push(format!("not these {}: {}", left_out.len(), left_out.join("; ")));
            }
            format!("{} {} jobs?", layers_verb(*action), jobs.len())
        }
        Question::Act { jobs, action, left_out } => {
            let Some(handle) = jobs.first() else { return };
            let job = model.jobs.get(handle);
            lines.push(format!("name    {}", job.map_or(handle.name(), |job| &job.summary.name)));
            lines.push(format!("handle  {handle}"));
            if let Some(job) = job {
                lines.push(format!(
                    "state   {}, {} of {} nodes",
                    job.summary.phase, job.summary.ready.0, job.summary.ready.1
                ));
            }
            lines.extend(left_out.iter().map(|why| format!("not     {why}")));
            format!("{} this job?", layers_verb(*action))
        }
        Question::Submit(_) => {
            if let Some(draft) = &model.draft {
                lines.push(format!("target  {}", draft.target_name()));
                lines.push(same_as(draft));
                lines.push(format!("check   {}", checked(draft)));
            }
            "submit this job?".to_owned()
        }
        Question::Verify(handle) => {
            lines.push(format!("like    {handle}"));
            lines.push(
                "a separate job measures an all-reduce on the same number of nodes and searches for slow nodes"
                    .to_owned(),
            );
            "submit a benchmark?".to_owned()
        }
        Question::Blank => {
            if let Some(draft) = &model.draft {
                lines.push(format!("draft   {}", draft.text(Field::Name)));
                lines.push(same_as(draft));
            }
            "discard this draft for a blank job?".to_owned()
        }
    };
    let wide = area.width.saturating_sub(4).min(90);
    let columns = usize::from(wide).saturating_sub(4);
    let most = usize::from(area.height).saturating_sub(5);
    let mut text: Vec<Line> = lines
        .iter()
        .flat_map(|line| wrap(&clean_text(line), columns))
        .take(most)
        .map(|l| Line::from(format!(" {l}")))
        .collect();
    let high = u16::try_from(text.len() + 4).unwrap_or(area.height).min(area.height);
    let inside = paint.popup(frame, area, (wide, high), title);
    text.push(Line::from(""));
    text.push(Line::from(vec![
        paint.span(" y", Meaning::Key),
        Span::raw(" yes   "),
        paint.span("n", Meaning::Key),
        Span::raw(" no"),
    ]));
    frame.render_widget(Paragraph::new(text), inside);
}
