//! Plans, checks and submits drafts; opens them in the editor.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::sync::mpsc;
use weftrun::core::fabric::{FabricPlan, Op, RuleSetting};
use weftrun::core::job::JobHandle;
use weftrun::core::log::clean_text;
use weftrun::core::spec::file::MAX_SCRIPT;
use weftrun::core::spec::{JobFile, JobSpec, to_toml};
use weftrun::{Client, Error, ErrorKind, Finding, JobSource, Plan, Result};

use super::effects::said;
use crate::model::draft::{Basis, Planned};
use crate::msg::Msg;

/// How long typing must pause before the cluster is queried.
const PAUSE: Duration = Duration::from_millis(400);
/// Time limit of a query for the cluster's facts.
const PATIENCE: Duration = Duration::from_secs(5);

/// Plans a draft: at once with assumed facts, then with the cluster's.
pub(super) async fn plan(
    client: Client,
    revision: u64,
    target: String,
    spec: JobSpec,
    outbox: mpsc::Sender<Msg>,
) {
    // It is read once typing pauses: this task ends with the next key.
    if is_unread(&spec) {
        tokio::time::sleep(PAUSE).await;
    }
    let spec = match with_code(spec).await {
        Ok(spec) => spec,
        Err(error) => {
            let _ = outbox.send(Msg::Planned(revision, Err(said(&error)))).await;
            return;
        }
    };
    let offline = match client.plan_offline(&target, &spec) {
        Ok(plan) => planned(&client, &plan, Basis::Assumed).await,
        Err(error) => Err(error),
    };
    let send = |answer: Result<Planned>| {
        let msg = Msg::Planned(revision, answer.map(Box::new).map_err(|error| said(&error)));
        outbox.send(msg)
    };
    let assumed = offline.as_ref().ok().cloned();
    let _ = send(offline).await;
    tokio::time::sleep(PAUSE).await;
    let asked = tokio::time::timeout(PATIENCE, client.plan(&target, &spec)).await;
    match (asked, assumed) {
        (Ok(Ok(plan)), _) => {
            let _ = send(planned(&client, &plan, Basis::Cluster).await).await;
        }
        (_, Some(assumed)) => {
            let _ = send(Ok(Planned { basis: Basis::Unanswered, ..assumed })).await;
        }
        (_, None) => {}
    }
}

async fn planned(client: &Client, plan: &Plan, basis: Basis) -> Result<Planned> {
    let planned = plan.planned();
    let changes =
        |spec: &JobSpec| FabricPlan::new(spec, client.catalogue(), &planned.facts, &planned.profile).ops;
    let mut full = planned.spec.clone();
    full.fabric.rules.retain(|_, setting| *setting != RuleSetting::Off);
    let all = changes(&full);
    let bare = match client.plan_offline_for(plan.target().clone(), &without(&planned.spec, changes)) {
        Ok(plan) => plan.render().await.ok(),
        Err(_) => None,
    };
    let sent = plan.render().await.map_err(|error| said(&error));
    let sent = sent.as_ref().map_err(Clone::clone);
    let names =
        |names: &mut dyn Iterator<Item = &String>| names.map(|name| clean_text(name).into_owned()).collect();
    let queues = names(&mut planned.facts.queues.iter().map(|queue| &queue.name));
    let priorities = names(&mut planned.facts.priorities.iter());
    Ok(Planned { queues, priorities, ..Planned::new(plan.fabric().clone(), all, bare.as_ref(), sent, basis) })
}

/// Returns the job with every rule off that would change it. Switching one rule off may activate another: a
/// few rounds find all.
fn without(spec: &JobSpec, changes: impl Fn(&JobSpec) -> Vec<Op>) -> JobSpec {
    let mut bare = spec.clone();
    for _ in 0..4 {
        let more = changes(&bare);
        if more.is_empty() {
            break;
        }
        bare.fabric.rules.extend(more.into_iter().map(|op| (op.rule, RuleSetting::Off)));
    }
    bare
}

/// Returns whether the folder of the code was typed into the form, and not read yet.
fn is_unread(spec: &JobSpec) -> bool {
    matches!(spec.code_folder(), Some((_, None)))
}

/// Reads the folder of the code that was typed into the form. It is relative to the working folder.
async fn with_code(mut spec: JobSpec) -> Result<JobSpec> {
    if let Some((dir, None)) = spec.code_folder() {
        let dir = dir.to_owned();
        let read = tokio::task::spawn_blocking(move || weftrun::code_folder(dir)).await;
        let ended = |error| Error::new(ErrorKind::Unexpected, "the folder was not read").with_source(error);
        spec.code = Some(read.map_err(ended)??);
    }
    Ok(spec)
}

/// Checks on the cluster whether it would accept a draft.
pub(super) async fn check(client: Client, target: String, spec: JobSpec) -> Result<Vec<Finding>> {
    client.plan(&target, &with_code(spec).await?).await?.check().await
}

pub(super) async fn submit(client: Client, target: String, spec: JobSpec) -> Result<JobHandle> {
    Ok(client.plan(&target, &with_code(spec).await?).await?.submit().await?.handle().clone())
}

/// Reads a job file. A script outside its folder is refused: no prompt is possible while the screen is drawn.
pub(super) fn read(path: &Path) -> Result<Box<JobSpec>, String> {
    job_of(&JobSource::read(path).map_err(|error| said(&error))?, None)
}

/// Reads a job, whose folder was already read if it is that of the job before.
fn job_of(source: &JobSource, before: Option<&JobSpec>) -> Result<Box<JobSpec>, String> {
    let mut job = JobFile::parse(&source.name, &source.bytes).map_err(|error| said(&error))?;
    if let Some(script) = job.script.clone() {
        let bytes = source
            .read_beside(&script, "script", MAX_SCRIPT, |outside| Err(outside.refusal()))
            .map_err(|error| said(&error))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{script}: not UTF-8 text"))?;
        job.set_script(text);
    }
    if let Some(dir) = job.code_dir() {
        if let Some((known, Some(content))) = before.and_then(JobSpec::code_folder)
            && known == dir
        {
            job.set_code(content.clone());
            return Ok(Box::new(job.spec));
        }
        let read = source.read_code_beside(&dir, |outside| Err(outside.refusal()));
        job.set_code(read.map_err(|error| said(&error))?.0);
    }
    Ok(Box::new(job.spec))
}

/// Opens a job in the user's editor; returns the edited job.
pub(super) fn edit(spec: &JobSpec) -> Result<Box<JobSpec>, String> {
    let editor =
        std::env::var("VISUAL").or_else(|_| std::env::var("EDITOR")).unwrap_or_else(|_| "vi".to_owned());
    let file =
        tempfile::Builder::new().prefix("weftrun-").suffix(".toml").tempfile().map_err(|e| e.to_string())?;
    std::fs::write(file.path(), to_toml(spec)).map_err(|error| error.to_string())?;
    let words = crate::model::words::words(&editor).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| format!("$EDITOR `{editor}` is not a command"))?;
    let status = Command::new(&words[0]).args(&words[1..]).arg(file.path()).status();
    match status {
        Ok(status) if status.success() => {
            let bytes = std::fs::read(file.path()).map_err(|error| error.to_string())?;
            // Paths are relative to the working directory, not to the temporary file.
            job_of(&JobSource::new(file.path().display().to_string(), bytes), Some(spec))
        }
        Ok(status) => Err(format!("{editor} ended with {status}; nothing was changed")),
        Err(error) => Err(format!("{editor}: {error}; set $EDITOR")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_folder_that_was_typed_is_read() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("train.py"), "print(1)").unwrap();
        let role = weftrun::core::spec::Role::worker().command(["train.py"]);
        let mut spec = JobSpec::builder("job").role(role).build().unwrap();
        let typed = |dir: &Path| {
            let dir = dir.display().to_string();
            Some(weftrun::core::spec::Code::Folder { dir, content: None })
        };
        spec.code = typed(place.path());
        let read = with_code(spec.clone()).await.unwrap();
        assert_eq!(read.code_folder().and_then(|(_, content)| content).map(|content| content.files), Some(1));
        spec.code = typed(&place.path().join("absent"));
        let error = with_code(spec).await.unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }

    #[test]
    fn an_invalid_job_says_its_reason_and_its_fix() {
        let role = weftrun::core::spec::Role::worker().command(["train.py"]);
        let mut spec = JobSpec::builder("job").role(role).build().unwrap();
        spec.name = "My Job".to_owned();
        let error = spec.refuse_invalid(&weftrun::core::catalogue::Catalogue::builtin()).unwrap_err();
        let finding = error.findings().first().unwrap();
        let (text, fix) = (said(&error), finding.fix.as_ref().map(|fix| fix.text.as_str()));
        assert!(text.contains(&finding.message), "{text}");
        assert!(fix.is_none_or(|fix| text.contains(fix)) && fix.is_some(), "{text}");
    }
}
