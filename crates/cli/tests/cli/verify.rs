//! `weftrun verify`: logs of finished runs, and jobs on this machine.

use std::os::unix::fs::PermissionsExt;

use crate::place::{Place, repo};

/// A table of nccl-tests with the bus bandwidth of 2 GiB on two nodes of eight GPUs.
fn table(busbw: &str, wrong: u32) -> String {
    let ranks = |rank| {
        format!(
            "#  Rank {rank:2} Group  0 Pid   4711 on     gpu-{} device  {} [0x53] NVIDIA A100\n",
            rank / 8,
            rank % 8
        )
    };
    format!(
        "# nccl-tests version 2.17.6\n# Collective test starting: all_reduce_perf\n\
         {}\
         #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
           2147483648     536870912     float     sum      -1  51000.0   42.10   {busbw}      {wrong}  51000.0   42.10   {busbw}      0\n",
        (0..16).map(ranks).collect::<String>()
    )
}

/// A job file whose image contains a program that replaces nccl-tests.
fn job(place: &Place, all_reduce: &str) {
    let program = |name: &str, script: &str| {
        let path = place.write(name, format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("bin/all_reduce_perf", all_reduce);
    // A Python without PyTorch.
    program("bin/python3", "exit 1");
    let path = place.path("bin").display().to_string();
    place.write(
        "job.toml",
        &format!("name = \"bench\"\nranks_per_node = 2\ninstance_type = \"p4d.24xlarge\"\nenv = {{ PATH = \"{path}:/usr/bin:/bin\" }}\ncommand = [\"ignored\"]\n"),
    );
}

#[test]
fn a_finished_run_is_judged_by_the_published_figures_of_its_instances() {
    let place = Place::new();
    for (busbw, wrong, verdict, code) in [
        ("78.90", 0, "pass", 0),
        ("20.30", 0, "degraded", 7),
        ("78.90", 3, "fail", 1),
        ("-nan", 0, "fail", 1),
    ] {
        place.write("run.log", &table(busbw, wrong));
        let done = place.run("verify --from run.log --instance-type p4d.24xlarge -o json");
        assert_eq!(done.code, code, "{busbw}: {done:?}");
        let report = done.json();
        assert_eq!(report["verdict"], verdict, "{report}");
        assert_eq!((&report["nodes"], &report["runs"][0]["collective"]), (&2.into(), &"all_reduce".into()));
    }
    // Without the instance type the figures cannot be compared.
    place.write("run.log", &table("20.30", 0));
    let done = place.run("verify --from run.log").ok();
    assert!(done.out.contains("no-reference: the instance type is not known"), "{}", done.out);
    // No figure was published for three nodes.
    let done = place.run("verify --from run.log --instance-type p4d.24xlarge --nodes 3").ok();
    assert!(done.out.contains("16 ranks on 3 nodes"), "{}", done.out);
}

#[test]
fn recorded_runs_are_read_with_all_their_collectives() {
    let place = Place::new();
    let nvlink = repo("tests/cases/verify/h200-nvlink.log");
    let report = place.run(&format!("verify -o json --from {}", nvlink.display())).ok().json();
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["collective"].as_str().unwrap()).collect();
    assert_eq!(names, ["all_reduce", "all_gather", "reduce_scatter", "alltoall"]);
    assert_eq!((&runs[0]["busbw_gbps"], &runs[0]["size"]), (&346.98.into(), &8_589_934_592_u64.into()));
    assert!(runs.iter().all(|run| run["rows"].as_array().unwrap().len() == 14));
}

#[test]
fn a_job_runs_the_benchmark_of_its_image_and_is_judged() {
    let place = Place::new();
    let table_file = place.write("table", table("77.00", 0));
    let expected = "-b 1048576 -e 2147483648 -f 2 -n 5 -g 2";
    job(&place, &format!("[ \"$*\" = '{expected}' ] || exit 9\ncat {}", table_file.display()));
    let run = "verify job.toml --max-size 2GiB --rounds 5 -o json";
    let done = place.run(run);
    let report = done.json();
    // The run used one node, for which no figures were published.
    assert_eq!((done.code, &report["verdict"]), (0, &"no-reference".into()), "{done:?}");
    assert!(report["job"].as_str().unwrap().starts_with("local://"), "{report}");
    assert_eq!(report["runs"][0]["busbw_gbps"], 77.0);
    let done = place.run("verify job.toml --max-size 2GiB --rounds 5").ok();
    assert!(done.out.contains("no-reference") && done.out.contains("     2 GiB"), "{}", done.out);
    assert!(done.err.contains("weftrun-probe {\"host\":"), "{}", done.err);
}

/// The benchmark replaces the job's command.
#[test]
fn a_job_that_launches_something_else_is_measured_too() {
    let place = Place::new();
    let table_file = place.write("table", table("77.00", 0));
    job(&place, &format!("cat {}", table_file.display()));
    for flags in ["--launch torchrun", "--launch per-node"] {
        let done = place.run(&format!("verify job.toml {flags} -o json"));
        assert_eq!(done.code, 0, "{flags}: {done:?}");
    }
    assert!(!place.run("verify --help").ok().out.contains("<CMD>"));
}

#[test]
fn a_benchmark_that_cannot_run_fails_with_what_to_do() {
    let place = Place::new();
    job(&place, "exit 0");
    std::fs::remove_file(place.path("bin/all_reduce_perf")).unwrap();
    // The script also searches the usual folders of nccl-tests.
    if !std::path::Path::new("/opt/nccl-tests/build").exists() {
        let done = place.run("verify job.toml");
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.err.contains("neither PyTorch nor nccl-tests"), "{}", done.err);
        assert!(done.out.contains("fail: the job ended as failed"), "{}", done.out);
    }
    // One program prints no figures, and one fails after printing them.
    job(&place, "echo error while loading shared libraries: libnccl.so.2 >&2; exit 127");
    assert_eq!(place.run("verify job.toml").code, 1);
    job(&place, "echo nothing");
    let done = place.run("verify job.toml");
    assert_eq!(done.code, 1);
    assert!(done.out.contains("there is no table of figures in the log"), "{}", done.out);
}

#[test]
fn a_run_that_takes_too_long_is_cancelled() {
    let place = Place::new();
    job(&place, "sleep 300");
    let done = place.run("verify job.toml --timeout 2s");
    assert_eq!(done.code, 124, "{done:?}");
    assert!(done.err.contains("cancelled") && !done.err.contains("keeps running"), "{}", done.err);
    let listed = place.run("list -a -o json").ok().json();
    assert_ne!(listed["jobs"][0]["phase"], "running", "{listed}");
}

#[test]
fn flags_that_cannot_be_meant_are_refused() {
    let place = Place::new();
    place.write("run.log", table("77.00", 0));
    for (line, said) in [
        ("verify -- train.py", "takes no command"),
        ("verify --min-size 4GiB --max-size 1GiB", "larger"),
        ("verify --max-size much", "not a size"),
        ("verify --collective broadcast", "all-reduce"),
        ("verify --from nosuch.log", "nosuch.log"),
        ("verify --nodes x --from run.log", "--nodes"),
    ] {
        let done = place.run(line);
        assert!(done.code != 0 && done.err.contains(said), "{line}: {done:?}");
    }
}
