//! After any process is killed, a later `list` is correct, and nothing runs that it does not list.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::Place;
use weftrun_testkit::child;

/// A job that prints `up` and its process ids, and then waits for a file.
const WAITS: &str = r#"
name = "waits"
launch = "per-rank"
nodes = 2
ranks_per_node = 1
command = ["sh", "-c", "echo $$ > $HERE/pid$RANK; echo up; while [ ! -e $HERE/go ]; do sleep 0.05; done; echo down"]
"#;

fn waits(place: &Place) {
    let here = place.path("").display().to_string();
    place.write("waits.toml", format!("{WAITS}env = {{ HERE = \"{here}\" }}\n"));
}

/// Polls until something is so.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_mins(1), "not {what} after a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn job(place: &Place) -> Value {
    let jobs = place.run("list --all -o json").ok().json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs:#}");
    jobs["jobs"][0].clone()
}

fn kill(signal: &str, pid: &str) -> bool {
    let mut kill = child::command("kill");
    kill.args([signal, pid]).stderr(Stdio::null()).status().unwrap().success()
}

fn ranks(place: &Place) -> Vec<String> {
    let read = |rank| std::fs::read_to_string(place.path(&format!("pid{rank}"))).unwrap_or_default();
    (0..2).map(|rank| read(rank).trim().to_owned()).filter(|pid| !pid.is_empty()).collect()
}

fn supervisor(place: &Place) -> String {
    let jobs = place.state().join("targets/local/jobs");
    let folder = std::fs::read_dir(jobs).unwrap().next().unwrap().unwrap().path();
    let state: Value = serde_json::from_slice(&std::fs::read(folder.join("state.json")).unwrap()).unwrap();
    state["supervisor"]["pid"].to_string()
}

#[test]
fn the_job_goes_on_when_weftrun_is_killed() {
    let place = Place::new();
    waits(&place);
    let mut command = place.command(["submit", "--follow", "waits.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut handle = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut handle).unwrap();
    until("both up", || ranks(&place).len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();

    assert_eq!(job(&place)["phase"], "running");
    place.write("go", "");
    place.run(&format!("wait {handle}")).ok();
    assert_eq!(job(&place)["phase"], "succeeded");
    let logs = place.run(&format!("logs --no-prefix {handle}")).ok().out;
    assert_eq!(logs.lines().filter(|line| *line == "down").count(), 2, "{logs}");
}

#[test]
fn ranks_without_a_supervisor_are_listed_and_ended() {
    let place = Place::new();
    waits(&place);
    let handle = place.run("submit waits.toml").ok().out;
    until("both up", || ranks(&place).len() == 2);
    assert!(kill("-KILL", &supervisor(&place)));
    until("told", || job(&place)["reason"].as_str().unwrap_or_default().contains("was killed"));
    assert_eq!(job(&place)["phase"], "running");
    assert!(ranks(&place).iter().all(|pid| kill("-0", pid)), "the ranks still run");

    place.run(&format!("cancel {handle}")).ok();
    assert_eq!(job(&place)["phase"], "cancelled");
    until("gone", || ranks(&place).iter().all(|pid| !kill("-0", pid)));
}

#[test]
fn ranks_that_end_without_a_supervisor_have_no_exit_code() {
    let place = Place::new();
    waits(&place);
    let handle = place.run("submit waits.toml").ok().out;
    until("both up", || ranks(&place).len() == 2);
    assert!(kill("-KILL", &supervisor(&place)));
    place.write("go", "");
    until("ended", || job(&place)["phase"] == "failed");
    assert!(job(&place)["reason"].as_str().unwrap().contains("lost"), "{}", job(&place));
    assert_eq!(place.run(&format!("wait {handle}")).code, 1);
}
