//! Scripts that are carried as they are.

use super::*;

/// A script with more than one launch runs once, never once on each node.
#[test]
fn a_script_of_several_steps_is_kept_whole() {
    for body in [
        "srun hostname\nsrun ./train",
        "for i in 1 2; do srun ./train; done",
        "srun ./train | tee log",
        "srun ./train &\nsrun ./watch &\nwait",
        "bash launch.sh",
        "mpirun -np 16 ./train",
        "srun ./train\ncp -r out /fsx",
        "srun -N 1 ./train",
        "if true; then srun ./train; fi",
        "run() { srun \"$@\"; }\nrun ./train",
    ] {
        let (spec, said) = imported(&format!("{HEAD}{body}\n"));
        let Some(Code::Script { text, .. }) = &spec.code else { panic!("{body}") };
        assert_eq!((spec.launch, spec.roles[0].ranks_per_node), (Launch::Once, Some(1)), "{body}");
        assert!(
            text.ends_with(&format!("{body}\n")) && said.iter().any(|one| one.contains("runs once")),
            "{text}"
        );
    }
    // An `exit` with the launch's result changes nothing; any other last command gives the script another one.
    let (spec, _) = imported(&format!("{HEAD}srun ./train\n# done\nexit $?\n"));
    assert_eq!(spec.roles[0].command, ["./train"]);
    for last in ["echo done", "exit 0", "exit 3", "wait", "true"] {
        let (spec, said) = imported(&format!("{HEAD}srun ./train\n{last}\n"));
        assert_eq!(spec.roles[0].command, ["bash", "job.sh"], "{last}");
        assert!(said.iter().any(|one| one.contains("follows the command")), "{said:?}");
    }
}

/// The options of the first line are those of the script.
#[test]
fn options_of_the_first_line_are_kept() {
    let of = |first: &str, body: &str| imported(&format!("{}{body}", HEAD.replacen("#!/bin/bash", first, 1)));
    let (spec, _) = of("#!/bin/bash -e", "module load cuda\nsrun ./train\n");
    assert_eq!(spec.backend["slurm"]["setup"], serde_json::json!(["module load cuda"]));
    let (spec, _) = of("#!/bin/bash -ex", "./a\nsrun ./train\nsrun ./b\n");
    assert_eq!(spec.roles[0].command, ["bash", "-ex", "job.sh"]);
    let (spec, _) = of("#!/bin/sh", "./a\nsrun ./train\nsrun ./b\n");
    assert_eq!(spec.roles[0].command, ["sh", "job.sh"]);
    let (_, said) = of("#!/bin/bash -u", "cd $FOO\nsrun ./train\n");
    assert!(said.iter().any(|one| one.contains("`set -u`")), "{said:?}");
}
