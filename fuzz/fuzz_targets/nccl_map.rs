//! Any bytes, cut anywhere: no panic, no quadratic time, and the same report as in one piece.
//! `cargo +nightly fuzz run nccl_map -- -max_len=65536`

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::{Parser, TransportMap};
use weftrun::report::TransportReport;

fuzz_target!(|bytes: &[u8]| {
    let (seed, log) = bytes.split_first().map_or((1, bytes), |(seed, log)| (usize::from(*seed).max(1), log));
    assert_eq!(said(log, usize::MAX), said(log, seed));
    let source = Arc::new(SourceId::new("fuzz"));
    let mut map = TransportMap::new();
    for chunk in log.chunks(seed) {
        map.read(&source, chunk);
    }
    map.end(&source);
    let _ = TransportReport::new(None, &map);
});

fn said(log: &[u8], chunk: usize) -> Vec<String> {
    let mut said = Vec::new();
    let mut parser = Parser::new();
    for chunk in log.chunks(chunk) {
        parser.feed(chunk, |entry| said.push(format!("{entry:?}")));
    }
    parser.finish(|entry| said.push(format!("{entry:?}")));
    said
}
