//! The network of a connection between nodes: one answer, used by every screen and every rule.

use serde::{Deserialize, Serialize};

word_enum! {
    /// The network of a connection, as far as the log proves it. The worst are last.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum Network: ALL {
        /// EFA: libfabric with provider efa.
        Efa = "efa",
        /// InfiniBand.
        #[serde(rename = "infiniband")]
        InfiniBand = "infiniband",
        /// SHARP: collectives that InfiniBand's switches compute.
        Sharp = "sharp",
        /// RDMA over Ethernet.
        Roce = "roce",
        /// Google's gIB, which is NCCL's IB network on RoCE with a tuner of its own.
        Gib = "gib",
        /// Verbs; whether RoCE or InfiniBand was not printed.
        Verbs = "verbs",
        /// HPE Slingshot: libfabric with provider cxi.
        Slingshot = "slingshot",
        /// Omni-Path: libfabric with provider psm2, psm3 or opx, or verbs on an hfi1 device.
        OmniPath = "omni-path",
        /// libfabric with another provider, or one that was not printed.
        LibfabricOther = "libfabric-other",
        /// libfabric with different providers on different ranks.
        LibfabricMixed = "libfabric-mixed",
        /// UCX, which chooses its own transport.
        Ucx = "ucx",
        /// Google's FasTrak (GPUDirect-TCPXO) or GPUDirect-TCPX.
        Fastrak = "fastrak",
        /// Another plugin, known by the name of the transport.
        Plugin = "plugin",
        /// libfabric over TCP: the plugin is loaded, the fabric is not used.
        LibfabricTcp = "libfabric-tcp",
        /// TCP sockets.
        Socket = "socket",
        /// A network that is not known here.
        Unknown = "unknown",
    }
}

impl Network {
    /// Returns at most five letters for a cell of a matrix, the letter for a narrow cell, and its name.
    fn words(self) -> (&'static str, char, &'static str) {
        match self {
            Self::Efa => ("EFA", 'E', "EFA"),
            Self::InfiniBand => ("IB", 'I', "InfiniBand"),
            Self::Sharp => ("SHARP", 'H', "SHARP"),
            Self::Roce => ("ROCE", 'R', "RoCE"),
            Self::Gib => ("GIB", 'G', "gIB"),
            Self::Verbs => ("IB", 'V', "verbs"),
            Self::Slingshot => ("CXI", 'X', "Slingshot"),
            Self::OmniPath => ("OPA", 'O', "Omni-Path"),
            Self::LibfabricOther => ("OFI", 'L', "Libfabric"),
            Self::LibfabricMixed => ("OFI", 'M', "Libfabric, several providers"),
            Self::Ucx => ("UCX", 'U', "UCX"),
            Self::Fastrak => ("TCPX", 'F', "FasTrak"),
            Self::Plugin => ("NET", 'P', "plugin"),
            Self::LibfabricTcp => ("OFI", 'l', "Libfabric over TCP"),
            Self::Socket => ("SOCK", 'T', "TCP socket"),
            Self::Unknown => ("NET", '?', "unknown"),
        }
    }

    /// Returns at most five letters, for a cell of a matrix.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    /// Returns the letter for a matrix cell that is one column wide.
    pub fn sign(self) -> char {
        self.words().1
    }

    /// Returns its name on screens and pages.
    pub fn name(self) -> &'static str {
        self.words().2
    }

    /// Returns whether the traffic goes over TCP, with any plugin.
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Socket | Self::LibfabricTcp)
    }

    /// Reads the name that NCCL gives a network, alone (`IB`) or in a transport (`NET/IB`). The provider of
    /// libfabric, and whether verbs are RoCE or InfiniBand, are in other lines.
    pub(crate) fn of_name(name: &str) -> Self {
        let name = name.strip_prefix("NET/").or(name.strip_prefix("COLLNET/")).unwrap_or(name);
        if name.contains("Libfabric") || name == "OFI" {
            Self::LibfabricOther
        } else if name.contains("Socket") {
            Self::Socket
        } else if name.starts_with("gIB") {
            // https://cloud.google.com/ai-hypercomputer/docs/nccl/overview, read 2026-11-22.
            Self::Gib
        } else if name.contains("FasTrak") || name.contains("TCPX") {
            Self::Fastrak
        } else if name.starts_with("UCX") {
            Self::Ucx
        } else if name.starts_with("IB") || name.contains("RDMA") || name.starts_with("SPCX") {
            Self::Verbs
        } else if name.contains("SHARP") {
            Self::Sharp
        } else {
            Self::Plugin
        }
    }

    /// Returns whether a name is of a network that is part of NCCL.
    pub(crate) fn is_built_in(name: &str) -> bool {
        matches!(name, "Socket" | "IB")
    }

    /// Returns whether a network or a transport has a name of the plugin for AWS.
    pub(crate) fn is_aws_plugin(name: &str) -> bool {
        name.contains("AWS Libfabric")
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

/// A network by the name that NCCL gives it, before the lines about its provider and its ports are considered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct NamedNetwork {
    /// `Socket`, `IB`, `AWS Libfabric`, …
    pub name: Box<str>,
    /// What the name says.
    pub network: Network,
    /// Whether it is NCCL's own, and not a plugin's: sockets and verbs have both.
    pub is_built_in: bool,
}

impl NamedNetwork {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), network: Network::of_name(name), is_built_in: Network::is_built_in(name) }
    }
}
