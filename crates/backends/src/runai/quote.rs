//! An argv as the API's one string. The server splits it like a shell, and Kubernetes then expands `$(NAME)`.

use weftrun_core::{Error, ErrorKind, Result};

/// Longest text of command or arguments that is known to arrive (NeMo-Run issue 478, 2026-04).
pub const LONGEST: usize = 10_000;

/// Joins words so that they come back as they are. With `expand`, `$(NAME)` stays for Kubernetes to fill in: for the
/// few values that only the pod knows.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a word with a NUL byte.
pub fn join(words: &[String], expand: bool) -> Result<String> {
    let literal: Vec<String> =
        words.iter().map(|word| if expand { word.clone() } else { escape(word) }).collect();
    shlex::try_join(literal.iter().map(String::as_str)).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "an argument holds a NUL byte, which no command line can carry")
    })
}

/// Keeps Kubernetes from expanding a text: `$$` is a dollar to it, `$(` begins a name, any other `$` stands for itself
/// (k8s.io/kubernetes third_party/forked/golang/expansion, read 2026-11-21).
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        if c == '$' && matches!(rest.peek(), Some('$' | '(')) {
            out.push('$');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Kubernetes makes of a text when no name is known: `$$` becomes `$`, `$(NAME)` stays only if unknown.
    fn kubernetes(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match (c, rest.peek()) {
                ('$', Some('$')) => {
                    rest.next();
                    out.push('$');
                }
                ('$', Some('(')) => out.push_str("EXPANDED"),
                _ => out.push(c),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn words_come_back_as_they_are(words in proptest::collection::vec("([^\\x00]|[$(])*", 1..6)) {
            let joined = join(&words, false).unwrap();
            let split = shlex::split(&kubernetes(&joined)).unwrap();
            prop_assert_eq!(split, words);
        }
    }

    #[test]
    fn a_word_with_a_nul_byte_is_refused() {
        assert!(join(&["a\0b".into()], false).is_err());
    }
}
