//! TOML items from plain values.

use toml_edit::{Array, InlineTable, Item, Table, Value};

pub(super) fn put(table: &mut Table, key: &str, value: &str) {
    table.insert(key, toml_edit::value(value));
}

pub(super) fn inline<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Item {
    Item::Value(Value::InlineTable(entries.into_iter().collect::<InlineTable>()))
}

/// Converts a value; TOML has no null, so a key without a value is left out.
pub(super) fn from_json(value: &serde_json::Value) -> Option<Value> {
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
