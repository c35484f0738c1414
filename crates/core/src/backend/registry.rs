//! The backends of a program, as a value.

use super::BackendEntry;
use crate::{Error, ErrorKind, Result};

/// A sorted list of backends with unique names.
///
/// ```
/// use weftrun_core::backend::Registry;
/// let error = Registry::empty().get("flyte").unwrap_err();
/// assert_eq!(error.message(), "there is no backend `flyte`");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: Vec<BackendEntry>,
}

impl Registry {
    /// Makes a registry without backends.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Makes a registry of the backends that are linked into this program.
    pub fn linked() -> Self {
        inventory::iter::<BackendEntry>
            .into_iter()
            .fold(Self::empty(), |registry, entry| registry.with(*entry))
    }

    /// Adds a backend.
    #[must_use]
    pub fn with(mut self, entry: BackendEntry) -> Self {
        self.entries.push(entry);
        self.entries.sort_by_key(|entry| (entry.name, entry.krate));
        self
    }

    /// Checks that no two backends have the same name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming both crates.
    pub fn check(&self) -> Result<()> {
        let Some(pair) = self.entries.windows(2).find(|pair| pair[0].name == pair[1].name) else {
            return Ok(());
        };
        let (name, one, other) = (pair[0].name, pair[0].krate, pair[1].krate);
        let message = format!("two backends are named `{name}`: one in {one}, one in {other}");
        Err(Error::new(ErrorKind::InvalidConfig, message))
    }

    /// Returns the backends, sorted by name.
    pub fn entries(&self) -> &[BackendEntry] {
        &self.entries
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.name).collect()
    }

    /// Finds a backend by name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the available names.
    pub fn get(&self, name: &str) -> Result<&BackendEntry> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let known = self.names();
            let error = Error::new(ErrorKind::NotFound, format!("there is no backend `{name}`"))
                .with("backends", known.join(", "));
            crate::text::suggestion(name, known).into_iter().fold(error, Error::hint)
        })
    }
}
