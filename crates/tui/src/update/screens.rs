//! Actions of the list of jobs, the overview, the fabric, the diagnosis and the bandwidth.

use tui_input::Input;
use weftrun::core::job::{Action as JobAction, JobHandle, JobPhase};
use weftrun::core::log::Pattern;
use weftrun::core::nccl::bandwidth::RankWait;

use crate::action::Action;
use crate::model::layer::{Layer, Prompt, Question};
use crate::model::open::{Open, Ras};
use crate::model::{Model, NoticeKind, Screen};
use crate::msg::Effect;

/// Shows a screen of the job under the cursor, opening the job if another one is open.
pub(super) fn show(model: &mut Model, screen: Screen) -> Vec<Effect> {
    let Some(handle) = model.current() else {
        model.say("no job is selected");
        return Vec::new();
    };
    let effects = open(model, &handle);
    (model.screen, model.came_from) = (screen, None);
    effects
}

/// Shows the log with only some ranks; `esc` goes back to the present screen.
pub(super) fn show_log_of(model: &mut Model, ranks: &[u32]) -> Vec<Effect> {
    let Some(open) = &mut model.open else { return Vec::new() };
    open.logs.ranks = crate::view::paint::ranges(ranks);
    (model.came_from, model.screen) = (Some(model.screen), Screen::Logs);
    super::logs::refilter(model)
}

/// Largest number of closed jobs whose last RAS query is kept.
const CLOSED: usize = 64;

/// Opens a job, unless it is already open. A RAS query in progress continues when another job is opened.
pub(crate) fn open(model: &mut Model, handle: &JobHandle) -> Vec<Effect> {
    if model.open.as_ref().is_some_and(|open| open.handle == *handle) {
        return Vec::new();
    }
    if let Some(Open { handle, ras: Some(ras), .. }) = model.open.take() {
        model.closed_ras.retain(|(known, _)| *known != handle);
        if model.closed_ras.len() >= CLOSED {
            model.closed_ras.remove(0);
        }
        model.closed_ras.push((handle, ras));
    }
    let known = model.closed_ras.iter().position(|(known, _)| known == handle);
    let ras = known.map(|at| model.closed_ras.remove(at).1);
    let listed_phase = model.jobs.get(handle).map(|entry| entry.summary.phase);
    model.open = Some(Open { listed_phase, ras, ..Open::new(handle.clone()) });
    model.jobs.selected = Some(handle.clone());
    model.screen = Screen::Overview;
    vec![Effect::Close, Effect::Open(handle.clone(), false)]
}

/// Queries NCCL's RAS service in the job under the cursor, one query at a time.
pub(super) fn query_health(model: &mut Model) -> Vec<Effect> {
    let Some(handle) = model.current() else {
        model.say("no job is selected");
        return Vec::new();
    };
    let ended = model.jobs.get(&handle).is_some_and(|entry| entry.summary.phase.is_terminal());
    if ended {
        model.say(format!("{} has ended: only a running job has a RAS service", handle.name()));
        return Vec::new();
    }
    let mut effects = open(model, &handle);
    let now = model.now;
    if let Some(open) = &mut model.open {
        if open.ras.as_ref().is_some_and(|ras| ras.answer.is_none()) {
            model.say("a query is under way");
            return effects;
        }
        let finding = open.ras.take().and_then(|ras| ras.finding);
        open.ras = Some(Ras { at: now, answer: None, finding });
        effects.push(Effect::Health(handle));
    }
    effects
}

/// Requests a confirmation before it acts on the marked jobs, or on the current one. What a job or its cluster does not
/// support is refused at once.
pub(super) fn ask(model: &mut Model, action: Action) {
    let chosen = model.chosen();
    let phase = |model: &Model, handle: &JobHandle| model.jobs.get(handle).map(|entry| entry.summary.phase);
    let suspended = |handle: &JobHandle| phase(model, handle) == Some(JobPhase::Suspended);
    let action = match action {
        Action::Delete => JobAction::Delete,
        Action::Suspend if chosen.iter().all(suspended) => JobAction::Resume,
        Action::Suspend => JobAction::Suspend,
        Action::Requeue => JobAction::Requeue,
        _ => JobAction::Cancel,
    };
    let (mut jobs, mut refused) = (Vec::new(), Vec::new());
    for handle in chosen {
        match refusal(model, &handle, action) {
            Some(why) => refused.push(why),
            None => jobs.push(handle),
        }
    }
    if !jobs.is_empty() {
        let left_out = refused.into_iter().map(|(_, why)| why).collect();
        model.layers.push(Layer::Confirm(Question::Act { jobs, action, left_out }));
        return;
    }
    match refused.into_iter().next() {
        Some((NoticeKind::Error, why)) => model.fail(why),
        Some((_, why)) => model.say(why),
        None => model.say("no job is selected"),
    }
}

/// Returns why an action on a job has no effect; none if it has.
fn refusal(model: &Model, handle: &JobHandle, action: JobAction) -> Option<(NoticeKind, String)> {
    let (target, name) = (handle.target(), handle.name());
    let ended = model.jobs.get(handle).is_some_and(|entry| entry.summary.phase.is_terminal());
    if ended && matches!(action, JobAction::Cancel | JobAction::Suspend) {
        return Some((NoticeKind::Message, format!("{name} has ended already")));
    }
    if model.jobs.is_read_only(target) {
        return Some((NoticeKind::Error, format!("target `{target}` only shows jobs")));
    }
    let able = model.jobs.capability(target).is_none_or(|can| match action {
        JobAction::Delete => can.delete,
        JobAction::Suspend | JobAction::Resume => can.suspend,
        JobAction::Requeue => can.requeue,
        _ => true,
    });
    (!able).then(|| (NoticeKind::Error, format!("target `{target}` cannot {} jobs", verb(action))))
}

/// Returns whether the current job can be cancelled.
pub(crate) fn can_cancel(model: &Model) -> bool {
    model.chosen().iter().any(|handle| refusal(model, handle, JobAction::Cancel).is_none())
}

/// Does to jobs what was confirmed.
pub(super) fn act(model: &mut Model, jobs: Vec<JobHandle>, action: JobAction) -> Vec<Effect> {
    let what = match &jobs[..] {
        [one] => one.name().to_owned(),
        jobs => format!("{} jobs", jobs.len()),
    };
    model.say(format!("{} {what} …", verb(action)));
    model.jobs.marked.clear();
    jobs.into_iter().map(|handle| Effect::Act(handle, action)).collect()
}

pub(crate) fn verb(action: JobAction) -> &'static str {
    match action {
        JobAction::Cancel => "cancel",
        JobAction::Delete => "delete",
        JobAction::Suspend => "suspend",
        JobAction::Resume => "resume",
        JobAction::Hold => "hold",
        JobAction::Release => "release",
        JobAction::Requeue => "requeue",
        _ => "signal",
    }
}

/// Returns how far an action moves, in a list with this many rows on a page.
pub(super) fn distance(action: Action, page: usize) -> Option<isize> {
    let page = isize::try_from(page.max(2) - 1).unwrap_or(1);
    Some(match action {
        Action::Up => -1,
        Action::Down => 1,
        Action::PageUp => -page,
        Action::PageDown => page,
        Action::Top => isize::MIN / 2,
        Action::Bottom => isize::MAX / 2,
        _ => return None,
    })
}

fn page(model: &Model) -> usize {
    usize::from(model.size.1).saturating_sub(6)
}

pub(super) fn jobs(model: &mut Model, action: Action) -> Vec<Effect> {
    if let Some(by) = distance(action, page(model)) {
        if model.jobs.entries.is_empty() {
            let last = model.found.len().saturating_sub(1);
            model.found_row = model.found_row.min(last).saturating_add_signed(by).min(last);
        }
        model.jobs.step(by);
        return Vec::new();
    }
    match action {
        Action::Open => return show(model, Screen::Overview),
        Action::Filter => prompt(model, Prompt::JobFilter, model.jobs.filter.clone()),
        Action::Sort | Action::Reverse => super::sorting::turn(model, action),
        Action::Mark => model.jobs.mark(),
        Action::Compare => return super::compare::ask(model),
        Action::Copy => {
            if let Some(handle) = model.current() {
                return copy(model, handle.to_string());
            }
        }
        _ => {}
    }
    Vec::new()
}

/// Opens a line of input.
pub(super) fn prompt(model: &mut Model, prompt: Prompt, text: String) {
    model.layers.push(Layer::Prompt { prompt, input: Input::new(text), error: None });
}

/// Returns a new name for a file that already exists: `job-2.toml` after `job.toml`.
pub(super) fn other_name(path: &std::path::Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let mut name = super::draft::next_name(&stem);
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name).display().to_string()
}

/// Copies a text to the clipboard, and reports that.
pub(super) fn copy(model: &mut Model, text: String) -> Vec<Effect> {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    model.notify(&format!("copied: {shown}"), NoticeKind::Copied);
    vec![Effect::Copy(text)]
}

pub(super) fn overview(model: &mut Model, action: Action) -> Vec<Effect> {
    let rows = page(model);
    let Some(open) = &mut model.open else { return Vec::new() };
    let last = open.listed().saturating_sub(1);
    if let Some(by) = distance(action, rows / 2) {
        open.row = open.row.saturating_add_signed(by).min(last);
        return Vec::new();
    }
    match action {
        Action::Sort | Action::Reverse => super::sorting::turn(model, action),
        Action::Zoom if open.transport_view.nodes.len() < 2 || open.transport_view.ranks.len() <= 16 => {
            model.say("up to sixteen ranks are listed one by one");
        }
        Action::Zoom => (open.by_rank, open.row) = (!open.by_rank, 0),
        Action::Communicator => next_communicator(model),
        Action::Pin => {
            if let Some(rank) = open.chosen_ranks().first().copied() {
                super::logs::pin(model, rank);
            }
        }
        Action::Open => {
            let ranks = open.chosen_ranks();
            if ranks.is_empty() {
                model.say("it is not known which rank this is: the log is on screen 4");
                return Vec::new();
            }
            return show_log_of(model, &ranks);
        }
        _ => {}
    }
    Vec::new()
}

fn next_communicator(model: &mut Model) {
    let Some(open) = &mut model.open else { return };
    if open.transport_view.views() < 2 {
        model.say("the log names no second communicator");
        return;
    }
    open.communicator = (open.communicator + 1) % open.transport_view.views();
    open.cell = (0, 0);
}

/// Most lines of NCCL that are shown for a pair.
const PROOFS: usize = 12;
/// Parts of the log that are searched for them, of 8 MB each: a log begins with NCCL's lines.
const PARTS: usize = 8;

/// Returns the title and text of the pair under the cursor, with the lines of NCCL that prove it.
fn pair_text(open: &Open) -> (String, Vec<String>) {
    let (title, mut lines) = crate::view::pair::cell_text(open);
    let pattern = crate::view::pair::proof(open).and_then(|text| Pattern::regex(&text).ok());
    if let Some(pattern) = pattern {
        let store = open.logs.store.read();
        let mut parts = store.parts();
        parts.push(u64::MAX);
        let searched = parts.windows(2).take(PARTS);
        let found: Vec<u64> =
            searched.flat_map(|part| store.search_between(&pattern, part[0], part[1])).collect();
        let entries = found.iter().filter_map(|seq| store.get(*seq)).take(PROOFS);
        let proofs: Vec<String> = entries
            .filter_map(|entry| {
                let stream = store.streams().get(entry.stream as usize)?;
                Some(format!("  {} {}", stream.label(), entry.clean().text))
            })
            .collect();
        if !proofs.is_empty() {
            let part = if parts.len() > PARTS + 1 { " in the first 64 MB" } else { "" };
            let heading = format!("NCCL's lines ({} of {}{part})", proofs.len(), found.len());
            lines.extend([String::new(), heading]);
            lines.extend(proofs);
        }
    }
    (title, lines)
}

pub(super) fn fabric(model: &mut Model, action: Action) -> Vec<Effect> {
    let Some(open) = &mut model.open else { return Vec::new() };
    let last = open.matrix_rows().len().saturating_sub(1);
    let (row, column) = &mut open.cell;
    let step = |at: usize, by: isize| at.saturating_add_signed(by).min(last);
    match action {
        Action::Up => *row = step(*row, -1),
        Action::Down => *row = step(*row, 1),
        Action::Left => *column = step(*column, -1),
        Action::Right => *column = step(*column, 1),
        Action::PageUp => *row = step(*row, -16),
        Action::PageDown => *row = step(*row, 16),
        Action::Top => open.cell = (0, 0),
        Action::Bottom => open.cell = (last, last),
        Action::Zoom => {
            open.by_rank = !open.by_rank;
            open.cell = (0, 0);
        }
        Action::Communicator => next_communicator(model),
        Action::Form => {
            let (form, name) = open.form.next();
            open.form = form;
            model.say(format!("matrix: {name}"));
        }
        Action::FindNext | Action::FindPrevious => {
            let found = open.go_to_wrong(action == Action::FindNext);
            if !found {
                model.say("no pair is wrong");
            }
        }
        Action::Open => {
            let (title, lines) = pair_text(open);
            model.layers.push(Layer::Text { title, lines, scroll: 0 });
        }
        Action::Copy => {
            let (title, lines) = pair_text(open);
            return copy(model, format!("{title}\n{}", lines.join("\n")));
        }
        Action::Export => {
            let name = format!("{}-pairs.tsv", open.handle.name());
            prompt(model, Prompt::ExportPairs, name);
        }
        _ => {}
    }
    Vec::new()
}

pub(super) fn diagnosis(model: &mut Model, action: Action) -> Vec<Effect> {
    let rows = page(model);
    let Some(open) = &mut model.open else { return Vec::new() };
    let findings = open.findings();
    let last = findings.len().saturating_sub(1);
    if let Some(by) = distance(action, rows / 3) {
        open.finding = open.finding.saturating_add_signed(by).min(last);
        return Vec::new();
    }
    let Some(finding) = findings.get(open.finding.min(last)).map(|finding| (*finding).clone()) else {
        model.say("there is no finding to act on");
        return Vec::new();
    };
    match action {
        Action::Open => {
            let lines = crate::view::diagnosis::finding_lines(&finding);
            model.layers.push(Layer::Text { title: finding.code, lines, scroll: 0 });
        }
        Action::Evidence => return super::logs::find_evidence(model, &finding),
        Action::Copy => return copy(model, crate::view::diagnosis::finding_lines(&finding).join("\n")),
        Action::Fix => return super::draft::from_fix(model, &finding),
        _ => {}
    }
    Vec::new()
}

pub(super) fn bandwidth(model: &mut Model, action: Action) -> Vec<Effect> {
    let rows = page(model);
    let Some(open) = &mut model.open else { return Vec::new() };
    // Pages scroll the ranks, of which there are more than collectives.
    if let (Action::PageUp | Action::PageDown, Some(by)) = (action, distance(action, rows / 3)) {
        let ranks = open.chosen_collective().map_or(0, |row| row.speed.arrival.waits.len());
        open.first_wait = open.first_wait.saturating_add_signed(by).min(ranks.saturating_sub(1));
        return Vec::new();
    }
    if let Some(by) = distance(action, rows) {
        let at = open.collective_at(&open.collectives());
        open.choose_collective(at.saturating_add_signed(by));
        return Vec::new();
    }
    if matches!(action, Action::Sort | Action::Reverse) {
        super::sorting::turn(model, action);
        return Vec::new();
    }
    let Some((measured, row)) = open.measured().zip(open.chosen_collective()) else { return Vec::new() };
    match action {
        Action::Open => {
            let (title, lines) = crate::view::bandwidth::collective_text(measured, row);
            model.layers.push(Layer::Text { title, lines, scroll: 0 });
        }
        Action::Copy => {
            let (title, lines) = crate::view::bandwidth::collective_text(measured, row);
            let text = format!("{}\n\n{title}\n{}", measured.sentence(), lines.join("\n"));
            return copy(model, text);
        }
        Action::Evidence => {
            let ranks: Vec<u32> = row.speed.arrival.late.iter().map(RankWait::job_rank).collect();
            if ranks.is_empty() {
                let text = format!("no rank is late in {}", row.speed.collective);
                model.say(text);
                return Vec::new();
            }
            return show_log_of(model, &ranks);
        }
        _ => {}
    }
    Vec::new()
}
