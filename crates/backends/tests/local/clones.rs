//! A clone from a server that takes the connection and never answers ends with the job, and git's helpers with it.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weftrun_core::job::{Action, JobPhase};
use weftrun_core::spec::Code;
use weftrun_testkit::conformance::{Bench, Fixture, Submitted};

use crate::bench::{Local, block_on};
use crate::crashes::{kill, until};
use weftrun_testkit::child;

/// A server on this machine that accepts and stays silent.
struct Silent {
    url: String,
    taken: Arc<Mutex<Vec<TcpStream>>>,
}

impl Silent {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/repository.git", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                keep.lock().unwrap().push(stream);
            }
        });
        Self { url, taken }
    }
}

/// Submits a job whose clone hangs, and waits until it does.
async fn hanging(local: &Local, server: &Silent, time_limit: Option<Duration>) -> Submitted {
    let mut spec = local.job("clone", 1, 1, "true");
    spec.code = Some(Code::Git { url: server.url.clone(), rev: None });
    spec.time_limit = time_limit;
    let job = Bench::new(local).submit_spec(spec).await.unwrap();
    for _ in 0..1200 {
        if !server.taken.lock().unwrap().is_empty() {
            assert!(!marked(&job).is_empty(), "git carries the job's mark");
            return job;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("git did not connect");
}

/// Returns the processes with the mark of a job: git and its HTTP helper.
fn marked(job: &Submitted) -> Vec<String> {
    let mark = format!("WEFTRUN_SUBMISSION={}", job.rendered.submission.as_str());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let carries = |path: &std::path::Path| {
        std::fs::read(path.join("environ"))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()))
    };
    entries
        .map(|entry| entry.path())
        .filter(|path| carries(path))
        .map(|path| {
            String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).unwrap_or_default()).into_owned()
        })
        .filter(|line| line.contains("git"))
        .collect()
}

async fn ends(job: &Submitted, phase: JobPhase, reason: &str) {
    let end = until(job, "ended", |job| job.phase.is_terminal()).await;
    assert_eq!(end.phase, phase, "{}", end.reason);
    assert!(end.reason.contains(reason), "{}", end.reason);
    assert_eq!(marked(job), [""; 0], "processes of the clone are left");
}

/// Whether there is a git that can clone over HTTP.
fn has_git() -> bool {
    let there = child::command("git").arg("--version").output().is_ok();
    if !there {
        weftrun_testkit::skipped("git is not installed");
    }
    there
}

pub fn a_clone_that_fails_says_why() {
    if !has_git() {
        return;
    }
    block_on(async {
        let local = Local::new();
        let mut spec = local.job("clone", 1, 1, "true");
        // Nothing listens on port 1.
        spec.code = Some(Code::Git { url: "http://127.0.0.1:1/repository".to_owned(), rev: None });
        let job = Bench::new(&local).submit_spec(spec).await.unwrap();
        ends(&job, JobPhase::Failed, "git clone: fatal: unable to access").await;
    });
}

pub fn a_clone_that_hangs_is_cancelled() {
    if !has_git() {
        return;
    }
    block_on(async {
        let (local, server) = (Local::new(), Silent::start());
        let job = hanging(&local, &server, None).await;
        job.backend.act(&job.handle, Action::Cancel).await.unwrap();
        ends(&job, JobPhase::Cancelled, "").await;
    });
}

pub fn a_clone_that_hangs_ends_at_the_time_limit() {
    if !has_git() {
        return;
    }
    block_on(async {
        let (local, server) = (Local::new(), Silent::start());
        let job = hanging(&local, &server, Some(Duration::from_secs(3))).await;
        ends(&job, JobPhase::Failed, "time limit").await;
    });
}

pub fn a_clone_that_hangs_ends_with_its_supervisor() {
    if !has_git() {
        return;
    }
    block_on(async {
        let (local, server) = (Local::new(), Silent::start());
        let job = hanging(&local, &server, None).await;
        kill(&local, &job, "-TERM");
        ends(&job, JobPhase::Cancelled, "supervisor").await;
    });
}
