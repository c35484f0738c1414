//! Where targets, profiles and settings come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files;

/// Configuration: targets by name, and where state is kept.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// Targets by name.
    pub targets: BTreeMap<String, TargetConfig>,
    /// The target used when none is named; `local` otherwise.
    pub default_target: Option<String>,
    /// Folder of the journal and of backends' state.
    pub state_dir: PathBuf,
    /// The `weftrun` binary, for the local backend's supervisor.
    pub binary: Option<PathBuf>,
    /// Environment handed to backends.
    pub env: BTreeMap<String, String>,
}

/// Largest config file that is read.
const MAX_CONFIG: u64 = 4 << 20;

impl Config {
    /// Makes a configuration that knows nothing, with its state in a folder.
    pub fn empty(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), ..Self::default() }
    }

    /// Reads the user's configuration and the process's environment.
    pub fn load() -> Result<Self> {
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let dirs = Dirs::new(&env);
        let mut config = Self::empty(dirs.state);
        config.env = env;
        config.binary = std::env::current_exe().ok();
        if let Some(text) = files::read_text(&dirs.config.join("config.toml"), MAX_CONFIG)? {
            config.read(&dirs.config.join("config.toml"), &text)?;
        }
        Ok(config)
    }

    /// The target of a name: a configured one, else the default target of the backend of that name.
    pub fn target(&self, name: &str) -> TargetConfig {
        let mut target =
            self.targets.get(name).cloned().unwrap_or_else(|| TargetConfig::new(name, name, PathBuf::new()));
        target.state_dir = self.state_dir.join("targets").join(&target.name);
        target.binary.clone_from(&self.binary);
        target.env.clone_from(&self.env);
        target
    }

    fn read(&mut self, path: &Path, text: &str) -> Result<()> {
        let bad =
            |message: String| Error::new(ErrorKind::InvalidConfig, message).with("file", path.display());
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| bad(error.message().to_owned()))?;
        self.default_target = table.get("target-default").and_then(|v| v.as_str()).map(str::to_owned);
        let Some(targets) = table.get("target").and_then(toml::Value::as_table) else { return Ok(()) };
        for (name, value) in targets {
            let json = serde_json::to_value(value).map_err(|error| bad(error.to_string()))?;
            let serde_json::Value::Object(mut settings) = json else {
                return Err(bad(format!("`target.{name}` is not a table")));
            };
            let mut take = |key: &str| settings.remove(key).and_then(|v| v.as_str().map(str::to_owned));
            let backend =
                take("backend").ok_or_else(|| bad(format!("`target.{name}` names no `backend`")))?;
            let mut target = TargetConfig::new(name, backend, PathBuf::new());
            target.namespace = take("namespace");
            target.project = take("project");
            target.profile = take("profile");
            target.settings = settings;
            self.targets.insert(name.clone(), target);
        }
        Ok(())
    }
}

/// The folders of configuration and state.
struct Dirs {
    config: PathBuf,
    state: PathBuf,
}

impl Dirs {
    fn new(env: &BTreeMap<String, String>) -> Self {
        let home = |suffix: &str| env.get("HOME").map(|home| Path::new(home).join(suffix));
        let pick = |own: &str, xdg: &str, suffix: &str| {
            env.get(own)
                .map(PathBuf::from)
                .or_else(|| env.get(xdg).map(|dir| Path::new(dir).join("weftrun")))
                .or_else(|| home(suffix).map(|dir| dir.join("weftrun")))
                .unwrap_or_else(|| std::env::temp_dir().join(format!("weftrun-{}", user(env))))
        };
        Self {
            config: pick("WEFTRUN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config"),
            state: pick("WEFTRUN_STATE_DIR", "XDG_STATE_HOME", ".local/state"),
        }
    }
}

/// A name for a folder of one's own where there is no home.
fn user(env: &BTreeMap<String, String>) -> String {
    env.get("USER").cloned().unwrap_or_else(|| "nobody".to_owned())
}
