//! The configuration of this machine: system, user and project file, and the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weftrun_backends::named_file::{NamedFile, behind_links};
use weftrun_core::backend::TargetConfig;
use weftrun_core::config::{self, Input, Layer, Source};
use weftrun_core::env_names::{CONFIG, CONFIG_DIR, STATE_DIR};
use weftrun_core::fabric::Profiles;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::project::{self, Project};
use crate::trust::Trust;
use crate::{files, lock};

/// The system's file.
const SYSTEM: &str = "/etc/weftrun/config.toml";
/// The project's file, in the working directory.
const PROJECT: &str = ".weftrun.toml";
/// Largest config file that is read.
const MAX_CONFIG: u64 = 1 << 20;

/// The configuration: targets by name, and the state folder. Its `Debug` omits the values of the environment
/// and of settings.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Config {
    /// Targets by name.
    pub targets: BTreeMap<String, TargetConfig>,
    /// The target used by default; `local` if unset.
    pub default_target: Option<String>,
    /// Folder of the journal and of backends' state.
    pub state_dir: PathBuf,
    /// The `weftrun` binary, for the local backend's supervisor. [`Config::load`] uses the one in `PATH`;
    /// without it, local jobs run inside this program. It must support `supervise DIR`: never this program
    /// itself, unless it is built on weftrun's command line.
    pub binary: Option<PathBuf>,
    /// Environment passed to backends.
    pub env: BTreeMap<String, String>,
    /// Every value with its source, and what was ignored.
    pub resolved: config::ResolvedConfig,
    /// The path of the user's file, which may not exist.
    pub user_file: PathBuf,
    /// The folder of the user's configuration, used only by weftrun.
    own_dir: PathBuf,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("targets", &self.targets)
            .field("default_target", &self.default_target)
            .field("state_dir", &self.state_dir)
            .field("binary", &self.binary)
            .field("resolved", &self.resolved)
            .field("user_file", &self.user_file)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Creates an empty configuration with its state in a folder. Targets are added to it as values:
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

    /// Reads the system's, the user's and the project's file, and the process's environment; later layers
    /// take precedence. A project's file is used only if the user trusted its text and no other user can
    /// write to it; otherwise a finding reports that it is ignored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] with a finding for each error in any of the files.
    pub fn load() -> Result<Self> {
        Self::load_with(None)
    }

    /// Loads the configuration like [`Config::load`], with a given file instead of the user's.
    ///
    /// # Errors
    /// As [`Config::load`]; [`ErrorKind::NotFound`] if that file does not exist.
    pub fn load_with(user_file: Option<&Path>) -> Result<Self> {
        Self::load_from(user_file, of_process())
    }

    /// Loads the configuration like [`Config::load_with`], with a given environment instead of the process's: for tests, and
    /// for a program with several users. The project's file is that of the working directory.
    ///
    /// # Errors
    /// As [`Config::load_with`].
    pub fn load_from(user_file: Option<&Path>, env: BTreeMap<String, String>) -> Result<Self> {
        let (Self { env, user_file, state_dir, own_dir, .. }, named, mut findings) =
            Self::located(user_file, env)?;
        let mut sources = Vec::new();
        for (layer, path) in [(Layer::System, Path::new(SYSTEM)), (Layer::User, &user_file)] {
            // A file that the user names may be a pipe; discovered files may not.
            let text = if named && layer == Layer::User {
                named_text(path)?
            } else {
                files::read_config(path, MAX_CONFIG)?
            };
            sources.extend(text.map(|text| Source { layer, file: path.display().to_string(), text }));
        }
        let mut trusted = false;
        match project::read(Path::new(PROJECT), MAX_CONFIG) {
            Project::Absent => {}
            Project::Refused { why, fix } => findings.push(config::ignored(PROJECT, &why, &fix)),
            Project::Text(text) => {
                trusted = Trust::new(&state_dir).holds(Path::new(PROJECT), &text)?;
                sources.push(Source { layer: Layer::Project, file: PROJECT.to_owned(), text });
            }
        }
        let mut resolved = config::resolve(&Input { sources, env: env.clone(), trusted })?;
        resolved.findings.splice(0..0, findings);
        Ok(Self {
            targets: resolved.targets(),
            default_target: resolved.default_target(),
            state_dir,
            binary: installed(&env),
            env,
            resolved,
            user_file,
            own_dir,
        })
    }

    /// Finds the user's file, or takes the given one, and reads nothing: what is configured can be wrong, and is still
    /// to be mended with [`Config::edit_user_file`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] if there is no folder for the state.
    pub fn locate(user_file: Option<&Path>) -> Result<Self> {
        Self::located(user_file, of_process()).map(|(config, _, _)| config)
    }

    /// Returns also whether the file was named, by the caller or the environment, and what was ignored.
    fn located(
        user_file: Option<&Path>,
        env: BTreeMap<String, String>,
    ) -> Result<(Self, bool, Vec<Finding>)> {
        let (dirs, mut findings) = Dirs::new(&env)?;
        let own = user_file.map(Path::to_owned).or_else(|| absolute(&env, CONFIG, &mut findings));
        let named = own.is_some();
        let user_file = own.unwrap_or_else(|| dirs.config.join("config.toml"));
        Ok((
            Self { env, user_file, state_dir: dirs.state, own_dir: dirs.config, ..Self::default() },
            named,
            findings,
        ))
    }

    /// Returns what was ignored in the configuration, and why.
    pub fn findings(&self) -> &[Finding] {
        &self.resolved.findings
    }

    /// Returns the available profiles: the built-in ones, overridden by the user's own.
    pub fn profiles(&self) -> Profiles {
        let own = self.resolved.profiles();
        own.into_iter().fold(Profiles::builtin(), |all, (name, table)| all.with(name, table))
    }

    /// Returns the target of a name: a configured one, else the default target of the backend of that name.
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

    /// Changes the text of the user's file; the file and its folder are created if necessary. Several
    /// processes may do so at once: each sees the previous one's text. A link is kept, and the file it points
    /// to is changed.
    ///
    /// # Errors
    /// The error of the change, that of [`NamedFile::check`], or [`ErrorKind::Io`].
    pub fn edit_user_file(&self, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
        NamedFile::check(&self.user_file)?;
        let file = behind_links(&self.user_file);
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = |error| files::config_error("cannot write", &file, error);
        // The folder of an explicitly named file contains other files too, and keeps its mode.
        if folder == self.own_dir || !folder.exists() {
            files::make_private_dir(folder).map_err(failed)?;
        }
        let _lock = lock::exclusive(&lock::beside(&file))?;
        let text = files::read_config(&file, MAX_CONFIG)?.unwrap_or_default();
        weftrun_backends::files::replace(&file, change(&text)?.as_bytes()).map_err(failed)
    }

    /// Trusts the project's file as it is now, and returns its text.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; [`ErrorKind::InvalidConfig`] if another user could have
    /// written it, or it is not a regular file.
    pub fn trust_project(&self) -> Result<String> {
        match project::read(Path::new(PROJECT), MAX_CONFIG) {
            Project::Absent => {
                Err(Error::new(ErrorKind::NotFound, format!("there is no {PROJECT} in this folder")))
            }
            Project::Refused { why, fix } => {
                let message = format!("{PROJECT} cannot be trusted: {why}");
                Err(Error::new(ErrorKind::InvalidConfig, message).hint(fix))
            }
            Project::Text(text) => {
                Trust::new(&self.state_dir).give(Path::new(PROJECT), &text)?;
                Ok(text)
            }
        }
    }

    /// Revokes the trust in the project's file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn distrust_project(&self) -> Result<()> {
        Trust::new(&self.state_dir).take(Path::new(PROJECT))
    }
}

/// Returns the environment of this process, without what is not UTF-8.
fn of_process() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// The folders of configuration and state.
struct Dirs {
    config: PathBuf,
    state: PathBuf,
}

impl Dirs {
    /// Returns the folders set in the environment, else those below the home directory, with findings about
    /// ignored values. Variables that are empty or contain a relative path count as unset, as the XDG base
    /// directory specification requires: `./weftrun` may belong to another user. Without a home directory,
    /// the state is kept in a private temporary folder, and only an explicitly named configuration is used.
    fn new(env: &BTreeMap<String, String>) -> Result<(Self, Vec<Finding>)> {
        let mut findings = Vec::new();
        let home = match env.get("HOME") {
            Some(home) => files::absolute(Some(home)),
            // The system's user database, unless the variable is only missing in the environment that was given.
            None if std::env::var_os("HOME").is_none() => {
                std::env::home_dir().filter(|home| home.is_absolute())
            }
            None => None,
        };
        let pick = |own: Option<PathBuf>, name: &str, below_home: &str| {
            let xdg = files::absolute(env.get(name));
            let base = xdg.or_else(|| home.as_ref().map(|home| home.join(below_home)));
            own.or_else(|| base.map(|base| base.join("weftrun")))
        };
        let own = absolute(env, STATE_DIR, &mut findings);
        let state = match pick(own, "XDG_STATE_HOME", ".local/state") {
            Some(state) => state,
            None => files::own_temporary_folder()?,
        };
        let own = absolute(env, CONFIG_DIR, &mut findings);
        let config = pick(own, "XDG_CONFIG_HOME", ".config");
        Ok((Self { config: config.unwrap_or_else(|| state.join("config")), state }, findings))
    }
}

/// Returns the path in one of weftrun's own variables. A relative one is ignored with a finding; an empty one
/// means none.
fn absolute(env: &BTreeMap<String, String>, name: &str, findings: &mut Vec<Finding>) -> Option<PathBuf> {
    let value = env.get(name).filter(|value| !value.is_empty())?;
    let path = files::absolute(Some(value));
    if path.is_none() {
        let message = format!("{name} is ignored: `{value}` is not an absolute path");
        findings
            .push(Finding::warning("CONFIG-RELATIVE", message).fix("set it to a path that begins with `/`"));
    }
    path
}

/// Returns the text of a config file that the user named.
fn named_text(path: &Path) -> Result<Option<String>> {
    match files::read_named_text(path, MAX_CONFIG) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, format!("there is no config file {}", path.display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            let message = format!("cannot read {}: {error}", path.display());
            Err(Error::new(ErrorKind::InvalidConfig, message).with_source(error))
        }
        Err(error) => Err(files::config_error("cannot read", path, error)),
    }
}

/// Returns the `weftrun` in `PATH`, if there is one.
fn installed(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let folders = std::env::split_paths(env.get("PATH")?);
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("weftrun"))
        .find(|path| path.is_file())
}
