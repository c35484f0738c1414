//! Finds the fabric's libraries in a container image, from the stream of its layers, without running
//! anything. Sans-IO: the caller fetches the layers.
//!
//! | module | content |
//! |---|---|
//! | `tar` | the files of a layer, one after another, from chunks of any size |
//! | `scan` | the relevant files, and their versions: [`LayerScan`] → [`ImageLayer`] |
//! | `layers` | stacked layers: what a container sees |
//! | `compat` | the image compared with the plan |
//! | `nccl` | the NCCL version that an image's name shows, and variables it does not read |

mod compat;
mod layers;
mod nccl;
mod scan;
mod tar;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use crate::text::numbers;
pub use compat::judge;
pub use layers::over;
pub use nccl::NcclVersion;
pub use scan::{ImageLayer, LayerScan, NotALayer};

/// A library that matters for the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Part {
    /// The GNU C library.
    Glibc,
    /// Musl, in place of it.
    Musl,
    /// libfabric.
    Libfabric,
    /// The pkg-config file of a libfabric, which has the version that the library itself lacks.
    LibfabricNote,
    /// aws-ofi-nccl, NCCL's net plugin for EFA.
    AwsOfiNccl,
    /// Another net plugin of NCCL.
    NetPlugin,
    /// NCCL as a separate library.
    Nccl,
    /// Open MPI.
    OpenMpi,
}

impl Part {
    /// Returns its name for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
            Self::Libfabric | Self::LibfabricNote => "libfabric",
            Self::AwsOfiNccl => "aws-ofi-nccl",
            Self::NetPlugin => "another net plugin of NCCL",
            Self::Nccl => "NCCL",
            Self::OpenMpi => "Open MPI",
        }
    }
}

/// One found library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Library {
    /// What it is.
    pub part: Part,
    /// The file, from the image's root.
    pub path: String,
    /// Its version, where the file contains it.
    pub version: Option<String>,
}

impl Library {
    /// Returns the folder that contains it.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Returns `libfabric 1.22.0 (/opt/amazon/efa/lib/libfabric.so.1.24.0)`.
    pub(super) fn named(&self) -> String {
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        format!("{}{version} ({})", self.part.name(), self.path)
    }
}

/// Known facts about an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageFacts {
    /// The name in the job.
    pub reference: String,
    /// The digest of its manifest when the name was resolved.
    pub digest: String,
    /// The architecture it is for (`amd64`).
    pub architecture: String,
    /// Its own `LD_LIBRARY_PATH`.
    pub library_path: Option<String>,
    /// The libraries that a container of it sees.
    pub found: Vec<Library>,
    /// What was not read, and why.
    pub left_out: Vec<String>,
}

impl ImageFacts {
    /// Returns the libraries on one line.
    pub fn line(&self) -> String {
        if self.found.is_empty() {
            return "none of the fabric's libraries, and no C library".to_owned();
        }
        self.found.iter().map(Library::named).collect::<Vec<_>>().join(", ")
    }

    /// Returns the libraries of one kind.
    pub fn all(&self, part: Part) -> impl Iterator<Item = &Library> {
        self.found.iter().filter(move |found| found.part == part)
    }
}
