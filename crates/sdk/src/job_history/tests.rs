use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use weftrun_core::Confidence;
use weftrun_core::job::JobPhase;
use weftrun_diagnose::nodes::{Judgement, SlowNode};

use super::*;

fn history(folder: &Path) -> JobHistory {
    JobHistory { path: folder.join("history/pc.jsonl"), shared: false }
}

fn record(number: u32) -> JobRecord {
    let at = weftrun_backends::clock::now();
    let mut record = JobRecord::new(format!("slurm://pc/{number}"), at, JobPhase::Succeeded);
    record.nodes = vec!["a".to_owned(), format!("n{}", number % 7)];
    record
}

fn slow(number: u32, node: &str) -> JobRecord {
    let mut record = record(number);
    record.slow.push(SlowNode::new(node, "slow in a pair", Confidence::High));
    record
}

#[test]
fn a_job_that_is_written_twice_is_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(folder.path());
    let known = slow(1, "a");
    history.append(&known).unwrap();
    // A later look knows less, and takes nothing away.
    history.append(&record(1)).unwrap();
    let lines = std::fs::read_to_string(history.path()).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let mut more = record(1);
    more.fabric = Some("efa".to_owned());
    history.append(&more).unwrap();
    let past = history.read().unwrap();
    assert_eq!((past.records.len(), past.unread), (1, 0));
    assert_eq!((past.records[0].slow.len(), past.records[0].fabric.as_deref()), (1, Some("efa")));
}

#[test]
fn damaged_and_hostile_lines_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(folder.path());
    history.append(&record(1)).unwrap();
    let mut text = std::fs::read_to_string(history.path()).unwrap();
    let hostile =
        text.replace("slurm://pc/1", "slurm://pc/2").replace("\"a\"", "\"\\u001b]0;x\\u0007\",\"b c\"");
    text.push_str(&hostile);
    // A process was killed within a line.
    text.push_str("no record\n{\"job\":\"slurm://pc/3\",\"at");
    std::fs::write(history.path(), &text).unwrap();
    let past = history.read().unwrap();
    assert_eq!((past.records.len(), past.unread), (2, 1));
    assert_eq!(past.records[1].nodes, ["n1"]);
    history.append(&record(4)).unwrap();
    let past = history.read().unwrap();
    assert_eq!((past.records.len(), past.unread), (3, 2), "the next line begins on its own");
}

/// What is folded loses nothing that a judgement needs.
#[test]
fn a_file_that_is_made_shorter_judges_alike() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(folder.path());
    for number in 0..200 {
        let bad = number == 3 || number == 150;
        history.append(&if bad { slow(number, "n3") } else { record(number) }).unwrap();
    }
    let before = history.nodes().unwrap();
    assert_eq!((before[0].node.as_str(), before[0].judgement), ("n3", Judgement::Suspect));
    let length = std::fs::metadata(history.path()).unwrap().len();
    history.shorten(&history.lock().unwrap(), length / 4, weftrun_backends::clock::now()).unwrap();
    let shorter = std::fs::metadata(history.path()).unwrap().len();
    assert!(shorter < length / 2, "{shorter} of {length}");
    let after = history.nodes().unwrap();
    let of = |nodes: &[NodeReport]| -> Vec<(String, u32, Judgement, usize)> {
        nodes.iter().map(|node| (node.node.clone(), node.runs, node.judgement, node.events.len())).collect()
    };
    assert_eq!(of(&before), of(&after));
    history.append(&record(500)).unwrap();
    assert_eq!(history.nodes().unwrap().iter().find(|node| node.node == "a").unwrap().runs, 201);
}

#[test]
fn a_node_that_was_repaired_is_clear_again() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(folder.path());
    [slow(1, "n3"), slow(2, "n3"), slow(3, "a")].iter().for_each(|record| history.append(record).unwrap());
    assert_eq!(history.suspects().unwrap()[0].node, "n3");
    assert_eq!(history.forget_node("n3").unwrap(), 2);
    assert!(history.suspects().unwrap().is_empty());
    // The next look at an old job does not bring it back, nor does a file that is made shorter.
    let mut again = slow(1, "n3");
    again.at -= std::time::Duration::from_secs(60);
    history.append(&again).unwrap();
    history.shorten(&history.lock().unwrap(), 8 << 10, weftrun_backends::clock::now()).unwrap();
    let mut known = slow(2, "n3");
    known.fabric = Some("efa".to_owned());
    history.append(&known).unwrap();
    assert_eq!(history.nodes().unwrap().iter().find(|node| node.node == "n3").unwrap().slow, 0);
    // What happens later counts.
    [slow(11, "n3"), slow(12, "n3")].iter().for_each(|record| history.append(record).unwrap());
    assert_eq!(history.suspects().unwrap()[0].node, "n3");
    assert!(history.forget().unwrap() && !history.forget().unwrap());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("history"), "a file").unwrap();
    let error = history(folder.path()).append(&record(1)).unwrap_err();
    assert!(error.message().contains("history"), "{error}");
    // Not a regular file.
    let full = JobHistory { path: PathBuf::from("/dev/full"), shared: true };
    assert!(full.append(&record(1)).is_err());
}

/// Whoever may write to the folder of a team may write to its file, under any umask.
#[test]
fn a_shared_file_is_as_open_as_its_folder() {
    for (of_folder, of_file) in [(0o777, 0o666), (0o2770, 0o660), (0o755, 0o644), (0o700, 0o600)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(of_folder)).unwrap();
        let history = JobHistory { path: folder.path().join("pc.jsonl"), shared: true };
        let mode = || std::fs::metadata(history.path()).unwrap().permissions().mode() & 0o777;
        history.append(&record(1)).unwrap();
        assert_eq!(mode(), of_file, "{of_folder:o}");
        history.shorten(&history.lock().unwrap(), 8 << 10, weftrun_backends::clock::now()).unwrap();
        assert_eq!(mode(), of_file, "{of_folder:o}, made shorter");
    }
}

/// A folder that is named below the state folder is made, and stays private; one above it is nobody's to close.
#[test]
fn a_relative_folder_is_made_below_the_state_folder() {
    let state = tempfile::tempdir().unwrap();
    let of = |named: &str| {
        let file = state.path().join("config.toml");
        std::fs::write(&file, format!("[history]\npath = \"{named}\"\n")).unwrap();
        let home = [("HOME".to_owned(), state.path().display().to_string())].into();
        let mut config = Config::load_from(Some(&file), home).unwrap();
        config.state_dir = state.path().to_owned();
        JobHistory::of(&config, &TargetConfig::new("pc", "slurm", state.path())).unwrap()
    };
    let below = of("team/nodes");
    below.append(&record(1)).unwrap();
    assert!(below.path().starts_with(state.path()) && !below.shared);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(below.path()), mode(&state.path().join("team/nodes"))), (0o600, 0o700));
    assert!(of("../team").shared && of("/shared/weftrun").shared);
    assert!(of("/nowhere/team").append(&record(1)).unwrap_err().message().contains("/nowhere/team"));
}

/// The whole file is read once for each MiB that is added, not for each line.
#[test]
fn a_file_that_cannot_be_made_shorter_is_tried_now_and_then() {
    let mib = |count: u64| count << 20;
    assert!(!is_to_shorten(mib(31)..mib(32), mib(32)));
    assert!(is_to_shorten(mib(32)..mib(32) + 1, mib(32)), "just large");
    assert!(!is_to_shorten(mib(32) + 1..mib(32) + 500, mib(32)));
    assert!(is_to_shorten(mib(33) - 1..mib(33) + 500, mib(32)));
    assert!(!is_to_shorten(mib(40) + 1..mib(40) + 500, mib(32)));
}

/// A process that holds the file does not hold up the others.
#[test]
fn a_file_that_another_process_holds_is_waited_for_shortly() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(folder.path());
    let _held = history.lock().unwrap();
    let began = std::time::Instant::now();
    let error = history.append(&record(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Each record is looked at once, however many nodes were forgotten; what happens later counts.
#[test]
fn many_forgotten_nodes_are_looked_up_in_one_pass() {
    let (at, later) = (Timestamp::from_second(1_790_000_000).unwrap(), Timestamp::MAX);
    let mut records: Vec<JobRecord> = (0..4000).map(|number| slow(number, &format!("n{number}"))).collect();
    records.iter_mut().for_each(|record| record.at = at);
    let until: BTreeMap<String, Timestamp> = (0..4000).map(|number| (format!("n{number}"), at)).collect();
    records[7].at = later;
    let began = std::time::Instant::now();
    assert_eq!(forget(&mut records, &until), 3999);
    // 16 million steps take seconds in a debug build.
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    let left: Vec<&str> = records.iter().flat_map(|record| &record.slow).map(|slow| &*slow.node).collect();
    assert_eq!(left, ["n7"]);
}

const WRITER: &str = "WEFTRUN_TEST_HISTORY";
const LINES: u32 = 150;

/// Writes to the history that the variable names: the other process of the test below.
#[test]
fn writer() {
    let Ok(named) = std::env::var(WRITER) else { return };
    let [folder, first, shared] = named.split(':').collect::<Vec<_>>().try_into().unwrap();
    let (mut history, first): (_, u32) = (history(Path::new(folder)), first.parse().unwrap());
    history.shared = shared == "true";
    for number in first..first + LINES {
        history.append(&record(number)).unwrap();
        if number % 50 == 0 {
            history.shorten(&history.lock().unwrap(), 8 << 10, weftrun_backends::clock::now()).unwrap();
        }
    }
}

/// In the state folder of one user, and in a folder that several share.
#[test]
fn processes_that_write_one_history_lose_no_line() {
    [false, true].into_iter().for_each(write_at_once);
}

fn write_at_once(shared: bool) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("history")).unwrap();
    let this = std::env::current_exe().unwrap();
    let start = |first: u32| {
        let mut command = Command::new(&this);
        command.args(["--exact", "job_history::tests::writer"]).stdout(std::process::Stdio::null());
        command.env(WRITER, format!("{}:{first}:{shared}", folder.path().display())).spawn().unwrap()
    };
    let children: Vec<_> = [1000, 2000, 3000].map(start).into();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let history = history(folder.path());
    let past = history.read().unwrap();
    assert_eq!(past.unread, 0);
    let nodes = history.nodes().unwrap();
    assert_eq!(nodes.iter().find(|node| node.node == "a").unwrap().runs, 3 * LINES);
}
