//! Findings about a manifest: the engine's lint of its jobs, and checks of the raw text.

use std::collections::BTreeSet;

use super::document::{Pointers, Syntax, no_document, no_manifest, unknown_kind, unreadable};
use super::{job, workload};
use crate::lint;
use crate::mutate::{MutateOptions, SourceText, Start};
use weftrun_core::Finding;
use weftrun_core::explain;
use weftrun_core::fabric::Profile;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::view::{JobKind, JobView, Workload};
use weftrun_core::span::{SpanDocument, SpanTree, Value};

/// Returns the findings about the objects of one text, in the order of the text.
pub fn lint_document(text: &str, start: Start<'_>, settings: &MutateOptions<'_>) -> Vec<Finding> {
    let documents = match Syntax::of(text).read(text) {
        Ok(documents) => documents,
        Err(error) => return vec![unreadable(&error, text, start)],
    };
    let mut findings = Vec::new();
    let (whole, text) = (text, &start.of_text(text));
    findings.extend(no_document(whole, &documents).map(|finding| finding.span(text.span(&(0..0)))));
    for document in &documents {
        duplicates(document, text, &mut findings);
        if let Some(finding) = no_manifest(whole, &document.root) {
            findings.push(finding.span(text.span(&document.root.span)));
        }
        match document.root.get("items").filter(|_| kind(&document.root).ends_with("List")) {
            Some(items) => {
                items.items().iter().for_each(|item| object(item, text, settings, &mut findings));
            }
            None => object(&document.root, text, settings, &mut findings),
        }
    }
    findings.sort_by_key(|finding| finding.span.as_ref().map_or(0, |span| span.start));
    // Roles that share a template by an alias share its faults: one place, one finding.
    let mut seen = BTreeSet::new();
    findings.retain(|finding| {
        let start = finding.span.as_ref().map(|span| span.start);
        seen.insert((start, finding.code.clone(), finding.message.clone()))
    });
    findings.into_iter().map(explain::with_source).collect()
}

fn kind<'n>(node: &'n SpanTree<'_>) -> &'n str {
    node.get("kind").and_then(SpanTree::as_str).unwrap_or_default()
}

fn duplicates(document: &SpanDocument<'_>, text: &SourceText<'_>, findings: &mut Vec<Finding>) {
    for duplicate in &document.duplicates {
        let message = format!("the key `{}` is set twice in one map; the later one is used", duplicate.key);
        let finding = Finding::warning("L-DUP-KEY", message).at(duplicate.key.clone());
        findings.push(finding.fix("merge the two").span(text.span(&duplicate.span)));
    }
}

fn object(
    node: &SpanTree<'_>,
    text: &SourceText<'_>,
    settings: &MutateOptions<'_>,
    findings: &mut Vec<Finding>,
) {
    labels(node, text, findings);
    let mut say = |finding: Finding, at: &SpanTree<'_>| findings.push(finding.span(text.span(&at.span)));
    versions(node, &mut say);
    fields(node, &mut say);
    let data = node.to_json();
    let Some(mut view) = view(node, &data, settings) else { return };
    for role in view.roles.iter_mut().filter(|role| role.instance_types.is_empty()) {
        role.instance_types.extend(settings.options.instance_type.clone());
    }
    if view.kind == JobKind::Workload(Workload::Unknown)
        && let Some(finding) = unknown_kind(&data, &view)
    {
        say(finding, node.get("kind").unwrap_or(node));
    }
    let (settings, _) = settings.chosen(Form::Manifest, |signs| signs.object(&data));
    ranks_per_node(node, &view, settings.profile, &mut say);
    let pointers = Pointers::default();
    for found in lint::job(&view, settings.options.kind, settings.profile, settings.catalogue) {
        let at = pointers.at(node, &found.at).unwrap_or(node);
        let place = text.text.get(at.span.clone()).and_then(|whole| whole.find(&found.word));
        let start = at.span.start + place.unwrap_or(0);
        let word = place.filter(|_| !found.word.is_empty()).map(|_| start..start + found.word.len());
        findings.push(found.finding.span(text.span(&word.unwrap_or_else(|| at.span.clone()))));
    }
}

/// Returns the job, by its kind alone: a manifest of an old API version is checked too.
fn view(node: &SpanTree<'_>, data: &serde_json::Value, settings: &MutateOptions<'_>) -> Option<JobView> {
    let version = node.get("apiVersion").and_then(SpanTree::as_str).unwrap_or_default();
    match kind(node) {
        "PyTorchJob" => Some(job::view(data, JobKind::PyTorchJob)),
        "MPIJob" if version == "kubeflow.org/v1" => Some(job::view(data, JobKind::MpiJobV1)),
        "MPIJob" => Some(job::view(data, JobKind::MpiJobV2)),
        _ => super::document::view(data, settings).map(|(job, ..)| job).filter(|job| {
            !matches!(job.kind, JobKind::Workload(_)) || workload::asks_accelerators(job, "nvidia.com/gpu")
        }),
    }
}

fn versions(node: &SpanTree<'_>, say: &mut impl FnMut(Finding, &SpanTree<'_>)) {
    const OLD: [&str; 4] =
        ["kubeflow.org/v1alpha1", "kubeflow.org/v1alpha2", "kubeflow.org/v1beta1", "kubeflow.org/v2alpha1"];
    let version = node.get("apiVersion");
    if let Some(at) =
        version.filter(|at| kind(node) == "MPIJob" && at.as_str().is_some_and(|v| OLD.contains(&v)))
    {
        let message = format!("MPIJob {} is no longer served", at.as_str().unwrap_or_default());
        say(Finding::error("L-API-VERSION", message).fix("write kubeflow.org/v2beta1"), at);
    }
}

fn labels(node: &SpanTree<'_>, text: &SourceText<'_>, findings: &mut Vec<Finding>) {
    const OLD: &str = "beta.kubernetes.io/instance-type";
    node.walk(&mut |below| {
        if let Some(entry) = below.entry(OLD) {
            let finding = Finding::warning("L-API-VERSION", format!("the label {OLD} is deprecated"))
                .rename(OLD, "node.kubernetes.io/instance-type");
            findings.push(finding.span(text.span(&entry.key_span)));
        }
    });
}

fn fields(node: &SpanTree<'_>, say: &mut impl FnMut(Finding, &SpanTree<'_>)) {
    let version = node.get("apiVersion").and_then(SpanTree::as_str).unwrap_or_default();
    if kind(node) == "MPIJob"
        && version == "kubeflow.org/v2beta1"
        && let Some(at) = node.at(["spec", "cleanPodPolicy"])
    {
        let message = "spec.cleanPodPolicy is not a field of MPIJob v2beta1; the API server ignores it";
        say(Finding::warning("L-FIELD-IGNORED", message).fix("move it to spec.runPolicy.cleanPodPolicy"), at);
    }
    node.walk(&mut |below| {
        if below.get("containers").is_some()
            && let Some(at) = below.get("imagePullPolicy")
        {
            let message = "imagePullPolicy is beside the containers; the API server ignores it";
            say(Finding::warning("L-FIELD-IGNORED", message).fix("move it into the container"), at);
        }
        let resources =
            ["limits", "requests"].into_iter().filter_map(|side| below.get("resources")?.get(side));
        for entry in resources.flat_map(SpanTree::entries).filter(|entry| entry.value.value == Value::Null) {
            let finding =
                Finding::error("L-NO-VALUE", format!("`{}` is requested without an amount", entry.key));
            say(finding.at(entry.key.to_string()).fix("write the number"), &entry.value);
        }
    });
}

/// Reports an `nprocPerNode` that differs from the GPUs of a worker: ranks without a GPU, or GPUs without a
/// rank.
fn ranks_per_node(
    node: &SpanTree<'_>,
    job: &JobView,
    profile: &Profile,
    say: &mut impl FnMut(Finding, &SpanTree<'_>),
) {
    let Some(at) = node.at(["spec", "nprocPerNode"]) else { return };
    let value = at.to_json();
    let ranks = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let differs = |ranks: u64| {
        job.workers().find(|role| {
            let gpus = role.pod_asks(&profile.accelerator);
            // A launcher that is given a number of its own does not read this one.
            let own =
                || role.container.argv().any(|word| word.replace('_', "-").contains("--nproc-per-node"));
            gpus > 0 && gpus != ranks && !own()
        })
    };
    if let Some((ranks, role)) = ranks.and_then(|ranks| Some((ranks, differs(ranks)?))) {
        let gpus = role.pod_asks(&profile.accelerator);
        let message =
            format!("nprocPerNode is {ranks}, and {} requests {gpus} of {}", role.name, profile.accelerator);
        let fix = format!("set nprocPerNode to {gpus}, or to gpu");
        say(Finding::warning("L-NPROC", message).at(role.name.clone()).fix(fix), at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_core::catalogue::Catalogue;
    use weftrun_core::fabric::Profiles;
    use weftrun_core::request::FabricRequest;

    #[test]
    fn what_only_the_text_shows_is_found_at_its_line() {
        let text = "apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\nspec:\n  mpiReplicaSpecs:\n    Worker:\n      template:\n        spec:\n          imagePullPolicy: Always\n          nodeSelector:\n            beta.kubernetes.io/instance-type: p5.48xlarge\n          containers:\n          - name: a\n            resources:\n              limits:\n                nvidia.com/gpu:\n            env:\n            - name: NCCL_BUFFERSIZE\n              value: '1'\n            resources: {}\n";
        let (profile, catalogue) = (Profiles::builtin().get("dgxc").unwrap(), Catalogue::builtin());
        let options = FabricRequest::default();
        let settings = MutateOptions::offline(&profile, &options, &catalogue);
        let start = Start { file: "a.yaml", offset: 100, line: 10 };
        let found: Vec<(String, usize)> = lint_document(text, start, &settings)
            .into_iter()
            .map(|finding| (finding.code, finding.span.map_or(0, |span| span.line)))
            .collect();
        for expected in [
            ("L-API-VERSION", 11),
            ("L-FIELD-IGNORED", 18),
            ("L-API-VERSION", 20),
            ("L-DUP-KEY", 23),
            ("L-NAME-MISSPELT", 27),
        ] {
            assert!(found.contains(&(expected.0.to_owned(), expected.1)), "{expected:?} in {found:?}");
        }
        assert!(lint_document("a: [", start, &settings)[0].is_error());
    }
}
