//! The verbs of a job's life, each confirmed by the state afterwards.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

#[test]
fn hold_release_signal_requeue_cancel() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let submit = |job: &str| {
        user.file("job.toml", job);
        let output = user.weftrun(&["submit", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let phase = |handle: &str| {
        let output = user.weftrun(&["describe", handle, "-o", "json"]);
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        value["phase"].as_str().unwrap_or_default().to_owned()
    };
    let act = |words: &[&str]| {
        let output = user.weftrun(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    };
    let waits = submit("name = \"verbs-held\"\ncommand = [\"true\"]\nbackend.slurm.begin = \"now+1hour\"\n");
    act(&["hold", &waits]);
    assert_eq!(phase(&waits), "suspended");
    act(&["release", &waits]);
    assert_eq!(phase(&waits), "pending");
    act(&["cancel", &waits]);
    assert_eq!(phase(&waits), "cancelled");

    let runs = submit(
        "name = \"verbs-runs\"\ncommand = [\"sh\", \"-c\", \"trap 'echo checkpoint' USR1; echo up; while :; do sleep 0.2; done\"]\n",
    );
    let says = |text: &str| {
        // Generous: the machine may be busy with the other tests.
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            let output = user.weftrun(&["logs", &runs]);
            if String::from_utf8_lossy(&output.stdout).contains(text) {
                return;
            }
            assert!(Instant::now() < until, "`{text}` never came: {}", said(&output));
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    says("up");
    act(&["cancel", "--signal", "10", &runs]);
    says("checkpoint");
    let held = user.weftrun(&["hold", &runs]);
    assert_eq!(held.status.code(), Some(4), "a running job is not held: {}", said(&held));
    act(&["requeue", &runs]);
    // Slurm ends the attempt before it queues the job again, and says so meanwhile.
    let until = Instant::now() + Duration::from_mins(1);
    while phase(&runs) == "stopping" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(phase(&runs), "pending");
    act(&["cancel", &runs]);
    let unknown = user.weftrun(&["cancel", "slurm://cluster/999999"]);
    assert_eq!(unknown.status.code(), Some(6), "{}", said(&unknown));
}

#[test]
fn input_and_connections_reach_a_rank_and_labels_find_its_job() {
    const SERVE: &str = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); \
                         print('port', s.server_address[1], flush=True); s.serve_forever()";
    let Some(cluster) = TestCluster::find() else { return };
    for way in [Way::Ssh, Way::Here] {
        let user = User::new(&cluster, way, &[]);
        let job = format!(
            "name = \"verbs-serves\"\nlabels.team = \"nlp-{way:?}\"\ncommand = [\"python3\", \"-c\", \"{SERVE}\"]\n"
        );
        user.file("job.toml", &job);
        let output = user.weftrun(&["submit", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let until = Instant::now() + Duration::from_mins(1);
        let port = loop {
            let output = user.weftrun(&["logs", &handle]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if let Some((_, port)) = text.trim().rsplit_once("port ") {
                break port.to_owned();
            }
            assert!(Instant::now() < until, "no port came: {}", said(&output));
            std::thread::sleep(Duration::from_millis(300));
        };
        let fed = user.command(&[
            "exec",
            "-i",
            &handle,
            "--rank",
            "0",
            "--",
            "sh",
            "-c",
            "cat; echo $SLURM_JOB_ID; exit 5",
        ]);
        let mut fed = { fed }.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        fed.stdin.take().expect("piped").write_all(b"two\nlines\n").expect("written");
        let done = fed.wait_with_output().expect("it ends");
        let id = handle.rsplit('/').next().unwrap_or_default();
        assert_eq!(
            (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned()),
            (Some(5), format!("two\nlines\n{id}\n"))
        );

        let mut events = user.events(&["port-forward", &handle, &format!("0:{port}")]);
        let local = events.next().expect("a line")["local"].as_u64().expect("a port");
        let mut page =
            TcpStream::connect(("127.0.0.1", u16::try_from(local).expect("a port"))).expect("it listens");
        page.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("written");
        let mut answer = String::new();
        page.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
        events.stop();

        let listed = |label: &str| {
            let output = user.weftrun(&["list", "-l", label, "-o", "json"]);
            let value: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
            value["jobs"].as_array().map_or(0, Vec::len)
        };
        assert_eq!((listed(&format!("team=nlp-{way:?}")), listed("team=vision")), (1, 0), "{way:?}");
        let output = user.weftrun(&["describe", &handle]);
        let text = String::from_utf8_lossy(&output.stdout);
        for words in ["started 20", "elapsed", "owner", &format!("labels  team=nlp-{way:?}")] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(user.weftrun(&["cancel", &handle]).status.code(), Some(0));
    }
}
