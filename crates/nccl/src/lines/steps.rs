//! Lines that report a training step without a rate: `step 12 loss 2.1`.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use memchr::memmem;

use super::interest::Needles;

/// Finds the words that a step has. They are sought only until it is known who trains: training logs have them in every line.
pub(super) static STEP: Needles =
    Needles(LazyLock::new(|| Searcher::new(["step", "Step", "STEP", "iter", "Iter", "ITER"])));

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
pub(crate) fn is_step(line: &[u8]) -> bool {
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
