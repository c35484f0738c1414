//! `weftrun why`: from files, from stdin and from jobs; and the same answer in the verbs that see a job fail.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::place::{Place, repo};
use weftrun_testkit::child;

/// A job whose rank 1 raises, and whose rank 0 ends in order.
const FAILS: &str = r#"
name = "fails"
launch = "per-rank"
ranks_per_node = 2
command = ["sh", "raise.sh"]
"#;

const RAISES: &str = r#"
[ "$RANK" = 1 ] || exit 0
echo 'Traceback (most recent call last):' >&2
echo '  File "/job/train.py", line 7, in step' >&2
echo 'ValueError: bad sample' >&2
exit 1
"#;

fn recording(name: &str) -> String {
    repo("tests/cases/failures").join(name).to_string_lossy().into_owned()
}

#[test]
fn files_folders_and_stdin_give_one_answer_of_at_most_ten_lines() {
    let place = Place::new();
    let folder = recording("exception");
    let done = place.run(&format!("why {folder}")).ok();
    assert!(done.out.starts_with("failed: exception: rank 3 on node1\n"), "{}", done.out);
    for said in
        ["/job/train.py:10 in compute_loss", "victims   ranks 0-2", "evidence  node1.log:88", "  fix "]
    {
        assert!(done.out.contains(said), "{said}:\n{}", done.out);
    }
    assert!(done.out.lines().count() <= 10, "{}", done.out);
    let files = place.run(&format!("why {folder}/node1.log {folder}/node0.log")).ok();
    assert_eq!(files.out, done.out);
    let both: Vec<u8> = ["node0.log", "node1.log"]
        .iter()
        .flat_map(|name| std::fs::read(repo("tests/cases/failures/exception").join(name)).unwrap())
        .collect();
    let piped = place.feed("why -o json -", &both).ok().json();
    assert_eq!((&piped["cause"]["class"], &piped["cause"]["ranks"][0]), (&"exception".into(), &3.into()));
    let report = place.run(&format!("why -o json {}", recording("hang"))).ok().json();
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["schema", "state", "cause", "victims", "findings"]);
    let keys: Vec<&String> = report["cause"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["class", "ranks", "nodes", "what", "code", "fix", "frame", "evidence", "confidence"]);
    let cause = &report["cause"];
    let code = cause["code"].as_str().unwrap();
    assert!(place.run(&format!("explain {code}")).ok().out.contains("What to do:"), "{code}");
    assert!(!cause["fix"].as_str().unwrap().is_empty(), "{cause}");
    assert!(place.run(&format!("why {}", recording("ok"))).ok().out.starts_with("succeeded"));
    place.run("why").code(2);
    place.run("why none.log").code(6);
}

#[test]
fn the_page_of_the_transport_shows_the_cause_first() {
    let place = Place::new();
    let page = place.run(&format!("transport -o html {}", recording("sigkill"))).ok().out;
    let (cause, matrix) = (page.find("id=\"cause\"").unwrap(), page.find("<h2>Matrix</h2>").unwrap());
    assert!(cause < matrix && page[cause..matrix].contains("failed: signal: rank 3 on node1"), "{page}");
    let page = place.run(&format!("transport -o html {}", recording("ok"))).ok().out;
    assert!(!page.contains("id=\"cause\""));
}

#[test]
fn every_verb_that_sees_a_job_fail_says_why_first() {
    let place = Place::new();
    place.write("job.toml", FAILS);
    place.write("raise.sh", RAISES);
    let followed = place.run("submit --follow job.toml").code(1);
    let cause = "failed: exception: rank 1 on node0\n";
    assert!(followed.err.contains(cause), "{}", followed.err);
    assert!(followed.err.contains("/job/train.py:7 in step"), "{}", followed.err);
    assert!(
        !followed.err.contains("were not read"),
        "a rank that writes nothing is no missing log: {}",
        followed.err
    );
    let handle =
        place.run("list --all -o json").ok().json()["jobs"][0]["handle"].as_str().unwrap().to_owned();
    let waited = place.run(&format!("wait {handle}")).code(1);
    assert!(waited.err.starts_with(cause), "{}", waited.err);
    let waited = place.run(&format!("wait -o json {handle}")).code(1).json();
    assert_eq!(waited["why"]["cause"]["ranks"][0], 1, "{waited:#}");
    let described = place.run(&format!("describe {handle}")).ok();
    assert!(described.out.starts_with(cause), "{}", described.out);
    let described = place.run(&format!("describe -o json {handle}")).ok().json();
    assert_eq!(described["why"]["cause"]["what"], "ValueError: bad sample", "{described:#}");
    let why = place.run(&format!("why {handle}")).ok();
    assert!(why.out.starts_with(cause), "{}", why.out);
    assert_eq!(place.run(&format!("why -o json {handle}")).ok().json()["state"], "failed");
}

#[test]
fn a_running_job_in_trouble_is_described_by_its_cause_first() {
    let place = Place::new();
    let log = |node: u32| repo(&format!("tests/cases/failures/hang/node{node}.log")).display().to_string();
    let job = |name: &str, script: &str| {
        format!(
            "name = \"{name}\"\nlaunch = \"per-rank\"\nranks_per_node = 2\ncommand = [\"sh\", \"-c\", \"{script}; sleep 300\"]\n"
        )
    };
    place.write("hangs.toml", job("hangs", &format!("[ $RANK = 0 ] && cat {} || cat {}", log(0), log(1))));
    place.write("trains.toml", job("trains", "echo step 1 tokens/s 100"));
    let described = |file: &str| {
        let handle = place.run(&format!("submit -q {file}")).ok().out.trim().to_owned();
        // The lines are there soon after the ranks run.
        for _ in 0..100 {
            if place.run(&format!("logs {handle}")).ok().out.lines().count() > 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let described = place.run(&format!("describe {handle}")).ok().out;
        place.run(&format!("cancel {handle}")).ok();
        described
    };
    let hangs = described("hangs.toml");
    assert!(hangs.starts_with("running: collective-timeout: rank 3 on node1\n"), "{hangs}");
    let copes = "echo Traceback; echo RuntimeError: CUDA out of memory; echo step 2 tokens/s: 51";
    place.write("copes.toml", job("copes", copes));
    let copes = described("copes.toml");
    assert!(copes.contains("phase   running") && !copes.contains("memory"), "{copes}");
    let trains = described("trains.toml");
    assert!(trains.contains("phase   running") && !trains.contains("failed"), "{trains}");
}

#[test]
fn a_failed_job_without_a_word_is_not_left_without_an_answer() {
    let place = Place::new();
    place.write("job.toml", "name = \"mute\"\nranks_per_node = 1\ncommand = [\"sh\", \"-c\", \"exit 3\"]\n");
    let followed = place.run("submit --follow job.toml").code(1);
    assert!(followed.err.contains("failed: exit-code"), "{}", followed.err);
    let handle =
        place.run("list --all -o json").ok().json()["jobs"][0]["handle"].as_str().unwrap().to_owned();
    let why = place.run(&format!("why -o json {handle}")).ok().json();
    assert_eq!((&why["state"], &why["cause"]["class"]), (&"failed".into(), &"exit-code".into()), "{why:#}");
    assert!(why["cause"]["what"].as_str().unwrap().contains("exit code 3"), "{why:#}");
}

/// The files of a job on this machine have the time of its last line.
#[test]
fn a_running_job_that_writes_nothing_is_said_to_be_silent() {
    let place = Place::new();
    place.write("silent.sh", "echo step 1 loss 2.0\nsleep 300\n");
    let job = format!(
        "name = \"silent\"\nlaunch = \"per-rank\"\ncommand = [\"sh\", \"{}\"]\n",
        place.path("silent.sh").display()
    );
    place.write("silent.toml", job);
    let handle = place.run("submit -q silent.toml").ok().out.trim().to_owned();
    let written = |path: &std::path::PathBuf| {
        path.ends_with("rank0.log") && std::fs::metadata(path).is_ok_and(|log| log.len() > 0)
    };
    let log = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        files_below(&place.state()).into_iter().find(written)
    });
    assert!(!place.run(&format!("why {handle}")).ok().out.contains("has written"), "it wrote just now");
    let written = std::time::SystemTime::now() - Duration::from_mins(5);
    std::fs::File::options().append(true).open(log.unwrap()).unwrap().set_modified(written).unwrap();
    let why = place.run(&format!("why {handle}")).ok().out;
    place.run(&format!("cancel {handle}")).ok();
    let said = why.lines().find(|line| line.contains("no rank has written a line for 30")).unwrap_or(&why);
    assert!(said.contains("step 1 loss 2.0"), "{why}");
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// A job of which rank 1 raises when `go` exists, and whose ranks both stay.
fn raises_and_stays(place: &Place, name: &str) -> String {
    let (go, raised) = (place.path("go"), place.path("raised"));
    place.write(
        "stays.sh",
        format!(
            "echo here\n[ $RANK = 1 ] || exec sleep 300\nwhile ! [ -e {go} ]; do sleep 0.05; done\n\
             echo 'Traceback (most recent call last):' >&2\necho '  File \"/job/train.py\", line 7, in step' >&2\n\
             echo 'ValueError: bad sample' >&2\n: > {raised}\nexec sleep 300\n",
            go = go.display(),
            raised = raised.display()
        ),
    );
    let job = format!(
        "name = \"{name}\"\nlaunch = \"per-rank\"\nranks_per_node = 2\ncommand = [\"sh\", \"{}\"]\n",
        place.path("stays.sh").display()
    );
    place.write("stays.toml", job).display().to_string()
}

/// From the last line of the evidence to the answer, while the job runs.
#[test]
fn a_follower_and_a_question_name_the_cause_within_two_seconds() {
    let place = Place::new();
    let job = raises_and_stays(&place, "stays");
    let mut follow = place.command(["submit", "--follow", &job]);
    let mut child = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || stdout.lines().for_each(drop));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let handle = loop {
        let listed = place.run("list -o json").ok().json();
        if listed["jobs"][0]["phase"] == "running" {
            break listed["jobs"][0]["handle"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    place.write("go", "");
    let began = Instant::now();
    while !place.path("raised").exists() {
        assert!(began.elapsed() < Duration::from_mins(1), "the rank did not raise");
        std::thread::sleep(Duration::from_millis(5));
    }
    let raised = Instant::now();
    let asked = place.run(&format!("why {handle}")).ok().out;
    let (answered, asked_at) = (raised.elapsed(), Instant::now());
    let said = lines.find(|line| line.starts_with("running: exception: ")).unwrap();
    let followed = raised.elapsed();
    eprintln!(
        "why after {answered:?}, submit --follow after {followed:?} (read {:?} later)",
        asked_at.elapsed()
    );
    assert!(asked.contains("ValueError: bad sample") && said.contains("rank 1"), "{asked} {said}");
    let frame = lines.find(|line| line.contains("/job/train.py:7")).unwrap();
    assert!(frame.contains("in step"), "{frame}");
    place.run(&format!("cancel {handle}")).ok();
    child.wait().unwrap();
    assert!(answered < Duration::from_secs(2), "{answered:?}");
    assert!(followed < Duration::from_secs(2), "{followed:?}");
}

/// What PyTorch's monitor thread does in each rank (`DumpPipe` and `runLoop` of ProcessGroupNCCL, 2.3 and later): it makes the
/// pipe, reads it without blocking, and writes the flight recorder's dump; here a recorded one.
const RECORDER: &str = r#"
import os, shutil, time
rank, prefix = os.environ["RANK"], os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
os.mkfifo(f"{prefix}{rank}.pipe")
pipe = os.open(f"{prefix}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
print("rank", rank, "waits", flush=True)
def wait_in_all_gather():
    while True:
        time.sleep(0.3)
        try:
            asked = os.read(pipe, 128)
        except BlockingIOError:
            continue
        if asked and os.path.exists(f"{os.environ['DUMPS']}/fr_{rank}"):
            shutil.copy(f"{os.environ['DUMPS']}/fr_{rank}", os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank)
wait_in_all_gather()
"#;

#[test]
fn dumps_and_stacks_of_a_running_job_name_the_rank_that_is_behind() {
    let place = Place::new();
    place.write("recorder.py", RECORDER);
    // The real py-spy needs the right to trace other processes, which CI does not have everywhere.
    let tool =
        place.write("bin/py-spy", "#!/bin/sh\necho \"stack of $3\"; tr '\\0' ' ' < /proc/$3/cmdline\n");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let dumps = repo("crates/diagnose/tests/cases/nccl/captures/fr_hang_2x2");
    let submit = |name: &str, dumps: &std::path::Path, pipe: &str| {
        let prefix = place.path(&format!("fr-{name}-"));
        let (prefix, path) = (prefix.display(), place.path("bin"));
        place.write(
            "job.toml",
            format!(
                "name = \"{name}\"\nlaunch = \"per-rank\"\nranks_per_node = 4\ncommand = [\"python3\", \"recorder.py\"]\n\
                 [env]\n{pipe} = \"{prefix}\"\nTORCH_FR_DUMP_TEMP_FILE = \"{prefix}\"\nDUMPS = \"{}\"\nPATH = \"{}:{}\"\n",
                dumps.display(),
                path.display(),
                child::path(),
            ),
        );
        let handle = place.run("submit -q job.toml").ok().out.trim().to_owned();
        for _ in 0..200 {
            if place.run(&format!("logs {handle}")).ok().out.matches("waits").count() == 4 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        handle
    };
    let handle = submit("hangs", &dumps, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    // Another job whose ranks have the same numbers, and no dumps to write.
    let other = submit("other", &place.path("none"), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    let why = place.run(&format!("why -o json --dump --stacks {handle}")).ok().json();
    let cause = &why["cause"];
    assert_eq!(
        (&cause["class"], &cause["ranks"]),
        (&"collective-timeout".into(), &serde_json::json!([2])),
        "{why:#}"
    );
    assert!(
        cause["what"].as_str().unwrap().contains("never entered collective 6 (nccl:_all_gather_base"),
        "{why:#}"
    );
    assert_eq!(
        (&why["state"], &cause["confidence"]),
        (&"running".into(), &"medium".into()),
        "no watchdog gave up"
    );
    assert_eq!(why["findings"][1]["code"], "FR-RANK-BEHIND", "{why:#}");
    assert!(cause["evidence"][0]["text"].as_str().unwrap().contains("cap2.py:35"), "{why:#}");
    let stack = &why["stacks"][0];
    let text = stack["text"].as_str().unwrap();
    assert!(text.contains("recorder.py") && text.contains(&stack["pid"].to_string()), "{why:#}");
    let text = place.run(&format!("why --dump --stacks {handle}")).ok().out;
    assert!(text.starts_with("running: collective-timeout: rank 2\n"), "{text}");
    assert!(text.contains("\nstack of rank 2, process "), "{text}");

    let silent = place.run(&format!("why -o json --dump --stacks {other}")).ok().json();
    assert_eq!((&silent["cause"], &silent["stacks"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    let notes = silent["findings"].to_string();
    assert!(notes.contains("wrote no readable dump") && notes.contains("no rank is named"), "{silent:#}");
    for job in [&handle, &other] {
        place.run(&format!("cancel {job}")).ok();
    }
    let ended = place.run(&format!("why --dump {handle}")).code(4);
    assert!(ended.err.contains("dumps and stacks come from running processes"), "{}", ended.err);
    place.run("why --dump recorder.py").code(2);
}
