//! One field of a job, read from a tree and written as TOML by the shape of its key.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use toml_edit::{Array, Item, Table};

use super::shape::Shape;
use super::toml::{from_json, inline, put};
use super::value::{self, Source};
use crate::request::{Fabric, Gid, Inject, RuleSetting, Stack, Webhook};
use crate::span::{SpanTree, Value};
use crate::spec::{
    Code, EnvVar, Launch, Parameter, RestartPolicy, RetryAvoid, RetryPolicy, RoleKind, SecretRef, Volume,
    VolumeSource,
};
use crate::text::duration;
use crate::text::quantity::Quantity;

/// How often a job restarts by default with `on-failure`.
const DEFAULT_RESTARTS: u32 = 3;

/// A field that a key sets. Reading replaces a value, and merges a table by its keys.
pub(crate) trait Field {
    /// Takes a value that the check accepted; returns none where it has another type.
    fn read(&mut self, node: &SpanTree<'_>, shape: &Shape, source: Source<'_>) -> Option<()>;
    /// Returns the value as TOML; none where it is the default.
    fn write(&self, shape: &Shape) -> Option<Item>;
}

/// Implements a field by how its value is read, and how it is written. A `?` in the reading ends it: the value has another
/// type.
macro_rules! field {
    ($($kind:ty: |$node:ident, $source:pat_param| $read:expr, |$own:ident| $write:expr;)*) => {$(
        impl Field for $kind {
            fn read(&mut self, $node: &SpanTree<'_>, _: &Shape, $source: Source<'_>) -> Option<()> {
                *self = $read;
                Some(())
            }

            fn write(&self, _: &Shape) -> Option<Item> {
                let $own = self;
                $write
            }
        }
    )*};
}

field! {
    String: |node, _| value::text(node)?, |text| Some(toml_edit::value(text));
    u32: |node, _| value::count(node)?, |count| (*count > 0).then(|| toml_edit::value(i64::from(*count)));
    Option<u32>: |node, _| Some(value::count(node)?), |count| count.map(|count| toml_edit::value(i64::from(count)));
    bool: |node, _| value::bool(node)?, |set| set.then(|| toml_edit::value(true));
    Option<bool>: |node, _| Some(value::bool(node)?), |set| set.map(toml_edit::value);
    Option<Duration>: |node, _| Some(duration::parse(&value::duration_text(node)?)?),
        |limit| limit.map(|limit| toml_edit::value(duration::format(limit)));
    Launch: |node, source| value::word(node, source)?, |launch| unless_default(launch);
    Fabric: |node, source| value::word(node, source)?, |fabric| unless_default(fabric);
    Stack: |node, source| value::word(node, source)?, |stack| unless_default(stack);
    Inject: |node, source| value::word(node, source)?, |inject| unless_default(inject);
    Webhook: |node, source| value::word(node, source)?, |webhook| unless_default(webhook);
    // Its default depends on the role's name, so it is always written; the writer of roles leaves out what the name
    // implies.
    RoleKind: |node, source| value::word(node, source)?, |kind| Some(toml_edit::value(word(kind)));
    Option<Gid>: |node, _| Some(value::gid(node)?), |gid| gid.map(|gid| match gid {
        Gid::Index(index) => toml_edit::value(i64::from(index)),
        by_name => toml_edit::value(word(&by_name)),
    });
}

impl Field for Option<String> {
    fn read(&mut self, node: &SpanTree<'_>, shape: &Shape, source: Source<'_>) -> Option<()> {
        *self = Some(match shape {
            Shape::Quantity => quantity(node, source)?,
            _ => value::text(node)?,
        });
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        self.as_ref().map(toml_edit::value)
    }
}

/// A command, or texts of which a single one needs no list.
impl Field for Vec<String> {
    fn read(&mut self, node: &SpanTree<'_>, shape: &Shape, source: Source<'_>) -> Option<()> {
        *self = match shape {
            Shape::Command => value::command(node, source).ok()??,
            _ => value::texts(node)?,
        };
        Some(())
    }

    fn write(&self, shape: &Shape) -> Option<Item> {
        match (self.as_slice(), shape) {
            ([], _) => None,
            ([one], Shape::Texts) => Some(toml_edit::value(one)),
            (many, _) => Some(toml_edit::value(many.iter().collect::<Array>())),
        }
    }
}

/// Labels and annotations; or resources, each a quantity.
impl Field for BTreeMap<String, String> {
    fn read(&mut self, node: &SpanTree<'_>, shape: &Shape, source: Source<'_>) -> Option<()> {
        let quantities = matches!(shape, Shape::Map(Shape::Quantity));
        for entry in node.entries() {
            let value = if quantities { quantity(&entry.value, source) } else { value::text(&entry.value) };
            if let Some(value) = value {
                self.insert(entry.key.to_string(), value);
            }
        }
        Some(())
    }

    fn write(&self, shape: &Shape) -> Option<Item> {
        match shape {
            _ if self.is_empty() => None,
            Shape::Map(Shape::Quantity) => {
                Some(inline(self.iter().map(|(name, value)| (name.as_str(), value.as_str().into()))))
            }
            _ => Some(table(self.iter())),
        }
    }
}

impl Field for BTreeMap<String, RuleSetting> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        let rules = value::rules(node)?.into_iter();
        self.extend(rules.filter_map(|(id, setting)| Some((id, value::word(setting, source)?))));
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let rules = self.iter().map(|(id, setting)| (id.as_str(), word(setting).into()));
        (!self.is_empty()).then(|| inline(rules))
    }
}

impl Field for BTreeMap<String, serde_json::Value> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, _: Source<'_>) -> Option<()> {
        for entry in node.entries() {
            merge(self.entry(entry.key.to_string()).or_default(), entry.value.to_json());
        }
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let mut table = Table::new();
        table.set_implicit(true);
        for (name, settings) in self {
            match from_json(settings) {
                Some(toml_edit::Value::InlineTable(inner)) => {
                    table.insert(name, Item::Table(inner.into_table()));
                }
                Some(other) => drop(table.insert(name, Item::Value(other))),
                None => {}
            }
        }
        (!self.is_empty()).then_some(Item::Table(table))
    }
}

impl Field for Vec<EnvVar> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        let read = |name: &str, node: &SpanTree<'_>| {
            Some(EnvVar { name: name.to_owned(), value: value::scalar(node, source)? })
        };
        by_name(self, node, |var| &var.name, read)
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        (!self.is_empty()).then(|| table(self.iter().map(|var| (&var.name, &var.value))))
    }
}

impl Field for Vec<Parameter> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        let read = |name: &str, node: &SpanTree<'_>| {
            Some(Parameter { name: name.to_owned(), values: value::values(node, source)? })
        };
        by_name(self, node, |parameter| &parameter.name, read)
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let mut table = Table::new();
        for Parameter { name, values } in self {
            table.insert(name, toml_edit::value(values.iter().collect::<Array>()));
        }
        (!self.is_empty()).then_some(Item::Table(table))
    }
}

impl Field for Vec<SecretRef> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, _: Source<'_>) -> Option<()> {
        let read = |name: &str, node: &SpanTree<'_>| {
            let text = |key: &str| node.get(key).and_then(value::text).unwrap_or_default();
            let (secret, key) = match node.as_str() {
                Some(short) => {
                    let (secret, key) = short.split_once('/').unwrap_or((short, ""));
                    (secret.to_owned(), key.to_owned())
                }
                None => (text("secret"), text("key")),
            };
            Some(SecretRef { env: name.to_owned(), secret, key })
        };
        by_name(self, node, |secret| &secret.env, read)
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let mut table = Table::new();
        for SecretRef { env, secret, key } in self {
            let item = if secret.contains('/') || key.is_empty() {
                inline([("secret", secret.as_str().into()), ("key", key.as_str().into())])
            } else {
                toml_edit::value(format!("{secret}/{key}"))
            };
            table.insert(env, item);
        }
        (!self.is_empty()).then_some(Item::Table(table))
    }
}

/// A volume without exactly one source becomes an empty host path, which validation refuses with the reason.
impl Field for Vec<Volume> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        let read = |name: &str, table: &SpanTree<'_>| {
            let text = |key: &str| table.get(key).and_then(value::text);
            let memory = table.get("memory").filter(|node| value::bool(node) != Some(false));
            let what = match (text("host_path"), text("claim"), memory) {
                (Some(path), None, None) => VolumeSource::HostPath(path),
                (None, Some(claim), None) => VolumeSource::Claim(claim),
                (None, None, Some(size)) => VolumeSource::Memory { size: quantity(size, source) },
                _ => VolumeSource::HostPath(String::new()),
            };
            Some(Volume {
                name: name.to_owned(),
                mount: text("mount").unwrap_or_default(),
                source: what,
                read_only: table.get("read_only").and_then(value::bool).unwrap_or(false),
            })
        };
        by_name(self, node, |volume| &volume.name, read)
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let mut volumes = Table::new();
        volumes.set_implicit(true);
        for volume in self {
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
            volumes.insert(&volume.name, Item::Table(table));
        }
        (!self.is_empty()).then_some(Item::Table(volumes))
    }
}

impl Field for Option<Code> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, _: Source<'_>) -> Option<()> {
        let text = |key: &str| node.get(key).and_then(value::text);
        *self = Some(match text("script") {
            Some(path) => Code::Script {
                name: path.rsplit(['/', '\\']).next().unwrap_or("").to_owned(),
                text: text("text").unwrap_or_default(),
            },
            None => match text("dir") {
                Some(dir) => Code::Folder { dir, content: None },
                None => Code::Git { url: text("git")?, rev: text("ref") },
            },
        });
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let (first, second) = match self.as_ref()? {
            Code::Script { name, text } => {
                (("script", name), Some(("text", text)).filter(|_| !text.is_empty()))
            }
            Code::Git { url, rev } => (("git", url), rev.as_ref().map(|rev| ("ref", rev))),
            Code::Folder { dir, .. } => (("dir", dir), None),
        };
        let parts = std::iter::once(first).chain(second);
        Some(inline(parts.map(|(key, text)| (key, text.as_str().into()))))
    }
}

impl Field for RestartPolicy {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        *self = match node.value {
            Value::Map(_) => Self::OnFailure { max: node.get("max").and_then(value::count)? },
            _ => match &*value::word_text(node, source)? {
                "never" => Self::Never,
                "on-failure" => Self::OnFailure { max: DEFAULT_RESTARTS },
                _ => return None,
            },
        };
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        match self {
            Self::Never => None,
            Self::OnFailure { max } => Some(inline([("max", i64::from(*max).into())])),
        }
    }
}

impl Field for Option<RetryPolicy> {
    fn read(&mut self, node: &SpanTree<'_>, _: &Shape, source: Source<'_>) -> Option<()> {
        let avoid = match node.get("avoid") {
            Some(word) => value::word(word, source)?,
            None => self.map_or_else(RetryAvoid::default, |known| known.avoid),
        };
        let max = value::count(node.get("max").unwrap_or(node))?;
        *self = Some(RetryPolicy { max, avoid });
        Some(())
    }

    fn write(&self, _: &Shape) -> Option<Item> {
        let RetryPolicy { max, avoid } = self.as_ref()?;
        let named = (*avoid != RetryAvoid::default()).then(|| ("avoid", word(avoid).into()));
        Some(inline([("max", i64::from(*max).into())].into_iter().chain(named)))
    }
}

/// Returns the word of a unit variant in files.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn unless_default<T: Default + PartialEq + serde::Serialize>(value: &T) -> Option<Item> {
    (*value != T::default()).then(|| toml_edit::value(word(value)))
}

fn quantity(node: &SpanTree<'_>, source: Source<'_>) -> Option<String> {
    value::quantity(node, source).filter(|text| Quantity::parse(text).is_some())
}

fn table<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>) -> Item {
    let mut table = Table::new();
    entries.for_each(|(name, value)| put(&mut table, name, value));
    Item::Table(table)
}

/// Merges a table into a list whose items have names: an item replaces the one with its name, or is
/// appended. Positions are kept in a map, so that a table of many entries is read in linear time.
fn by_name<T>(
    list: &mut Vec<T>,
    node: &SpanTree<'_>,
    name: impl Fn(&T) -> &str,
    read: impl Fn(&str, &SpanTree<'_>) -> Option<T>,
) -> Option<()> {
    let mut positions: HashMap<String, usize> =
        list.iter().enumerate().map(|(at, item)| (name(item).to_owned(), at)).collect();
    for entry in node.entries() {
        let Some(item) = read(&entry.key, &entry.value) else { continue };
        match positions.get(&*entry.key).and_then(|at| list.get_mut(*at)) {
            Some(known) => *known = item,
            None => {
                positions.insert(entry.key.to_string(), list.len());
                list.push(item);
            }
        }
    }
    Some(())
}

/// Merges one value into another: tables by key, everything else as a whole.
pub(super) fn merge(under: &mut serde_json::Value, over: serde_json::Value) {
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
