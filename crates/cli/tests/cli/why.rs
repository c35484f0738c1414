//! `weftrun why`: from files, from stdin and from jobs; and the same answer in the verbs that see a job fail.

use crate::place::{Place, repo};

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
    assert_eq!(keys, ["class", "ranks", "nodes", "what", "frame", "evidence", "confidence"]);
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
    place.write("hangs.toml", &job("hangs", &format!("[ $RANK = 0 ] && cat {} || cat {}", log(0), log(1))));
    place.write("trains.toml", &job("trains", "echo step 1 tokens/s 100"));
    let described = |file: &str| {
        let handle = place.run(&format!("submit -q {file}")).ok().out.trim().to_owned();
        // The lines are there soon after the ranks run.
        for _ in 0..100 {
            if place.run(&format!("logs {handle}")).ok().out.lines().count() > 1 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let described = place.run(&format!("describe {handle}")).ok().out;
        place.run(&format!("cancel {handle}")).ok();
        described
    };
    let hangs = described("hangs.toml");
    assert!(hangs.starts_with("running: collective-timeout: rank 3 on node1\n"), "{hangs}");
    let copes = "echo Traceback; echo RuntimeError: CUDA out of memory; echo step 2 tokens/s: 51";
    place.write("copes.toml", &job("copes", copes));
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
