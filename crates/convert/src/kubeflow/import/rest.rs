//! An object from which values are removed, and the remaining values.

use serde_json::Value as Json;

pub(super) use crate::edit::step;
use crate::kubeflow::object::{scalar, steps};

/// An object from which values are removed.
pub(super) struct Rest {
    before: Json,
    now: Json,
}

impl Rest {
    pub fn new(object: &Json) -> Self {
        Self { before: object.clone(), now: object.clone() }
    }

    /// Returns the original object.
    pub fn before(&self) -> &Json {
        &self.before
    }

    pub fn has(&self, pointer: &str) -> bool {
        self.peek(pointer).is_some()
    }

    pub fn peek(&self, pointer: &str) -> Option<&Json> {
        self.now.pointer(pointer).filter(|value| !value.is_null())
    }

    /// Removes a value; the other members of a list keep their indices.
    pub fn take(&mut self, pointer: &str) -> Option<Json> {
        let slot = self.now.pointer_mut(pointer)?;
        Some(slot.take()).filter(|value| !value.is_null())
    }

    pub fn take_if(&mut self, pointer: &str, wanted: &Json) {
        if self.peek(pointer) == Some(wanted) {
            self.take(pointer);
        }
    }

    pub fn drop_all(&mut self, pointers: &[&str]) {
        for pointer in pointers {
            self.take(pointer);
        }
    }

    /// Removes a string.
    pub fn text(&mut self, pointer: &str) -> Option<String> {
        self.peek(pointer)?.as_str()?;
        self.take(pointer)?.as_str().map(str::to_owned)
    }

    /// Removes a whole number.
    pub fn number(&mut self, pointer: &str) -> Option<u32> {
        whole(self.peek(pointer)?)?;
        self.take(pointer).as_ref().and_then(whole)
    }

    /// Removes the strings and other scalars of a map.
    pub fn texts(&mut self, pointer: &str) -> Vec<(String, String)> {
        self.texts_if(pointer, |_, _| true)
    }

    /// Removes those strings and other scalars of a map that are wanted.
    pub fn texts_if(&mut self, pointer: &str, wanted: impl Fn(&str, &str) -> bool) -> Vec<(String, String)> {
        let map = self.peek(pointer).and_then(Json::as_object);
        let keys: Vec<String> = map.into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let mut found = Vec::new();
        for key in keys {
            let at = format!("{pointer}/{}", step(&key));
            let is_wanted =
                |value: &Json| !value.is_object() && !value.is_array() && wanted(&key, &scalar(value));
            if self.peek(&at).is_some_and(is_wanted)
                && let Some(value) = self.take(&at)
            {
                found.push((key, scalar(&value)));
            }
        }
        found
    }

    /// Removes a list of strings, if it is one.
    pub fn words(&mut self, pointer: &str) -> Vec<String> {
        let is_list = self.peek(pointer).and_then(Json::as_array).is_some_and(|items| {
            items.iter().all(|item| !item.is_object() && !item.is_array() && !item.is_null())
        });
        let taken = if is_list { self.take(pointer) } else { None };
        taken.iter().flat_map(|list| list.as_array().into_iter().flatten()).map(scalar).collect()
    }

    /// Returns the number of members of a list.
    pub fn len(&self, pointer: &str) -> usize {
        self.peek(pointer).and_then(Json::as_array).map_or(0, Vec::len)
    }

    /// Returns the index of the container of a name, else of the first.
    pub fn container(&self, template: &str, wanted: Option<&str>) -> Option<usize> {
        let containers = self.peek(&format!("{template}/spec/containers"))?.as_array()?;
        let named = containers.iter().position(|one| wanted.is_some() && one["name"].as_str() == wanted);
        named.or_else(|| (!containers.is_empty()).then_some(0))
    }

    /// Returns pointers of what was never removed: whole maps and lists where nothing in them was.
    pub fn left(&self) -> Vec<String> {
        let mut found = Vec::new();
        left(&self.before, &self.now, String::new(), &mut found);
        found
    }
}

fn left(before: &Json, now: &Json, at: String, found: &mut Vec<String>) {
    if is_nothing(now) {
        return;
    }
    if before == now && !at.is_empty() {
        found.push(at);
        return;
    }
    match (before, now) {
        (Json::Object(before), Json::Object(now)) => {
            for (key, value) in now {
                left(before.get(key).unwrap_or(&Json::Null), value, format!("{at}/{}", step(key)), found);
            }
        }
        (Json::Array(before), Json::Array(now)) => {
            for (index, (before, now)) in before.iter().zip(now).enumerate() {
                left(before, now, format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at),
    }
}

/// Returns whether it holds no significant value.
fn is_nothing(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Object(map) => map.values().all(is_nothing),
        Json::Array(items) => items.iter().all(is_nothing),
        _ => false,
    }
}

/// Returns a pointer as people write a path.
pub(super) fn shown(pointer: &str) -> String {
    let mut path = String::new();
    for step in steps(pointer) {
        if step.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{step}]"));
        } else {
            path.push_str(&format!("{}{step}", if path.is_empty() { "" } else { "." }));
        }
    }
    format!("`{path}`")
}

/// Returns a whole number, in quotes or not.
pub(super) fn whole(value: &Json) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u32::try_from(number).ok()
}
