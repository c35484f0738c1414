//! `weftrun transport`: every kind of input gives one map, and what it prints can be read by programs, people, browsers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::place::{Done, Place};
use weftrun_testkit::child;

/// A run of four ranks on two simulated nodes over sockets; for its origin see
/// `diagnose/tests/cases/nccl/captures/README.md`.
fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/tests/cases/nccl/captures").join(name)
}

fn weftrun() -> Command {
    let mut command = child::command(env!("CARGO_BIN_EXE_weftrun"));
    command.env("NO_COLOR", "1");
    command
}

pub fn transport(arguments: &[&str], folder: &Path) -> Output {
    weftrun().arg("transport").args(arguments).current_dir(folder).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr));
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What must not depend on how the bytes came in: everything but the sources' names.
fn essence(report: &Value) -> (Value, Value, Value, u64) {
    let lines = report["totals"]["lines"].as_u64().unwrap();
    (report["verdict"].clone(), report["pairs"].clone(), report["communicators"].clone(), lines)
}

/// A folder with the capture's logs under other names.
fn folder_of(name: &str, mut put: impl FnMut(&Path, u32, &[u8])) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        let bytes = fs::read(capture(name).join(format!("rank{rank}.log"))).unwrap();
        put(folder.path(), rank, &bytes);
    }
    folder
}

pub fn plain(name: &str) -> TempDir {
    folder_of(name, |folder, rank, bytes| fs::write(folder.join(format!("rank{rank}.log")), bytes).unwrap())
}

#[test]
fn a_folder_a_pattern_and_compressed_files_give_one_map() {
    let folder = plain("socket_2x2");
    let report = json(&transport(&["-o", "json", "."], folder.path()));
    assert_eq!(report["schema"], "weftrun/v1");
    assert_eq!(report["verdict"]["fabric"], "socket");
    assert_eq!(report["ranks"].as_array().unwrap().len(), 4);
    let pairs = report["pairs"].as_array().unwrap();
    assert!(pairs.iter().all(|pair| pair["global_from"].is_u64() && pair["global_to"].is_u64()));
    let whole = essence(&report);

    let named = transport(&["-o", "json", "rank0.log", "rank1.log", "rank2.log", "rank3.log"], folder.path());
    assert_eq!(essence(&json(&named)), whole, "by name");
    assert_eq!(essence(&json(&transport(&["-o", "json", "rank?.log"], folder.path()))), whole, "by pattern");

    let gzip = folder_of("socket_2x2", |folder, rank, bytes| {
        let file = fs::File::create(folder.join(format!("rank{rank}.log.gz"))).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap();
    });
    assert_eq!(essence(&json(&transport(&["-o", "json", "."], gzip.path()))), whole, "gzip");

    // Two frames in one file, as rotation leaves them.
    let zstd = folder_of("socket_2x2", |folder, rank, bytes| {
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let frame =
            |part| ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest);
        fs::write(folder.join(format!("rank{rank}.log.zst")), [frame(head), frame(tail)].concat()).unwrap();
    });
    assert_eq!(essence(&json(&transport(&["-o", "json", "."], zstd.path()))), whole, "zstd");

    // NCCL_DEBUG_FILE=nccl.%h.%p
    let by_process = folder_of("socket_2x2", |folder, rank, bytes| {
        fs::write(folder.join(format!("nccl.vm.{}", 4845 + rank)), bytes).unwrap();
    });
    assert_eq!(essence(&json(&transport(&["-o", "json", "."], by_process.path()))), whole, "NAME.HOST.PID");
}

#[test]
fn standard_input_holds_all_ranks_in_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = weftrun()
        .args(["transport", "-o", "json", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = fs::read(capture("onepipe_bars/pipe.log")).unwrap();
    child.stdin.take().unwrap().write_all(&pipe).unwrap();
    let report = json(&child.wait_with_output().unwrap());
    let file = capture("onepipe_bars/pipe.log");
    let same = json(&transport(&["-o", "json", file.to_str().unwrap()], folder.path()));
    assert_eq!(essence(&report), essence(&same));
    assert_eq!(report["ranks"].as_array().unwrap().len(), 4);
    assert_eq!(report["ranks"][0]["source"], "-");
}

#[test]
fn another_fabric_than_planned_is_exit_7_and_silence_is_not() {
    let folder = plain("socket_2x2");
    assert_eq!(transport(&["."], folder.path()).status.code(), Some(0));
    assert_eq!(transport(&["--fabric", "tcp", "."], folder.path()).status.code(), Some(0));
    let output = transport(&["--fabric", "efa", "."], folder.path());
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stdout).contains("planned was efa"), "{}", text(&output.stdout));
    let silent = plain("debug_warn_only");
    assert_eq!(transport(&["--fabric", "efa", "."], silent.path()).status.code(), Some(0));
    assert_eq!(transport(&["--fabric", "efa", "--strict", "."], silent.path()).status.code(), Some(7));
}

#[test]
fn what_is_not_there_is_named_and_nothing_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    for (input, said) in [("gone.log", "gone.log"), ("*.log", "no file matches"), (".", "no *.log")] {
        let output = transport(&["-o", "json", input], folder.path());
        assert_eq!(output.status.code(), Some(6), "{input}");
        assert!(output.stdout.is_empty(), "{input}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(said), "{input}: {}", text(&output.stderr));
    }
    let output = transport(&[], folder.path());
    assert_eq!(output.status.code(), Some(2));
    fs::write(folder.path().join("a.out"), b"").unwrap();
    let output = transport(&["--follow", "a.out", "-"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    fs::remove_file(folder.path().join("a.out")).unwrap();
    fs::write(folder.path().join("cut.log.gz"), b"\x1f\x8b\x08\x00not gzip").unwrap();
    let output = transport(&["-o", "json", "cut.log.gz"], folder.path());
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("cut.log.gz"), "{}", text(&output.stderr));
}

#[test]
fn the_table_shows_verdict_matrix_and_reason_and_no_escape_of_the_log() {
    let folder = plain("socket_2x2");
    let mut log = fs::OpenOptions::new().append(true).open(folder.path().join("rank0.log")).unwrap();
    log.write_all(
        b"\x1b]0;owned\x07vm:9:9 [0] NCCL WARN Connect to \x1b[2Jevil\xff failed : Connection refused\n",
    )
    .unwrap();
    let output = transport(&["."], folder.path());
    let shown = text(&output.stdout);
    assert!(shown.contains("transport: socket"), "{shown}");
    assert!(shown.contains("r0") && shown.contains("SOCK") && shown.contains("P2P"), "{shown}");
    assert!(shown.contains("TCP-CONNECT-FAILED") && shown.contains("rank0.log:"), "{shown}");
    assert!(!shown.bytes().any(|byte| byte < b' ' && byte != b'\n' && byte != b'\t'), "{shown:?}");
}

#[test]
fn the_graph_of_nodes_is_mermaid() {
    let folder = plain("socket_2x2");
    let graph = text(&transport(&["-o", "mermaid", "."], folder.path()).stdout);
    assert!(graph.starts_with("graph LR\n"), "{graph}");
    assert!(graph.contains("n0 ---|\"NET/Socket"), "{graph}");
    assert!(graph.contains("ranks 0-1") && graph.contains("ranks 2-3"), "{graph}");
}

#[test]
fn the_page_opens_from_disk_alone() {
    let folder = plain("hang_timeout");
    fs::write(folder.path().join("evil.log"), "</pre><script>alert(1)</script>:7:7 [0] NCCL WARN <img src=x onerror=alert(1)> Connection closed by remote peer\n")
        .unwrap();
    let page = text(&transport(&["-o", "html", "."], folder.path()).stdout);
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{page:.200}");
    for outside in ["<script", "<link", "<img", "url(http", "@import", "src="] {
        assert!(!page.replace("src=x", "").contains(outside), "{outside}");
    }
    assert!(page.contains("&#60;img src=x"), "the log's text is escaped");
    assert!(page.contains("Watchdog"), "evidence is quoted");
}

#[test]
fn the_flight_recorder_names_the_rank_that_is_behind() {
    let dumps = capture("fr_hang_2x2");
    let output = transport(&["-o", "json", "--flight-recorder", dumps.to_str().unwrap()], &dumps);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&output);
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "FR-RANK-BEHIND");
    assert_eq!(finding["ranks"], serde_json::json!([2]));
    assert!(finding["message"].as_str().unwrap().contains("_all_gather_base"), "{finding}");
}

/// A child whose output is read line by line, and which does not outlive its test.
struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn new(folder: &Path) -> Self {
        let mut child = weftrun()
            .args(["transport", "--follow", "-o", "json", "grow.log"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads events until one fits. The reader blocks: a test that hangs here shows what did not come.
    fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        for line in &mut self.lines {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if fits(&event) {
                return event;
            }
        }
        panic!("the output ended before it came");
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_file_that_grows_is_followed_until_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grow.log");
    fs::write(&path, "").unwrap();
    let mut following = Following::new(folder.path());
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"h:1:1 [0] NCCL INFO Using network Soc").unwrap();
    file.write_all(b"ket\nh:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n")
        .unwrap();
    let event = following.until(|event| event["event"]["type"] == "link");
    assert_eq!(event["event"]["transport"], "NET/Socket");
    // The file is begun again, as rotation by copying and cutting does.
    file.set_len(0).unwrap();
    fs::write(&path, "h:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n").unwrap();
    following.until(|event| event["event"]["transport"] == "NET/IB");
    // It is rotated away, as rotation by renaming does.
    fs::rename(&path, folder.path().join("grow.log.1")).unwrap();
    fs::write(&path, "h:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0\n")
        .unwrap();
    following.until(|event| event["event"]["transport"] == "NET/Libfabric");
    let pid = rustix::process::Pid::from_child(&following.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let last = following.until(|event| event["type"] == "report");
    assert_eq!(last["report"]["schema"], "weftrun/v1");
    assert_eq!(last["report"]["verdict"]["fabric"], "mixed");
}

/// Two samples of the interfaces beside a running job, in a namespace of mounts whose /sys has an interface that counts.
#[test]
fn counters_of_a_running_job_are_compared_with_its_log() {
    let place = Place::new();
    let mounts = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1/counters";
    if !place
        .program("unshare")
        .args(["-m", "sh", "-c", mounts])
        .output()
        .is_ok_and(|done| done.status.success())
    {
        weftrun_testkit::skipped("this machine allows no namespace of mounts");
        return;
    }
    let log = "host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n\
               host2:8:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n\
               weftrun: NCCL {\"weftrun_nccl\":1,\"t\":1795696000000,\"host\":\"host\",\"pid\":7,\"comm\":\"0x1\",\"rank\":0,\"n\":2,\
               \"nodes\":2,\"op\":\"AllReduce\",\"count\":1,\"bytes\":1000,\"ns\":10,\"seq\":1,\"seq_bytes\":1000,\"seq_ns\":10,\"dropped\":0}\n";
    let log = place.write("nccl.log", log);
    // 50 million words of four bytes, ten times a second at most.
    let counts = format!(
        "cat {}; while :; do sleep 0.1; words=$((words + 50000000)); \
         echo $words > /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data; done",
        log.display()
    );
    place.write(
        "job.toml",
        format!("name = \"counts\"\nlaunch = \"per-node\"\ncommand = [\"bash\", \"-c\", {counts:?}]\n"),
    );
    let weftrun = env!("CARGO_BIN_EXE_weftrun");
    let script = format!(
        "{mounts}; cd /sys/class/infiniband/mlx5_0/ports/1; echo '4: ACTIVE' > state; echo '400 Gb/sec (4X NDR)' > rate; \
         echo InfiniBand > link_layer; echo 0 > counters/port_xmit_data; cd \"$0\"; handle=$({weftrun} submit -q job.toml); sleep 2; \
         {weftrun} transport -o json --counters=2s $handle; {weftrun} transport --counters=1s $handle >&2; \
         {weftrun} bandwidth --counters=1s $handle >&2; {weftrun} cancel $handle"
    );
    let mut command = place.program("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(place.path(""));
    let done = Done::of(command).ok();
    let report = done.json();
    let interface = &report["counters"]["interfaces"][0];
    let sent = interface["sent"].as_f64().unwrap();
    // A machine with much else to do counts slower.
    assert!((1e7..4e9).contains(&sent), "{report:#}");
    assert_eq!(
        (&interface["interface"], &interface["active"]),
        (&"mlx5_0:1".into(), &true.into()),
        "{report:#}"
    );
    let findings = report["findings"].as_array().unwrap();
    assert!(
        findings.iter().any(|one| one["code"] == "NIC-TRAFFIC-DIFFERS"),
        "the log proves TCP: {report:#}"
    );
    assert!(done.err.contains("1 of 1 RDMA interfaces of 1 node carried traffic"), "{}", done.err);
    assert!(done.err.contains(" mlx5_0:1: sent "), "{}", done.err);
    let bandwidth = done.err.split("network interfaces:\n").nth(1).unwrap();
    assert!(
        bandwidth.contains("1 of 1 RDMA interfaces of 1 node carried")
            && bandwidth.contains(" mlx5_0:1: sent "),
        "{}",
        done.err
    );
    place.run("transport --counters nccl.log").code(2);
}
