//! Finds settings on a command line: `mpirun -x NAME=value`, `export NAME=value`, in argv and in shell
//! text.

use weftrun_core::fabric::view::ContainerView;
use weftrun_core::shell::without_comment;

/// A setting, and the pointer of its word.
pub(super) struct Found<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    /// Both, as written there.
    pub(super) word: &'a str,
    pub(super) at: String,
}

/// Returns the settings on a container's command line, in order.
pub(super) fn settings(container: &ContainerView) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let mut after_x = false;
    for (list, words) in [("command", &container.command), ("args", &container.args)] {
        for (index, word) in words.iter().enumerate() {
            for part in pieces(word) {
                if let Some((name, value)) = setting(part, after_x) {
                    found.push(Found {
                        name,
                        value,
                        word: part,
                        at: format!("{}/{list}/{index}", container.at),
                    });
                }
                after_x = part == "-x";
            }
        }
    }
    found
}

/// Returns the words of a piece of shell text, without comments. Quotes separate words too, which is
/// correct for names.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        without_comment(line)
            .split(|c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '(' | ')' | '&' | '|'))
            .filter(|word| !word.is_empty())
    })
}

/// Reads `NAME=value` anywhere, `NAME` alone after `-x`.
fn setting(word: &str, after_x: bool) -> Option<(&str, &str)> {
    let (name, value) = match word.split_once('=') {
        Some(pair) => pair,
        None if after_x => (word, ""),
        None => return None,
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    is_name.then_some((name, value))
}
