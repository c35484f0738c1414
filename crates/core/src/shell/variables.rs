//! Names of variables, and variables in values that no shell reads.

use crate::{Error, ErrorKind, Result, mask};

/// Returns whether a text is the name of a variable: letters, digits and `_`, no digit first.
pub fn is_variable(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns a name that is written into a program unquoted.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for what is not the name of a variable.
pub fn variable(name: &str) -> Result<&str> {
    if is_variable(name) {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::InvalidSpec, "not the name of an environment variable")
        .with("name", name.escape_debug()))
}

/// Returns the first `$NAME` or `${NAME}` in a value, which Kubernetes does not expand. `$(NAME)` and `$$`
/// are its own.
pub fn unexpanded(value: &str) -> Option<&str> {
    let mut rest = value;
    let mut offset = 0;
    while let Some(found) = rest.find('$') {
        let start = offset + found;
        let after = value.get(start + 1..)?;
        let brace = usize::from(after.starts_with('{'));
        let name = after.get(brace..)?;
        let length = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts_well && length > 0 && (brace == 0 || name.get(length..)?.starts_with('}')) {
            return value.get(start..start + 1 + brace + length + brace);
        }
        // No variable begins after `$$` and `$(`.
        let skip = if after.starts_with('$') { 2 } else { 1 };
        offset = start + skip;
        rest = value.get(offset..)?;
    }
    None
}

/// Returns the first `$NAME` in the value of an environment variable that no shell expands: the program gets the
/// value as it is written. Texts that are programs, data, patterns or secrets may hold a `$` of their own.
pub fn taken_literally<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    const OWN: [&str; 5] = ["FORMAT", "PATTERN", "REGEX", "PROMPT", "TEMPLATE"];
    let is_own = OWN.iter().any(|part| name.to_ascii_uppercase().contains(part)) || name == "PS1";
    let is_own = is_own || mask::is_secret_name(name) || mask::holds_secret(value);
    let is_data = value.contains('\n') || value.trim_start().starts_with(['{', '[', '^']);
    // `a$b` is a text more often than a variable.
    let is_name = |found: &&str| !found.contains(|c: char| c.is_ascii_lowercase());
    unexpanded(value).filter(is_name).filter(|_| !is_own && !is_data)
}

/// Returns whether the words of a command show that a shell reads the value of a variable as its own text, or that
/// a tool fills it in.
pub fn is_evaluated<'w>(words: impl IntoIterator<Item = &'w str>, name: &str) -> bool {
    const EVALUATE: [&str; 4] = ["eval ", "-c $", "-c \"$", "-lc \"$"];
    let pasted = format!("$({name})");
    words.into_iter().any(|word| {
        word.contains("envsubst")
            || word.contains(&pasted)
            || word.contains(name) && EVALUATE.iter().any(|start| word.contains(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_counts_where_a_shell_would_expand_it() {
        for (name, value, found) in [
            ("DATA", "$HOME/data", Some("$HOME")),
            ("ARGS", "--lr ${LR} --x", Some("${LR}")),
            ("DATA", "$(HOME)/data", None),
            ("COST", "5$ and $5", None),
            ("SUFFIX", "a$b", None),
            ("DB_PASSWORD", "pa$word", None),
            ("LOG_FORMAT", "$remote_addr", None),
            ("SCRIPT", "cd $HOME\nls", None),
            ("CONFIG", "{\"$ref\": 1}", None),
        ] {
            assert_eq!(taken_literally(name, value), found, "{name}={value}");
        }
        for (command, evaluated) in [
            (&["sh", "-c", "$(CMD)"][..], true),
            (&["sh", "-c", "eval \"$CMD\""], true),
            (&["sh", "-c", "bash -c \"$CMD\""], true),
            (&["sh", "-c", "python a.py $CMD"], false),
            (&["sh", "-c", "eval \"$OTHER\"; $CM"], false),
        ] {
            assert_eq!(is_evaluated(command.iter().copied(), "CMD"), evaluated, "{command:?}");
        }
    }
}
