//! Operations that run: a fixed table without locks. NCCL holds a handle of each, which is a number and no address: one that is
//! late, or that NCCL made up, finds no operation.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Operations that can run at once: as many as end between two visits of the writer at 40,000 a second.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
/// Slots that are tried for an operation before it is dropped.
const TRIES: usize = 16;
/// Visits of the writer after which an operation that never ended gives up its slot: ten minutes.
const STALE: u32 = 6_000;

// A handle, from the lowest bit: slot, how often the slot was used, a bit that is set, and for a channel when it started.
const USES_BITS: u32 = 11;
const VALID: u64 = 1 << (SLOT_BITS + USES_BITS);
const START_SHIFT: u32 = SLOT_BITS + USES_BITS + 1;
/// Nanoseconds of a channel's start that a handle holds: 18 minutes.
const CLOCK: u64 = (1 << (64 - START_SHIFT)) - 1;

// A slot's state: how often it was used, and one of these.
const FREE: u64 = 0;
const FILLED: u64 = 1;
const RUNS: u64 = 2;
const DONE: u64 = 3;
const PHASE_BITS: u32 = 2;

/// What is known of an operation when it is enqueued.
#[derive(Clone, Copy)]
pub struct Op {
    /// The number of its communicator.
    pub comm: usize,
    /// The place of its name in [`super::sums::NAMES`].
    pub name: usize,
    pub bytes: u64,
    pub seq: u64,
    pub channels: u32,
}

struct Slot {
    state: AtomicU64,
    about: AtomicU64,
    bytes: AtomicU64,
    seq: AtomicU64,
    longest: AtomicU64,
    left: AtomicU32,
    begun: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU64::new(FREE),
        about: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        seq: AtomicU64::new(0),
        longest: AtomicU64::new(0),
        left: AtomicU32::new(0),
        begun: AtomicU32::new(0),
    }
}; SLOTS];
static NEXT: AtomicU32 = AtomicU32::new(0);
static VISITS: AtomicU32 = AtomicU32::new(0);
/// Operations that were not measured, because there was no slot or no time of the GPU.
pub static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Whether the writer failed: then nothing is measured any more.
pub static FAILED: AtomicBool = AtomicBool::new(false);

/// Starts an operation and returns its handle, which is never 0; none if it is not measured.
pub fn start(op: Op) -> Option<u64> {
    if FAILED.load(Relaxed) || op.channels == 0 {
        return None;
    }
    let (first, now) = (NEXT.fetch_add(1, Relaxed) as usize, VISITS.load(Relaxed));
    for at in (0..TRIES).map(|further| first.wrapping_add(further) % SLOTS) {
        let slot = TABLE.get(at)?;
        let state = slot.state.load(Relaxed);
        let stale = || now.wrapping_sub(slot.begun.load(Relaxed)) > STALE;
        if !(phase(state) == FREE || phase(state) == RUNS && stale()) {
            continue;
        }
        let uses = (state >> PHASE_BITS).wrapping_add(1) & ((1 << USES_BITS) - 1);
        if slot.state.compare_exchange(state, uses << PHASE_BITS | FILLED, AcqRel, Relaxed).is_err() {
            continue;
        }
        slot.about.store((op.comm << 8 | op.name) as u64, Relaxed);
        slot.bytes.store(op.bytes, Relaxed);
        slot.seq.store(op.seq, Relaxed);
        slot.longest.store(0, Relaxed);
        slot.left.store(op.channels, Relaxed);
        slot.begun.store(now, Relaxed);
        slot.state.store(uses << PHASE_BITS | RUNS, Release);
        return Some(VALID | uses << SLOT_BITS | at as u64);
    }
    DROPPED.fetch_add(1, Relaxed);
    None
}

/// Starts a channel of an operation at a time of the GPU's clock, and returns the channel's handle.
pub fn start_channel(op: u64, clock: u64) -> Option<u64> {
    (op & VALID != 0 && clock != 0).then_some(op & ((1 << START_SHIFT) - 1) | (clock & CLOCK) << START_SHIFT)
}

/// Ends a channel. An operation takes as long as the channel that took longest from its own start to its own end: NCCL
/// Inspector does the same, and in NCCL 2.32 some channels' times are those of an operation before.
pub fn stop_channel(channel: u64, clock: u64) {
    let uses = channel >> SLOT_BITS & ((1 << USES_BITS) - 1);
    let Some(slot) = TABLE.get((channel & ((1 << SLOT_BITS) - 1)) as usize).filter(|_| channel & VALID != 0)
    else {
        return;
    };
    let runs = uses << PHASE_BITS | RUNS;
    if slot.state.load(Acquire) != runs {
        return;
    }
    let took = (clock & CLOCK).wrapping_sub(channel >> START_SHIFT) & CLOCK;
    // A stop before its start is no time.
    if clock != 0 && took <= CLOCK / 2 {
        slot.longest.fetch_max(took, Relaxed);
    }
    if slot.left.fetch_sub(1, AcqRel) == 1 {
        let _ = slot.state.compare_exchange(runs, uses << PHASE_BITS | DONE, Release, Relaxed);
    }
}

/// Passes on the operations that ended since the last visit, with the nanoseconds that each took.
pub fn visit(mut take: impl FnMut(Op, u64)) {
    let now = VISITS.fetch_add(1, Relaxed).wrapping_add(1);
    for slot in &TABLE {
        let state = slot.state.load(Acquire);
        if phase(state) != DONE {
            continue;
        }
        let about = slot.about.load(Relaxed) as usize;
        let (bytes, seq) = (slot.bytes.load(Relaxed), slot.seq.load(Relaxed));
        let op = Op { comm: about >> 8, name: about & 0xff, bytes, seq, channels: 0 };
        let (took, begun) = (slot.longest.load(Relaxed), slot.begun.load(Relaxed));
        slot.state.store(state >> PHASE_BITS << PHASE_BITS | FREE, Release);
        // One that ran for longer than the clock of a handle can tell may look short.
        if took == 0 || now.wrapping_sub(begun) > STALE {
            DROPPED.fetch_add(1, Relaxed);
        } else {
            take(op, took);
        }
    }
}

fn phase(state: u64) -> u64 {
    state & ((1 << PHASE_BITS) - 1)
}
