//! The places of each signature: bounded evidence and an exact count.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::{ProcessId, SourceIndex};
use crate::parser::Entry;
use crate::signature::Signature;

/// One line kept as evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    pub(crate) source: SourceIndex,
    /// Process that printed it, where known.
    pub(crate) process: Option<ProcessId>,
    /// Global rank that a launcher or a watchdog names in it.
    pub(crate) told: Option<u32>,
    /// Host or address that a launcher or nccl-tests names in it.
    pub(crate) host: Option<Box<str>>,
    /// Line number, from 1.
    pub line: u64,
    /// The line's message, printable, truncated.
    pub text: String,
}

/// Everything of one kind.
#[derive(Clone, Debug, Default)]
pub struct SignatureHits {
    /// Total number of lines.
    pub count: u64,
    /// The first few lines, of different processes if possible.
    pub traces: Vec<Trace>,
    /// Processes that printed one.
    pub(crate) processes: BTreeSet<ProcessId>,
    /// The last line of no known process.
    pub(crate) nameless: Option<(SourceIndex, u64)>,
    /// Global ranks that launchers or watchdogs named in those lines.
    pub told_ranks: BTreeSet<u32>,
}

/// All signatures found.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    found: BTreeMap<Signature, SignatureHits>,
}

impl Signatures {
    const KEPT: usize = 6;
    /// Most processes and ranks kept of one kind.
    const RANKS: usize = 65_536;
    const TEXT: usize = 400;

    pub(super) fn add(
        &mut self,
        id: Signature,
        source: SourceIndex,
        process: Option<ProcessId>,
        entry: &Entry<'_>,
    ) {
        let (found, told) = (self.found.entry(id).or_default(), entry.launcher_rank);
        found.count += 1;
        if process.is_none() {
            found.nameless = Some((source, entry.line));
        }
        if found.told_ranks.len() < Self::RANKS {
            found.told_ranks.extend(told);
        }
        if found.processes.len() < Self::RANKS {
            found.processes.extend(process);
        }
        let seen =
            found.traces.iter().filter(|trace| trace.source == source && trace.process == process).count();
        if found.traces.len() < Self::KEPT && seen < 2 {
            let host = entry.launcher_node.map(Into::into);
            // Words of NCCL's own at the end of a long line, as where PyTorch prints its exception in one.
            let own = || crate::text::behind(entry.text, "Last error:");
            let long = entry.text.len() > Self::TEXT;
            let text = printable(own().filter(|_| long).unwrap_or(entry.text), Self::TEXT);
            found.traces.push(Trace { source, process, told, host, line: entry.line, text });
        }
    }

    /// Returns what was found of one kind.
    pub fn get(&self, id: Signature) -> Option<&SignatureHits> {
        self.found.get(&id)
    }

    /// Returns whether anything was found of one kind.
    pub fn has(&self, id: Signature) -> bool {
        self.found.contains_key(&id)
    }

    /// Returns everything found, in order.
    pub fn ids(&self) -> impl Iterator<Item = Signature> {
        self.found.keys().copied()
    }

    /// Returns the number of lines of one kind.
    pub fn count(&self, id: Signature) -> u64 {
        self.found.get(&id).map_or(0, |found| found.count)
    }
}

/// Returns text from a log, safe to print: control characters become blanks, and it is cut at `most`
/// characters.
pub fn printable(bytes: &[u8], most: usize) -> String {
    let head = &bytes[..bytes.len().min(most * 4)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::with_capacity(text.len().min(most));
    let mut characters = text.trim().chars();
    for character in characters.by_ref().take(most) {
        out.push(if character.is_control() || is_invisible(character) { ' ' } else { character });
    }
    if characters.next().is_some() || head.len() < bytes.len() {
        out.push('…');
    }
    out
}

/// Returns whether a character changes the direction of text on a terminal, or hides it.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
