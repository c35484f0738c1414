//! Layered configuration: merges texts into one configuration in which every value has its origin.
//!
//! Later layers win: defaults < system < user < project < profile < `WEFTRUN_*` < job file < flags. The
//! last two belong to a job ([`PartialJob`](crate::spec::PartialJob)). A project's own file counts only if it is
//! trusted; otherwise it is ignored as a whole and that is reported, as are values that the system's file
//! locked. The SDK reads the files.

mod keys;
mod layer;
mod resolve;
mod settings;

pub use keys::markdown;
pub use layer::{Layer, Source};
pub use resolve::{Input, ResolvedConfig, ignored, path_text, resolve};
pub use settings::{Setting, Settings};

use crate::finding::PatchEdit;
use crate::{Error, ErrorKind, Result};

/// Sets a value in the text of a config file; comments and the order of everything else stay. A value that
/// parses as TOML (`true`, `3`, `["a"]`) is that, anything else is a string.
///
/// ```
/// let text = weftrun_core::config::set("# mine\n", "target.prod.backend", "slurm")?;
/// assert!(text.contains("# mine") && text.contains("[target.prod]\nbackend = \"slurm\""));
/// # Ok::<(), weftrun_core::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] where the text is no TOML, or the result would be an invalid config file.
pub fn set(text: &str, path: &str, value: &str) -> Result<String> {
    let value = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::InvalidConfig, format!("`{path}`: {error}")))?;
    edited(text, &PatchEdit { path: path.to_owned(), op: "set".to_owned(), value: Some(value) })
}

/// Removes a value from the text of a config file.
///
/// # Errors
/// As [`set`].
pub fn unset(text: &str, path: &str) -> Result<String> {
    edited(text, &PatchEdit { path: path.to_owned(), op: "unset".to_owned(), value: None })
}

/// Checks the text of a user's config file.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] with a finding for each error in it.
pub fn check(file: &str, text: &str) -> Result<()> {
    let source = Source { layer: Layer::User, file: file.to_owned(), text: text.to_owned() };
    resolve(&Input { sources: vec![source], ..Input::default() }).map(drop)
}

fn edited(text: &str, edit: &PatchEdit) -> Result<String> {
    let new = crate::spec::patched("config.toml", text, std::slice::from_ref(edit))
        .map_err(|error| Error::new(ErrorKind::InvalidConfig, error.message().to_owned()))?;
    check("config.toml", &new).map(|()| new)
}

#[cfg(test)]
mod tests;
