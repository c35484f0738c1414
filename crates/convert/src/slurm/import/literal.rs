//! Words of a script that mean themselves: nothing in them is expanded.

use weftrun_core::shell::words;

/// Returns the words of a line with their quotes, without comments. Stops at an operator of the shell.
pub(super) fn raw_words(text: &str) -> Vec<&str> {
    let words = words(text).into_iter().filter_map(|place| text.get(place));
    words.take_while(|word| !matches!(*word, ";" | "&" | "|" | "<" | ">" | "(" | ")")).collect()
}

/// Returns a word without its quotes; none where the shell expands something in it.
pub(super) fn literal(raw: &str) -> Option<String> {
    let (mut text, mut quote) = (String::new(), None);
    let mut rest = raw.chars();
    if raw.starts_with('~') {
        return None;
    }
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (Some('\''), _) => text.push(c),
            (_, '$' | '`') | (None, '*' | '?' | '[' | '{') => return None,
            (_, '\\') => match rest.next()? {
                '\n' => {}
                next if quote.is_none() || "$`\"\\".contains(next) => text.push(next),
                next => text.extend(['\\', next]),
            },
            _ => text.push(c),
        }
    }
    quote.is_none().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn only_words_that_no_shell_expands_are_read() {
        for (raw, text) in [
            ("a", "a"),
            ("'a $b'", "a $b"),
            ("\"a \\$b \\n\"", "a $b \\n"),
            ("a\\ b", "a b"),
            ("--x='1 2'3", "--x=1 23"),
            ("\"'^a'\"", "'^a'"),
            ("''", ""),
        ] {
            assert_eq!(literal(raw).as_deref(), Some(text), "{raw}");
        }
        for raw in ["$A", "\"$A\"", "`a`", "$(a)", "*.py", "a?", "~/x", "{1..3}", "\"a", "$'a'"] {
            assert_eq!(literal(raw), None, "{raw}");
        }
    }
}
