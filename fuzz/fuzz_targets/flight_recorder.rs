//! Any bytes as flight recorder dumps of two ranks: no panic, bounded time and memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weftrun_core::nccl::flight_recorder::FlightRecorder;

fuzz_target!(|bytes: &[u8]| {
    let mut recorder = FlightRecorder::default();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for (rank, dump) in [(0, bytes), (1, first), (2, second)] {
        let _ = recorder.add(rank, dump);
    }
    for finding in weftrun_diagnose::flight_recorder::findings(&recorder) {
        assert!(finding.message.len() < 8192, "{}", finding.message);
    }
});
