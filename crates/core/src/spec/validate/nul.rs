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
    use super::*;
    use crate::spec::{Code, Volume, VolumeSource};

    fn spec() -> JobSpec {
        let role = Role::worker().command(["python", "train.py"]).gpus_per_node(1);
        JobSpec::builder("job").role(role).build().unwrap()
    }

    /// Puts a NUL into one field.
    type Change = Box<dyn Fn(&mut JobSpec)>;

    #[test]
    fn a_nul_is_refused_in_every_field_that_holds_text() {
        let nul = || "a\0b".to_owned();
        let text = "print(1)\nWEFTRUN_END\0_\ntouch /tmp/x\n".to_owned();
        let changes: Vec<(&str, Change)> = vec![
            ("name", Box::new(move |spec| spec.name = nul())),
            ("image", Box::new(move |spec| spec.image = Some(nul()))),
            ("code.script.text", {
                Box::new(move |spec| {
                    spec.code = Some(Code::Script { name: "x.py".into(), text: text.clone() });
                })
            }),
            ("code.git.rev", {
                Box::new(move |spec| {
                    spec.code = Some(Code::Git { url: "https://h/r".into(), rev: Some(nul()) });
                })
            }),
            ("workdir", Box::new(move |spec| spec.workdir = Some(format!("/{}", nul())))),
            ("queue", Box::new(move |spec| spec.queue = Some(nul()))),
            ("priority", Box::new(move |spec| spec.priority = Some(nul()))),
            ("profile", Box::new(move |spec| spec.profile = Some(nul()))),
            ("annotations.a", Box::new(move |spec| drop(spec.annotations.insert("a".into(), nul())))),
            ("labels.a", Box::new(move |spec| drop(spec.labels.insert("a".into(), nul())))),
            ("backend.slurm.setup", {
                Box::new(move |spec| {
                    spec.backend
                        .insert("slurm".into(), serde_json::json!({ "setup": ["module load x", nul()] }));
                })
            }),
            ("roles.worker.command", Box::new(move |spec| spec.roles[0].command.push(nul()))),
            ("roles.worker.env.A.value", {
                Box::new(move |spec| {
                    spec.roles[0].env.push(crate::spec::EnvVar { name: "A".into(), value: nul() });
                })
            }),
            ("env.A.value", {
                Box::new(move |spec| spec.env.push(crate::spec::EnvVar { name: "A".into(), value: nul() }))
            }),
            ("secrets", {
                Box::new(move |spec| {
                    let secret = crate::spec::SecretRef { env: "S".into(), secret: "s".into(), key: nul() };
                    spec.secrets.push(secret);
                })
            }),
            ("volumes.data.source.host-path", {
                Box::new(move |spec| {
                    let source = VolumeSource::HostPath(format!("/{}", nul()));
                    let (name, mount) = ("data".to_owned(), "/data".to_owned());
                    spec.volumes.push(Volume { name, mount, source, read_only: false });
                })
            }),
        ];
        for (field, change) in changes {
            let mut spec = spec();
            change(&mut spec);
            let refused = spec.refuse_nul().expect_err(field);
            assert!(refused.to_string().contains(field), "{field}: {refused}");
            assert!(spec.validate().iter().any(crate::Finding::is_error), "{field}: validation lets it pass");
        }
        spec().refuse_nul().expect("there is none");
    }
}
