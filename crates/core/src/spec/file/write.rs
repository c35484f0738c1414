//! From a [`JobSpec`] to a job file, and edits of a job file that leave everything else as it stands.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Key, Table, TableLike, Value};

use super::Format;
use super::keys::is_shorthand;
use crate::finding::PatchEdit;
use crate::spec::{Code, EnvVar, JobSpec, Launch, RestartPolicy, Role, RoleKind, Volume, VolumeSource};
use crate::text::duration;
use crate::{Error, ErrorKind, Result};

/// Writes a job as a job file. Reading it back gives an equal job.
///
/// ```
/// use weftrun_core::spec::{JobFile, JobSpec, Role, to_toml};
/// let job = JobSpec::builder("demo").role(Role::worker().nodes(2).command(["hostname"])).build()?;
/// let text = to_toml(&job);
/// assert_eq!(JobFile::parse("job.toml", text.as_bytes())?.spec, job);
/// # Ok::<(), weftrun_core::Error>(())
/// ```
pub fn to_toml(job: &JobSpec) -> String {
    let mut file = DocumentMut::new();
    let root = file.as_table_mut();
    put(root, "name", &job.name);
    put_some(root, "image", job.image.as_ref());
    if job.launch != Launch::default() {
        put(root, "launch", &word(&job.launch));
    }
    let one = matches!(job.roles.as_slice(), [role] if role.name == "worker" && plain_worker(role));
    if let (true, Some(role)) = (one, job.roles.first()) {
        role_keys(root, role);
    }
    for (key, value) in [
        ("workdir", job.workdir.as_ref()),
        ("profile", job.profile.as_ref()),
        ("queue", job.queue.as_ref()),
        ("priority", job.priority.as_ref()),
    ] {
        put_some(root, key, value);
    }
    match job.restart {
        RestartPolicy::Never => {}
        RestartPolicy::OnFailure { max } => {
            root.insert("restart", inline([("max", i64::from(max).into())]));
        }
    }
    put_some(root, "time_limit", job.time_limit.map(duration::format).as_ref());
    code(root, job.code.as_ref());
    tables(root, job);
    if !one {
        let mut roles = Table::new();
        roles.set_implicit(true);
        for role in &job.roles {
            let mut table = Table::new();
            // A worker is the default, but for the name that says otherwise.
            match role.kind {
                RoleKind::Worker if role.name != "launcher" => {}
                RoleKind::Launcher if role.name == "launcher" => {}
                kind => put(&mut table, "kind", &word(&kind)),
            }
            role_keys(&mut table, role);
            put_some(&mut table, "image", role.image.as_ref());
            env(&mut table, &role.env);
            roles.insert(&role.name, Item::Table(table));
        }
        if !roles.is_empty() {
            root.insert("roles", Item::Table(roles));
        }
    }
    file.to_string()
}

/// Whether all the role says can stand at the top of the file.
fn plain_worker(role: &Role) -> bool {
    role.kind == RoleKind::Worker && role.image.is_none() && role.env.is_empty()
}

fn role_keys(table: &mut Table, role: &Role) {
    table.insert("nodes", i64::from(role.nodes).into());
    if role.gpus_per_node > 0 {
        table.insert("gpus_per_node", i64::from(role.gpus_per_node).into());
    }
    if let Some(ranks) = role.ranks_per_node {
        table.insert("ranks_per_node", i64::from(ranks).into());
    }
    put_some(table, "instance_type", role.instance_type.as_ref());
    if !role.command.is_empty() {
        table.insert("command", Item::Value(role.command.iter().collect::<Array>().into()));
    }
    put_some(table, "cpus", role.cpus.as_ref());
    put_some(table, "memory", role.memory.as_ref());
    put_some(table, "shm", role.shm.as_ref());
    if !role.resources.is_empty() {
        table
            .insert("resources", inline(role.resources.iter().map(|(k, v)| (k.as_str(), v.as_str().into()))));
    }
}

fn code(root: &mut Table, code: Option<&Code>) {
    let item = match code {
        None => return,
        Some(Code::Script { name, text }) if text.is_empty() => inline([("script", name.as_str().into())]),
        Some(Code::Script { name, text }) => {
            inline([("script", name.as_str().into()), ("text", text.as_str().into())])
        }
        Some(Code::Git { url, rev: None }) => inline([("git", url.as_str().into())]),
        Some(Code::Git { url, rev: Some(rev) }) => {
            inline([("git", url.as_str().into()), ("ref", rev.as_str().into())])
        }
    };
    root.insert("code", item);
}

fn tables(root: &mut Table, job: &JobSpec) {
    fabric(root, job);
    env(root, &job.env);
    if !job.secrets.is_empty() {
        let mut table = Table::new();
        for secret in &job.secrets {
            let item = if secret.secret.contains('/') || secret.key.is_empty() {
                inline([("secret", secret.secret.as_str().into()), ("key", secret.key.as_str().into())])
            } else {
                toml_edit::value(format!("{}/{}", secret.secret, secret.key))
            };
            table.insert(&secret.env, item);
        }
        root.insert("secrets", Item::Table(table));
    }
    if !job.volumes.is_empty() {
        let mut table = Table::new();
        table.set_implicit(true);
        for volume in &job.volumes {
            table.insert(&volume.name, Item::Table(volume_table(volume)));
        }
        root.insert("volumes", Item::Table(table));
    }
    for (key, map) in [("labels", &job.labels), ("annotations", &job.annotations)] {
        if !map.is_empty() {
            let mut table = Table::new();
            map.iter().for_each(|(name, value)| put(&mut table, name, value));
            root.insert(key, Item::Table(table));
        }
    }
    if !job.backend.is_empty() {
        let mut table = Table::new();
        table.set_implicit(true);
        for (name, settings) in &job.backend {
            if let Some(value) = from_json(settings) {
                let item = match value {
                    Value::InlineTable(inner) => Item::Table(inner.into_table()),
                    other => Item::Value(other),
                };
                table.insert(name, item);
            }
        }
        root.insert("backend", Item::Table(table));
    }
}

fn fabric(root: &mut Table, job: &JobSpec) {
    let request = &job.fabric;
    let mut table = Table::new();
    let default = crate::request::FabricRequest::default();
    if request.kind != default.kind {
        put(&mut table, "kind", &word(&request.kind));
    }
    match request.gid {
        Some(crate::request::Gid::Index(index)) => drop(table.insert("gid", i64::from(index).into())),
        Some(gid) => put(&mut table, "gid", &word(&gid)),
        None => {}
    }
    match request.networks.as_slice() {
        [] => {}
        [one] => put(&mut table, "network", one),
        many => drop(table.insert("network", Item::Value(many.iter().collect::<Array>().into()))),
    }
    for (key, value, default) in [
        ("stack", word(&request.stack), word(&default.stack)),
        ("inject", word(&request.inject), word(&default.inject)),
        ("webhook", word(&request.webhook), word(&default.webhook)),
    ] {
        if value != default {
            put(&mut table, key, &value);
        }
    }
    if request.strict {
        table.insert("strict", true.into());
    }
    if let Some(detect) = request.detect {
        table.insert("detect", detect.into());
    }
    if !request.rules.is_empty() {
        let rules = request.rules.iter().map(|(id, setting)| (id.as_str(), word(setting).into()));
        table.insert("rules", inline(rules));
    }
    if table.len() == 1 && table.contains_key("kind") {
        put(root, "fabric", &word(&request.kind));
    } else if !table.is_empty() {
        root.insert("fabric", Item::Table(table));
    }
}

fn volume_table(volume: &Volume) -> Table {
    let mut table = Table::new();
    put(&mut table, "mount", &volume.mount);
    match &volume.source {
        VolumeSource::HostPath(path) => put(&mut table, "host_path", path),
        VolumeSource::Claim(claim) => put(&mut table, "claim", claim),
        VolumeSource::Memory { size: Some(size) } => put(&mut table, "memory", size),
        VolumeSource::Memory { size: None } => drop(table.insert("memory", true.into())),
    }
    if volume.read_only {
        table.insert("read_only", true.into());
    }
    table
}

fn env(root: &mut Table, env: &[EnvVar]) {
    if !env.is_empty() {
        let mut table = Table::new();
        env.iter().for_each(|var| put(&mut table, &var.name, &var.value));
        root.insert("env", Item::Table(table));
    }
}

fn put(table: &mut Table, key: &str, value: &str) {
    table.insert(key, toml_edit::value(value));
}

fn put_some(table: &mut Table, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        put(table, key, value);
    }
}

fn inline<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Item {
    Item::Value(Value::InlineTable(entries.into_iter().collect::<InlineTable>()))
}

/// The word a unit variant has in files.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// TOML has no null: a key without a value is left out.
fn from_json(value: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    Some(match value {
        Json::Null => return None,
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::from(integer),
            None => Value::from(number.as_f64()?),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().filter_map(from_json).collect::<Array>().into(),
        Json::Object(map) => {
            let entries = map.iter().filter_map(|(key, value)| Some((key.as_str(), from_json(value)?)));
            Value::InlineTable(entries.collect())
        }
    })
}

/// Applies a finding's edits to the text of a TOML job file; comments, order and quoting of all else stay.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] where the text is no TOML or an edit's path leads through a value that is no table, and
/// [`ErrorKind::Unsupported`] for YAML.
pub fn patched(file: &str, text: &str, edits: &[PatchEdit]) -> Result<String> {
    if Format::of(file, text) == Format::Yaml {
        return Err(
            Error::new(ErrorKind::Unsupported, "edits are applied to TOML job files only").with("file", file)
        );
    }
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        Error::new(ErrorKind::InvalidSpec, error.message().to_owned()).with("file", file)
    })?;
    for edit in edits {
        apply(document.as_table_mut(), edit).map_err(|why| {
            Error::new(ErrorKind::InvalidSpec, format!("`{}` cannot be {}: {why}", edit.path, edit.op))
                .with("file", file)
        })?;
    }
    Ok(document.to_string())
}

fn apply(root: &mut Table, edit: &PatchEdit) -> std::result::Result<(), &'static str> {
    let keys = Key::parse(&edit.path).map_err(|_| "the path cannot be read")?;
    let Some((last, way)) = keys.split_last() else { return Err("the path is empty") };
    let mut table: &mut dyn TableLike = root;
    for key in way {
        // `fabric = "efa"` becomes a table when something is set below it.
        if key.get() == "fabric" && table.get("fabric").is_some_and(Item::is_str) {
            let kind = table.get("fabric").and_then(Item::as_str).unwrap_or("auto").to_owned();
            table.insert("fabric", inline([("kind", kind.into())]));
        }
        if !table.contains_key(key.get()) {
            if edit.op == "unset" {
                return Ok(());
            }
            let new = if is_shorthand(key.get()) || key.get() == "rules" {
                inline([])
            } else {
                // Written only where something stands in it itself: `[target.prod]` needs no `[target]`.
                let mut table = Table::new();
                table.set_implicit(true);
                Item::Table(table)
            };
            table.insert(key.get(), new);
        }
        table =
            table.get_mut(key.get()).and_then(Item::as_table_like_mut).ok_or("it leads through a value")?;
    }
    match (edit.op.as_str(), &edit.value) {
        ("set", Some(value)) => set(table, last.get(), value),
        ("unset", _) => {
            table.remove(last.get());
            Ok(())
        }
        _ => Err("it neither sets nor unsets"),
    }
}

fn set(
    table: &mut dyn TableLike,
    key: &str,
    value: &serde_json::Value,
) -> std::result::Result<(), &'static str> {
    let mut value = from_json(value).ok_or("it has no value")?;
    match table.get_mut(key) {
        // The comment behind the old value stays.
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        _ => {
            table.insert(key, Item::Value(value));
        }
    }
    Ok(())
}
