//! Which key does what: the table's keys, changed by the user's.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use weftrun::{Error, ErrorKind, Result};

use crate::action::{Action, KeyScope, Row, TABLE};

/// A key with its modifiers, as the table writes it (`ctrl-s`, `G`, `space`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    control: bool,
    alt: bool,
}

impl Chord {
    /// Returns the chord of a key event. Shift is part of the character, and of `shift-tab`.
    pub fn of(event: KeyEvent) -> Self {
        Self {
            code: event.code,
            control: event.modifiers.contains(KeyModifiers::CONTROL),
            alt: event.modifiers.contains(KeyModifiers::ALT),
        }
    }

    /// Reads `ctrl-s`.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut control, mut alt, mut rest) = (false, false, text);
        loop {
            if let Some(behind) = rest.strip_prefix("ctrl-") {
                (control, rest) = (true, behind);
            } else if let Some(behind) = rest.strip_prefix("alt-") {
                (alt, rest) = (true, behind);
            } else {
                break;
            }
        }
        let mut chars = rest.chars();
        let code = match (rest, chars.next(), chars.next()) {
            ("space", ..) => KeyCode::Char(' '),
            ("enter", ..) => KeyCode::Enter,
            ("esc", ..) => KeyCode::Esc,
            ("tab", ..) => KeyCode::Tab,
            ("shift-tab", ..) => KeyCode::BackTab,
            ("up", ..) => KeyCode::Up,
            ("down", ..) => KeyCode::Down,
            ("left", ..) => KeyCode::Left,
            ("right", ..) => KeyCode::Right,
            ("home", ..) => KeyCode::Home,
            ("end", ..) => KeyCode::End,
            ("pageup", ..) => KeyCode::PageUp,
            ("pagedown", ..) => KeyCode::PageDown,
            ("delete", ..) => KeyCode::Delete,
            (_, Some(c), None) => KeyCode::Char(c),
            (_, Some('f'), Some(_)) => KeyCode::F(rest[1..].parse().ok()?),
            _ => return None,
        };
        Some(Self { code, control, alt })
    }
}

/// Which key does what.
#[derive(Clone, Debug)]
pub struct Keymap {
    keys: Vec<(Row, Vec<(String, Chord)>)>,
}

impl Default for Keymap {
    fn default() -> Self {
        let keys = TABLE.iter().map(|row| (*row, chords(row.keys.iter().copied()))).collect();
        Self { keys }
    }
}

fn chords<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<(String, Chord)> {
    keys.filter_map(|key| Some((key.to_owned(), Chord::parse(key)?))).collect()
}

impl Keymap {
    /// Changes keys: action name to keys, as `[tui.keys]` has them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the action or the key that is unknown.
    pub fn rebind(mut self, changes: &BTreeMap<String, Vec<String>>) -> Result<Self> {
        for (name, keys) in changes {
            let known = self.keys.iter_mut().find(|(row, _)| row.name == name);
            let Some((_, bound)) = known else {
                let error =
                    Error::new(ErrorKind::InvalidConfig, format!("tui.keys: there is no action `{name}`"));
                let near = weftrun::core::text::suggestion(name, TABLE.iter().map(|row| row.name));
                return Err(error.hint(near.as_deref().unwrap_or("`weftrun tui --keys` lists them")));
            };
            if let Some(bad) = keys.iter().find(|key| Chord::parse(key).is_none()) {
                let message = format!("tui.keys.{name}: `{bad}` is not a key");
                return Err(Error::new(ErrorKind::InvalidConfig, message)
                    .hint("keys look like `ctrl-s`, `G`, `f5`, `space`"));
            }
            *bound = chords(keys.iter().map(String::as_str));
        }
        Ok(self)
    }

    /// Returns what a key does in some modes; earlier modes take precedence.
    pub fn lookup(&self, event: KeyEvent, places: &[KeyScope]) -> Option<Action> {
        let chord = Chord::of(event);
        places.iter().find_map(|place| {
            let mut rows = self.keys.iter().filter(|(row, _)| row.place == *place);
            rows.find(|(_, keys)| keys.iter().any(|(_, key)| *key == chord)).map(|(row, _)| row.action)
        })
    }

    /// Returns the rows of a mode, each with its current keys.
    pub fn rows(&self, place: KeyScope) -> impl Iterator<Item = (Row, String)> {
        self.keys.iter().filter(move |(row, _)| row.place == place).map(|(row, keys)| {
            let keys: Vec<&str> = keys.iter().map(|(text, _)| text.as_str()).collect();
            (*row, keys.join(" "))
        })
    }

    /// Returns the name of an action that has a key.
    pub fn action_of(&self, chord: Chord) -> Option<&'static str> {
        let mut rows = self.keys.iter().filter(|(_, keys)| keys.iter().any(|(_, key)| *key == chord));
        rows.next().map(|(row, _)| row.name)
    }

    /// Returns the first key of a row.
    pub fn first_key(&self, name: &str) -> &str {
        let found = self.keys.iter().find(|(row, _)| row.name == name);
        found.and_then(|(_, keys)| keys.first()).map_or("", |(text, _)| text.as_str())
    }
}

/// Returns how a pressed key is written; none for keys that no table has.
pub fn name(event: KeyEvent) -> Option<String> {
    let key = match event.code {
        KeyCode::Char(' ') => "space".to_owned(),
        KeyCode::Char(letter) if !letter.is_control() => letter.to_string(),
        KeyCode::Enter => "enter".to_owned(),
        KeyCode::Tab => "tab".to_owned(),
        KeyCode::Left => "left".to_owned(),
        KeyCode::Right => "right".to_owned(),
        KeyCode::Delete => "delete".to_owned(),
        KeyCode::F(number) => format!("f{number}"),
        _ => return None,
    };
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(if control { format!("ctrl-{key}") } else { key })
}

/// Returns the page `docs/reference/keys.md`, from the table.
pub fn keys_page() -> String {
    let mut page = String::from(
        "# Keys of the terminal UI\n\nMade from the table of actions (`crates/tui/src/action.rs`). Change a key in \
         `config.toml`, by the action's name:\n\n```toml\n[tui.keys]\nfollow = [\"f\", \"space\"]\n```\n",
    );
    let keymap = Keymap::default();
    for (place, title) in KeyScope::TITLES {
        page.push_str(&format!("\n## {title}\n\n| keys | action | |\n|---|---|---|\n"));
        for (row, _) in keymap.rows(place) {
            let keys: Vec<String> = row.keys.iter().map(|key| format!("`{key}`")).collect();
            page.push_str(&format!("| {} | `{}` | {} |\n", keys.join(" "), row.name, row.help));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_table_is_one() {
        for row in TABLE {
            assert!(row.keys.iter().all(|key| Chord::parse(key).is_some()), "{row:?}");
        }
    }

    #[test]
    fn no_key_does_two_things_at_one_place() {
        for (place, _) in KeyScope::TITLES {
            let mut keys: Vec<_> = TABLE.iter().filter(|r| r.place == place).flat_map(|r| r.keys).collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all, "{place:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn mistakes_in_the_config_are_named() {
        let wrong = |name: &str, key: &str| {
            let changes = BTreeMap::from([(name.to_owned(), vec![key.to_owned()])]);
            Keymap::default().rebind(&changes).unwrap_err().to_string()
        };
        assert!(wrong("folow", "f").contains("folow"));
        assert!(wrong("follow", "hyper-x").contains("hyper-x"));
    }
}
