use super::super::allocation::tests::place;
use super::*;
use weftrun_core::{Error, ErrorKind};

fn node(text: &str) -> Seen {
    let mut node = Node::default();
    for (key, value) in text.split(", ").filter_map(|line| line.split_once(' ')) {
        node.take(key, value);
    }
    Seen::Answered(node)
}

fn job(launch: Launch, restarts: u32, a: &str, b: &str) -> Job {
    let seen = |text: &str| match text {
        "silent" => Seen::Silent((&Error::new(ErrorKind::Unreachable, "timed out")).into()),
        "absent" => Seen::Absent,
        text => node(text),
    };
    Job { place: place(launch, restarts), seen: vec![seen(a), seen(b)] }
}

const RUNS: &str = "go 0, phase running, alive yes";
const DONE: &str = "go 0, phase ended, how done, code 0";
const FAILED: &str = "go 0, phase ended, how failed, code 137, rank 1";
const STOPPED_BY_A: &str = "go 0, phase ended, how stopped, why rank 1 on a exited";
const STOPPED: &str = "go 0, phase ended, how stopped";

#[test]
fn the_hosts_decide_the_phase_together() {
    use JobPhase::{Cancelled, Failed, Restarting, Running, Starting, Stopping, Succeeded, Unknown};
    const CANCELLED: &str = "go 0, phase ended, how cancelled";
    const LOST: &str = "go 0, phase running, alive no, orphans 0, asked cancel";
    const REBOOTED: &str = "go 0, phase running, alive rebooted, orphans 0";
    let ranks = |restarts, a, b| (Launch::PerRank, restarts, a, b);
    let mpi = |a, b| (Launch::Mpi, 0, a, b);
    let ask = |at, text: &str| vec![(at, Order::Ask(text.to_owned()))];
    let again = || vec![(0, Order::Go(1)), (1, Order::Go(1))];
    let killed = "rank 1 on a ended by signal 9 (exit code 137)";
    for ((launch, restarts, a, b), phase, reason, orders) in [
        (ranks(0, RUNS, RUNS), Running, "", vec![]),
        (ranks(0, RUNS, "alive none"), Starting, "", vec![(1, Order::Go(0))]),
        (ranks(0, DONE, RUNS), Running, "", vec![]),
        (ranks(0, DONE, DONE), Succeeded, "", vec![]),
        (ranks(0, FAILED, RUNS), Stopping, killed, ask(1, &format!("stop {killed}"))),
        (ranks(0, FAILED, STOPPED), Failed, "rank 1 on a", vec![]),
        (ranks(1, FAILED, STOPPED), Restarting, "rank 1 on a", again()),
        (ranks(0, FAILED, "silent"), Stopping, "b does not answer: its ranks may still run", vec![]),
        (ranks(0, CANCELLED, "silent"), Stopping, "b does not answer", vec![]),
        (ranks(1, FAILED, "silent"), Restarting, "b does not answer", vec![]),
        (ranks(0, DONE, "silent"), Unknown, "b does not answer", vec![]),
        (ranks(0, RUNS, "silent"), Running, "b does not answer", vec![]),
        (ranks(0, "silent", STOPPED_BY_A), Stopping, "rank 1 on a exited; a does not answer", vec![]),
        (
            ranks(0, RUNS, "absent"),
            Stopping,
            "folder on b is gone",
            ask(0, "stop the job's folder on b is gone"),
        ),
        (ranks(0, LOST, DONE), Cancelled, "", vec![]),
        (ranks(0, REBOOTED, DONE), Failed, "a was started again", vec![]),
        (ranks(0, "go 0, phase running, alive no, orphans 3", RUNS), Running, "3 processes run on", vec![]),
        (ranks(0, CANCELLED, RUNS), Stopping, "", ask(1, "cancel")),
        (ranks(0, CANCELLED, STOPPED), Cancelled, "", vec![]),
        (mpi(DONE, RUNS), Succeeded, "", ask(1, "finish")),
        (
            mpi("go 0, phase ended, how failed, code 1", DONE),
            Failed,
            "mpirun on a exited with code 1",
            vec![],
        ),
    ] {
        let job = job(launch, restarts, a, b);
        let (found, why, _) = job.phase();
        assert_eq!((found, job.steps()), (phase, orders), "{a} / {b}");
        assert!(why.contains(reason), "{a} / {b}: {why}");
    }
}

#[test]
fn a_final_phase_is_kept_on_the_hosts_and_stays_final() {
    let failed = job(Launch::PerRank, 0, FAILED, STOPPED);
    let text = "failed 137 rank 1 on a ended by signal 9 (exit code 137)";
    let kept = Order::Conclude(text.to_owned());
    assert_eq!(failed.orders(), [(0, kept.clone()), (1, kept)]);
    let kept = format!("{FAILED}, verdict {text}");
    for other in ["silent", "absent", RUNS] {
        let later = job(Launch::PerRank, 0, &kept, other);
        assert_eq!(later.phase(), failed.phase(), "{other}");
    }
    let done = job(Launch::PerRank, 0, "silent", &format!("{DONE}, verdict succeeded 0 "));
    assert_eq!(done.phase(), (JobPhase::Succeeded, String::new(), Some(0)));
    assert_eq!(done.orders(), []);
    // A job that may still run somewhere has not ended.
    assert_eq!(job(Launch::PerRank, 0, FAILED, "silent").orders(), []);
}

#[test]
fn only_the_process_that_failed_has_its_exit_code() {
    let failed = job(Launch::PerRank, 0, FAILED, STOPPED);
    let codes =
        [(0, Some(0)), (0, Some(1)), (1, Some(2)), (0, None)].map(|(at, rank)| failed.code_of(at, rank));
    assert_eq!(codes, [None, Some(137), None, None]);
    assert_eq!(failed.replicas().iter().map(|host| host.failed_rank).collect::<Vec<_>>(), [Some(1), None]);
    assert_eq!(job(Launch::PerRank, 0, DONE, DONE).code_of(1, Some(3)), Some(0));
    let launcher = job(Launch::Mpi, 0, "go 0, phase ended, how failed, code 7", DONE);
    let codes = [(0, None), (0, Some(0)), (1, Some(2))].map(|(at, rank)| launcher.code_of(at, rank));
    assert_eq!(codes, [Some(7), None, None]);
}

#[test]
fn a_job_that_was_only_prepared_is_not_there() {
    assert!(!job(Launch::PerRank, 0, "alive none", "alive none").is_committed());
    assert!(job(Launch::PerRank, 0, RUNS, "alive none").is_committed());
    assert!(job(Launch::PerRank, 0, "silent", RUNS).is_committed());
}
