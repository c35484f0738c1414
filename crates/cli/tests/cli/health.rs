//! `weftrun health`: recorded conversations with NCCL's RAS service, at an address and inside jobs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weftrun_testkit::ras::{Personality, recording};

use crate::place::Place;

fn asked(place: &Place, recording: &str, more: &str) -> Value {
    let port = Personality::of(recording).serve();
    place.run(&format!("health --observe 0s -o json --address 127.0.0.1:{port} {more}")).ok().json()
}

#[test]
fn each_recording_has_its_state_and_its_culprits() {
    let place = Place::new();
    for (recording, state, culprits) in [
        ("v2.28.9/healthy", "healthy", json!([])),
        ("v2.28.9/blocking_init", "healthy", json!([])),
        ("v2.30.7/split", "healthy", json!([])),
        ("v2.28.9/hang", "suspect", json!([3])),
        ("v2.30.7/hang", "suspect", json!([3])),
        // The group of ranks 2 and 3 explains: there it is rank 1.
        ("v2.28.9/mismatch", "suspect", json!([1])),
        // Rank 3 was killed; rank 0, which reported to it, does not answer either.
        ("v2.30.7/killjson", "incomplete", json!([0, 3])),
    ] {
        let report = asked(&place, recording, "");
        let ranks: Vec<&Value> =
            report["culprits"].as_array().unwrap().iter().map(|one| &one["rank"]).collect();
        assert_eq!((&report["state"], json!(ranks)), (&json!(state), culprits), "{recording}: {report:#}");
        assert_eq!(report["nccl_version"], recording[1..7], "{recording}");
    }
    let report = asked(&place, "v2.28.9/kill", "");
    assert_eq!(
        (&report["state"], &report["culprits"][0]["why"]),
        (&json!("incomplete"), &json!("the process does not answer"))
    );
    let port = Personality::of("v2.28.9/hang").serve();
    let text = place.run(&format!("health --observe 0s --address 127.0.0.1:{port}")).ok().out;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "  rank 3, process 965 on 192.0.2.2: launched 20 of 116 AllReduce operations");
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["schema", "state", "reason", "nccl_version", "notes", "communicators", "culprits", "cause", "asked"]
    );
}

#[test]
fn nccls_own_diagnostics_are_asked_for_on_request_only() {
    let place = Place::new();
    let log =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl/tests/data/diagnostics/nccl-2.32.3-env.log");
    let log = log.to_str().unwrap();
    assert!(asked(&place, "v2.32.3/env", log)["diagnostics"].is_null());
    let report = asked(&place, "v2.32.3/env", &format!("--diagnose {log}"));
    let own = &report["diagnostics"];
    let codes: Vec<&Value> = own["findings"].as_array().unwrap().iter().map(|found| &found["code"]).collect();
    assert_eq!(
        (&report["state"], codes),
        (&json!("healthy"), vec![&json!("NCCL-DIAG-ENVIRONMENT"), &json!("NCCL-DIAG-UNCHECKED")])
    );
    assert!(own["passed"].as_array().unwrap().contains(&json!("NVLink")), "{own:#}");

    let port = Personality::of("v2.32.3/env").serve();
    let text = place.run(&format!("health --observe 0s --diagnose --address 127.0.0.1:{port}")).ok().out;
    let passed = "NCCL's own diagnostics found nothing in: GPU inventory, CUDA driver version, NVIDIA graphics driver version, ECC, Xid/SXid, NVLink, Paths";
    assert!(text.lines().any(|line| line == passed), "{text}");
    // Without the log nothing proves the ranks of the job.
    assert!(
        text.contains(
            "NCCL_BUFFSIZE is not set on rank 0 of the communicator, `8388608` on rank 1 of the communicator"
        ),
        "{text}"
    );

    let refused = |personality: Personality, more: &str| {
        let port = personality.serve();
        let run =
            place.run(&format!("health --observe 0s --diagnose -o json --address 127.0.0.1:{port} {more}"));
        run.ok().json()["diagnostics"]["refused"].as_str().unwrap().to_owned()
    };
    let mut busy = Personality::of("v2.32.3/env");
    busy.diagnostics = vec!["BUSY: diagnostics already in progress\n".to_owned()];
    assert_eq!(
        refused(busy, ""),
        "the RAS service refused the request: BUSY: diagnostics already in progress"
    );
    let mut other = Personality::of("v2.32.3/env");
    other.diagnostics = Personality::of("v2.32.3/kill").diagnostics;
    assert_eq!(refused(other, ""), "another job's RAS service answered in between: ask again");
    let old = refused(Personality::of("v2.30.7/split"), "");
    assert_eq!(old, "NCCL 2.30.7 has no diagnostics of its own; they exist since 2.31");
    let mut silent = Personality::of("v2.32.3/env");
    silent.diagnostics = vec!["vm:1 NCCL DIAG === RAS Diagnostics ===\n".to_owned()];
    assert_eq!(refused(silent, ""), "the RAS report cannot be read: it ends early");
}

#[test]
fn each_process_counts_once_and_an_error_is_not_a_delay() {
    let place = Place::new();
    let rank = |rank: u32, error: i32| {
        json!({ "rank": rank, "host": "h", "pid": rank + 10, "status": { "async_error": error },
                "collective_counts": { "AllReduce": 7 } })
    };
    let gone = |rank: u32| json!({ "rank": rank, "host": "h", "pid": rank + 10, "status": { "considered_dead": true } });
    let asked = |comms: Value| {
        let report = json!({ "nccl_version": "2.29.7", "communicators": comms });
        let port = Personality { json: vec![report.to_string()], ..Personality::default() }.serve();
        place.run(&format!("health -o json --address 127.0.0.1:{port}")).ok().json()
    };
    let two = asked(json!([
        { "hash": "0x1", "size": 4, "missing_ranks": [gone(1)] },
        { "hash": "0x2", "size": 2, "missing_ranks": [gone(1)] },
        { "hash": "0x3", "size": 2, "missing_ranks": [gone(2)] },
    ]));
    assert_eq!(two["reason"], "2 ranks do not answer", "{two:#}");
    let failed = asked(json!([{ "hash": "0x1", "size": 2, "ranks": [rank(0, 6), rank(1, 0)] }]));
    assert_eq!((&failed["state"], &failed["reason"]), (&json!("suspect"), &json!("1 rank reports an error")));
    // A version that has an advisory is queried once, and its advisory is shown.
    assert!(
        failed["notes"][0].as_str().unwrap().contains("github.com/NVIDIA/nccl/issues/2346"),
        "{failed:#}"
    );
    assert_eq!(asked(json!([]))["reason"], "RAS reports no communicator yet");
}

#[test]
fn an_answer_of_many_ranks_is_judged_at_once() {
    let place = Place::new();
    let gone = |rank: u32| json!({ "rank": rank, "host": "h", "pid": rank });
    let missing: Vec<Value> = (0..16_384).map(gone).collect();
    let report = json!({ "communicators": [{ "hash": "0x1", "size": 16_384, "missing_ranks": missing }] });
    let port = Personality { json: vec![report.to_string()], ..Personality::default() }.serve();
    let began = Instant::now();
    let done = place.run(&format!("health -o json --address 127.0.0.1:{port}")).ok();
    // Quadratic work took ten seconds here, on a machine with nothing else to do.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(done.json()["communicators"][0]["missing"].as_array().unwrap().len(), 16_384);
}

#[test]
fn logs_prove_the_global_rank() {
    let place = Place::new();
    let init = |rank: u32, hash: &str| {
        format!(
            "vm:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 60 \
             commId {hash} - Init COMPLETE\n",
            pid = 1144 + rank
        )
    };
    let log: String = (0..4).map(|rank| init(rank, "0x73fa5378f3e9cfa8")).collect();
    place.write("job.log", log);
    let report = asked(&place, "v2.28.9/mismatch", "job.log");
    let culprit = &report["culprits"][0];
    assert_eq!(
        (&culprit["rank"], &culprit["global_rank"], &culprit["pid"]),
        (&json!(1), &json!(3), &json!(1147)),
        "{report:#}"
    );
    // The port may belong to another job of the same user on that node.
    let other: String = (0..4).map(|rank| init(rank, "0x1234")).collect();
    place.write("other.log", other);
    let port = Personality::of("v2.28.9/mismatch").serve();
    let report = place.run(&format!("health -o json --address 127.0.0.1:{port} other.log")).code(5).json();
    assert!(report["reason"].as_str().unwrap().contains("another job"), "{report:#}");
}

#[test]
fn counts_that_move_are_a_slow_rank_and_not_a_hang() {
    let place = Place::new();
    let mut moving = Personality::of("v2.30.7/hang");
    let last = moving.json.remove(0);
    moving.json = vec![last.clone(), last.replace("\"AllReduce\": 20\n", "\"AllReduce\": 21\n")];
    assert_ne!(moving.json[0], moving.json[1]);
    let port = moving.serve();
    let report = place.run(&format!("health -o json --observe 11s --address 127.0.0.1:{port}")).ok().json();
    assert_eq!((&report["state"], &report["asked"]["answers"]), (&json!("healthy"), &json!(2)), "{report:#}");
}

/// A watch and the lines it prints.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn new(place: &Place, arguments: &[&str]) -> Self {
        let mut command = place.command(["health", "--watch"].iter().chain(arguments));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("another line").unwrap()
    }

    fn interrupt(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_watch_prints_changes_and_events_until_interrupted() {
    let place = Place::new();
    let mut changing = Personality::of("v2.30.7/hang");
    let hang = changing.json.pop().unwrap();
    let healthy = Personality::of("v2.30.7/split").json.remove(0);
    changing.json = vec![healthy.clone(), hang.clone()];
    changing.events = Personality::of("v2.30.7/killjson").events;
    let (port, text_port) = (changing.clone().serve(), changing.serve());
    let (address, text_address) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{text_port}"));
    let mut json = Watching::new(&place, &["-o", "json", "--address", &address]);
    let mut text = Watching::new(&place, &["--address", &text_address]);
    let mut next = || serde_json::from_str::<Value>(&json.next()).unwrap();
    let first = next();
    assert_eq!((&first["state"], &first["events"]), (&json!("healthy"), &Value::Null), "{first:#}");
    let event = next();
    assert_eq!(
        (&event["state"], &event["events"]),
        (
            &json!("healthy"),
            &json!([{
                "time": "2026-11-22 02:46:10", "name": "PEER_DISCONNECTED", "host": "192.0.2.2", "pid": 15270,
                "details": "peer closed current connection during receive operation"
            }])
        )
    );
    let second = next();
    assert_eq!(
        (&second["state"], &second["culprits"][0]["rank"], &second["asked"]["answers"]),
        (&json!("suspect"), &json!(3), &json!(2)),
        "{second:#}"
    );
    assert!(text.next().starts_with("healthy: "));
    assert_eq!(
        text.next(),
        "2026-11-22 02:46:10 PEER_DISCONNECTED: process 15270 on 192.0.2.2 peer closed current connection during receive operation"
    );
    assert!(text.next().starts_with("suspect: "));
    assert!(text.next().starts_with("  rank 3, process "));
    assert_eq!((json.interrupt(), text.interrupt()), (Some(0), Some(0)));
}

#[test]
fn a_watch_ends_where_the_version_or_the_service_allows_no_second_query() {
    let place = Place::new();
    let port = Personality::of("v2.28.9/hang").serve();
    let done = place.run(&format!("health --watch -o json --address 127.0.0.1:{port}")).ok();
    assert_eq!(done.lines().len(), 1, "{}", done.out);
    assert_eq!(done.lines()[0]["state"], "suspect");
    let done = place.run("health --watch -o json --address 127.0.0.1:1").code(5);
    assert_eq!(done.lines()[0]["state"], "unreachable");
    place.run("health --watch --observe 3m --address 127.0.0.1:1").code(2);
    place.run("health --watch one two").code(2);
}

#[test]
fn a_service_that_hangs_floods_or_lies_costs_no_more_than_the_time_limit() {
    let place = Place::new();
    let serve = |answer: fn(std::net::TcpStream)| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(move || answer(stream))));
        });
        port
    };
    let silent = serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let flood = serve(|mut stream| while stream.write_all(&vec![b'x'; 65536]).is_ok() {});
    let other =
        serve(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")));
    let lies = serve(|mut stream| {
        drop(stream.write_all(b"SERVER PROTOCOL 2\nOK\nOK\n{\"communicators\": [{\"hash\": \"0x1\", \"size\": 4, \"ranks\": [{\"rank\": -1}]}]}"));
    });
    for port in [silent, flood, other, lies, 1] {
        let began = Instant::now();
        let done = place.run(&format!("health --timeout 3s -o json --address 127.0.0.1:{port}")).code(5);
        let report = done.json();
        assert_eq!(report["state"], "unreachable", "{report:#}");
        assert!(!report["reason"].as_str().unwrap().is_empty());
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
    place.run("health --address nonsense").code(2);
    place.run("health").code(2);
}

#[test]
fn a_local_job_is_queried_from_inside() {
    let place = Place::new();
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data/ras_server.py");
    // NCCL prints its version, by which `why` knows that this service is safe to ask.
    let script = "echo 'vm:7:7 [0] NCCL INFO NCCL version 2.30.7+cuda13.0'; exec python3 \"$@\"";
    let job = format!(
        "name = \"hangs\"\nlaunch = \"per-node\"\ncommand = [\"sh\", \"-c\", {script:?}, \"sh\", {server:?}, {:?}, \"0\"]\n",
        recording("v2.30.7/hang")
    );
    place.write("job.toml", job);
    place.run("submit job.toml -b local").ok();
    let began = Instant::now();
    let report = loop {
        let report = place.run("health -o json --observe 0s hangs -b local").json();
        if report["state"] != "unreachable" || began.elapsed() > Duration::from_mins(1) {
            break report;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let why = place.run("why -o json hangs -b local").ok().json();
    place.run("cancel hangs -b local").ok();
    assert_eq!(
        (&why["state"], &why["cause"]["class"], &why["cause"]["ranks"], &why["cause"]["code"]),
        (&json!("hanging"), &json!("collective-timeout"), &json!([3]), &json!("HEALTH-SUSPECT")),
        "{why:#}"
    );
    assert_eq!(
        (&report["state"], &report["culprits"][0]["rank"]),
        (&json!("suspect"), &json!(3)),
        "{report:#}"
    );
    assert!(report["asked"]["via"].as_str().unwrap().starts_with("port-forward"), "{report:#}");
    let ended = place.run("health -o json hangs -b local").code(5).json();
    assert!(ended["reason"].as_str().unwrap().contains("cancelled"), "{ended:#}");
}
