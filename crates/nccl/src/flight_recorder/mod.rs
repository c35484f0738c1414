//! PyTorch's flight recorder: each rank's last collectives, dumped when the watchdog fires. Compared with
//! each other, the dumps show the collective that hangs and the rank that did not enter it.
//!
//! Format: pickle, version 2.x of torch/csrc/distributed/c10d/FlightRecorder.hpp (read 2026-11-21).

mod pickle;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use pickle::{Node, Pickle, Value};

/// Most collectives and members of groups kept of one dump; PyTorch keeps 2,000 collectives by default.
const MOST: usize = 200_000;
/// Most process groups of one dump.
const GROUPS: usize = 16_384;
/// Characters kept of a name.
const NAME: usize = 200;
/// Most frames that are searched for the user's own line, and most numbers of a shape.
const FRAMES: usize = 256;
const DIMENSIONS: usize = 16;

/// Why a dump could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpError {
    /// The bytes at this offset are no pickle, or end too early.
    Unreadable {
        /// Offset in bytes.
        offset: usize,
    },
    /// The pickle would run code, or contains types other than lists, dictionaries, text and numbers.
    NotPlainData {
        /// Offset in bytes.
        offset: usize,
    },
    /// The dump holds more values, groups or members than any recorder writes, or refers to one too often.
    TooManyValues,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { offset } | Self::NotPlainData { offset } => {
                write!(f, "not a flight recorder dump: byte {offset} cannot be read")
            }
            Self::TooManyValues => {
                f.write_str("the dump holds more values, groups or members than are read, or repeats them")
            }
        }
    }
}

impl std::error::Error for DumpError {}

/// Where the ranks of one process group disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// Some ranks wait in a collective that the others did not enter or did not finish.
    Behind {
        /// The first collective that a rank lacks.
        collective: Collective,
        /// Ranks whose dump shows that they never entered it.
        late: Vec<u32>,
        /// Members of the group that left no dump.
        silent: Vec<u32>,
        /// Ranks that entered it and did not finish it.
        waiting: Vec<u32>,
    },
    /// Ranks entered different collectives under one sequence number.
    Mismatch {
        /// The sequence number.
        sequence: i64,
        /// The collectives and the ranks that entered them; two or more.
        variants: Vec<Variant>,
    },
}

/// A collective that was entered by at least one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Sequence number in its process group.
    pub sequence: i64,
    /// PyTorch's name of it, such as `nccl:all_reduce`.
    pub name: String,
    /// Sizes of inputs and outputs, as text.
    pub sizes: String,
    /// Description of its process group.
    pub group: String,
    /// File and line of the call in the user's program, where recorded.
    pub place: Option<String>,
}

/// One of several collectives entered under one sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// PyTorch's name of it.
    pub name: String,
    /// Sizes of inputs and outputs, as text; empty where they may differ by rank.
    pub sizes: String,
    /// The ranks that entered it.
    pub ranks: Vec<u32>,
}

/// A collective of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DumpEntry {
    sequence: i64,
    name: String,
    sizes: String,
    state: String,
    place: Option<String>,
}

/// What one rank recorded of one process group.
#[derive(Clone, Debug, Default)]
struct Group {
    description: String,
    members: BTreeSet<u32>,
    last_enqueued: i64,
    last_completed: i64,
    entries: BTreeMap<i64, DumpEntry>,
}

/// The dumps of a job, by rank.
#[derive(Clone, Debug, Default)]
pub struct FlightRecorder {
    ranks: BTreeMap<u32, BTreeMap<String, Group>>,
}

impl FlightRecorder {
    /// Adds the dump of a rank.
    pub fn add(&mut self, rank: u32, dump: &[u8]) -> Result<(), DumpError> {
        let pickle = Pickle::read(dump)?;
        let root = pickle.root();
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let mut kept = 0;
        for (name, config) in root.get("pg_config").into_iter().flat_map(Node::entries) {
            let group = groups.entry(short(name)).or_default();
            group.description = short(config.get("desc").and_then(Node::text).unwrap_or(name));
            group.members = config.get("ranks").map(members).unwrap_or_default();
            kept += group.members.len();
            enough(groups.len() <= GROUPS && kept <= MOST)?;
        }
        for (name, status) in root.get("pg_status").into_iter().flat_map(Node::entries) {
            enough(groups.len() <= GROUPS)?;
            let group = groups.entry(short(name)).or_default();
            let int = |key| status.get(key).and_then(Node::int).unwrap_or(-1);
            group.last_enqueued = int("last_enqueued_collective");
            group.last_completed = int("last_completed_collective");
        }
        for entry in root.get("entries").into_iter().flat_map(Node::items) {
            if entry.get("is_p2p").and_then(Node::bool) == Some(true) {
                continue;
            }
            let name = entry.get("process_group").and_then(|group| group.items().next()).and_then(Node::text);
            let Some((name, read)) = name.zip(read(entry)) else { continue };
            let group = groups.entry(short(name)).or_default();
            group.last_enqueued = group.last_enqueued.max(read.sequence);
            kept += usize::from(group.entries.insert(read.sequence, read).is_none());
            enough(groups.len() <= GROUPS && kept <= MOST)?;
        }
        enough(!pickle.is_exhausted())?;
        self.ranks.insert(rank, groups);
        Ok(())
    }

    /// Returns the ranks whose dumps were added.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.ranks.keys().copied()
    }

    /// Returns the members of all process groups, also those whose dumps were not added.
    pub fn members(&self) -> BTreeSet<u32> {
        let groups = self.ranks.values().flat_map(BTreeMap::values);
        groups.flat_map(|group| group.members.iter().copied()).chain(self.ranks()).collect()
    }

    /// Returns where the ranks of each process group disagree: some entered other collectives, or fewer.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        let names: BTreeSet<&String> = self.ranks.values().flat_map(BTreeMap::keys).collect();
        let mut found = Vec::new();
        for name in names {
            let group: BTreeMap<u32, &Group> =
                self.ranks.iter().filter_map(|(rank, groups)| Some((*rank, groups.get(name)?))).collect();
            found.extend(mismatch(&group));
            found.extend(behind(&group));
        }
        found
    }
}

/// Refuses a dump that no process can have written.
fn enough(within: bool) -> Result<(), DumpError> {
    if within { Ok(()) } else { Err(DumpError::TooManyValues) }
}

/// Returns a truncated name: a dump can hold one of a megabyte and refer to it from every collective.
fn short(text: &str) -> String {
    text.chars().take(NAME).collect()
}

fn read(entry: Node<'_>) -> Option<DumpEntry> {
    let text = |key| entry.get(key).and_then(Node::text).map(short).unwrap_or_default();
    let frames = entry.get("frames").into_iter().flat_map(Node::items).take(FRAMES);
    // The first frame outside of PyTorch is the user's own line.
    let place = frames
        .filter_map(|frame| Some((frame.get("filename")?.long_text()?, frame.get("line")?.int()?)))
        .find(|(file, _)| !file.contains("/torch/") && !file.contains("site-packages"))
        .map(|(file, line)| format!("{}:{line}", short(file)));
    Some(DumpEntry {
        sequence: entry.get("collective_seq_id")?.int()?,
        name: text("profiling_name"),
        sizes: sizes(entry),
        state: text("state"),
        place,
    })
}

/// Formats `[[1024]] → [[4096]]`.
fn sizes(entry: Node<'_>) -> String {
    let list = |key: &str| {
        let shapes = entry.get(key).into_iter().flat_map(Node::items).take(4);
        let shapes = shapes.map(|shape| shape.items().take(DIMENSIONS).filter_map(Node::int).collect());
        shapes.map(|shape: Vec<i64>| format!("{shape:?}")).collect::<Vec<_>>().join(" ")
    };
    format!("{} → {}", list("input_sizes"), list("output_sizes"))
}

/// Reads `'[0, 1, 2, 3]'`, or a list.
fn members(ranks: Node<'_>) -> BTreeSet<u32> {
    match ranks.long_text() {
        Some(text) => text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .filter_map(|digits| digits.parse().ok())
            .collect(),
        None => ranks.items().filter_map(Node::int).filter_map(|rank| u32::try_from(rank).ok()).collect(),
    }
}

/// Finds a collective that some ranks wait in and others never entered.
fn behind(group: &BTreeMap<u32, &Group>) -> Option<Disagreement> {
    let furthest = group.values().map(|group| group.last_enqueued).max()?;
    let unfinished = group.values().any(|group| group.last_completed < furthest);
    if furthest < 0 || !unfinished {
        return None;
    }
    let late: Vec<u32> =
        group.iter().filter(|(_, group)| group.last_enqueued < furthest).map(|(rank, _)| *rank).collect();
    let all: BTreeSet<u32> = group.values().flat_map(|group| group.members.iter().copied()).collect();
    let silent: Vec<u32> = all.iter().copied().filter(|rank| !group.contains_key(rank)).collect();
    // The job hangs in the first collective that some rank lacks, though others may be further ahead.
    let lacking = late.iter().filter_map(|rank| group.get(rank)).map(|group| group.last_enqueued + 1).min();
    let sequence = lacking.unwrap_or(furthest);
    let waiting: Vec<(u32, &DumpEntry)> = group
        .iter()
        .filter_map(|(rank, group)| Some((*rank, group.entries.get(&sequence)?)))
        .filter(|(_, entry)| entry.state != "completed")
        .collect();
    let (_, entry) = waiting.first()?;
    Some(Disagreement::Behind {
        collective: Collective {
            sequence,
            name: entry.name.clone(),
            sizes: entry.sizes.clone(),
            group: group.values().next()?.description.clone(),
            place: entry.place.clone(),
        },
        late,
        silent,
        waiting: waiting.iter().map(|(rank, _)| *rank).collect(),
    })
}

/// Finds one collective under two names or sizes.
fn mismatch(group: &BTreeMap<u32, &Group>) -> Option<Disagreement> {
    let sequences: BTreeSet<i64> = group.values().flat_map(|group| group.entries.keys().copied()).collect();
    for sequence in sequences {
        let mut kinds: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
        for (rank, group) in group {
            if let Some(entry) = group.entries.get(&sequence) {
                // all_to_all, scatter and gather may differ in size by rank.
                let even =
                    ["all_reduce", "allreduce", "broadcast", "_all_gather_base", "_reduce_scatter_base"];
                let sizes =
                    if even.iter().any(|name| entry.name.contains(name)) { entry.sizes.as_str() } else { "" };
                kinds.entry((&entry.name, sizes)).or_default().push(*rank);
            }
        }
        if kinds.len() > 1 {
            let variants = kinds.into_iter().map(|((name, sizes), ranks)| {
                let (name, sizes) = (name.to_owned(), sizes.to_owned());
                Variant { name, sizes, ranks }
            });
            return Some(Disagreement::Mismatch { sequence, variants: variants.collect() });
        }
    }
    None
}
