//! Values of flags: `key=value,key=value,switch` and the older `a:b:ro`.

use serde_json::{Map, Value, json};

use super::flags::Shape;
use crate::spec::{SecretRef, VolumeSource};

/// Sets a field by its path; false where something else stands in the way.
pub(super) fn set(fields: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    let Some((folder, rest)) = path.split_once('.') else {
        fields.insert(path.to_owned(), value);
        return true;
    };
    let inner = fields.entry(folder).or_insert_with(|| json!({})).as_object_mut();
    inner.is_some_and(|inner| set(inner, rest, value))
}

/// Appends to a list by its path; false where something else stands in the way.
pub(super) fn push(fields: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    if let Some((folder, rest)) = path.split_once('.') {
        let inner = fields.entry(folder).or_insert_with(|| json!({})).as_object_mut();
        return inner.is_some_and(|inner| push(inner, rest, value));
    }
    let list = fields.entry(path).or_insert_with(|| json!([])).as_array_mut();
    list.is_some_and(|list| {
        list.push(value);
        true
    })
}

/// A value as the API takes it.
pub(super) fn of_shape(shape: Shape, text: &str) -> Option<Value> {
    match shape {
        Shape::Text => Some(json!(text)),
        Shape::Switch => text.parse::<bool>().ok().map(Value::Bool),
        Shape::List => Some(text.split(',').filter(|item| !item.is_empty()).collect()),
        Shape::Number => {
            let bare = text.strip_suffix('s').unwrap_or(text);
            let whole = bare.parse::<i64>().ok().map(Value::from);
            whole.or_else(|| bare.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from))
        }
    }
}

/// `key=value,key=value,switch`, keys in lower case.
fn pairs(text: &str) -> Vec<(String, &str)> {
    let pieces = text.split(',').filter(|piece| !piece.is_empty());
    pieces
        .map(|piece| {
            let (key, value) = piece.split_once('=').unwrap_or((piece, "true"));
            (key.trim().to_lowercase(), value)
        })
        .collect()
}

fn find<'a>(pairs: &[(String, &'a str)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == key).map(|(_, value)| *value)
}

/// `claimname=…,path=…[,readonly]`.
pub(super) fn claim(text: &str) -> Option<(VolumeSource, String, bool)> {
    let pairs = pairs(text);
    let claim = find(&pairs, "claimname")?.to_owned();
    let read_only = find(&pairs, "readonly").or(find(&pairs, "ro")) == Some("true");
    Some((VolumeSource::Claim(claim), find(&pairs, "path")?.to_owned(), read_only))
}

/// `CLAIM:PATH[:ro]` of the older command line.
pub(super) fn old_claim(text: &str) -> Option<(VolumeSource, String, bool)> {
    let (claim, mount, read_only) = parts(text)?;
    Some((VolumeSource::Claim(claim), mount, read_only))
}

/// `HOST:PATH[:ro]` of the older command line.
pub(super) fn old_volume(text: &str) -> Option<(VolumeSource, String, bool)> {
    let (path, mount, read_only) = parts(text)?;
    Some((VolumeSource::HostPath(path), mount, read_only))
}

fn parts(text: &str) -> Option<(String, String, bool)> {
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [name, mount] => Some(((*name).to_owned(), (*mount).to_owned(), false)),
        [name, mount, how] if mount.starts_with('/') => {
            Some(((*name).to_owned(), (*mount).to_owned(), how.contains("ro")))
        }
        // Class, size and path make a new claim, which a job file does not.
        _ => None,
    }
}

/// `path=…,mount=…[,readwrite]`: read-only unless it says otherwise.
pub(super) fn host_path(text: &str) -> Option<(VolumeSource, String, bool)> {
    let pairs = pairs(text);
    let path = find(&pairs, "path")?.to_owned();
    Some((
        VolumeSource::HostPath(path),
        find(&pairs, "mount")?.to_owned(),
        find(&pairs, "readwrite").is_none(),
    ))
}

/// `NAME=SECRET,key=KEY`.
pub(super) fn secret(text: &str) -> Option<SecretRef> {
    let (env, rest) = text.split_once('=')?;
    let (secret, key) = rest.split_once(',')?;
    let key = key.strip_prefix("key=")?;
    Some(SecretRef { env: env.to_owned(), secret: secret.to_owned(), key: key.to_owned() })
}

/// The entries whose keys are known, under the API's names.
fn renamed(text: &str, names: &[(&str, &str)]) -> Value {
    let mut made = Map::new();
    for (key, value) in pairs(text) {
        if let Some((_, name)) = names.iter().find(|(known, _)| *known == key) {
            made.insert((*name).to_owned(), json!(value));
        }
    }
    Value::Object(made)
}

/// `path=…,server=…,mountpath=…[,readwrite]`.
pub(super) fn nfs(text: &str) -> Value {
    let mut made = renamed(text, &[("path", "path"), ("server", "server"), ("mountpath", "mountPath")]);
    made["readOnly"] = json!(find(&pairs(text), "readwrite").is_none());
    made
}

/// `name=…,repository=…,path=…,secret=…,rev=…`.
pub(super) fn git(text: &str) -> Value {
    let names = [
        ("name", "name"),
        ("repository", "repository"),
        ("path", "path"),
        ("secret", "passwordSecret"),
        ("rev", "revision"),
        ("branch", "branch"),
    ];
    renamed(text, &names)
}

/// `operator=…,key=…,value=…,effect=…`.
pub(super) fn toleration(text: &str) -> Value {
    renamed(
        text,
        &[
            ("operator", "operator"),
            ("key", "key"),
            ("value", "value"),
            ("effect", "effect"),
            ("name", "name"),
        ],
    )
}
