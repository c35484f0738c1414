//! The lines about communicators: `comm 0x… rank 0 nranks 4 … commId 0x… - Init COMPLETE`, from NCCL 2.3 to
//! 2.30.

use super::text::{Cursor, contains};

/// A step in the life of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Initialisation begins.
    #[default]
    Start,
    /// The topology is known: nodes, local ranks.
    Topology,
    /// Initialisation is complete.
    Complete,
    /// Destroyed or aborted.
    Gone,
}

/// One line about one rank of one communicator. Pointers are addresses in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommLine {
    /// The step that it reports.
    pub step: Step,
    /// Address of the communicator.
    pub pointer: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Ranks of the communicator.
    pub nranks: u32,
    /// CUDA device.
    pub cuda_device: Option<u32>,
    /// NVML device.
    pub nvml_device: Option<u32>,
    /// PCI bus id.
    pub bus_id: Option<u64>,
    /// Identity across ranks (2.16 on); a split has none.
    pub comm_id: Option<u64>,
    /// Address of the communicator it was split from.
    pub parent: Option<u64>,
    /// Which split of the parent.
    pub split_count: Option<u64>,
    /// Colour of the split.
    pub color: Option<i64>,
    /// Nodes.
    pub nnodes: Option<u32>,
    /// Ranks on this node.
    pub local_ranks: Option<u32>,
    /// Whether multi-node NVLink is used.
    pub mnnvl: bool,
}

impl CommLine {
    /// Returns whether the rank is below the number of ranks.
    pub fn is_possible(&self) -> bool {
        self.nranks > 0 && self.rank < self.nranks
    }
}

/// Reads a message; none if it is not about one rank of a communicator, or is truncated before the ranks.
pub fn parse(message: &[u8]) -> Option<CommLine> {
    let mut line = CommLine { step: step(message)?, ..CommLine::default() };
    let mut rank = None;
    let mut at = Cursor::new(message);
    loop {
        at.blanks();
        let word = at.token_with_slashes();
        at.blanks();
        match word {
            b"" => break,
            b"comm" => line.pointer = if at.eat(b"0x") { at.hex()? } else { return None },
            b"rank" => rank = at.number(),
            b"nranks" | b"nRanks" => line.nranks = at.number()?,
            b"cudaDev" => line.cuda_device = at.number(),
            b"nvmlDev" => line.nvml_device = at.number(),
            b"busId" => line.bus_id = hex(&mut at),
            b"commId" => line.comm_id = hex(&mut at),
            b"parent" => line.parent = hex(&mut at),
            b"splitCount" => line.split_count = at.number().map(u64::from),
            b"color" => line.color = signed(&mut at),
            b"nNodes" => line.nnodes = at.number(),
            b"localRanks" => line.local_ranks = at.number(),
            b"MNNVL" => line.mnnvl = at.number() == Some(1),
            _ => {}
        }
    }
    line.rank = rank?;
    let named = line.pointer != 0 || line.comm_id.is_some();
    (named && line.nranks > 0).then_some(line)
}

/// Returns the step of a message, judged by its beginning and end; most messages have none.
fn step(message: &[u8]) -> Option<Step> {
    let named = message.starts_with(b"ncclComm") || message.starts_with(b"[Rank ");
    if !named && !message.starts_with(b"comm 0x") {
        return None;
    }
    if message.ends_with(b"Init START") {
        Some(Step::Start)
    } else if message.ends_with(b"Init COMPLETE") {
        Some(Step::Complete)
    } else if contains(message, "Destroy COMPLETE") || contains(message, "Abort ") {
        Some(Step::Gone)
    } else if contains(message, "nNodes ") {
        Some(Step::Topology)
    } else if contains(message, "Init COMPLETE") {
        Some(Step::Complete)
    } else {
        // Truncated at its end, or a form of a later version: it still has rank and size.
        Some(Step::Start)
    }
}

fn signed(at: &mut Cursor<'_>) -> Option<i64> {
    let negative = at.eat(b"-");
    let number = i64::try_from(at.long()?).ok()?;
    Some(if negative { -number } else { number })
}

fn hex(at: &mut Cursor<'_>) -> Option<u64> {
    at.eat(b"0x");
    at.hex()
}
