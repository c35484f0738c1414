//! Flags, which go the same way as a file: each is one value at one path, held against the same table.

use std::borrow::Cow;

use super::Draft;
use super::check::Check;
use super::keys::{self, is_shorthand};
use super::read::Read;
use super::value::Source;
use crate::Finding;
use crate::request::Origin;
use crate::span::{Entry, SpanTree, Style, Value};
use crate::spec::volume::FORM as VOLUME_FORM;
use crate::spec::{RoleKind, Volume, VolumeSource};

/// What flags say about a job, as they were given. `None` and empty lists say nothing. Its `Debug` shows no value of an
/// environment variable.
#[derive(Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the flag of its name; the table of keys documents them")]
pub struct Overrides {
    pub name: Option<String>,
    pub image: Option<String>,
    pub launch: Option<String>,
    pub nodes: Option<String>,
    pub gpus_per_node: Option<String>,
    pub ranks_per_node: Option<String>,
    pub instance_type: Option<String>,
    /// Everything behind `--`.
    pub command: Vec<String>,
    pub cpus: Option<String>,
    pub memory: Option<String>,
    pub shm: Option<String>,
    /// `NAME=QUANTITY`.
    pub resource: Vec<String>,
    pub script: Option<String>,
    pub git: Option<String>,
    pub git_ref: Option<String>,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// `NAME=SECRET/KEY`.
    pub secret: Vec<String>,
    /// `NAME:/MOUNT=claim:CLAIM`, `host:PATH` or `memory[:SIZE]`, with `,ro` behind it for reading only.
    pub volume: Vec<String>,
    pub workdir: Option<String>,
    pub fabric: Option<String>,
    /// Rule ids to switch off.
    pub no_fabric_rule: Vec<String>,
    /// `ID=auto|on|off`.
    pub fabric_rule: Vec<String>,
    pub gid: Option<String>,
    pub network: Vec<String>,
    pub stack: Option<String>,
    pub inject: Option<String>,
    pub webhook: Option<String>,
    pub trainer_version: Option<String>,
    pub runtime: Option<String>,
    pub strict: Option<bool>,
    pub detect: Option<bool>,
    pub profile: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<String>,
    /// `never`, `on-failure`, or how often.
    pub restart: Option<String>,
    pub time_limit: Option<String>,
    /// `KEY=VALUE`.
    pub label: Vec<String>,
    /// `KEY=VALUE`.
    pub annotation: Vec<String>,
}

impl std::fmt::Debug for Overrides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name_of = |assignment: &String| assignment.split('=').next().unwrap_or_default().to_owned();
        f.debug_struct("Overrides")
            .field("name", &self.name)
            .field("image", &self.image)
            .field("nodes", &self.nodes)
            .field("gpus_per_node", &self.gpus_per_node)
            .field("env", &self.env.iter().map(name_of).collect::<Vec<_>>())
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// Puts the configuration's defaults into a draft: paths of a job file, with values that were checked before. The
/// instance type waits until the roles are known.
pub(super) fn defaults(draft: &mut Draft, defaults: Vec<(Vec<String>, serde_json::Value, Origin)>) {
    for (path, value, origin) in defaults {
        match (path.as_slice(), value.as_str()) {
            ([key], Some(name)) if key == "instance_type" => {
                draft.instance_type = Some((name.to_owned(), origin));
            }
            _ => set(draft, "[job]", &path, from_json(&value), origin),
        }
    }
}

fn from_json(value: &serde_json::Value) -> Value<'static> {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Int(integer),
            (None, float) => Value::Float(float.unwrap_or(f64::NAN)),
        },
        Json::String(text) => string(text),
        Json::Array(items) => Value::Seq(items.iter().map(|item| node(from_json(item))).collect()),
        Json::Object(map) => Value::Map(
            map.iter()
                .map(|(key, value)| Entry {
                    key: Cow::Owned(key.clone()),
                    key_span: 0..0,
                    value: node(from_json(value)),
                })
                .collect(),
        ),
    }
}

/// One flag: its name, the path of what it sets, and the value.
struct Flag {
    name: &'static str,
    path: Vec<String>,
    value: Value<'static>,
}

/// Puts flags into a draft.
pub(super) fn apply(draft: &mut Draft, overrides: &Overrides) {
    let mut flags = Flags::default();
    flags.collect(overrides);
    draft.findings.extend(flags.findings);
    for flag in flags.flags {
        match aim(draft, &flag) {
            Ok(paths) => paths.into_iter().for_each(|path| {
                set(draft, flag.name, &path, flag.value.clone(), Origin::Flag(flag.name.to_owned()));
            }),
            Err(finding) => draft.findings.push(*finding),
        }
    }
}

/// Where a flag goes: a role's key to the workers, if the roles have names.
fn aim(draft: &Draft, flag: &Flag) -> Result<Vec<Vec<String>>, Box<Finding>> {
    let key = flag.path.first().map_or("", String::as_str);
    let workers: Vec<&str> =
        draft.spec.roles.iter().filter(|r| r.kind == RoleKind::Worker).map(|r| r.name.as_str()).collect();
    if !is_shorthand(key) || workers.is_empty() || workers == ["worker"] && !draft.places.has("roles") {
        return Ok(vec![flag.path.clone()]);
    }
    // What nodes are like can hold for all of them; how many there are, and what runs, cannot.
    let one_each = matches!(key, "nodes" | "gpus_per_node" | "ranks_per_node" | "command");
    if one_each && workers.len() > 1 {
        let message = format!("it is not clear which role is meant: the file has {}", workers.join(", "));
        return Err(Box::new(
            Finding::error("SPEC-ROLE-KEY", message).at(flag.name).fix("set it in the file"),
        ));
    }
    let path =
        |role: &&str| ["roles".to_owned(), (*role).to_owned()].into_iter().chain(flag.path.clone()).collect();
    Ok(workers.iter().map(path).collect())
}

fn set(draft: &mut Draft, name: &'static str, path: &[String], value: Value<'static>, origin: Origin) {
    let tree = path.iter().rev().fold(node(value), |inner, key| {
        let entry = Entry { key: Cow::Owned(key.clone()), key_span: 0..0, value: inner };
        node(Value::Map(vec![entry]))
    });
    let mut check = Check::new(Source::NONE, "a job");
    check.table(&tree, &keys::JOB, "");
    let (findings, _) = check.into_parts();
    let good = findings.is_empty();
    draft.findings.extend(findings.into_iter().map(|mut finding| {
        let path = finding.subject.take().unwrap_or_default();
        let path = format!("`{path}`");
        let said =
            finding.message.strip_prefix(&path).map(|rest| rest.trim_start_matches([':', ' ']).to_owned());
        finding.message = said.unwrap_or_else(|| finding.message.replace(&path, name));
        finding.at(name)
    }));
    if good {
        Read { source: Source::NONE, origin, job: &mut draft.spec, script: &mut draft.script }.job(&tree);
    }
}

fn node(value: Value<'static>) -> SpanTree<'static> {
    SpanTree::new(value, 0..0, Style::Plain)
}

#[derive(Default)]
struct Flags {
    flags: Vec<Flag>,
    findings: Vec<Finding>,
}

impl Flags {
    fn collect(&mut self, o: &Overrides) {
        self.text("--name", "name", o.name.as_ref());
        self.text("--image", "image", o.image.as_ref());
        self.text("--launch", "launch", o.launch.as_ref());
        self.number("--nodes", "nodes", o.nodes.as_ref());
        self.number("--gpus-per-node", "gpus_per_node", o.gpus_per_node.as_ref());
        self.number("--ranks-per-node", "ranks_per_node", o.ranks_per_node.as_ref());
        self.text("--instance-type", "instance_type", o.instance_type.as_ref());
        self.text("--cpus", "cpus", o.cpus.as_ref());
        self.text("--memory", "memory", o.memory.as_ref());
        self.text("--shm", "shm", o.shm.as_ref());
        if !o.command.is_empty() {
            self.push("--", &["command"], list(&o.command));
        }
        self.pairs("--resource", "resources", &o.resource);
        self.code(o);
        self.pairs("--env", "env", &o.env);
        self.pairs("--secret", "secrets", &o.secret);
        o.volume.iter().for_each(|text| self.volume(text));
        self.text("--workdir", "workdir", o.workdir.as_ref());
        self.fabric(o);
        self.text("--profile", "profile", o.profile.as_ref());
        self.text("--queue", "queue", o.queue.as_ref());
        self.text("--priority", "priority", o.priority.as_ref());
        if let Some(text) = &o.restart {
            match text.parse::<i64>() {
                Ok(max) => self.push("--restart", &["restart", "max"], Value::Int(max)),
                Err(_) => self.text("--restart", "restart", Some(text)),
            }
        }
        self.text("--time-limit", "time_limit", o.time_limit.as_ref());
        self.pairs("--label", "labels", &o.label);
        self.pairs("--annotation", "annotations", &o.annotation);
    }

    fn fabric(&mut self, o: &Overrides) {
        let texts = [
            ("--fabric", "kind", &o.fabric),
            ("--gid", "gid", &o.gid),
            ("--stack", "stack", &o.stack),
            ("--inject", "inject", &o.inject),
            ("--webhook", "webhook", &o.webhook),
            ("--trainer-version", "trainer_version", &o.trainer_version),
            ("--runtime", "runtime", &o.runtime),
        ];
        for (flag, key, value) in texts {
            if let Some(text) = value {
                self.push(flag, &["fabric", key], string(text));
            }
        }
        for (flag, key, value) in [("--strict", "strict", o.strict), ("--detect", "detect", o.detect)] {
            if let Some(value) = value {
                self.push(flag, &["fabric", key], Value::Bool(value));
            }
        }
        if !o.network.is_empty() {
            self.push("--network", &["fabric", "network"], list(&o.network));
        }
        for id in &o.no_fabric_rule {
            self.push("--no-fabric-rule", &["fabric", "rules", id], string("off"));
        }
        for text in &o.fabric_rule {
            if let Some((id, setting)) = self.pair("--fabric-rule", text) {
                self.push("--fabric-rule", &["fabric", "rules", id], string(setting));
            }
        }
    }

    /// The parts of `code` are one value: a script on the command line replaces a repository in the file.
    fn code(&mut self, o: &Overrides) {
        let entry = |key: &'static str, text: &str| Entry {
            key: Cow::Borrowed(key),
            key_span: 0..0,
            value: node(string(text)),
        };
        match (&o.script, &o.git, &o.git_ref) {
            (Some(path), None, None) => {
                self.push("--script", &["code"], Value::Map(vec![entry("script", path)]));
            }
            (None, Some(url), rev) => {
                let rev = rev.iter().map(|rev| entry("ref", rev));
                let table = std::iter::once(entry("git", url)).chain(rev).collect();
                self.push("--git", &["code"], Value::Map(table));
            }
            (None, None, None) => {}
            (None, None, Some(_)) => {
                self.wrong("--git-ref", "only a repository has one: set --git too".to_owned(), "");
            }
            (Some(_), _, _) => {
                self.wrong("--script", "a job brings a script or a repository, not both".to_owned(), "");
            }
        }
    }

    fn volume(&mut self, text: &str) {
        let Ok(volume) = text.parse::<Volume>() else {
            return self.wrong("--volume", format!("`{text}` cannot be read"), VOLUME_FORM);
        };
        let (key, value) = match &volume.source {
            VolumeSource::Claim(claim) => ("claim", string(claim)),
            VolumeSource::HostPath(path) => ("host_path", string(path)),
            VolumeSource::Memory { size: None } => ("memory", Value::Bool(true)),
            VolumeSource::Memory { size: Some(size) } => ("memory", string(size)),
        };
        let mut table = vec![("mount", string(&volume.mount)), (key, value)];
        if volume.read_only {
            table.push(("read_only", Value::Bool(true)));
        }
        let entries = table
            .into_iter()
            .map(|(key, value)| Entry { key: Cow::Borrowed(key), key_span: 0..0, value: node(value) })
            .collect();
        self.push("--volume", &["volumes", &volume.name], Value::Map(entries));
    }

    fn text(&mut self, flag: &'static str, key: &str, value: Option<&String>) {
        if let Some(text) = value {
            self.push(flag, &[key], string(text));
        }
    }

    fn number(&mut self, flag: &'static str, key: &str, value: Option<&String>) {
        if let Some(text) = value {
            // What is no number goes on as text, for the check to refuse.
            self.push(flag, &[key], text.parse().map_or_else(|_| string(text), Value::Int));
        }
    }

    fn pairs(&mut self, flag: &'static str, key: &str, texts: &[String]) {
        for text in texts {
            if let Some((name, value)) = self.pair(flag, text) {
                self.push(flag, &[key, name], string(value));
            }
        }
    }

    fn pair<'t>(&mut self, flag: &'static str, text: &'t str) -> Option<(&'t str, &'t str)> {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        if pair.is_none() {
            // The text may hold a secret, so it is not repeated.
            self.wrong(flag, "NAME=VALUE is needed".to_owned(), "");
        }
        pair
    }

    fn push(&mut self, name: &'static str, path: &[&str], value: Value<'static>) {
        self.flags.push(Flag { name, path: path.iter().map(|key| (*key).to_owned()).collect(), value });
    }

    fn wrong(&mut self, flag: &'static str, message: String, fix: &str) {
        let finding = Finding::error("SPEC-FLAG", message).at(flag);
        self.findings.push(if fix.is_empty() { finding } else { finding.fix(fix) });
    }
}

fn string(text: &str) -> Value<'static> {
    Value::Str(Cow::Owned(text.to_owned()))
}

fn list(texts: &[String]) -> Value<'static> {
    Value::Seq(texts.iter().map(|text| node(string(text))).collect())
}
