//! Parses a command line as the user's shell would: finds the command, and the words that the shell would
//! have made.

use std::collections::BTreeMap;

use weftrun_core::shell::{self, is_variable, piece_length};

/// A word of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text, without quotes, and with the values of variables that the text before the command sets.
    pub text: String,
    /// Expansions whose result is only known to that shell; the text contains them unexpanded.
    pub unknown: Vec<String>,
    /// Variables in single quotes or after a backslash, which no shell expanded.
    pub literal: Vec<String>,
    /// Whether a part of it is quoted: an empty unquoted word is dropped.
    pub quoted: bool,
}

/// Returns the words of the first `runai` command in a text that submits something.
pub(super) fn words(text: &str) -> Result<Vec<Word>, &'static str> {
    // As in a shell, a line continues after a backslash.
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let commands =
        shell::commands(&text).map_err(|_| "a quote or a bracket is not closed in the command line")?;
    let is_runai = |word: &String| word.rsplit('/').next() == Some("runai");
    let mut first = None;
    for command in &commands {
        let Some(at) =
            command.words.get(command.program).filter(|word| is_runai(word)).map(|_| command.program)
        else {
            continue;
        };
        let mut variables = assigned(text.get(..command.start).unwrap_or_default());
        let raw = command.spans.get(at..).unwrap_or_default();
        let read: Vec<Word> = raw
            .iter()
            .filter_map(|(start, end)| Some(word(text.get(*start..*end)?, &mut variables)))
            .filter(|word| word.quoted || !word.text.is_empty())
            .collect();
        if read.iter().take_while(|word| !word.text.starts_with('-')).any(|word| word.text.contains("submit"))
        {
            return Ok(read);
        }
        first = first.or(Some(read));
    }
    first.ok_or("no `runai` command was found in the text")
}

/// Returns the variables that lines before a command set to text without expansions.
fn assigned(before: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for line in before.lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, raw)) = line.split_once('=') else { continue };
        // Text after the value makes it another kind of line.
        let one = shlex::split(raw).is_some_and(|words| words.len() <= 1);
        if !is_variable(name) || !one {
            continue;
        }
        let raw = raw.split(" #").next().unwrap_or_default().trim_end();
        let value = word(raw, &mut variables);
        if value.unknown.is_empty() {
            variables.insert(name.to_owned(), value.text);
        } else {
            variables.remove(name);
        }
    }
    variables
}

/// Parses a raw word.
fn word(raw: &str, variables: &mut BTreeMap<String, String>) -> Word {
    let mut made = Word::default();
    let (mut rest, mut double) = (raw, false);
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        match next {
            '\'' if !double => {
                let end = after.find('\'').unwrap_or(after.len());
                made.push_literal(&after[..end]);
                made.quoted = true;
                rest = after.get(end + 1..).unwrap_or_default();
            }
            '"' => {
                double = !double;
                made.quoted = true;
                rest = after;
            }
            '\\' => {
                let escaped = after.chars().next();
                match escaped {
                    Some(c) if !double || matches!(c, '$' | '`' | '"' | '\\') => {
                        if c == '$' {
                            made.literal.extend(variable(after).map(|(shown, _)| shown.to_owned()));
                        }
                        made.text.push(c);
                        rest = &after[c.len_utf8()..];
                    }
                    _ => {
                        made.text.push('\\');
                        rest = after;
                    }
                }
            }
            '$' | '`' => rest = made.expand(rest, variables),
            other => {
                made.text.push(other);
                rest = after;
            }
        }
    }
    made
}

impl Word {
    fn push_literal(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let found = variable(&rest[at..]);
            self.literal.extend(found.map(|(shown, _)| shown.to_owned()));
            rest = &rest[at + found.map_or(1, |(shown, _)| shown.len())..];
        }
        self.text.push_str(text);
    }

    /// Expands what begins here; returns the text after it.
    fn expand<'t>(&mut self, text: &'t str, variables: &BTreeMap<String, String>) -> &'t str {
        if let Some((shown, name)) = variable(text) {
            match variables.get(name) {
                Some(value) => self.text.push_str(value),
                None => self.unknown(shown),
            }
            return &text[shown.len()..];
        }
        if let Some((shown, name, default)) = with_default(text) {
            // A variable that the text does not set is most likely unset.
            self.text.push_str(variables.get(name).map_or(default, String::as_str));
            return &text[shown.len()..];
        }
        let length = substitution(text);
        if length > 1 {
            self.unknown(&text[..length]);
        } else {
            self.text.push_str(&text[..length]);
        }
        &text[length..]
    }

    fn unknown(&mut self, shown: &str) {
        self.text.push_str(shown);
        self.unknown.push(shown.to_owned());
    }
}

/// Returns the `$NAME` or `${NAME}` at the beginning of a text: as written, and the name.
fn variable(text: &str) -> Option<(&str, &str)> {
    let after = text.strip_prefix('$')?;
    let brace = usize::from(after.starts_with('{'));
    let name = after.get(brace..)?;
    let length = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
    let name = name.get(..length).filter(|name| is_variable(name))?;
    let whole = 1 + brace + length + brace;
    let closed = brace == 0 || text.get(whole - 1..whole) == Some("}");
    closed.then(|| text.get(..whole)).flatten().map(|shown| (shown, name))
}

/// Returns the `${NAME:-default}` at the beginning of a text, if the default needs no shell.
fn with_default(text: &str) -> Option<(&str, &str, &str)> {
    let inner = text.strip_prefix("${")?;
    // Not the next `}` wherever it is: the text may have many beginnings and no end.
    let end = inner.find(['}', '$', '`', '"', '\'', '\\'])?;
    let (inner, closed) = (inner.get(..end)?, inner.get(end..)?.starts_with('}'));
    let (name, default) = inner.split_once(":-").or_else(|| inner.split_once('-'))?;
    let plain = closed && is_variable(name);
    plain.then(|| text.get(..inner.len() + 3)).flatten().map(|shown| (shown, name, default))
}

/// Returns the length of a substitution at the beginning of a text; 1 if there is none.
fn substitution(text: &str) -> usize {
    let begins = ["`", "$(", "${"].iter().any(|begin| text.starts_with(begin));
    if begins { piece_length(text, false).unwrap_or(1) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        words(line).unwrap().into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_those_of_the_shell() {
        let line = "cd x && A=1 exec ~/bin/runai submit \"a b\" 'c\\d' e\\ f \"g\\h\" '' ; echo done";
        assert_eq!(texts(line)[1..], ["submit", "a b", "c\\d", "e f", "g\\h", ""]);
        assert_eq!(
            texts("# runai list\nrunai login\nrunai training submit x \\\n  -g 1 # one\nrunai list"),
            ["runai", "training", "submit", "x", "-g", "1"]
        );
    }

    #[test]
    fn what_the_text_sets_is_filled_in_and_the_rest_is_kept() {
        let line = "IMAGE=a:b # the image\nexport TAG=\"${IMAGE}-x\"\nN=$(date)\n\
                    runai submit $N -i \"$IMAGE\" -e T=${TAG} -e D=${D:-none} -e U=\"$USER\" ${EXTRA:-} -- sh -c 'echo $HOME'";
        let read = words(line).unwrap();
        let text: Vec<&str> = read.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(text[2..9], ["$N", "-i", "a:b", "-e", "T=a:b-x", "-e", "D=none"]);
        let unknown: Vec<&String> = read.iter().flat_map(|word| &word.unknown).collect();
        assert_eq!(unknown, ["$N", "$USER"]);
        assert_eq!(read.last().unwrap().literal, ["$HOME"]);
        assert_eq!(text.len(), 15, "an empty expansion is no word: {text:?}");
    }
}
