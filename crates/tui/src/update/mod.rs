//! The only place that changes the model: pure, no clock, no I/O. Effects outside are returned.

mod answers;
mod compare;
mod draft;
mod layers;
mod logs;
mod own_actions;
mod screens;
mod scroll;
mod sorting;
mod verify;

use crossterm::event::{KeyEvent, KeyEventKind};
use tui_input::Input;

pub(crate) use draft::{changes_job, edit_text};
pub(crate) use layers::palette_rows;
pub(crate) use screens::{can_cancel, open as open_job, verb as layers_verb};
pub(crate) use scroll::part;

use crate::action::Action;
use crate::model::layer::{Layer, Prompt};
use crate::model::{Model, Screen};
use crate::msg::{Effect, Msg};
use crate::view::mouse_targets::MouseTarget;
use weftrun::core::job::JobHandle;

/// Changes the model; returns the effects to run outside of it.
pub fn update(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Key(key) if key.kind != KeyEventKind::Release => press(model, key),
        Msg::Key(_) => Vec::new(),
        Msg::Paste(text) => paste(model, &text),
        Msg::Wheel(lines) => {
            let action = if lines < 0 { Action::Up } else { Action::Down };
            (0..lines.unsigned_abs().min(10)).flat_map(|_| perform(model, action)).collect()
        }
        Msg::Click(spot) => click(model, spot),
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            Vec::new()
        }
        Msg::Now(now) => {
            model.now = now;
            Vec::new()
        }
        Msg::Do(action) => perform(model, action),
        answer => answers::take(model, answer),
    }
}

/// Passes a key to the topmost layer, then to the field under the cursor, then to the table of actions.
fn press(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    model.notice = None;
    // A user who has begun to work is not moved to another screen.
    model.resume = None;
    if let Some(effects) = layers::press(model, key) {
        return effects;
    }
    if let Some(effects) = draft::type_key(model, key) {
        return effects;
    }
    if let Some(effects) = own_actions::press(model, key) {
        return effects;
    }
    if let Some(action) = model.keymap.lookup(key, model.screen.places()) {
        return perform(model, action);
    }
    if let Some(name) = crate::keymap::name(key) {
        let help = model.keymap.first_key("help");
        model.say(format!("{name} does nothing here; {help} shows the keys"));
    }
    Vec::new()
}

/// Puts the cursor where the mouse is; a click on what is under the cursor opens it.
fn click(model: &mut Model, spot: MouseTarget) -> Vec<Effect> {
    model.notice = None;
    model.resume = None;
    let (own, same) = match (spot, &mut model.open) {
        (MouseTarget::Bar(bar, at, last), _) => {
            scroll::to(model, bar, (at, last));
            return Vec::new();
        }
        (MouseTarget::Screen(screen), _) => return perform(model, screen.action()),
        (MouseTarget::Job(handle), _) => return click_job(model, &handle),
        (MouseTarget::Heading(heading), _) => {
            sorting::by_heading(model, heading);
            return Vec::new();
        }
        (_, None) => return Vec::new(),
        (MouseTarget::Row(row), Some(open)) => {
            (Screen::Overview, std::mem::replace(&mut open.row, row) == row)
        }
        (MouseTarget::Cell(row, column), Some(open)) => {
            let cell = (row, column);
            (Screen::Fabric, std::mem::replace(&mut open.cell, cell) == cell)
        }
        (MouseTarget::Finding(at), Some(open)) => {
            (Screen::Diagnosis, std::mem::replace(&mut open.finding, at) == at)
        }
        (MouseTarget::Collective(at), Some(open)) => {
            let same = open.collective_at(&open.collectives()) == at;
            open.choose_collective(at);
            (Screen::Bandwidth, same)
        }
        (MouseTarget::Line(seq), Some(open)) => {
            let same = open.logs.cursor.replace(seq) == Some(seq);
            open.logs.go(open.logs.projection.index_of(seq));
            (Screen::Logs, same)
        }
    };
    // Panels of other screens are shown beside the overview.
    match same {
        true if own == model.screen => perform(model, Action::Open),
        true => perform(model, own.action()),
        false => Vec::new(),
    }
}

fn click_job(model: &mut Model, handle: &JobHandle) -> Vec<Effect> {
    let opens = model.screen != Screen::Jobs
        || model.jobs.current().is_some_and(|entry| entry.summary.handle == *handle);
    model.jobs.selected = Some(handle.clone());
    if opens { screens::open(model, handle) } else { Vec::new() }
}

/// Handles pasted text like typed text; newlines never act as enter.
fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    let words = model.draft.as_ref().is_some_and(|draft| draft.field.is_words());
    let words = words && model.screen == Screen::Submit && model.layers.is_empty();
    let text = if words { &crate::model::words::one_line(text) } else { text };
    let keeps = |c: &char| !c.is_control() || (words && *c == '\n');
    for c in text.chars().filter(keeps).take(64 * 1024) {
        let key = KeyEvent::new(crossterm::event::KeyCode::Char(c), crossterm::event::KeyModifiers::NONE);
        let taken =
            if model.layers.is_empty() { draft::type_key(model, key) } else { layers::paste(model, key) };
        match taken {
            Some(mut more) => effects.append(&mut more),
            None => break,
        }
    }
    // A plan for each letter would be too many: only the last one is kept.
    if let Some(last) = effects.iter().rposition(|e| matches!(e, Effect::Plan(..))) {
        return vec![effects.swap_remove(last)];
    }
    effects
}

pub(crate) fn perform(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Quit => return vec![Effect::Quit],
        Action::Sleep => return vec![Effect::Sleep],
        Action::Refresh => return vec![Effect::Redraw, Effect::Refresh],
        Action::Leave if model.screen == Screen::Jobs && model.jobs.filter.is_empty() => {
            return vec![Effect::Quit];
        }
        Action::Back | Action::Leave => back(model),
        Action::Rail => model.rail.hidden = !model.rail.hidden,
        Action::Narrower => model.rail.resize(-4),
        Action::Wider => model.rail.resize(4),
        Action::Help => {
            model.layers.push(Layer::Help { filter: Input::default(), scroll: 0, signs: false });
        }
        Action::Palette => model.layers.push(Layer::Palette { input: Input::default(), selected: 0 }),
        Action::Theme => {
            model.theme = model.theme.next();
            model.say(format!("theme: {}", model.theme.name()));
        }
        Action::Mouse => {
            model.mouse = !model.mouse;
            model.say(if model.mouse {
                "mouse on: wheel and clicks; after m the terminal selects text again"
            } else {
                "mouse off"
            });
            return vec![Effect::Mouse(model.mouse)];
        }
        Action::Jobs => show_jobs(model),
        Action::Overview => return screens::show(model, Screen::Overview),
        Action::Fabric => return screens::show(model, Screen::Fabric),
        Action::Logs => return screens::show(model, Screen::Logs),
        Action::Diagnosis => return screens::show(model, Screen::Diagnosis),
        Action::Bandwidth => return screens::show(model, Screen::Bandwidth),
        Action::New => return draft::begin(model),
        Action::Again => return draft::again(model),
        Action::OpenLogs if model.opens_logs => screens::prompt(model, Prompt::LogFiles, String::new()),
        Action::OpenLogs => model.fail("this program opens no logs"),
        Action::Demo if model.has_demo => {
            model
                .say("starting the demo: the log of a recorded run is played slowly by sixteen staged ranks");
            return vec![Effect::Demo];
        }
        Action::Demo => model.fail("this program has no demo"),
        Action::AddTarget => match model.addable().cloned() {
            Some((backend, found)) => return vec![Effect::AddTarget(backend, found)],
            // It is not on the screen, so nobody can know what the key would add.
            None if !model.found.is_empty() => {
                model.fail(
                    "found targets are added from the empty list of jobs; `weftrun init` adds them too",
                );
            }
            None => model.fail("nothing was found on this machine that is not a target already"),
        },
        Action::Health => return screens::query_health(model),
        Action::Verify => verify::ask(model),
        Action::Cancel | Action::Delete | Action::Suspend | Action::Requeue => screens::ask(model, action),
        action => {
            return match model.screen {
                Screen::Jobs => screens::jobs(model, action),
                Screen::Overview => screens::overview(model, action),
                Screen::Fabric => screens::fabric(model, action),
                Screen::Logs => logs::act(model, action),
                Screen::Diagnosis => screens::diagnosis(model, action),
                Screen::Bandwidth => screens::bandwidth(model, action),
                Screen::Submit => draft::act(model, action),
            };
        }
    }
    Vec::new()
}

/// Shows the list of jobs, with the cursor on the job that was viewed.
fn show_jobs(model: &mut Model) {
    if let (false, Some(open)) = (model.screen == Screen::Jobs, &model.open) {
        model.jobs.selected = Some(open.handle.clone());
    }
    model.screen = Screen::Jobs;
}

fn back(model: &mut Model) {
    if model.layers.pop().is_some() {
        return;
    }
    match model.screen {
        Screen::Jobs if !model.jobs.marked.is_empty() => model.jobs.marked.clear(),
        Screen::Jobs if !model.jobs.filter.is_empty() => model.jobs.filter.clear(),
        Screen::Jobs => {
            let key = model.keymap.first_key("leave").to_owned();
            model.say(format!("{key} quits"));
        }
        Screen::Overview | Screen::Submit => show_jobs(model),
        Screen::Logs => model.screen = model.came_from.take().unwrap_or(Screen::Overview),
        Screen::Fabric | Screen::Diagnosis | Screen::Bandwidth => {
            model.screen = Screen::Overview;
        }
    }
}
