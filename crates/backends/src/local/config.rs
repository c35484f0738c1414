//! The settings of a local target.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Deserialize;
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files;

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
            torchrun: files::find_program(&settings.torchrun, path),
            mpirun: files::find_program(&settings.mpirun, path),
            python: settings.python,
            library_path: target.env.get("LD_LIBRARY_PATH").filter(|path| !path.is_empty()).cloned(),
            user_processes: getrlimit(Resource::Nproc).current,
        })
    }
}
