//! The layers, from the weakest to the strongest.

use crate::request::Origin;

word_enum! {
    /// A layer of the configuration. Later ones win.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Layer {
        /// `/etc/weftrun/config.toml`; may lock keys.
        System = "system",
        /// `~/.config/weftrun/config.toml`.
        User = "user",
        /// `./.weftrun.toml`; ignored unless it is trusted.
        Project = "project",
    }
}

/// The text of one layer; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// Which layer it is.
    pub layer: Layer,
    /// The file's name, for messages.
    pub file: String,
    /// Its text.
    pub text: String,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Source");
        shown.field("layer", &self.layer).field("file", &self.file).field("bytes", &self.text.len()).finish()
    }
}

impl Layer {
    /// Returns the origin of the layer's values.
    pub fn origin(self) -> Origin {
        match self {
            Self::System => Origin::System,
            Self::User => Origin::UserConfig,
            Self::Project => Origin::ProjectConfig,
        }
    }
}
