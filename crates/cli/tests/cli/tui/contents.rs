//! The screens say what the logs and the cluster say: the cause of a failure, the maps, the lines of a replay.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::tmux::{AFTER, Tmux};
use crate::place::repo;

#[test]
fn a_job_that_fails_while_it_is_open_shows_its_cause_at_once() {
    let Some(t) = Tmux::start("fails", 160, 48) else { return };
    t.wait(&["local ok"]);
    let go = t.home().join("go");
    let script = format!(
        "echo rank $RANK begins; while ! [ -e {} ]; do sleep 0.1; done; [ $RANK = 2 ] && exit 7; sleep 300",
        go.display()
    );
    t.submit("fails", "4", &["sh", "-c", &script]);
    t.keys(&["C-l"]);
    t.wait(&["RUN", "fails"]);
    t.keys(&["Enter"]);
    t.wait(&["[2 overview]", "Ranks 4", "started"]);
    std::fs::write(&go, "").expect("a file is written");
    let screen = t.wait(&["FAIL", "rank 2", "exit code 7"]);
    assert!(!screen.contains("Nothing wrong was seen"), "{screen}");
    // The failed rank is marked, and is the first of the list.
    let failed = t.until(
        "rank 2 first",
        |screen| screen.lines().any(|line| line.contains("!r2") && line.contains("FAILED")),
        || {},
    );
    let place = |rank: &str| failed.lines().position(|line| line.contains(rank));
    assert!(place("!r2") < place(" r0 "), "{failed}");
    t.keys(&["1"]);
    t.until(
        "the job's line names the rank",
        |screen| screen.lines().any(|line| line.contains("fails") && line.contains("rank 2")),
        || {},
    );
}

fn captures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repo("crates/diagnose/tests/cases/nccl/captures")).expect("captures");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

/// Communicator, ends and transport of the pairs with proved ranks.
type Pairs = BTreeSet<(String, u64, u64, String)>;

fn reported(t: &Tmux, folder: &Path) -> Pairs {
    let report: Value =
        serde_json::from_str(&t.weftrun(&["transport", "-o", "json", &folder.display().to_string()]))
            .expect("JSON");
    let pair = |pair: &Value| {
        let text = |key: &str| pair[key].as_str().unwrap_or_default().to_owned();
        Some((text("comm"), pair["global_from"].as_u64()?, pair["global_to"].as_u64()?, text("transport")))
    };
    report["pairs"].as_array().expect("pairs").iter().filter_map(pair).collect()
}

/// The pairs of the table that the terminal UI saves.
fn saved(t: &Tmux) -> Pairs {
    let file = t.home().join("pairs.tsv");
    t.answer("e", "save to", &file.display().to_string());
    t.wait(&["saved "]);
    let text = std::fs::read_to_string(file).expect("it was saved");
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let pair = |row: Vec<&str>| {
        let ends = (row[1].parse().expect("a rank"), row[2].parse().expect("a rank"));
        row[4].split(',').map(|name| (row[0].to_owned(), ends.0, ends.1, name.to_owned())).collect::<Vec<_>>()
    };
    rows.flat_map(pair).collect()
}

/// The cells of the matrix of ranks that show a connection.
fn drawn(screen: &str) -> BTreeSet<(u64, u64)> {
    let matrix = screen.lines().skip_while(|line| !line.contains("from\\to"));
    let numbers: Vec<u64> = matrix
        .clone()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect();
    let mut cells = BTreeSet::new();
    let numbers = if numbers.is_empty() {
        let head = matrix.clone().next().unwrap_or_default();
        let behind = head.split("from\\to").nth(1).unwrap_or_default();
        behind.split_whitespace().map_while(|word| word.parse().ok()).collect()
    } else {
        numbers
    };
    for line in matrix.skip(1) {
        let Some((_, row)) = line.split_once("│r") else { continue };
        let mut words = row.split_whitespace();
        let Some(from) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let signs = words.filter(|word| *word != "!").zip(&numbers);
        cells.extend(signs.filter(|(sign, _)| !matches!(*sign, "." | "?" | "-")).map(|(_, to)| (from, *to)));
    }
    cells
}

#[test]
fn the_maps_of_every_capture_are_those_of_transport() {
    let mut seen = 0;
    for folder in captures() {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(t) = Tmux::replay(&format!("map-{name}"), (120, 40), &folder.display().to_string()) else {
            return;
        };
        let wanted = reported(&t, &folder);
        t.keys(&["3"]);
        t.wait(&["[3 fabric]"]);
        if wanted.is_empty() {
            continue;
        }
        seen += 1;
        t.keys(&["z"]);
        t.wait(&["rank × rank", "from\\to"]);
        assert_eq!(saved(&t), wanted, "{name}");
        // All communicators together, then each of them.
        let screen = t.wait(&["rank × rank"]);
        let all: BTreeSet<(u64, u64)> = wanted.iter().map(|(_, from, to, _)| (*from, *to)).collect();
        assert_eq!(drawn(&screen), all, "{name}\n{screen}");
        let views =
            screen.split("[c: 1 of ").nth(1).and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
        let mut named = BTreeSet::new();
        for view in 2..=views.unwrap_or(1) {
            t.keys(&["c"]);
            let screen = t.wait(&[&format!("[c: {view} of ")]);
            let title = screen.lines().find(|line| line.contains("Fabric ─")).unwrap_or_default();
            let id = title
                .split("] ─ ")
                .nth(1)
                .and_then(|rest| rest.split_whitespace().next())
                .unwrap_or_default();
            assert!(!id.is_empty(), "{name}: {title}");
            let own: BTreeSet<(u64, u64)> =
                wanted.iter().filter(|(comm, ..)| comm == id).map(|(_, from, to, _)| (*from, *to)).collect();
            assert_eq!(drawn(&screen), own, "{name} {id}\n{screen}");
            named.insert(id.to_owned());
        }
        assert!(views.is_none() || !named.is_empty(), "{name}: {views:?}");
    }
    assert!(seen == 0 || seen >= 20, "{seen}");
}

#[test]
fn ranks_are_those_of_the_log_and_not_of_file_names() {
    let Some(t) =
        Tmux::replay("names", (120, 40), &repo("tests/cases/failures/sigkill").display().to_string())
    else {
        return;
    };
    t.wait(&["rank 3", "SIGKILL"]);
    t.keys(&["4"]);
    let screen = t.wait(&["[4 logs]", "node1.log"]);
    assert!(!screen.contains(" r884213 ") && !screen.contains("by time"), "{screen}");
}

#[test]
fn several_files_and_folders_are_opened_as_one_job() {
    let cases = repo("tests/cases/failures/sigkill");
    let logs = tempfile::tempdir().expect("a folder");
    let other = logs.path().join("other.log");
    std::fs::write(&other, "a line of another file\n").expect("a file is written");
    let what = format!("{} {}", cases.display(), other.display());
    let Some(t) = Tmux::replay("several", (120, 40), &what) else { return };
    t.keys(&["4"]);
    t.wait(&["[4 logs]", "other.log"]);
    t.answer("&", "show only:", "another");
    t.wait(&["a line of another file"]);
    let Some(t) = Tmux::with("alone", (120, 40), |weftrun| {
        format!("{weftrun} tui --replay {} socket_2x2; {AFTER}", other.display())
    }) else {
        return;
    };
    t.wait(&["`socket_2x2` is a capture, and is played alone", "ended with 2"]);
}

#[test]
fn a_widened_replay_prints_the_lines_of_nccl() {
    let what = "socket_2x2 --nodes 4 --ranks-per-node 4";
    let Some(t) = Tmux::replay("lines", (160, 48), what) else { return };
    let clock = |screen: &str| screen.split("DONE after ").nth(1).map(|rest| rest[..2].to_owned());
    let before = clock(&t.screen());
    assert!(before.is_some(), "{}", t.screen());
    t.keys(&["4"]);
    t.answer("/", "find:", "No device found.");
    t.wait(&["No device found.", "of 16"]);
    t.answer("/", "find:", "affinity =");
    t.wait(&["GPU affinity =", "of 16"]);
    // A replay that has ended has a clock that stands still.
    std::thread::sleep(Duration::from_millis(2200));
    t.keys(&["2"]);
    assert_eq!(clock(&t.wait(&["DONE after "])), before);
}

#[test]
fn under_auto_nothing_is_not_as_planned() {
    let Some(t) = Tmux::replay("auto", (120, 40), "socket_2x2") else { return };
    t.keys(&["3"]);
    let screen = t.wait(&["T!", "! wrong"]);
    assert!(!screen.contains("as planned"), "{screen}");
    // The same sign in the report of the command line and in its page.
    let folder = repo("crates/diagnose/tests/cases/nccl/captures/socket_2x2").display().to_string();
    let text = t.weftrun(&["transport", &folder]);
    assert!(text.contains("SOCK!") && text.contains("! wrong") && !text.contains("not as planned"), "{text}");
    let page = t.weftrun(&["transport", "-o", "html", &folder]);
    assert!(page.contains("TCP socket !</td>") && page.contains("! wrong"), "{page}");
}

#[test]
fn steps_are_counted_without_a_line_of_nccl() {
    let Some(t) = Tmux::start("steps", 160, 48) else { return };
    t.wait(&["local ok"]);
    let script = "for i in 1 2 3 4; do echo \"step $i loss 2.5 tokens/s 100\"; done; [ $RANK = 3 ] || sleep 300; exit 0";
    let script = format!("[ $RANK = 1 ] && {{ echo quiet; sleep 300; }}; {script}");
    let handle = t.submit("steps", "3", &["sh", "-c", &script]);
    t.keys(&["C-l"]);
    t.wait(&["RUN", "steps"]);
    t.keys(&["Enter"]);
    t.until(
        "two of three ranks step",
        |screen| screen.lines().any(|line| line.contains("stepping") && line.contains("2/3")),
        || {},
    );
    // How long each rank has been silent, also where the cluster gives no times.
    t.until(
        "ages of silence",
        |screen| {
            let row = screen.lines().find(|line| line.contains(" r1 ") && line.contains("started"));
            let ages = row
                .into_iter()
                .flat_map(str::split_whitespace)
                .filter_map(|word| word.trim_start_matches('>').strip_suffix('s')?.parse::<u32>().ok());
            screen.contains("silent") && ages.into_iter().any(|age| age >= 3)
        },
        || {},
    );
    t.weftrun(&["cancel", &handle]);
}

#[test]
fn the_list_of_changes_counts_what_the_backend_sends() {
    let Some(t) = Tmux::start("counts", 160, 40) else { return };
    t.wait(&["local ok"]);
    t.keys(&["n"]);
    t.wait(&["New job"]);
    let job = t.home().join("job.toml");
    std::fs::write(
        &job,
        "name = \"counts\"\nprofile = \"dgxc\"\nfabric = \"efa\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"train.py\"]\n",
    )
    .expect("a file is written");
    t.answer("C-o", "job file:", &job.display().to_string());
    let screen = t.wait(&["job taken", "not applied"]);
    let title =
        screen.lines().find(|line| line.contains("what the fabric adds")).expect("the title").to_owned();
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<usize>().expect("a number")
    };
    let shown = number(title.split("adds: ").nth(1).expect("a count"));
    let rendered: Value = serde_json::from_str(&t.weftrun(&[
        "render",
        "-b",
        "local",
        "-o",
        "json",
        &job.display().to_string(),
    ]))
    .expect("JSON");
    assert_eq!(rendered["rendered"]["applied"].as_array().map(Vec::len), Some(shown), "{title}\n{rendered}");
}
