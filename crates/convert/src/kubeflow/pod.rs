//! A pod template as the rules see it.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value as Json;

use super::object::{list, pointer, scalar};
use weftrun_core::fabric::evidence::INSTANCE_LABELS;
use weftrun_core::fabric::view::{Annotation, ContainerView, EnvView, MountView, RoleView, VolumeView};

/// Reads the parts of a role that a pod template defines. `at` is the template's JSON pointer; `main` picks
/// the container the ranks run in.
pub(super) fn role(template: &Json, at: &str, main: impl Fn(&[Json]) -> usize) -> RoleView {
    let none = Json::Null;
    let spec = template.get("spec").unwrap_or(&none);
    let containers = list(spec, "containers");
    let chosen = main(containers);
    let view = |index: usize| container(&containers[index], &format!("{at}/spec/containers/{index}"));
    RoleView {
        annotations: annotations(pointer(template, "/metadata/annotations")),
        instance_types: instance_types(spec),
        node_selector: texts(spec.get("nodeSelector")),
        colocated_by: colocated_by(spec),
        tolerates: list(spec, "tolerations").iter().filter_map(|t| text(t, "key")).collect(),
        volumes: volumes(spec, at),
        host_network: spec.get("hostNetwork").and_then(Json::as_bool).unwrap_or(false),
        dns_policy: text(spec, "dnsPolicy"),
        init_containers: list(spec, "initContainers").iter().filter_map(|one| text(one, "name")).collect(),
        resource_claims: list(spec, "resourceClaims").iter().filter_map(|one| text(one, "name")).collect(),
        container: if chosen < containers.len() { view(chosen) } else { ContainerView::default() },
        sidecars: (0..containers.len()).filter(|&index| index != chosen).map(view).collect(),
        ..RoleView::default()
    }
}

pub(super) fn annotations(map: Option<&Json>) -> BTreeMap<String, Annotation> {
    let entries = map.and_then(Json::as_object).into_iter().flatten();
    let annotation = |value: &Json| match value {
        Json::String(text) => Annotation::Text(text.clone()),
        other => Annotation::NotText(other.to_string()),
    };
    entries.map(|(key, value)| (key.clone(), annotation(value))).collect()
}

/// Reads a container, or another object with its fields.
pub(super) fn container(container: &Json, at: &str) -> ContainerView {
    ContainerView {
        name: text(container, "name").unwrap_or_default(),
        at: at.to_owned(),
        image: text(container, "image"),
        command: words(container, "command"),
        args: words(container, "args"),
        env: env(container, at),
        limits: texts(pointer(container, "/resources/limits")),
        requests: texts(pointer(container, "/resources/requests")),
        mounts: mounts(container),
        claims: list(pointer(container, "/resources").unwrap_or(&Json::Null), "claims")
            .iter()
            .filter_map(|claim| text(claim, "name"))
            .collect(),
        capabilities: list(pointer(container, "/securityContext/capabilities").unwrap_or(&Json::Null), "add")
            .iter()
            .filter_map(Json::as_str)
            .map(str::to_owned)
            .collect(),
        privileged: pointer(container, "/securityContext/privileged")
            .and_then(Json::as_bool)
            .unwrap_or(false),
        ..ContainerView::default()
    }
}

pub(super) fn env(container: &Json, at: &str) -> Vec<EnvView> {
    let one = |(index, var): (usize, &Json)| {
        let value = match (var.get("value"), var.get("valueFrom")) {
            (_, Some(from)) if !from.is_null() => None,
            (None | Some(Json::Null), _) => Some(String::new()),
            (Some(value), _) => Some(scalar(value)),
        };
        Some(EnvView { name: text(var, "name")?, value, at: format!("{at}/env/{index}") })
    };
    list(container, "env").iter().enumerate().filter_map(one).collect()
}

pub(super) fn mounts(container: &Json) -> Vec<MountView> {
    list(container, "volumeMounts")
        .iter()
        .filter_map(|mount| Some(MountView { volume: text(mount, "name")?, path: text(mount, "mountPath")? }))
        .collect()
}

pub(super) fn volumes(spec: &Json, at: &str) -> Vec<VolumeView> {
    let one = |(index, volume): (usize, &Json)| {
        Some(VolumeView {
            name: text(volume, "name")?,
            at: format!("{at}/spec/volumes/{index}"),
            host_path: pointer(volume, "/hostPath/path").and_then(Json::as_str).map(str::to_owned),
            memory: pointer(volume, "/emptyDir/sizeLimit")
                .filter(|_| pointer(volume, "/emptyDir/medium").is_some_and(|medium| medium == "Memory"))
                .map(scalar),
        })
    };
    list(spec, "volumes").iter().enumerate().filter_map(one).collect()
}

pub(super) fn texts(map: Option<&Json>) -> BTreeMap<String, String> {
    let entries = map.and_then(Json::as_object).into_iter().flatten();
    entries.filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), scalar(value))).collect()
}

fn words(container: &Json, key: &str) -> Vec<String> {
    list(container, key).iter().map(scalar).collect()
}

fn text(object: &Json, key: &str) -> Option<String> {
    object.get(key).and_then(Json::as_str).map(str::to_owned)
}

/// Returns the types that the node selector allows, else those that required node affinity allows.
pub(super) fn instance_types(spec: &Json) -> Vec<String> {
    let selector = spec.get("nodeSelector");
    let selected = INSTANCE_LABELS.iter().find_map(|label| selector?.get(label)?.as_str());
    if let Some(name) = selected {
        return vec![name.to_owned()];
    }
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pointer(spec, required).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for term in terms {
        let said = list(term, "matchExpressions").iter().find(|expression| {
            let key = expression.get("key").and_then(Json::as_str);
            key.is_some_and(|key| INSTANCE_LABELS.contains(&key))
                && expression.get("operator").and_then(Json::as_str) == Some("In")
        });
        // A term without the type allows every type.
        let Some(said) = said else { return Vec::new() };
        for name in list(said, "values").iter().filter_map(Json::as_str) {
            if seen.insert(name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

pub(super) fn colocated_by(spec: &Json) -> Vec<String> {
    let required = "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = pointer(spec, required).and_then(Json::as_array).into_iter().flatten();
    terms.filter_map(|term| text(term, "topologyKey")).collect()
}
