//! The configuration, read from this machine: system, user and project file, and the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weftrun_core::backend::TargetConfig;
use weftrun_core::config::{self, Input, Layer, Source};
use weftrun_core::fabric::Profiles;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::files;
use crate::trust::Trust;

/// The system's file.
const SYSTEM: &str = "/etc/weftrun/config.toml";
/// The project's file, in the folder one is in.
const PROJECT: &str = ".weftrun.toml";
/// Largest config file that is read.
const MAX_CONFIG: u64 = 1 << 20;

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
    /// The `weftrun` binary, for the local backend's supervisor. [`Config::load`] takes the one in `PATH`; without one
    /// local jobs are a part of this program. It must understand `supervise DIR`: never this program itself, unless
    /// it is built on weftrun's command line.
    pub binary: Option<PathBuf>,
    /// Environment handed to backends.
    pub env: BTreeMap<String, String>,
    /// Every value with where it came from, and what was left out.
    pub resolved: config::Config,
    /// The user's own file, whether it is there or not.
    pub user_file: PathBuf,
}

impl Config {
    /// Makes a configuration that knows nothing, with its state in a folder. Targets are added to it as values:
    ///
    /// ```
    /// use weftrun::Config;
    /// use weftrun::core::backend::TargetConfig;
    /// let mut config = Config::empty("/tmp/state");
    /// let head = TargetConfig::new("pc", "slurm", "").with("ssh", "head-node");
    /// config.targets.insert("pc".to_owned(), head);
    /// assert_eq!(config.target("pc").settings["ssh"], "head-node");
    /// ```
    pub fn empty(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), ..Self::default() }
    }

    /// Reads the system's, the user's and the project's file, and the process's environment; later layers win, and a
    /// project's file says only harmless things unless the user trusted it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] with a finding for each mistake in any of the files.
    pub fn load() -> Result<Self> {
        Self::load_with(None)
    }

    /// Like [`Config::load`], with a file in place of the user's.
    ///
    /// # Errors
    /// As [`Config::load`]; [`ErrorKind::NotFound`] where that file is not there.
    pub fn load_with(user_file: Option<&Path>) -> Result<Self> {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let dirs = Dirs::new(&env)?;
        let own = user_file.map(Path::to_owned).or_else(|| env.get("WEFTRUN_CONFIG").map(PathBuf::from));
        let named = own.is_some();
        let user_file = own.unwrap_or_else(|| dirs.config.join("config.toml"));
        let mut sources = Vec::new();
        let layers = [
            (Layer::System, Path::new(SYSTEM)),
            (Layer::User, &user_file),
            (Layer::Project, Path::new(PROJECT)),
        ];
        for (layer, path) in layers {
            match files::read_text(path, MAX_CONFIG)? {
                Some(text) => sources.push(Source { layer, file: path.display().to_string(), text }),
                None if named && layer == Layer::User => {
                    let message = format!("there is no config file {}", path.display());
                    return Err(Error::new(ErrorKind::NotFound, message));
                }
                None => {}
            }
        }
        let project = sources.iter().find(|source| source.layer == Layer::Project);
        let trusted = match project {
            Some(source) => Trust::new(&dirs.state).holds(Path::new(PROJECT), &source.text)?,
            None => false,
        };
        let resolved = config::resolve(&Input { sources, env: env.clone(), trusted })?;
        Ok(Self {
            targets: resolved.targets(),
            default_target: resolved.default_target(),
            state_dir: dirs.state,
            binary: installed(&env),
            env,
            resolved,
            user_file,
        })
    }

    /// What was left out of the configuration, and why.
    pub fn findings(&self) -> &[Finding] {
        &self.resolved.findings
    }

    /// The profiles there are: the shipped ones, and the user's own laid over them.
    pub fn profiles(&self) -> Profiles {
        let own = self.resolved.profiles();
        own.into_iter().fold(Profiles::builtin(), |all, (name, table)| all.with(name, table))
    }

    /// The target of a name: a configured one, else the default target of the backend of that name.
    pub fn target(&self, name: &str) -> TargetConfig {
        let mut target = self.targets.get(name).cloned().unwrap_or_else(|| {
            let mut target = TargetConfig::new(name, name, PathBuf::new());
            self.resolved.complete(&mut target);
            target
        });
        target.state_dir = self.state_dir.join("targets").join(&target.name);
        target.binary.clone_from(&self.binary);
        target.env.clone_from(&self.env);
        target
    }

    /// Changes the text of the user's file; the file and its folder are made if they are not there.
    ///
    /// # Errors
    /// What the change returns, or [`ErrorKind::Io`].
    pub fn edit_user_file(&self, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
        let text = files::read_text(&self.user_file, MAX_CONFIG)?.unwrap_or_default();
        files::write_private(&self.user_file, change(&text)?.as_bytes())
    }

    /// Trusts the project's file as it is now, and gives its text.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is none.
    pub fn trust_project(&self) -> Result<String> {
        let Some(text) = files::read_text(Path::new(PROJECT), MAX_CONFIG)? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no {PROJECT} in this folder")));
        };
        Trust::new(&self.state_dir).give(Path::new(PROJECT), &text)?;
        Ok(text)
    }

    /// Takes the trust in the project's file back.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn distrust_project(&self) -> Result<()> {
        Trust::new(&self.state_dir).take(Path::new(PROJECT))
    }
}

/// The folders of configuration and state.
struct Dirs {
    config: PathBuf,
    state: PathBuf,
}

impl Dirs {
    /// The folders by the environment, else by the home the system knows. Who has none keeps state in a temporary folder
    /// of their own, and has no configuration but what is named: whatever lies in a folder that all may write to could be
    /// another's.
    fn new(env: &BTreeMap<String, String>) -> Result<Self> {
        let home = env.get("HOME").map(PathBuf::from).or_else(std::env::home_dir);
        let home = home.filter(|home| home.is_absolute());
        let pick = |own: &str, xdg: &str, suffix: &str| {
            env.get(own)
                .map(PathBuf::from)
                .or_else(|| env.get(xdg).map(|dir| Path::new(dir).join("weftrun")))
                .or_else(|| home.as_ref().map(|home| home.join(suffix).join("weftrun")))
        };
        let state = match pick("WEFTRUN_STATE_DIR", "XDG_STATE_HOME", ".local/state") {
            Some(state) => state,
            None => files::own_temporary_folder()?,
        };
        let config = pick("WEFTRUN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config");
        Ok(Self { config: config.unwrap_or_else(|| state.join("config")), state })
    }
}

/// The `weftrun` in `PATH`, if there is one.
fn installed(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let folders = std::env::split_paths(env.get("PATH")?);
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("weftrun"))
        .find(|path| path.is_file())
}
