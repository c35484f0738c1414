//! Jobs that replay a recorded run of 4 nodes with 8 ranks each, and what must come of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weftrun_replay::{Capture, Replay, Shape};

use crate::shell::Ran;

/// A capture over libfabric's TCP provider, 4 nodes of 8 ranks wide, with the provider's name made EFA's: what a real run
/// prints there differs in this word alone as far as the map goes.
pub fn over_efa() -> (Replay, String) {
    let replay = Capture::shipped("ofi_tcp_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    let script = replay.script(1.0).unwrap().replace("tcp;ofi_rxm", "efa");
    (replay, script)
}

pub fn job(name: &str, launch: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nimage = \"example.test/mpi:1\"\nlaunch = \"{launch}\"\nnodes = 4\ngpus_per_node = 8\n\
         instance_type = \"p5.48xlarge\"\nmemory = \"64Gi\"\ncommand = [\"sh\", \"play.sh\"]\n\
         code = {{ script = \"play.sh\" }}\nfabric = \"efa\"\nprofile = \"dgxc\"\n{more}"
    )
}

pub fn expected_lines(replay: &Replay) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for rank in 0..32 {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        for line in String::from_utf8(log).unwrap().lines() {
            *lines.entry(line.replace("tcp;ofi_rxm", "efa")).or_default() += 1;
        }
    }
    lines
}

/// Every line of every rank once, and the map is the truth's.
pub fn assert_complete(ran: &Ran, replay: &Replay) {
    let (mut seen, wanted) = (ran.lines(), expected_lines(replay));
    // Pods print more than ranks do (mpirun's and ssh's warnings); none of the ranks' lines may be missing or
    // repeated.
    seen.retain(|line, _| wanted.contains_key(line) || line.contains("NCCL"));
    let missing: Vec<_> =
        wanted.iter().filter(|(line, count)| seen.get(*line) != Some(*count)).take(5).collect();
    let strange: Vec<_> = seen.keys().filter(|line| !wanted.contains_key(*line)).take(9).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing: {missing:#?}\nnot theirs: {strange:#?}");
    assert_map(ran, replay);
}

/// What each rank wrote, to the letter; mpirun passes on lines in pieces, each with its rank, so line ends and blanks do not count.
pub fn assert_complete_by_rank(ran: &Ran, replay: &Replay, before: &str) {
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    let events = ran.events();
    for rank in 0..32 {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        let wanted = format!("{before}{}", String::from_utf8(log).unwrap()).replace("tcp;ofi_rxm", "efa");
        let own = events.iter().filter(|event| event["type"] == "log" && event["rank"] == rank);
        let seen: String = own.map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(dense(&seen), dense(&wanted), "rank {rank}");
    }
    assert_map(ran, replay);
}

pub fn assert_map(ran: &Ran, replay: &Replay) {
    let ended = ran.ended();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pairs: BTreeSet<_> = ended["transport"]["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            let rank = |key: &str| u32::try_from(pair[key].as_u64().unwrap()).unwrap();
            (rank("global_from"), rank("global_to"), text(&pair["kind"]).unwrap(), text(&pair["net"]))
        })
        .collect();
    let truth: BTreeSet<_> = replay.expected().pairs.iter().cloned().collect();
    assert_eq!(pairs, truth);
}

/// What EFA needs is in the object that the server has, and in its pods.
pub fn assert_mutated(pod: &Value) {
    let container = &pod["containers"][0];
    for which in ["limits", "requests"] {
        let resources = &container["resources"][which];
        assert_eq!(resources["vpc.amazonaws.com/efa"], "32", "{container:#}");
        assert_eq!(resources["hugepages-2Mi"], "5Gi", "{container:#}");
        assert_eq!(resources["nvidia.com/gpu"], "8", "{container:#}");
    }
    let env = |name: &str| {
        container["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|var| var["name"] == name)
            .map(|var| var["value"].clone())
    };
    assert_eq!(env("NCCL_DEBUG").unwrap(), "INFO");
    assert!(env("LD_LIBRARY_PATH").unwrap().as_str().unwrap().starts_with("/opt/amazon-efa-ofi/ofi/lib:"));
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["hostPath"]["path"] == "/opt/amazon-efa-ofi"), "{volumes:#?}");
}

pub fn handle_of(ran: &Ran) -> String {
    ran.events()[0]["handle"].as_str().unwrap_or_else(|| panic!("{}", ran.stderr)).to_owned()
}
