//! The last lines of a log may say in any words that something failed.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use weftrun_nccl::failure::Fact;
use weftrun_nccl::{SourceId, TransportMap};

/// Returns the lines that say so, with their numbers, of a log that arrives in pieces of a size.
fn mentions(text: &str, piece: usize) -> Vec<(u64, String)> {
    let source = Arc::new(SourceId::new("log"));
    let mut map = TransportMap::new();
    for bytes in text.as_bytes().chunks(piece) {
        map.read(&source, bytes);
    }
    map.end(&source);
    map.end(&source);
    let snapshot = map.snapshot();
    let reports = snapshot.failures().reports().iter();
    let found = reports.filter_map(|report| match &report.fact {
        Fact::Mention(text) => Some((report.line, text.clone())),
        _ => None,
    });
    found.collect()
}

#[test]
fn they_are_read_whatever_their_words_and_pieces() {
    let filler = "the server did not answer to 17 pings\n".repeat(400);
    let text = format!("could not open a\n{filler}could not open b\nlast\ncould not open c");
    for piece in [1, 7, 4096, 5000, 1 << 20] {
        let found = mentions(&text, piece);
        assert_eq!(
            found,
            [(402, "could not open b".to_owned()), (404, "could not open c".to_owned())],
            "{piece}"
        );
    }
    assert_eq!(mentions("could not open a\n", 100), [(1, "could not open a".to_owned())]);
    assert!(mentions("", 1).is_empty());
}

/// Counts of nothing, notes of an end that is wanted, and what is only information are no failures; a rank with the number 0 is.
#[test]
fn counts_of_none_are_no_failures() {
    for healthy in [
        "12 passed (0 failed)",
        "0 failed, 12 passed",
        "0 tests failed",
        "INFO:root:done; 3 retries failed before",
        "All requests completed, none failed.",
        "workers terminated normally",
        "no check failed",
    ] {
        assert!(mentions(&format!("{healthy}\n"), 100).is_empty(), "{healthy}");
    }
    for failed in
        ["rank 0 failed to open its data", "worker 0 died", "10 of 12 tests failed", "task 0 init failed"]
    {
        assert_eq!(mentions(&format!("{failed}\n"), 100).len(), 1, "{failed}");
    }
}
