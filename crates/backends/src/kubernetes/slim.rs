//! Parses only the used fields of a page of a list: the field managers are up to half of a stored object, and
//! the environment and mounts of its containers are most of the rest of a pod.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Unused fields of a pod's spec, or of one of its containers.
const UNUSED: [&str; 9] = [
    "affinity",
    "args",
    "command",
    "env",
    "envFrom",
    "securityContext",
    "tolerations",
    "volumeMounts",
    "volumes",
];
const MANAGED_FIELDS: &str = "managedFields";
/// The fields of a pod's spec that contain containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub metadata: PageMetadata,
    #[serde(default, deserialize_with = "items")]
    pub items: Vec<Slim>,
}

#[derive(Default, Deserialize)]
pub(super) struct PageMetadata {
    /// The token of the next page.
    #[serde(default, rename = "continue")]
    pub token: Option<String>,
}

/// An object without its unused fields.
pub(super) struct Slim(pub Value);

impl<'de> Deserialize<'de> for Slim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part(At::Object).deserialize(deserializer).map(Self)
    }
}

/// A list without items is `null` in Go.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Slim>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The position of a value in an object. The spec of a job has its pods deeper, where they are kept whole.
#[derive(Clone, Copy)]
enum At {
    Object,
    Metadata,
    Spec,
    Containers,
    Elsewhere,
}

/// A value of which only the used fields are parsed.
#[derive(Clone, Copy)]
struct Part(At);

impl Part {
    /// Returns the part under a key; none if it is omitted.
    fn under(self, key: &str) -> Option<Self> {
        let at = match self.0 {
            At::Object if key == "metadata" => At::Metadata,
            At::Object if key == "spec" => At::Spec,
            At::Metadata if key == MANAGED_FIELDS => return None,
            At::Spec if CONTAINERS.contains(&key) => At::Containers,
            At::Spec | At::Containers if UNUSED.contains(&key) => return None,
            _ => At::Elsewhere,
        };
        Some(Self(at))
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match self.under(&key) {
                Some(part) => {
                    values.insert(key, map.next_value_seed(part)?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listed_pod_has_no_environment_and_a_listed_job_is_whole() {
        let container = json!({"name": "pytorch", "image": "x", "env": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        let metadata = json!({"name": "a", "labels": {"env": "prod"}});
        let mut stored = metadata.clone();
        stored["managedFields"] = json!([{"manager": "x"}]);
        let template = json!({"spec": {"containers": [container], "volumes": []}});
        let specs = json!({"Worker": {"template": template}});
        let pod = json!({"metadata": stored, "spec": template["spec"], "status": {"message": "env", "n": [1, -2, 0.5, null, true]}});
        let job = json!({"metadata": stored, "spec": {"pytorchReplicaSpecs": specs}});
        let page = json!({"metadata": {"continue": "next"}, "items": [pod, job]});
        let page: Page = serde_json::from_value(page).unwrap();
        assert_eq!(page.metadata.token.as_deref(), Some("next"));
        let slim = json!({"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        assert_eq!(
            page.items[0].0,
            json!({"metadata": metadata, "spec": {"containers": [slim]}, "status": pod["status"]})
        );
        assert_eq!(page.items[1].0, json!({"metadata": metadata, "spec": job["spec"]}));
        let empty: Page =
            serde_json::from_str(r#"{"kind": "PodList", "metadata": {}, "items": null}"#).unwrap();
        assert!(empty.items.is_empty() && empty.metadata.token.is_none());
    }
}
