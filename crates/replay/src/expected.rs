//! The expected results of a capture or of a replay, which a reader of its logs must find.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One directed pair: global rank from, global rank to, kind (`p2p`, `shm`, `net`), and the network's name.
pub type Pair = (u32, u32, String, Option<String>);

/// The expected map of a replay, in the format of a capture's `expected.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Connected pairs, sorted.
    pub pairs: Vec<Pair>,
    /// The network each rank announces.
    pub announced: BTreeMap<String, String>,
    /// NCCL's versions.
    pub nccl_versions: Vec<String>,
    /// libfabric's providers.
    #[serde(default)]
    pub providers: Vec<String>,
    /// Number of lines of all ranks.
    #[serde(default)]
    pub lines: u64,
    /// The verdict about the fabric.
    pub verdict_fabric: String,
    /// Regular expressions, each of which must match the message or evidence of a finding.
    #[serde(default)]
    pub finding_evidence: Vec<String>,
}
