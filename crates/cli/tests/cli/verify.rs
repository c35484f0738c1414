//! `weftrun verify`: logs of finished runs, and jobs on this machine.

use std::os::unix::fs::PermissionsExt;

use weftrun::core::fabric::DeviceKind;
use weftrun::core::fabric::Fabric;
use weftrun::verify::Probes;
use weftrun_testkit::fake_runai::{CLIENT_ID, CLIENT_SECRET, FakeRunAi, PROJECT};

use crate::place::{Done, Place, repo};
use weftrun_testkit::child;

/// A table of nccl-tests with the bus bandwidth of 2 GiB on two nodes of eight GPUs.
pub fn table(busbw: &str, wrong: u32) -> String {
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
        format!("name = \"bench\"\nranks_per_node = 2\ninstance_type = \"p4d.24xlarge\"\nenv = {{ PATH = \"{path}:/usr/bin:/bin\" }}\ncommand = [\"ignored\"]\n"),
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
        place.write("run.log", table(busbw, wrong));
        let done = place.run("verify --from run.log --instance-type p4d.24xlarge -o json");
        assert_eq!(done.code, code, "{busbw}: {done:?}");
        let report = done.json();
        assert_eq!(report["verdict"], verdict, "{report}");
        assert_eq!((&report["nodes"], &report["runs"][0]["collective"]), (&2.into(), &"all_reduce".into()));
    }
    // Without the instance type the figures cannot be compared.
    place.write("run.log", table("20.30", 0));
    let done = place.run("verify --from run.log").ok();
    assert!(done.out.contains("no-reference: the instance type is not known"), "{}", done.out);
    // Three nodes cannot have as many ranks each.
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
fn a_machine_without_a_type_is_judged_by_what_its_probe_shows() {
    let place = Place::new();
    let log = |name: &str| repo(&format!("tests/cases/verify/{name}")).display().to_string();
    let done = place.run(&format!("verify --from {}", log("h200-links.log"))).ok();
    assert_eq!(done.out.matches("pass: ").count(), 4, "{}", done.out);
    let said = "345.4 GB/s is 77 % of 450 GB/s, one direction of the NVSwitch/NVLink 900GB/s of each GPU of node with 2 NVIDIA H200";
    assert!(done.out.contains(said), "{}", done.out);
    // Another program had the GPUs: nothing is judged, unless it is wanted.
    let done = place.run(&format!("verify --from {}", log("h200-in-use.log"))).ok();
    assert!(done.out.contains("no-reference: not judged without --force: GPUs 0, 1 of vm"), "{}", done.out);
    let done = place.run(&format!("verify --force -o json --from {}", log("h200-in-use.log")));
    let report = done.json();
    assert_eq!((done.code, &report["verdict"]), (7, &"degraded".into()), "{report}");
    assert_eq!(report["runs"][0]["limit"]["low_gbps"], 450.0, "{report}");
    assert!(
        report["findings"].as_array().unwrap().iter().any(|one| one["code"] == "VERIFY-GPU-IN-USE"),
        "{report}"
    );
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
    // The table is of more ranks than the job has GPUs.
    assert_eq!((done.code, &report["verdict"]), (0, &"no-reference".into()), "{done:?}");
    assert!(report["job"].as_str().unwrap().starts_with("local://"), "{report}");
    assert_eq!(report["runs"][0]["busbw_gbps"], 77.0);
    let done = place.run("verify job.toml --max-size 2GiB --rounds 5").ok();
    assert!(done.out.contains("no-reference") && done.out.contains("     2 GiB"), "{}", done.out);
    assert!(done.err.contains("weftrun-probe {\"host\":"), "{}", done.err);
}

/// The benchmark's script looks for every fabric, and is evidence of none.
#[test]
fn the_benchmark_is_no_evidence_of_a_fabric() {
    let place = Place::new();
    let done = place.run("verify -b local --nodes 2 -g 8 --max-size 1MiB");
    assert!(
        !done.err.contains("evidence of") && done.err.contains("skipped (fabric-unknown)"),
        "{}",
        done.err
    );
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

/// On plain hosts the ranks of `mpirun` have torchrun's variables as well.
#[test]
fn a_rank_of_mpirun_runs_nccl_tests_whatever_else_is_set() {
    let place = Place::new();
    job(&place, "echo \"the benchmark of rank $OMPI_COMM_WORLD_RANK\"");
    let ran = |mpi: bool| {
        let mut command = place.program("sh");
        command.arg(repo("crates/verify/data/verify/verify.sh")).args(["all_reduce", "1024", "2048", "1"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
        // A process that is not the first of its node reports nothing of it.
        for (name, value) in [("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4"), ("NNODES", "2")] {
            command.env(name, value);
        }
        if mpi {
            command.env("OMPI_COMM_WORLD_RANK", "1");
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(ran(true), (Some(0), "the benchmark of rank 1\n".to_owned()));
    assert_eq!(ran(false), (Some(3), String::new()), "nobody started it as MPI");
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

/// One of three runs is slower than the others were, and the node that only it had is the first of the history.
#[test]
fn a_run_is_compared_with_the_kept_ones_of_its_target() {
    let place = Place::new();
    let run = |busbw: &str, baseline: &str| {
        place.write("run.log", table(busbw, 0));
        place.run(&format!("verify --from run.log --baseline {baseline}"))
    };
    let first = run("78.00", "compare");
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.err.contains("VERIFY-NO-EARLIER-RUN"), "{}", first.err);
    for busbw in ["78.00", "77.60", "78.30", "78.10"] {
        assert_eq!(run(busbw, "save").code, 0);
    }
    let again = run("78.10", "save");
    assert!(again.code != 0 && again.err.contains("exactly these figures"), "{again:?}");
    let slower = run("70.00", "compare,save");
    assert_eq!(slower.code, 7, "{slower:?}");
    assert!(
        slower.out.contains("degraded: all_reduce of 2 GiB is slower than before: 70.0 GB/s, 90 %"),
        "{}",
        slower.out
    );
    assert!(slower.err.contains("is not kept"), "{}", slower.err);
    let failed = run("-nan", "save");
    assert!(failed.code == 2 && failed.err.contains("not kept"), "{failed:?}");
    assert_eq!(run("77.00", "compare,save").code, 0);
    // What is no run is left out.
    let file = place.state().join("history/local.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("{lines}{{}}\n")).unwrap();
    let history = place.run("verify --history -o json").ok().json();
    assert_eq!(history["runs"].as_array().unwrap().len(), 5, "{history:#}");
    assert_eq!(history["runs"][4]["figures"][0]["busbw"], 77.0);
    assert!(
        place.run("verify --history -b slurm").ok().out.starts_with("slurm: 0 kept runs"),
        "each target has its own"
    );
    assert!(place.run("verify --history").ok().out.starts_with("local: 5 kept runs\n"));
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

/// The page opens from disk, and shows the curve and the published range.
#[test]
fn the_page_has_the_verdict_the_curve_and_the_rows() {
    let place = Place::new();
    let row = "1073741824 268435456 float sum -1 28000.0 38.34 19.10 0 28000.0 38.34 19.10 0\n";
    place.write("run.log", table("20.30", 0) + row);
    let done = place.run("verify --from run.log --instance-type p4d.24xlarge -o html");
    assert_eq!(done.code, 7, "{done:?}");
    for part in ["class=\"degraded\">degraded", "<svg", "class=\"expected\"", "<td>2 GiB</td>", "https://"] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    assert!(!done.out.contains("<script") && done.out.contains("default-src 'none'"), "{}", done.out);
    // Text of the log is escaped.
    let hostile = table("20.30", 0)
        + "weftrun-probe {\"host\":\"a\",\"driver\":\"<script>alert(1)</script>\"}\nweftrun-probe {\"host\":\"b<img>\"}\n";
    place.write("run.log", hostile);
    let done = place.run("verify --from run.log -o html");
    assert!(!done.out.contains("<script") && !done.out.contains("<img>"), "{}", done.out);
    assert!(done.out.contains("alert(1)"), "{}", done.out);
    assert_eq!(place.run("verify --from run.log -o sarif").code, 2);
}

/// Logs with single figures that are wrong or no numbers, and tables of old versions.
#[test]
fn wrong_results_of_old_versions_fail() {
    let place = Place::new();
    let log = |row: &str| {
        format!(
            "# size count type redop time algbw busbw error time algbw busbw error\n2147483648 536870912 {row}\n"
        )
    };
    for (row, code) in [
        ("float sum 51000.0 42.10 78.90 2e-07 51000.0 42.10 78.90 0e+00", 0),
        ("float sum 51000.0 42.10 78.90 5e-04 51000.0 42.10 78.90 0e+00", 1),
        ("half sum 51000.0 42.10 78.90 5e-04 51000.0 42.10 78.90 0e+00", 0),
        ("float sum 51000.0 42.10 78.90 nan 51000.0 42.10 78.90 0e+00", 1),
        ("float sum inf 42.10 78.90 0e+00 51000.0 42.10 78.90 0e+00", 1),
    ] {
        place.write("run.log", log(row));
        let done = place.run("verify --from run.log");
        assert_eq!(done.code, code, "{row}: {done:?}");
    }
    // The line is that of the file.
    place.write("run.log", "a line\n".repeat(7) + &log("float sum 51000.0 42.10 78.90 5e-04"));
    assert!(place.run("verify --from run.log").out.contains("(line 9)"));
    // Programs without MPI each run on their own.
    let alone = "#  Rank  0 Group  0 Pid   4711 on gpu-a device  0 [0x53] NVIDIA A100\n\
                 #  Rank  0 Group  0 Pid   4711 on gpu-b device  0 [0x53] NVIDIA A100\n";
    place.write("run.log", alone.to_owned() + &log("float sum 51000.0 42.10 0.00 0e+00"));
    let done = place.run("verify --from run.log");
    assert!(done.code == 1 && done.out.contains("MPI=1"), "{done:?}");
}

#[test]
fn the_probe_alone_prints_what_the_nodes_have() {
    let place = Place::new();
    place.write("job.toml", "name = \"look\"\nnodes = 2\ncommand = [\"ignored\"]\n");
    let report = place.run("probe job.toml -o json").ok().json();
    let node = &report["nodes"][0];
    assert!(node["host"].is_string() && node["facts"]["kernel"].is_string(), "{report}");
    assert!(node["facts"]["open_files"].is_string() && node["facts"]["shm_kib"].is_string(), "{report}");
    let done = place.run("probe --nodes 1").ok();
    assert!(done.out.contains("1 node ") && done.out.contains("kernel"), "{}", done.out);
    let done = place.run("probe job.toml -- train.py");
    assert!(done.code == 2 && done.err.contains("takes no command"), "{done:?}");
}

/// The nodes of a local job are processes of this machine.
#[test]
fn nodes_of_a_local_job_cannot_be_searched() {
    let place = Place::new();
    job(&place, "exit 0");
    let done = place.run("verify job.toml --bisect");
    assert_eq!(done.code, 4, "{done:?}");
    assert!(done.err.contains("this machine") && done.err.contains("omit --bisect"), "{}", done.err);
    assert_eq!(place.run("list -a -o json").ok().json()["jobs"].as_array().map(Vec::len), Some(0));
}

/// The probe reads the devices of a node with any shell of its image.
#[test]
fn the_probe_runs_in_each_shell_and_names_the_devices() {
    let place = Place::new();
    let port = |device: &str, driver: &str, link: &str, state: &str| {
        let base = format!("sys/class/infiniband/{device}");
        let file = |name: &str, text: &str| place.write(&format!("{base}/{name}"), format!("{text}\n"));
        file("ports/1/link_layer", link);
        file("ports/1/state", state);
        file("ports/1/rate", "400 Gb/sec (4X NDR)");
        file("ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001");
        file("ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
        file("ports/1/gid_attrs/types/0", "RoCE v2");
        file("ports/1/counters/port_xmit_data", "17");
        file("ports/1/counters/symbol_error", "0");
        file("fw_ver", "28.39.1002");
        std::fs::create_dir_all(place.path(&format!("{base}/device"))).unwrap();
        std::os::unix::fs::symlink(
            format!("../../drivers/{driver}"),
            place.path(&format!("{base}/device/driver")),
        )
        .unwrap();
    };
    port("mlx5_0", "mlx5_core", "InfiniBand", "4: ACTIVE");
    port("mlx5_1", "mlx5_core", "Ethernet", "4: ACTIVE");
    port("mlx5_2", "mlx5_core", "Ethernet", "1: DOWN");
    port("rdmap79s0", "efa", "Unspecified", "4: ACTIVE");
    place.write("sys/class/cxi/cxi0/number", "0\n");
    let script = std::fs::read_to_string(repo("crates/verify/data/verify/verify.sh")).unwrap();
    let script = script.replace("/sys/", &format!("{}/", place.path("sys").display()));
    let script = place.write("verify.sh", script);
    for shell in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
        let run = child::command(shell[0]).args(&shell[1..]).arg(&script).arg("none").output();
        let Ok(output) = run else {
            weftrun_testkit::skipped(format_args!("{shell:?} is not installed"));
            continue;
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{shell:?}: {output:?}");
        let mut probes = Probes::default();
        probes.read(&output.stdout);
        let host = probes.hosts().next().unwrap_or_else(|| panic!("{shell:?}: {output:?}")).to_owned();
        let devices = probes.devices(&host);
        let kinds: Vec<_> = devices.iter().map(|device| (device.device.as_str(), device.kind)).collect();
        assert_eq!(
            kinds,
            [
                ("cxi0", DeviceKind::Slingshot),
                ("mlx5_0:1", DeviceKind::InfiniBand),
                ("mlx5_1:1", DeviceKind::Roce),
                ("mlx5_2:1", DeviceKind::Roce),
                ("rdmap79s0:1", DeviceKind::Efa),
            ],
            "{shell:?}"
        );
        assert_eq!(
            (devices[1].firmware.as_str(), devices[1].gids.as_str()),
            ("28.39.1002", "1 RoCE v2;"),
            "{shell:?}"
        );
        let mut fabrics: Vec<Fabric> = probes.fabrics().into_iter().map(|(fabric, _)| fabric).collect();
        fabrics.sort_by_key(|fabric| fabric.as_str());
        assert_eq!(fabrics, [Fabric::Efa, Fabric::InfiniBand, Fabric::Roce], "{shell:?}");
        assert_eq!(probes.findings(), [], "{shell:?}");
    }
}

/// Ctrl-C cancels the job before weftrun ends.
#[test]
fn an_interrupted_run_leaves_no_job() {
    let place = Place::new();
    job(&place, "echo begun; sleep 300");
    let mut child =
        place.command(["verify", "job.toml"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let began = std::time::Instant::now();
    let running = || {
        let listed = place.run("list -a -o json").ok().json();
        listed["jobs"].as_array().into_iter().flatten().any(|job| job["phase"] == "running")
    };
    while !running() {
        assert!(began.elapsed().as_secs() < 60, "the job does not start");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let stopped = child::command("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    while running() {
        assert!(began.elapsed().as_secs() < 90, "the job still runs");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Pods of the control plane's stand-in are processes of this machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_run_ai_is_measured_and_probed() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let place = Place::new();
    place.configure(&format!(
        "[target.nlp]\nbackend = \"runai\"\nproject = \"{PROJECT}\"\nurl = \"{}\"\nclient-id = \"{CLIENT_ID}\"\n\
         client-secret-env = \"SECRET\"\npoll-seconds = 1\n",
        fake.url()
    ));
    let table_file = place.write("table", table("77.00", 0));
    let python = place.write(
        "bin/python3",
        format!(
            "#!/bin/sh\n[ \"$2\" = \"import torch\" ] && exit 0\n[ \"$RANK\" = 0 ] && exec cat {}\nexit 0\n",
            table_file.display()
        ),
    );
    std::fs::set_permissions(python, std::fs::Permissions::from_mode(0o755)).unwrap();
    place.write(
        "job.toml",
        format!(
            "name = \"bench\"\nimage = \"example.test/trainer:1\"\nnodes = 2\ngpus_per_node = 8\nranks_per_node = 1\n\
             instance_type = \"p4d.24xlarge\"\nfabric = \"off\"\nenv = {{ PATH = \"{}:/usr/bin:/bin\" }}\ncommand = [\"replaced\"]\n",
            place.path("bin").display()
        ),
    );
    let run = |line: &str| {
        let mut command = place.command(line.split_whitespace());
        command.env("SECRET", CLIENT_SECRET);
        Done::of(command)
    };
    let done = run("verify -b nlp job.toml -o json");
    assert_eq!(done.code, 0, "{done:?}");
    let report = done.json();
    assert_eq!(
        (&report["verdict"], &report["runs"][0]["busbw_gbps"]),
        (&"pass".into(), &77.0.into()),
        "{report}"
    );
    let report = run("probe -b nlp job.toml --name-suffix -o json").ok().json();
    assert!(report["nodes"][0]["facts"]["kernel"].is_string(), "{report}");
    let done = run("verify -b nlp job.toml --bisect --name-suffix");
    assert!(done.code == 4 && done.err.contains("node pools"), "{done:?}");
}
