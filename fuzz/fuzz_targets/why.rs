//! Any bytes as the logs of a failed job, in two sources and cut anywhere: no panic, no quadratic time, the same answer as
//! in one piece, at most ten lines of it, and no rank that nothing names.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::Why;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;

fuzz_target!(|bytes: &[u8]| {
    let (seed, log) = bytes.split_first().map_or((1, bytes), |(seed, log)| (usize::from(*seed).max(1), log));
    let (one, two) = log.split_at(log.len() / 2);
    let whole = answer(&[one, two], usize::MAX);
    assert_eq!(whole, answer(&[one, two], seed));
    assert!(whole.lines().len() <= 10);
});

fn answer(sources: &[&[u8]], chunk: usize) -> Why {
    let mut map = TransportMap::new();
    for (number, log) in sources.iter().enumerate() {
        let source = Arc::new(SourceId::new(format!("node{number}.log")));
        for chunk in log.chunks(chunk) {
            map.read(&source, chunk);
        }
        map.end(&source);
    }
    Sources::of_logs(&map).diagnose().why
}
