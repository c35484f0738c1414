//! Targets that could be configured, as this machine shows them.

use weftrun_core::backend::{FoundTarget, Registry, TargetConfig};
use weftrun_core::config;
use weftrun_core::{Error, ErrorKind, Result};

use crate::Config;

impl Config {
    /// Returns what targets could be made of, each with its backend: contexts of the kubeconfig, the commands of a scheduler, the
    /// hosts of the ssh configuration. Those that are configured are left out, and no request is made.
    pub fn find_targets(&self, registry: &Registry) -> Vec<(&'static str, FoundTarget)> {
        let mut all: Vec<(&'static str, FoundTarget)> = Vec::new();
        for entry in registry.entries() {
            let mut bare = TargetConfig::new(entry.name, entry.name, self.state_dir.clone());
            bare.env.clone_from(&self.env);
            for found in (entry.find)(&bare).into_iter().filter(|found| !self.has_target(entry.name, found)) {
                let name = self.free_name(&found.name, entry.name, &all);
                all.push((entry.name, FoundTarget { name, ..found }));
            }
        }
        all
    }

    /// Writes a found target into the user's file.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if a target of that name is configured; those of [`Config::edit_user_file`].
    pub fn add_target(&self, backend: &str, found: &FoundTarget) -> Result<()> {
        let FoundTarget { name, settings, .. } = found;
        if self.targets.contains_key(name) {
            let message = format!("there is a target `{name}` already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        self.edit_user_file(|text| {
            let text = config::set(text, &format!("target.{name}.backend"), &format!("\"{backend}\""))?;
            // A value of JSON without null is one of TOML.
            settings.iter().try_fold(text, |text, (key, value)| {
                config::set(&text, &format!("target.{name}.{key}"), &value.to_string())
            })
        })
    }

    fn has_target(&self, backend: &str, found: &FoundTarget) -> bool {
        let is_it = |target: &TargetConfig| {
            target.backend == backend
                && found.settings.iter().all(|(key, value)| target.settings.get(key) == Some(value))
        };
        self.targets.values().any(is_it)
    }

    /// Returns the name, or one with the backend's or a number behind it where it is taken.
    fn free_name(&self, name: &str, backend: &str, all: &[(&str, FoundTarget)]) -> String {
        let is_free = |name: &String| {
            !self.targets.contains_key(name) && all.iter().all(|(_, found)| found.name != *name)
        };
        let more = (2..).map(|number| format!("{name}-{number}"));
        let names = [name.to_owned(), format!("{name}-{backend}")].into_iter().chain(more);
        names.take(1000).find(is_free).unwrap_or_else(|| name.to_owned())
    }
}
