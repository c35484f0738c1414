//! Points B1 and B2 of issue 14: one submission is one job that runs, whatever happens to the answer of
//! sbatch or slurmrestd, and an unknown outcome is never treated as a refusal.

use std::time::{Duration, Instant};

use weftrun_backends::slurm::Slurm;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, Rendered};
use weftrun_core::job::{Action, JobFilter, JobHandle};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, WAYS, Way};

/// Where jobs note that they ran; jobs see it as `/fsx`.
const RAN: &str = "/fsx/logs/ran";

fn unique(name: &str) -> String {
    format!("{name}-{:06x}", fastrand::u32(..0x00ff_ffff))
}

/// A job that notes each of its runs and then goes on for a while.
fn job(name: &str) -> JobSpec {
    let script = format!("echo $SLURM_JOB_ID >> {RAN}-{name}; sleep 20");
    let role = Role::worker().command(["sh", "-c", &script]);
    JobSpec::builder(name).launch(Launch::PerNode).role(role).build().expect("valid")
}

fn runs(cluster: &TestCluster, name: &str) -> Vec<String> {
    let text = cluster.sh(&format!("cat \"$CLUSTER/shared{RAN}-{name}\" 2> /dev/null"));
    text.lines().map(str::to_owned).collect()
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within two minutes");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// A target whose sbatch is the script, and whose lost submissions are settled soon.
fn slurm(cluster: &TestCluster, way: Way, script: &str, absence: u64) -> Slurm {
    let target = cluster.wrapped(way, "sbatch", script).with("absence-seconds", absence);
    Slurm::new(&target.with("command-seconds", 5)).expect("the target is good")
}

/// Returns an sbatch that prints why it failed, and whose job is queued only after some seconds. `once`
/// records each call.
fn late(seconds: u32, said: &str, note: &str) -> String {
    format!(
        "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\necho call >> {note}\n\
         t=$(mktemp); cat > \"$t\"\n(sleep {seconds}; \"$real\" \"$@\" < \"$t\") > /dev/null 2>&1 &\n\
         echo 'sbatch: error: Batch job submission failed: {said}' >&2; exit 1"
    )
}

fn note(cluster: &TestCluster, way: Way, name: &str) -> (String, String) {
    // The wrapper runs on the head node over ssh, where the shared folder has another path.
    let here = format!("{}/shared/fsx/logs/calls-{name}", cluster.dir.display());
    let there = if way == Way::Here { here.clone() } else { format!("/fsx/logs/calls-{name}") };
    (here, there)
}

fn calls(path: &str) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn rendered(slurm: &Slurm, name: &str) -> Rendered {
    slurm.render(&planned(job(name))).expect("renders")
}

async fn cancel(slurm: &Slurm, handle: &JobHandle) {
    slurm.act(handle, Action::Cancel).await.expect("is cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_job_that_appears_late_is_submitted_once() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        for (said, seconds) in [
            ("Socket timed out on send/recv operation", 6),
            ("Unexpected message received", 9),
            ("Zero Bytes were transmitted or received", 3),
        ] {
            let name = unique("late");
            let (here, there) = note(&cluster, way, &name);
            let slurm = slurm(&cluster, way, &late(seconds, said, &there), 60);
            let rendered = rendered(&slurm, &name);
            let found =
                slurm.submit(&rendered).await.unwrap_or_else(|error| panic!("{way:?} {said}: {error}"));
            assert_eq!((calls(&here), cluster.count(&name)), (1, 1), "{way:?} {said}");
            assert_eq!(slurm.submit(&rendered).await.expect("the same"), found, "{way:?} {said}");
            assert_eq!((calls(&here), cluster.count(&name)), (1, 1), "{way:?} {said}: submitted again");
            cancel(&slurm, &found).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_job_that_appears_after_all_patience_is_unknown_and_found_later() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        let name = unique("patience");
        let (here, there) = note(&cluster, way, &name);
        let slurm = slurm(&cluster, way, &late(20, "Socket timed out on send/recv operation", &there), 5);
        let rendered = rendered(&slurm, &name);
        let lost = slurm.submit(&rendered).await.expect_err("nothing was seen within the time");
        assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{way:?}: {lost}");
        assert_eq!((calls(&here), cluster.count(&name)), (1, 0), "{way:?}: it was not sent again");
        until("the job is queued", || cluster.count(&name) == 1).await;
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(slurm.submit(&rendered).await.expect("the same"), found, "{way:?}");
        assert_eq!((calls(&here), cluster.count(&name)), (1, 1), "{way:?}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_absence_is_said_only_when_the_bound_has_passed() {
    let Some(cluster) = TestCluster::find() else { return };
    let name = unique("absent");
    let refuses = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\
        echo 'sbatch: error: Batch job submission failed: Message receive failure' >&2; exit 1";
    let quick = slurm(&cluster, Way::Ssh, refuses, 1);
    let rendered = rendered(&quick, &name);
    let lost = quick.submit(&rendered).await.expect_err("it never arrives");
    assert_eq!(lost.kind(), ErrorKind::Unreachable, "{lost}");
    let patient = slurm(&cluster, Way::Ssh, refuses, 600);
    let open = patient.find(&rendered.submission).await.expect_err("not certain yet");
    assert_eq!((open.kind(), open.is_retryable()), (ErrorKind::Timeout, true), "{open}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(quick.find(&rendered.submission).await.expect("certain"), None);
    let never_sent = rendered_elsewhere(&patient);
    assert_eq!(patient.find(&never_sent.submission).await.expect("certain"), None, "no sbatch was started");
}

fn rendered_elsewhere(slurm: &Slurm) -> Rendered {
    rendered(slurm, &unique("never-sent"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_an_sbatch_slower_than_the_time_allowed_is_no_refusal() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        let name = unique("slow");
        let slow =
            "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\nsleep 25; \"$real\" \"$@\"";
        let slurm = slurm(&cluster, way, slow, 3);
        let rendered = rendered(&slurm, &name);
        let lost = match slurm.submit(&rendered).await {
            Err(lost) => lost,
            Ok(early) => panic!("{way:?}: {early} before it was queued"),
        };
        assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{way:?}: {lost}");
        let open = slurm.find(&rendered.submission).await;
        if cluster.count(&name) == 0 {
            assert_eq!(open.expect_err("sbatch still runs").kind(), ErrorKind::Timeout, "{way:?}");
        }
        until("the job is queued", || cluster.count(&name) == 1).await;
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(cluster.count(&name), 1, "{way:?}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_silent_squeue_leaves_a_submission_unknown() {
    let Some(cluster) = TestCluster::find() else { return };
    let name = unique("silent");
    let slurm = slurm(&cluster, Way::Here, &late(0, "Unexpected message received", "/dev/null"), 3);
    let rendered = rendered(&slurm, &name);
    // squeue and sacct fail too, so nothing can be queried.
    let dir = cluster.wrapper(Way::Here, "sbatch", &late(0, "Unexpected message received", "/dev/null"));
    for program in ["squeue", "sacct"] {
        let from = cluster.wrapper(
            Way::Here,
            program,
            "echo \"$0: error: Unexpected message received\" >&2; exit 1",
        );
        std::fs::copy(from.join(program), dir.join(program)).expect("copied");
    }
    let target =
        cluster.target(Way::Here).with("bin-dir", dir.display().to_string()).with("absence-seconds", 3);
    let blind = Slurm::new(&target).expect("the target is good");
    let lost = blind.submit(&rendered).await.expect_err("nothing can be known");
    assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{lost}");
    until("the job is queued", || cluster.count(&name) == 1).await;
    let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
    cancel(&slurm, &found).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_of_two_copies_one_runs_and_the_other_is_not_listed() {
    let Some(cluster) = TestCluster::find() else { return };
    let twice = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\
        t=$(mktemp); cat > \"$t\"; \"$real\" \"$@\" < \"$t\"; \"$real\" \"$@\" < \"$t\" > /dev/null";
    for (case, own) in [("plain", serde_json::json!({})), ("array", serde_json::json!({ "array": "1-3" }))] {
        let name = unique(case);
        let slurm = slurm(&cluster, Way::Ssh, twice, 30);
        let mut spec = job(&name);
        spec.backend.insert("slurm".to_owned(), own);
        let rendered = slurm.render(&planned(spec)).expect("renders");
        slurm.submit(&rendered).await.expect("is taken");
        let wanted = if case == "array" { 3 } else { 1 };
        until("the copies are done", || {
            let states = cluster.ctl(&format!("head squeue -h -t all -n {name} -o %T -r"));
            let copies = states.lines().filter(|state| *state == "FAILED").count();
            copies == wanted && runs(&cluster, &name).len() == wanted
        })
        .await;
        assert_eq!(runs(&cluster, &name).len(), wanted, "{case}");
        let listed = slurm.list(&JobFilter::all()).await.expect("a list");
        let listed: Vec<_> = listed.iter().filter(|job| job.name == name).collect();
        assert_eq!(listed.len(), 1, "{case}: {listed:?}");
        let found = slurm.find(&rendered.submission).await.expect("an answer").expect("the job");
        assert_eq!(listed[0].handle, found, "{case}");
        cancel(&slurm, &found).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_the_same_job_passes_its_claim_again_after_a_requeue() {
    let Some(cluster) = TestCluster::find() else { return };
    let name = unique("requeued");
    let slurm = Slurm::new(&cluster.target(Way::Ssh).with("requeue", true)).expect("the target is good");
    let handle = slurm.submit(&rendered(&slurm, &name)).await.expect("is taken");
    until("it runs", || runs(&cluster, &name).len() == 1).await;
    cluster.ctl(&format!("head scontrol requeue {}", handle.name()));
    // Slurm waits two minutes before it restarts a requeued job, unless a restart is requested. In the second
    // in which it ended the first run, slurmd would refuse the same job again ("Job credential revoked").
    tokio::time::sleep(Duration::from_secs(3)).await;
    let start = format!("head -u root scontrol update JobId={} StartTime=now", handle.name());
    until("it runs again", || {
        cluster.ctl(&start);
        runs(&cluster, &name).len() == 2
    })
    .await;
    let ran = runs(&cluster, &name);
    assert_eq!(ran[0], ran[1]);
    cancel(&slurm, &handle).await;
}

/// What a proxy before slurmrestd does with a submission.
#[derive(Clone, Copy, Debug)]
struct Lossy {
    /// The answer it gives instead of slurmrestd's; none closes the connection.
    answer: Option<&'static str>,
    /// Seconds until it hands the submission on; none drops it.
    hand_on: Option<u64>,
    /// How many submissions it treats so; later ones are handed on as they are.
    times: usize,
}

/// What the proxy saw, in order: `POST` for a submission, `GET` for a look at the jobs.
type Log = std::sync::Arc<std::sync::Mutex<Vec<&'static str>>>;

async fn lossy_proxy(port: u16, lossy: Lossy) -> (String, Log) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let log = Log::default();
    let seen = log.clone();
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            tokio::spawn(serve(caller, port, lossy, seen.clone()));
        }
    });
    (format!("http://{address}"), log)
}

/// One connection: requests are read whole, and handed on each over a connection of its own.
async fn serve(mut caller: tokio::net::TcpStream, port: u16, lossy: Lossy, log: Log) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Some(request) = whole_request(&mut caller).await else { return };
    let text = String::from_utf8_lossy(&request);
    let submits = text.starts_with("POST") && text.contains("/job/submit");
    let earlier = {
        let mut log = log.lock().expect("not poisoned");
        let earlier = log.iter().filter(|what| **what == "POST").count();
        if submits {
            log.push("POST");
        } else if text.contains("/jobs/") {
            log.push("GET");
        }
        earlier
    };
    let lost = submits && earlier < lossy.times;
    if lost {
        if let Some(answer) = lossy.answer {
            let _ = caller.write_all(answer.as_bytes()).await;
            let _ = caller.shutdown().await;
        }
        drop(caller);
        let Some(seconds) = lossy.hand_on else { return };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("slurmrestd");
        server.write_all(&request).await.expect("it is taken");
        let _ = server.read(&mut [0; 4096]).await;
        return;
    }
    let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("slurmrestd");
    server.write_all(&request).await.expect("it is taken");
    // The caller may use the connection again, for further looks: those come as new connections once this one is closed.
    let mut piece = vec![0; 1 << 16];
    loop {
        let read = tokio::time::timeout(Duration::from_millis(1500), server.read(&mut piece)).await;
        match read {
            Ok(Ok(count)) if count > 0 => {
                if caller.write_all(&piece[..count]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// A request with the whole of its body, and asking for the connection to be closed after the answer.
async fn whole_request(caller: &mut tokio::net::TcpStream) -> Option<Vec<u8>> {
    use tokio::io::AsyncReadExt as _;
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = caller.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(format!("{head}\r\nConnection: close\r\n\r\n{body}").into_bytes());
        }
    }
}

fn answer_of(slurm: &Lossy) -> String {
    slurm.answer.map_or_else(|| "reset".to_owned(), |text| text.lines().next().unwrap_or_default().to_owned())
}

/// Point B2: for every answer, the POST is sent once, and the job is found by its marker.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b2_no_post_is_repeated_whatever_the_answer() {
    let Some(cluster) = TestCluster::find() else { return };
    let unspecified = "HTTP/1.1 500 E\r\nContent-Type: application/json\r\nContent-Length: 61\r\nConnection: close\r\n\r\n\
        {\"errors\":[{\"error_number\":-1,\"error\":\"Unspecified error\"}]}";
    let cases = [
        (None, 0),
        (None, 6),
        (Some("HTTP/1.1 500 E\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops"), 0),
        (Some("HTTP/1.1 502 E\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), 3),
        (Some("HTTP/1.1 504 E\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), 6),
        (Some("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"), 2),
        (Some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"), 0),
        (Some("HTTP/1.1 200 OK\r\nContent-Length: 900\r\nConnection: close\r\n\r\n{\"job_id\":"), 0),
        (Some(unspecified), 2),
    ];
    for (answer, seconds) in cases {
        let lossy = Lossy { answer, hand_on: Some(seconds), times: usize::MAX };
        let (case, name) = (format!("{} after {seconds} s", answer_of(&lossy)), unique("rest-once"));
        let (address, log) = lossy_proxy(cluster.rest_port(), lossy).await;
        let target = cluster.target(Way::Rest).with("rest", address).with("absence-seconds", 60);
        let slurm = Slurm::new(&target).expect("the target is good");
        let found =
            slurm.submit(&rendered(&slurm, &name)).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let posts = log.lock().expect("not poisoned").iter().filter(|what| **what == "POST").count();
        assert_eq!((posts, cluster.count(&name)), (1, 1), "{case}");
        cancel(&slurm, &found).await;
    }
}

/// Point B2: a submission that never arrived stays unknown, and a refused token is renewed only after a look.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b2_between_two_posts_stands_a_look() {
    let Some(cluster) = TestCluster::find() else { return };
    let (address, log) =
        lossy_proxy(cluster.rest_port(), Lossy { answer: None, hand_on: None, times: usize::MAX }).await;
    let target = cluster.target(Way::Rest).with("rest", address).with("absence-seconds", 2);
    let slurm = Slurm::new(&target).expect("the target is good");
    let lost = slurm.submit(&rendered(&slurm, &unique("rest-lost"))).await.expect_err("it never arrives");
    assert!(matches!(lost.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{lost}");
    assert_eq!(log.lock().expect("not poisoned").iter().filter(|what| **what == "POST").count(), 1);

    let refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (address, log) =
        lossy_proxy(cluster.rest_port(), Lossy { answer: Some(refused), hand_on: None, times: 1 }).await;
    let slurm = Slurm::new(&cluster.target(Way::Rest).with("rest", address)).expect("the target is good");
    let name = unique("rest-401");
    let found = slurm.submit(&rendered(&slurm, &name)).await.expect("is taken with another token");
    assert_eq!(cluster.count(&name), 1);
    let seen = log.lock().expect("not poisoned").clone();
    let posts: Vec<usize> = (0..seen.len()).filter(|at| seen[*at] == "POST").collect();
    assert!(matches!(posts[..], [first, second] if seen[first..second].contains(&"GET")), "{seen:?}");
    cancel(&slurm, &found).await;
}
