//! The exit codes that scripts rely on (`docs/reference/exit-codes.md`).

use crate::place::{Done, Place, repo};
use weftrun_testkit::child;

fn failing(place: &Place, command: &str) {
    place.write("fails.toml", format!("name = \"fails\"\nranks_per_node = 1\ncommand = {command}\n"));
}

#[test]
fn usage_is_2() {
    let place = Place::new();
    for line in [
        "plna job.toml",
        "plan",
        "transport",
        "why",
        "submit --nodes",
        "list -o sarif",
        "logs x --rank one",
        "plan --fabric efq",
    ] {
        let done = place.run(line).code(2);
        assert_eq!(done.out, "", "{line}");
        assert!(!done.err.is_empty(), "{line}");
    }
    assert!(place.run("plna job.toml").err.contains("'plan'"), "did you mean");
}

#[test]
fn a_wrong_job_is_3() {
    let place = Place::new();
    place.write("bad.toml", "name = \"a\"\nnodse = 2\ncommand = \"x\"\n");
    for line in ["plan bad.toml", "submit bad.toml", "render bad.toml", "lint bad.toml"] {
        place.run(line).code(3);
    }
    assert_eq!(place.run("submit bad.toml").out, "");
}

#[test]
fn what_is_not_there_is_6() {
    let place = Place::new();
    for line in [
        "plan none.toml",
        "describe none",
        "logs local://local/none",
        "wait local://local/none",
        "cancel local://local/none",
        "transport none.log",
        "explain none",
        "instances none",
        "list -b none",
        "--config none.toml list",
    ] {
        let done = place.run(line).code(6);
        assert!(done.err.contains("error"), "{line}: {}", done.err);
        assert_eq!(done.out, "", "{line}");
    }
}

#[test]
fn a_job_that_fails_is_1_whenever_we_waited() {
    let place = Place::new();
    failing(&place, "[\"sh\", \"-c\", \"exit 9\"]");
    place.run("submit fails.toml --name one --wait").code(1);
    let done = place.run("submit fails.toml --name two --follow -o json").code(1);
    let end = done.lines().pop().unwrap();
    assert_eq!((&end["type"], &end["job"]["exit_code"]), (&"ended".into(), &9.into()), "{end:#}");
    let handle = place.run("submit fails.toml --name three").ok().out;
    place.run(&format!("wait {handle}")).code(1);
    place.run(&format!("watch {handle}")).code(1);
}

#[test]
fn a_name_that_is_taken_is_refused_with_4() {
    let place = Place::new();
    failing(&place, "[\"sleep\", \"600\"]");
    let handle = place.run("submit fails.toml").ok().out;
    let done = place.run("submit fails.toml").code(4);
    assert!(done.err.contains("--name-suffix"), "{}", done.err);
    let other = place.run("submit --name-suffix fails.toml").ok().out;
    assert_ne!(other, handle);
    assert_eq!(place.run("list -o json").json()["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn nobody_there_is_5() {
    let place = Place::new();
    // A port without a listener: 1 is tcpmux, which has been unused for decades.
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: \"http://127.0.0.1:1\"}}]\n\
                      contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n";
    let path = place.write("kubeconfig", kubeconfig);
    let mut command = place.command(["list", "-b", "kubeflow"]);
    command.env("KUBECONFIG", path);
    let done = Done::of(command).code(5);
    assert!(done.err.contains("127.0.0.1:1"), "{}", done.err);
}

#[test]
fn another_fabric_than_planned_is_7() {
    let place = Place::new();
    let capture = repo("crates/diagnose/tests/cases/nccl/captures/train_2x2");
    let line = format!("transport --fabric efa {}", capture.display());
    place.run(&line).code(7);
    place.run(&line.replace("efa", "tcp")).ok();
    // Silence proves nothing: 0, and 7 only with `--strict`.
    let silent = repo("crates/diagnose/tests/cases/nccl/captures/debug_warn_only");
    let line = format!("transport --fabric efa {}", silent.display());
    place.run(&line).ok();
    place.run(&format!("{line} --strict")).code(7);
}

#[test]
fn a_time_that_is_out_is_124_and_the_job_goes_on() {
    let place = Place::new();
    failing(&place, "[\"sleep\", \"600\"]");
    let done = place.run("submit --wait --timeout 1s fails.toml").code(124);
    assert!(done.err.contains("the job keeps running"), "{}", done.err);
    let handle = done.out;
    place.run(&format!("wait --timeout 1s {handle}")).code(124);
    let jobs = place.run("list -o json").json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs}");
    place.run(&format!("cancel {handle}")).ok();
    place.run(&format!("wait {handle}")).code(1);
}

#[test]
fn an_interrupt_is_130_and_the_job_goes_on() {
    let place = Place::new();
    failing(&place, "[\"sleep\", \"600\"]");
    let handle = place.run("submit fails.toml").ok().out;
    // `timeout` sends the signal once the wait has begun; it is in coreutils.
    let waiting = place.command(["wait", handle.trim()]);
    let command = child::within("timeout", ["--preserve-status", "-s", "INT", "3"], &waiting);
    let done = Done::of(command).code(130);
    assert!(done.err.contains("the job keeps running"), "{}", done.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let script = "{ \"$0\" instances; echo $? >&2; } | head -1";
    let done = Done::of(child::within("sh", ["-c", script], &place.command::<&str>([]))).ok();
    assert_eq!(done.err.trim(), "0");
}
