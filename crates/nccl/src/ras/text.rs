//! The report in text (NCCL 2.24 and later). It details only ranks that differ from the others.

use std::collections::HashMap;

use super::json::hash;
use super::{Behind, Communicator, MAX_ENTRIES, Member, Missing, RankError, Report, Unreadable, behind};

const VERSION: &str = "NCCL version ";

pub(super) fn is_report(text: &str) -> bool {
    text.contains(VERSION)
}

/// The block of the report that contains a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Block {
    #[default]
    Other,
    Missing,
    Dead,
    Error,
    Mismatch,
}

impl Block {
    fn of(word: &str) -> Self {
        match word {
            "INCOMPLETE" => Self::Missing,
            "DEAD" => Self::Dead,
            "ERROR" => Self::Error,
            "MISMATCH" => Self::Mismatch,
            _ => Self::Other,
        }
    }
}

pub(super) fn read(text: &str) -> Result<Report, Unreadable> {
    let mut report = Report::default();
    let mut known = Known::default();
    let mut block = Block::Other;
    // The communicator of the indented lines.
    let mut current: Option<usize> = None;
    let mut counts = Counts::default();
    let mut has_table = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(version) = trimmed.strip_prefix(VERSION) {
            report.nccl_version = version.split_whitespace().next().map(str::to_owned);
        }
        has_table |= trimmed.starts_with("Communicators...");
        if let Some((hash, word)) = heading(trimmed) {
            counts.end(&mut report, current);
            block = Block::of(word);
            current = Some(known.communicator(&mut report, hash));
        } else if !line.starts_with([' ', '\t']) && Block::of(trimmed) != Block::Other {
            counts.end(&mut report, current);
            (block, current) = (Block::of(trimmed), None);
        } else if trimmed.is_empty() {
            counts.end(&mut report, current);
        } else if block != Block::Other {
            detail(&mut report, &mut known, block, current, trimmed, &mut counts);
        }
    }
    counts.end(&mut report, current);
    if has_table {
        Ok(report)
    } else {
        Err(Unreadable::Damaged("it ends before the table of communicators".to_owned()))
    }
}

/// Reads `#0-0 (c4cf64bc550944d1) MISMATCH`: hash and kind.
fn heading(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.strip_prefix('#')?.split_once('(')?;
    let (hex, word) = rest.split_once(')')?;
    Some((hash(hex)?, word.trim()))
}

/// Where the entries of a report are.
#[derive(Debug, Default)]
struct Known {
    /// The communicator of a hash.
    communicators: HashMap<u64, usize>,
    /// The missing rank of a communicator.
    missing: HashMap<(usize, u32), usize>,
}

impl Known {
    /// Returns the communicator of a hash, which is added if it is new.
    fn communicator(&mut self, report: &mut Report, hash: u64) -> usize {
        let all = &mut report.communicators;
        if let Some(at) = self.communicators.get(&hash) {
            return *at;
        }
        if all.len() < MAX_ENTRIES {
            self.communicators.insert(hash, all.len());
            all.push(Communicator { hash, ..Communicator::default() });
        }
        all.len() - 1
    }
}

fn detail(
    report: &mut Report,
    known: &mut Known,
    block: Block,
    current: Option<usize>,
    line: &str,
    counts: &mut Counts,
) {
    if let Some(operation) = line.strip_prefix("Communicator ranks have different ") {
        counts.end(report, current);
        // 2.26 and later count each kind of operation; before, all of them together.
        let operation = operation.strip_suffix(" operation counts").unwrap_or("collective");
        counts.operation = operation.chars().take(40).collect();
        return;
    }
    if block == Block::Mismatch {
        return counts.line(line);
    }
    let comm = current.and_then(|at| report.communicators.get_mut(at));
    match (member(line), comm, block) {
        (Some(member), Some(comm), Block::Missing | Block::Dead) if comm.missing.len() < MAX_ENTRIES => {
            let dead = block == Block::Dead;
            let new = comm.missing.len();
            let at = *known.missing.entry((current.unwrap_or(0), member.rank)).or_insert(new);
            match comm.missing.get_mut(at) {
                Some(missing) => missing.dead |= dead,
                None => comm.missing.push(Missing { member, dead }),
            }
        }
        (Some(member), Some(comm), Block::Error) if comm.errors.len() < MAX_ENTRIES => {
            comm.errors.push(RankError { member, what: line.chars().take(300).collect() });
        }
        (None, None, Block::Missing | Block::Dead) if report.missing_processes.len() < MAX_ENTRIES => {
            report.missing_processes.extend(process(line).map(|(host, pid)| Member { rank: 0, host, pid }));
        }
        _ => {}
    }
}

/// Reads `Rank 3 … managed by process 965 on node 192.0.2.2`.
fn member(line: &str) -> Option<Member> {
    let rank = line.strip_prefix("Rank ")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let (host, pid) = process(line).unwrap_or_default();
    Some(Member { rank, host, pid })
}

/// Reads `process 965 on node 192.0.2.2`, anywhere in a line: host and pid.
fn process(line: &str) -> Option<(String, u64)> {
    let at = line.find("process ").or_else(|| line.find("Process "))?;
    let mut words = line.get(at..)?.split_whitespace().skip(1);
    let pid = words.next()?.parse().ok()?;
    let host = words.skip_while(|word| *word != "node").nth(1).unwrap_or_default();
    Some((host.trim_end_matches([',', ')']).to_owned(), pid))
}

/// Counts of one kind of operation in a mismatch.
#[derive(Debug, Default)]
struct Counts {
    operation: String,
    /// Groups of unnamed ranks, with the count they reached.
    groups: Vec<(u64, u64)>,
    ranks: Vec<(Member, u64)>,
}

impl Counts {
    fn line(&mut self, line: &str) {
        let Some((who, count)) = line.split_once(" launched up to operation ") else {
            // The ranks of a small group are named below it.
            let group = self.groups.last().map(|(_, count)| *count);
            if let (Some(count), Some(member), true) = (group, member(line), self.ranks.len() < MAX_ENTRIES) {
                self.ranks.push((member, count));
            }
            return;
        };
        let Some(count) = count.split_whitespace().next().and_then(|count| count.parse().ok()) else {
            return;
        };
        match member(line) {
            Some(member) if self.ranks.len() < MAX_ENTRIES => self.ranks.push((member, count)),
            Some(_) => {}
            None => {
                let ranks = who.split_whitespace().next().and_then(|ranks| ranks.parse().ok()).unwrap_or(1);
                self.groups.push((ranks, count));
            }
        }
    }

    fn end(&mut self, report: &mut Report, comm: Option<usize>) {
        let counts = std::mem::take(self);
        let Some(comm) = comm.and_then(|at| report.communicators.get_mut(at)) else { return };
        let reached = counts.groups.iter().max().map(|(_, count)| *count);
        let Some(most) = counts.ranks.iter().map(|(_, count)| *count).chain(reached).max() else { return };
        let others =
            reached.filter(|reached| counts.ranks.iter().any(|(_, count)| count < reached)).unwrap_or(most);
        comm.launched = comm.launched.saturating_add(most);
        comm.behind.extend(behind(&counts.operation, &counts.ranks, others));
        if let Some(reached) = reached.filter(|_| comm.behind.is_empty()) {
            let ahead = counts.ranks.into_iter().filter(|(_, count)| *count > reached);
            comm.ahead.extend(ahead.map(|(member, count)| Behind {
                member,
                operation: counts.operation.clone(),
                count,
                others: reached,
            }));
        }
    }
}
