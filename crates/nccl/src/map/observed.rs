//! Everything observed in the lines so far. Reading adds to it; a [`Snapshot`](super::Snapshot) answers
//! from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use typed_index_collections::TiVec;

use super::communicator::Communicator;
use super::diagnosed::Diagnosed;
use super::ids::{CommId, NameId, ProcessId, SourceIndex};
use super::process::Process;
use super::restarts::Restarts;
use super::signatures::Signatures;
use super::traits::Traits;
use super::usage::Usage;
use super::{PluginSeen, Who};
use crate::SourceId;
use crate::bandwidth::{self, Bandwidth};
use crate::failure::Failures;
use crate::throughput::Throughput;

/// One source of log bytes.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub id: Arc<SourceId>,
    pub throughput: Throughput,
    /// Ranks that a launcher names before lines without NCCL's prefix.
    pub heard: BTreeSet<u32>,
    /// Ranks that printed a training step without a rate, each with its last line; the rank is none if the line names none.
    pub steps: BTreeMap<Option<u32>, u64>,
    pub lines: u64,
    pub bytes: u64,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub sources: TiVec<SourceIndex, Source>,
    pub processes: TiVec<ProcessId, Process>,
    pub comms: TiVec<CommId, Communicator>,
    pub names: TiVec<NameId, Box<str>>,
    pub usage: Usage,
    /// The same for connections without NCCL's prefix. They count only where there are no others.
    pub unsigned: Usage,
    pub restarts: Restarts,
    /// The most nodes that any communicator printed.
    pub most_nodes: Option<u32>,
    pub signatures: Signatures,
    pub failures: Failures,
    pub versions: BTreeMap<Box<str>, BTreeSet<ProcessId>>,
    pub plugins: Vec<PluginSeen>,
    /// Lists of devices, by network, with the processes that printed them.
    pub listed: BTreeMap<Box<str>, BTreeMap<Box<str>, BTreeSet<ProcessId>>>,
    /// Interfaces for other traffic than the devices', as printed.
    pub out_of_band: BTreeSet<Box<str>>,
    pub traits: Traits,
    /// What NCCL's own diagnostics say.
    pub diagnosed: Diagnosed,
    pub env: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Port of the RAS service, the last one announced.
    pub ras_port: Option<u16>,
    /// The network that was last initialised.
    pub initialised: Option<Box<str>>,
    /// Values of the GPUDirect RDMA flag in the lines of complete rings.
    pub ring_gdr: BTreeSet<bool>,
    pub nvls_used: bool,
    /// Connections beyond the limit.
    pub links_dropped: u64,
    /// Lines of hosts, processes and communicators beyond the limits.
    pub others_dropped: u64,
    /// What weftrun's library measured.
    pub bandwidth: Box<(Bandwidth, bandwidth::Source)>,
    pub nccl_lines: u64,
    pub unparsed: u64,
    pub info_seen: bool,
    pub torn: u64,
}

impl Observed {
    pub fn name_of(&self, name: NameId) -> &str {
        self.names.get(name).map_or("", |name| name)
    }

    pub fn who(&self, at: ProcessId) -> Who {
        let process = &self.processes[at];
        let first = process.locals.first().filter(|_| process.pid.is_some());
        Who {
            rank: first.map(|local| local.rank).or(process.told_rank.map(u32::from)),
            host: process.host.clone(),
            pid: process.pid,
            source: Arc::clone(&self.sources[process.source].id),
        }
    }
}
