//! NUL characters: no program argument and no file name can contain one, and a shell that drops it may read
//! data as a command.

use std::collections::HashSet;

use serde_json::Value;

use super::Findings;
use crate::spec::file::join;
use crate::spec::{JobSpec, Launch, Role};
use crate::{Error, ErrorKind, Result};

/// Refuses a NUL in any field of the job, whichever code uses the field later.
pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    // A set: every variable of a job with many may have a finding.
    let known: HashSet<String> = out.0.iter().filter_map(|finding| finding.subject.clone()).collect();
    for path in of_job(job) {
        if !known.contains(&path) {
            out.error("SPEC-NUL", &path, "a NUL character cannot be passed to a program")
                .fix("remove the NUL character");
        }
    }
}

fn of_job(job: &JobSpec) -> Vec<String> {
    serde_json::to_value(job).map(|value| nul_paths(&value)).unwrap_or_default()
}

/// Returns the paths of all texts and keys in a JSON value that contain a NUL character. Elements of a list
/// are named by their `name`, as in a job file, and texts in a list by the list.
pub fn nul_paths(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found.dedup();
    found
}

fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { join(path, key) };
    match value {
        Value::String(text) if text.contains('\0') => found.push(path.to_owned()),
        Value::Array(items) => {
            for item in items {
                let name = item.get("name").and_then(Value::as_str);
                walk(item, &name.map_or_else(|| path.to_owned(), below), found);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                if key.contains('\0') {
                    found.push(below(key));
                }
                walk(value, &below(key), found);
            }
        }
        _ => {}
    }
}

impl JobSpec {
    /// Refuses a job with a NUL character in any field. Backends call it before they render: not every spec
    /// comes from a job file or a builder, which check it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] naming the fields.
    pub fn refuse_nul(&self) -> Result<()> {
        let fields = of_job(self);
        if fields.is_empty() {
            return Ok(());
        }
        let message = format!(
            "a NUL character in {} cannot be passed to a program",
            fields.iter().map(|field| format!("`{}`", field.escape_debug())).collect::<Vec<_>>().join(", ")
        );
        Err(Error::new(ErrorKind::InvalidSpec, message).hint("remove the NUL character"))
    }

    /// Returns whether a role has no command because its image's entrypoint is to be started, once on each
    /// node.
    pub fn starts_entrypoint(&self, role: &Role) -> bool {
        let image = role.image.is_some() || self.image.is_some();
        role.command.is_empty() && self.launch == Launch::PerNode && image && self.code.is_none()
    }

    /// Refuses a job without a command, for a backend that cannot start an image's entrypoint.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub fn refuse_entrypoint(&self, backend: &str) -> Result<()> {
        match self.workers().find(|role| self.starts_entrypoint(role)) {
            None => Ok(()),
            Some(role) => Err(Error::unsupported(backend, "a job without a command")
                .with("role", &role.name)
                .hint("set `command`, or put it behind `--` on the command line")),
        }
    }

    /// Refuses a job of several nodes whose command starts the ranks itself, for a backend that does not
    /// support that.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub fn refuse_once(&self, backend: &str) -> Result<()> {
        if self.launch == Launch::Once && self.nodes() > 1 {
            return Err(Error::unsupported(backend, "launch = \"once\" on several nodes").hint(
                "only Slurm gives a script an allocation in which it starts the ranks itself (`srun`)",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> JobSpec {
        let role = Role::worker().command(["python", "train.py"]).gpus_per_node(1);
        JobSpec::builder("job").role(role).build().unwrap()
    }

    #[test]
    fn a_nul_is_refused_in_every_field_that_holds_text() {
        let script = json!({"script": {"name": "x.py", "text": "print(1)\nWEFTRUN_END\0_\ntouch /tmp/x\n"}});
        let volume =
            json!({"name": "data", "mount": "/data", "source": {"host-path": "/a\0b"}, "read_only": false});
        for (field, pointer, value) in [
            ("name", "/name", json!("a\0b")),
            ("image", "/image", json!("a\0b")),
            ("code.script.text", "/code", script),
            ("code.git.rev", "/code", json!({"git": {"url": "https://h/r", "rev": "a\0b"}})),
            ("workdir", "/workdir", json!("/a\0b")),
            ("queue", "/queue", json!("a\0b")),
            ("priority", "/priority", json!("a\0b")),
            ("profile", "/profile", json!("a\0b")),
            ("annotations.a", "/annotations", json!({"a": "a\0b"})),
            ("labels.a", "/labels", json!({"a": "a\0b"})),
            ("backend.slurm.setup", "/backend", json!({"slurm": {"setup": ["module load x", "a\0b"]}})),
            ("roles.worker.command", "/roles/0/command", json!(["python", "train.py", "a\0b"])),
            ("roles.worker.env.A.value", "/roles/0/env", json!([{"name": "A", "value": "a\0b"}])),
            ("env.A.value", "/env", json!([{"name": "A", "value": "a\0b"}])),
            ("secrets", "/secrets", json!([{"env": "S", "secret": "s", "key": "a\0b"}])),
            ("volumes.data.source.host-path", "/volumes", json!([volume])),
        ] {
            let mut spec = serde_json::to_value(spec()).unwrap();
            *spec.pointer_mut(pointer).unwrap() = value;
            let spec: JobSpec = serde_json::from_value(spec).unwrap();
            let refused = spec.refuse_nul().expect_err(field);
            assert!(refused.to_string().contains(field), "{field}: {refused}");
            assert!(spec.validate().iter().any(crate::Finding::is_error), "{field}: validation lets it pass");
        }
        spec().refuse_nul().expect("there is none");
    }
}
