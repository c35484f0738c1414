//! A configured place: a backend with its settings.

use std::fmt;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::{Error, ErrorKind, Result};

/// A configured place to run jobs, passed to [`BackendEntry::connect`](super::BackendEntry::connect).
/// `Debug` hides the values of environment variables and settings.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct TargetConfig {
    /// The target's name; the backend's own name for its default target.
    pub name: String,
    /// The backend's name.
    pub backend: String,
    /// Kubernetes namespace, from `-n` or the target.
    pub namespace: Option<String>,
    /// Project, from `-p` or the target.
    pub project: Option<String>,
    /// Profile of the target.
    pub profile: Option<String>,
    /// The backend's own settings: the target's table in the config file without the keys above.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Folder where this target may keep state (journal, job records); made on first use.
    pub state_dir: PathBuf,
    /// The `weftrun` binary, for backends that start a process (`local`'s supervisor).
    pub binary: Option<PathBuf>,
    /// Environment variables of the calling program, so that backends need not read those of the process.
    pub env: std::collections::BTreeMap<String, String>,
}

impl fmt::Debug for TargetConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, backend, namespace, project, profile, settings, state_dir, binary, env: _ } = self;
        f.debug_struct("TargetConfig")
            .field("name", name)
            .field("backend", backend)
            .field("namespace", namespace)
            .field("project", project)
            .field("profile", profile)
            .field("settings", &settings.keys().collect::<Vec<_>>())
            .field("state_dir", state_dir)
            .field("binary", binary)
            .finish_non_exhaustive()
    }
}

impl TargetConfig {
    /// Makes a target without settings.
    pub fn new(name: impl Into<String>, backend: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), backend: backend.into(), state_dir: state_dir.into(), ..Self::default() }
    }

    /// Sets one of the backend's own settings.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.settings.insert(key.into(), value.into());
        self
    }

    /// Refuses settings with a NUL character: many of them become a part of a script or a command line.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the target and the keys.
    pub fn refuse_nul(&self) -> Result<()> {
        let settings = serde_json::Value::Object(self.settings.clone());
        let keys = crate::spec::nul_paths(&settings);
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = keys.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
        let message = format!("target `{}`: there is a NUL character in {}", self.name, keys.join(", "));
        Err(Error::new(ErrorKind::InvalidConfig, message).hint("remove the NUL character"))
    }

    /// Returns whether its settings have `insecure = true`: certificates are not checked, or a token is
    /// sent unencrypted.
    pub fn is_insecure(&self) -> bool {
        self.settings.get("insecure").and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Reads the backend's settings as its own type.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the target and the key.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T> {
        self.refuse_nul()?;
        serde_json::from_value(serde_json::Value::Object(self.settings.clone())).map_err(|error| {
            Error::new(ErrorKind::InvalidConfig, format!("target `{}`: {error}", self.name))
                .with("backend", &self.backend)
                .hint("`weftrun config show --origin` shows where each value comes from")
        })
    }
}
