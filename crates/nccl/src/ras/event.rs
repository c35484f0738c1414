//! Events of a monitor connection (NCCL 2.29.2 and later).

use serde::{Deserialize, Serialize};

/// The lines that open a monitor connection. The server answers each line, and then sends events until the connection
/// is closed.
/// A process that is killed is first an event of the group `TRACE`, and of `LIFECYCLE` about a minute later.
pub const MONITOR: [&str; 3] = ["CLIENT PROTOCOL 2", "SET FORMAT json", "MONITOR all"];

/// Events that say nothing but that NCCL's RAS connects its processes: each has thousands of them at the start of a large job.
const USUAL: [&str; 2] = ["PEER_CONNECTING", "PEER_CONNECTED"];

/// Largest number of bytes of an event. Longer events are dropped.
const LONGEST: usize = 64 * 1024;
/// Number of characters kept of each text.
const TEXT: usize = 200;

/// A change that NCCL noticed in one process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PeerEvent {
    /// When, by the clock of the node that reports it, without a zone.
    pub time: String,
    /// The kind: `PEER_DEAD`.
    pub name: String,
    /// Address of the process's node.
    pub host: String,
    /// Process id; null where the server names an address only.
    pub pid: Option<u64>,
    /// What happened, in the server's words.
    pub details: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    timestamp: String,
    event: String,
    #[serde(default)]
    peer: Option<Peer>,
    #[serde(default)]
    details: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Peer {
    host: String,
    addr: String,
    pid: Option<u64>,
}

/// Splits the output of a monitor connection into events: JSON objects over several lines, delimited by their braces.
#[derive(Clone, Debug, Default)]
pub struct EventReader {
    object: Vec<u8>,
    depth: u32,
    in_text: bool,
    escaped: bool,
}

impl EventReader {
    /// Reads bytes and returns the events that they complete. Other output is skipped.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<PeerEvent> {
        bytes.iter().filter_map(|byte| self.byte(*byte)).collect()
    }

    fn byte(&mut self, byte: u8) -> Option<PeerEvent> {
        if self.depth == 0 && byte != b'{' {
            return None;
        }
        if self.object.len() < LONGEST {
            self.object.push(byte);
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            b'{' if !self.in_text => self.depth = self.depth.saturating_add(1),
            b'}' if !self.in_text => self.depth -= 1,
            _ => {}
        }
        if self.depth > 0 {
            return None;
        }
        let object = std::mem::take(&mut self.object);
        let document: Document = serde_json::from_slice(&object).ok()?;
        if USUAL.contains(&document.event.as_str()) {
            return None;
        }
        let short = |text: &str| text.chars().take(TEXT).collect();
        let peer = document.peer.unwrap_or_default();
        let host = if peer.host.is_empty() { &peer.addr } else { &peer.host };
        Some(PeerEvent {
            time: short(&document.timestamp),
            name: short(&document.event),
            host: short(host),
            pid: peer.pid,
            details: short(&document.details),
        })
    }
}
