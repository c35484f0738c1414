//! Jobs that misbehave are reported correctly, and none of their output is lost.

use crate::place::{Done, Place};
use weftrun_testkit::child;

fn job(place: &Place, command: &str) -> (String, serde_json::Value) {
    place.write("bad.toml", format!("name = \"bad\"\nranks_per_node = 1\ncommand = {command}\n"));
    let done = place.run("submit --wait bad.toml");
    let handle = done.out.trim().to_owned();
    let detail = place.run(&format!("describe -o json {handle}")).ok().json();
    (handle, detail)
}

#[test]
fn a_command_that_does_not_exist() {
    let place = Place::new();
    let (_, detail) = job(&place, "[\"no-such-program\"]");
    assert_eq!(
        (&detail["phase"], &detail["job"]["exit_code"]),
        (&"failed".into(), &127.into()),
        "{detail:#}"
    );
    assert!(detail["job"]["reason"].as_str().unwrap().contains("no-such-program"), "{detail:#}");
}

#[test]
fn a_code_of_137_and_a_kill_are_told_apart() {
    let place = Place::new();
    let (handle, detail) = job(&place, "[\"sh\", \"-c\", \"exit 137\"]");
    assert_eq!(detail["job"]["exit_code"], 137);
    assert!(detail["job"]["reason"].as_str().unwrap().contains("exit code 137"), "{detail:#}");
    place.run(&format!("delete --yes {handle}")).ok();
    let (_, detail) = job(&place, "[\"sh\", \"-c\", \"kill -9 $$\"]");
    assert_eq!(detail["job"]["exit_code"], 137);
    assert!(detail["job"]["reason"].as_str().unwrap().contains("SIGKILL"), "{detail:#}");
}

/// What a rank writes faster than anybody reads is on disk, and comes out whole and in order.
#[test]
fn a_flood_is_printed_whole() {
    // `WEFTRUN_BIG=1` writes a gigabyte; a little shows the same.
    let megabytes: u64 = if std::env::var_os("WEFTRUN_BIG").is_some() { 1024 } else { 8 };
    let place = Place::new();
    let lines = megabytes * (1 << 20) / 64;
    let (handle, detail) = job(&place, &format!("[\"sh\", \"-c\", \"seq -f %063.0f {lines}\"]"));
    assert_eq!(detail["phase"], "succeeded", "{detail:#}");
    let mut wanted = place.program("sh");
    wanted.args(["-c", &format!("seq -f %063.0f {lines} | cksum")]);
    let logs = place.command(["logs", "--no-prefix", &handle]);
    let printed = child::within("sh", ["-c", "\"$@\" | cksum", "sh"], &logs);
    assert_eq!(Done::of(printed).ok().out, Done::of(wanted).ok().out);
}

/// A full disk is reported as such, and a job that was not written is not listed.
#[test]
fn a_disk_that_is_full() {
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mut mount = place.program("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2m", "weftrun-test"]).arg(&disk);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        weftrun_testkit::skipped("a small disk needs the right to mount");
        return;
    }
    let _mounted = Mounted(disk.clone());
    let run = |line: &str| {
        let mut command = place.command(line.split_whitespace());
        command.env("WEFTRUN_STATE_DIR", disk.join("state"));
        Done::of(command)
    };
    place.write("ok.toml", "name = \"ok\"\nranks_per_node = 1\ncommand = [\"sh\", \"-c\", \"echo well\"]\n");
    run("submit --wait ok.toml").ok();
    // The rank itself fills the disk: it fails with the system's error, and the list shows it.
    place.write(
        "fill.toml",
        "name = \"fill\"\nranks_per_node = 1\ncommand = [\"head\", \"-c\", \"9000000\", \"/dev/zero\"]\n",
    );
    let done = run("submit --wait fill.toml");
    assert_eq!(done.code, 1, "{}", done.err);
    let jobs = run("list --all -o json").ok().json();
    let phases: Vec<&str> =
        jobs["jobs"].as_array().unwrap().iter().filter_map(|j| j["phase"].as_str()).collect();
    assert_eq!(phases.len(), 2, "{jobs:#}");
    assert!(phases.iter().all(|phase| ["failed", "succeeded"].contains(phase)), "{jobs:#}");
    // No further job is accepted, and the error names the reason.
    let done = run("submit --name more ok.toml");
    assert!(done.code != 0 && done.err.contains("no space left"), "{}: {}", done.code, done.err);
    assert!(done.err.contains("WEFTRUN_STATE_DIR"), "a hint: {}", done.err);
    assert_eq!(run("list --all -o json").ok().json()["jobs"].as_array().unwrap().len(), 2);
}

struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = child::command("umount").arg("-l").arg(&self.0).status();
    }
}
