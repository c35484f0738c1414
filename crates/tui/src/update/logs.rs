//! Actions of the log pane.

use jiff::Timestamp;
use weftrun::Finding;
use weftrun::core::log::{Filter, Level, LogPosition, Pattern, Projection, cut_text, parse_ranks};

use super::screens::{copy, distance, prompt};
use crate::action::Action;
use crate::model::layer::{Layer, Prompt};
use crate::model::logs::{Filtering, LogPane, SharedStore};
use crate::model::session::{LEVELS, TIMES};
use crate::model::{Model, Screen, next};
use crate::msg::{Count, Effect};

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
        Action::Right => pane.column = (pane.column + SIDE).min(weftrun::core::nccl::LINE_CAP),
        Action::Wrap => {
            pane.wrap = !pane.wrap;
            pane.column = 0;
        }
        Action::Times => {
            pane.times = next(&TIMES, |times| *times == pane.times);
        }
        Action::Level => {
            pane.level = next(&LEVELS, |level| *level == pane.level);
            return refilter(model);
        }
        Action::GoTo => prompt(model, Prompt::GoTo, String::new()),
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
        Action::RankColours => pane.one_colour = !pane.one_colour,
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
            if model.jobs.capability(handle.target()).is_some_and(|can| !can.previous_logs) {
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
        Ok(filter) => apply(model, filter),
        Err(error) => {
            model.fail(error);
            Vec::new()
        }
    }
}

/// Applies a filter: at once, or beside the screen if that takes a while.
fn apply(model: &mut Model, filter: Filter) -> Vec<Effect> {
    let Some(pane) = model.open.as_mut().map(|open| &mut open.logs) else { return Vec::new() };
    let store = pane.store.read();
    let listed = !filter.is_empty() || pane.folded || store.is_ordered();
    let large = listed && store.bytes() > AT_ONCE;
    drop(store);
    let projection = pane.projected(filter);
    if !large {
        let stops = pane.filtering.is_some();
        pane.show(projection);
        return if stops { vec![Effect::StopFilter] } else { Vec::new() };
    }
    model.counts += 1;
    pane.filtering = Some(Filtering { number: model.counts, read: 0 });
    vec![Effect::Filter(model.counts, pane.store.clone(), Box::new(projection))]
}

/// Returns the filter that results from a pane's settings.
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
    let Some(find) = &mut pane.find else {
        model.say("no search is active (/ to search)");
        return;
    };
    let (text, pattern) = (find.text.clone(), find.pattern.clone());
    let large = pane.store.read().bytes() > AT_ONCE;
    if large && find.hits.is_none() {
        // All of it is searched beside the screen.
        find.goes = Some(forward);
        return;
    }
    pane.trim_hits();
    let at = pane.cursor_index();
    let found = match pane.find.as_ref().and_then(|find| find.hits.as_ref()).filter(|_| large) {
        Some(hits) => nearest(hits, pane.projection.place(at).unwrap_or_default(), forward)
            .map(|place| pane.projection.index_of_place(place)),
        None => search(pane, &pattern, at, forward),
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

/// Returns the hit after or before a line, else the one from the other end.
fn nearest(hits: &[LogPosition], here: LogPosition, forward: bool) -> Option<LogPosition> {
    let next = if forward {
        hits.get(hits.partition_point(|place| *place <= here)).or(hits.first())
    } else {
        hits.partition_point(|place| *place < here).checked_sub(1).map_or(hits.last(), |at| hits.get(at))
    };
    next.copied()
}

/// Searches the lines that are shown from an index on, then from the other end.
fn search(pane: &LogPane, pattern: &Pattern, at: usize, forward: bool) -> Option<usize> {
    let store = pane.store.read();
    if forward {
        let behind = pane.projection.find(&store, pattern, at + 1);
        return behind.or_else(|| pane.projection.find(&store, pattern, 0));
    }
    let before = pane.projection.find_before(&store, pattern, at);
    before.or_else(|| pane.projection.find_before(&store, pattern, pane.projection.len()))
}

/// Counts the lines with the text of the search, beside the screen: a large log takes a while. Of a log that has
/// grown since the last count, only the new lines.
pub(super) fn count(model: &mut Model) -> Vec<Effect> {
    let Some(pane) = model.open.as_mut().map(|open| &mut open.logs) else { return Vec::new() };
    pane.trim_hits();
    let store = pane.store.read();
    if let Some(find) = pane.find.as_mut().filter(|find| find.ordered != store.is_ordered()) {
        // The lines are in another order now.
        find.restart();
        find.ordered = store.is_ordered();
    }
    // Which lines the filter shows is not known yet.
    let find = pane.find.as_mut().filter(|find| find.counting.is_none() && pane.filtering.is_none());
    let Some(find) = find else { return Vec::new() };
    if find.hits.is_some() && find.counted == (store.history_range().end, store.end()) {
        return Vec::new();
    }
    model.counts += 1;
    find.counting = Some(model.counts);
    vec![Effect::Count(Box::new(Count {
        number: model.counts,
        store: pane.store.clone(),
        pattern: find.pattern.clone(),
        filter: pane.projection.filter().clone(),
        counted: find.counted,
    }))]
}

/// Largest log, in bytes, that is filtered and searched between two frames.
const AT_ONCE: u64 = 64 << 20;

/// Applies a filter that is being typed, or was entered and is kept, if it can be read.
pub(super) fn take_filter(
    model: &mut Model,
    prompt: Prompt,
    text: &str,
    keep: bool,
) -> Result<Vec<Effect>, String> {
    let now = model.now;
    let Some(pane) = model.pane() else { return Ok(Vec::new()) };
    let field = |pane: &mut LogPane, text: String| {
        std::mem::replace(if prompt == Prompt::Ranks { &mut pane.ranks } else { &mut pane.filter }, text)
    };
    let before = field(pane, text.to_owned());
    let filter = filter_of(pane, now);
    if !keep || filter.is_err() {
        field(pane, before);
    }
    let filter = filter?;
    if let (true, Some(name)) = (keep, filter.unknown_names().first()) {
        model.say(format!(
            "`{name}:` is no name of a filter (rank, node, role, level, since, until): lines with this text are shown"
        ));
    }
    Ok(apply(model, filter))
}

/// Puts the cursor on a line by its number, or on the first one at or after a time.
pub(super) fn go_to(model: &mut Model, text: &str) -> Result<(), String> {
    let now = model.now;
    let Some(pane) = model.pane() else { return Ok(()) };
    let text = text.trim();
    let index = if let Ok(number) = text.parse::<u64>() {
        pane.projection.index_of(pane.store.read().line_at(number))
    } else {
        if !pane.store.read().is_ordered() {
            return Err("no line has a time; give the number of a line".to_owned());
        }
        let time = at_time(text, now, &pane.projection)
            .ok_or_else(|| format!("`{text}` is neither a line nor a time (12:04:05)"))?;
        pane.projection.index_at(time)
    };
    pane.jump(index);
    Ok(())
}

/// Reads a time: a clock is of the day of the first line.
fn at_time(text: &str, now: Timestamp, lines: &Projection) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let clock: jiff::civil::Time = text.parse().ok()?;
    let first = lines.first_time().unwrap_or(now);
    let zoned = first.to_zoned(jiff::tz::TimeZone::UTC);
    let at = |date: jiff::civil::Date| date.to_datetime(clock).to_zoned(jiff::tz::TimeZone::UTC).ok();
    let time = at(zoned.date())?.timestamp();
    // A job that ran over midnight.
    if time < first { at(zoned.date().tomorrow().ok()?).map(|zoned| zoned.timestamp()) } else { Some(time) }
}

/// Searches the log for the first line that proves a finding, beside the screen.
pub(super) fn find_evidence(model: &mut Model, finding: &Finding) -> Vec<Effect> {
    let Some(pane) = model.open.as_ref().map(|open| &open.logs) else { return Vec::new() };
    let store = pane.store.clone();
    if store.read().bytes() > AT_ONCE {
        model.say("searching the log …");
    }
    vec![Effect::Evidence(store, finding.evidence.clone())]
}

/// Puts the cursor on the line that proves a finding, unless the log of another job is shown by now.
pub(super) fn show_evidence(model: &mut Model, store: &SharedStore, found: Option<u64>) {
    let Some(pane) = model.open.as_mut().map(|open| &mut open.logs).filter(|pane| pane.store.is(store))
    else {
        return;
    };
    let Some(seq) = found else {
        model.say("no line of the log that is held here proves it");
        return;
    };
    model.notice = None;
    pane.update();
    if pane.projection.seq(pane.projection.index_of(seq)) != Some(seq) {
        (pane.filter, pane.ranks, pane.level, pane.folded) =
            (String::new(), String::new(), Level::Debug, false);
        let all = pane.projected(Filter::default());
        pane.show(all);
        model.say("the filter is cleared: it hid this line");
    }
    if let Some(pane) = model.pane() {
        let index = pane.projection.index_of(seq);
        pane.jump(index);
    }
    (model.came_from, model.screen) = (Some(model.screen), Screen::Logs);
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

/// Returns the title and text of the line under the cursor.
fn current(pane: &LogPane) -> Option<(String, String)> {
    let seq = pane.projection.seq(pane.cursor_index())?;
    let store = pane.store.read();
    let entry = store.get(seq)?;
    let stream = store.streams().get(entry.stream as usize)?;
    let clean = entry.clean();
    let mut title = stream.label();
    if let Some(number) = store.line_number(seq) {
        title.push_str(&format!(" line {number}"));
    }
    if clean.updates > 0 {
        title.push_str(&format!(", drawn over {} times", clean.updates));
    }
    if clean.removed > 0 {
        title.push_str(&format!(", {} escapes removed", clean.removed));
    }
    Some((title, clean.text + &cut_text(clean.cut)))
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

/// Adds the new lines, if the screen shows them.
pub(super) fn grew(model: &mut Model) -> Vec<Effect> {
    let composite = model.size.0 >= 120;
    let shown = model.screen == Screen::Logs || (model.screen == Screen::Overview && composite);
    let Some(open) = model.open.as_mut().filter(|_| shown) else { return Vec::new() };
    open.logs.update();
    count(model)
}
