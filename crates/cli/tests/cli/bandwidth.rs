//! `weftrun bandwidth`: files of a profiler of NCCL.

use crate::place::{Place, repo};

fn recording(name: &str) -> String {
    repo(&format!("crates/nccl/tests/bandwidth/{name}")).display().to_string()
}

#[test]
fn the_late_rank_and_the_bandwidths_are_printed() {
    let place = Place::new();
    let slow = place.run(&format!("bandwidth {}", recording("inspector-2.28.9-slow-plain"))).ok().out;
    assert!(slow.starts_with("rank 1 on vm reaches AllReduce last: the others waited "), "{slow}");
    assert!(slow.contains("communicator 0xb41091393ccf0b: 2 ranks on 1 node"), "{slow}");
    assert!(slow.lines().any(|line| line.contains("AllReduce") && line.contains("64.0 MiB")), "{slow}");
    let ok = place.run(&format!("bandwidth {}/*.jsonl", recording("library-2.28.9-ok"))).ok().out;
    assert!(ok.starts_with("no rank is late\n"), "{ok}");
}

#[test]
fn files_without_measurements_are_an_error() {
    let place = Place::new();
    place.write("rank0.log", "step 1\n");
    let none = place.run("bandwidth rank0.log").code(6);
    assert!(none.err.contains("no measurement of NCCL's collectives"), "{}", none.err);
    place.run("bandwidth missing/").code(6);
    place.run("bandwidth").code(2);
}

/// A build by a Rust that cannot make the library says so; every other one writes it.
#[test]
fn the_library_is_written() {
    let place = Place::new();
    let written = place.run("bandwidth --write-library nccl.so");
    if weftrun::profiler::library(std::env::consts::ARCH).is_none() {
        written.code(4);
        return;
    }
    written.ok();
    assert!(std::fs::read(place.path("nccl.so")).unwrap().starts_with(b"\x7fELF"));
}
