//! `weftrun bandwidth`: files of a profiler of NCCL.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use weftrun_testkit::ras::Personality;
use weftrun_testkit::{child, skipped};

use crate::place::{Place, repo};

fn recording(name: &str) -> String {
    repo(&format!("crates/nccl/tests/bandwidth/{name}")).display().to_string()
}

#[test]
fn the_late_rank_and_the_bandwidths_are_printed() {
    let place = Place::new();
    let slow = place.run(&format!("bandwidth {}", recording("inspector-2.28.9-slow-plain"))).ok().out;
    assert!(slow.starts_with("rank 1 on vm reaches AllReduce last: the others waited "), "{slow}");
    assert!(slow.contains("communicator 0xb41091393ccf0b: 2 ranks on 1 node"), "{slow}");
    assert!(slow.lines().any(|line| line.contains("AllReduce") && line.contains("64.0 MiB")), "{slow}");
    let ok = place.run(&format!("bandwidth {}/*.jsonl", recording("library-2.28.9-ok"))).ok().out;
    assert!(ok.starts_with("no rank is late\n"), "{ok}");
}

/// What is expected is that of the named instance type; without one it is not known.
#[test]
fn the_expected_bandwidth_is_that_of_the_instance_type() {
    let place = Place::new();
    let files = recording("inspector-2.28.9-slow-plain");
    let row = |text: &str| text.lines().find(|line| line.contains("AllReduce  ")).unwrap().to_owned();
    let unknown = place.run(&format!("bandwidth {files}")).ok().out;
    assert!(row(&unknown).contains(" unknown "), "{unknown}");
    let known = place.run(&format!("bandwidth {files} --instance-type p5.48xlarge")).ok().out;
    assert!(row(&known).contains(" 450 "), "{known}");
    assert!(
        known.contains("expected: 450 (line-rate: one direction of the NVSwitch/NVLink4 900GB/s"),
        "{known}"
    );
    let json = place.run(&format!("bandwidth {files} --instance-type p5.48xlarge -o json")).json();
    let expected = json["expected"].as_array().unwrap();
    assert!(
        expected.iter().any(|one| one["collective"] == "AllReduce"
            && one["basis"] == "line-rate"
            && one["low_gbps"] == 450.0
            && one["communicator"] == json["communicators"][0]["id"]),
        "{json:#}"
    );
    assert_eq!((&json["limit"], &json["step"]), (&"slow".into(), &serde_json::Value::Null));
    let wrong = place.run(&format!("bandwidth {files} --instance-type p5.48xlrage")).code(6);
    assert!(wrong.err.contains("p5.48xlarge"), "{}", wrong.err);
    place.run(&format!("bandwidth {files} --counters")).code(2);
}

#[test]
fn files_without_measurements_are_an_error() {
    let place = Place::new();
    place.write("rank0.log", "step 1\n");
    let none = place.run("bandwidth rank0.log").code(6);
    assert!(none.err.contains("no measurement of NCCL's collectives"), "{}", none.err);
    place.run("bandwidth missing/").code(6);
    place.run("bandwidth").code(2);
}

/// A build by a Rust that cannot make the library says so; every other one writes it.
#[test]
fn the_library_is_written() {
    let place = Place::new();
    let written = place.run("bandwidth --write-library nccl.so");
    if weftrun::profiler::library(std::env::consts::ARCH).is_none() {
        written.code(4);
        return;
    }
    written.ok();
    assert!(std::fs::read(place.path("nccl.so")).unwrap().starts_with(b"\x7fELF"));
    assert!(place.run("bandwidth --write-library -").ok().out.starts_with("\u{7f}ELF"));
}

const JOB: &str =
    "name = \"live\"\nlaunch = \"per-rank\"\nimage = \"train:1\"\ngpus_per_node = 2\nbandwidth = true\n";

fn builds_library() -> bool {
    let builds = weftrun::profiler::library(std::env::consts::ARCH).is_some();
    if !builds {
        skipped("this build lacks the library");
    }
    builds
}

/// Returns the files of the library below a folder.
fn libraries(folder: PathBuf) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let found = entries.map(|entry| entry.unwrap().path()).map(|path| {
        if path.is_dir() { libraries(path) } else { usize::from(path.ends_with("libweftrun-nccl.so")) }
    });
    found.sum()
}

/// Builds a program that calls the library as NCCL does.
fn stub(place: &Place) -> Option<PathBuf> {
    let (source, stub) = (repo("crates/profiler/tests/nccl_stub.c"), place.path("stub"));
    match child::command("gcc").arg("-o").args([&stub, &source]).output() {
        Ok(built) => assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr)),
        Err(_) => {
            skipped("there is no gcc");
            return None;
        }
    }
    Some(stub)
}

#[test]
fn a_running_job_shows_its_bandwidth_and_the_rank_that_comes_last() {
    if !builds_library() {
        return;
    }
    let place = Place::new();
    let Some(stub) = stub(&place) else { return };
    let command = format!(
        "command = [{:?}, \"120\"]\nenv = {{ WEFTRUN_NCCL_MS = \"200\" }}\n",
        stub.display().to_string()
    );
    place.write("job.toml", format!("{JOB}{command}"));
    place.run("submit job.toml -b local").ok();
    let begun = Instant::now();
    let shown = loop {
        let shown = place.run("bandwidth live -b local");
        if shown.out.starts_with("rank 1 on ") || begun.elapsed() > Duration::from_secs(60) {
            break shown.ok().out;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(shown.contains("reaches AllReduce last: the others waited "), "{shown}");
    let why = place.run("why live -b local").out;
    assert!(why.starts_with("running: ") && why.contains("note      rank 1 on "), "{why}");
    let described = place.run("describe live -b local").ok().out;
    assert!(described.contains("note      rank 1 on "), "{described}");
    let logs = place.run("logs live -b local").ok().out;
    assert!(logs.contains("step 1") && !logs.contains("weftrun_nccl"), "{logs}");
    assert!(
        place
            .run("logs live -b local --measurements")
            .ok()
            .out
            .contains("weftrun: NCCL {\"weftrun_nccl\":1,")
    );
    assert_eq!(libraries(place.state()), 1);
    place.run("delete live -b local --yes").ok();
    assert_eq!(libraries(place.state()), 0, "it is removed with the job");
}

/// Measuring ends only where NCCL's service proves by a communicator that it is of this job, and obeys.
#[test]
fn the_measuring_of_a_running_job_is_switched_off() {
    if !builds_library() {
        return;
    }
    let place = Place::new();
    let Some(stub) = stub(&place) else { return };
    let report = |hash: &str| json!({ "nccl_version": "2.32.3", "communicators": [{ "hash": hash, "size": 2, "ranks": [] }] });
    for (name, hashes, control, code, said) in [
        ("off", vec!["0x2a"], "OK\n", 0, "off measures no more: NCCL 2.32.3 has switched its profiler off"),
        ("old", vec!["0x2a"], "", 4, "Unknown command control profiler_mask none"),
        (
            "invalid",
            vec!["0x2a"],
            "ERROR: Invalid profiler mask value 'none'\n",
            4,
            "Invalid profiler mask value",
        ),
        ("other", vec!["0x2b"], "OK\n", 5, "has none of the communicators that were measured"),
        ("between", vec!["0x2a", "0x2b"], "OK\n", 5, "another job's RAS service answered in between"),
    ] {
        let json = hashes.iter().map(|hash| report(hash).to_string()).collect();
        let port = Personality { json, control, ..Personality::default() }.serve();
        let line = format!("vm:7:7 [0] NCCL INFO RAS client listening socket at 127.0.0.1<{port}>");
        let script = format!("echo '{line}'; exec {} 120", stub.display());
        let job = format!("command = [\"sh\", \"-c\", {script:?}]\nenv = {{ WEFTRUN_NCCL_MS = \"200\" }}\n");
        place.write("job.toml", format!("{JOB}{job}").replace("\"live\"", &format!("{name:?}")));
        place.run("submit job.toml -b local").ok();
        let begun = Instant::now();
        let done = loop {
            let done = place.run(&format!("bandwidth {name} --off -b local"));
            if !done.err.contains("no measurement") || begun.elapsed() > Duration::from_secs(60) {
                break done;
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        assert!(done.err.contains(said), "{name}: {}{}", done.out, done.err);
        done.code(code);
        place.run(&format!("delete {name} -b local --yes")).ok();
    }
    place.run("bandwidth live --off --counters -b local").code(2);
    assert!(
        place.run("bandwidth live --off -o json -b local").code(2).err.contains("--off prints text only")
    );
    assert!(place.run("bandwidth live --counters=0s -b local").code(2).err.contains("less than a second"));
    place.run(&format!("bandwidth {} --off", recording("library-2.28.9-ok"))).code(2);
    place.run("submit -b local --name ended --follow -- true").ok();
    assert!(place.run("bandwidth ended --off -b local").code(6).err.contains("a job that has ended"));
}

/// What each backend sends contains the library, or the reason why it is not in it; and no job has it without being asked.
#[test]
fn each_backend_brings_the_library_or_says_why_not() {
    if !builds_library() {
        return;
    }
    let place = Place::new();
    place.configure("[target.two]\nbackend = \"hosts\"\nhosts = [\"a\", \"b\"]\n");
    let job = format!("{JOB}command = [\"train.py\"]\n");
    place.write("job.toml", &job);
    place.write("without.toml", job.replace("bandwidth = true", "bandwidth = false"));
    for (backend, brought) in [
        ("local", "NCCL_PROFILER_PLUGIN"),
        ("slurm", "export NCCL_PROFILER_PLUGIN=\"$weftrun_base.nccl\"/libweftrun-nccl.so"),
        ("two", "export NCCL_PROFILER_PLUGIN=\"$PWD/nccl\"/libweftrun-nccl.so"),
        ("kubeflow --instance-type p5.48xlarge", "name: live-nccl-profiler"),
    ] {
        let with = place.run(&format!("render job.toml -b {backend}")).ok();
        assert!(with.out.contains(brought), "{backend}: {}{}", with.out, with.err);
        let without = place.run(&format!("render without.toml -b {backend}")).ok().out;
        assert!(!without.contains("PROFILER"), "{backend}: {without}");
        assert_eq!(
            place.run(&format!("render without.toml --bandwidth -b {backend}")).ok().out.len(),
            with.out.len()
        );
        let off = format!("render job.toml --no-fabric-rule observe.profiler -b {backend}");
        assert!(!place.run(&off).ok().out.contains("PROFILER"), "{backend}");
    }
    let slurm = place.run("render job.toml -b slurm").out;
    assert!(slurm.contains("rm -rf -- \"$weftrun_base.nccl\""), "{slurm}");
    assert!(slurm.contains("\"$weftrun_base.nccl:$weftrun_base.nccl\""), "the container sees it: {slurm}");
    for (backend, why) in [
        ("kubeflow", "the architecture of the nodes is not known"),
        ("runai", "the API has no object that could hold a library"),
    ] {
        let sent = place.run(&format!("render job.toml -b {backend}")).out;
        assert!(!sent.contains("ALLGATHERV") && !sent.contains("WEFTRUN_NCCL"), "{backend}: {sent}");
        let said = place.run(&format!("plan job.toml -b {backend}"));
        assert!(format!("{}{}", said.out, said.err).contains(why), "{backend}: {}{}", said.out, said.err);
    }
}
