//! Any bytes as what Slurm's commands print and as a job's log file: no panic, bounded time and memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_backends::slurm::fuzzing::{answers, log};

fuzz_target!(|bytes: &[u8]| {
    answers(bytes);
    log(bytes);
});
