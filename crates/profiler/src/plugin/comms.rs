//! The communicators of this process.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Most communicators that are measured at once. Operations of further ones are not.
pub const MOST: usize = 256;

const FREE: u32 = 0;
const FILLED: u32 = 1;
const LIVE: u32 = 2;
/// Destroyed, with operations that are still to be written.
const ENDED: u32 = 3;
/// Destroyed before the visit of the writer that runs.
const LAST: u32 = 4;

/// A communicator, as NCCL names it.
pub struct Comm {
    phase: AtomicU32,
    pub id: AtomicU64,
    pub rank: AtomicU32,
    pub ranks: AtomicU32,
    pub nodes: AtomicU32,
    /// Point-to-point operations so far: NCCL does not number them.
    pub sent: AtomicU64,
}

static COMMS: [Comm; MOST] = [const {
    Comm {
        phase: AtomicU32::new(FREE),
        id: AtomicU64::new(0),
        rank: AtomicU32::new(0),
        ranks: AtomicU32::new(0),
        nodes: AtomicU32::new(0),
        sent: AtomicU64::new(0),
    }
}; MOST];

/// Returns the communicator of a number.
pub fn get(at: usize) -> Option<&'static Comm> {
    COMMS.get(at)
}

/// Takes a communicator and returns its number; none if there are too many.
pub fn open(id: u64, rank: u32, ranks: u32, nodes: u32) -> Option<usize> {
    let free = |comm: &Comm| comm.phase.compare_exchange(FREE, FILLED, Acquire, Relaxed).is_ok();
    let at = COMMS.iter().position(free)?;
    let comm = COMMS.get(at)?;
    comm.id.store(id, Relaxed);
    comm.rank.store(rank, Relaxed);
    comm.ranks.store(ranks, Relaxed);
    comm.nodes.store(nodes, Relaxed);
    comm.sent.store(0, Relaxed);
    comm.phase.store(LIVE, Release);
    Some(at)
}

/// Ends a communicator, and returns whether it was the last one.
pub fn close(at: usize) -> bool {
    if let Some(comm) = COMMS.get(at) {
        comm.phase.store(ENDED, Release);
    }
    !COMMS.iter().any(|comm| comm.phase.load(Relaxed) == LIVE)
}

/// Notes the ended ones before the writer's visit, after which nothing of them is left.
pub fn before_visit() {
    advance(ENDED, LAST);
}

/// Frees those that [`before_visit`] noted, after the visit is written.
pub fn after_visit() {
    advance(LAST, FREE);
}

fn advance(from: u32, to: u32) {
    for comm in &COMMS {
        let _ = comm.phase.compare_exchange(from, to, Release, Relaxed);
    }
}
