//! The meaning of one message.

use super::channel::ChannelLine;
use super::comm::CommLine;

/// A message of NCCL, its plugins, or the programs around it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NcclEvent<'a> {
    /// A connection of one channel.
    Connection(ChannelLine<'a>),
    /// A truncated connection line: it is counted, and nothing is concluded from it.
    Torn,
    /// Ring order, trees: a plan of the topology, no connection.
    Plan,
    /// A step in the life of a communicator.
    Comm(CommLine),
    /// A rank beyond the ranks of its communicator: NCCL prints no such line.
    Impossible,
    /// A phase was reached.
    Connected(Connected),
    /// Version of NCCL.
    Version(&'a str),
    /// The network chosen for a communicator. *Announced* is not *connected*.
    Announced(&'a str),
    /// A network that could be initialised. Another may yet be chosen.
    Initialised(&'a str),
    /// A network lists its devices.
    Listed {
        /// `IB`, `Socket`, `FastSocket`.
        network: &'a str,
        /// The list, as printed.
        devices: &'a str,
        /// The interface for other traffic, as printed (`bond0:10.1.1.1<0>`), where the line names one.
        out_of_band: Option<&'a str>,
    },
    /// The provider libfabric selected.
    Provider {
        /// `efa`, `tcp;ofi_rxm`, `verbs`, `cxi`.
        name: &'a str,
        /// NICs found.
        nics: Option<u32>,
    },
    /// Version of aws-ofi-nccl.
    OfiVersion(&'a str),
    /// A plugin was loaded.
    Plugin(&'a str),
    /// The RAS service listens on this port of localhost.
    RasPort(u16),
    /// A variable that NCCL read from the environment.
    Env {
        /// Name.
        name: &'a str,
        /// Value.
        value: &'a str,
    },
    /// Channels planned: a budget, not use.
    Channels {
        /// For collectives.
        coll: u32,
        /// For send/recv.
        p2p: Option<u32>,
    },
    /// A line that can only hold a throughput value.
    Rate {
        /// Where the first words of the value are in the text.
        at: usize,
    },
    /// Anything else.
    Other,
}

/// A phase that a rank of a communicator reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connected {
    /// Rings; since 2.24 with two flags, each over all ranks.
    Rings {
        /// Whether any rank uses PXN.
        pxn: Option<bool>,
        /// Whether all ranks have GPUDirect RDMA.
        gdr: Option<bool>,
    },
    /// Trees.
    Trees,
    /// Trees of NVLink SHARP.
    NvlsTree,
    /// A collective network.
    CollNet,
}
