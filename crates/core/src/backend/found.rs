//! Targets that could be configured, as a machine shows them.

use serde_json::{Map, Value};

/// A target that could be configured: a context of a kubeconfig, a command of a scheduler, hosts of an ssh configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTarget {
    /// A name for it, of letters, digits, `-` and `_`.
    pub name: String,
    /// The backend's own settings.
    pub settings: Map<String, Value>,
    /// What was found and where: `context prod of ~/.kube/config`.
    pub sign: String,
}

impl FoundTarget {
    /// Makes one without settings. Of a path or an address the last part is the name: `prod` of `arn:…:cluster/prod`.
    pub fn new(name: &str, sign: impl Into<String>) -> Self {
        let last = name.rsplit(['/', ':']).find(|part| !part.is_empty()).unwrap_or(name);
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
        let name: String = last.chars().take(63).map(plain).collect();
        let name = name.trim_matches('-');
        let name = if name.is_empty() { "target" } else { name };
        Self { name: name.to_owned(), settings: Map::new(), sign: sign.into() }
    }

    /// Sets one of the backend's own settings.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(key.into(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_part_of_a_path_in_plain_letters() {
        for (given, name) in [
            ("prod", "prod"),
            ("arn:aws:eks:us-west-2:1:cluster/p5.big", "p5-big"),
            ("gke_team_eu-west4_a3", "gke_team_eu-west4_a3"),
            ("\u{1b}[31m/", "31m"),
            ("…", "target"),
        ] {
            assert_eq!(FoundTarget::new(given, "").name, name, "{given:?}");
        }
    }
}
