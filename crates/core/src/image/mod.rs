//! What a container image brings along for its fabric, read from its layers as they come, without running anything. Sans-IO: who
//! fetches the layers, and from where, is not known here.
//!
//! | module | what happens there |
//! |---|---|
//! | `tar` | the files of a layer, one after another, out of bytes in any pieces |
//! | `scan` | which files say something, and what: [`LayerScan`] → [`Layer`] |
//! | `layers` | layers over each other: what a container sees |
//! | `judge` | the image against what was planned |
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
pub use scan::{Layer, LayerScan, NotALayer};

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
    /// pkg-config's note of a libfabric, which has the version that the library itself does not say.
    LibfabricNote,
    /// aws-ofi-nccl, NCCL's net plugin for EFA.
    AwsOfiNccl,
    /// Another net plugin of NCCL.
    NetPlugin,
    /// NCCL as a library of its own.
    Nccl,
    /// Open MPI.
    OpenMpi,
}

impl Part {
    /// Its name, for people.
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
pub struct Found {
    /// What it is.
    pub part: Part,
    /// The file, from the image's root.
    pub path: String,
    /// Its version, where the file says it.
    pub version: Option<String>,
}

impl Found {
    /// The folder it lies in.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// What is known of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageFacts {
    /// As the job names it.
    pub reference: String,
    /// The digest of its manifest: what the name meant when it was looked up.
    pub digest: String,
    /// The machine it is for (`amd64`).
    pub architecture: String,
    /// Its own `LD_LIBRARY_PATH`.
    pub library_path: Option<String>,
    /// What a container of it sees.
    pub found: Vec<Found>,
    /// What was not read, and why.
    pub left_out: Vec<String>,
}

impl ImageFacts {
    /// What was found, on a line for a person.
    pub fn line(&self) -> String {
        let part = |found: &Found| {
            let version = found.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
            format!("{}{version} ({})", found.part.name(), found.path)
        };
        let found: Vec<String> = self.found.iter().map(part).collect();
        if found.is_empty() {
            "none of the fabric's libraries, and no C library".to_owned()
        } else {
            found.join(", ")
        }
    }

    /// The libraries of one kind.
    pub fn all(&self, part: Part) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.part == part)
    }
}
