//! What is true of a capture or of a replay: what a reader of its logs must find out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One directed pair: global rank from, global rank to, kind (`p2p`, `shm`, `net`), and the network's name.
pub type Pair = (u32, u32, String, Option<String>);

/// What the map of a replay must be, in the shape of a capture's `expected.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Pairs that are connected, sorted.
    pub pairs: Vec<Pair>,
    /// The network each rank announces.
    pub announced: BTreeMap<String, String>,
    /// NCCL's versions.
    pub nccl_versions: Vec<String>,
    /// libfabric's providers.
    #[serde(default)]
    pub providers: Vec<String>,
    /// Lines of all ranks together.
    #[serde(default)]
    pub lines: u64,
    /// The verdict about the fabric.
    pub verdict_fabric: String,
    /// Regular expressions, each of which some finding's message or evidence must match.
    #[serde(default)]
    pub finding_evidence: Vec<String>,
}
