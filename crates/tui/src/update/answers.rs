//! What backends answered.

use weftrun::core::log::clean_text;

use super::{draft, logs, screens};
use crate::model::jobs::Health;
use crate::model::{Model, Screen};
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
        Msg::Event(name, event) => return happened(model, &name, event),
        Msg::Detail(handle, answer) => {
            let Some(open) = model.open.as_mut().filter(|open| open.handle == handle) else {
                return Vec::new();
            };
            match answer {
                Ok(known) => {
                    let (detail, plan) = *known;
                    let detail = safe::detail(detail);
                    for event in detail.history.iter().cloned() {
                        open.event(event);
                    }
                    open.detail = Some(detail);
                    open.plan = plan;
                    open.error = None;
                }
                Err(error) => open.error = Some(clean_text(&error).into_owned()),
            }
        }
        Msg::LogsOpened(handle, store) => {
            if let Some(open) = model.open.as_mut().filter(|open| open.handle == handle) {
                let old = std::mem::take(&mut open.logs);
                open.logs = crate::model::logs::LogPane {
                    store,
                    cursor: None,
                    top: None,
                    bookmarks: Vec::new(),
                    ..old
                };
                open.logs_ended = false;
            }
            return logs::refilter(model);
        }
        Msg::LogsGrew => logs::grew(model),
        Msg::LogsEnded(handle, error) => {
            if let Some(open) = model.open.as_mut().filter(|open| open.handle == handle) {
                open.logs_ended = true;
                open.logs.update();
            }
            if let Some(error) = error {
                model.fail(format!("logs of {}: {error}", handle.name()));
            }
        }
        Msg::Picture(handle, picture) => {
            if let Some(entry) = model.jobs.get_mut(&handle) {
                entry.verdict = Some((picture.verdict.clone(), picture.ok));
            }
            if let Some(open) = model.open.as_mut().filter(|open| open.handle == handle) {
                open.picture = picture;
            }
        }
        Msg::Submitted(Ok(handle)) | Msg::Demo(Ok(handle)) => {
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
        Msg::Demo(Err(error)) => model.fail(format!("the demo did not start: {error}")),
        Msg::Acted(handle, action, Ok(())) => {
            model.say(format!("{} {}: done", screens::verb(action), handle.name()));
            return vec![Effect::Refresh];
        }
        Msg::Acted(handle, action, Err(error)) => {
            model.fail(format!("{} {}: {error}", screens::verb(action), handle.name()));
        }
        Msg::Saved(Ok(path)) => model.say(format!("saved {}", path.display())),
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
    let wanted =
        model.wanted.take_if(|wanted| model.jobs.entries.iter().any(|e| e.summary.handle == *wanted));
    wanted.map_or_else(Vec::new, |handle| screens::open(model, &handle))
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
    let open = model.open.as_mut().filter(|open| Some(&open.handle) == of);
    let Some(open) = open else { return Vec::new() };
    open.event(event);
    Vec::new()
}
