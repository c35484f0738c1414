//! The dumps of a real hang identify the missing rank, and a hostile dump is refused.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use weftrun_core::nccl::flight_recorder::{FlightRecorder, Pickle};
use weftrun_diagnose::flight_recorder::findings;

fn dump(rank: u32) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/nccl/captures/fr_hang_2x2");
    fs::read(folder.join(format!("fr_{rank}"))).unwrap()
}

#[test]
fn the_rank_that_never_entered_is_named() {
    let mut recorder = FlightRecorder::default();
    for rank in 0..4 {
        recorder.add(rank, &dump(rank)).unwrap();
    }
    let findings = findings(&recorder);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].ranks, [2]);
    assert!(findings[0].message.contains("collective 6 (nccl:_all_gather_base"), "{}", findings[0].message);
    assert!(findings[0].message.contains("ranks 0-1, 3"), "{}", findings[0].message);
}

#[test]
fn a_rank_without_a_dump_is_the_suspect() {
    let mut recorder = FlightRecorder::default();
    for rank in [0, 1, 3] {
        recorder.add(rank, &dump(rank)).unwrap();
    }
    assert_eq!(findings(&recorder)[0].ranks, [2]);
}

#[test]
fn a_pickle_that_would_run_code_is_refused() {
    let error = Pickle::read(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.").unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..2000) {
        let mut recorder = FlightRecorder::default();
        let _ = recorder.add(0, &bytes);
        let mut real = dump(0);
        let at = at % real.len();
        bytes.truncate(8);
        real.splice(at..at, bytes);
        if recorder.add(0, &real).is_ok() {
            findings(&recorder);
        }
    }
}
