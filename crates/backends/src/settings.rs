//! What the settings of all backends have in common: the names of their keys, and a job's own over its target's.

#![cfg_attr(
    not(any(feature = "hosts", feature = "slurm")),
    expect(dead_code, reason = "kubeflow needs only some of it")
)]

use serde::de::value::Error as NoValue;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde_json::{Map, Value};
use weftrun_core::Error;
use weftrun_core::text::did_you_mean;

/// Returns the keys of a struct of settings, in its order.
pub fn keys<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut keys: &[&str] = &[];
    // It ends with an error, since there is no value; by then the fields are known.
    let _ = T::deserialize(Fields(&mut keys));
    keys
}

/// Takes the names of a struct's fields.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Returns settings whose keys were written with `-` or `_`, with `-`.
pub fn with_dashes(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().map(|(key, value)| (key.replace('_', "-"), value.clone())).collect()
}

/// Adds to the error of an unknown key what may be meant.
pub fn unknown(error: Error, key: &str, known: &[&str]) -> Error {
    match did_you_mean(key, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are: {}", known.join(", "))),
    }
}

/// Returns a job's own settings over those of its target: the lists and tables of some keys are appended to, other values are replaced.
pub fn merged(base: &Map<String, Value>, own: Map<String, Value>, lists: &[&str]) -> Map<String, Value> {
    let mut all = base.clone();
    for (key, value) in own.into_iter().filter(|(_, value)| !value.is_null()) {
        match (all.get_mut(&key), value) {
            (Some(Value::Array(base)), Value::Array(own)) if lists.contains(&key.as_str()) => {
                base.extend(own);
            }
            (Some(Value::Object(base)), Value::Object(own)) if lists.contains(&key.as_str()) => {
                base.extend(own);
            }
            (_, value) => drop(all.insert(key, value)),
        }
    }
    all
}
