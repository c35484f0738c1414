//! The places of a job's values in its file, by path.

use std::collections::BTreeMap;
use std::ops::Range;

use super::check::join;
use super::keys::{self, is_shorthand};
use super::value::Source;
use crate::Finding;
use crate::finding::Span;
use crate::span::{SpanTree, Value};
use crate::spec::origins::path_and_those_above;

/// More paths than a hand-written job file has; a value beyond the limit is shown by what contains it.
const MAX_PLACES: usize = 10_000;

/// The places of a job file's values.
#[derive(Clone, Default)]
pub(super) struct Places {
    by_path: BTreeMap<String, Range<usize>>,
    file: String,
    text: String,
}

/// Hides the text.
impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Places {
    pub fn add(&mut self, root: &SpanTree<'_>, source: Source<'_>) {
        source.file.clone_into(&mut self.file);
        source.text.clone_into(&mut self.text);
        self.walk(root, "");
    }

    fn walk(&mut self, node: &SpanTree<'_>, path: &str) {
        for entry in node.entries() {
            if self.by_path.len() >= MAX_PLACES {
                return;
            }
            let name = if path.is_empty() {
                keys::JOB.key(&entry.key).map_or(&*entry.key, |key| key.name)
            } else {
                &entry.key
            };
            let path = join(path, name);
            // A table is shown by its key, a value by itself.
            let table = matches!(entry.value.value, Value::Map(_));
            let span = if table || entry.value.is_null() { &entry.key_span } else { &entry.value.span };
            self.by_path.insert(path.clone(), span.clone());
            self.walk(&entry.value, &path);
        }
    }

    /// Returns whether the file has a value at a path.
    pub fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Sets the place of a finding, and names its subject as in the file.
    pub fn locate(&self, finding: &mut Finding) {
        let Some(path) = finding.subject.clone() else { return };
        let path = self.as_written(&path);
        if let Some(fix) = &mut finding.fix {
            for edit in &mut fix.patch {
                edit.path = self.as_written(&edit.path);
            }
        }
        finding.span = self.place(&path);
        finding.subject = Some(path);
    }

    /// Returns the path as written: the one role's keys are at the top unless the file has `[roles]`.
    fn as_written(&self, path: &str) -> String {
        let Some(rest) = path.strip_prefix("roles.worker.") else { return path.to_owned() };
        let key = rest.split('.').next().unwrap_or("");
        if self.has("roles") || !(is_shorthand(key) || key == "env" || key == "image") {
            path.to_owned()
        } else {
            rest.to_owned()
        }
    }

    fn place(&self, path: &str) -> Option<Span> {
        let source = Source { file: &self.file, text: &self.text };
        let known = path_and_those_above(path).find_map(|path| self.by_path.get(path));
        source.place(known.unwrap_or(&(0..0)))
    }
}
