//! What the settings of all backends have in common: the names of their keys, and a job's own over its target's.

#![cfg_attr(
    not(any(feature = "hosts", feature = "slurm")),
    expect(dead_code, reason = "kubeflow needs only some of it")
)]

use std::time::Duration;

use serde::de::value::Error as NoValue;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde_json::{Map, Value};
use weftrun_core::backend::TargetConfig;
use weftrun_core::spec::JobSpec;
use weftrun_core::text::suggestion;
use weftrun_core::{Error, ErrorKind, Result};

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

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> std::result::Result<V::Value, NoValue> {
        Err(NoValue::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Returns settings whose keys were written with `-` or `_`, with `-`.
fn with_dashes(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().map(|(key, value)| (key.replace('_', "-"), value.clone())).collect()
}

/// Splits the settings of a target of `what` into its own, of the type `T`, and those of its jobs, of the type `J`.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] for a key of neither.
pub fn split<'de, T: Deserialize<'de>, J: Deserialize<'de>>(
    target: &TargetConfig,
    what: &str,
) -> Result<(Map<String, Value>, Map<String, Value>)> {
    target.refuse_nul()?;
    let given = with_dashes(&target.settings);
    let refused = |key: &str| {
        let message = format!("target `{}`: `{key}` is not a setting of {what}", target.name);
        Error::new(ErrorKind::InvalidConfig, message)
    };
    known(&given, &[keys::<T>(), keys::<J>()].concat(), refused)?;
    Ok(given.into_iter().partition(|(key, _)| keys::<T>().contains(&key.as_str())))
}

/// Returns the settings of a job for a backend, of the type `J`.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for an unknown key.
pub fn of_job<'de, J: Deserialize<'de>>(spec: &JobSpec, backend: &str) -> Result<Map<String, Value>> {
    let own = spec.backend.get(backend).and_then(Value::as_object).map(with_dashes).unwrap_or_default();
    let refused =
        |key: &str| Error::new(ErrorKind::InvalidSpec, format!("`backend.{backend}.{key}` is not a setting"));
    known(&own, keys::<J>(), refused)?;
    Ok(own)
}

/// Refuses an unknown key, with what may be meant.
fn known(settings: &Map<String, Value>, known: &[&str], refused: impl Fn(&str) -> Error) -> Result<()> {
    let Some(key) = settings.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let near = suggestion(key, known.iter().copied());
    Err(refused(key).hint(near.unwrap_or_else(|| format!("there are: {}", known.join(", ")))))
}

/// Returns a number of seconds within bounds.
pub fn seconds(given: Option<f64>, default: f64, least: f64, most: f64) -> Duration {
    let seconds = given.filter(|seconds| seconds.is_finite()).unwrap_or(default);
    Duration::from_secs_f64(seconds.clamp(least, most))
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
