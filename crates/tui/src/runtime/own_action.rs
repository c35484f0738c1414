//! The commands that the user's own keys run.

use std::io::Write;
use std::process::Command;

use weftrun::{Error, ErrorKind, Result};

use crate::action::TABLE;
use crate::keymap::{Chord, Keymap};
use crate::model::OwnAction;

/// Reads the actions of the configuration: name, key, command.
pub(super) fn read(actions: &[(String, String, String)], keymap: &Keymap) -> Result<Vec<OwnAction>> {
    let wrong = |name: &str, what: String| {
        Error::new(ErrorKind::InvalidConfig, format!("tui.actions.{name}: {what}"))
            .hint("`weftrun tui --keys` lists the keys that are taken")
    };
    let read = |(name, key, command): &(String, String, String)| {
        let chord = Chord::parse(key).ok_or_else(|| wrong(name, format!("`{key}` is no key")))?;
        if let Some(taken) = keymap.action_of(chord) {
            return Err(wrong(name, format!("`{key}` is the key of {taken}")));
        }
        if TABLE.iter().any(|row| row.name == name) {
            return Err(wrong(name, "there is an action of this name already".to_owned()));
        }
        let (name, key, command) = (name.clone(), key.clone(), command.clone());
        Ok(OwnAction { name, key, chord, command })
    };
    actions.iter().map(read).collect()
}

/// Runs a command in the terminal, and waits for a key, so that its output can be read. The variables reach it as
/// environment: no name of a cluster becomes part of the command.
pub(super) fn run(command: &str, variables: &[(&'static str, String)]) -> std::result::Result<(), String> {
    let variables = variables.iter().map(|(name, value)| (*name, value.as_str()));
    let status = Command::new("sh").arg("-c").arg(command).envs(variables).status();
    let status = status.map_err(|error| format!("`{command}` cannot be run: {error}"))?;
    let mut out = std::io::stdout();
    let _ = write!(out, "\n[{command}: {status}; enter goes back] ").and_then(|()| out.flush());
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_keys_and_names_are_refused() {
        let read = |name: &str, key: &str| {
            read(&[(name.to_owned(), key.to_owned(), "true".to_owned())], &Keymap::default())
        };
        assert_eq!(read("ssh", "ctrl-t").unwrap()[0].name, "ssh");
        for (name, key, what) in
            [("ssh", "x", "cancel"), ("ssh", "hyper-x", "no key"), ("logs", "ctrl-t", "already")]
        {
            let error = read(name, key).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("tui.actions"), "{error}");
        }
    }
}
