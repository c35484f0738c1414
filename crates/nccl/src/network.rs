//! The network of a connection between nodes: one answer, used by every screen and every rule.

use serde::{Deserialize, Serialize};

use crate::FabricSeen;

/// The network of a connection, as far as the log proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Network {
    /// EFA: libfabric with provider efa.
    Efa,
    /// RDMA over Ethernet.
    Roce,
    /// InfiniBand.
    #[serde(rename = "infiniband")]
    InfiniBand,
    /// Verbs; whether RoCE or InfiniBand was not printed.
    Verbs,
    /// libfabric over TCP: the plugin is loaded, the fabric is not used.
    LibfabricTcp,
    /// HPE Slingshot: libfabric with provider cxi.
    Slingshot,
    /// Omni-Path: libfabric with provider psm2, psm3 or opx, or verbs on an hfi1 device.
    OmniPath,
    /// libfabric with another provider, or one that was not printed.
    LibfabricOther,
    /// libfabric with different providers on different ranks.
    LibfabricMixed,
    /// UCX, which chooses its own transport.
    Ucx,
    /// Google's FasTrak (GPUDirect-TCPXO) or GPUDirect-TCPX.
    Fastrak,
    /// Another plugin, known by the name of the transport.
    Plugin,
    /// TCP sockets.
    Socket,
    /// A network that is not known here.
    Unknown,
}

impl Network {
    /// Returns at most five letters, for a cell of a matrix.
    pub fn word(self) -> &'static str {
        match self {
            Self::Efa => "EFA",
            Self::Roce => "ROCE",
            Self::InfiniBand | Self::Verbs => "IB",
            Self::LibfabricTcp | Self::LibfabricOther | Self::LibfabricMixed => "OFI",
            Self::Slingshot => "CXI",
            Self::OmniPath => "OPA",
            Self::Ucx => "UCX",
            Self::Fastrak => "TCPX",
            Self::Plugin => "NET",
            Self::Socket => "SOCK",
            Self::Unknown => "NET",
        }
    }

    /// Returns whether the traffic goes over TCP, with any plugin.
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Socket | Self::LibfabricTcp)
    }

    /// Reads the provider of libfabric.
    pub(crate) fn of_provider(name: &str) -> Self {
        let tcp = ["tcp", "sockets", "udp"];
        if name.starts_with("efa") {
            Self::Efa
        } else if tcp.iter().any(|start| name.starts_with(start)) {
            Self::LibfabricTcp
        } else if name.starts_with("cxi") {
            Self::Slingshot
        } else if ["psm2", "psm3", "opx"].iter().any(|start| name.starts_with(start)) {
            Self::OmniPath
        } else {
            Self::LibfabricOther
        }
    }
}

impl From<Network> for FabricSeen {
    fn from(network: Network) -> Self {
        macro_rules! same {
            ($($name:ident)*) => {
                match network {
                    $(Network::$name => Self::$name,)*
                    Network::LibfabricMixed => Self::Mixed,
                }
            };
        }
        same! {
            Efa Roce InfiniBand Verbs LibfabricTcp LibfabricOther Slingshot OmniPath Ucx Fastrak Plugin Socket
            Unknown
        }
    }
}
