//! The changes of the map.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::process::Phase;
use crate::SourceId;

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Who {
    /// Rank in its first communicator, or from its launcher; not proved to be global.
    pub rank: Option<u32>,
    /// Host name of its prefix.
    pub host: Box<str>,
    /// Process id of its prefix.
    pub pid: Option<u64>,
    /// Where it was read.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub source: Arc<SourceId>,
}

fn by_name<S: serde::Serializer>(source: &Arc<SourceId>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&source.name)
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.pid) {
            (Some(rank), _) => write!(f, "rank {rank}")?,
            (None, Some(pid)) => write!(f, "pid {pid}")?,
            (None, None) => return write!(f, "{}", self.source),
        }
        if self.host.is_empty() {
            Ok(())
        } else {
            write!(f, " on {}", super::printable(self.host.as_bytes(), 64))
        }
    }
}

/// A change of the map. `Display` gives one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A version of NCCL was seen for the first time.
    Version {
        /// `2.28.9+cuda13.0`.
        version: Box<str>,
    },
    /// libfabric selected a provider.
    Provider {
        /// Its name.
        name: Box<str>,
        /// NICs found.
        nics: Option<u32>,
    },
    /// A process chose a network. *Announced* is not *connected*.
    Announced {
        /// Which.
        who: Who,
        /// `Socket`, `IB`, `AWS Libfabric`, …
        network: Box<str>,
    },
    /// A process joined a communicator.
    Joined {
        /// Which.
        who: Who,
        /// Rank in it.
        rank: u32,
        /// Its ranks.
        nranks: u32,
        /// Its nodes, where known.
        nnodes: Option<u32>,
    },
    /// A process reached another phase.
    Phase {
        /// Which.
        who: Who,
        /// How far.
        phase: Phase,
    },
    /// A connection was seen for the first time. Ranks are those of its communicator.
    Link {
        /// Who printed it.
        who: Who,
        /// Sending rank.
        from: u32,
        /// Receiving rank.
        to: u32,
        /// `P2P/CUMEM`, `NET/Socket`, …
        transport: Box<str>,
        /// GPUDirect RDMA.
        gdr: bool,
    },
    /// NCCL warned.
    Warning {
        /// Who.
        who: Option<Who>,
        /// What.
        text: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { version } => write!(f, "NCCL {version}"),
            Self::Provider { name, nics: Some(nics) } => write!(f, "libfabric provider {name}, {nics} NICs"),
            Self::Provider { name, nics: None } => write!(f, "libfabric provider {name}"),
            Self::Announced { who, network } => write!(f, "{who} chose network {network}"),
            Self::Joined { who, rank, nranks, nnodes: Some(nnodes) } => {
                write!(f, "{who} is {rank} of {nranks} ranks on {nnodes} nodes")
            }
            Self::Joined { who, rank, nranks, nnodes: None } => {
                write!(f, "{who} is {rank} of {nranks} ranks")
            }
            Self::Phase { who, phase } => write!(f, "{who}: {phase}"),
            Self::Link { who: _, from, to, transport, gdr } => {
                write!(f, "{from} → {to} via {transport}{}", if *gdr { " with GPUDirect" } else { "" })
            }
            Self::Warning { who: Some(who), text } => write!(f, "{who} warns: {text}"),
            Self::Warning { who: None, text } => write!(f, "warning: {text}"),
        }
    }
}
