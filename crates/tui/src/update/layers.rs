//! Help, palette, prompts and questions: they take the keys before the screen does.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;
use weftrun::core::log::{Level, Pattern};

use super::{draft, logs, perform};
use crate::action::{KeyScope, Row};
use crate::model::layer::{Layer, Prompt, Question, picked};
use crate::model::logs::Find;
use crate::model::{Model, Screen};
use crate::msg::Effect;
use crate::theme::Theme;

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

/// Runs the row under the cursor; what stands behind the name is its argument (`logs 3`, `filter level:warn`).
fn run(model: &mut Model, typed: &str, selected: usize) -> Vec<Effect> {
    let rows = palette_rows(model, typed);
    let (word, argument) = typed.trim().split_once(char::is_whitespace).unwrap_or((typed.trim(), ""));
    let chosen = rows.get(selected.min(rows.len().saturating_sub(1))).map(|(row, _)| *row);
    let own = model.own_actions.iter().find(|own| own.name == word).cloned();
    if let Some(own) = own {
        return super::own_actions::run(model, &own);
    }
    let argument = argument.trim();
    if argument.is_empty() {
        let Some(row) = chosen else {
            model.fail(format!("there is no action `{typed}`"));
            return Vec::new();
        };
        return perform(model, row.action);
    }
    let exact = COMMANDS.iter().any(|(names, _)| names.contains(&word));
    let name = if exact { word } else { chosen.map_or(word, |row| row.name) };
    let done = run_with(model, name, argument);
    done.unwrap_or_else(|error| {
        model.fail(error);
        Vec::new()
    })
}

/// What an argument is for.
#[derive(Clone, Copy)]
enum Argument {
    Prompt(Prompt),
    /// A prompt on the logs of the current job.
    OfLog(Prompt),
    Level,
    /// A job, by its name or a part of it.
    Job(Screen),
    Sort,
    Theme,
}

/// The actions that take an argument, by their names.
const COMMANDS: [(&[&str], Argument); 17] = [
    (&["submit", "file", "new", "new-job"], Argument::Prompt(Prompt::JobFile)),
    (&["filter-jobs", "jobs"], Argument::Prompt(Prompt::JobFilter)),
    (&["open-logs", "open-log-files"], Argument::Prompt(Prompt::LogFiles)),
    (&["save-job"], Argument::Prompt(Prompt::SaveJob)),
    (&["export-map"], Argument::Prompt(Prompt::ExportPairs)),
    (&["filter"], Argument::OfLog(Prompt::LogFilter)),
    (&["find"], Argument::OfLog(Prompt::Find)),
    (&["ranks", "logs", "show-logs"], Argument::OfLog(Prompt::Ranks)),
    (&["go-to"], Argument::OfLog(Prompt::GoTo)),
    (&["export"], Argument::OfLog(Prompt::ExportLog)),
    (&["level"], Argument::Level),
    (&["overview", "open"], Argument::Job(Screen::Overview)),
    (&["fabric", "show-fabric"], Argument::Job(Screen::Fabric)),
    (&["diagnosis", "show-diagnosis"], Argument::Job(Screen::Diagnosis)),
    (&["bandwidth"], Argument::Job(Screen::Bandwidth)),
    (&["sort-jobs", "sort-ranks", "sort-collectives", "sort"], Argument::Sort),
    (&["theme"], Argument::Theme),
];

/// Runs an action with its argument.
fn run_with(model: &mut Model, name: &str, argument: &str) -> Result<Vec<Effect>, String> {
    let known = COMMANDS.iter().find(|(names, _)| names.contains(&name));
    let Some((_, what)) = known else {
        return Err(format!("`{name}` takes nothing behind it: `{argument}`"));
    };
    match *what {
        Argument::Prompt(prompt) => answer(model, prompt, argument),
        Argument::OfLog(prompt) => {
            let mut effects = super::screens::show(model, Screen::Logs);
            if model.screen == Screen::Logs {
                effects.extend(answer(model, prompt, argument)?);
            }
            Ok(effects)
        }
        Argument::Level => {
            let level = Level::parse(argument)
                .ok_or_else(|| format!("`{argument}` is no level: debug, info, warn or error"))?;
            let mut effects = super::screens::show(model, Screen::Logs);
            if let Some(pane) = model.pane() {
                pane.level = level;
            }
            effects.extend(logs::refilter(model));
            Ok(effects)
        }
        Argument::Job(screen) => {
            let shown = model.jobs.shown();
            let found = shown.iter().find(|entry| entry.summary.name == argument);
            let found = found.or_else(|| shown.iter().find(|entry| entry.summary.name.contains(argument)));
            let handle = found.map(|entry| entry.summary.handle.clone());
            let handle = handle.ok_or_else(|| format!("no listed job has `{argument}` in its name"))?;
            let effects = super::screens::open(model, &handle);
            (model.screen, model.came_from) = (screen, None);
            Ok(effects)
        }
        Argument::Sort => {
            super::sorting::by_name(model, name, argument)?;
            Ok(Vec::new())
        }
        Argument::Theme => {
            model.theme = Theme::parse(argument).ok_or_else(|| {
                let names: Vec<&str> = Theme::NAMES.iter().map(|(_, name)| *name).collect();
                format!("there is no theme `{argument}`: {}", names.join(", "))
            })?;
            Ok(Vec::new())
        }
    }
}

fn prompt(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(Layer::Prompt { prompt, input, error }) = model.layers.last_mut() else { return Vec::new() };
    if key.code == KeyCode::Tab && prompt.is_path() {
        return vec![Effect::Paths(input.value().to_owned())];
    }
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

/// Extends a path that is being typed by what all paths that begin with it have in common, and names them.
pub(super) fn complete(model: &mut Model, typed: &str, found: &[String]) {
    let Some(Layer::Prompt { prompt, input, error }) = model.layers.last_mut() else { return };
    if !prompt.is_path() || input.value() != typed {
        return;
    }
    let Some(first) = found.first() else {
        *error = Some("no path begins with this".to_owned());
        return;
    };
    let shared = found.iter().fold(first.as_str(), |shared, path| {
        let end = shared.char_indices().zip(path.chars()).find(|((_, a), b)| a != b);
        let end = end.map_or(shared.len().min(path.len()), |((at, _), _)| at);
        shared.get(..end).unwrap_or(shared)
    });
    if shared.len() > typed.len() {
        *input = Input::new(shared.to_owned());
    }
    let names = found.iter().filter_map(|path| path.trim_end_matches('/').rsplit('/').next());
    *error = (found.len() > 1).then(|| names.collect::<Vec<_>>().join("  "));
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
        Question::Act { jobs, action, .. } => super::screens::act(model, jobs, action),
        Question::Submit(revision) => draft::send(model, revision),
        Question::Verify(handle) => super::verify::start(model, handle),
        Question::Blank => draft::blank(model),
    }
}
