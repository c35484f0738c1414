//! Help, palette, prompts and questions: they take the keys before the screen does.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;
use weftrun::core::log::Pattern;

use super::{draft, logs, perform};
use crate::action::{KeyScope, Row};
use crate::model::layer::{Layer, Prompt, Question, picked};
use crate::model::logs::Find;
use crate::model::{Model, Screen};
use crate::msg::Effect;

/// Passes a key to the topmost layer; returns none if there is no layer.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    let layer = model.layers.last_mut()?;
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && matches!(key.code, KeyCode::Char('c' | 'z' | 'l')) {
        // Quitting, sleeping and redrawing work everywhere.
        return model.keymap.lookup(key, &[KeyScope::Everywhere]).map(|action| perform(model, action));
    }
    if key.code == KeyCode::Esc {
        let filters = matches!(layer, Layer::Prompt { prompt: Prompt::LogFilter | Prompt::Ranks, .. });
        model.layers.pop();
        // What was typed was applied already.
        return Some(if filters { logs::refilter(model) } else { Vec::new() });
    }
    Some(match layer {
        Layer::Help { .. } => help(model, key),
        Layer::Palette { .. } => palette(model, key),
        Layer::Pick { .. } => pick(model, key),
        Layer::Prompt { .. } => prompt(model, key),
        Layer::Confirm(question) => {
            let question = question.clone();
            confirm(model, key, question)
        }
        Layer::Text { .. } => text(model, key),
        Layer::Verify => match key.code {
            KeyCode::Char('x') => vec![Effect::StopVerify],
            KeyCode::Char('V') => {
                model.layers.pop();
                super::verify::again(model);
                Vec::new()
            }
            KeyCode::Char('q') | KeyCode::Enter => {
                model.layers.pop();
                Vec::new()
            }
            _ => Vec::new(),
        },
    })
}

/// Scrolls a text on top, or the help; returns whether the key does that.
fn scroll(model: &mut Model, key: KeyCode) -> bool {
    let by: isize = match key {
        KeyCode::Down => 1,
        KeyCode::Up => -1,
        KeyCode::PageDown => 10,
        KeyCode::PageUp => -10,
        KeyCode::Home => isize::MIN / 2,
        KeyCode::End => isize::MAX / 2,
        _ => return false,
    };
    let last = crate::view::layers::last_line(model);
    if let Some(Layer::Text { scroll, .. } | Layer::Help { scroll, .. }) = model.layers.last_mut() {
        *scroll = (*scroll).min(last).saturating_add_signed(by).min(last);
    }
    true
}

fn text(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let code = match key.code {
        KeyCode::Char('j') => KeyCode::Down,
        KeyCode::Char('k') => KeyCode::Up,
        KeyCode::Char(' ') => KeyCode::PageDown,
        KeyCode::Char('g') => KeyCode::Home,
        KeyCode::Char('G') => KeyCode::End,
        code => code,
    };
    if scroll(model, code) {
        return Vec::new();
    }
    match (code, model.layers.last()) {
        (KeyCode::Char('q') | KeyCode::Enter, _) => {
            model.layers.pop();
        }
        (KeyCode::Char('y'), Some(Layer::Text { lines, .. })) => {
            let text = lines.join("\n");
            return super::screens::copy(model, text);
        }
        _ => {}
    }
    Vec::new()
}

/// Passes a pasted letter to the topmost layer, if it accepts text.
pub(super) fn paste(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    matches!(
        model.layers.last(),
        Some(Layer::Help { .. } | Layer::Palette { .. } | Layer::Pick { .. } | Layer::Prompt { .. })
    )
    .then(|| press(model, key))
    .flatten()
}

fn type_into(input: &mut Input, key: KeyEvent) {
    input.handle_event(&Event::Key(key));
}

fn help(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    if scroll(model, key.code) {
        return Vec::new();
    }
    let Some(Layer::Help { filter, scroll, signs }) = model.layers.last_mut() else { return Vec::new() };
    match key.code {
        KeyCode::Char('?') => (*signs, *scroll) = (!*signs, 0),
        KeyCode::Enter => {
            model.layers.pop();
        }
        KeyCode::Char('q') if filter.value().is_empty() => {
            model.layers.pop();
        }
        _ => {
            type_into(filter, key);
            *scroll = 0;
        }
    }
    Vec::new()
}

/// Returns the rows of the palette that match the typed text, the best first: those whose name begins with
/// it, then those that contain its letters in order.
pub(crate) fn palette_rows(model: &Model, typed: &str) -> Vec<(Row, String)> {
    let typed = typed.trim().to_lowercase();
    let word = typed.split_whitespace().next().unwrap_or("");
    let mut rows: Vec<(u8, Row, String)> = Vec::new();
    for place in model.screen.places() {
        for (row, keys) in model.keymap.rows(*place) {
            let rank = rank(&row, word);
            let known = rows
                .iter()
                .any(|(_, other, _)| other.action == row.action && other.place != KeyScope::Moving);
            if let (Some(rank), false) = (rank, known) {
                rows.push((rank, row, keys));
            }
        }
    }
    rows.sort_by_key(|(rank, ..)| *rank);
    rows.into_iter().map(|(_, row, keys)| (row, keys)).collect()
}

fn rank(row: &Row, word: &str) -> Option<u8> {
    if row.name.starts_with(word) {
        return Some(0);
    }
    if row.name.contains(word) || row.help.to_lowercase().contains(word) {
        return Some(1);
    }
    let mut letters = row.name.chars();
    word.chars().all(|c| letters.any(|l| l == c)).then_some(2)
}

fn palette(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(Layer::Palette { input, selected }) = model.layers.last_mut() else { return Vec::new() };
    if !is_chosen(input, selected, key) {
        return Vec::new();
    }
    let (typed, selected) = (input.value().to_owned(), *selected);
    model.layers.pop();
    run(model, &typed, selected)
}

/// Passes a key to a list with a filter; returns whether it chooses what is under the cursor.
fn is_chosen(input: &mut Input, selected: &mut usize, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Down | KeyCode::Tab => *selected += 1,
        KeyCode::Up | KeyCode::BackTab => *selected = selected.saturating_sub(1),
        KeyCode::Enter => return true,
        _ => {
            type_into(input, key);
            *selected = 0;
        }
    }
    false
}

fn pick(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(Layer::Pick { field, values, input, selected }) = model.layers.last_mut() else {
        return Vec::new();
    };
    if !is_chosen(input, selected, key) {
        return Vec::new();
    }
    let found = picked(values, input.value());
    let at = (*selected).min(found.len().saturating_sub(1));
    // A name that is in no list is refused.
    let Some((value, _)) = found.get(at).map(|value| (*value).clone()) else { return Vec::new() };
    let field = *field;
    model.layers.pop();
    draft::take_value(model, field, &value)
}

/// Runs the row under the cursor; a word after the name is its argument (`submit job.toml`, `filter
/// level:warn`).
fn run(model: &mut Model, typed: &str, selected: usize) -> Vec<Effect> {
    let rows = palette_rows(model, typed);
    let argument = typed.trim().split_once(char::is_whitespace).map(|(_, rest)| rest.trim().to_owned());
    if let Some(argument) = argument {
        let name = typed.split_whitespace().next().unwrap_or("");
        let prompt = match name {
            "submit" | "file" | "new" | "new-job" => Some(Prompt::JobFile),
            "filter" => Some(Prompt::LogFilter),
            "filter-jobs" => Some(Prompt::JobFilter),
            "find" => Some(Prompt::Find),
            "ranks" => Some(Prompt::Ranks),
            "go-to" => Some(Prompt::GoTo),
            "open-logs" | "open-log-files" => Some(Prompt::LogFiles),
            "export" => Some(Prompt::ExportLog),
            "save-job" => Some(Prompt::SaveJob),
            _ => None,
        };
        if let Some(prompt) = prompt {
            return match answer(model, prompt, &argument) {
                Ok(effects) => effects,
                Err(error) => {
                    model.fail(error);
                    Vec::new()
                }
            };
        }
    }
    let chosen = rows.get(selected.min(rows.len().saturating_sub(1))).map(|(row, _)| row.action);
    let Some(action) = chosen else {
        model.fail(format!("there is no action `{typed}`"));
        return Vec::new();
    };
    perform(model, action)
}

fn prompt(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(Layer::Prompt { prompt, input, error }) = model.layers.last_mut() else { return Vec::new() };
    if key.code != KeyCode::Enter {
        type_into(input, key);
        *error = None;
        // Lists narrow while one types.
        match prompt {
            Prompt::JobFilter => model.jobs.filter = input.value().to_owned(),
            Prompt::LogFilter | Prompt::Ranks => {
                let (prompt, text) = (*prompt, input.value().trim().to_owned());
                return logs::take_filter(model, prompt, &text, false).unwrap_or_else(|wrong| {
                    if let Some(Layer::Prompt { error, .. }) = model.layers.last_mut() {
                        *error = Some(wrong);
                    }
                    Vec::new()
                });
            }
            _ => {}
        }
        return Vec::new();
    }
    let (prompt, text) = (*prompt, input.value().to_owned());
    let layer = model.layers.pop();
    match answer(model, prompt, &text) {
        Ok(effects) => effects,
        Err(wrong) => {
            if let Some(Layer::Prompt { prompt, input, .. }) = layer {
                model.layers.push(Layer::Prompt { prompt, input, error: Some(wrong) });
            }
            Vec::new()
        }
    }
}

/// Executes the action of a prompt.
fn answer(model: &mut Model, prompt: Prompt, text: &str) -> Result<Vec<Effect>, String> {
    match prompt {
        Prompt::JobFilter => model.jobs.filter = text.to_owned(),
        Prompt::LogFiles if text.trim().is_empty() => return Err("enter a file or a folder".to_owned()),
        Prompt::LogFiles => return Ok(vec![Effect::OpenLogs(text.trim().into())]),
        Prompt::JobFile => return Ok(vec![Effect::ReadJob(text.into())]),
        Prompt::ExportPairs => {
            model.saving = Some(prompt);
            let pairs = model.open.as_ref().map(crate::view::pair::table).unwrap_or_default();
            return Ok(vec![Effect::Save(text.into(), pairs)]);
        }
        Prompt::ExportLog => {
            model.saving = Some(prompt);
            return Ok(logs::export(model, text));
        }
        Prompt::SaveJob => {
            model.saving = Some(prompt);
            return draft::save(model, text);
        }
        Prompt::Find => {
            let pattern = match text.strip_prefix('/').and_then(|t| t.strip_suffix('/')) {
                Some(regex) => Pattern::regex(regex),
                None => Pattern::literal(text),
            };
            let pattern = pattern.map_err(|error| error.to_string())?;
            if let Some(open) = &mut model.open {
                open.logs.find = (!text.is_empty()).then(|| Find::new(text.to_owned(), pattern));
                if text.is_empty() {
                    return Ok(Vec::new());
                }
            }
            model.screen = Screen::Logs;
            logs::find(model, false);
            return Ok(logs::count(model));
        }
        Prompt::GoTo => return logs::go_to(model, text).map(|()| Vec::new()),
        Prompt::LogFilter | Prompt::Ranks => return logs::take_filter(model, prompt, text.trim(), true),
    }
    Ok(Vec::new())
}

fn confirm(model: &mut Model, key: KeyEvent, question: Question) -> Vec<Effect> {
    match key.code {
        KeyCode::Char('y' | 'Y') => {}
        KeyCode::Char('n' | 'N' | 'q') => {
            model.layers.pop();
            return Vec::new();
        }
        _ => return Vec::new(),
    }
    model.layers.pop();
    match question {
        Question::Act(handle, action) => {
            model.say(format!("{} {} …", super::screens::verb(action), handle.name()));
            vec![Effect::Act(handle, action)]
        }
        Question::Submit(revision) => draft::send(model, revision),
        Question::Verify(handle) => super::verify::start(model, handle),
        Question::Blank => draft::blank(model),
    }
}
