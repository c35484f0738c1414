//! What is known of a recorded run: the file beside it, or how it was made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The truth of one run.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Its ranks.
    pub world: usize,
    /// Its nodes.
    pub nodes: usize,
    /// The ranks that may be shown as failed, and whether exactly these must be.
    pub failed: BTreeSet<u32>,
    pub all_failed: bool,
    /// Whether the job failed, where that is known.
    pub fails: Option<bool>,
    /// Whether its ranks train, where that is known.
    pub trains: Option<bool>,
    /// Texts of the cause.
    pub cause: Vec<String>,
    /// The fabric, and the pairs of ranks: from, to, `p2p`, `shm` or `net`.
    pub fabric: Option<String>,
    pub pairs: Option<BTreeSet<(u32, u32, String)>>,
}

/// A run: its folder, and its truth.
pub(super) struct Recorded {
    pub name: String,
    pub folder: PathBuf,
    pub truth: Truth,
}

fn folders(of: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(of);
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).unwrap()
}

fn ranks(list: &Value) -> BTreeSet<u32> {
    serde_json::from_value(list.clone()).unwrap()
}

/// Returns all runs: captures of NCCL with `expected.json`, failures with `truth.json`, and the runs beside talks with RAS.
pub(super) fn recorded() -> Vec<Recorded> {
    let mut all = Vec::new();
    let mut add = |of: &str, truth: &dyn Fn(&Path, &str) -> Truth| {
        all.extend(folders(of).into_iter().map(|folder| {
            let own = folder.file_name().unwrap().to_string_lossy().into_owned();
            let truth = truth(&folder, &own);
            let parent = folder.parent().and_then(Path::file_name).unwrap().to_string_lossy().into_owned();
            Recorded { name: format!("{parent}/{own}"), folder, truth }
        }));
    };
    add("../diagnose/tests/cases/nccl/captures", &capture);
    add("../diagnose/tests/cases/nccl/versions", &version);
    add("../../tests/cases/failures", &failure);
    for version in ["v2.28.9", "v2.30.7", "v2.32.3"] {
        add(&format!("../nccl/tests/data/ras/{version}"), &|_, scenario| ras(version, scenario));
    }
    all
}

fn capture(folder: &Path, name: &str) -> Truth {
    let Some(expected) = json(&folder.join("expected.json")) else {
        // It is `train_2x2` under torchrun.
        assert_eq!(name, "torchrun_train_2x2");
        return capture(&folder.with_file_name("train_2x2"), "train_2x2");
    };
    let hosts = |key: &Value| key.as_array().map(|hosts| hosts.iter().map(Value::to_string).collect());
    let hosts: BTreeSet<String> = hosts(&expected["simulated_hosts"])
        .or_else(|| hosts(&expected["made_with"]["hosts"]))
        .unwrap_or_else(|| [String::new()].into());
    let exit = expected["exit"].as_array();
    let succeeded = exit.is_some_and(|codes| codes.iter().all(|code| *code == 0));
    let pair = |pair: &Value| {
        let rank = |at: usize| u32::try_from(pair[at].as_u64().unwrap()).unwrap();
        (rank(0), rank(1), pair[2].as_str().unwrap().to_owned())
    };
    let pairs: BTreeSet<_> = expected["pairs"].as_array().unwrap().iter().map(pair).collect();
    Truth {
        world: 4,
        nodes: hosts.len(),
        failed: if succeeded { BTreeSet::new() } else { (0..4).collect() },
        fails: succeeded.then_some(false),
        // The program prints values of its training.
        trains: name.contains("train").then_some(true),
        fabric: expected["verdict_fabric"].as_str().map(str::to_owned),
        pairs: Some(pairs),
        ..Truth::default()
    }
}

fn version(_: &Path, name: &str) -> Truth {
    let (fabric, nodes) = match name {
        "v2.27.7-1-p2p" => ("intra-node", 1),
        "v2.27.7-1-socket_2x2" => ("socket", 2),
        "v2.30.7-1-ofi_tcp_2x2" => ("libfabric-tcp", 2),
        other => panic!("{other}"),
    };
    Truth { world: 4, nodes, fabric: Some(fabric.to_owned()), fails: Some(false), ..Truth::default() }
}

fn failure(folder: &Path, name: &str) -> Truth {
    let truth = json(&folder.join("truth.json")).unwrap();
    let text = |key: &str| truth[key].as_str().map(str::to_owned);
    let class = text("class").unwrap();
    let mut failed = ranks(&truth["first"]);
    let mut cause = vec![class.clone(), text("what").unwrap()];
    cause.extend(text("user_frame").and_then(|frame| frame.split(' ').next().map(str::to_owned)));
    if name == "skip_running" {
        // Its log proves only that ranks 0 and 1 disagree.
        failed.insert(0);
        cause.truncate(1);
    }
    if class == "none" {
        cause.clear();
    }
    Truth {
        world: usize::try_from(truth["world"].as_u64().unwrap()).unwrap(),
        nodes: truth["ranks_of_node"].as_array().unwrap().len(),
        failed,
        all_failed: true,
        fails: Some(class != "none"),
        trains: Some(name != "import_error"),
        cause,
        ..Truth::default()
    }
}

/// Where RAS says what was wrong, the lines alone do not: they may name the rank, and no other.
fn ras(version: &str, scenario: &str) -> Truth {
    let one_node = version == "v2.32.3";
    let culprit = match scenario {
        "hang" | "mismatch" | "kill" | "killjson" if one_node => Some(1),
        "hang" | "mismatch" | "kill" | "killjson" => Some(3),
        _ => None,
    };
    Truth {
        world: if one_node || scenario == "off" { 2 } else { 4 },
        nodes: if one_node { 1 } else { 2 },
        failed: culprit.into_iter().collect(),
        fails: culprit.is_none().then_some(false),
        fabric: Some(if one_node { "intra-node" } else { "socket" }.to_owned()),
        ..Truth::default()
    }
}
