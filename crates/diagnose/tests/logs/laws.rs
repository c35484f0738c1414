//! Laws of the parser and the map: no bytes make them fail, and chunk borders never matter.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::{FabricSeen, LINE_CAP, Parser, TransportMap};
use weftrun_diagnose::report::TransportReport;

fn capture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/nccl/captures").join(name)).unwrap()
}

/// Returns everything a parser reports about some bytes, cut at the given places.
fn said(bytes: &[u8], cuts: &[usize]) -> String {
    let mut text = String::new();
    let mut parser = Parser::new();
    let mut say = |entry: weftrun_core::nccl::Entry<'_>| {
        let _ = writeln!(text, "{entry:?}");
    };
    let mut from = 0;
    for cut in cuts {
        let to = (*cut).clamp(from, bytes.len());
        parser.feed(&bytes[from..to], &mut say);
        from = to;
    }
    parser.feed(&bytes[from..], &mut say);
    parser.finish(&mut say);
    let _ = write!(text, "{} lines, {} bytes", parser.lines(), parser.bytes());
    text
}

fn report(bytes: &[u8]) -> serde_json::Value {
    let source = Arc::new(SourceId::new("log"));
    let mut map = TransportMap::new();
    map.read(&source, bytes);
    map.end(&source);
    serde_json::to_value(TransportReport::new(None, &map)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn chunks_never_matter(mut cuts in proptest::collection::vec(0usize..12_000, 0..40), damage in proptest::collection::vec((0usize..12_000, any::<u8>()), 0..20)) {
        let mut bytes = capture("onepipe_bars/pipe.log");
        bytes.truncate(12_000);
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        cuts.sort_unstable();
        prop_assert_eq!(said(&bytes, &cuts), said(&bytes, &[]));
    }

    #[test]
    fn no_bytes_make_it_panic(lines in proptest::collection::vec(line(), 0..60)) {
        report(&lines.concat());
    }
}

/// Returns lines that look like NCCL's, with arbitrary content.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"h:1:1 [0] NCCL INFO ".to_vec()),
        Just(b"Channel 00/0 : ".to_vec()),
        Just(b"0[0] -> 1[1]".to_vec()),
        Just(b" [send] via NET/Socket/0".to_vec()),
        Just(b" via P2P/CUMEM".to_vec()),
        Just(b"/GDRDMA".to_vec()),
        Just(
            b"ncclCommSplit comm 0x1 rank 0 nranks 2 parent 0x2 splitCount 1 color 0 key 0- Init START"
                .to_vec()
        ),
        Just(b"comm 0x2 rank 1 nranks 4294967295 commId 0xffffffffffffffff - Init COMPLETE".to_vec()),
        Just(b"Connected all rings".to_vec()),
        Just(b"{\"log\":\"".to_vec()),
        Just(b"\\u00".to_vec()),
        Just(b"\x1b[".to_vec()),
        Just(b"NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"99999999999999999999".to_vec()),
        Just(b"NCCL version ".to_vec()),
        Just(b"images/sec: ".to_vec()),
        Just(b"NCCL WARN ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| {
        let mut line = pieces.concat();
        line.push(b'\n');
        line
    })
}

#[test]
fn a_line_beyond_the_cap_is_one_line_and_ends_nothing() {
    let mut bytes = vec![b'x'; 3 * LINE_CAP];
    bytes.extend_from_slice(
        b" h:1:1 [0] NCCL INFO Using network IB\nh:1:1 [0] NCCL INFO Using network Socket\n",
    );
    let whole = said(&bytes, &[]);
    for cut in [1, LINE_CAP - 1, LINE_CAP, LINE_CAP + 1, 3 * LINE_CAP + 20] {
        assert_eq!(said(&bytes, &[cut]), whole, "cut at {cut}");
    }
    assert!(whole.ends_with(&format!("2 lines, {} bytes", bytes.len())), "{whole}");
    assert!(whole.contains("Socket") && !whole.contains("\"IB\""));
}

#[test]
fn one_record_behind_every_prefix() {
    let record =
        "gpu-7:31:32 [3] NCCL INFO Channel 02/0 : 3[3] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA";
    for line in [
        record.to_string(),
        format!("[rank3]:{record}"),
        format!("[default3]:{record}"),
        format!("[1,3]<stdout>:{record}"),
        format!("3: {record}"),
        format!("(RayWorkerWrapper pid=855, ip=10.0.0.1) {record}"),
        format!("(head, rank=0, pid=2669) [gpu-7:2]:{record}"),
        format!("train-worker-0 pytorch {record}"),
        format!("[pod/train-worker-0/pytorch] {record}"),
        format!("2026-03-01T10:00:00.123456Z {record}"),
        format!("[2026-03-12 14:17:56] {record}"),
        format!("  | 2025-05-16T16:39:55.216-07:00 | {record}"),
        format!("  | 2025-05-16T16:39:55.216-07:00{record}"),
        format!("{{\"log\":\"{record}\\n\",\"stream\":\"stdout\"}}"),
        format!("{{\"level\":\"info\",\"msg\":\"{}\"}}", record.replace('>', "\\u003e")),
        format!("\u{1b}[36m(pid=9)\u{1b}[0m {record}"),
        format!("{record}\r"),
        format!(" 45%|████▌     | 45/100\r{record}"),
        format!("> {record}"),
        format!("{record} comm 0x7f001 nRanks 16"),
    ] {
        let report = report(format!("{line}\n").as_bytes());
        let pair = &report["pairs"][0];
        assert_eq!((&pair["transport"], &pair["gdr"]), (&"NET/AWS Libfabric".into(), &true.into()), "{line}");
        assert_eq!(
            (&report["ranks"][0]["host"], &report["ranks"][0]["pid"]),
            (&"gpu-7".into(), &31.into()),
            "{line}"
        );
    }
}

#[test]
fn every_form_of_a_connection_keeps_its_transport() {
    for (message, transport) in [
        ("Ring 00 : 15 -> 0 [receive] via NET/AWS Libfabric/0", "NET/AWS Libfabric"),
        ("Ring 00 : 3[b01000] -> 4[201000] [send] via NET/Socket/0", "NET/Socket"),
        ("Channel 03 : 7[b2000] -> 14[b1000] [receive] via NET/IB/0/GDRDMA/Shared", "NET/IB"),
        (
            "Channel 01/1 : 3[0] -> 0[1] [send] via NET/NCCL RDMA Plugin v6/0(2)/GDRDMA/Shared",
            "NET/NCCL RDMA Plugin v6",
        ),
        ("Channel 00/0 : 1[1] -> 0[1] [receive] via NET/IB-CAST/0/GDRDMA(PCI)/flush=Always", "NET/IB-CAST"),
        ("Channel 00 : 0[0] -> 1[1] via P2P/direct pointer", "P2P/direct pointer"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/3[1c000]", "P2P/indirect"),
        ("Ring 01 : 0[0] -> 1[1] via direct shared memory", "direct shared memory"),
        ("Channel 20 : 5[5] -> 4[4] via SHM/direct/direct", "SHM/direct/direct"),
        ("CollNet 00/0 : 1 [receive] via COLLNET/SHARP/1/GDRDMA", "COLLNET/SHARP"),
        ("Channel 00/0 : 0[0] -> 1[1] via WARP/9/x", "WARP/9/x"),
    ] {
        let report = report(format!("h:1:1 [0] NCCL INFO {message}\n").as_bytes());
        assert_eq!(report["pairs"][0]["transport"], transport, "{message}");
    }
}

#[test]
fn a_torn_connection_is_counted_and_proves_nothing() {
    for message in [
        "Channel 02/1 : 0[0] -> 1[1] [receive] via NET/IB/0/GDR",
        "Channel 14/0 : 6[6] -> 38[6] [receive] via NET/IBext_v8/",
        "Channel 00/0 : 3[3] -> 2[2] via P2P/direct p",
        "Channel 02 : 0[87000] -> 1[",
        "Ring 06 : 2[2] ->",
        "Channel 00/0 : 0[0] -> 1[1] via",
    ] {
        let report = report(format!("h:1:1 [0] NCCL INFO {message}").as_bytes());
        assert_eq!(report["pairs"].as_array().unwrap().len(), 0, "{message}");
        assert_eq!(report["totals"]["torn_channel_lines"], 1, "{message}");
    }
}

#[test]
fn two_groups_of_one_size_are_no_world() {
    let mut log = String::new();
    for (pid, rank, id) in [(1, 0, "aa"), (2, 1, "aa"), (3, 0, "bb"), (4, 1, "bb")] {
        let _ = writeln!(
            log,
            "h:{pid}:{pid} [{}] NCCL INFO ncclCommInitRank comm 0x{pid} rank {rank} nranks 2 cudaDev 0 nvmlDev {} busId {pid}0 commId 0x{id} - Init COMPLETE",
            pid - 1,
            pid - 1
        );
        let _ = writeln!(
            log,
            "h:{pid}:{pid} [0] NCCL INFO Channel 00/0 : {rank}[{}] -> {}[{}] via P2P/CUMEM",
            pid - 1,
            1 - rank,
            if pid % 2 == 1 { pid } else { pid - 2 }
        );
    }
    let report = report(log.as_bytes());
    for pair in report["pairs"].as_array().unwrap() {
        assert!(pair["global_from"].is_null() && pair["global_to"].is_null(), "{pair}");
        assert!(pair["comm"].is_string(), "{pair}");
    }
}

#[test]
fn two_networks_are_mixed_and_silence_is_unknown() {
    let line =
        |net: &str| format!("h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{net}/0\n");
    assert_eq!(report((line("Socket") + &line("IB")).as_bytes())["verdict"]["fabric"], "mixed");
    let source = Arc::new(SourceId::new("log"));
    let mut map = TransportMap::new();
    map.read(&source, b"epoch 1 loss 0.3\n");
    assert_eq!(map.snapshot().verdict().fabric, FabricSeen::Unknown);
}

#[test]
fn records_of_two_ranks_glued_together_are_two() {
    let log = "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEMb:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMAa:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEMstep 3\n";
    let report = report(log.as_bytes());
    let hosts: Vec<&str> =
        report["ranks"].as_array().unwrap().iter().filter_map(|rank| rank["host"].as_str()).collect();
    assert_eq!(hosts, ["a", "b"]);
    assert_eq!(report["totals"]["edges"], serde_json::json!({"NET/IB": 1, "P2P/CUMEM": 2}));
}
