//! Values as slurmrestd writes them: v0.0.38 plain, later ones with `{set, infinite, number}`, lists of
//! words, and so on. Both forms are accepted.

use jiff::Timestamp;
use serde_json::Value;

/// Returns the entries of a list; none if it is no list.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a number that is set and finite.
pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Object(object) => {
            let flag = |key: &str| object.get(key).and_then(Value::as_bool);
            let there = flag("set") != Some(false) && flag("infinite") != Some(true);
            object.get("number").and_then(Value::as_u64).filter(|_| there)
        }
        Value::String(text) => text.parse().ok(),
        plain => plain.as_u64(),
    }
}

/// Returns a number above 0, which is none for ids and times.
pub fn some_number(value: &Value) -> Option<u64> {
    number(value).filter(|number| *number > 0)
}

/// Returns a count; 0 if there is none.
pub fn count(value: &Value) -> u32 {
    number(value).and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// Returns a text, or the words of a list separated by commas; empty if there is none.
pub fn text(value: &Value) -> String {
    words(value).join(",")
}

fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(word) => vec![word],
        list => self::list(list).iter().filter_map(Value::as_str).collect(),
    }
}

/// Returns a time in epoch seconds.
pub fn time(value: &Value) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(some_number(value)?).ok()?).ok()
}

/// Returns the state of a job: one word in v0.0.38, later a list of the state and its flags, of which the
/// flag is more specific.
pub fn state(value: &Value) -> String {
    const FLAGS: [&str; 9] = [
        "COMPLETING",
        "CONFIGURING",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "RESV_DEL_HOLD",
    ];
    let words = words(value);
    let flag = words.iter().find(|word| FLAGS.contains(word));
    flag.or(words.first()).map_or_else(String::new, |word| (*word).to_owned())
}

/// Returns an exit code as in a shell, from a wait status or from `{return_code, signal: {id}}`. None while
/// it is not set.
pub fn exit_code(value: &Value) -> Option<i32> {
    let as_code = |code: u64| i32::try_from(code).ok().filter(|code| *code < 256);
    if let Some(status) = value.as_u64() {
        let (code, signal) = (status >> 8 & 0xff, status & 0x7f);
        return if status > 0xffff {
            None
        } else {
            as_code(if signal > 0 && code == 0 { 128 + signal } else { code })
        };
    }
    let signal = value.get("signal").and_then(|signal| signal.get("id").or_else(|| signal.get("signal_id")));
    let signal = signal.and_then(number).unwrap_or(0);
    let code = value.get("return_code").and_then(number);
    match code {
        Some(0) | None if signal > 0 => as_code(128 + signal),
        Some(code) => as_code(code),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_ways_of_writing_are_read_alike() {
        assert_eq!(number(&json!(5)), Some(5));
        assert_eq!(number(&json!({"set": true, "infinite": false, "number": 5})), Some(5));
        assert_eq!(number(&json!({"set": false, "infinite": false, "number": 0})), None);
        assert_eq!(number(&json!({"set": false, "infinite": true, "number": 0})), None);
        assert_eq!(number(&json!(null)), None);
        let states = json!({"old": "RUNNING", "new": ["RUNNING", "COMPLETING"], "unknown": ["BRAND_NEW"]});
        assert_eq!(
            ["old", "new", "unknown"].map(|key| state(&states[key])),
            ["RUNNING", "COMPLETING", "BRAND_NEW"]
        );
    }

    #[test]
    fn exit_codes_of_every_version() {
        assert_eq!(exit_code(&json!(255 << 8)), Some(255));
        assert_eq!(exit_code(&json!(9)), Some(137));
        assert_eq!(
            exit_code(&json!(4_294_967_295_u64)),
            None,
            "22.05 writes this of a job that has not ended"
        );
        assert_eq!(
            exit_code(
                &json!({"return_code": {"set": true, "number": 3}, "signal": {"id": {"set": false, "number": 0}}})
            ),
            Some(3)
        );
        assert_eq!(exit_code(&json!({"return_code": 0, "signal": {"signal_id": 53}})), Some(181));
    }
}
