//! Values of flags: `key=value,key=value,switch` and the older `a:b:ro`.

use serde_json::{Map, Value, json};

use super::flags::{PORT, Part, Shape};
use weftrun_core::spec::{SecretRef, VolumeSource};
use weftrun_core::text::duration;

/// Sets a field by its path; returns false where another value is in the way.
pub(super) fn set(fields: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    let Some((folder, rest)) = path.split_once('.') else {
        fields.insert(path.to_owned(), value);
        return true;
    };
    let inner = fields.entry(folder).or_insert_with(|| json!({})).as_object_mut();
    inner.is_some_and(|inner| set(inner, rest, value))
}

/// Appends to a list by its path; returns false where another value is in the way.
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

/// Converts a value to the API's form.
pub(super) fn of_shape(shape: Shape, text: &str) -> Option<Value> {
    match shape {
        Shape::Text => Some(json!(text)),
        Shape::Switch => text.parse::<bool>().ok().map(Value::Bool),
        Shape::List => Some(text.split(',').filter(|item| !item.is_empty()).collect()),
        Shape::Number => {
            let whole = text.parse::<i64>().ok().map(Value::from);
            whole.or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from))
        }
        Shape::Seconds => duration::parse(text).map(|time| json!(time.as_secs())),
        Shape::Memory => Some(json!(memory(text))),
    }
}

/// Splits `key=value,key=value,switch`, keys in lower case.
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

/// Reads `claimname=…,path=…[,readonly]`.
pub(super) fn claim(text: &str) -> Option<(VolumeSource, String, bool)> {
    let pairs = pairs(text);
    let claim = find(&pairs, "claimname")?.to_owned();
    let read_only = find(&pairs, "readonly").or(find(&pairs, "ro")) == Some("true");
    Some((VolumeSource::Claim(claim), find(&pairs, "path")?.to_owned(), read_only))
}

/// Reads `CLAIM:PATH[:ro]` or `HOST:PATH[:ro]` of the older command line.
pub(super) fn old_volume(
    text: &str,
    source: fn(String) -> VolumeSource,
) -> Option<(VolumeSource, String, bool)> {
    let (name, mount, read_only) = match text.split(':').collect::<Vec<_>>()[..] {
        [name, mount] => (name, mount, false),
        [name, mount, how] if mount.starts_with('/') => (name, mount, how.contains("ro")),
        // Class, size and path create a claim, which a job file cannot do.
        _ => return None,
    };
    Some((source(name.to_owned()), mount.to_owned(), read_only))
}

/// Reads `path=…,mount=…[,readwrite]`: read-only by default.
pub(super) fn host_path(text: &str) -> Option<(VolumeSource, String, bool)> {
    let pairs = pairs(text);
    let (path, mount) = (find(&pairs, "path")?.to_owned(), find(&pairs, "mount")?.to_owned());
    Some((VolumeSource::HostPath(path), mount, find(&pairs, "readwrite").is_none()))
}

/// Reads `NAME=SECRET,key=KEY`.
pub(super) fn secret(text: &str) -> Option<SecretRef> {
    let (env, rest) = text.split_once('=')?;
    let (secret, key) = rest.split_once(',')?;
    let key = key.strip_prefix("key=")?;
    Some(SecretRef { env: env.to_owned(), secret: secret.to_owned(), key: key.to_owned() })
}

/// Returns an entry of a list of the API, and the keys of the text that it has no field for.
pub(super) fn entry(parts: &[Part], text: &str) -> Option<(Value, Vec<String>)> {
    let (mut made, mut unknown) = (Map::new(), Vec::new());
    for (key, value) in pairs(text) {
        let Some((_, field, shape)) = parts.iter().find(|(known, ..)| *known == key) else {
            unknown.push(key);
            continue;
        };
        match field.strip_prefix('!') {
            Some(opposite) => made.insert(opposite.to_owned(), json!(value != "true")),
            None => made.insert((*field).to_owned(), of_shape(*shape, value)?),
        };
    }
    for (_, field, _) in parts {
        if let Some(opposite) = field.strip_prefix('!') {
            made.entry(opposite).or_insert(json!(true));
        }
    }
    Some((Value::Object(made), unknown))
}

/// Reads
/// `claimname=…,storageclass=…,size=…,path=…,accessmode-rwo,accessmode-rom,accessmode-rwm,ro,ephemeral`.
pub(super) fn new_claim(text: &str) -> Option<(Value, Vec<String>)> {
    let mut claim = json!({"existingPvc": false, "readOnly": false});
    let mut info = Map::new();
    let mut modes = Map::new();
    let mut unknown = Vec::new();
    for (key, value) in pairs(text) {
        match key.as_str() {
            "claimname" => claim["claimName"] = json!(value),
            "path" => claim["path"] = json!(value),
            "ro" | "readonly" => claim["readOnly"] = json!(value == "true"),
            "ephemeral" => claim["ephemeral"] = json!(value == "true"),
            "size" => drop(info.insert("size".into(), json!(memory(value)))),
            "storageclass" => drop(info.insert("storageClass".into(), json!(value))),
            "accessmode-rwo" => drop(modes.insert("readWriteOnce".into(), json!(true))),
            "accessmode-rom" => drop(modes.insert("readOnlyMany".into(), json!(true))),
            "accessmode-rwm" => drop(modes.insert("readWriteMany".into(), json!(true))),
            _ => unknown.push(key),
        }
    }
    if !modes.is_empty() {
        // The API's default is true, even beside another mode.
        modes.entry("readWriteOnce").or_insert(json!(false));
        info.insert("accessModes".into(), Value::Object(modes));
    }
    claim.get("path")?;
    claim["claimInfo"] = Value::Object(info);
    Some((claim, unknown))
}

/// Converts `8GB` and `8GiB`, which the API refuses, to quantities that it accepts.
fn memory(text: &str) -> &str {
    let bytes = text.strip_suffix(['B', 'b']).unwrap_or(text);
    if bytes.ends_with(|c: char| c.is_ascii_alphabetic()) { bytes } else { text }
}

/// Reads `8888:8888` of the older command line, or `container=…,service-type=…,external=…`.
pub(super) fn port(text: &str) -> Option<(Value, Vec<String>)> {
    if text.contains('=') {
        return entry(PORT, text);
    }
    let (external, container) = text.split_once(':').unwrap_or((text, text));
    let (external, container): (u16, u16) = (external.parse().ok()?, container.parse().ok()?);
    let mut made = json!({"container": container});
    if external != container {
        made["external"] = json!(external);
    }
    Some((made, Vec::new()))
}
