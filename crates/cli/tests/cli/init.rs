//! `init` prompts on a terminal, and accepts flags in a script.

use crate::place::{Done, Place};

#[test]
fn in_a_script_flags_answer() {
    let place = Place::new();
    let flags =
        "--name llama --nodes 4 --instance-type p5.48xlarge --launch torchrun --fabric efa --image img";
    let done = place.run(&format!("init {flags} job.toml -- train.py --steps 3")).ok();
    assert!(done.err.contains("weftrun plan job.toml"), "{}", done.err);
    let text = std::fs::read_to_string(place.path("job.toml")).unwrap();
    assert!(text.lines().filter(|line| line.trim_start().starts_with('#')).count() > 10, "it is commented");
    let plan = place.run("plan -o json job.toml --profile dgxc --memory 1Ti").ok().json();
    assert_eq!((&plan["name"], &plan["fabric"]), (&"llama".into(), &"efa".into()));
    assert!(place.run("init job.toml").code(4).err.contains("--force"));
    place.run("init --force job.toml").ok();
    // Without a file it is data; `-` is stdout, as everywhere.
    assert_eq!(place.run("init").ok().out, std::fs::read_to_string(place.path("job.toml")).unwrap());
    assert_eq!(place.run("init -").ok().out, std::fs::read_to_string(place.path("job.toml")).unwrap());
    assert!(!place.path("-").exists());
}

#[test]
fn a_wrong_answer_is_told_before_anything_is_written() {
    let place = Place::new();
    let done = place.run("init --name Not_A_Name job.toml").code(3);
    assert!(done.err.contains("Not_A_Name"), "{}", done.err);
    assert!(!place.path("job.toml").exists());
}

#[test]
fn on_a_terminal_it_asks() {
    let place = Place::new();
    if place.program("script").arg("--version").output().is_err() {
        weftrun_testkit::skipped("util-linux's script, which makes a terminal, is not there");
        return;
    }
    place.write("answers", "asked\n\np5.48xlarge\n3\nefa\ngo.py --lr 1\n");
    // The answers are sent without waiting for each prompt: a terminal's line buffer keeps them.
    let init = place.command(["init", "job.toml"]);
    let line = format!("{} init job.toml", init.get_program().display());
    let mut command = place.program("sh");
    command.args(["-c", "{ cat answers; sleep 5; } | script -qec \"$0\" /dev/null"]).arg(line);
    command.env("TERM", "dumb");
    let done = Done::of(command).ok();
    for question in ["name of the job", "container image", "instance type", "GPU nodes", "fabric", "script"] {
        assert!(done.out.contains(question), "`{question}` was not asked:\n{}", done.out);
    }
    let text = std::fs::read_to_string(place.path("job.toml")).unwrap();
    for said in ["name = \"asked\"", "nodes = 3", "gpus_per_node = 8", "\"go.py\", \"--lr\", \"1\""] {
        assert!(text.contains(said), "`{said}` is not in:\n{text}");
    }
    place.run("plan job.toml --image i --memory 1Ti").ok();
}
