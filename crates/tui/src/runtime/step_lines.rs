//! Lines that report a training step without a rate: `step 12 loss 2.1`.

use std::collections::{BTreeSet, HashSet};
use std::sync::OnceLock;

use aho_corasick::packed::Searcher;
use memchr::{memchr, memmem, memrchr};
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::launcher;

/// The ranks that printed a step.
#[derive(Debug, Default)]
pub struct StepLines {
    ranks: BTreeSet<u32>,
    /// Sources of one rank that is known to step: they are not searched again.
    done: HashSet<String>,
}

impl StepLines {
    /// Searches the lines of a batch. One that the batch cuts is left to the next step.
    pub fn read(&mut self, batch: &LogBatch) {
        if self.done.contains(&batch.source.uid) {
            return;
        }
        for line in lines_with_steps(&batch.bytes) {
            let rank = launcher::prefix(line).told_rank().or(batch.source.rank);
            self.ranks.extend(rank);
            if batch.source.rank.is_some() {
                self.done.insert(batch.source.uid.clone());
                return;
            }
        }
    }

    pub fn ranks(&self) -> &BTreeSet<u32> {
        &self.ranks
    }
}

fn lines_with_steps(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while let Some(at) = find(bytes) {
            let (before, behind) = bytes.split_at(at);
            let start = memrchr(b'\n', before).map_or(0, |newline| newline + 1);
            let end = memchr(b'\n', behind).map_or(bytes.len(), |newline| at + newline);
            let line = bytes.get(start..end).unwrap_or_default();
            bytes = bytes.get(end + 1..).unwrap_or_default();
            if is_step(line) {
                return Some(line);
            }
        }
        None
    })
}

/// Returns the first place of one of the words, at the speed of memory: the whole history of a log is searched.
fn find(bytes: &[u8]) -> Option<usize> {
    static SEARCHER: OnceLock<Option<Searcher>> = OnceLock::new();
    match SEARCHER.get_or_init(|| Searcher::new(["step", "Step", "STEP", "iter", "Iter", "ITER"])) {
        Some(searcher) => searcher.find(bytes).map(|found| found.start()),
        // No vector instructions on this machine: every line may have one.
        None => (!bytes.is_empty()).then_some(0),
    }
}

/// Returns whether a line has the word `step`, `iter` or `iteration`, a number behind it, and another number further on:
/// a loss, a sum, a rate. Titles such as `Step 2: install` have none.
fn is_step(line: &[u8]) -> bool {
    const NCCL: &[u8] = b"NCCL ";
    let line = line.get(..line.len().min(4096)).unwrap_or_default();
    ["step", "iteration", "iter"].iter().any(|word| {
        let found =
            line.windows(word.len()).enumerate().filter(|(_, at)| at.eq_ignore_ascii_case(word.as_bytes()));
        found.take(8).any(|(at, _)| {
            let begins = at
                .checked_sub(1)
                .and_then(|at| line.get(at))
                .is_none_or(|byte| !byte.is_ascii_alphanumeric());
            let rest = line.get(at + word.len()..).unwrap_or_default();
            let gap = rest.iter().take(12).take_while(|byte| b" :=#[(\t".contains(byte)).count();
            let number = rest.get(gap..).unwrap_or_default();
            let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let behind = number.get(digits..).unwrap_or_default();
            begins && gap > 0 && digits > 0 && behind.iter().any(u8::is_ascii_digit)
        })
    }) && memmem::find(line, NCCL).is_none()
}

#[cfg(test)]
mod tests {
    use super::{is_step, lines_with_steps};

    #[test]
    fn each_line_is_found_once() {
        let text = b"step 1 loss 2\nstep 2 of the iter 3\n\nsteps\nIter 4: 5.0 step 4";
        let found: Vec<&[u8]> = lines_with_steps(text).collect();
        assert_eq!(found, [&b"step 1 loss 2"[..], b"step 2 of the iter 3", b"Iter 4: 5.0 step 4"]);
        assert_eq!(lines_with_steps(b"").count(), 0);
    }

    #[test]
    fn steps_have_a_number_and_another_one_behind_it() {
        for line in [
            "step 0 rank 15 sum 16.0",
            "[rank3]: step=7, loss=2.31",
            "iter 10: loss 2.3101, time 145.32ms",
            " iteration       20/     100 | consumed samples: 5120",
            "global_step: 12 loss: 2.2",
            "Step [40/500], Loss: 0.9",
        ] {
            assert!(is_step(line.as_bytes()), "{line}");
        }
        for line in [
            "step one of 12",
            "500 steps in 3 epochs",
            "Step 2: install packages",
            "stepping 12 of 13",
            "footstep 12 13",
            "iterator 5 of 6",
            "n1:1:1 [0] NCCL INFO step 1 of 2",
        ] {
            assert!(!is_step(line.as_bytes()), "{line}");
        }
    }
}
