//! Lines that report a training step without a rate: `step 12 loss 2.1`.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::packed::Searcher;
use memchr::{memchr, memchr_iter, memmem, memrchr};
use weftrun::core::log::{LogBatch, rank_of_line};

/// Finds the steps in batches.
#[derive(Debug, Default)]
pub struct StepLines {
    /// Sources of one rank that is known to step: they are not searched again.
    done: HashSet<String>,
}

impl StepLines {
    /// Passes each step of a batch to `step`: the rank that its line names, and the number of the line in the batch. One that the
    /// batch cuts is left to the next step.
    pub fn read(&mut self, batch: &LogBatch, mut step: impl FnMut(Option<u32>, u64)) {
        if self.done.contains(&batch.source.uid) {
            return;
        }
        let (mut number, mut counted) = (1, 0);
        for at in lines_with_steps(&batch.bytes) {
            number +=
                memchr_iter(b'\n', batch.bytes.get(counted..at.start).unwrap_or_default()).count() as u64;
            counted = at.start;
            let line = batch.bytes.get(at).unwrap_or_default();
            step(rank_of_line(line).or(batch.source.rank), number);
            if batch.source.rank.is_some() {
                self.done.insert(batch.source.uid.clone());
                return;
            }
        }
    }
}

/// Returns the places of the lines that report a step.
fn lines_with_steps(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(found) = bytes.get(from..).and_then(find) {
            let at = from + found;
            let start = memrchr(b'\n', &bytes[..at]).map_or(0, |newline| newline + 1);
            let end = memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |newline| at + newline);
            from = end + 1;
            if is_step(&bytes[start..end]) {
                return Some(start..end);
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

/// Words before a step that a sentence tells of: `bad sample at step 5`, `resumed from step 4000 of 9000`.
const TELLING: [&[u8]; 16] = [
    b"a", b"after", b"at", b"before", b"by", b"during", b"every", b"for", b"from", b"in", b"of", b"on",
    b"since", b"the", b"to", b"until",
];

/// Returns whether a text ends inside a sentence that tells of a step, or behind the name of an error.
fn tells(before: &[u8]) -> bool {
    let text = before.trim_ascii_end();
    let word = text.rsplit(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let error = |name: &[u8]| memmem::find(before, name).is_some();
    (text.len() < before.len() && TELLING.iter().any(|telling| telling.eq_ignore_ascii_case(word)))
        || error(b"Error: ")
        || error(b"Exception: ")
}

/// Returns whether a line has the word `step`, `iter` or `iteration`, a number behind it, and another number further on:
/// a loss, a sum, a rate. Titles such as `Step 2: install` have none, and a step that a sentence or an error tells of is
/// none of the training.
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
            begins
                && gap > 0
                && digits > 0
                && behind.iter().any(u8::is_ascii_digit)
                && !tells(line.get(..at).unwrap_or_default())
        })
    }) && memmem::find(line, NCCL).is_none()
}

#[cfg(test)]
mod tests {
    use super::{is_step, lines_with_steps};

    #[test]
    fn each_line_is_found_once() {
        let text = b"step 1 loss 2\nstep 2 of the iter 3\n\nsteps\nIter 4: 5.0 step 4";
        let found: Vec<&[u8]> = lines_with_steps(text).map(|at| &text[at]).collect();
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
            "[rank 3] step 5 loss 0.3313 1280.0 samples/s",
            "2026-11-22 10:00:00 INFO trainer.py:12 - step 12 | loss 2.1",
            "Epoch 1 Step 12 loss 2.1",
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
            "[default1]:[rank3]: ValueError: bad sample at step 5: expected 256 features, got 255",
            "RuntimeError: step 7 failed with code 3",
            "resumed from step 4000 of 9000",
            "saving at step 100: 3.2 s",
        ] {
            assert!(!is_step(line.as_bytes()), "{line}");
        }
    }
}
