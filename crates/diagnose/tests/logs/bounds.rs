//! A log with an unlimited number of names is read in bounded memory, and the report shows what was left
//! out.

use std::sync::Arc;

use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::flight_recorder::FlightRecorder;
use weftrun_diagnose::report::TransportReport;

fn map(lines: impl Iterator<Item = String>) -> TransportMap {
    let (mut map, source) = (TransportMap::new(), Arc::new(SourceId::new("log")));
    for line in lines {
        map.read(&source, format!("{line}\n").as_bytes());
    }
    map.end(&source);
    map
}

#[test]
fn endless_host_ids_are_bounded_and_said() {
    let line = |at| format!("h:7:7 [0] NCCL INFO NCCL_HOSTID set by environment to {at}{}", "x".repeat(2000));
    let map = map((0..70_000).map(line));
    let report = TransportReport::new(None, &map);
    let full = report.findings.iter().find(|finding| finding.code == "NCCL-MAP-FULL").expect("it is said");
    assert!(full.message.contains("hosts"), "{}", full.message);
}

#[test]
fn nested_splits_have_ids_of_bounded_length_that_differ() {
    let first = "h:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 9 cudaDev 0 busId 10 commId 0x1 - Init COMPLETE";
    let line = |at| {
        format!(
            "h:7:7 [0] NCCL INFO ncclCommSplit comm {:#x} rank 0 nranks 9 cudaDev 0 busId 10 parent {:#x} splitCount 1 color 1 key 0 - Init COMPLETE",
            at + 2,
            at + 1
        )
    };
    let map = map([first.to_owned()].into_iter().chain((0..900).map(line)));
    let views = map.snapshot().communicators();
    assert!(views.len() > 800, "{}", views.len());
    assert!(
        views.iter().all(|view| view.id.len() < 120),
        "{:?}",
        views.iter().map(|view| view.id.len()).max()
    );
    let ids: std::collections::BTreeSet<_> = views.iter().map(|view| &view.id).collect();
    assert_eq!(ids.len(), views.len());
}

#[test]
fn a_dump_that_refers_to_one_list_from_everywhere_is_refused() {
    let text = |text: &str| {
        [&[b'X'][..], &u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
    };
    let frames = [b"](".to_vec(), b"K\x07".repeat(100_000), b"e".to_vec()].concat();
    let group = [b"](".to_vec(), text("0"), b"e".to_vec()].concat();
    let entry = [
        b"}(".to_vec(),
        text("process_group"),
        group,
        text("collective_seq_id"),
        b"K\x01".to_vec(),
        text("frames"),
        frames,
        b"u".to_vec(),
    ]
    .concat();
    let dump = [
        b"\x80\x02}".to_vec(),
        text("entries"),
        b"](".to_vec(),
        entry,
        b"q\x01".to_vec(),
        b"h\x01".repeat(400_000),
        b"es.".to_vec(),
    ]
    .concat();
    let error = FlightRecorder::default().add(0, &dump).unwrap_err();
    assert!(error.to_string().contains("repeats them"), "{error}");
}
