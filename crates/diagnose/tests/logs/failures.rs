//! Tests `why` on recorded failures (`tests/cases/failures`): the expected answer is beside each, and it
//! must not depend on the order of the files, on a single file, or on their last lines.
#![allow(clippy::expect_used, clippy::panic, reason = "a test ends with a panic, and says why")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weftrun_core::job::{JobDetail, JobPhase, JobSummary, ReplicaStatus, TIME_LIMIT_REACHED};
use weftrun_core::nccl::{SourceId, TransportMap};
use weftrun_core::{Confidence, Finding, Severity};
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::{RANK_FAILED, Why, WhyState};

fn why(map: &TransportMap) -> Why {
    Sources::of_logs(map).diagnose().why
}

/// Returns the answer for a job of which the cluster reports only the phase.
fn why_in(map: &TransportMap, phase: Option<JobPhase>) -> Why {
    let handle = "slurm://c/1".parse().expect("a handle");
    let detail = phase.map(|phase| JobDetail::new(JobSummary::new(handle, phase)));
    Sources::of_logs(map).job(detail.as_ref()).diagnose().why
}

fn why_of_job(map: &TransportMap, job: &JobDetail) -> Why {
    Sources::of_logs(map).job(Some(job)).diagnose().why
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/failures")
}

/// A recording: the output of each node, and the expected answer.
struct Recording {
    name: String,
    nodes: Vec<Vec<u8>>,
    truth: serde_json::Value,
}

fn recordings() -> Vec<Recording> {
    let mut found: Vec<Recording> = fs::read_dir(folder())
        .expect("the recordings")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .map(|path| Recording {
            name: path.file_name().expect("a name").to_string_lossy().into_owned(),
            nodes: ["node0.log", "node1.log"]
                .iter()
                .map(|name| fs::read(path.join(name)).expect("a log"))
                .collect(),
            truth: serde_json::from_slice(&fs::read(path.join("truth.json")).expect("the truth"))
                .expect("JSON"),
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    // Two ranks on two nodes: the tests of skipped steps read them.
    found.retain(|recording| recording.truth["world"] == 4);
    assert_eq!(found.len(), 10, "all recordings are there");
    found
}

fn read(sources: &[(&str, &[u8])], chunk: usize) -> TransportMap {
    let mut map = TransportMap::new();
    for (name, bytes) in sources {
        let source = Arc::new(SourceId::new(*name));
        for piece in bytes.chunks(chunk) {
            map.read(&source, piece);
        }
        map.end(&source);
    }
    map
}

fn ask(sources: &[(&str, &[u8])]) -> Why {
    why(&read(sources, 1 << 16))
}

impl Recording {
    fn first(&self) -> Vec<u32> {
        serde_json::from_value(self.truth["first"].clone()).expect("ranks")
    }

    fn class(&self) -> &str {
        self.truth["class"].as_str().expect("a class")
    }

    /// Asserts that the answer is exactly the expected one.
    fn check(&self, why: &Why, variant: &str) {
        let at = format!("{} ({variant}): {why:#?}", self.name);
        if self.class() == "none" {
            assert_eq!(why.cause, None, "{at}");
            assert!(!matches!(why.state, WhyState::Failed | WhyState::Hanging), "{at}");
            return;
        }
        assert!(matches!(why.state, WhyState::Failed | WhyState::Hanging), "{at}");
        let cause = why.cause.as_ref().expect(&at);
        assert_eq!(cause.class.as_str(), self.class(), "{at}");
        assert_eq!(cause.ranks, self.first(), "{at}");
        assert_eq!(cause.what, self.truth["what"].as_str().expect("what"), "{at}");
        let frame = cause.frame.as_ref().map(|frame| {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            format!("{file} in {}", frame.function)
        });
        assert_eq!(frame.as_deref(), self.truth["user_frame"].as_str(), "{at}");
        assert!(!cause.evidence.is_empty(), "{at}");
        let node = cause.ranks.first().map(|rank| format!("node{}", rank / 2));
        // The recordings name their simulated nodes by NCCL_HOSTID; the name of a file is no host.
        let told = |log: &Vec<u8>| memchr::memmem::find(log, b"NCCL_HOSTID set by environment").is_some();
        let ran = cause.ranks.first().and_then(|rank| self.nodes.get(*rank as usize / 2)).is_some_and(told);
        assert_eq!(cause.nodes.first(), node.as_ref().filter(|_| ran), "{at}");
        assert!(why.lines().len() <= 10, "{at}");
    }
}

#[test]
fn every_recorded_failure_is_named_with_rank_cause_and_line() {
    for recording in recordings() {
        let [one, two] = [&recording.nodes[0][..], &recording.nodes[1][..]];
        let why = ask(&[("node0.log", one), ("node1.log", two)]);
        recording.check(&why, "whole");
        if let Some(cause) = &why.cause {
            assert_eq!(cause.confidence, Confidence::High, "{}", recording.name);
            let victims: Vec<u32> =
                serde_json::from_value(recording.truth["victims"].clone()).expect("ranks");
            assert_eq!(why.victims, victims, "{}", recording.name);
        } else {
            assert_eq!(why.state, WhyState::Succeeded, "{}", recording.name);
        }
    }
}

/// A host runs several ranks and has one exit code; where the backend knows whose it is, that rank is named.
#[test]
fn the_rank_that_a_backend_names_is_the_cause() {
    let handle = "hosts://rack/train#1".parse().expect("a handle");
    let mut job = JobDetail::new(JobSummary::new(handle, JobPhase::Failed));
    for (index, host) in (0..).zip(["a", "b"]) {
        job.replicas.push(ReplicaStatus::new(host, "worker", index, JobPhase::Failed));
    }
    job.replicas[1].exit_code = Some(3);
    assert_eq!(why_of_job(&TransportMap::new(), &job).cause.expect("a cause").ranks, [0_u32; 0]);
    job.replicas[1].failed_rank = Some(5);
    let cause = why_of_job(&TransportMap::new(), &job).cause.expect("a cause");
    assert_eq!((cause.ranks, cause.what.as_str()), (vec![5], "exit code 3"));
}

fn detail(phase: JobPhase, replicas: &[(&str, &str, i32)], findings: Vec<Finding>) -> JobDetail {
    let mut job = JobDetail::new(JobSummary::new("k8s://c/ns/train".parse().expect("a handle"), phase));
    for (index, (name, node, code)) in (0..).zip(replicas) {
        let mut replica = ReplicaStatus::new(*name, "worker", index, phase);
        (replica.node, replica.exit_code) = (Some((*node).to_owned()), Some(*code));
        job.replicas.push(replica);
    }
    job.findings = findings;
    job
}

/// What takes a pod from its job is the cause, whatever its ranks print while they are ended.
#[test]
fn what_took_a_pod_is_the_cause() {
    let log = b"Traceback (most recent call last):\n  File \"/t.py\", line 7, in <module>\n    main()\nRuntimeError: Connection closed by peer [10.0.0.7]:4711\n";
    let cases = [
        ("K8S-PREEMPTED", "PREEMPTED"),
        ("K8S-DRAINED", "Evicted"),
        ("K8S-NODE-LOST", "NODE_FAIL"),
        ("SLURM-OUT-OF-MEMORY", "OUT_OF_MEMORY"),
    ];
    for (code, class) in cases {
        let finding = Finding::error(code, "it was taken").at("train-worker-1").fix("submit again");
        let job = detail(
            JobPhase::Failed,
            &[("train-worker-0", "n0", 1), ("train-worker-1", "n1", 137)],
            vec![finding],
        );
        let why = why_of_job(&read(&[("train-worker-0", log)], 4096), &job);
        let cause = why.cause.expect("a cause");
        assert_eq!((cause.class.as_str(), cause.code.as_str()), (class, code));
        assert_eq!((cause.nodes, cause.fix.as_str()), (vec!["n1".to_owned()], "submit again"));
    }
    // A deletion that nobody explains does not hide what a rank did by itself.
    let own = b"Traceback (most recent call last):\n  File \"/t.py\", line 7, in <module>\n    main()\nValueError: bad loss\n";
    let deleted = || vec![Finding::error("K8S-DELETED", "it was deleted").at("train-worker-1")];
    let job = detail(JobPhase::Failed, &[("train-worker-1", "n1", 143)], deleted());
    let class = |log| why_of_job(&read(&[("train-worker-0", log)], 4096), &job).cause.expect("a cause").class;
    assert_eq!(class(&own[..]).as_str(), "exception");
    assert_eq!(class(&b"step 1\n"[..]).as_str(), "deleted");
}

/// A job that waits has not failed, whatever its earlier attempt printed.
#[test]
fn a_job_that_is_queued_again_is_pending_and_needs_nothing() {
    let log = b"srun: error: Node failure on gpu-2\nslurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 DUE TO NODE FAILURE ***\n";
    let map = read(&[("batch", log)], 4096);
    let cause = why(&map).cause.expect("a cause");
    assert_eq!(
        (cause.class.as_str(), cause.nodes),
        ("NODE_FAIL", vec!["gpu-2".to_owned()]),
        "by the log alone"
    );
    let finding = Finding::error("SLURM-NODE-FAILED", "the node gpu-2 failed").at("gpu-2");
    let again = why_of_job(&map, &detail(JobPhase::Pending, &[], vec![finding]));
    let cause = again.cause.clone().expect("a cause");
    assert_eq!((again.state, cause.nodes), (WhyState::Pending, vec!["gpu-2".to_owned()]));
    assert!(cause.fix.starts_with("nothing"), "{}", cause.fix);
    assert!(!again.is_failure());
    let refused = Finding::error("SLURM-NEVER-STARTS", "the job it depends on failed").fix("submit it again");
    let why = why_of_job(&TransportMap::new(), &detail(JobPhase::Pending, &[], vec![refused]));
    assert_eq!(why.lines()[0], "pending: refused: the whole job");
    assert_eq!(why.cause.expect("a cause").fix, "submit it again");
}

/// The cluster's word is kept, and a rank that failed is said beside it, unless each process ended with 0.
#[test]
fn a_failed_rank_of_a_job_that_succeeded_is_an_error() {
    let joined = |rank: u32| {
        format!(
            "gpu-1:3{rank}:3{rank} [{rank}] NCCL INFO comm 0x7f10 rank {rank} nranks 2 cudaDev {rank} busId {rank}0 commId 0x5 - Init COMPLETE\n"
        )
    };
    let raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/t.py\", line 7, in <module>\n[rank1]:     main()\n[rank1]: ValueError: bad loss\n";
    let (zero, one) = (joined(0), joined(1) + raised);
    let map = read(&[("train-worker-0", zero.as_bytes()), ("train-worker-1", one.as_bytes())], 4096);
    let of = |code| {
        why_of_job(
            &map,
            &detail(
                JobPhase::Succeeded,
                &[("train-worker-0", "n0", 0), ("train-worker-1", "n1", code)],
                Vec::new(),
            ),
        )
    };
    let why = of(1);
    assert_eq!((why.state, &why.cause), (WhyState::Succeeded, &None));
    let finding = why.findings.iter().find(|finding| finding.code == RANK_FAILED).expect("an error");
    assert_eq!((finding.severity, finding.ranks.as_slice()), (Severity::Error, &[1][..]));
    assert_eq!(why.lines()[0], "succeeded: so the cluster reports, and what follows contradicts it");
    let well = of(0);
    assert!(well.findings.iter().all(|finding| finding.code != RANK_FAILED));
    let lines = well.lines();
    assert_eq!(lines[0], "succeeded: errors in the logs, and nothing shows that a rank failed");
    assert!(
        lines[1].contains("rank 1")
            && lines[1].ends_with("ValueError: bad loss; its process ended with exit code 0"),
        "{lines:?}"
    );
}

/// Neither a single rank nor one that may have handled its exception is silent about it.
#[test]
fn an_error_of_a_job_that_succeeded_is_said() {
    let raised = "Traceback (most recent call last):\n  File \"/t.py\", line 7, in <module>\n    main()\nValueError: bad loss\n";
    let map = read(&[("train-worker-0", raised.as_bytes())], 4096);
    let why = why_of_job(&map, &detail(JobPhase::Succeeded, &[("train-worker-0", "n0", 0)], Vec::new()));
    assert_eq!((why.state, &why.cause), (WhyState::Succeeded, &None));
    let lines = why.lines().join("\n");
    assert!(!lines.contains("no failure in the logs") && lines.contains("bad loss"), "{lines}");
    let missing = vec![Finding::error("K8S-RANKS-MISSING", "1 of its 2 pods never started")];
    let why = why_of_job(&TransportMap::new(), &detail(JobPhase::Succeeded, &[], missing));
    assert!(why.lines()[0].ends_with("contradicts it"), "{:?}", why.lines());
}

/// A job that has not ended must not be submitted again beside itself.
#[test]
fn a_node_that_fails_under_a_running_job_is_no_reason_to_submit_it_again() {
    let log = "srun: error: Node failure on gpu-2\nslurmstepd: error: *** STEP 7.0 ON gpu-1 CANCELLED AT 2026-11-27T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n";
    let map = read(&[("batch", log.as_bytes())], 4096);
    let ended = why_of_job(&map, &detail(JobPhase::Failed, &[], Vec::new()));
    assert!(ended.cause.as_ref().expect("a cause").fix.contains("submit the job again"), "{ended}");
    let live = ended.not_ended();
    assert_eq!(live.state, WhyState::Running);
    assert!(live.cause.expect("a cause").fix.contains("only once"));
    let runs = why_of_job(&map, &detail(JobPhase::Running, &[], Vec::new()));
    assert!(runs.cause.is_none_or(|cause| !cause.fix.starts_with("submit the job again")));
}

#[test]
fn who_holds_a_job_is_said_with_what_lets_it_go_on() {
    let of = |reason: &str| {
        let mut job = detail(JobPhase::Suspended, &[], Vec::new());
        reason.clone_into(&mut job.summary.reason);
        why_of_job(&TransportMap::new(), &job).lines().join("\n")
    };
    let own = of("is held by its owner; `weftrun release` lets it start (JobHeldUser)");
    assert!(
        own.starts_with("pending: it is held or suspended\n") && own.contains("held by its owner"),
        "{own}"
    );
    assert!(own.ends_with("`weftrun release` lets it start"), "{own}");
    assert!(of("is held by an administrator (JobHeldAdmin)").contains("only they can"));
    assert!(of("").contains("`weftrun resume`"));
}

/// Of a job on one node it is known where it was, also where no line names a rank.
#[test]
fn a_cause_of_no_known_rank_is_on_the_only_node() {
    let map = read(&[("batch", b"cat: write error: No space left on device\n")], 4096);
    let job = detail(JobPhase::Failed, &[("gpu-1", "gpu-1", 1)], Vec::new());
    let head = why_of_job(&map, &job).lines()[0].clone();
    assert!(head.ends_with(": a rank on gpu-1"), "{head}");
    let oom = b"slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed.\n";
    let mut job = detail(JobPhase::Failed, &[("gpu-1", "gpu-1", 137)], Vec::new());
    "ran out of memory".clone_into(&mut job.summary.reason);
    job.findings.push(Finding::error("SLURM-OUT-OF-MEMORY", "the job used more memory than it requested"));
    let head = why_of_job(&read(&[("batch", oom)], 4096), &job).lines()[0].clone();
    assert_eq!(head, "failed: OUT_OF_MEMORY: a rank on gpu-1");
}

/// A line of a known kind near the end says more than the exit code; memory limits of Slurm without cgroups are known.
#[test]
fn the_last_error_says_more_than_an_exit_code() {
    let exited = "srun: error: gpu-1: task 0: Exited with exit code 1\n";
    let class = |line: &str| {
        let log = format!("hi\n{line}\n");
        let map = read(&[("node0", log.as_bytes()), ("batch", exited.as_bytes())], 4096);
        let job = detail(JobPhase::Failed, &[("gpu-1", "gpu-1", 1)], Vec::new());
        why_of_job(&map, &job).cause.expect("a cause").class
    };
    assert_eq!(class("cat: write error: No space left on device").as_str(), "disk-full");
    assert_eq!(class("weftrun: error: the code was not fetched: file:///x").as_str(), "not-started");
    assert_eq!(
        class("slurmstepd: error: StepId=9.0 exceeded memory limit (2960 > 2048), being killed").as_str(),
        "OUT_OF_MEMORY"
    );
    assert_eq!(class("all is well").as_str(), "exit-code");
}

/// No rank is to blame for a time limit, and a job that was cancelled has not failed.
#[test]
fn what_ends_a_whole_job_is_said_without_a_rank() {
    let of = |phase, reason: &str| {
        let mut job = JobSummary::new("hosts://rack/train#1".parse().expect("a handle"), phase);
        job.reason = reason.to_owned();
        why_of_job(&TransportMap::new(), &JobDetail::new(job))
    };
    let why = of(JobPhase::Failed, &format!("{TIME_LIMIT_REACHED} (60 s)"));
    assert_eq!(why.lines()[0], "failed: TIMEOUT: the whole job");
    let lines = |phase, reason: &str| of(phase, reason).lines().join("\n");
    assert_eq!(lines(JobPhase::Cancelled, ""), "cancelled: no failure in the logs");
    assert_eq!(lines(JobPhase::Cancelled, "cancelled"), "cancelled: no failure in the logs");
    let by = "cancelled: no failure in the logs\n  note      the job is cancelled: by alice";
    assert_eq!(lines(JobPhase::Cancelled, "by alice"), by);
    let waits = "pending: it has not started\n  note      the job is pending: no host is free";
    assert_eq!(lines(JobPhase::Pending, "no host is free"), waits);
}

/// `tests/cases/why/README.md` says what each log is about.
#[test]
fn logs_that_are_easy_to_get_wrong_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/why");
    let mut logs: Vec<PathBuf> =
        fs::read_dir(folder).expect("the cases").map(|entry| entry.expect("an entry").path()).collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "log"));
    logs.sort();
    assert!(logs.len() >= 18, "{logs:?}");
    for path in logs {
        let bytes = fs::read(&path).expect("a log");
        let why = ask(&[("job.log", &bytes)]);
        let lines: Vec<String> = why.lines().into_iter().take(2).collect();
        let said = format!("{}\nvictims: {:?}\n", lines.join("\n"), why.victims);
        let wanted = path.with_extension("txt");
        if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
            fs::write(&wanted, &said).expect("written");
        }
        assert_eq!(said, fs::read_to_string(&wanted).unwrap_or_default(), "{}", path.display());
        for chunk in [1, 7, 64] {
            let again = why_in(&read(&[("job.log", &bytes)], chunk), None);
            assert_eq!(again.lines(), why.lines(), "{} in pieces of {chunk}", path.display());
        }
    }
}

/// Where the environment or another process is the cause, no line of the program is the thing to change.
#[test]
fn a_fix_is_about_the_cause() {
    let cases = [
        ("connection-reset-at-the-rendezvous", "check that MASTER_ADDR"),
        ("line-another-worker-failed", "read the last lines of every rank"),
        ("line-container-not-started-by-pyxis", "correct what the line names: the image"),
        ("line-driver-of-two-versions", "reboot the node or reload its driver"),
        ("line-gpu-busy-behind-a-logger", "find the process that holds the GPU"),
        ("line-host-unknown-to-mpirun", "start the host or pod of that name first"),
        ("line-loader-without-shared-memory", "give the job more shared memory"),
        ("line-message-in-json", "check that MASTER_ADDR"),
        ("line-more-processes-than-slots", "start no more processes"),
        ("line-nccl-behind-a-logger", "set NCCL_DEBUG=INFO"),
        ("line-nccl-under-another-framework", "set NCCL_DEBUG=INFO"),
        ("line-nccl-under-jax", "set NCCL_DEBUG=INFO"),
        ("line-no-provider-then-no-endpoint", "give the container the EFA devices"),
        ("line-peer-memory-refused-on-amd", "set NCCL_P2P_DISABLE=1"),
        ("line-worker-lost-by-ray", "read that worker's own log on its node"),
        ("nccl-device-of-no-thread", "use a node with a newer driver"),
        ("nccl-last-error-empty", "set NCCL_DEBUG=INFO"),
        ("nccl-last-error-peer-access", "set NCCL_P2P_DISABLE=1"),
        ("nccl-tests-driver-too-old", "use a node with a newer driver"),
        ("nccl-shm-of-an-old-release", "check the limit of locked memory"),
        ("nccl-shm-not-registered", "check the limit of locked memory"),
        ("nccl-shm-without-a-reason", "compare the size in the line with the free space"),
    ];
    for (name, fix) in cases {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/why").join(name);
        let why = ask(&[("job.log", &fs::read(path.with_extension("log")).expect("a log"))]);
        let given = why.cause.as_ref().map(|cause| cause.fix.clone()).unwrap_or_default();
        assert!(given.starts_with(fix), "{name}: {given}");
    }
    let of = |message: &str| {
        let log = format!(
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/train.py\", line 3, in main\n[rank0]: {message}\n"
        );
        ask(&[("job.log", log.as_bytes())]).cause.map(|cause| cause.fix).unwrap_or_default()
    };
    for (message, fix) in [
        ("OSError: [Errno 24] Too many open files", "raise the limit of open files"),
        ("RuntimeError: No CUDA GPUs are available", "give each rank a GPU"),
        ("OSError: [Errno 116] Stale file handle: 'x'", "check the file system"),
        (
            "RuntimeError: Expected to have finished reduction in the prior iteration before",
            "use every parameter",
        ),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB", "use a smaller batch"),
        ("ValueError: bad row", "correct /job/train.py:3"),
    ] {
        let given = of(message);
        assert!(given.starts_with(fix), "{message}: {given}");
        assert!(!given.contains("nvidia-smi"), "{message}: {given}");
    }
}

/// Ranks that disagree are shown with the line of each side, in the user's own file.
#[test]
fn a_mismatch_shows_where_each_side_stands() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/why/shape-where-ranks-stand.log");
    let why = ask(&[("job.log", &fs::read(log).expect("a log"))]);
    let lines = why.lines();
    let places: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("  at        ")).collect();
    assert_eq!(places, ["train.py:40 in main (rank 0)", "train.py:32 in main (rank 1)"]);
    let shape: Vec<Vec<u8>> =
        [0, 1].map(|node| fs::read(folder().join(format!("shape/node{node}.log"))).expect("a log")).into();
    let lines = ask(&[("node0.log", &shape[0]), ("node1.log", &shape[1])]).lines();
    let places: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("  at        ")).collect();
    assert_eq!(places, ["/job/train.py:32 in main (rank 1)", "/job/train.py:40 in main (ranks 0, 2-3)"]);
}

/// Only a warning of NCCL, a minute before the first words of a watchdog, says that the ranks' collectives differ.
#[test]
fn a_skipped_collective_of_a_running_job_is_a_mismatch() {
    let log = |node: u32| fs::read(folder().join(format!("skip_running/node{node}.log"))).expect("a log");
    let (one, two) = (log(0), log(1));
    let map = read(&[("node0.log", &one), ("node1.log", &two)], 1 << 16);
    for phase in [None, Some(JobPhase::Running), Some(JobPhase::Failed)] {
        let why = why_in(&map, phase);
        let cause = why.cause.as_ref().expect("a cause");
        assert_eq!((cause.class.as_str(), cause.ranks.as_slice()), ("collective-mismatch", &[0, 1][..]));
        assert_eq!(cause.code, "COLLECTIVE-MISMATCH");
        assert!(cause.evidence[0].text.contains("message truncated"), "{why:#?}");
    }
}

/// A rank that skipped a step ends before the others, which then tell of a closed connection.
#[test]
fn a_rank_that_ends_a_step_early_is_the_cause() {
    let folder = folder().join("left_early");
    let read_file = |name: &str| fs::read(folder.join(name)).expect("a file");
    let (one, two) = (read_file("node0.log"), read_file("node1.log"));
    let truth: serde_json::Value = serde_json::from_slice(&read_file("truth.json")).expect("JSON");
    for sources in [[("node0.log", &one[..]), ("node1.log", &two[..])], [("b", &two[..]), ("a", &one[..])]] {
        let why = why_in(&read(&sources, 1 << 16), Some(JobPhase::Failed));
        let cause = why.cause.as_ref().expect("a cause");
        assert_eq!(cause.code, "RANK-ENDED-EARLY", "{why:#?}");
        assert_eq!(cause.what, truth["what"].as_str().unwrap());
        assert_eq!((cause.ranks.as_slice(), why.victims.as_slice()), (&[1][..], &[0][..]));
        assert!(cause.evidence[0].text.contains("Destroy COMPLETE"), "{why:#?}");
    }
    // An error of rank 0 itself is the cause.
    let own = [&one[..], b"[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/train.py\", line 3, in save\n[rank0]: OSError: no checkpoint\n"].concat();
    let why =
        why_in(&read(&[("node0.log", &own[..]), ("node1.log", &two[..])], 1 << 16), Some(JobPhase::Failed));
    assert_eq!(why.cause.map(|cause| cause.ranks), Some(vec![0]));
    // Without the log of rank 1 nothing shows how it ended.
    let alone = why_in(&read(&[("node0.log", &one[..])], 1 << 16), Some(JobPhase::Failed));
    assert_ne!(alone.cause.map(|cause| cause.code).as_deref(), Some("RANK-ENDED-EARLY"));
}

#[test]
fn the_order_of_the_files_does_not_matter() {
    for recording in recordings() {
        let why = ask(&[("node1.log", &recording.nodes[1]), ("node0.log", &recording.nodes[0])]);
        recording.check(&why, "other order");
    }
}

#[test]
fn the_cut_of_the_chunks_does_not_matter() {
    for recording in recordings() {
        let sources = [("node0.log", &recording.nodes[0][..]), ("node1.log", &recording.nodes[1][..])];
        let whole = why(&read(&sources, 1 << 16));
        assert_eq!(why(&read(&sources, 7)), whole, "{}", recording.name);
    }
}

#[test]
fn a_log_without_its_end_gives_the_same_answer() {
    for recording in recordings() {
        for node in 0..2 {
            let mut nodes = [&recording.nodes[0][..], &recording.nodes[1][..]];
            nodes[node] = &nodes[node][..nodes[node].len() * 4 / 5];
            let why = ask(&[("node0.log", nodes[0]), ("node1.log", nodes[1])]);
            recording.check(&why, &format!("node{node} cut"));
        }
    }
}

/// Two ranks raised different exceptions, which kubectl stamped: the one that came clearly first is the cause, whatever the order of
/// the files. Clocks may differ by seconds.
#[test]
fn of_two_failures_the_earlier_one_is_the_cause() {
    let raised = |second: u32, rank: u32, said: &str| {
        let at = format!("2026-11-26T10:{:02}:{:02}.1Z [rank{rank}]: ", second / 60, second % 60);
        format!(
            "{at}Traceback (most recent call last):\n{at}  File \"train.py\", line 7, in <module>\n{at}{said}\n"
        )
    };
    let (late, early) = (raised(100, 0, "KeyError: 'x'"), raised(40, 1, "ValueError: bad row"));
    for sources in [
        [("r0.log", late.as_bytes()), ("r1.log", early.as_bytes())],
        [("r1.log", early.as_bytes()), ("r0.log", late.as_bytes())],
    ] {
        assert_eq!(ask(&sources).cause.expect("a cause").ranks, [1]);
    }
}

#[test]
fn a_missing_log_lowers_confidence_and_names_nobody_wrongly() {
    for recording in recordings() {
        for node in 0..2 {
            let name = format!("node{node}.log");
            let why = ask(&[(&name, &recording.nodes[node])]);
            let at = format!("{} (only {name}): {why:#?}", recording.name);
            let first = recording.first();
            let there = first.iter().all(|rank| (rank / 2) as usize == node);
            if recording.class() == "none" {
                assert_eq!(why.cause, None, "{at}");
                continue;
            }
            if let Some(cause) = &why.cause {
                assert!(cause.ranks.iter().all(|rank| first.contains(rank)), "{at}");
                assert_ne!(cause.confidence, Confidence::High, "{at}");
                assert!(
                    !why.findings.is_empty()
                        || cause.what.contains("not read")
                        || cause.what.contains("no log says"),
                    "{at}"
                );
            }
            if there && recording.class() != "collective-mismatch" {
                // The culprit's own log has everything; two of four ranks alone do not show which of them
                // differs.
                recording.check(&why, &name);
            }
        }
    }
}

#[test]
fn both_layouts_of_torchrun_give_the_same_answer() {
    // `--tee 3` prefixes each line of a worker with the local rank. Lines of the agent have none.
    for recording in recordings().into_iter().filter(|recording| recording.truth["torchrun_tee"] == true) {
        let plain: Vec<Vec<u8>> = recording
            .nodes
            .iter()
            .map(|log| {
                let text = String::from_utf8_lossy(log);
                text.replace("[default0]:", "").replace("[default1]:", "").into_bytes()
            })
            .collect();
        let why = ask(&[("node0.log", &plain[0]), ("node1.log", &plain[1])]);
        recording.check(&why, "without the tee's prefix");
    }
}

#[test]
fn prefixes_of_shippers_do_not_hide_the_cause() {
    for recording in recordings() {
        let shipped: Vec<Vec<u8>> = (0..2)
            .map(|node| {
                let text = String::from_utf8_lossy(&recording.nodes[node]);
                let lines = text.lines().zip(0..).map(|(line, at)| {
                    format!("2026-11-22T03:{:02}:{:02}.{:09}Z {line}\n", at / 60 % 60, at % 60, at * 7919)
                });
                lines.collect::<String>().into_bytes()
            })
            .collect();
        let why = ask(&[("node0.log", &shipped[0]), ("node1.log", &shipped[1])]);
        recording.check(&why, "with times");
    }
}

#[test]
fn a_restart_in_the_same_log_is_a_second_life() {
    let all = recordings();
    let of = |name: &str| all.iter().find(|one| one.name == name).expect("a recording");
    // One attempt raised, the next one lost a process to SIGKILL, in the same two files.
    let (before, after) = (of("exception"), of("sigkill"));
    let nodes: Vec<Vec<u8>> =
        (0..2).map(|node| [&before.nodes[node][..], b"\n", &after.nodes[node][..]].concat()).collect();
    after.check(&ask(&[("node0.log", &nodes[0]), ("node1.log", &nodes[1])]), "second life");
    // One attempt was killed, the next one ran to its end.
    let (before, after) = (of("sigkill"), of("ok"));
    let nodes: Vec<Vec<u8>> =
        (0..2).map(|node| [&before.nodes[node][..], b"\n", &after.nodes[node][..]].concat()).collect();
    let why = ask(&[("node0.log", &nodes[0]), ("node1.log", &nodes[1])]);
    assert_eq!((why.state, &why.cause), (WhyState::Succeeded, &None), "{why:#?}");
    assert!(why.findings.iter().any(|finding| finding.message.contains("SIGKILL")), "{why:#?}");
}

#[test]
fn torn_lines_make_no_process_and_no_node() {
    for recording in recordings() {
        let map = read(&[("node0.log", &recording.nodes[0]), ("node1.log", &recording.nodes[1])], 1 << 16);
        let ranks = map.snapshot().ranks();
        let hosts: std::collections::BTreeSet<_> = ranks.iter().map(|rank| rank.node).collect();
        let (processes, nodes) = match recording.name.as_str() {
            // NCCL printed nothing, or only on the node whose ranks got that far.
            "exception_nodebug" => (0, 0),
            "import_error" => (2, 1),
            _ => (4, 2),
        };
        assert_eq!((ranks.len(), hosts.len()), (processes, nodes), "{}", recording.name);
    }
}

/// Diagnoses one source of a program whose ranks write one after another.
fn one(text: &str) -> Why {
    ask(&[("job.log", text.as_bytes())])
}

#[track_caller]
fn assert_cause(why: &Why, class: &str, ranks: &[u32], what: &str) {
    let cause = why.cause.as_ref().unwrap_or_else(|| panic!("a cause: {why:#?}"));
    assert_eq!((cause.class.as_str(), cause.ranks.as_slice()), (class, ranks), "{why:#?}");
    assert!(cause.what.contains(what), "{why:#?}");
}

/// Returns torchrun's report of workers, the first of which failed first.
fn torchrun(workers: &[(u32, u32, i32)]) -> String {
    let (_, local, code) = workers[0];
    let mut text = format!(
        "E1122 03:12:16.385000 827 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: {code}) local_rank: {local} (pid: {}) of binary: /usr/bin/python3\n\
         Traceback (most recent call last):\n  File \"/x/lib/python3.12/site-packages/torch/distributed/run.py\", line 990, in main\n    run(args)\n\
         torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n----\nFailures:\n",
        900 + local
    );
    for (at, (rank, local, code)) in workers.iter().enumerate().rev() {
        if at == 0 {
            text.push_str("----\nRoot Cause (first observed failure):\n");
        }
        text.push_str(&format!(
            "[{at}]:\n  time      : 2026-11-22_03:12:16\n  host      : n1\n  rank      : {rank} (local_rank: {local})\n  exitcode  : {code} (pid: {})\n  error_file: <N/A>\n",
            900 + local
        ));
    }
    text
}

#[test]
fn an_exit_code_without_a_traceback_is_the_cause() {
    let why = one(&torchrun(&[(5, 1, 3), (4, 0, -15)]));
    assert_cause(&why, "exit-code", &[5], "exit code 3");
    assert_eq!(why.victims, [4]);
}

#[test]
fn a_crash_in_native_code_is_a_signal_and_the_launchers_own_kills_are_not() {
    let why = one(&torchrun(&[(1, 1, -11), (0, 0, -15)]));
    assert_cause(&why, "signal", &[1], "SIGSEGV");
    // torchrun sends SIGKILL to processes that do not end after SIGTERM.
    let text = format!(
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: KeyError: 'x'\n{}",
        torchrun(&[(1, 1, 1), (0, 0, -9)])
    );
    assert_cause(&one(&text), "exception", &[1], "KeyError: 'x'");
}

#[test]
fn a_device_side_assert_is_a_cuda_error() {
    let text = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in step\n\
                [rank1]: torch.AcceleratorError: CUDA error: device-side assert triggered\n\
                [rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/t.py\", line 9, in main\n\
                [rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n";
    assert_cause(&one(text), "cuda-error", &[1], "device-side assert");
}

#[test]
fn a_port_in_use_is_no_ranks_fault() {
    let text = "Traceback (most recent call last):\n  File \"/v/lib/python3.12/site-packages/torch/distributed/run.py\", line 990, in main\n\
                torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n";
    let why = one(text);
    assert_cause(&why, "rendezvous", &[], "EADDRINUSE");
    assert_eq!(why.state, WhyState::Failed);
    let text = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/t.py\", line 3, in main\n\
                [rank0]:   File \"/v/lib/python3.12/site-packages/torch/distributed/rendezvous.py\", line 9, in x\n\
                [rank0]: torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.\n";
    assert_cause(&one(text), "rendezvous", &[], "1/2 clients joined");
}

/// Returns what rank `rank` writes when its watchdog gives up.
fn watchdog(rank: u32, group: &str, seq: u64, op: &str, numel: u64) -> String {
    format!(
        "[rank{rank}]:[E1 x.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=12000) ran for 12016 milliseconds before timing out.\n\
         [rank{rank}]:[E1 x.cpp:2303] [PG ID 0 PG GUID {group} Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {}\n",
        seq - 1
    )
}

#[test]
fn a_different_operation_names_the_odd_rank() {
    let ops = ["ALLREDUCE", "ALLREDUCE", "BROADCAST", "ALLREDUCE"];
    let text: String = (0..4).zip(ops).map(|(rank, op)| watchdog(rank, "0(default_pg)", 7, op, 10)).collect();
    let why = one(&text);
    assert_cause(&why, "collective-mismatch", &[2], "rank 2 has OpType BROADCAST, the others ALLREDUCE");
    assert_eq!(why.state, WhyState::Hanging);
}

#[test]
fn a_rank_that_waits_in_another_group_is_a_victim() {
    // Ranks 0 and 1 wait in the world's group for 2 and 3; 2 waits for 3 in a group of two; 3 computes on.
    let behind = "[rank3]:[E1 x.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 1. Last enqueued NCCL work: 6, last completed NCCL work: 6.\n";
    let also = "[rank2]:[E1 x.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a collective timeout from  rank 1. Last enqueued NCCL work: 6, last completed NCCL work: 6.\n";
    let text = [
        watchdog(0, "0(default_pg)", 7, "ALLREDUCE", 10),
        watchdog(1, "0(default_pg)", 7, "ALLREDUCE", 10),
        watchdog(2, "3(tp)", 40, "ALLREDUCE", 5),
        also.to_owned(),
        behind.to_owned(),
    ]
    .concat();
    assert_cause(&one(&text), "collective-timeout", &[3], "rank 3 did not take part in ALLREDUCE SeqNum 7");
}

#[test]
fn pytorchs_own_checks_name_the_rank() {
    let text = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/t.py\", line 3, in main\n\
                [rank0]: RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 5000 ms\n";
    assert_cause(&one(text), "collective-timeout", &[3], "monitoredBarrier");
    let each = |rank: u32, shape: u32| {
        format!(
            "[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File \"/job/t.py\", line 3, in main\n\
             [rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=11, OpType=ALLREDUCE, TensorShape=[{shape}], TensorDtypes=Float), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=11, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float).\n"
        )
    };
    let text = [each(1, 7), each(2, 8), each(3, 8)].concat();
    assert_cause(&one(&text), "collective-mismatch", &[1], "rank 1 has TensorShape [7], the others [8]");
}

#[test]
fn slurm_and_mpi_say_who_ended() {
    let why = one(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n\
                   srun: error: n2: task 5: Out Of Memory\n",
    );
    assert_cause(&why, "OUT_OF_MEMORY", &[5], "memory ran out");
    let why =
        one("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n");
    assert_cause(&why, "TIMEOUT", &[], "time limit");
    let why = one("mpirun noticed that process rank 3 with PID 77 on node n2 exited on signal 9 (Killed).\n");
    assert_cause(&why, "signal", &[3], "SIGKILL");
}

#[test]
fn an_exception_raised_from_another_names_the_first() {
    let text = "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/job/data.py\", line 3, in read\n[rank2]: FileNotFoundError: [Errno 2] No such file: 'x'\n\n\
                [rank2]: The above exception was the direct cause of the following exception:\n\n\
                [rank2]: Traceback (most recent call last):\n[rank2]:   File \"/job/t.py\", line 9, in main\n[rank2]: RuntimeError: training failed\n";
    let why = one(text);
    assert_cause(&why, "exception", &[2], "FileNotFoundError");
    assert_eq!(why.cause.and_then(|cause| cause.frame).map(|frame| frame.line), Some(3));
    // An exception that was handled before is no cause.
    let text = text.replace(
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    );
    assert_cause(&one(&text), "exception", &[2], "RuntimeError: training failed");
}

#[test]
fn text_that_only_looks_like_a_failure_is_none() {
    let text = "the docs say \"Traceback (most recent call last):\" comes first\nstep 1 loss 0.3\nLoss: 0.2\nstep 2 loss 0.1\n\
                CUDA_VISIBLE_DEVICES=0\nexitcode of the last run: 1\n";
    let why = one(text);
    assert_eq!((why.state, why.cause.as_ref()), (WhyState::Unknown, None), "{why:#?}");
}

#[test]
fn facts_are_bounded_however_often_they_are_repeated() {
    let mut text = String::new();
    for at in 0..20_000 {
        text.push_str("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: ValueError: x\n");
        text.push_str(&format!("srun: error: n1: task {at}: Killed\n"));
        text.push_str(&watchdog(at % 100, "0(default_pg)", u64::from(at) + 1, "ALLREDUCE", 1));
    }
    let map = read(&[("job.log", text.as_bytes())], 1 << 16);
    assert!(
        map.snapshot().failures().reports().len() < 25_000,
        "{}",
        map.snapshot().failures().reports().len()
    );
    assert!(map.snapshot().failures().dropped() > 50_000);
    assert_cause(&why(&map), "exception", &[1], "ValueError");
}

/// Steps behind a traceback show that the program survived it, in a job that still runs. In one that has ended they may have
/// been buffered.
#[test]
fn a_running_job_survives_an_exception_that_steps_follow() {
    let state = |steps: u32, phase: Option<JobPhase>| {
        let mut log = "step 1 tokens/s: 900\nTraceback (most recent call last):\n  File \"/opt/train/eval.py\", line 7, in evaluate\n    score = scores[3]\nIndexError: list index out of range\n".to_owned();
        log.extend((0..steps).map(|step| format!("step {} tokens/s: {}\n", step + 2, 900 + step)));
        why_in(&read(&[("node0.log", log.as_bytes())], 1 << 16), phase).state
    };
    let runs = Some(JobPhase::Running);
    assert_eq!(
        [0, 2, 3, 5000].map(|steps| state(steps, runs) == WhyState::Failed),
        [true, true, false, false]
    );
    assert_eq!(state(5000, None), WhyState::Failed);
    assert_eq!(state(5000, Some(JobPhase::Failed)), WhyState::Failed);
}
