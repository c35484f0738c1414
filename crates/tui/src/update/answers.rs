//! Applies the answers of backends.

use tui_input::Input;
use weftrun::core::log::clean_text;

use super::{draft, logs, screens};
use crate::model::jobs::Health;
use crate::model::layer::Layer;
use crate::model::logs::{Find, LogPane};
use crate::model::open::Ras;
use crate::model::{Model, NoticeKind, Screen};
use crate::msg::{Effect, Msg};
use crate::safe;

pub(super) fn take(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Connected(name, capability) => {
            if let Some(target) = model.jobs.target_mut(&name) {
                target.capability = Some(capability);
            }
        }
        Msg::Listed(name, Ok(jobs)) => return listed(model, &name, jobs),
        Msg::Listed(name, Err(error)) | Msg::Lost(name, error) => down(model, &name, &error),
        Msg::Attempts(attempts) => model.jobs.attempts = attempts,
        Msg::Event(name, event) => return happened(model, &name, event),
        Msg::Detail(handle, answer) => {
            let Some(open) = model.open_if(&handle) else { return Vec::new() };
            match answer {
                Ok(known) => {
                    let crate::msg::Known { detail, plan, spec } = *known;
                    let detail = safe::detail(detail);
                    for event in detail.history.iter().cloned() {
                        // A job is described again when it ends: most of its history is known by then.
                        if !open.events.iter().any(|(_, known)| *known == event) {
                            open.event(event, None);
                        }
                    }
                    open.detail = Some(detail);
                    (open.plan, open.spec) = (plan, spec);
                    open.error = None;
                }
                Err(error) => open.error = Some(clean_text(&error).into_owned()),
            }
        }
        Msg::Verify(view) => super::verify::shown(model, view),
        Msg::Health(handle, answer) => {
            let now = model.now;
            let answer = answer
                .map(|report| Box::new(safe::health(*report)))
                .map_err(|error| clean_text(&error).into_owned());
            let finding = answer.as_ref().ok().and_then(|report| report.finding());
            let ras = Ras { at: now, answer: Some(answer), finding };
            if let Some(open) = model.open_if(&handle) {
                open.ras = Some(ras);
            } else if let Some((_, known)) = model.closed_ras.iter_mut().find(|(known, _)| *known == handle) {
                *known = ras;
            }
        }
        Msg::LogsOpened(handle, store) => {
            if let Some(open) = model.open_if(&handle) {
                let old = std::mem::take(&mut open.logs);
                let pinned: Vec<u32> = old.pinned.iter().map(|(rank, _)| *rank).collect();
                open.logs =
                    LogPane { store, cursor: None, top: None, filtering: None, pinned: Vec::new(), ..old };
                for rank in pinned {
                    open.logs.pin(rank);
                }
                open.logs.find.iter_mut().for_each(Find::restart);
                open.logs_ended = false;
            }
            return logs::refilter(model);
        }
        Msg::Counted(number, counted, hits) => {
            let find = model.pane().and_then(|pane| pane.find.as_mut());
            let Some(find) = find.filter(|find| find.counting == Some(number)) else { return Vec::new() };
            let known = find.hits.get_or_insert_default();
            known.extend(hits);
            // The history grows too, and its lines come first.
            known.sort_unstable();
            (find.counted, find.counting) = (counted, None);
            if let Some(forward) = find.goes.take() {
                logs::find(model, forward);
            }
        }
        Msg::Filtering(number, percent) => {
            let filtering = model.pane().and_then(|pane| pane.filtering.as_mut());
            if let Some(filtering) = filtering.filter(|filtering| filtering.number == number) {
                filtering.read = percent;
            }
        }
        Msg::Filtered(number, projection) => {
            let filtered = |pane: &&mut LogPane| pane.filtering.is_some_and(|known| known.number == number);
            let Some(pane) = model.pane().filter(filtered) else { return Vec::new() };
            pane.show(*projection);
            return logs::count(model);
        }
        Msg::Searched(number, percent) => {
            let find = model.pane().and_then(|pane| pane.find.as_mut());
            if let Some(find) = find.filter(|find| find.counting == Some(number)) {
                find.searched = percent;
            }
        }
        Msg::Evidence(store, found) => logs::show_evidence(model, &store, found),
        Msg::LogsGrew => return logs::grew(model),
        Msg::LogsEnded(handle, error) => {
            if let Some(open) = model.open_if(&handle) {
                open.logs_ended = true;
                open.logs.update();
            }
            if let Some(error) = error {
                model.fail(format!("logs of {}: {error}", handle.name()));
            }
        }
        Msg::TransportView(handle, transport_view) => {
            if let Some(entry) = model.jobs.get_mut(&handle) {
                entry.learn(&transport_view);
            }
            if let Some(open) = model.open_if(&handle) {
                open.transport_view = transport_view;
            }
        }
        Msg::Demo(Ok(handle)) => {
            model.say(format!(
                "{}: sixteen staged ranks play the log of a recorded run, slowed down; no GPU is used",
                handle.name()
            ));
            let mut effects = screens::open(model, &handle);
            effects.push(Effect::Refresh);
            return effects;
        }
        Msg::Submitted(Ok(handle)) => {
            model.draft = None;
            model.say(format!("submitted {handle}"));
            let mut effects = screens::open(model, &handle);
            model.screen = Screen::Overview;
            effects.push(Effect::Refresh);
            return effects;
        }
        Msg::Submitted(Err(error)) => {
            if let Some(draft) = &mut model.draft {
                draft.sending = false;
            }
            model.fail(format!("not submitted: {error}"));
        }
        Msg::LogsFound(Ok(handle)) => {
            model.jobs.add_target(handle.target());
            // What was played before is gone.
            model.open.take_if(|open| open.handle == handle);
            // Its target may have listed it already.
            if model.jobs.get(&handle).is_some() {
                return screens::open(model, &handle);
            }
            model.wanted = Some(handle);
        }
        Msg::TargetAdded(name, Ok(())) => {
            model.found.retain(|(_, found)| found.name != name);
            model.jobs.add_target(&name);
            model.say(format!("added target {name} to the configuration"));
        }
        Msg::TargetAdded(name, Err(error)) => model.fail(format!("target {name} was not added: {error}")),
        Msg::LogsFound(Err(error)) => model.fail(error),
        Msg::Paths(typed, found) => super::layers::complete(model, &typed, &found),
        Msg::Failed(error) => model.fail(error),
        Msg::Compared(answer) => super::compare::show(model, answer),
        Msg::Demo(Err(error)) => model.fail(format!("the demo did not start: {error}")),
        Msg::Acted(handle, action, Ok(())) => {
            model.say(format!("{} {}: done", screens::verb(action), handle.name()));
            return vec![Effect::Refresh];
        }
        Msg::Acted(handle, action, Err(error)) => {
            model.fail(format!("{} {}: {error}", screens::verb(action), handle.name()));
        }
        Msg::Saved(Ok(path)) => {
            model.say(format!("saved {}", path.display()));
            if let (Screen::Submit, Some(draft)) = (model.screen, &mut model.draft) {
                draft.saved(&path);
            }
        }
        Msg::Exists(path) => {
            let text = format!("{} exists", path.display());
            let Some(prompt) = model.saving.take() else {
                model.fail(text);
                return Vec::new();
            };
            let input = Input::new(screens::other_name(&path));
            let error = Some(format!("{}: choose another name", clean_text(&text)));
            model.layers.push(Layer::Prompt { prompt, input, error });
        }
        Msg::Kept(Ok(path)) => {
            if let Some(notice) = model.notice.as_mut().filter(|notice| notice.kind == NoticeKind::Copied) {
                notice.text =
                    notice.text.replacen("copied", &format!("copied (also in {})", path.display()), 1);
            }
        }
        Msg::Kept(Err(error)) => model.fail(format!("copied, but not kept in a file: {error}")),
        Msg::Saved(Err(error)) => model.fail(error),
        Msg::Planned(..) | Msg::Checked(..) | Msg::Spec(..) => return draft::answer(model, msg),
        _ => {}
    }
    Vec::new()
}

fn listed(model: &mut Model, name: &str, jobs: Vec<weftrun::core::job::JobSummary>) -> Vec<Effect> {
    if let Some(target) = model.jobs.target_mut(name) {
        target.health = Health::Up;
    }
    let here: Vec<_> = jobs.iter().map(|job| job.handle.clone()).collect();
    model.jobs.entries.retain(|e| e.summary.handle.target() != name || here.contains(&e.summary.handle));
    for job in jobs {
        model.jobs.put(safe::summary(job));
    }
    if let Some(open) = &mut model.open
        && let Some(entry) = model.jobs.get_mut(&open.handle)
    {
        open.listed_phase = Some(entry.summary.phase);
        // The logs of a job that was opened at the start may have been read before it is listed.
        if !open.transport_view.verdict.is_empty() {
            entry.learn(&open.transport_view);
        }
    }
    match model.wanted.take_if(|wanted| model.jobs.get(wanted).is_some()) {
        Some(handle) => screens::open(model, &handle),
        None => resume(model),
    }
}

/// Opens what the last session had open, once it is listed.
fn resume(model: &mut Model) -> Vec<Effect> {
    let listed = |session: &mut crate::model::session::Session| {
        session.job.as_ref().is_some_and(|job| model.jobs.get(job).is_some())
    };
    let Some(session) = model.resume.take_if(listed) else { return Vec::new() };
    let Some(handle) = session.job.clone() else { return Vec::new() };
    let effects = screens::open(model, &handle);
    model.screen = session.screen();
    if let Some(open) = &mut model.open {
        session.log.restore(&mut open.logs);
    }
    model.say(format!("{} as you left it; 1 shows all jobs", handle.name()));
    effects
}

fn down(model: &mut Model, name: &str, error: &str) {
    let now = model.now;
    let error = clean_text(error).into_owned();
    if let Some(target) = model.jobs.target_mut(name) {
        let since = match &target.health {
            Health::Down(since, _) => *since,
            _ => now,
        };
        target.health = Health::Down(since, error);
    }
}

fn happened(model: &mut Model, name: &str, event: weftrun::core::job::JobEvent) -> Vec<Effect> {
    use weftrun::core::job::JobEvent as E;
    let event = safe::event(event);
    match &event {
        E::Disconnected { lost: true, reason } => down(model, name, &reason.clone()),
        _ => {
            if let Some(target) = model.jobs.target_mut(name) {
                target.health = Health::Up;
            }
        }
    }
    model.jobs.event(&event);
    let of = match &event {
        E::Status { job } => Some(&job.handle),
        E::Replica { job, .. }
        | E::Message { job, .. }
        | E::Stuck { job, .. }
        | E::Attempt { job, .. }
        | E::Gone { job } => Some(job),
        _ => None,
    };
    let has_ended = matches!(&event, E::Status { job } if job.phase.is_terminal());
    let now = model.now;
    let open = model.open.as_mut().filter(|open| Some(&open.handle) == of);
    let Some(open) = open else { return Vec::new() };
    let was_running = open.detail.as_ref().is_none_or(|detail| !detail.summary.phase.is_terminal());
    open.event(event, Some(now));
    // How its replicas ended, and why, is known only now.
    if has_ended && was_running { vec![Effect::Describe(open.handle.clone())] } else { Vec::new() }
}
