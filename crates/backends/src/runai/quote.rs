//! Converts an argv to the API's single string. The server splits it like a shell, and Kubernetes then
//! expands `$(NAME)`.

use weftrun_core::{Error, ErrorKind, Result};

use crate::kubernetes::escape::literal;

/// Longest text of command and arguments that is known to be accepted (NeMo-Run issue 478, 2026-04).
pub const LONGEST: usize = 10_000;

/// Placeholders for values that only the pod has, until everything else is quoted: the node's rank, the
/// master's address and port.
pub const MARKS: [&str; 3] = ["\u{1}R", "\u{1}A", "\u{1}P"];
/// The variables for the placeholders, which the training operator sets.
const NAMES: [&str; 3] = ["RANK", "MASTER_ADDR", "MASTER_PORT"];

/// Which component replaces the placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Kubernetes, which expands `$(NAME)` in command and arguments.
    ByKubernetes,
    /// The pod's shell: in the value of a variable, Kubernetes expands only earlier variables, and the
    /// operator's come later.
    ByShell,
}

/// Joins words so that they are split unchanged, with the placeholders expanded by Kubernetes.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a word with a NUL byte.
pub fn join(words: &[String]) -> Result<String> {
    shell_line(words, Filled::ByKubernetes)
}

/// Joins words so that a shell reads them unchanged.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a word with a NUL byte.
pub fn shell_line(words: &[String], filled: Filled) -> Result<String> {
    let words: Result<Vec<String>> = words.iter().map(|word| quoted(word, filled)).collect();
    Ok(words?.join(" "))
}

fn quoted(word: &str, filled: Filled) -> Result<String> {
    if filled == Filled::ByKubernetes {
        let mut text = literal(word);
        for (mark, name) in MARKS.iter().zip(NAMES) {
            text = text.replace(mark, &format!("$({name})"));
        }
        return one_word(&text);
    }
    let mut out = String::new();
    let mut rest = word;
    while let Some((at, mark, name)) = next_mark(rest) {
        if at > 0 {
            out.push_str(&one_word(&rest[..at])?);
        }
        out.push_str(&format!("\"${name}\""));
        rest = &rest[at + mark.len()..];
    }
    if !rest.is_empty() || out.is_empty() {
        out.push_str(&one_word(rest)?);
    }
    Ok(out)
}

fn next_mark(text: &str) -> Option<(usize, &'static str, &'static str)> {
    let found = MARKS.iter().zip(NAMES).filter_map(|(mark, name)| Some((text.find(mark)?, *mark, name)));
    found.min()
}

fn one_word(text: &str) -> Result<String> {
    shlex::try_quote(text).map(std::borrow::Cow::into_owned).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "an argument holds a NUL byte, which no command line can carry")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kubernetes::escape::filled_in;
    use weftrun_testkit::child;

    proptest! {
        #[test]
        fn words_come_back_as_they_are(words in proptest::collection::vec("([^\\x00\\x01]|[$(])*", 1..6)) {
            let split = shlex::split(&filled_in(&join(&words).unwrap())).unwrap();
            prop_assert_eq!(&split, &words);
            let carried = filled_in(&literal(&shell_line(&words, Filled::ByShell).unwrap()));
            prop_assert_eq!(shlex::split(&carried).unwrap(), words);
        }
    }

    #[test]
    fn a_real_shell_reads_the_words_and_fills_in_the_marks() {
        let words =
            ["printf", "%s|", "it's", "a b", "$HOME", "--rank=\u{1}R.", "\u{1}A:\u{1}P", "", "$(RANK)"];
        let line = shell_line(&words.map(str::to_owned), Filled::ByShell).unwrap();
        let mut shell = child::command("/bin/sh");
        shell.args(["-c", "eval \"exec $LINE\""]).env("LINE", line);
        let output =
            shell.env("RANK", "3").env("MASTER_ADDR", "node 0").env("MASTER_PORT", "29500").output().unwrap();
        let wanted = "it's|a b|$HOME|--rank=3.|node 0:29500||$(RANK)|";
        assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    }

    #[test]
    fn only_the_marks_are_for_kubernetes() {
        let words = ["--rank=\u{1}R".to_owned(), "$(RANK)".to_owned()];
        assert_eq!(join(&words).unwrap(), "'--rank=$(RANK)' '$$(RANK)'");
    }

    #[test]
    fn a_word_with_a_nul_byte_is_refused() {
        assert!(join(&["a\0b".into()]).is_err());
    }
}
