//! The settings of a local target.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Deserialize;
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

/// The keys of a local target in the config file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct LocalTarget {
    /// Seconds between TERM and KILL.
    grace: f64,
    /// The program started for `launch = "torchrun"`; if empty, one process per rank is started instead.
    torchrun: String,
    /// The program started for `launch = "mpi"`; if empty, one process per rank is started instead.
    mpirun: String,
    /// The Python that runs a script if torchrun is not installed.
    python: String,
}

impl Default for LocalTarget {
    fn default() -> Self {
        Self { grace: 10.0, torchrun: "torchrun".into(), mpirun: "mpirun".into(), python: "python3".into() }
    }
}

/// The properties of this machine and of the target that `render` needs.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Path of torchrun, if installed.
    pub torchrun: Option<PathBuf>,
    /// Path of mpirun, if installed.
    pub mpirun: Option<PathBuf>,
    /// The Python that runs scripts.
    pub python: String,
    /// `LD_LIBRARY_PATH` of the target's environment.
    pub library_path: Option<String>,
    /// Processes that the system allows this user (`ulimit -u`), if it limits them.
    pub user_processes: Option<u64>,
}

impl Config {
    /// Reads the settings, and searches the `PATH` of the target's environment for the launchers.
    pub fn of(target: &TargetConfig) -> Result<Self> {
        let settings: LocalTarget = target.settings()?;
        let grace = Duration::try_from_secs_f64(settings.grace).map_err(|error| {
            Error::new(ErrorKind::InvalidConfig, format!("target `{}`: grace: {error}", target.name))
                .with("grace", settings.grace)
        })?;
        let path = target.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        Ok(Self {
            grace,
            torchrun: find_program(&settings.torchrun, path),
            mpirun: find_program(&settings.mpirun, path),
            python: settings.python,
            library_path: target.env.get("LD_LIBRARY_PATH").filter(|path| !path.is_empty()).cloned(),
            user_processes: getrlimit(Resource::Nproc).current,
        })
    }
}

/// Returns the program of a name, as a shell finds it: the name itself if it has a slash, else the first
/// executable in the path.
fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        return is_executable(Path::new(name)).then(|| PathBuf::from(name));
    }
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
