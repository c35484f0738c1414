//! `why` on recorded failures (`tests/cases/failures`): the truth stands beside each, and the answer must not depend on
//! the order of the files, on one of them being there, or on their last lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weftrun_core::Confidence;
use weftrun_core::diagnose::cause::{Why, WhyState, why};
use weftrun_core::nccl::{SourceId, TransportMap};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/failures")
}

/// A recording: what each node wrote, and the truth.
struct Recording {
    name: String,
    nodes: Vec<Vec<u8>>,
    truth: serde_json::Value,
}

fn recordings() -> Vec<Recording> {
    let mut found: Vec<Recording> = fs::read_dir(folder())
        .expect("the recordings")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .map(|path| Recording {
            name: path.file_name().expect("a name").to_string_lossy().into_owned(),
            nodes: ["node0.log", "node1.log"]
                .iter()
                .map(|name| fs::read(path.join(name)).expect("a log"))
                .collect(),
            truth: serde_json::from_slice(&fs::read(path.join("truth.json")).expect("the truth"))
                .expect("JSON"),
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(found.len(), 10, "all recordings are there");
    found
}

fn read(sources: &[(&str, &[u8])], chunk: usize) -> TransportMap {
    let mut map = TransportMap::new();
    for (name, bytes) in sources {
        let source = Arc::new(SourceId::new(*name));
        for piece in bytes.chunks(chunk) {
            map.read(&source, piece);
        }
        map.end(&source);
    }
    map
}

fn ask(sources: &[(&str, &[u8])]) -> Why {
    why(&read(sources, 1 << 16), None)
}

impl Recording {
    fn first(&self) -> Vec<u32> {
        serde_json::from_value(self.truth["first"].clone()).expect("ranks")
    }

    fn class(&self) -> &str {
        self.truth["class"].as_str().expect("a class")
    }

    /// Whether the answer is the truth, in every word.
    fn check(&self, why: &Why, variant: &str) {
        let at = format!("{} ({variant}): {why:#?}", self.name);
        if self.class() == "none" {
            assert_eq!(why.cause, None, "{at}");
            assert!(!matches!(why.state, WhyState::Failed | WhyState::Hanging), "{at}");
            return;
        }
        assert!(matches!(why.state, WhyState::Failed | WhyState::Hanging), "{at}");
        let cause = why.cause.as_ref().expect(&at);
        assert_eq!(cause.class.as_str(), self.class(), "{at}");
        assert_eq!(cause.ranks, self.first(), "{at}");
        assert_eq!(cause.what, self.truth["what"].as_str().expect("what"), "{at}");
        let frame = cause.frame.as_ref().map(|frame| {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            format!("{file} in {}", frame.function)
        });
        assert_eq!(frame.as_deref(), self.truth["user_frame"].as_str(), "{at}");
        assert!(!cause.evidence.is_empty(), "{at}");
        let node = cause.ranks.first().map(|rank| format!("node{}", rank / 2));
        assert_eq!(cause.nodes.first(), node.as_ref(), "{at}");
        assert!(why.lines().len() <= 10, "{at}");
    }
}

#[test]
fn every_recorded_failure_is_named_with_rank_cause_and_line() {
    for recording in recordings() {
        let [one, two] = [&recording.nodes[0][..], &recording.nodes[1][..]];
        let why = ask(&[("node0.log", one), ("node1.log", two)]);
        recording.check(&why, "whole");
        if let Some(cause) = &why.cause {
            assert_eq!(cause.confidence, Confidence::High, "{}", recording.name);
            let victims: Vec<u32> =
                serde_json::from_value(recording.truth["victims"].clone()).expect("ranks");
            assert_eq!(why.victims, victims, "{}", recording.name);
        } else {
            assert_eq!(why.state, WhyState::Succeeded, "{}", recording.name);
        }
    }
}

#[test]
fn the_order_of_the_files_does_not_matter() {
    for recording in recordings() {
        let why = ask(&[("node1.log", &recording.nodes[1]), ("node0.log", &recording.nodes[0])]);
        recording.check(&why, "other order");
    }
}

#[test]
fn the_cut_of_the_chunks_does_not_matter() {
    for recording in recordings() {
        let sources = [("node0.log", &recording.nodes[0][..]), ("node1.log", &recording.nodes[1][..])];
        let whole = why(&read(&sources, 1 << 16), None);
        assert_eq!(why(&read(&sources, 7), None), whole, "{}", recording.name);
    }
}

#[test]
fn a_log_without_its_end_gives_the_same_answer() {
    for recording in recordings() {
        for node in 0..2 {
            let mut nodes = [&recording.nodes[0][..], &recording.nodes[1][..]];
            nodes[node] = &nodes[node][..nodes[node].len() * 4 / 5];
            let why = ask(&[("node0.log", nodes[0]), ("node1.log", nodes[1])]);
            recording.check(&why, &format!("node{node} cut"));
        }
    }
}

#[test]
fn a_missing_log_lowers_confidence_and_names_nobody_wrongly() {
    for recording in recordings() {
        for node in 0..2 {
            let name = format!("node{node}.log");
            let why = ask(&[(&name, &recording.nodes[node])]);
            let at = format!("{} (only {name}): {why:#?}", recording.name);
            let first = recording.first();
            let there = first.iter().all(|rank| (rank / 2) as usize == node);
            if recording.class() == "none" {
                assert_eq!(why.cause, None, "{at}");
                continue;
            }
            if let Some(cause) = &why.cause {
                assert!(cause.ranks.iter().all(|rank| first.contains(rank)), "{at}");
                assert_ne!(cause.confidence, Confidence::High, "{at}");
                assert!(!why.findings.is_empty() || cause.what.contains("not read"), "{at}");
            }
            if there && recording.class() != "collective-mismatch" {
                // The culprit's own log says it all; only two of four ranks cannot say which of them is the odd one.
                recording.check(&why, &name);
            }
        }
    }
}

#[test]
fn both_layouts_of_torchrun_give_the_same_answer() {
    // `--tee 3` puts the local rank before each line of a worker. Lines of the agent have none.
    for recording in recordings().into_iter().filter(|recording| recording.truth["torchrun_tee"] == true) {
        let plain: Vec<Vec<u8>> = recording
            .nodes
            .iter()
            .map(|log| {
                let text = String::from_utf8_lossy(log);
                text.replace("[default0]:", "").replace("[default1]:", "").into_bytes()
            })
            .collect();
        let why = ask(&[("node0.log", &plain[0]), ("node1.log", &plain[1])]);
        recording.check(&why, "without the tee's prefix");
    }
}

#[test]
fn prefixes_of_shippers_do_not_hide_the_cause() {
    for recording in recordings() {
        let shipped: Vec<Vec<u8>> = (0..2)
            .map(|node| {
                let text = String::from_utf8_lossy(&recording.nodes[node]);
                let lines = text.lines().zip(0..).map(|(line, at)| {
                    format!("2026-11-22T03:{:02}:{:02}.{:09}Z {line}\n", at / 60 % 60, at % 60, at * 7919)
                });
                lines.collect::<String>().into_bytes()
            })
            .collect();
        let why = ask(&[("node0.log", &shipped[0]), ("node1.log", &shipped[1])]);
        recording.check(&why, "with times");
    }
}

#[test]
fn a_restart_in_the_same_log_is_a_second_life() {
    let all = recordings();
    let of = |name: &str| all.iter().find(|one| one.name == name).expect("a recording");
    // One attempt raised, the next one lost a process to SIGKILL, in the same two files.
    let (before, after) = (of("exception"), of("sigkill"));
    let nodes: Vec<Vec<u8>> =
        (0..2).map(|node| [&before.nodes[node][..], b"\n", &after.nodes[node][..]].concat()).collect();
    after.check(&ask(&[("node0.log", &nodes[0]), ("node1.log", &nodes[1])]), "second life");
    // One attempt was killed, the next one ran to its end.
    let (before, after) = (of("sigkill"), of("ok"));
    let nodes: Vec<Vec<u8>> =
        (0..2).map(|node| [&before.nodes[node][..], b"\n", &after.nodes[node][..]].concat()).collect();
    let why = ask(&[("node0.log", &nodes[0]), ("node1.log", &nodes[1])]);
    assert_eq!((why.state, &why.cause), (WhyState::Succeeded, &None), "{why:#?}");
    assert!(why.findings.iter().any(|finding| finding.message.contains("SIGKILL")), "{why:#?}");
}
