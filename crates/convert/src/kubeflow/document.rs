//! Reads, decides and changes one document.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::Value as Json;

use super::object::steps;
use super::object_kind::{ObjectKind, kind_of_json, kind_of_tree};
use super::trainjob::{self, Runtime, TrainerVersion};
use super::{apply, job, own_runtime, workload};
use crate::edit::{Blocked, edit, emit, same};
use crate::lint;
use crate::mutate::{MutateOptions, Mutated, SourceText, Start};
use crate::report::MutatedJob;
use crate::without_job::script_is_no_job;
use weftrun_core::fabric::decide;
use weftrun_core::fabric::evidence::{Form, choose};
use weftrun_core::fabric::view::{JobKind, JobView, Workload};
use weftrun_core::shell::{SCRIPT_WITHOUT_INTERPRETER, is_script_without_interpreter};
use weftrun_core::span::{SpanDocument, SpanTree, SyntaxError, Value, json, yaml_documents, yaml_texts};
use weftrun_core::spec::{is_runtime, tool_of};
use weftrun_core::{Error, ErrorKind, Finding, explain};

/// Mutates a text that holds one document, or several that are not separated by `---`.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`](weftrun_core::ErrorKind::InvalidSpec) with a finding of code `E-YAML-SYNTAX`: the text cannot be read.
pub fn mutate<'t>(
    text: &'t str,
    start: Start<'_>,
    settings: &MutateOptions<'_>,
) -> weftrun_core::Result<Mutated<'t>> {
    let mut out = Mutated { text: Cow::Borrowed(text), jobs: Vec::new() };
    let is_object = memchr::memmem::find(text.as_bytes(), b"apiVersion").is_some();
    if is_object && !may_hold_a_job(text) {
        return Ok(out);
    }
    let syntax = Syntax::of(text);
    let refused =
        |error: SyntaxError| Error::from_finding(ErrorKind::InvalidSpec, unreadable(&error, text, start));
    let documents = syntax.read(text).map_err(refused)?;
    let foreign = documents
        .iter()
        .find_map(|document| Some((no_manifest(text, &document.root)?, document.root.span.clone())))
        .or_else(|| no_document(text, &documents).map(|finding| (finding, 0..0)));
    if let Some((finding, span)) = foreign {
        let finding = finding.span(start.of_text(text).span(&span));
        return Err(Error::from_finding(ErrorKind::InvalidSpec, finding));
    }
    if let [document] = documents.as_slice() {
        if let Some(new) = one(&start.of_text(text), document, syntax, settings, &mut out.jobs) {
            out.text = Cow::Owned(new);
        }
        return Ok(out);
    }
    // Each document is changed in a text of its own: in the whole, each change would move what follows.
    let (mut whole, mut changed, mut start) = (String::with_capacity(text.len()), false, start);
    for own in yaml_texts(text).map_err(refused)? {
        let documents = syntax.read(own).map_err(refused)?;
        let new = match documents.as_slice() {
            [document] => one(&start.of_text(own), document, syntax, settings, &mut out.jobs),
            _ => None,
        };
        changed |= new.is_some();
        whole.push_str(new.as_deref().unwrap_or(own));
        start.offset += own.len();
        start.line += memchr::memchr_iter(b'\n', own.as_bytes()).count();
    }
    if changed {
        out.text = Cow::Owned(whole);
    }
    Ok(out)
}

/// Returns whether a text may hold a job. A cheap check, so that a stream of other objects passes at memory
/// speed.
fn may_hold_a_job(text: &str) -> bool {
    let has = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    let asks_accelerators = || ["/gpu", "neuron", "gaudi", "resourceClaims"].into_iter().any(has);
    // An escaped `apiVersion` in quotes would slip through a search for it.
    has("kubeflow") || (has("containers") && asks_accelerators()) || has("\\x") || has("\\u") || has("\\U")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Yaml,
    Json,
}

impl Syntax {
    pub fn of(text: &str) -> Self {
        // As kubectl does: what starts with a brace is JSON, if it is.
        if text.trim_start().starts_with('{') && json(text).is_ok() { Self::Json } else { Self::Yaml }
    }

    pub fn read(self, text: &str) -> Result<Vec<SpanDocument<'_>>, SyntaxError> {
        match self {
            Self::Json => json(text).map(|document| vec![document]),
            Self::Yaml => yaml_documents(text),
        }
    }
}

pub(super) fn unreadable(error: &SyntaxError, text: &str, start: Start<'_>) -> Finding {
    if let Some(finding) = script_is_no_job(text) {
        return finding.span(start.of_text(text).span(&(0..0)));
    }
    if let Some(finding) = script_without_interpreter(text) {
        return finding.span(start.of_text(text).span(&(0..0)));
    }
    let fix = match () {
        () if text.contains("{{") => "fill the template in first: helm template …, kustomize build …",
        () if text.contains("${") => "fill the template in first: envsubst < FILE",
        () => "correct the YAML; `kubectl apply --dry-run=client -f FILE` reads it the same way",
    };
    Finding::error("E-YAML-SYNTAX", format!("the manifest cannot be read: {}", error.message))
        .span(start.of_text(text).span(&error.span))
        .fix(fix)
}

/// Mutates the one document of a text; returns the new text if it changed.
fn one(
    text: &SourceText<'_>,
    document: &SpanDocument<'_>,
    syntax: Syntax,
    settings: &MutateOptions<'_>,
    reports: &mut Vec<MutatedJob>,
) -> Option<String> {
    let mut wanted = document.root.to_json();
    if kind_of_tree(&document.root) == ObjectKind::Other
        && workload::templates(&wanted, Workload::Unknown).is_empty()
    {
        return None;
    }
    let first = reports.len();
    let mut extra = Vec::new();
    if kind_of_json(&wanted) == ObjectKind::List {
        let items = document.root.get("items");
        for (index, item) in wanted["items"].as_array_mut().into_iter().flatten().enumerate() {
            let node = items.and_then(|items| items.items().get(index)).unwrap_or(&document.root);
            reports.extend(object(item, node, text, settings, &mut extra));
        }
        // A runtime must be created before the job that names it.
        if let Some(items) = wanted["items"].as_array_mut() {
            items.splice(0..0, extra.drain(..));
        }
    } else {
        reports.extend(object(&mut wanted, &document.root, text, settings, &mut extra));
    }
    let reports = &mut reports[first..];
    if reports.iter().any(|report| report.error().is_some()) || !reports.iter().any(|report| report.changed) {
        return None;
    }
    let says = |text: &str, wanted: &Json| {
        Ok(syntax.read(text)?.first().is_some_and(|document| same(&document.root, wanted)))
    };
    match edit(text.text, document, &wanted, says) {
        Ok(edited) => {
            say_written_out(&edited.written_out, text, document, reports);
            Some(with_extra(edited.text, document, &extra, syntax))
        }
        Err(blocked) if settings.reformat => {
            let new = reformatted(text, document, &wanted, &blocked, reports);
            Some(with_extra(new, document, &extra, syntax))
        }
        Err(blocked) => {
            let error = structure(&blocked, text);
            reports.iter_mut().filter(|report| report.changed).for_each(|report| report.fail(error.clone()));
            None
        }
    }
}

/// Reports values of an alias that are written out now, since the places differ.
fn say_written_out(
    paths: &[String],
    text: &SourceText<'_>,
    document: &SpanDocument<'_>,
    reports: &mut [MutatedJob],
) {
    let Some(report) = reports.iter_mut().find(|report| report.changed) else { return };
    for path in paths {
        let message = format!("{path} was an alias; it is written out, since it now differs from its anchor");
        let mut finding = Finding::info("I-ALIAS-WRITTEN-OUT", message)
            .at(path.clone())
            .fix("nothing; a later change of the anchor does not reach it any more");
        finding.span = at_pointer(&document.root, path).map(|node| text.span(&node.span));
        report.plan.findings.push(finding);
    }
}

/// Makes the decisions for one object and changes its data.
fn object(
    data: &mut Json,
    node: &SpanTree<'_>,
    text: &SourceText<'_>,
    settings: &MutateOptions<'_>,
    extra: &mut Vec<Json>,
) -> Option<MutatedJob> {
    if kind_of_json(data) == ObjectKind::OtherVersion {
        return Some(MutatedJob::of_other_version(data, text.start.file, text.span(&node.span).line));
    }
    let (job, version, runtime) = view(data, settings)?;
    if matches!(job.kind, JobKind::Workload(_))
        && !workload::asks_accelerators(&job, &settings.profile.accelerator)
    {
        return None;
    }
    let (settings, weighed) = &settings.chosen(Form::Manifest, |signs| {
        signs.object(data);
        runtime.object().into_iter().for_each(|runtime| signs.object(runtime));
    });
    let MutateOptions { profile, options, catalogue, facts, .. } = *settings;
    let plan = match weighed {
        Some(weighed) => choose::decide_existing(&job, profile, options, catalogue, facts, weighed.clone()),
        None => decide(&job, profile, options, catalogue, facts),
    };
    let mut report = MutatedJob::new(&job, plan, version.override_field());
    let span = text.span(&node.span);
    if job.kind == JobKind::Workload(Workload::Unknown) {
        data.get("kind").and_then(Json::as_str).unwrap_or_default().clone_into(&mut report.kind);
        report.plan.findings.extend(unknown_kind(data, &job));
    }
    text.start.file.clone_into(&mut report.file);
    report.line = span.line;
    if job.kind == JobKind::TrainJob {
        let trainer = settings.trainer.is_none() && TrainerVersion::of(data).is_none();
        let assumed = (trainer && report.changed).then(|| version.assumed());
        report.plan.findings.extend(match (runtime.is_known(), assumed) {
            (true, assumed) => assumed,
            (false, None) => Some(runtime_assumed(data)),
            (false, Some(assumed)) => {
                let mut finding = runtime_assumed(data);
                finding.message = format!("{}; {}", finding.message, assumed.message);
                Some(finding)
            }
        });
    }
    if report.changed {
        // Only a TrainJob of an old version can lack a field; then nothing of it is changed.
        let before = (job.kind == JobKind::TrainJob).then(|| data.clone());
        if job.kind == JobKind::TrainJob && runtime.launcher_apart().is_some() {
            let mut wanted = data.clone();
            if let Some(own) = own_runtime::apply(&mut wanted, &job, &report.plan.ops, &runtime) {
                report.actions.retain(|action| !action.ends_with(" entry added"));
                report.actions.push("its own TrainingRuntime added".to_owned());
                extra.push(own);
                *data = wanted;
            }
        } else if let Err(finding) = apply::apply(data, &job, &report.plan.ops, &runtime, version) {
            if let Some(before) = before {
                *data = before;
            }
            let own = match report.plan.skip() {
                None if job.kind == JobKind::TrainJob => {
                    own_runtime::apply_rest(data, &job, &report.plan.ops, &runtime, version)
                }
                _ => None,
            };
            match report.plan.skip() {
                None if own.is_some() => {
                    report.actions.push("its own TrainingRuntime added".to_owned());
                    extra.extend(own);
                }
                // Repeating the job's values in the pods is only a convenience, so a failure does not stop
                // the mutation.
                Some(_) => {
                    report.pass();
                    let message = format!("the opt-out cannot be added to the pods: {}", finding.message);
                    let fix = "beside a webhook, put the annotation into a TrainingRuntime of your namespace";
                    let subject = finding.subject.unwrap_or_default();
                    report
                        .plan
                        .findings
                        .push(Finding::warning("W-OPTOUT-PODS", message).at(subject).fix(fix));
                }
                None => report.fail(finding),
            }
        }
        extra.extend(apply::companions(&report.plan.ops).cloned());
    }
    let pointers = Pointers::default();
    if report.changed {
        for found in lint::against(&job, report.plan.fabric, profile, catalogue) {
            let at = pointers.at(node, &found.at).unwrap_or(node);
            report.plan.findings.push(explain::with_source(found.finding).span(text.span(&at.span)));
        }
    }
    for finding in &mut report.plan.findings {
        if finding.span.is_none() {
            finding.span = Some(
                place_of(finding, &job, node, &pointers).map_or_else(|| span.clone(), |at| text.span(&at)),
            );
        }
    }
    Some(report)
}

pub(super) fn view<'s>(
    data: &Json,
    settings: &MutateOptions<'s>,
) -> Option<(JobView, TrainerVersion, Runtime<'s>)> {
    let kind = match kind_of_json(data) {
        ObjectKind::Job(kind) => kind,
        // What asks for no accelerator is no job, whatever it is.
        ObjectKind::Other if is_manifest(data) => JobKind::Workload(Workload::Unknown),
        ObjectKind::Other | ObjectKind::List | ObjectKind::OtherVersion => return None,
    };
    let runtime = Runtime::find(data, settings.runtimes);
    let version = settings.trainer.or_else(|| TrainerVersion::of(data)).unwrap_or_default();
    let job = match kind {
        JobKind::TrainJob => {
            own_runtime::view(data, &runtime).unwrap_or_else(|| trainjob::view(data, &runtime, version))
        }
        JobKind::Workload(kind) => workload::view(data, kind),
        kind => job::view(data, kind),
    };
    Some((job, version, runtime))
}

/// Returns whether an object has what every object of Kubernetes has.
fn is_manifest(object: &Json) -> bool {
    ["apiVersion", "kind"].iter().all(|key| object.get(key).is_some())
}

/// Reports a script that is all comments to YAML.
pub(super) fn no_document(text: &str, documents: &[SpanDocument<'_>]) -> Option<Finding> {
    documents.is_empty().then(|| script_is_no_job(text)).flatten()
}

fn script_without_interpreter(text: &str) -> Option<Finding> {
    is_script_without_interpreter(text).then(|| {
        Finding::error("E-NOT-MANIFEST", SCRIPT_WITHOUT_INTERPRETER).fix("move the `#!` line to the top")
    })
}

/// Reports a document that is no object of Kubernetes, by the tool whose it seems to be.
pub(super) fn no_manifest(text: &str, root: &SpanTree<'_>) -> Option<Finding> {
    let has = |key: &str| root.get(key).is_some();
    if has("apiVersion") || has("kind") {
        return None;
    }
    if let Some(finding) = script_is_no_job(text) {
        return Some(finding);
    }
    if matches!(root.value, Value::Null) {
        return None;
    }
    if let Some(finding) = script_without_interpreter(text) {
        return Some(finding);
    }
    let what = match tool_of(root) {
        Some(tool) => format!("this is {tool}"),
        None => "this is no object of Kubernetes: it has no `apiVersion` and no `kind`".to_owned(),
    };
    let message = format!("{what}; weftrun reads manifests, sbatch scripts and job files");
    let fix =
        "give the manifest that the tool makes of it (helm template, kustomize build), or write a job file";
    Some(Finding::error("E-NOT-MANIFEST", message).fix(fix))
}

/// Reports an object of a kind that weftrun does not know.
pub(super) fn unknown_kind(object: &Json, job: &JobView) -> Option<Finding> {
    let kind = object.get("kind").and_then(Json::as_str)?;
    if is_runtime(object) {
        return None;
    }
    let pods = if job.roles.iter().any(|role| role.replicas_unknown) {
        "the number of pods is not known"
    } else {
        "`replicas` beside it is taken for the number of pods"
    };
    let message =
        format!("weftrun does not read kind {kind}; a pod template in it is read all the same, and {pods}");
    let fix = "compare the pods that its controller makes with what is added here";
    Some(Finding::warning("W-KIND-UNKNOWN", message).at(kind).fix(fix))
}

fn runtime_assumed(data: &Json) -> Finding {
    let name = data.pointer("/spec/runtimeRef/name").and_then(Json::as_str).unwrap_or_default();
    Finding::info(
        "I-RUNTIME-ASSUMED",
        format!("the runtime `{name}` was not given; one job `node` with a container `node`, without MPI, was assumed"),
    )
    .at("trainer")
    .fix("give it with --runtime FILE (kubectl get clustertrainingruntime NAME -o yaml)")
}

/// Returns the container of the role that a finding names.
fn place_of<'n, 'a>(
    finding: &Finding,
    job: &JobView,
    node: &'n SpanTree<'a>,
    pointers: &Pointers<'n, 'a>,
) -> Option<std::ops::Range<usize>> {
    let subject = finding.subject.as_deref()?;
    let name = subject.split(':').next().unwrap_or(subject);
    let role = job.roles.iter().find(|role| role.name == name)?;
    pointers.at(node, &role.container.at).map(|node| node.span.clone())
}

/// Returns the value at a JSON pointer.
pub fn at_pointer<'n, 'a>(node: &'n SpanTree<'a>, pointer: &str) -> Option<&'n SpanTree<'a>> {
    steps(pointer).try_fold(node, |node, step| node.at([step.as_ref()]))
}

/// The values at many JSON pointers: a map of many keys is indexed at the first look-up, since each finding
/// about one of its keys would search all of them.
#[derive(Default)]
pub(super) struct Pointers<'n, 'a> {
    maps: RefCell<HashMap<usize, HashMap<&'n str, &'n SpanTree<'a>>>>,
}

impl<'n, 'a> Pointers<'n, 'a> {
    /// Returns the value at a JSON pointer, as [`at_pointer`] does.
    pub fn at(&self, node: &'n SpanTree<'a>, pointer: &str) -> Option<&'n SpanTree<'a>> {
        steps(pointer).try_fold(node, |node, step| match &node.value {
            Value::Map(entries) if entries.len() > Self::FEW => {
                let mut maps = self.maps.borrow_mut();
                let map = maps.entry(std::ptr::from_ref(node).addr());
                let by_key = || entries.iter().map(|entry| (entry.key.as_ref(), &entry.value)).collect();
                map.or_insert_with(by_key).get(step.as_ref()).copied()
            }
            _ => node.at([step.as_ref()]),
        })
    }

    const FEW: usize = 24;
}

fn structure(blocked: &Blocked, text: &SourceText<'_>) -> Finding {
    let at = if blocked.path.is_empty() { "the document" } else { blocked.path.as_str() };
    Finding::error("E-YAML-STRUCTURE", format!("{at} cannot be changed in place: {}", blocked.why))
        .at(at)
        .fix("write the value out where it is meant, or use --reformat, which loses comments")
        .span(text.span(&blocked.span))
}

/// Puts new documents before the one that needs them.
fn with_extra(text: String, document: &SpanDocument<'_>, extra: &[Json], syntax: Syntax) -> String {
    if extra.is_empty() {
        return text;
    }
    if syntax == Syntax::Json {
        return extra.iter().map(|object| format!("{object}\n")).collect::<String>() + &text;
    }
    let head = &text[..document.root.span.start.min(text.len())];
    let border = if head.lines().any(|line| line.starts_with("---")) { "" } else { "---\n" };
    let new: Vec<String> = extra.iter().map(emit::document).collect();
    format!("---\n{}{border}{text}", new.join("---\n"))
}

/// Rewrites the whole document.
fn reformatted(
    text: &SourceText<'_>,
    document: &SpanDocument<'_>,
    wanted: &Json,
    blocked: &Blocked,
    reports: &mut [MutatedJob],
) -> String {
    for report in reports.iter_mut().filter(|report| report.changed) {
        let message = format!("the document was rewritten without its comments: {}", blocked.why);
        let finding = Finding::warning("W-COMMENTS-LOST", message).at(blocked.path.clone());
        report.plan.findings.push(finding.span(text.span(&blocked.span)));
    }
    // The text before the document's first byte (`---`, a directive) stays; comments inside are lost.
    let head = text.text[..document.root.span.start]
        .lines()
        .take_while(|line| line.starts_with("---") || line.starts_with('%'));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    head + &emit::document(wanted)
}
