//! Takes what a tree says into a job. Values that are wrong were reported by the check, and are passed over here.

use std::collections::{BTreeMap, HashMap};

use super::check::join;
use super::keys::is_shorthand;
use super::value::{self, Source};
use crate::request::{FabricRequest, Origin};
use crate::span::{SpanTree, Value};
use crate::spec::{Code, EnvVar, JobSpec, RestartPolicy, Role, RoleKind, SecretRef, Volume, VolumeSource};
use crate::text::duration;
use crate::text::quantity::Quantity;

/// How often a job restarts that says `on-failure` and no number.
const DEFAULT_RESTARTS: u32 = 3;

/// Reads one source into a job: values it has replace those the job has, maps are merged by key.
pub(super) struct Read<'s, 'j> {
    pub source: Source<'s>,
    pub origin: Origin,
    pub job: &'j mut JobSpec,
    /// The path of a script whose text is yet to be read.
    pub script: &'j mut Option<String>,
}

impl Read<'_, '_> {
    /// Reads a whole file.
    pub fn job(&mut self, tree: &SpanTree<'_>) {
        for entry in tree.entries() {
            let Some(key) = super::keys::JOB.key(&entry.key) else { continue };
            if self.key(key.name, &entry.value).is_some() {
                self.note(key.name, &entry.value);
            }
        }
    }

    /// Remembers where a value came from; of a table, where each of its values did.
    fn note(&mut self, path: &str, node: &SpanTree<'_>) {
        if node.entries().is_empty() {
            return self.job.origins.set(path, self.origin.clone());
        }
        for entry in node.entries() {
            let deeper = matches!(path, "roles" | "volumes" | "fabric") || path.starts_with("roles.");
            if deeper {
                self.note(&join(path, &entry.key), &entry.value)
            } else {
                self.job.origins.set(join(path, &entry.key), self.origin.clone())
            }
        }
    }

    fn key(&mut self, name: &str, node: &SpanTree<'_>) -> Option<()> {
        let source = self.source;
        match name {
            "name" => self.job.name = value::text(node)?,
            "image" => self.job.image = Some(value::text(node)?),
            "launch" => self.job.launch = value::word(node, source)?,
            "code" => self.code(node)?,
            "env" => env(&mut self.job.env, node, source),
            "secrets" => secrets(&mut self.job.secrets, node),
            "volumes" => volumes(&mut self.job.volumes, node, source),
            "workdir" => self.job.workdir = Some(value::text(node)?),
            "fabric" => self.fabric(node),
            "profile" => self.job.profile = Some(value::text(node)?),
            "queue" => self.job.queue = Some(value::text(node)?),
            "priority" => self.job.priority = Some(value::text(node)?),
            "restart" => self.job.restart = restart(node, source)?,
            "time_limit" => self.job.time_limit = Some(duration::parse(&value::duration_text(node)?)?),
            "labels" => texts_by_key(&mut self.job.labels, node),
            "annotations" => texts_by_key(&mut self.job.annotations, node),
            "backend" => {
                for entry in node.entries() {
                    merge(self.job.backend.entry(entry.key.to_string()).or_default(), entry.value.to_json());
                }
            }
            "roles" => self.roles(node),
            shorthand if is_shorthand(shorthand) => role_key(self.worker(), shorthand, node, source)?,
            _ => return None,
        }
        Some(())
    }

    /// The role the keys at the top are about: the only worker, which is made when the first such key is met.
    fn worker(&mut self) -> &mut Role {
        let roles = &mut self.job.roles;
        let at = roles.iter().position(|role| role.kind == RoleKind::Worker).unwrap_or_else(|| {
            roles.push(Role::worker());
            roles.len() - 1
        });
        &mut roles[at]
    }

    fn roles(&mut self, node: &SpanTree<'_>) {
        for entry in node.entries() {
            let roles = &mut self.job.roles;
            let at = roles.iter().position(|role| role.name == entry.key).unwrap_or_else(|| {
                let kind = if entry.key == "launcher" { RoleKind::Launcher } else { RoleKind::Worker };
                roles.push(Role { kind, ..Role::new(entry.key.as_ref()) });
                roles.len() - 1
            });
            for inner in entry.value.entries() {
                let name = super::keys::ROLE.key(&inner.key).map_or("", |key| key.name);
                let _ = role_key(&mut roles[at], name, &inner.value, self.source);
            }
        }
    }

    fn code(&mut self, node: &SpanTree<'_>) -> Option<()> {
        let text = |key: &str| node.get(key).and_then(value::text);
        if let Some(path) = text("script") {
            let name = path.rsplit(['/', '\\']).next().unwrap_or("").to_owned();
            *self.script = match text("text") {
                Some(_) => None,
                None => Some(path),
            };
            self.job.code = Some(Code::Script { name, text: text("text").unwrap_or_default() });
        } else {
            *self.script = None;
            self.job.code = Some(Code::Git { url: text("git")?, rev: text("ref") });
        }
        Some(())
    }

    fn fabric(&mut self, node: &SpanTree<'_>) {
        let source = self.source;
        let request = &mut self.job.fabric;
        if node.entries().is_empty() {
            if let Some(kind) = value::word(node, source) {
                request.kind = kind;
            }
            return;
        }
        for entry in node.entries() {
            let _ = fabric_key(request, &entry.key, &entry.value, source);
            if let (name @ ("trainer_version" | "runtime"), Some(text)) =
                (&*entry.key, value::text(&entry.value))
            {
                let key = if name == "runtime" { "runtime-file" } else { "trainer-version" };
                let own = serde_json::json!({ key: text });
                merge(self.job.backend.entry("kubeflow".to_owned()).or_default(), own);
            }
        }
    }
}

fn fabric_key(
    request: &mut FabricRequest,
    name: &str,
    node: &SpanTree<'_>,
    source: Source<'_>,
) -> Option<()> {
    match name {
        "kind" => request.kind = value::word(node, source)?,
        "rules" => {
            for (id, value) in value::rules(node)? {
                if let Some(setting) = value::word(value, source) {
                    request.rules.insert(id, setting);
                }
            }
        }
        "gid" => request.gid = Some(value::gid(node)?),
        "network" => request.networks = value::texts(node)?,
        "stack" => request.stack = value::word(node, source)?,
        "strict" => request.strict = value::bool(node)?,
        "inject" => request.inject = value::word(node, source)?,
        "webhook" => request.webhook = value::word(node, source)?,
        "detect" => request.detect = Some(value::bool(node)?),
        _ => return None,
    }
    Some(())
}

fn role_key(role: &mut Role, name: &str, node: &SpanTree<'_>, source: Source<'_>) -> Option<()> {
    let quantity = || value::quantity(node, source).filter(|text| Quantity::parse(text).is_some());
    match name {
        "kind" => role.kind = value::word(node, source)?,
        "nodes" => role.nodes = value::count(node)?,
        "gpus_per_node" => role.gpus_per_node = value::count(node)?,
        "ranks_per_node" => role.ranks_per_node = Some(value::count(node)?),
        "instance_type" => role.instance_type = Some(value::text(node)?),
        "command" => role.command = value::command(node, source).ok()??,
        "cpus" => role.cpus = Some(quantity()?),
        "memory" => role.memory = Some(quantity()?),
        "shm" => role.shm = Some(quantity()?),
        "image" => role.image = Some(value::text(node)?),
        "env" => env(&mut role.env, node, source),
        "resources" => {
            for entry in node.entries() {
                let text =
                    value::quantity(&entry.value, source).filter(|text| Quantity::parse(text).is_some());
                if let Some(text) = text {
                    role.resources.insert(entry.key.to_string(), text);
                }
            }
        }
        _ => return None,
    }
    Some(())
}

/// Puts an item into a list whose items have names: in the place of one of its name, or at the end. `places` keeps where
/// each name stands, so that a table of many entries is read in linear time.
fn put<T>(list: &mut Vec<T>, places: &mut HashMap<String, usize>, name: &str, item: T) {
    if let Some(known) = places.get(name).and_then(|at| list.get_mut(*at)) {
        *known = item;
    } else {
        places.insert(name.to_owned(), list.len());
        list.push(item);
    }
}

/// Where each name stands in a list.
fn places<T>(list: &[T], name: impl Fn(&T) -> &str) -> HashMap<String, usize> {
    list.iter().enumerate().map(|(at, item)| (name(item).to_owned(), at)).collect()
}

fn env(list: &mut Vec<EnvVar>, node: &SpanTree<'_>, source: Source<'_>) {
    let mut places = places(list, |var| &var.name);
    for entry in node.entries() {
        let Some(value) = value::scalar(&entry.value, source) else { continue };
        put(list, &mut places, &entry.key, EnvVar { name: entry.key.to_string(), value });
    }
}

fn secrets(list: &mut Vec<SecretRef>, node: &SpanTree<'_>) {
    let mut places = places(list, |secret| &secret.env);
    for entry in node.entries() {
        let text = |key: &str| entry.value.get(key).and_then(value::text).unwrap_or_default();
        let (secret, key) = match entry.value.as_str() {
            Some(short) => {
                let (secret, key) = short.split_once('/').unwrap_or((short, ""));
                (secret.to_owned(), key.to_owned())
            }
            None => (text("secret"), text("key")),
        };
        put(list, &mut places, &entry.key, SecretRef { env: entry.key.to_string(), secret, key });
    }
}

/// A volume without exactly one source becomes an empty host path, which validation refuses with the reason.
fn volumes(list: &mut Vec<Volume>, node: &SpanTree<'_>, source: Source<'_>) {
    let mut places = places(list, |volume| &volume.name);
    for entry in node.entries() {
        let table = &entry.value;
        let text = |key: &str| table.get(key).and_then(value::text);
        let memory = table.get("memory").filter(|node| value::bool(node) != Some(false));
        let what = match (text("host_path"), text("claim"), memory) {
            (Some(path), None, None) => VolumeSource::HostPath(path),
            (None, Some(claim), None) => VolumeSource::Claim(claim),
            (None, None, Some(size)) => VolumeSource::Memory {
                size: value::quantity(size, source).filter(|text| Quantity::parse(text).is_some()),
            },
            _ => VolumeSource::HostPath(String::new()),
        };
        let volume = Volume {
            name: entry.key.to_string(),
            mount: text("mount").unwrap_or_default(),
            source: what,
            read_only: table.get("read_only").and_then(value::bool).unwrap_or(false),
        };
        put(list, &mut places, &entry.key, volume);
    }
}

fn restart(node: &SpanTree<'_>, source: Source<'_>) -> Option<RestartPolicy> {
    if let Value::Map(_) = node.value {
        let max = node.get("max").and_then(value::count)?;
        return Some(RestartPolicy::OnFailure { max });
    }
    match &*value::word_text(node, source)? {
        "never" => Some(RestartPolicy::Never),
        "on-failure" => Some(RestartPolicy::OnFailure { max: DEFAULT_RESTARTS }),
        _ => None,
    }
}

fn texts_by_key(map: &mut BTreeMap<String, String>, node: &SpanTree<'_>) {
    for entry in node.entries() {
        if let Some(text) = value::text(&entry.value) {
            map.insert(entry.key.to_string(), text);
        }
    }
}

/// Lays one value over another: tables by key, all else whole.
fn merge(under: &mut serde_json::Value, over: serde_json::Value) {
    use serde_json::Value as Json;
    match (under, over) {
        (Json::Object(under), Json::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Json::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
