//! The new job: typing, planning on every change, switching rules, submitting.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;
use weftrun::Finding;
use weftrun::core::finding::{Fix, PatchEdit};
use weftrun::core::log::clean_text;
use weftrun::core::spec::{JobFile, JobSpec, Role, patched, to_toml};

use super::screens::{copy, distance, prompt};
use crate::action::Action;
use crate::model::draft::{Field, LAUNCHES, NewJobForm, Shown};
use crate::model::layer::{Layer, Prompt, Question};
use crate::model::{Model, Screen};
use crate::msg::{Effect, Msg};
use crate::safe;

/// Shows the new job, beginning one if there is none.
pub(super) fn begin(model: &mut Model) -> Vec<Effect> {
    model.screen = Screen::Submit;
    if let Some(draft) = &model.draft {
        let text = format!("this is the draft of {}; ctrl-n begins a blank job", draft.text(Field::Name));
        let planned = draft.planned.is_some();
        model.say(text);
        return if planned { Vec::new() } else { changed(model) };
    }
    if model.other_drafts.is_empty() {
        return blank(model);
    }
    let draft = NewJobForm::restored(&model.other_drafts.remove(0), model.choices());
    model.say(format!(
        "the draft of {} from another weftrun; ctrl-n begins a blank job",
        draft.text(Field::Name)
    ));
    model.draft = Some(draft);
    changed(model)
}

pub(super) fn blank(model: &mut Model) -> Vec<Effect> {
    model.draft = None;
    match blank_job() {
        Ok(spec) => take(model, spec, None),
        Err(_) => Vec::new(),
    }
}

fn blank_job() -> weftrun::Result<JobSpec> {
    let role = Role::worker().gpus_per_node(8).command(["train.py"]);
    JobSpec::builder("job").role(role).launch(LAUNCHES[0]).build()
}

fn take(model: &mut Model, spec: JobSpec, file: Option<String>) -> Vec<Effect> {
    let choices = model.choices();
    let target = model.draft.as_ref().map_or(model.default_target.clone(), |d| d.target_name().to_owned());
    model.draft = Some(NewJobForm::new(spec, file, choices, &target));
    model.screen = Screen::Submit;
    changed(model)
}

/// Creates a new job like the one under the cursor or the open one.
pub(super) fn again(model: &mut Model) -> Vec<Effect> {
    let handle = model.current();
    let open = model.open.as_ref().filter(|open| Some(&open.handle) == handle.as_ref());
    let Some(mut spec) = open.and_then(|open| open.spec.clone()) else {
        model.say(if open.is_some() {
            "what this job was made of is not known here: it was submitted elsewhere"
        } else {
            "open the job first"
        });
        return Vec::new();
    };
    let target = handle.map(|handle| handle.target().to_owned());
    spec.name = next_name(&spec.name);
    let effects = take(model, spec, None);
    aim(model, target.as_deref(), effects)
}

/// Selects a target for the draft, if it exists.
fn aim(model: &mut Model, target: Option<&str>, effects: Vec<Effect>) -> Vec<Effect> {
    let Some(draft) = &mut model.draft else { return effects };
    match draft.targets.iter().position(|name| Some(name.as_str()) == target) {
        Some(at) if at != draft.target => {
            draft.target = at;
            changed(model)
        }
        _ => effects,
    }
}

/// `name-2` behind `name`, `name-3` behind `name-2`.
pub(super) fn next_name(name: &str) -> String {
    match name.rsplit_once('-').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?))) {
        Some((stem, number)) if number < 10_000 => format!("{stem}-{}", number + 1),
        _ => format!("{name}-2"),
    }
}

/// Saves the job as a file, which the equivalent command then names.
pub(super) fn save(model: &mut Model, path: &str) -> Result<Vec<Effect>, String> {
    let Some(draft) = &mut model.draft else { return Ok(Vec::new()) };
    let text = to_toml(&draft.spec()?);
    Ok(vec![Effect::Save(path.into(), text.lines().map(|line| line.as_bytes().to_vec()).collect())])
}

/// Passes a key to the field under the cursor; returns none if the field does not accept it.
pub(super) fn type_key(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    if model.screen != Screen::Submit {
        return None;
    }
    let draft = model.draft.as_mut()?;
    let control = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match (draft.field, key.code) {
        (Field::Changes, KeyCode::Enter | KeyCode::Char(' ')) if !control => Some(toggle(model)),
        (_, KeyCode::Esc | KeyCode::Tab | KeyCode::BackTab | KeyCode::F(_)) | (Field::Changes, _) => None,
        (_, KeyCode::Enter) => Some(focus(model, 1)),
        (_, KeyCode::Down) => Some(focus_row(draft, 1)),
        (_, KeyCode::Up) => Some(focus_row(draft, -1)),
        (field, KeyCode::Left | KeyCode::Right | KeyCode::Char(' ')) if !field.is_text() && !control => {
            let forward = key.code != KeyCode::Left;
            let (names, chosen) = draft.choice(field)?;
            let count = names.len().max(1);
            *chosen = if forward { (*chosen + 1) % count } else { (*chosen + count - 1) % count };
            Some(changed(model))
        }
        // A letter or a digit selects the next option that begins with it, and is never an action of the screen.
        (field, KeyCode::Char(letter)) if !field.is_text() && !control && letter.is_alphanumeric() => {
            let (names, chosen) = draft.choice(field)?;
            let begins = |name: &str| name.to_lowercase().starts_with(letter.to_ascii_lowercase());
            let mut next = (1..=names.len()).map(|by| (*chosen + by) % names.len());
            let next = next.find(|at| names.get(*at).is_some_and(|name| begins(name)));
            let Some(next) = next.filter(|next| next != chosen) else {
                model.say(format!("no other {} begins with `{letter}`", field.label()));
                return Some(Vec::new());
            };
            *chosen = next;
            Some(changed(model))
        }
        (field, _)
            if field.is_text() && (!control || matches!(key.code, KeyCode::Char('w' | 'u' | 'a' | 'k'))) =>
        {
            let (_, input) = draft.inputs.iter_mut().find(|(known, _)| *known == field)?;
            let before = input.value().to_owned();
            input.handle_event(&Event::Key(key));
            Some(if input.value() == before { Vec::new() } else { changed(model) })
        }
        _ => None,
    }
}

/// Moves to the field above or below; the changes are below the last row and above the first.
fn focus_row(draft: &mut NewJobForm, by: isize) -> Vec<Effect> {
    let rows = Field::ROWS;
    let here = rows
        .iter()
        .enumerate()
        .find_map(|(at, row)| row.iter().position(|field| *field == draft.field).map(|column| (at, column)));
    let Some((row, column)) = here else { return Vec::new() };
    let next = row.checked_add_signed(by).and_then(|row| rows.get(row));
    draft.field = next.and_then(|row| row.get(column).or(row.last())).copied().unwrap_or(Field::Changes);
    Vec::new()
}

fn focus(model: &mut Model, by: isize) -> Vec<Effect> {
    if let Some(draft) = &mut model.draft {
        let count = Field::LABELS.len();
        let at = Field::LABELS.iter().position(|(field, _)| *field == draft.field).unwrap_or(0);
        let next = if by > 0 { (at + 1) % count } else { (at + count - 1) % count };
        draft.field = Field::LABELS[next].0;
    }
    Vec::new()
}

/// Plans the draft again after a change.
fn changed(model: &mut Model) -> Vec<Effect> {
    let Some(draft) = &mut model.draft else { return Vec::new() };
    draft.revision += 1;
    match draft.spec() {
        Ok(spec) => vec![Effect::Plan(draft.revision, draft.target_name().to_owned(), Box::new(spec))],
        Err(error) => {
            draft.planned = Some(Err(error));
            Vec::new()
        }
    }
}

pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let page = usize::from(model.size.1) / 2;
    let Some(draft) = &mut model.draft else { return Vec::new() };
    match action {
        Action::Next => return focus(model, 1),
        Action::Previous => return focus(model, -1),
        Action::Toggle => return toggle(model),
        Action::UndoRules => {
            draft.off.clear();
            return changed(model);
        }
        Action::Diff => {
            draft.shown = match draft.shown {
                Shown::Changes => Shown::Diff,
                Shown::Diff => Shown::Beside,
                Shown::Beside => Shown::Changes,
            };
            draft.scroll = None;
            draft.field = Field::Changes;
        }
        Action::Blank if draft.revision > 1 => model.layers.push(Layer::Confirm(Question::Blank)),
        Action::Blank => return blank(model),
        Action::Pick => pick(model),
        Action::File => prompt(model, Prompt::JobFile, String::new()),
        Action::SaveJob => {
            let name = format!("{}.toml", draft.text(Field::Name));
            prompt(model, Prompt::SaveJob, name);
        }
        Action::Edit | Action::Check | Action::Submit => return with_spec(model, action),
        Action::Copy => {
            let command = draft.command();
            match command {
                Ok(command) => return copy(model, command),
                Err(mistake) => model.fail(format!("nothing copied: the form has a mistake: {mistake}")),
            }
        }
        // Page keys scroll the document; single steps move between changes.
        Action::PageUp | Action::PageDown if draft.shown != Shown::Changes => {
            let by = distance(action, page).unwrap_or_default();
            let from = draft.scroll.unwrap_or_else(|| draft.line());
            draft.scroll = Some(from.saturating_add_signed(by).min(100_000));
        }
        action => {
            let Some(by) = distance(action, page) else { return Vec::new() };
            if !draft.step(by) {
                return focus(model, -1);
            }
        }
    }
    Vec::new()
}

/// Opens the list of values of the field under the cursor, if there is one.
fn pick(model: &mut Model) {
    let Some(draft) = &mut model.draft else { return };
    let field = draft.field;
    let known: Option<Vec<(String, String)>> = match field {
        Field::Instance => Some(model.instances.clone()),
        Field::Queue | Field::Priority => match &draft.planned {
            Some(Ok(planned)) => {
                let names = if field == Field::Queue { &planned.queues } else { &planned.priorities };
                Some(names.iter().map(|name| (name.clone(), String::new())).collect())
            }
            _ => None,
        },
        field => draft.choice(field).map(|(names, _)| {
            let about =
                |name: &str| if name.is_empty() { "the target's own".to_owned() } else { String::new() };
            names.into_iter().map(|name| (name.to_owned(), about(name))).collect()
        }),
    };
    match known.filter(|values| !values.is_empty()) {
        Some(values) => {
            model.layers.push(Layer::Pick { field, values, input: Input::default(), selected: 0 });
        }
        None => model.say(format!("no list of values is known for {}: type it", field.label())),
    }
}

pub(super) fn take_value(model: &mut Model, field: Field, value: &str) -> Vec<Effect> {
    let Some(draft) = &mut model.draft else { return Vec::new() };
    if let Some((names, chosen)) = draft.choice(field) {
        if let Some(at) = names.iter().position(|name| *name == value) {
            *chosen = at;
        }
    } else if let Some((_, input)) = draft.inputs.iter_mut().find(|(known, _)| *known == field) {
        *input = Input::new(value.to_owned());
    }
    changed(model)
}

fn with_spec(model: &mut Model, action: Action) -> Vec<Effect> {
    let Some(draft) = &mut model.draft else { return Vec::new() };
    let spec = match draft.spec() {
        Ok(spec) => Box::new(spec),
        Err(error) => {
            model.fail(error);
            return Vec::new();
        }
    };
    let target = draft.target_name().to_owned();
    if action != Action::Edit && model.jobs.is_read_only(&target) {
        model.fail(format!("target `{target}` only shows jobs: choose another one, or ctrl-g saves the job"));
        return Vec::new();
    }
    let unknown = draft.unknown_names(&model.instances);
    if let (Action::Submit, Some(first)) = (action, unknown.first())
        && draft.told != Some(draft.revision)
    {
        draft.told = Some(draft.revision);
        let key = model.keymap.first_key("submit");
        let text = format!("{first} ({key} again submits it as it is)");
        model.fail(text);
        return Vec::new();
    }
    match action {
        Action::Edit => vec![Effect::Edit(spec)],
        Action::Check => {
            let revision = draft.revision;
            model.say(format!("checking with {target} …"));
            vec![Effect::Check(revision, target, spec)]
        }
        _ if draft.sending => {
            model.say("it is on its way already");
            Vec::new()
        }
        _ => {
            // While the confirmation is shown, the cluster is asked whether it would accept the job.
            let revision = draft.revision;
            let known = draft.checked.as_ref().is_some_and(|(checked, _)| *checked == revision);
            model.layers.push(Layer::Confirm(Question::Submit(revision)));
            if known { Vec::new() } else { vec![Effect::Check(revision, target, spec)] }
        }
    }
}

/// Submits the draft, if it is still the confirmed revision.
pub(super) fn send(model: &mut Model, revision: u64) -> Vec<Effect> {
    let Some(draft) = model.draft.as_mut().filter(|draft| draft.revision == revision) else {
        model.fail("the job was changed meanwhile; check again");
        return Vec::new();
    };
    match draft.spec() {
        Ok(spec) => {
            draft.sending = true;
            let target = draft.target_name().to_owned();
            model.say(format!("submitting to {target} …"));
            vec![Effect::Submit(target, Box::new(spec))]
        }
        Err(error) => {
            model.fail(error);
            Vec::new()
        }
    }
}

/// Switches the rule of the change under the cursor off or on.
fn toggle(model: &mut Model) -> Vec<Effect> {
    let Some(draft) = &mut model.draft else { return Vec::new() };
    let Some(op) = draft.changes().get(draft.change).cloned() else { return Vec::new() };
    if draft.off.remove(&op.rule) {
        model.say(format!("rule {} is on again", op.rule));
    } else if draft.is_off(&op) {
        model.say(format!("{} is off since it depends on another rule that is off", op.rule));
        return Vec::new();
    } else {
        draft.off.insert(op.rule.clone());
        model.say(format!("rule {} is off; space switches it on", op.rule));
    }
    changed(model)
}

/// Returns whether a finding's fix changes the job that a new one would be made of.
pub(crate) fn changes_job(model: &Model, finding: &Finding) -> bool {
    let Some(fix) = finding.fix.as_ref().filter(|fix| !fix.patch.is_empty()) else { return false };
    let open = model.open.as_ref().and_then(|open| open.spec.clone());
    let spec = open.or_else(|| model.draft.as_ref().and_then(|draft| draft.spec().ok()));
    let Some(spec) = spec.or_else(|| blank_job().ok()) else { return false };
    with_fix(&spec, fix).is_ok_and(|(same, _)| !same)
}

/// Applies a fix to a job, and returns whether it changes nothing, and the job.
fn with_fix(spec: &JobSpec, fix: &Fix) -> Result<(bool, JobSpec), String> {
    let parse = |toml: &str| JobFile::parse("job.toml", toml.as_bytes()).map_err(|error| error.to_string());
    let before = to_toml(spec);
    let after = patched("job.toml", &before, &fix.patch).map_err(|error| error.to_string())?;
    let after = parse(&after)?.spec;
    Ok((parse(&before)?.spec == after, after))
}

/// Puts a finding's fix into a new job like the open one.
pub(super) fn from_fix(model: &mut Model, finding: &Finding) -> Vec<Effect> {
    let Some(fix) = &finding.fix else {
        model.say("this finding has no fix");
        return Vec::new();
    };
    let (fix, text) = (fix.clone(), fix.text.clone());
    // The new job is like the one the finding is about; if that is unknown, it is the present draft, or an
    // empty one.
    let known = model.open.as_ref().is_some_and(|open| open.spec.is_some());
    let mut effects = if known { again(model) } else { begin(model) };
    let Some(draft) = &model.draft else { return effects };
    if fix.patch.is_empty() {
        model.say(format!("to do by hand: {text}"));
        return effects;
    }
    let (file, target) = (draft.file.clone(), draft.target_name().to_owned());
    let patched = draft.spec().and_then(|spec| with_fix(&spec, &fix));
    let edits: Vec<String> = fix.patch.iter().map(edit_text).collect();
    let edits = edits.join(", ");
    match patched {
        Ok((true, _)) => model.say(format!("the job has {edits} already; by hand: {text}")),
        Ok((false, spec)) => {
            effects = take(model, spec, file);
            effects = aim(model, Some(&target), effects);
            model.say(format!("in the new job: {edits}"));
        }
        Err(error) => model.fail(format!("{error}; to do by hand: {text}")),
    }
    effects
}

/// Describes an edit of a job file: `fabric = "efa"`, `no env.NCCL_NET`.
pub(crate) fn edit_text(edit: &PatchEdit) -> String {
    let text = match (&edit.value, edit.op.as_str()) {
        (Some(value), _) => format!("{} = {value}", edit.path),
        (None, "unset") => format!("no {}", edit.path),
        (None, op) => format!("{op} {}", edit.path),
    };
    clean_text(&text).into_owned()
}

/// Applies the result of planning, checking or reading.
pub(super) fn answer(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Spec(file, Ok(spec)) => {
            model.say("job taken");
            let file = file.or_else(|| model.draft.as_ref().and_then(|draft| draft.file.clone()));
            return take(model, *spec, file);
        }
        Msg::Spec(_, Err(error)) => model.fail(error),
        Msg::Planned(revision, answer) => {
            if let Some(draft) = model.draft.as_mut().filter(|draft| draft.revision == revision) {
                draft.planned = Some(answer.map(|planned| *planned));
                draft.change = draft.change.min(draft.changes().len().saturating_sub(1));
            }
        }
        Msg::Checked(revision, answer) => {
            if let Some(draft) = model.draft.as_mut().filter(|draft| draft.revision == revision) {
                let answer = answer.map(|findings| findings.into_iter().map(safe::finding).collect());
                draft.checked = Some((revision, answer));
            }
        }
        _ => {}
    }
    Vec::new()
}
