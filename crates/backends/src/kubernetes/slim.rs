//! Parses only the used fields of a page of a list: the field managers are up to half of a stored object, and
//! the environment and mounts of its containers are most of the rest of a pod.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use crate::json_answer::{self, Keep, Place};

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
pub(super) struct Page {
    /// The token of the next page.
    pub token: Option<String>,
    /// The objects, without their unused fields.
    pub items: Vec<Value>,
}

impl<'de> Deserialize<'de> for Page {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let page = json_answer::list(deserializer, "items", At::Object, Keep::Entries, |item| item)?;
        let items = page.rows.ok_or_else(|| D::Error::missing_field("items"))?;
        let token = page.rest.get("metadata").and_then(|metadata| metadata.get("continue"));
        Ok(Self { token: token.and_then(Value::as_str).map(str::to_owned), items })
    }
}

/// An object, all of it.
pub(super) struct Whole(pub Value);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = json_answer::value(deserializer)?;
        if value.is_object() { Ok(Self(value)) } else { Err(D::Error::custom("it is not an object")) }
    }
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

impl Place for At {
    fn under(self, key: &str) -> Option<Self> {
        Some(match self {
            Self::Object if key == "metadata" => Self::Metadata,
            Self::Object if key == "spec" => Self::Spec,
            Self::Metadata if key == MANAGED_FIELDS => return None,
            Self::Spec if CONTAINERS.contains(&key) => Self::Containers,
            Self::Spec | Self::Containers if UNUSED.contains(&key) => return None,
            _ => Self::Elsewhere,
        })
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
        assert_eq!(page.token.as_deref(), Some("next"));
        let slim = json!({"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        assert_eq!(
            page.items[0],
            json!({"metadata": metadata, "spec": {"containers": [slim]}, "status": pod["status"]})
        );
        assert_eq!(page.items[1], json!({"metadata": metadata, "spec": job["spec"]}));
        let empty: Page =
            serde_json::from_str(r#"{"kind": "PodList", "metadata": {}, "items": null}"#).unwrap();
        assert!(empty.items.is_empty() && empty.token.is_none());
    }
}
