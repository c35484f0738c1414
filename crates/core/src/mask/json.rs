//! Hides secrets in a JSON text, part by part: as one [`Value`], the text of a large report would take twenty times its size.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{is_secret_name, mask, mask_value};

/// Parts up to this size are read as a whole: what is near a name decides.
const SMALL: usize = 64 << 10;

/// Returns a JSON text with `…` in the place of each secret, as [`mask_value`] hides them.
///
/// ```
/// use weftrun_core::mask::mask_json;
/// assert_eq!(mask_json(r#"{"env":{"HF_TOKEN":"abc123"},"nodes":2}"#), r#"{"env":{"HF_TOKEN":"…"},"nodes":2}"#);
/// assert_eq!(mask_json("no JSON, --token=abc123"), "no JSON, --token=…");
/// ```
pub fn mask_json(text: &str) -> Cow<'_, str> {
    let mut changed = Vec::new();
    mask_part(text.trim_end(), 0, &mut changed);
    if changed.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    changed.sort_by_key(|(range, _): &(Range<usize>, String)| range.start);
    for (range, part) in changed {
        shown.push_str(text.get(from..range.start).unwrap_or_default());
        shown.push_str(&part);
        from = range.end;
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(shown)
}

/// Adds the parts that hold secrets, with what is shown in their places. `start` is where the part begins.
fn mask_part(part: &str, start: usize, changed: &mut Vec<(Range<usize>, String)>) {
    if let Some(inner) = parts_of(part) {
        for inner in inner {
            mask_part(inner, start + (inner.as_ptr() as usize - part.as_ptr() as usize), changed);
        }
        return;
    }
    let Ok(plain) = serde_json::from_str::<Value>(part) else {
        // Nested too deep to be read.
        if let Cow::Owned(shown) = mask(part) {
            changed.push((start..start + part.len(), shown));
        }
        return;
    };
    let mut shown = plain.clone();
    mask_value(&mut shown);
    if shown != plain {
        changed.push((start..start + part.len(), shown.to_string()));
    }
}

/// Returns the parts of a large one that are masked each by itself: the fields of an object without the name of a secret, and the
/// elements of a list without words, of which one may be the option before another.
fn parts_of(part: &str) -> Option<Vec<&str>> {
    if part.len() <= SMALL {
        return None;
    }
    if let Ok(fields) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(part) {
        let is_apart = |key: &Cow<'_, str>| {
            !is_secret_name(key) && !["name", "target", "secrets"].contains(&key.as_ref())
        };
        return fields.keys().all(is_apart).then(|| fields.values().map(|field| field.get()).collect());
    }
    let elements = serde_json::from_str::<Vec<&RawValue>>(part).ok()?;
    let is_word = |element: &&RawValue| element.get().starts_with('"');
    (!elements.iter().any(is_word)).then(|| elements.iter().map(|element| element.get()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A text that is masked part by part is the text of the value that is masked as a whole.
    #[test]
    fn parts_are_masked_as_the_whole_is() {
        let token = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789";
        let rank = |number: usize| json!({"rank": number, "lines": [format!("line {number}")], "env": {"HF_TOKEN": "abc123"}});
        let ranks: Vec<Value> = (0..2000).map(rank).collect();
        for value in [
            json!({"ranks": ranks, "last": token}),
            json!({"name": "HF_TOKEN", "value": "abc123", "ranks": ranks}),
            json!({"words": ["--token", "abc123", token], "ranks": ranks}),
            json!({"secrets": {"HF_TOKEN": "the-name", "more": "x".repeat(SMALL)}, "ranks": ranks}),
            json!([["--token", "abc123", "y".repeat(SMALL)], ranks]),
            json!({"plain": (0..20_000).collect::<Vec<u32>>()}),
        ] {
            let mut masked = value.clone();
            mask_value(&mut masked);
            let text = value.to_string();
            assert!(text.len() > SMALL);
            assert_eq!(mask_json(&text), masked.to_string());
            assert_eq!(mask_json(&format!("{text}\n")), format!("{masked}\n"));
            assert_eq!(matches!(mask_json(&text), Cow::Borrowed(_)), masked == value);
        }
    }
}
