//! JSON that a server sent, parsed within a bound of memory: what is built counts, since `[0,0,…]` needs 36 times as
//! much memory as text.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Memory that one answer may need.
const MOST_MEMORY: usize = 256 << 20;
/// Memory of a value in a list that has room for as many again, and of an entry of an object.
const VALUE: usize = 2 * size_of::<Value>();
const ENTRY: usize = VALUE + 2 * size_of::<String>();
/// Memory that is kept of an entry of a list that is read to another type.
const READ: usize = 1 << 10;
/// Values in one answer, or in one line of changes, that is parsed elsewhere. A page of 500 pods has about 400,000.
const MOST: usize = 4_000_000;
/// Largest line of changes: an object is at most 1.5 MiB in etcd, and 3 MiB with its field managers.
const LONGEST_LINE: usize = 32 << 20;

/// A position in an answer, which decides what is built of it. `()` builds everything.
pub trait Place: Copy {
    /// Returns the position under a key; none if what is there is not built.
    fn under(self, key: &str) -> Option<Self>;
}

impl Place for () {
    fn under(self, _: &str) -> Option<Self> {
        Some(())
    }
}

/// An answer with a list.
#[derive(Debug)]
pub struct Listed<T> {
    /// The other fields.
    pub rest: Map<String, Value>,
    /// What was read of the list's entries, each of which is an object; none if the answer has no such list. A list
    /// without entries is `null` in Go.
    pub rows: Option<Vec<T>>,
}

/// Parses an answer.
///
/// # Errors
/// Of a text that is not JSON, or needs too much memory.
pub fn whole(text: &str) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = value(&mut deserializer)?;
    deserializer.end().map(|()| value)
}

/// Deserialises an answer.
///
/// # Errors
/// As [`whole`].
pub fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Part { place: (), left: &Cell::new(MOST_MEMORY) }.deserialize(deserializer)
}

/// Parses an answer whose list is under `key`, and keeps its entries as they are.
///
/// # Errors
/// Of a text that is no JSON object with a list of objects, or needs too much memory.
pub fn entries(text: &str, key: &str) -> serde_json::Result<Listed<Value>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let listed = list(&mut deserializer, key, (), Keep::Entries, |entry| entry)?;
    deserializer.end().map(|()| listed)
}

/// Parses an answer whose list is under `key`; `read` keeps what is needed of each entry, of which one is in memory at a
/// time.
///
/// # Errors
/// As [`entries`].
pub fn rows<T>(text: &str, key: &str, read: impl FnMut(Value) -> T) -> serde_json::Result<Listed<T>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let listed = list(&mut deserializer, key, (), Keep::Rows, read)?;
    deserializer.end().map(|()| listed)
}

/// What is kept of the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them, as they are.
    Entries,
    /// What was read of them.
    Rows,
}

/// Deserialises an answer with a list.
///
/// # Errors
/// As [`entries`].
pub fn list<'de, D: Deserializer<'de>, P: Place, T>(
    deserializer: D,
    key: &str,
    place: P,
    keep: Keep,
    read: impl FnMut(Value) -> T,
) -> Result<Listed<T>, D::Error> {
    deserializer.deserialize_any(Answer { key, place, keep, left: &Cell::new(MOST_MEMORY), read })
}

struct Answer<'a, P, F> {
    key: &'a str,
    place: P,
    keep: Keep,
    left: &'a Cell<usize>,
    read: F,
}

impl<'de, P: Place, T, F: FnMut(Value) -> T> Visitor<'de> for Answer<'_, P, F> {
    type Value = Listed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the list `{}`", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Listed<T>, A::Error> {
        let mut listed = Listed { rest: Map::new(), rows: None };
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                let entries =
                    Entries { place: self.place, keep: self.keep, left: self.left, read: &mut self.read };
                listed.rows = Some(map.next_value_seed(entries)?);
            } else {
                charge(self.left, ENTRY + key.len())?;
                let value = map.next_value_seed(Part { place: (), left: self.left })?;
                listed.rest.insert(key, value);
            }
        }
        Ok(listed)
    }
}

struct Entries<'a, P, F> {
    place: P,
    keep: Keep,
    left: &'a Cell<usize>,
    read: &'a mut F,
}

impl<'de, P: Place, T, F: FnMut(Value) -> T> DeserializeSeed<'de> for Entries<'_, P, F> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Place, T, F: FnMut(Value) -> T> Visitor<'de> for Entries<'_, P, F> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut rows = Vec::new();
        loop {
            let left = self.left.get();
            let Some(entry) = list.next_element_seed(Part { place: self.place, left: self.left })? else {
                return Ok(rows);
            };
            if !entry.is_object() {
                return Err(A::Error::custom("an entry of the list is not an object"));
            }
            rows.push((self.read)(entry));
            if self.keep == Keep::Rows {
                self.left.set(left);
                charge(self.left, READ + 2 * size_of::<T>())?;
            }
        }
    }
}

/// A value, within the memory that is left.
struct Part<'a, P> {
    place: P,
    left: &'a Cell<usize>,
}

fn charge<E: Error>(left: &Cell<usize>, memory: usize) -> Result<(), E> {
    let Some(less) = left.get().checked_sub(memory) else {
        return Err(E::custom(format_args!(
            "the answer needs more than {} MiB of memory",
            MOST_MEMORY >> 20
        )));
    };
    left.set(less);
    Ok(())
}

impl<'de, P: Place> DeserializeSeed<'de> for Part<'_, P> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        charge(self.left, VALUE)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Place> Visitor<'de> for Part<'_, P> {
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
        charge(self.left, value.len())?;
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        charge(self.left, value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Part { place: self.place, left: self.left })? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match self.place.under(&key) {
                Some(place) => {
                    charge(self.left, ENTRY + key.len())?;
                    let value = map.next_value_seed(Part { place, left: self.left })?;
                    values.insert(key, value);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(values))
    }
}

/// Counts the values of JSON that arrives in pieces and is parsed elsewhere.
#[derive(Debug, Default)]
pub struct Counter {
    values: usize,
    bytes: usize,
    in_string: bool,
    escaped: bool,
    by_line: bool,
}

impl Counter {
    /// Creates a counter of one answer, or of each of its lines.
    pub fn new(by_line: bool) -> Self {
        Self { by_line, ..Self::default() }
    }

    /// Counts a piece; returns false if it is more than may be parsed.
    pub fn next(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            self.bytes += 1;
            match byte {
                b'\n' if self.by_line => *self = Self::new(true),
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b',' | b':' | b'[' | b'{' if !self.in_string => self.values += 1,
                _ => {}
            }
            if self.values > MOST {
                return false;
            }
        }
        !self.by_line || self.bytes <= LONGEST_LINE
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Clone, Copy)]
    struct Top;
    impl Place for Top {
        fn under(self, key: &str) -> Option<Self> {
            (key != "unused").then_some(self)
        }
    }

    #[test]
    fn what_is_built_is_bounded_and_not_what_is_read() {
        for (name, text) in [
            ("numbers", format!(r#"{{"jobs": [{}0]}}"#, "0,".repeat(4 << 20))),
            ("numbers in an entry", format!(r#"{{"jobs": [{{"a": [{}0]}}]}}"#, "0,".repeat(4 << 20))),
            ("beside the list", format!(r#"{{"a": [{}[]], "jobs": []}}"#, "[],".repeat(4 << 20))),
            (
                "keys",
                format!(
                    r#"{{"a": {{{}"x":0}}}}"#,
                    (0..2_000_000).map(|n| format!("\"{n}\":0,")).collect::<String>()
                ),
            ),
        ] {
            let refused = rows(&text, "jobs", |entry| entry).map(drop).unwrap_err().to_string();
            assert!(
                refused.contains("more than 256 MiB") || refused.contains("not an object"),
                "{name}: {refused}"
            );
            assert!(whole(&text).unwrap_err().to_string().contains("more than 256 MiB"), "{name}");
        }
        // Many entries of which little is kept are read; each would need 40 KiB as it is.
        let entry = format!(r#"{{"job_id": 7, "a": [{}0]}}"#, "0,".repeat(256));
        let text = format!(r#"{{"jobs": [{}{{}}]}}"#, format!("{entry},").repeat(10_000));
        assert_eq!(
            rows(&text, "jobs", |entry| entry["job_id"].as_u64()).unwrap().rows.unwrap().len(),
            10_001
        );
        assert!(entries(&text, "jobs").is_err());
        // What is not used is not built.
        let text = format!(r#"{{"items": [{{"unused": [{}0], "a": 1}}]}}"#, "0,".repeat(4 << 20));
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        let listed = list(&mut deserializer, "items", Top, Keep::Entries, |entry| entry).unwrap();
        assert_eq!(listed.rows.unwrap(), [json!({"a": 1})]);
    }

    #[test]
    fn nonsense_is_no_list_without_entries() {
        for text in [
            "null",
            "\"x\"",
            "5",
            "[]",
            "{\"jobs\": 5}",
            "{\"jobs\": {}}",
            "{\"jobs\": [5]}",
            "{\"jobs\": [null]}",
            "{} x",
        ] {
            assert!(entries(text, "jobs").is_err(), "{text}");
        }
        assert!(entries("{}", "jobs").unwrap().rows.is_none());
        for text in ["{\"jobs\": null}", "{\"jobs\": []}"] {
            assert_eq!(entries(text, "jobs").unwrap().rows.unwrap(), [json!(null); 0], "{text}");
        }
    }

    #[test]
    fn values_that_arrive_in_pieces_are_counted() {
        let text = format!("[{}0]", "0,".repeat(MOST + 1));
        assert!(!Counter::new(false).next(text.as_bytes()));
        let strings = format!(r#"["{}\"{}"]"#, ",".repeat(MOST), ",".repeat(MOST));
        let mut counter = Counter::new(false);
        assert!(
            strings.as_bytes().chunks(7).all(|piece| counter.next(piece)),
            "commas in a string are no values"
        );
        let mut lines = Counter::new(true);
        let line = format!("[{}0]\n", "0,".repeat(MOST / 2));
        assert!((0..4).all(|_| lines.next(line.as_bytes())), "each line counts alone");
        assert!(!lines.next(&vec![b'x'; LONGEST_LINE + 1]), "a line without end");
    }
}
