//! Any bytes as log lines in pieces of any size: no panic, memory within the budget, and nothing that a terminal obeys.
//! The first byte is the size of the pieces.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weftrun_core::log::{Cursor, Fed, LogBatch, LogStore, Resume, SourceId, clean_message, escape_controls};

const BUDGET: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let (size, log) = bytes.split_first().map_or((1, bytes), |(size, log)| (usize::from(*size).max(1), log));
    let source = Arc::new(SourceId::new("fuzz"));
    let mut store = LogStore::new(BUDGET);
    let mut resume = Resume::new("fuzz", 0);
    for piece in log.chunks(size) {
        store.ingest(&LogBatch::new(Arc::clone(&source), piece.to_vec(), Cursor::default()));
        let mut fed = Fed::default();
        if resume.feed(piece, &mut fed).is_err() {
            resume.rotated();
        }
    }
    for entry in store.from(0) {
        let clean = entry.clean();
        assert_eq!(clean.text.chars().find(|c| c.is_control()), None, "{:?}", clean.text);
    }
    let text = String::from_utf8_lossy(log);
    let message = clean_message(&text);
    assert_eq!(clean_message(&message), message);
    let left = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\u{1b}');
    assert_eq!(message.chars().find(|c| left(*c)), None, "{message:?}");
    let (escaped, _) = escape_controls(&text);
    assert_eq!(escaped.replace("\r\n", "\n").chars().find(|c| left(*c) || *c == '\u{1b}'), None, "{escaped:?}");
});
