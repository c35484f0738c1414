//! Merges weftrun's values with the user's own.

use serde_json::Value;

use crate::span::yaml_documents;

/// Returns `LD_LIBRARY_PATH` with our folders first, then the user's entries without ours and without empty
/// ones (an empty entry means the current directory). Where the user sets none, `tail` follows ours.
pub(crate) fn library_path(ours: &[String], tail: &[String], user: Option<&str>) -> String {
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    let rest: Vec<&str> = match user {
        Some(value) => value.split(':').filter(|entry| !entry.is_empty() && !ours.contains(entry)).collect(),
        None => tail.iter().map(String::as_str).collect(),
    };
    ours.iter().chain(&rest).copied().collect::<Vec<_>>().join(":")
}

/// Returns the Multus annotation with each network named at least as often as wanted; existing text stays
/// as it is, in its comma or JSON form. None if nothing is missing.
///
/// # Errors
/// A sentence, if the annotation looks like JSON and is not a list.
pub(crate) fn networks(
    existing: Option<&str>,
    wanted: &[(String, usize)],
    namespace: Option<&str>,
) -> Result<Option<String>, String> {
    let existing = existing.map(str::trim).filter(|text| !text.is_empty());
    let json = existing.is_some_and(|text| text.starts_with(['[', '{']));
    let there: Vec<String> = match existing {
        Some(text) if json => json_networks(text)?,
        Some(text) => text.split(',').map(|entry| entry.trim().to_owned()).collect(),
        None => Vec::new(),
    };
    let missing: Vec<&str> = wanted
        .iter()
        .flat_map(|(network, times)| {
            let present = there.iter().filter(|entry| same_network(entry, network, namespace)).count();
            std::iter::repeat_n(network.as_str(), times.saturating_sub(present))
        })
        .collect();
    Ok(match existing {
        _ if missing.is_empty() => None,
        None => Some(missing.join(",")),
        Some(text) if json => Some(append_json(text, &missing)),
        Some(text) => Some(format!("{},{}", text.trim_end_matches(','), missing.join(","))),
    })
}

/// Returns an annotation that holds a list as JSON or YAML, with the missing members after the existing
/// ones. A member exists if one has the same value of its first key. None if nothing is missing.
///
/// # Errors
/// A sentence, if the existing value is no list.
pub(crate) fn list(existing: Option<&str>, wanted: &[Value]) -> Result<Option<String>, String> {
    let Some(text) = existing.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(Some(Value::Array(wanted.to_vec()).to_string()));
    };
    let read = yaml_documents(text).ok().and_then(|documents| Some(documents.first()?.root.to_json()));
    let Some(Value::Array(there)) = read else { return Err("it holds no list".to_owned()) };
    let first = |member: &Value| match member.as_object().and_then(|map| map.iter().next()) {
        Some((key, value)) => (key.clone(), value.clone()),
        None => (String::new(), member.clone()),
    };
    let is_there = |member: &&Value| {
        let (key, value) = first(member);
        there.iter().any(|other| if key.is_empty() { *other == value } else { other[&key] == value })
    };
    let missing: Vec<String> =
        wanted.iter().filter(|member| !is_there(member)).map(Value::to_string).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    Ok(Some(match text.strip_suffix(']') {
        Some(inside) => {
            let comma = if inside.trim_end().ends_with('[') { "" } else { "," };
            format!("{}{comma}{}]", inside.trim_end(), missing.join(","))
        }
        // A member of a YAML list may be written as JSON.
        None => missing.iter().fold(text.to_owned(), |text, member| format!("{text}\n- {member}")) + "\n",
    }))
}

/// Compares `namespace/name@interface`, whose namespace is by default the pod's own.
fn same_network(entry: &str, wanted: &str, namespace: Option<&str>) -> bool {
    let entry = entry.split('@').next().unwrap_or_default();
    match entry.split_once('/') {
        Some(_) => entry == wanted,
        None => {
            wanted == entry || namespace.is_some_and(|namespace| wanted == format!("{namespace}/{entry}"))
        }
    }
}

fn json_networks(text: &str) -> Result<Vec<String>, String> {
    let Ok(Value::Array(entries)) = serde_json::from_str::<Value>(text) else {
        return Err("it begins like JSON but is not a JSON list of networks".to_owned());
    };
    let named = |entry: &Value| {
        let field = |key: &str| entry.get(key).and_then(Value::as_str);
        let name = field("name").unwrap_or_default();
        field("namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
    };
    Ok(entries.iter().map(named).collect())
}

/// Inserts entries before the closing bracket, so that the user's own text stays as it is.
fn append_json(text: &str, missing: &[&str]) -> String {
    let entry = |network: &&str| match network.split_once('/') {
        Some((namespace, name)) => serde_json::json!({"name": name, "namespace": namespace}).to_string(),
        None => serde_json::json!({"name": network}).to_string(),
    };
    let added = missing.iter().map(entry).collect::<Vec<_>>().join(",");
    let inside = text.strip_suffix(']').unwrap_or(text);
    let trimmed = inside.trim_end();
    let space = inside.get(trimmed.len()..).unwrap_or_default();
    let comma = if trimmed.ends_with('[') { "" } else { "," };
    format!("{trimmed}{comma}{added}{space}]")
}
