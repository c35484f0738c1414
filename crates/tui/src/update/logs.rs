//! Actions of the log pane.

use weftrun::core::log::{Filter, Level, parse_ranks};

use super::screens::{copy, distance, prompt};
use crate::action::Action;
use crate::model::layer::{Layer, Prompt};
use crate::model::logs::{LogPane, Times};
use crate::model::{Model, Screen};
use crate::msg::Effect;

/// Columns a sideways step moves.
const SIDE: usize = 16;

pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let Some(open) = &mut model.open else { return Vec::new() };
    let handle = open.handle.clone();
    let pane = &mut open.logs;
    if let Some(by) = distance(action, pane.height) {
        match action {
            Action::Bottom => pane.follow(),
            _ => pane.step(by),
        }
        return Vec::new();
    }
    match action {
        Action::Follow if pane.follows() => pane.pause(),
        Action::Follow => pane.follow(),
        Action::Left => pane.column = pane.column.saturating_sub(SIDE),
        Action::Right => pane.column = (pane.column + SIDE).min(weftrun::core::log::LINE_CAP),
        Action::Wrap => {
            pane.wrap = !pane.wrap;
            pane.column = 0;
        }
        Action::Times => {
            pane.times = match pane.times {
                Times::Clock => Times::Relative,
                Times::Relative => Times::Off,
                Times::Off => Times::Clock,
            };
        }
        Action::Level => {
            pane.level = match pane.level {
                Level::Debug => Level::Info,
                Level::Info => Level::Warn,
                Level::Warn => Level::Error,
                Level::Error => Level::Debug,
            };
            return refilter(model);
        }
        Action::Find => prompt(model, Prompt::Find, String::new()),
        Action::Filter => {
            let text = pane.filter.clone();
            prompt(model, Prompt::LogFilter, text);
        }
        Action::Ranks => {
            let text = pane.ranks.clone();
            prompt(model, Prompt::Ranks, text);
        }
        Action::FindNext => find(model, true),
        Action::FindPrevious => find(model, false),
        Action::Fold => {
            pane.folded = !pane.folded;
            let text =
                if pane.folded { "lines that say the same are shown once" } else { "every line is shown" };
            model.say(text);
            return refilter(model);
        }
        Action::Pin => {
            let rank = pane.cursor_rank();
            match rank {
                Some(rank) => pin(model, rank),
                None => model.say("it is not known which rank wrote this line"),
            }
        }
        Action::Bookmark => bookmark(pane),
        Action::NextBookmark => next_bookmark(model),
        Action::Open => whole_line(model),
        Action::Copy => {
            let text = current(pane).map(|(_, text)| text);
            return text.map_or_else(Vec::new, |text| copy(model, text));
        }
        Action::Export => prompt(model, Prompt::ExportLog, format!("{}.log", handle.name())),
        Action::Attempt => {
            let able = model
                .jobs
                .targets
                .iter()
                .find(|t| t.name == handle.target())
                .and_then(|t| t.capability.as_ref());
            if able.is_some_and(|can| !can.previous_logs) {
                model.fail(format!("target `{}` keeps no logs of earlier attempts", handle.target()));
                return Vec::new();
            }
            pane.previous = !pane.previous;
            let previous = pane.previous;
            model.say(if previous { "log of the attempt before" } else { "log of the present attempt" });
            return vec![Effect::Close, Effect::Open(handle, previous)];
        }
        _ => {}
    }
    Vec::new()
}

/// Shows what filter, ranks and level leave together.
pub(super) fn refilter(model: &mut Model) -> Vec<Effect> {
    let now = model.now;
    let Some(open) = &mut model.open else { return Vec::new() };
    match filter_of(&open.logs, now) {
        Ok(filter) => open.logs.refilter(filter),
        Err(error) => model.fail(error),
    }
    Vec::new()
}

/// The filter that a pane's settings mean together.
pub(crate) fn filter_of(pane: &LogPane, now: jiff::Timestamp) -> Result<Filter, String> {
    let mut text = pane.filter.clone();
    if !pane.ranks.is_empty() {
        parse_ranks(&pane.ranks).ok_or_else(|| format!("`{}`: ranks look like `0,8-15`", pane.ranks))?;
        text = format!("{text} rank:{}", pane.ranks.replace(' ', ""));
    }
    let filter = Filter::parse(&text, now).map_err(|error| error.to_string())?;
    Ok(filter.with_level(pane.level))
}

/// Pins a rank, or unpins it.
pub(super) fn pin(model: &mut Model, rank: u32) {
    let Some(open) = &mut model.open else { return };
    let text = if open.logs.pin(rank) { "is pinned in the logs (K to unpin)" } else { "is no longer pinned" };
    model.say(format!("r{rank} {text}"));
}

/// Goes to the next place the text is found, or to the one before.
pub(super) fn find(model: &mut Model, forward: bool) {
    let Some(open) = &mut model.open else { return };
    let pane = &mut open.logs;
    let Some((text, pattern)) = pane.find.clone() else {
        model.say("nothing is being looked for; / finds");
        return;
    };
    let at = pane.cursor_index();
    let found = {
        let store = pane.store.read();
        if forward {
            pane.projection
                .find(&store, &pattern, at + 1)
                .or_else(|| pane.projection.find(&store, &pattern, 0))
        } else {
            let all = pane.projection.len();
            let before = pane.projection.find_before(&store, &pattern, at);
            before.or_else(|| pane.projection.find_before(&store, &pattern, all))
        }
    };
    match found {
        Some(index) => {
            pane.jump(index);
            if (forward && index <= at) || (!forward && index >= at) {
                model.say(format!("`{text}`: from the other end"));
            }
        }
        None => model.say(format!("`{text}` is not here")),
    }
}

fn bookmark(pane: &mut LogPane) {
    pane.pause();
    let Some(seq) = pane.cursor else { return };
    if let Some(at) = pane.bookmarks.iter().position(|known| *known == seq) {
        pane.bookmarks.remove(at);
    } else {
        pane.bookmarks.push(seq);
        pane.bookmarks.sort_unstable();
    }
}

fn next_bookmark(model: &mut Model) {
    let Some(open) = &mut model.open else { return };
    let pane = &mut open.logs;
    let here = pane.cursor.unwrap_or(0);
    let next = pane.bookmarks.iter().find(|seq| **seq > here).or(pane.bookmarks.first()).copied();
    match next {
        Some(seq) => {
            let index = pane.projection.index_of(seq);
            pane.jump(index);
        }
        None => model.say("no bookmark; b sets one"),
    }
}

/// Title and text of the line under the cursor.
fn current(pane: &LogPane) -> Option<(String, String)> {
    let seq = pane.projection.seq(pane.cursor_index())?;
    let store = pane.store.read();
    let entry = store.get(seq)?;
    let stream = store.streams().get(entry.stream as usize)?;
    let clean = entry.clean();
    let mut title = format!("{} line {}", stream.label(), seq + 1);
    if clean.updates > 0 {
        title.push_str(&format!(", drawn over {} times", clean.updates));
    }
    if clean.cut > 0 {
        title.push_str(&format!(", {} bytes more were cut", clean.cut));
    }
    if clean.removed > 0 {
        title.push_str(&format!(", {} escapes removed", clean.removed));
    }
    Some((title, clean.text))
}

fn whole_line(model: &mut Model) {
    let Some((title, text)) = model.open.as_ref().and_then(|open| current(&open.logs)) else { return };
    model.layers.push(Layer::Text { title, lines: vec![text], scroll: 0 });
}

/// Saves the lines that are shown, as they came.
pub(super) fn export(model: &Model, path: &str) -> Vec<Effect> {
    let Some(open) = &model.open else { return Vec::new() };
    let pane = &open.logs;
    vec![Effect::Export(path.into(), pane.store.clone(), Box::new(pane.projection.clone()))]
}

/// Whether new lines are of interest to the screen that is shown.
pub(super) fn grew(model: &mut Model) {
    let composite = model.size.0 >= 120;
    let shown = model.screen == Screen::Logs || (model.screen == Screen::Overview && composite);
    if let Some(open) = model.open.as_mut().filter(|_| shown) {
        open.logs.update();
    }
}
