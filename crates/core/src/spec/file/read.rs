//! Moves the values of a tree into a job, key by key. Invalid values were reported by the check and are
//! skipped here.

use std::collections::HashMap;

use super::check::join;
use super::field::merge;
use super::keys::{FABRIC_TABLE, JOB, ROLE};
use super::shape::{FieldAccess, Key};
use super::value::{self, Source};
use crate::request::Origin;
use crate::span::SpanTree;
use crate::spec::{JobSpec, Role, RoleKind};

/// Reads one source into a job: its values replace those of the job, maps are merged by key.
pub(super) struct Read<'s, 'j> {
    pub source: Source<'s>,
    pub origin: Origin,
    pub job: &'j mut JobSpec,
    /// The path of a script whose text is still to be read.
    pub script: &'j mut Option<String>,
}

impl Read<'_, '_> {
    /// Reads a whole file.
    pub fn job(&mut self, tree: &SpanTree<'_>) {
        for entry in tree.entries() {
            let Some(key) = JOB.key(&entry.key) else { continue };
            if self.key(key, &entry.value).is_some() {
                self.note(key.name, &entry.value);
            }
        }
    }

    /// Records the origin of a value; of a table, the origin of each of its values.
    fn note(&mut self, path: &str, node: &SpanTree<'_>) {
        if node.entries().is_empty() {
            return self.job.origins.set(path, self.origin.clone());
        }
        for entry in node.entries() {
            let deeper = matches!(path, "roles" | "volumes" | "fabric") || path.starts_with("roles.");
            if deeper {
                self.note(&join(path, &entry.key), &entry.value);
            } else {
                self.job.origins.set(join(path, &entry.key), self.origin.clone());
            }
        }
    }

    fn key(&mut self, key: &Key, node: &SpanTree<'_>) -> Option<()> {
        let source = self.source;
        match key.place {
            FieldAccess::Job(field) => field(self.job).read(node, &key.shape, source)?,
            FieldAccess::Role(field) => field(self.worker()).read(node, &key.shape, source)?,
            FieldAccess::Fabric(field) => field(&mut self.job.fabric).read(node, &key.shape, source)?,
            FieldAccess::Setting { backend, key } => {
                let own = serde_json::json!({ key: value::word_text(node, source)? });
                merge(self.job.backend.entry(backend.to_owned()).or_default(), own);
            }
            FieldAccess::Roles => self.roles(node),
            FieldAccess::Request => self.fabric(node),
            FieldAccess::Part => return None,
        }
        if key.name == "code" {
            let text = |key: &str| node.get(key).and_then(value::text);
            *self.script = text("script").filter(|_| text("text").is_none());
        }
        Some(())
    }

    /// Returns the role of the keys at the top: the only worker, which is made on the first such key.
    fn worker(&mut self) -> &mut Role {
        let roles = &mut self.job.roles;
        let at = roles.iter().position(|role| role.kind == RoleKind::Worker).unwrap_or_else(|| {
            roles.push(Role::worker());
            roles.len() - 1
        });
        &mut roles[at]
    }

    fn roles(&mut self, node: &SpanTree<'_>) {
        let known = self.job.roles.iter().enumerate().rev();
        let mut known: HashMap<String, usize> = known.map(|(at, role)| (role.name.clone(), at)).collect();
        for entry in node.entries() {
            let roles = &mut self.job.roles;
            let at = *known.entry(entry.key.to_string()).or_insert_with(|| {
                roles.push(Role { kind: RoleKind::of_name(&entry.key), ..Role::new(entry.key.as_ref()) });
                roles.len() - 1
            });
            for inner in entry.value.entries() {
                if let Some(Key { place: FieldAccess::Role(field), shape, .. }) = ROLE.key(&inner.key) {
                    let _ = field(&mut roles[at]).read(&inner.value, shape, self.source);
                }
            }
        }
    }

    /// Reads `fabric`: a word is short for a table with `kind`.
    fn fabric(&mut self, node: &SpanTree<'_>) {
        if node.entries().is_empty() {
            let _ = FABRIC_TABLE.key("kind").and_then(|kind| self.key(kind, node));
        }
        for entry in node.entries() {
            let _ = FABRIC_TABLE.key(&entry.key).and_then(|key| self.key(key, &entry.value));
        }
    }
}
