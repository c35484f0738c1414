//! Names of variables, and variables in values that no shell reads.

use crate::{Error, ErrorKind, Result};

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
