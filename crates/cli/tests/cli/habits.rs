//! What people type because other tools have it: aliases, `help`, several jobs at once, dry runs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::place::{Done, Place};

fn submitted(place: &Place, name: &str, command: &str) -> String {
    place.write(
        &format!("{name}.toml"),
        format!("name = \"{name}\"\nlaunch = \"once\"\ncommand = [\"sh\", \"-c\", \"{command}\"]\n"),
    );
    place.run(&format!("submit -q {name}.toml")).ok().out.trim().to_owned()
}

#[test]
fn version_help_and_aliases() {
    let place = Place::new();
    assert_eq!(place.run("version").ok().out, place.run("--version").ok().out);
    assert!(place.run("help submit").ok().out.starts_with("Plan a job, print what changes, submit it"));
    for (alias, verb) in
        [("ls", "list"), ("ps", "list"), ("rm", "delete"), ("status", "describe"), ("run", "submit")]
    {
        let own = |verb: &str| place.run(&format!("{verb} --help")).ok().out;
        assert_eq!(own(alias), own(verb), "{alias}");
    }
}

/// kubectl runs what is named `kubectl-NAME` for `kubectl NAME`.
#[test]
fn a_link_makes_it_a_plugin_of_kubectl() {
    let place = Place::new();
    let link = place.path("kubectl-weftrun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weftrun"), &link).unwrap();
    let run = |args: &[&str]| {
        Done::of({
            let mut command = place.program(&link);
            command.args(args);
            command
        })
    };
    assert!(run(&["lint", "--help"]).ok().out.contains("Usage: kubectl weftrun lint"));
    assert!(run(&["lint", "--nope"]).code(2).err.contains("Usage: kubectl weftrun lint"));
    assert_eq!(run(&["version"]).ok().out, place.run("version").ok().out);
}

#[test]
fn a_job_file_in_place_of_a_verb_gets_a_hint() {
    let place = Place::new();
    place.write("job.toml", "name = \"x\"\ncommand = [\"true\"]\n");
    assert!(place.run("job.toml").code(2).err.contains("weftrun submit job.toml"));
    assert!(!place.run("jobb.toml").code(2).err.contains("weftrun submit"));
}

/// Two ended jobs of one name are two sets of logs.
#[test]
fn a_name_of_two_jobs_is_refused_by_actions_and_both_are_listed() {
    let place = Place::new();
    let first = submitted(&place, "twice", "true");
    place.run(&format!("wait {first}")).ok();
    let second = submitted(&place, "twice", "true");
    place.run(&format!("wait {second}")).ok();
    for line in ["delete --yes twice", "delete --dry-run twice", "cancel twice"] {
        let done = place.run(line).code(2);
        assert!(done.err.contains(&first) && done.err.contains(&second), "{line}: {}", done.err);
    }
    let all = place.run("list --all -o name").ok().out;
    assert_eq!(all.lines().count(), 2, "{all}");
    // A verb that changes nothing takes the newest.
    assert!(place.run("describe twice").ok().out.contains(second.rsplit('/').next().unwrap()));
    let third = submitted(&place, "twice", "sleep 600");
    let done = place.run("cancel twice twice").ok();
    assert_eq!(done.err.matches(&third).count(), 1, "the one that runs is meant, once: {}", done.err);
    place.run(&format!("delete --yes {first}")).ok();
}

#[test]
fn the_list_follows_jobs_has_more_columns_and_all_targets() {
    let place = Place::new();
    let wide = place.run("list --all -o wide").ok().out;
    assert!(wide.contains("QUEUE") && wide.contains("EXIT"), "{wide}");
    assert!(place.run("plan -o wide").code(2).err.contains("`list`"));
    // A target that does not answer hides no job of another, and is not passed over in silence.
    place.write("away.toml", "[target.away]\nbackend = \"slurm\"\nssh = \"host.invalid\"\n");
    let job = submitted(&place, "here", "sleep 600");
    let all = place.run("--config away.toml list -A -o name");
    assert_eq!(all.code, 5, "{}", all.err);
    assert!(all.out.contains(&job) && all.err.contains("away: "), "{} {}", all.out, all.err);
    let mut watch = place.command(["list", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("HANDLE"));
    assert!(lines.next().unwrap().contains("running"));
    place.run("cancel here").ok();
    assert!(lines.any(|line| line.contains(&job) && line.contains("cancelled")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn one_value_of_the_configuration_and_its_editor() {
    let place = Place::new();
    place.run("config set target.rack.backend slurm").ok();
    place.run("config set target.rack.ssh head").ok();
    assert_eq!(place.run("config get target.rack.ssh").ok().out, "head\n");
    assert_eq!(place.run("config get target.rack").ok().out.lines().count(), 2);
    assert!(place.run("config get target.rack.ss").code(6).err.contains("target.rack.ssh"));
    let edit = |script: &str| {
        let editor = format!("sh {}", place.write("editor.sh", script).display());
        Done::of({
            let mut command = place.command(["config", "edit"]);
            command.env("EDITOR", editor).env_remove("VISUAL");
            command
        })
    };
    edit("true").ok();
    let wrong = edit("echo 'job = [' > \"$1\"").code(3).err;
    assert!(wrong.contains("kept in"), "{wrong}");
    assert_eq!(place.run("config get target.rack.ssh").ok().out, "head\n", "nothing was changed");
    assert!(edit("exit 3").code(2).err.contains("nothing was changed"));
    edit("echo 'default_target = \"rack\"' > \"$1\"").ok();
    assert!(place.run("config list").ok().out.starts_with("default_target = "));
    // A wrong file can be mended.
    let file = place.run("config path").ok().out.trim().to_owned();
    std::fs::write(&file, "job = [").unwrap();
    place.run("list").code(3);
    edit("echo > \"$1\"").ok();
    place.run("list").ok();
}

#[test]
fn a_dry_run_changes_nothing() {
    let place = Place::new();
    let job = submitted(&place, "stays", "sleep 600");
    assert!(place.run("cancel --dry-run stays").ok().out.contains("would be cancelled"));
    assert!(place.run("rm --dry-run stays").ok().out.contains("would be deleted"));
    assert!(place.run("cancel --dry-run --signal usr1 stays").ok().out.contains("would be signalled"));
    assert!(place.run("cancel --dry-run --signal UST1 stays").code(2).err.contains("one of HUP, INT"));
    place.run("cancel --dry-run -o json stays").code(2);
    assert_eq!(place.run("ls --phase running -o name").ok().out.trim(), job);
}

#[test]
fn list_selects_phases() {
    let place = Place::new();
    let failed = submitted(&place, "fails", "exit 3");
    place.run(&format!("wait {failed}")).code(1);
    let running = submitted(&place, "runs", "sleep 600");
    assert_eq!(place.run("list --phase failed -o name").ok().out.trim(), failed);
    let both = place.run("list --phase failed --phase running -o name").ok().out;
    assert!(both.contains(&failed) && both.contains(&running));
    assert!(place.run("list --phase runing").code(2).err.contains("did you mean `running`?"));
    place.run("transport -o name fails").code(2);
    place.run("wait -o name fails").code(2);
}

#[test]
fn list_selects_labels_where_the_backend_has_them() {
    let place = Place::new();
    let labelled = |name: &str, labels: &str| {
        place
            .write("job.toml", format!("name = \"{name}\"\ncommand = [\"true\"]\nlabels = {{ {labels} }}\n"));
        place.run("submit job.toml --wait").ok();
    };
    labelled("ours", "team = \"nlp\", tier = \"a\"");
    labelled("theirs", "team = \"vision\", tier = \"a\"");
    let names = |options: &str| {
        let jobs = place.run(&format!("list --all -o json {options}")).ok().json();
        let name = |job: &serde_json::Value| job["name"].as_str().unwrap().to_owned();
        jobs["jobs"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("-l tier=a"), ["theirs", "ours"]);
    assert_eq!(names("-l tier=a --limit 1 --label team=nlp"), ["ours"]);
    assert_eq!(names("-l team=nlp,tier=a"), ["ours"]);
    assert_eq!(names("-l team=nlp,tier=b"), [""; 0]);
    assert!(place.run("list --all -o wide").ok().out.contains("team=nlp,tier=a"));
    assert!(place.run("list -l team=nlp").ok().err.contains("no job with these labels"));
    assert!(place.run("list -l team").code(2).err.contains("KEY=VALUE"));
    // Refused before anything is asked of the cluster, also by the list of all targets.
    place.configure("[target.rack]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\n");
    for options in ["", "--watch"] {
        let refused = place.run(&format!("list -b rack -l team=nlp {options}"));
        assert!(refused.err.contains("backend `runai` lists jobs without their labels"), "{}", refused.err);
        assert_ne!(refused.code, 5, "{}", refused.err);
    }
    let all = place.run("list -A --all -l team=nlp -o name");
    assert!(all.out.contains("ours") && all.err.contains("rack: "), "{} {}", all.out, all.err);
}

#[test]
fn wait_takes_several_jobs() {
    let place = Place::new();
    let (good, bad) = (submitted(&place, "good", "true"), submitted(&place, "bad", "exit 2"));
    let done = place.run(&format!("wait {good} {bad}")).code(1);
    assert!(done.err.contains("good") && done.err.contains("bad"), "{}", done.err);
    place.run(&format!("wait {good}")).ok();
    let lines = place.run(&format!("wait {good} {bad} -o json")).code(1);
    assert_eq!(lines.lines().len(), 2, "{}", lines.out);
    let long = submitted(&place, "long", "sleep 600");
    place.run(&format!("wait --any {long} {good}")).ok();
    place.run(&format!("wait --timeout 1s {long} {good}")).code(124);
}
