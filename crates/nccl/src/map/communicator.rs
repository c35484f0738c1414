//! Communicators: identifies the pointers of different processes that belong to the same one.

use std::collections::HashMap;
use std::fmt;

use typed_index_collections::TiSlice;

use super::ids::{CommId, LocalId, ProcessId};

/// The identity of a communicator across processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// Its commId (NCCL 2.16 and later).
    Id(u64),
    /// A split: which parent (index in the map), which split of it, which colour.
    Split {
        /// Index of the parent.
        parent: CommId,
        /// `splitCount`.
        count: u64,
        color: i64,
    },
    /// A split whose parent's lines were not seen.
    Orphan {
        /// `splitCount`.
        count: u64,
        color: i64,
        /// Ranks.
        nranks: u32,
    },
    /// No id was printed (NCCL up to 2.15): ranks are grouped by number and order.
    Unnamed {
        /// Ranks.
        nranks: u32,
        /// Ordinal among the communicators with as many ranks.
        ordinal: u32,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Communicator {
    pub identity: Identity,
    pub nranks: u32,
    pub nnodes: Option<u32>,
    /// Rank → (process, index among its communicators).
    pub members: HashMap<u32, (ProcessId, LocalId)>,
    /// Ranks that two processes claim.
    pub contested: u32,
    /// Members that were replaced by another process, or not accepted.
    pub displaced: u32,
}

impl Communicator {
    pub fn new(identity: Identity, nranks: u32) -> Self {
        Self { identity, nranks, nnodes: None, members: HashMap::new(), contested: 0, displaced: 0 }
    }

    /// Returns whether it was created directly, not by splitting another.
    pub fn is_root(&self) -> bool {
        matches!(self.identity, Identity::Id(_) | Identity::Unnamed { .. })
    }
}

/// Formats the id in reports: commId, or `PARENT/SPLITCOUNT/COLOR`.
pub(super) struct Id<'a>(pub &'a TiSlice<CommId, Communicator>, pub Identity);

impl Id<'_> {
    /// Most nested splits that an id spells out; real jobs split twice. A log can nest a thousand, each
    /// with an id as long as all before it.
    const DEPTH: u32 = 8;

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
        match self.1 {
            Identity::Id(id) => write!(f, "{id:#x}"),
            Identity::Split { parent, count, color } => {
                match self.0.get(parent) {
                    Some(known) if depth < Self::DEPTH => Id(self.0, known.identity).write(f, depth + 1)?,
                    // Its number in the map still distinguishes it from all others.
                    Some(_) => write!(f, "split-{}", usize::from(parent))?,
                    None => f.write_str("?")?,
                }
                write!(f, "/{count}/{color}")
            }
            Identity::Orphan { count, color, .. } => write!(f, "?/{count}/{color}"),
            Identity::Unnamed { nranks, ordinal } => write!(f, "unnamed-{nranks}-{ordinal}"),
        }
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
