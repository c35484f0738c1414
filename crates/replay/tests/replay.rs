//! A replay of any shape prints what its expected results describe.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../testkit/src/child.rs"]
mod child;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use weftrun_core::ErrorKind;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_diagnose::report::TransportReport;
use weftrun_replay::{Capture, Pair, Replay, SHIPPED, Shape};

fn log(replay: &Replay, rank: u32) -> String {
    let mut log = Vec::new();
    replay.write_log(rank, &mut log).unwrap();
    String::from_utf8(log).unwrap()
}

/// The pairs a log names, read by a person's eye: `from[dev] -> to[dev] … via WHAT`.
fn pairs(replay: &Replay) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for rank in 0..replay.world() {
        for line in log(replay, rank).lines() {
            let Some((ends, via)) = line.split_once(" via ") else { continue };
            let ends = ends.rsplit_once(" : ").unwrap().1;
            let (from, to) = ends.split_once(" -> ").unwrap();
            let number = |end: &str| end.split('[').next().unwrap().parse().unwrap();
            let mut parts = via.split('/');
            let (kind, net) = match parts.next().unwrap() {
                "NET" => ("net", parts.next().map(str::to_owned)),
                "SHM" => ("shm", None),
                _ => ("p2p", None),
            };
            pairs.insert((number(from), number(to), kind.to_owned(), net));
        }
    }
    pairs
}

fn check(replay: &Replay) {
    let expected: BTreeSet<Pair> = replay.expected().pairs.iter().cloned().collect();
    assert_eq!(pairs(replay), expected);
}

/// What the map finds out of the ranks' logs is the expected beside them. The logs come as they do from a live job: a
/// piece of one rank, then a piece of the next, torn anywhere.
fn check_map(name: &str, replay: &Replay) {
    let expected = replay.expected();
    let mut map = TransportMap::new();
    let mut logs: Vec<(Arc<SourceId>, Vec<u8>)> = Vec::new();
    for rank in 0..replay.world() {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        logs.push((Arc::new(SourceId::new(format!("rank{rank}.log"))), log));
    }
    let longest = logs.iter().map(|(_, log)| log.len()).max().unwrap_or(0);
    for at in (0..longest).step_by(997) {
        for (source, log) in &logs {
            if let Some(rest) = log.get(at..) {
                map.read(source, &rest[..rest.len().min(997)]);
            }
        }
    }
    for (source, _) in &logs {
        map.end(source);
    }
    let report = TransportReport::new(None, &map);
    let kind = |pair: &weftrun_core::nccl::PairView| {
        serde_json::to_value(pair.kind).unwrap().as_str().unwrap().to_owned()
    };
    let found: BTreeSet<Pair> = report
        .pairs
        .iter()
        .map(|pair| {
            (
                pair.global_from.unwrap(),
                pair.global_to.unwrap(),
                kind(pair),
                pair.net.as_deref().map(str::to_owned),
            )
        })
        .collect();
    assert_eq!(found, expected.pairs.iter().cloned().collect(), "{name}: pairs");
    let verdict = serde_json::to_value(report.verdict.fabric).unwrap();
    assert_eq!(verdict, expected.verdict_fabric.as_str(), "{name}: verdict");
    assert_eq!(report.nccl_versions, expected.nccl_versions, "{name}: versions");
    let announced: BTreeSet<&str> =
        report.ranks.iter().filter_map(|rank| rank.announced.as_deref()).collect();
    assert_eq!(announced, expected.announced.values().map(String::as_str).collect(), "{name}: announced");
    let providers: Vec<&str> =
        report.plugins.iter().filter_map(|plugin| plugin.provider.as_deref()).collect();
    assert_eq!(providers, expected.providers, "{name}: providers");
    if expected.lines > 0 {
        assert_eq!(report.totals.lines, expected.lines, "{name}: lines");
    }
    let ranks: BTreeSet<Option<u32>> = report.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(ranks, (0..replay.world()).map(Some).collect(), "{name}: ranks");
}

#[test]
fn the_map_finds_the_truth_of_every_capture() {
    for name in SHIPPED {
        check_map(name, &Capture::shipped(name).unwrap().exact());
    }
}

#[test]
fn the_map_finds_the_truth_of_wide_replays() {
    for name in ["socket_2x2", "train_2x2", "ofi_tcp_2x2"] {
        let capture = Capture::shipped(name).unwrap();
        for (nodes, ranks, channels) in [(2, 2, 2), (1, 8, 2), (3, 4, 2), (4, 8, 4), (16, 4, 2)] {
            let wide = capture.scale(Shape::new(nodes, ranks).channels(channels).seed(11)).unwrap();
            check_map(&format!("{name} {nodes}x{ranks}"), &wide);
        }
    }
}

#[test]
fn captures_are_played_as_they_were() {
    for name in SHIPPED {
        let replay = Capture::shipped(name).unwrap().exact();
        assert_eq!(replay.world(), 4, "{name}");
        check(&replay);
    }
}

#[test]
fn widened_to_its_own_shape_a_capture_keeps_its_pairs() {
    for name in ["socket_2x2", "train_2x2", "ofi_tcp_2x2", "plugin_missing"] {
        let capture = Capture::shipped(name).unwrap();
        let wide = capture.scale(Shape::new(2, 2)).unwrap();
        assert_eq!(wide.expected().pairs, capture.exact().expected().pairs, "{name}");
        check(&wide);
    }
}

#[test]
fn shapes_agree_with_their_truth() {
    let capture = Capture::shipped("socket_2x2").unwrap();
    for (nodes, ranks, channels) in [(1, 1, 2), (1, 8, 2), (2, 8, 4), (3, 4, 2), (5, 1, 2), (16, 8, 8)] {
        let wide = capture.scale(Shape::new(nodes, ranks).channels(channels)).unwrap();
        assert_eq!(wide.world(), nodes * ranks);
        check(&wide);
        let verdict = if nodes == 1 { "intra-node" } else { "socket" };
        assert_eq!(wide.expected().verdict_fabric, verdict);
    }
}

#[test]
fn a_rank_names_itself_consistently() {
    let wide = Capture::shipped("ofi_tcp_2x2").unwrap().scale(Shape::new(4, 8).seed(7)).unwrap();
    let text = log(&wide, 31);
    let line = text.lines().find(|line| line.contains("Init START")).unwrap();
    assert!(line.starts_with("node3:3914:3914 [7] NCCL INFO ncclCommInitRankConfig comm 0x"), "{line}");
    assert!(line.contains(" rank 31 nranks 32 cudaDev 7 nvmlDev 7 busId d0 commId 0x"), "{line}");
    assert!(text.contains("rank 31 nRanks 32 nNodes 4 localRanks 8 localRank 7"));
    let id = |rank| {
        let text = log(&wide, rank);
        let at = text.find("commId ").unwrap();
        text[at..at + 26].to_owned()
    };
    assert_eq!(id(0), id(31), "one communicator has one id");
    assert!(!text.contains("vm:"), "the capture's host is gone");
    assert!(log(&wide, 0).contains("Channel 00/02 : 0 1 2 3 4 5"));
}

#[test]
fn what_cannot_be_widened_says_why() {
    let one_node = Capture::shipped("p2p_default").unwrap();
    assert_eq!(one_node.scale(Shape::new(2, 4)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(one_node.scale(Shape::new(1, 8)).is_ok());
    assert_eq!(one_node.scale(Shape::new(0, 4)).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(Capture::shipped("nothing").unwrap_err().kind(), ErrorKind::NotFound);
    let split = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../diagnose/tests/cases/nccl/captures/groups_2x2");
    let error = Capture::read(&split).unwrap().scale(Shape::new(2, 2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// Runs a script as a rank of some launcher.
fn play(shell: &[&str], script: &str, variable: &str, rank: u32) -> Option<String> {
    let (program, before) = shell.split_first()?;
    let mut command = child::command(program);
    command.args(before).args(["-c", script]).env("INSTANT", "1").env(variable, rank.to_string());
    let output = command.output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_player_prints_every_byte_whoever_starts_it() {
    let replay = Capture::shipped("ofi_tcp_2x2").unwrap().exact();
    let script = replay.script(1.0).unwrap();
    let variables = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX"];
    for (variable, rank) in variables.into_iter().zip([0, 1, 2, 3, 0]) {
        assert_eq!(play(&["sh"], &script, variable, rank).unwrap(), log(&replay, rank), "{variable}");
    }
    match play(&["busybox", "sh"], &script, "RANK", 2) {
        Some(played) => assert_eq!(played, log(&replay, 2)),
        None => {
            // Not `println!`: what a passing test prints is not shown.
            let _ = writeln!(std::io::stderr(), "skipped the player in busybox: busybox is not installed");
        }
    }
}

#[test]
fn a_folder_plays_and_holds_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let wide = Capture::shipped("socket_2x2").unwrap().scale(Shape::new(2, 3)).unwrap();
    wide.write_folder(folder.path(), 0.0).unwrap();
    let played = child::command("sh").arg(folder.path().join("play.sh")).env("RANK", "5").output().unwrap();
    assert_eq!(String::from_utf8(played.stdout).unwrap(), log(&wide, 5));
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("expected.json")).unwrap()).unwrap();
    assert_eq!(expected["pairs"].as_array().unwrap().len(), wide.expected().pairs.len());
    assert_eq!(expected["lines"], (0..6).map(|rank| log(&wide, rank).lines().count()).sum::<usize>());
}

#[test]
fn the_pace_is_kept() {
    let replay = Capture::shipped("socket_2x2").unwrap().exact();
    let waits = |pace| {
        let mut timed = Vec::new();
        replay.write_timed(0, pace, &mut timed).unwrap();
        let text = String::from_utf8(timed).unwrap();
        text.lines().filter_map(|line| line.strip_prefix('@')).map(|s| s.parse::<f64>().unwrap()).sum::<f64>()
    };
    assert!((1.0..1.4).contains(&waits(1.0)), "{} s", waits(1.0));
    assert!((waits(2.0) - 2.0 * waits(1.0)).abs() < 0.1);
    assert!(waits(0.0) == 0.0);
}
