//! Programs that a test starts.
//!
//! They get no variable of the user's environment: what a user has set (`WEFTRUN_*`, `XDG_*`, `KUBECONFIG`, `SLURM_*`, proxies, a
//! locale, a time zone) changes no test. Test programs that do not link this crate include this file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Returns a command without input. It has the environment of [`environment`]; a program that writes to its home is given one:
/// `.env("HOME", folder)`.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment()).stdin(Stdio::null());
    command
}

/// Returns a program that starts another command (`strace -f weftrun list`): `before` are its own arguments. It has the folder and
/// the environment of that command.
pub fn within<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    before: impl IntoIterator<Item = S>,
    inner: &Command,
) -> Command {
    let mut command = Command::new(program);
    command.args(before).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = inner.get_current_dir() {
        command.current_dir(folder);
    }
    command.stdin(Stdio::null());
    command
}

/// Returns the environment of a program: a home that does not exist, [`path`], and nothing else.
pub fn environment() -> BTreeMap<String, String> {
    [("HOME", "/nonexistent".to_owned()), ("PATH", path())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Returns the folders of programs: those of the user, but for a folder with a `weftrun` of its own. A folder with the
/// system's programs stays.
pub fn path() -> String {
    let all = std::env::var_os("PATH").unwrap_or_default();
    let is_needed = |folder: &std::path::PathBuf| {
        folder.is_absolute() && (!folder.join("weftrun").exists() || folder.join("sh").exists())
    };
    // What was split is joined again.
    let folders = std::env::join_paths(std::env::split_paths(&all).filter(is_needed)).unwrap_or_default();
    folders.to_string_lossy().into_owned()
}
