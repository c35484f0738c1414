//! Expands the words of a shell script, where the script itself determines their values.

use std::collections::BTreeMap;

use crate::shell::is_variable;

use super::pieces::{end_of_piece, is_list_of_all, located, raw_words, shortened};

/// First of the private-use characters that mark, in a text, what could not be expanded. The offset from it
/// is the number of the reason.
const MARK: u32 = 0xE000;
/// Most reasons that are distinguished.
const MOST: u32 = 6400;
/// Most bytes of one expanded word: otherwise a few lines of `A=$A$A` would fill the memory.
const LONGEST: usize = 128 * 1024;
/// Most bytes that all words expand to, and how many more for each byte of the script: otherwise each of many
/// lines of `A=${A}x` would be as long as all before it.
const MOST_EXPANDED: (usize, usize) = (1 << 20, 64);

/// A variable of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<String>),
}

/// Why something was not expanded.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    /// Line of the script, from 1, if it is not the line being read.
    pub line: Option<usize>,
    /// The text, as written there, shortened.
    pub text: String,
    pub why: String,
}

/// The variables of a script, up to the line read.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, Value>,
    reasons: Vec<Reason>,
    /// Names that the script gives a default but does not set, with that default.
    pub defaults: BTreeMap<String, String>,
    /// The line that is being read.
    pub line: usize,
    /// Bytes that words may still expand to.
    left: usize,
    /// Bytes of each list, and whether all of it was expanded: many lines may add to one.
    lists: BTreeMap<String, (usize, bool)>,
}

impl Variables {
    /// Starts to read a script of so many bytes.
    pub fn of_script(bytes: usize) -> Self {
        let (least, each) = MOST_EXPANDED;
        Self { left: least.saturating_add(bytes.saturating_mul(each)), ..Self::default() }
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    pub fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Marks the value of a name as unknown from here on.
    pub fn set_unknown(&mut self, name: &str, why: &str) {
        let text = self.unknown(&format!("${{{name}}}"), why);
        // The line that counts is the reading one; the reason names the other.
        if let Some(reason) = self.reasons.last_mut() {
            reason.line = None;
        }
        self.set(name, Value::Text(text));
    }

    /// Reads `NAME=value`, `NAME+=value` and `NAME=(…)`; returns the name.
    pub fn assign(&mut self, raw: &str) -> Option<String> {
        let (name, value) = raw.split_once('=')?;
        let (name, adds) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        if !is_variable(name) {
            if let Some((list, _)) = name.split_once('[').filter(|(list, _)| is_variable(list)) {
                self.set_unknown(list, "an element of a list is set by itself");
                return Some(list.to_owned());
            }
            return None;
        }
        let new = if let Some(list) = value.strip_prefix('(').and_then(|list| list.strip_suffix(')')) {
            let new: Vec<String> = raw_words(list).into_iter().flat_map(|raw| self.expand(raw)).collect();
            // Taken, not copied: many lines may add to one list.
            let (mut all, before) = match self.values.remove(name).filter(|_| adds) {
                Some(Value::List(old)) => (old, self.lists.get(name).copied().unwrap_or_default()),
                Some(Value::Text(old)) => {
                    let state = (old.len() + 1, mark_in(&old).is_none());
                    (vec![old], state)
                }
                None => (Vec::new(), (0, true)),
            };
            let is_known = before.1 && new.iter().all(|item| mark_in(item).is_none());
            let bytes = before.0 + new.iter().map(|item| item.len() + 1).sum::<usize>();
            all.extend(new);
            if bytes > LONGEST {
                all = vec![self.unknown(name, "it is too long")];
            }
            self.lists.insert(name.to_owned(), (bytes, is_known && bytes <= LONGEST));
            Value::List(all)
        } else {
            let text = self.expand_one(value);
            match self.values.get(name).filter(|_| adds) {
                Some(Value::Text(old)) if old.len() < LONGEST => {
                    let whole = format!("{old}{text}");
                    let fits = self.take(whole.len());
                    Value::Text(if fits { whole } else { self.unknown(&shortened(raw), "it is too long") })
                }
                _ => Value::Text(text),
            }
        };
        self.set(name, new);
        Some(name.to_owned())
    }

    /// Expands a word into the words it becomes.
    pub fn expand(&mut self, raw: &str) -> Vec<String> {
        let mut fields = Fields::default();
        self.word(raw, &mut fields, true);
        self.bounded(raw, fields)
    }

    /// Expands a word without splitting it, such as the value of an assignment.
    pub fn expand_one(&mut self, raw: &str) -> String {
        let mut fields = Fields::default();
        self.word(raw, &mut fields, false);
        self.bounded(raw, fields).join(" ")
    }

    fn bounded(&mut self, raw: &str, mut fields: Fields) -> Vec<String> {
        fields.finish();
        if !self.take(fields.bytes) || fields.is_full() {
            return vec![self.unknown(&shortened(raw), "it is too long")];
        }
        fields.done
    }

    /// Counts bytes of expanded words; returns whether they are within the limit.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns whether all of a list was expanded.
    pub fn knows_list(&self, name: &str) -> bool {
        self.lists.get(name).is_some_and(|(_, is_known)| *is_known)
    }

    /// Returns why a text could not be expanded, if a part of it could not.
    pub fn unresolved(&self, text: &str) -> Option<&Reason> {
        let mark = text.get(mark_in(text)?..)?.chars().next()?;
        self.reasons.get(usize::try_from(u32::from(mark) - MARK).ok()?)
    }

    /// Returns a text that represents an unknown value.
    fn unknown(&mut self, raw: &str, why: &str) -> String {
        let index = u32::try_from(self.reasons.len()).unwrap_or(MOST).min(MOST - 1);
        self.reasons.push(Reason { line: Some(self.line), text: shortened(raw), why: why.to_owned() });
        format!("{}{raw}", char::from_u32(MARK + index).unwrap_or('\u{fffd}'))
    }

    fn word(&mut self, raw: &str, fields: &mut Fields, splits: bool) {
        let mut rest = raw;
        if splits && rest.starts_with('~') || rest.starts_with("~/") {
            let text = self.unknown(rest, "the home directory is known only on the cluster");
            fields.text(&text);
            return;
        }
        // The text before this end has no list in braces.
        let mut no_list = rest.len();
        while let Some(c) = rest.chars().next().filter(|_| !fields.is_full()) {
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            rest = match c {
                '\\' => {
                    let mut quoted = after.chars();
                    match quoted.next() {
                        // A continued line.
                        Some('\n') | None => {}
                        Some(next) => fields.text(next.encode_utf8(&mut [0; 4])),
                    }
                    quoted.as_str()
                }
                '\'' => {
                    let (text, after) = after.split_once('\'').unwrap_or((after, ""));
                    fields.text(text);
                    after
                }
                '"' => {
                    let inner = rest.get(..end_of_piece(rest, false)).unwrap_or(rest);
                    let text = inner.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                    self.double(text.unwrap_or_default(), fields);
                    rest.get(inner.len()..).unwrap_or_default()
                }
                '$' | '`' => {
                    let piece = rest.get(..end_of_piece(rest, false)).unwrap_or(rest);
                    self.dollar(piece, fields, splits);
                    rest.get(piece.len().max(1)..).unwrap_or_default()
                }
                '*' | '?' | '[' if splits => {
                    let text = self.unknown(raw, "a pattern of file names is expanded only on the cluster");
                    fields.text(&text);
                    return;
                }
                '{' if splits && begins_list(after, &mut no_list) => {
                    let text = self.unknown(raw, "a list in braces is not read");
                    fields.text(&text);
                    return;
                }
                _ => {
                    fields.text(c.encode_utf8(&mut [0; 4]));
                    after
                }
            };
        }
    }

    /// Expands the inside of double quotes.
    fn double(&mut self, text: &str, fields: &mut Fields) {
        let only_list = is_list_of_all(text);
        if !only_list {
            fields.text("");
        }
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            rest = match c {
                '\\' => match after.chars().next() {
                    Some(next @ ('$' | '`' | '"' | '\\')) => {
                        fields.text(next.encode_utf8(&mut [0; 4]));
                        after.get(1..).unwrap_or_default()
                    }
                    Some('\n') => after.get(1..).unwrap_or_default(),
                    _ => {
                        fields.text("\\");
                        after
                    }
                },
                '$' | '`' => {
                    let piece = rest.get(..end_of_piece(rest, true)).unwrap_or(rest);
                    self.dollar(piece, fields, false);
                    rest.get(piece.len().max(1)..).unwrap_or_default()
                }
                _ => {
                    fields.text(c.encode_utf8(&mut [0; 4]));
                    after
                }
            };
        }
    }

    /// Expands `$NAME`, `${…}`, `$(…)`, `$((…))`, backquotes.
    fn dollar(&mut self, piece: &str, fields: &mut Fields, splits: bool) {
        if piece == "$" {
            fields.text("$");
            return;
        }
        if let Some(text) = piece.strip_prefix("$((").and_then(|text| text.strip_suffix("))"))
            && let Some(number) = self.arithmetic(text)
        {
            fields.text(&number.to_string());
            return;
        }
        if let Some(program) = located(piece) {
            fields.text(program);
            return;
        }
        if piece.starts_with("$'") {
            let text = self.unknown(piece, "a text in `$'…'` is not read");
            fields.text(&text);
            return;
        }
        let inner = piece.strip_prefix("${").and_then(|inner| inner.strip_suffix('}'));
        let name = inner.or_else(|| piece.strip_prefix('$')).unwrap_or_default();
        if let Some(list) =
            name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")).filter(|name| is_variable(name))
        {
            match self.values.get(list).cloned() {
                Some(Value::List(items)) if name.ends_with("[*]") && !splits => fields.text(&items.join(" ")),
                Some(Value::List(items)) => fields.list(&items, splits),
                Some(Value::Text(text)) => fields.list(&[text], splits),
                None => self.not_set(piece, fields),
            }
            return;
        }
        if matches!(piece, "$@" | "$*" | "${@}" | "${*}") {
            // An imported script has no arguments.
            return;
        }
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        let (name, operator) = name.split_at_checked(end).unwrap_or((name, ""));
        if !is_variable(name) {
            let arguments = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
            let why = if arguments {
                "the script takes arguments"
            } else {
                "it is known only where the script runs"
            };
            let text = self.unknown(piece, why);
            fields.text(&text);
            return;
        }
        let value = match self.values.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            Some(Value::List(items)) => items.first().cloned(),
            None => None,
        };
        match (operator, value) {
            ("", Some(text)) => fields.expanded(&text, splits),
            ("", None) => self.not_set(piece, fields),
            (_, value) => self.operator(piece, name, operator, value, fields, splits),
        }
    }

    /// Expands `${NAME:-default}` and the like.
    fn operator(
        &mut self,
        piece: &str,
        name: &str,
        operator: &str,
        value: Option<String>,
        fields: &mut Fields,
        splits: bool,
    ) {
        let empty_too = operator.starts_with(':');
        let operator = operator.strip_prefix(':').unwrap_or(operator);
        let (kind, word) = operator.split_at_checked(1).unwrap_or((operator, ""));
        let there = value.filter(|text| !empty_too || !text.is_empty());
        match (kind, there) {
            ("-" | "=" | "?", Some(text)) => fields.expanded(&text, splits),
            ("-" | "=", None) => {
                let default = self.expand_one(word);
                if !self.values.contains_key(name) {
                    self.defaults.insert(name.to_owned(), default.clone());
                }
                if kind == "=" {
                    self.set(name, Value::Text(default.clone()));
                }
                fields.expanded(&default, splits);
            }
            ("+", Some(_)) => {
                let text = self.expand_one(word);
                fields.expanded(&text, splits);
            }
            ("+", None) if self.values.contains_key(name) => {}
            _ => {
                let text = self.unknown(piece, "this kind of expansion is not read");
                fields.text(&text);
            }
        }
    }

    fn not_set(&mut self, piece: &str, fields: &mut Fields) {
        let why = "the script does not set it, so its value is known only where the script runs";
        let text = self.unknown(piece, why);
        fields.text(&text);
    }
}

/// The words that a word becomes.
#[derive(Default)]
struct Fields {
    done: Vec<String>,
    current: Option<String>,
    bytes: usize,
}

impl Fields {
    fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() + 1);
        if !self.is_full() {
            self.current.get_or_insert_default().push_str(text);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > LONGEST
    }

    /// Adds a value that is split at blanks where it is unquoted.
    fn expanded(&mut self, text: &str, splits: bool) {
        // An unexpanded part stays one piece, so that its reason is found again.
        if !splits || mark_in(text).is_some() {
            return self.text(text);
        }
        let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
        for (index, part) in text.split(blank).enumerate() {
            if index > 0 {
                self.finish();
            }
            if !part.is_empty() {
                self.text(part);
            }
        }
    }

    fn list(&mut self, items: &[String], splits: bool) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.finish();
            }
            self.expanded(item, splits);
            if !splits {
                self.text("");
            }
        }
    }

    fn finish(&mut self) {
        self.done.extend(self.current.take());
    }
}

/// Returns whether the text after a `{` is a list: `a,b}`, `1..8}`. `no_list` is how much of the word follows the
/// last text that was looked into in vain: it is not searched again for each brace in it.
fn begins_list(after: &str, no_list: &mut usize) -> bool {
    if after.len() > *no_list {
        return false;
    }
    let list = after.split('}').next().unwrap_or(after);
    let found = list.contains(',') || list.contains("..");
    if !found {
        *no_list = after.len() - list.len();
    }
    found
}

/// Returns the place of the first mark in a text. Its first byte is one of two, which are searched for: a text
/// may be long, and be searched often.
fn mark_in(text: &str) -> Option<usize> {
    let is_mark = |c: char| (MARK..MARK + MOST).contains(&u32::from(c));
    let mut places = memchr::memchr2_iter(0xee, 0xef, text.as_bytes());
    places.find(|at| text.get(*at..).and_then(|rest| rest.chars().next()).is_some_and(is_mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    fn variables() -> Variables {
        let mut variables = Variables::of_script(0);
        for raw in ["A=one", "B='two words'", "E=", "N=8", "L=(a 'b c' \"$A\")", "L+=(d)", "Z=()"] {
            variables.assign(raw).unwrap();
        }
        variables
    }

    /// Words expand as in bash.
    #[test]
    fn words_become_what_bash_makes_of_them() {
        let script = "A=one B='two words' E= N=8; L=(a 'b c' \"$A\"); L+=(d); Z=();";
        for word in [
            "$A",
            "\"$A\"",
            "$B",
            "\"$B\"",
            "x$B-y",
            "'$A'",
            "\\$A",
            "\"\\$A ${B}\"",
            "${L[@]}",
            "\"${L[@]}\"",
            "\"x${L[@]}y\"",
            "\"${L[*]}\"",
            "$E",
            "\"$E\"",
            "\"${Z[@]}\"",
            "--a=${A}",
            "${E:-dflt}",
            "${A:-dflt}",
            "${E-dflt}",
            "$((N * 2 + 1))",
            "$(( (N-1)*${N}/2 ))",
            "a\\ b",
            "\"a'b\"",
            "'a\"b'",
            "${A:+set}",
            "\"$A\"'$B'$N",
            "${L}",
            "$",
            "a$",
            "\"\\n\"",
        ] {
            let ran = child::command("bash")
                .args(["-c", &format!("{script} for w in {word}; do printf '%s\\0' \"$w\"; done")])
                .output();
            let ran = String::from_utf8(ran.unwrap().stdout).unwrap();
            let mut wanted: Vec<&str> = ran.split('\0').collect();
            wanted.pop();
            assert_eq!(variables().expand(word), wanted, "{word}");
        }
    }

    #[test]
    fn what_the_script_does_not_say_is_not_guessed() {
        for word in [
            "$HOME",
            "$(hostname)",
            "`hostname`",
            "~/x",
            "*.py",
            "{1..4}",
            "$1",
            "${A%e}",
            "$RANDOM",
            "${L[1]}",
        ] {
            let mut variables = variables();
            let words = variables.expand(word).concat();
            assert!(variables.unresolved(&words).is_some(), "{word}: {words}");
        }
        let mut variables = variables();
        assert_eq!(variables.expand("$(which torchrun)"), ["torchrun"]);
        assert_eq!(variables.expand("${UNSET:-/fsx}"), ["/fsx"]);
        assert_eq!(variables.defaults.get("UNSET").map(String::as_str), Some("/fsx"));
    }

    #[test]
    fn a_script_that_doubles_its_words_is_bounded() {
        let mut variables = Variables::of_script(0);
        variables.assign("A=0123456789");
        variables.assign("L=(0123456789)");
        for _ in 0..40 {
            variables.assign("A=$A$A");
            variables.assign("A+=$A");
            variables.assign("L+=(\"${L[@]}\" \"${L[@]}\")");
        }
        let words: usize =
            ["$A", "\"${L[@]}\""].iter().flat_map(|word| variables.expand(word)).map(|word| word.len()).sum();
        assert!(words <= 4 * LONGEST, "{words}");
        let deep = format!("$(({}1{}))", "(".repeat(50_000), ")".repeat(50_000));
        let text = variables.expand_one(&deep);
        assert!(variables.unresolved(&text).is_some());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(?s)[\\$\\{\\}\\(\\)\"'`\\\\ \n#a@*\\[\\]=+:;é-]{0,60}") {
            let mut variables = variables();
            for raw in raw_words(&text) {
                variables.expand(raw);
                variables.assign(raw);
            }
            variables.expand(&text);
        }
    }
}
