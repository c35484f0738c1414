//! Limits of the system, and jobs that would need more than one machine has.

use crate::place::{Done, Place};
use weftrun_testkit::child;

/// Runs a command line after a command of the shell that limits it.
fn limited(place: &Place, limit: &str, line: &str) -> Done {
    let inner = place.command(shlex::split(line).unwrap());
    Done::of(child::within("bash", ["-c", &format!("{limit} && exec \"$0\" \"$@\"")], &inner))
}

#[test]
fn a_local_job_that_no_machine_can_start_is_refused_before_it_is_built() {
    let place = Place::new();
    let job = |launch: &str, nodes: u32, gpus: u32, command: &str| {
        format!(
            "name = \"big\"\nlaunch = \"{launch}\"\nnodes = {nodes}\ngpus_per_node = {gpus}\ncommand = [{command}]\n"
        )
    };
    let long = format!("\"./train\", \"{}\"", "x".repeat(500_000));
    let roles: String = (0..30)
        .map(|role| format!("[roles.r{role}]\nnodes = 90000\ngpus_per_node = 1000\ncommand = [\"./t\"]\n"))
        .collect();
    let shapes = [
        (job("per-rank", 10_000, 1000, "\"./train\""), "10000000 processes", "at most 10000"),
        (job("per-rank", 100_000, 1024, "\"./train\""), "102400000 processes", "at most 10000"),
        (job("torchrun", 10_000, 1000, "\"train.py\""), "10000000 processes", "at most 10000"),
        (job("mpi", 10_000, 1000, "\"./train\""), "10000000 processes", "at most 10000"),
        (job("per-node", 100_000, 8, "\"./train\""), "100000 processes", "at most 10000"),
        (job("per-rank", 1000, 8, &long), "8000 processes", "bytes"),
        (format!("name = \"big\"\nlaunch = \"per-rank\"\n{roles}"), "2700000 nodes", "at most 100000"),
    ];
    for (text, part, limit) in shapes {
        place.write("job.toml", text);
        for verb in ["plan -b local", "render -b local", "submit -b local", "submit --dry-run -b local"] {
            // 1.5 GB of addresses, of which the program and its threads take a third.
            let ran = limited(&place, "ulimit -v 1500000 && ulimit -t 20", &format!("{verb} job.toml"));
            let why = format!("{verb}: {}", ran.err.chars().take(2000).collect::<String>());
            assert_eq!(ran.code, 3, "{why}");
            let said = format!("{}{}", ran.out, ran.err);
            assert!(said.contains(part) && said.contains(limit), "{why}");
            assert!(said.contains("reduce `nodes`"), "{why}");
        }
    }
}

#[test]
fn the_largest_local_job_is_rendered_in_little_memory() {
    let place = Place::new();
    place.write(
        "job.toml",
        "name = \"large\"\nlaunch = \"per-rank\"\nnodes = 10\ngpus_per_node = 1000\ncommand = [\"./train\"]\n",
    );
    let ran = limited(&place, "ulimit -u unlimited; ulimit -v 1500000", "render -b local job.toml");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.len() < 64 << 20, "{}", ran.out.len());
}

#[test]
fn few_file_descriptors_are_an_error_in_plain_words() {
    let place = Place::new();
    place.write("job.toml", "name = \"a\"\nnodes = 1\ngpus_per_node = 1\ncommand = [\"true\"]\n");
    place.write("job.sbatch", "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun ./train\n");
    place.write("logs/rank0.log", "h0:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n");
    place.configure("[target.k]\nbackend = \"kubeflow\"\n[target.s]\nbackend = \"slurm\"\nrest = \"http://127.0.0.1:9\"\n");
    let verbs = [
        "version",
        "plan -b local job.toml",
        "render -b local job.toml",
        "render -b k job.toml",
        "lint job.sbatch",
        "mutate job.sbatch",
        "import sbatch job.sbatch",
        "submit -b local job.toml",
        "submit -b k job.toml",
        "list",
        "list -b k",
        "list -b s",
        "logs local:a",
        "why local:a",
        "why logs",
        "transport logs",
        "transport -f logs/rank0.log",
        "report logs -o json",
        "describe local:a",
        "cancel local:a",
        "wait local:a",
        "doctor",
        "doctor -b k",
        "health 127.0.0.1:9",
        "config show",
        "backends",
        "demo",
        "tui",
        "tui --replay logs",
    ];
    for verb in verbs {
        for files in [4, 5, 6, 7, 8, 10, 12] {
            let ran = limited(&place, &format!("ulimit -n {files} && ulimit -t 30"), verb);
            let why = format!("{verb}, {files} files, exit {}: {}", ran.code, ran.err);
            assert!(!ran.err.contains("panicked") && !ran.err.contains("bug in weftrun"), "{why}");
            // 127: the dynamic linker cannot open a library.
            assert!((0..=7).contains(&ran.code) || [124, 127].contains(&ran.code), "{why}");
            assert!(ran.code == 0 || !ran.err.trim().is_empty() || !ran.out.trim().is_empty(), "{why}");
        }
    }
}

/// A library that sets the time of the programs that it is loaded into; none without a C compiler.
fn clock(place: &Place) -> Option<std::path::PathBuf> {
    let source = place.write(
        "clock.c",
        "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *at) {\n\
         long done = syscall(SYS_clock_gettime, id, at);\n\
         if (id == CLOCK_REALTIME) at->tv_sec = atoll(getenv(\"CLOCK\"));\n\
         return (int)done;\n}\n",
    );
    let library = place.path("clock.so");
    let made = place.program("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    made.is_ok_and(|status| status.success()).then_some(library)
}

#[test]
fn a_clock_outside_of_all_calendars_ends_no_verb() {
    let place = Place::new();
    let Some(library) = clock(&place) else {
        weftrun_testkit::skipped("there is no C compiler, with which the test sets a clock");
        return;
    };
    place.write("job.toml", "name = \"a\"\nnodes = 1\ngpus_per_node = 0\ncommand = [\"true\"]\n");
    place.write("logs/rank0.log", "h0:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n");
    place.write("kube", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}]\nusers: [{name: u, user: {token: x}}]\n");
    place.configure("[target.k]\nbackend = \"kubeflow\"\nkubeconfig = \"kube\"\n[target.s]\nbackend = \"slurm\"\nrest = \"https://127.0.0.1:9\"\n");
    // 287,000 and 10,000 after the epoch, 1960, before year 1, and the ends of what a number of seconds holds.
    for seconds in
        [9_000_000_000_000_i64, 253_402_300_800, -315_000_000, -70_000_000_000, i64::MAX / 2, i64::MIN / 2]
    {
        let verbs = [
            "version",
            "plan job.toml",
            "plan -b k job.toml",
            "submit --wait --again job.toml",
            "submit --again -b k job.toml",
            "list -a",
            "list -b k",
            "list -b s",
            "logs local:a --since 5m",
            "describe local:a",
            "why logs",
            "why local:a",
            "transport logs",
            "report logs -o json",
            "doctor -b k",
            "init --yes",
        ];
        for verb in verbs {
            let mut command = place.command(shlex::split(verb).unwrap());
            command.env("LD_PRELOAD", &library).env("CLOCK", seconds.to_string());
            let ran = Done::of(command);
            let why = format!("{verb} at {seconds}, exit {}: {}", ran.code, ran.err);
            assert!(!ran.err.contains("panicked") && (0..=7).contains(&ran.code), "{why}");
            if verb.starts_with("submit --wait") {
                assert_eq!(ran.code, 0, "{why}");
            }
        }
    }
}
