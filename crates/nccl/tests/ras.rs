//! Recorded conversations with NCCL's RAS service, each with what it must be read as. `data/ras/README.md` names their source.
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use std::path::Path;

use weftrun_nccl::ras::{DiagnosticsReport, EventReader, Report, Unreadable};

/// What the server sent in each conversation of a recording that ended in a report, as one piece.
fn answers(recording: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ras").join(recording);
    let text = std::fs::read_to_string(file).unwrap();
    let talks = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let parts = |talk: &serde_json::Value| -> Option<String> {
        let talk = talk["talk"].as_array()?;
        talk.last()?["sent"].as_str()?.strip_suffix("STATUS")?;
        talk.iter().map(|part| part["got"].as_str().map(str::to_owned)).collect()
    };
    talks.filter_map(|talk| parts(&talk)).collect()
}

/// What the server sent in each conversation of a recording that asked for NCCL's own diagnostics.
fn diagnostics(recording: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ras").join(recording);
    let text = std::fs::read_to_string(file).unwrap();
    let talks = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let asked = talks.filter(|talk| {
        talk["talk"].as_array().is_some_and(|talk| talk.last().unwrap()["sent"] == "DIAGNOSTICS")
    });
    let got = |talk: serde_json::Value| {
        talk["talk"].as_array().unwrap().iter().map(|part| part["got"].as_str().unwrap().to_owned()).collect()
    };
    asked.map(got).collect()
}

#[test]
fn diagnostics_are_whole_or_refused() {
    for recording in ["v2.32.3/env.jsonl", "v2.32.3/busy.jsonl", "v2.32.3/kill.jsonl"] {
        let read: Vec<_> =
            diagnostics(recording).iter().map(|answer| DiagnosticsReport::read(answer.as_bytes())).collect();
        let refused = |read: &Result<DiagnosticsReport, Unreadable>, words: &str| matches!(read, Err(Unreadable::Refused(why)) if why.contains(words));
        assert!(read[0].as_ref().unwrap().text.contains("[OK]   NVLink: 18 links per GPU"), "{recording}");
        assert!(
            read.iter().any(|read| refused(read, "BUSY: diagnostics already in progress")),
            "{recording}"
        );
        assert!(refused(read.last().unwrap(), "diagnostics only supports text output"), "{recording}");
    }
    let whole = diagnostics("v2.32.3/env.jsonl").swap_remove(0);
    for end in 0..whole.trim_end().len() - " across 2 RAS peers".len() - "6.3 ms".len() - 2 {
        assert!(DiagnosticsReport::read(&whole.as_bytes()[..end]).is_err(), "cut at {end}");
    }
    assert_eq!(DiagnosticsReport::read(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(Unreadable::OtherProtocol));
}

#[test]
fn a_killed_process_of_2_32_is_an_event_though_no_peer_is_named_in_some() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ras/v2.32.3/kill.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let talks = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let monitors = talks.filter_map(|talk| talk["monitor"].as_array().cloned());
    let bytes: String =
        monitors.flatten().filter_map(|part| part["got"].as_str().map(str::to_owned)).collect();
    let events = EventReader::default().feed(bytes.as_bytes());
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (event.name.as_str(), event.host.as_str(), event.pid),
        ("PEER_DISCONNECTED", "192.0.2.2", Some(1030))
    );
    let usual = b"{\"event\": \"PEER_CONNECTED\", \"peer\": null}{\"event\": \"PEER_DEAD\", \"peer\": null}";
    let names: Vec<_> = EventReader::default().feed(usual).into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["PEER_DEAD"]);
}

fn reports(recording: &str) -> Vec<Report> {
    answers(recording).iter().map(|answer| Report::read(answer.as_bytes()).unwrap()).collect()
}

#[test]
fn healthy_jobs_are_clean_in_both_formats() {
    for recording in [
        "v2.28.9/healthy.jsonl",
        "v2.30.7/healthy.jsonl",
        "v2.28.9/blocking_init.jsonl",
        "v2.30.7/split.jsonl",
    ] {
        for report in reports(recording) {
            assert!(report.is_clean(), "{recording}: {report:?}");
            assert_eq!(report.nccl_version.as_deref(), recording.get(1..7), "{recording}");
        }
    }
}

#[test]
fn the_rank_that_hangs_is_behind_in_both_formats() {
    for recording in ["v2.28.9/hang.jsonl", "v2.30.7/hang.jsonl"] {
        let reports = reports(recording);
        assert_eq!(reports.len(), 4);
        for report in reports {
            let [comm] = report.communicators.as_slice() else { panic!("{report:?}") };
            let [behind] = comm.behind.as_slice() else { panic!("{report:?}") };
            assert_eq!((behind.member.rank, behind.operation.as_str(), behind.count), (3, "AllReduce", 20));
            assert!(
                behind.others > 20 && behind.member.pid > 0 && behind.member.host == "192.0.2.2",
                "{behind:?}"
            );
        }
    }
}

#[test]
fn a_mismatch_in_a_group_names_the_group_too() {
    for report in reports("v2.28.9/mismatch.jsonl") {
        let behind: Vec<(u64, u32, u64)> = report
            .communicators
            .iter()
            .flat_map(|comm| {
                comm.behind.iter().map(|behind| (comm.hash, behind.member.rank, behind.member.pid))
            })
            .collect();
        assert_eq!(behind, [(0x73fa_5378_f3e9_cfa8, 3, 1147), (0xff19_d5e3_9baa_bd34, 1, 1147)]);
    }
}

#[test]
fn killed_ranks_are_missing_also_where_the_json_is_invalid() {
    for recording in ["v2.28.9/kill.jsonl", "v2.30.7/kill.jsonl", "v2.30.7/killjson.jsonl"] {
        let last = reports(recording).pop().unwrap();
        let missing: Vec<(u32, bool)> =
            last.communicators[0].missing.iter().map(|missing| (missing.member.rank, missing.dead)).collect();
        assert!(missing.contains(&(3, false)), "{recording}: {missing:?}");
        assert!(last.communicators[0].missing.iter().all(|missing| missing.member.pid > 0));
    }
    let answer = answers("v2.28.9/kill.jsonl").pop().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(answer.split_once("OK\n").unwrap().1).is_err());
}

#[test]
fn what_is_not_a_report_says_why() {
    let read = |text: &str| Report::read(text.as_bytes()).unwrap_err();
    assert_eq!(read(""), Unreadable::Empty);
    assert_eq!(read("HTTP/1.1 400 Bad Request\r\n\r\n"), Unreadable::OtherProtocol);
    assert_eq!(
        read("SERVER PROTOCOL 2\nERROR: Invalid timeout value x\n"),
        Unreadable::Refused("Invalid timeout value x".to_owned())
    );
    assert!(matches!(read("SERVER PROTOCOL 2\nOK\nOK\n"), Unreadable::Damaged(_)));
    assert!(matches!(
        read("SERVER PROTOCOL 2\n{\"communicators\": [{\"hash\": \"0x1\", "),
        Unreadable::Damaged(_)
    ));
}

#[test]
fn no_cut_answer_is_taken_for_a_clean_one() {
    for recording in ["v2.28.9/kill.jsonl", "v2.30.7/hang.jsonl"] {
        for answer in answers(recording) {
            for end in 0..answer.len() {
                if let Some(Ok(report)) = answer.get(..end).map(|cut| Report::read(cut.as_bytes())) {
                    // Text is a report once its table is there; what follows the table may be cut.
                    assert!(!report.is_complete || !report.is_clean(), "{recording} cut at {end}");
                }
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let _ = Report::read(&bytes);
    }

    #[test]
    fn no_damaged_answer_makes_it_panic(at in 0usize..3000, byte in proptest::num::u8::ANY, which in 0usize..5) {
        let mut answer = answers("v2.28.9/kill.jsonl").swap_remove(which.min(3)).into_bytes();
        let at = at % answer.len();
        answer[at] = byte;
        let _ = Report::read(&answer);
    }
}

#[test]
fn events_end_where_their_braces_do() {
    let event = |details: &str| {
        format!(
            "{{\n  \"event\": \"PEER_DEAD\",\n  \"peer\": {{\"addr\": \"10.0.0.7\"}},\n  \"details\": \"{details}\"\n}}\n"
        )
    };
    let stream = format!("OK\n}}{}noise{}{{]}}{}", event("}{ \\\" x"), event("two"), event("three"));
    let wanted = ["}{ \" x", "two", "three"];
    for piece in 1..stream.len() {
        let mut reader = EventReader::default();
        let events: Vec<_> = stream.as_bytes().chunks(piece).flat_map(|bytes| reader.feed(bytes)).collect();
        let details: Vec<_> = events.iter().map(|event| event.details.as_str()).collect();
        assert_eq!(details, wanted, "pieces of {piece}");
        assert!(events.iter().all(|event| (event.host.as_str(), event.pid) == ("10.0.0.7", None)));
    }
    // An event without an end uses no more memory than the largest event.
    let mut reader = EventReader::default();
    let flood = vec![b'{'; 65536];
    for _ in 0..1000 {
        assert!(reader.feed(&flood).is_empty());
    }
}

/// NCCL 2.26 names the ranks of the smaller group below it (after <https://github.com/NVIDIA/nccl/issues/1911>).
#[test]
fn a_group_that_is_ahead_is_named_and_the_others_are_not() {
    let text = "NCCL version 2.26.2 compiled with CUDA 12.6\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n\n\
        #0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllGather operation counts\n  \
        30 ranks have launched up to operation 640\n  2 ranks have launched up to operation 641\n  \
        Rank 12 -- GPU 4 managed by process 32 on node 10.0.0.1\n  \
        Rank 13 -- GPU 5 managed by process 33 on node 10.0.0.1\n";
    let counts = |ranks: &[weftrun_nccl::ras::Behind]| {
        ranks.iter().map(|rank| (rank.member.rank, rank.count, rank.others)).collect::<Vec<_>>()
    };
    let report = Report::read(text.as_bytes()).unwrap();
    assert_eq!(counts(&report.communicators[0].ahead), [(12, 641, 640), (13, 641, 640)]);
    assert!(report.communicators[0].behind.is_empty() && !report.is_clean());
    let fewer = text.replace("641", "639");
    let report = Report::read(fewer.as_bytes()).unwrap();
    assert_eq!(counts(&report.communicators[0].behind), [(12, 639, 640), (13, 639, 640)]);
    assert!(report.communicators[0].ahead.is_empty());
}
