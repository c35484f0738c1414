//! Reads values of Kubernetes objects.

use std::borrow::Cow;

use serde_json::Value as Json;

/// Returns the value at a JSON pointer. (`serde_json`'s version makes two strings for each step; most steps
/// need no unescaping.)
pub(super) fn pointer<'j>(object: &'j Json, pointer: &str) -> Option<&'j Json> {
    steps(pointer).try_fold(object, |value, step| match value {
        Json::Object(map) => map.get(step.as_ref()),
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the same, mutable.
pub(super) fn pointer_mut<'j>(object: &'j mut Json, pointer: &str) -> Option<&'j mut Json> {
    steps(pointer).try_fold(object, |value, step| match value {
        Json::Object(map) => map.get_mut(step.as_ref()),
        Json::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the steps of a JSON pointer (RFC 6901).
pub(super) fn steps(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> {
    pointer.split('/').skip(1).map(|step| {
        if step.contains('~') {
            Cow::Owned(step.replace("~1", "/").replace("~0", "~"))
        } else {
            Cow::Borrowed(step)
        }
    })
}

pub(super) fn text_at<'j>(object: &'j Json, pointer: &str) -> Option<&'j str> {
    self::pointer(object, pointer).and_then(Json::as_str)
}

/// Returns a scalar as text, without the quotes of a string.
pub(super) fn scalar(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the members of a list at a key; none if there is no list.
pub(super) fn list<'j>(object: &'j Json, key: &str) -> &'j [Json] {
    object.get(key).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a whole number at a key if it fits; one in quotes counts too, though the API server refuses it.
pub(super) fn number(object: &Json, key: &str) -> Option<u32> {
    let value = object.get(key)?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Returns the text in place of a number, if it is none (`$NUM_NODES`).
pub(super) fn placeholder(object: &Json, key: &str) -> Option<String> {
    let text = object.get(key).and_then(Json::as_str)?;
    text.parse::<u64>().is_err().then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pointer_leads_where_that_of_serde_json_leads() {
        let mut object = serde_json::json!({"a/b": {"c~d": [1, {"~1": 2}]}, "": {"": 3}, "0": 4});
        for pointer in [
            "",
            "/",
            "//",
            "/0",
            "/a~1b",
            "/a~1b/c~0d/1/~01",
            "/a~1b/c~0d/2",
            "/a~1b/c~0d/x",
            "/0/0",
            "/none",
        ] {
            assert_eq!(super::pointer(&object, pointer), object.pointer(pointer), "{pointer}");
            assert_eq!(
                super::pointer_mut(&mut object.clone(), pointer),
                object.pointer_mut(pointer),
                "{pointer}"
            );
        }
    }
}
