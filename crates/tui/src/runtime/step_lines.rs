//! Lines that report a training step without a rate: `step 12 loss 2.1`.

use std::collections::{BTreeSet, HashSet};

use memchr::{memchr_iter, memmem};
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
            let rank = launcher::prefix(line).rank.or(batch.source.rank);
            self.ranks.extend(rank);
            if batch.source.rank.is_some() {
                self.done.insert(batch.source.uid.clone());
                return;
            }
        }
    }

    /// Returns the ranks that printed a step.
    pub fn ranks(&self) -> &BTreeSet<u32> {
        &self.ranks
    }
}

/// Returns the lines that report a step.
fn lines_with_steps(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Most batches have no such word, and are searched at the speed of memory.
    let has = ["tep", "TEP", "ter", "TER"].iter().any(|word| memmem::find(bytes, word.as_bytes()).is_some());
    let ends = has.then(|| memchr_iter(b'\n', bytes).chain([bytes.len()]));
    let mut from = 0;
    ends.into_iter().flatten().filter_map(move |end| {
        let line = bytes.get(from..end);
        from = end + 1;
        line.filter(|line| is_step(line))
    })
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
    use super::is_step;

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
