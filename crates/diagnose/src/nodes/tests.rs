//! Judgements and decisions, on records that are made here.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use weftrun_core::finding::Evidence;
use weftrun_core::job::{JobDetail, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::spec::{LeftOut, RetryAvoid};
use weftrun_core::{Confidence, Finding};

use super::*;
use crate::cause::{Cause, CauseClass, Why};
use crate::ended_by_cluster;
use crate::rules::rules;

fn start() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap()
}

fn job(number: u64, at: Timestamp, nodes: &[&str]) -> JobRecord {
    let mut record = JobRecord::new(format!("slurm://pc/{number}"), at, JobPhase::Succeeded);
    record.nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    record
}

fn failed(mut record: JobRecord, code: &str, fault: Option<Fault>, nodes: &[&str]) -> JobRecord {
    record.outcome = JobPhase::Failed;
    record.cause = Some(CauseRecord {
        class: "cuda-error".to_owned(),
        code: code.to_owned(),
        fault,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        what: format!("words of {code}"),
        confidence: Confidence::High,
    });
    record
}

fn judgements(records: &[JobRecord]) -> Vec<(String, Judgement)> {
    let nodes = judge(records, &FoldedRuns::new(), start());
    nodes.into_iter().map(|node| (node.node, node.judgement)).collect()
}

fn of<'j>(judged: &'j [(String, Judgement)], node: &str) -> &'j Judgement {
    &judged.iter().find(|(name, _)| name == node).unwrap().1
}

/// A job's own record and those of its cycles are of the same runs, and one failure in both is one.
#[test]
fn a_failure_of_a_cycle_is_counted_once() {
    let cycle =
        |number: u32, attempt: u32, record: JobRecord| JobRecord { cycle: Some(number), attempt, ..record };
    let event = |node: &str| failed(job(1, start(), &["a", "b"]), "X", Some(Fault::Node), &[node]);
    let seen = |records: &[JobRecord], node: &str| {
        let nodes = judge(records, &FoldedRuns::new(), start());
        let node = nodes.iter().find(|report| report.node == node).unwrap();
        (node.runs, node.failures, node.events.len())
    };
    let cycles = [cycle(0, 0, event("a")), cycle(1, 0, job(1, start(), &["a", "b"]))];
    assert_eq!(seen(&cycles, "a"), (2, 1, 1));
    for own_first in [true, false] {
        let mut records = cycles.to_vec();
        records.insert(if own_first { 0 } else { 2 }, event("a"));
        assert_eq!(seen(&records, "a"), (2, 1, 1), "the same failure");
    }
    // What the cycles do not show is not lost: they may have no logs.
    let other = [cycles[0].clone(), cycles[1].clone(), event("b")];
    assert_eq!((seen(&other, "a"), seen(&other, "b")), ((2, 1, 1), (2, 1, 1)));
    // Nor is another run of the job.
    let later = [cycle(0, 1, event("a")), event("a")];
    assert_eq!(seen(&later, "a"), (2, 2, 2));
}

/// Two independent events, or one that proves a fault of the hardware; what a program does never counts.
#[test]
fn a_suspect_needs_two_events_or_a_proof() {
    let record = |number| job(number, start(), &["a", "b"]);
    let event = |number, fault| failed(record(number), "X", fault, &["a"]);
    let judged = |records: &[JobRecord]| *of(&judgements(records), "a");
    assert_eq!(judged(&[record(1)]), Judgement::Clear);
    assert_eq!(judged(&[event(1, Some(Fault::Node))]), Judgement::Watched);
    assert_eq!(judged(&[event(1, Some(Fault::Hardware))]), Judgement::Suspect);
    assert_eq!(judged(&[event(1, Some(Fault::Node)), event(2, Some(Fault::Node))]), Judgement::Suspect);
    // One job that was told of twice is one event, and its latest record counts.
    assert_eq!(judged(&[event(1, Some(Fault::Node)), event(1, Some(Fault::Node))]), Judgement::Watched);
    assert_eq!(judged(&[event(1, Some(Fault::Hardware)), record(1)]), Judgement::Clear);
    let programs: Vec<JobRecord> = (0..50).map(|number| event(number, None)).collect();
    assert_eq!(judged(&programs), Judgement::Clear);
    let others = [Fault::Network, Fault::Cluster].map(|fault| event(fault as u64, Some(fault)));
    assert_eq!(judged(&others), Judgement::Clear);
    let slow = |number| {
        let mut record = record(number);
        record.slow.push(SlowNode::new("a", "60 % of the others", Confidence::Medium));
        record
    };
    assert_eq!(judged(&[slow(1)]), Judgement::Watched);
    assert_eq!(judged(&[slow(1), event(2, Some(Fault::Node))]), Judgement::Suspect);
    let mut doubtful = event(1, Some(Fault::Hardware));
    doubtful.cause.as_mut().unwrap().confidence = Confidence::Low;
    assert_eq!(judged(&[doubtful]), Judgement::Clear);
}

/// The tasks of one array are one program: two of them that fail on a node, or one that is seen through two handles, are one event.
#[test]
fn tasks_of_one_array_are_no_independent_events() {
    let event = |set: &str, task, number| {
        let mut record = failed(job(number, start(), &["a"]), "X", Some(Fault::Node), &["a"]);
        (record.set, record.task) = (Some(set.to_owned()), Some(task));
        record
    };
    let judged = |records: &[JobRecord]| {
        let nodes = judge(records, &FoldedRuns::new(), start());
        (nodes[0].judgement, nodes[0].failures, nodes[0].runs)
    };
    // Slurm's own number of the task and `ARRAY_TASK`.
    assert_eq!(
        judged(&[event("slurm://pc/12", 3, 12), event("slurm://pc/12", 3, 15)]),
        (Judgement::Watched, 1, 1)
    );
    assert_eq!(
        judged(&[event("slurm://pc/12", 3, 12), event("slurm://pc/12", 4, 16)]),
        (Judgement::Watched, 2, 2)
    );
    assert_eq!(
        judged(&[event("slurm://pc/12", 3, 12), event("slurm://pc/20", 3, 23)]),
        (Judgement::Suspect, 2, 2)
    );
    // Of a link, too: an array counts once for its common end.
    let link = |set: &str, task: u32, ends: &[&str]| {
        let mut record = failed(job(task.into(), start(), ends), "IB", Some(Fault::Link), ends);
        (record.set, record.task) = (Some(set.to_owned()), Some(task));
        record
    };
    let judged =
        judgements(&[link("s", 1, &["a", "b"]), link("s", 2, &["a", "c"]), link("s", 3, &["a", "d"])]);
    assert_eq!(*of(&judged, "a"), Judgement::Clear, "one array: {judged:?}");
}

#[test]
fn events_of_long_ago_are_listed_and_do_not_count() {
    let old = start() - WINDOW - SignedDuration::from_hours(1);
    let records = [failed(job(1, old, &["a"]), "GPU-ECC", Some(Fault::Hardware), &["a"])];
    let nodes = judge(&records, &FoldedRuns::new(), start());
    assert_eq!((nodes[0].judgement, nodes[0].failures), (Judgement::Clear, 1));
    assert!(!nodes[0].events[0].counts && nodes[0].evidence.is_empty());
}

/// Where many nodes have one event, two are chance; six are not.
#[test]
fn a_rate_that_all_nodes_share_makes_no_suspect() {
    let mut records = Vec::new();
    for node in 0..60_u64 {
        let name = format!("n{node}");
        let events = match node {
            0 => 6,
            1 => 2,
            2..40 => 1,
            _ => 0,
        };
        records.extend((0..100_u64).map(|run| {
            let record = job(node * 100 + run, start(), &[&name]);
            if run < events { failed(record, "X", Some(Fault::Node), &[&name]) } else { record }
        }));
    }
    let judged = judgements(&records);
    assert_eq!((*of(&judged, "n0"), *of(&judged, "n1")), (Judgement::Suspect, Judgement::Watched));
}

/// The common end of failed links is to blame, not the nodes at their other ends.
#[test]
fn a_link_counts_against_its_common_end() {
    let link = |number, ends: &[&str]| {
        failed(job(number, start(), ends), "IB-RETRY-EXCEEDED", Some(Fault::Link), ends)
    };
    let judged = judgements(&[link(1, &["bad", "a"]), link(2, &["bad", "b"]), link(3, &["bad", "a"])]);
    assert_eq!((*of(&judged, "bad"), *of(&judged, "a")), (Judgement::Suspect, Judgement::Clear));
    let judged = judgements(&[link(1, &["a", "b"]), link(2, &["a", "b"])]);
    assert!(judged.iter().all(|(_, judgement)| *judgement == Judgement::Clear), "either end: {judged:?}");
    // What was long ago, or is doubtful, does not tell which end it is.
    let mut before = [link(1, &["a", "x"]), link(2, &["a", "y"])];
    before[0].at = start() - WINDOW - SignedDuration::from_hours(1);
    before[1].cause.as_mut().unwrap().confidence = Confidence::Low;
    let [old, doubtful] = before;
    let judged = judgements(&[old, doubtful, link(3, &["a", "b"])]);
    assert_eq!(*of(&judged, "a"), Judgement::Clear, "repaired: {judged:?}");
}

#[test]
fn runs_that_were_folded_are_counted() {
    let folded = [("a".to_owned(), NodeRuns { runs: 40, last: start() })].into();
    let nodes = judge(&[job(1, start(), &["a"])], &folded, start());
    assert_eq!((nodes[0].runs, nodes[0].last_seen), (41, Some(start())));
}

fn detail(replicas: &[(&str, &str)]) -> JobDetail {
    let mut detail =
        JobDetail::new(JobSummary::new("kubeflow://c/n/pytorchjob/t".parse().unwrap(), JobPhase::Failed));
    for (index, (name, node)) in replicas.iter().enumerate() {
        let index = u32::try_from(index).unwrap();
        let mut replica = ReplicaStatus::new(*name, "worker", index, JobPhase::Failed);
        replica.node = Some((*node).to_owned());
        detail.replicas.push(replica);
    }
    detail
}

fn why(code: &str, nodes: &[&str], line: &str) -> Why {
    let rule = rules().find(|rule| rule.code == code).unwrap();
    let mut cause = Cause::new(CauseClass::CudaError, rule, line.to_owned());
    cause.nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    Why { cause: Some(cause), ..Why::default() }
}

/// Logs name pods and short host names; the history has the nodes of the cluster, and blames none that it cannot place.
#[test]
fn nodes_get_the_names_of_the_cluster() {
    let detail = detail(&[("t-worker-0", "gpu-17"), ("t-worker-1", "ip-10-0-0-1.internal")]);
    let nodes = |named: &[&str]| {
        let record =
            JobRecord::of(&detail, Some(&why("GPU-ECC", named, "uncorrectable ECC")), start()).unwrap();
        assert_eq!(record.nodes, ["gpu-17", "ip-10-0-0-1.internal"]);
        record.cause.unwrap().nodes
    };
    assert_eq!(nodes(&["t-worker-0"]), ["gpu-17"]);
    assert_eq!(nodes(&["gpu-17"]), ["gpu-17"]);
    assert_eq!(nodes(&["ip-10-0-0-1"]), ["ip-10-0-0-1.internal"]);
    assert_eq!(nodes(&["elsewhere", "\u{1b}[31m"]), Vec::<String>::new());
}

/// Where no line names a host, the log that has the line does.
#[test]
fn a_line_is_of_the_node_whose_log_has_it() {
    let node = |replicas: &[(&str, &str)], source: &str| {
        let mut why = why("GPU-ECC", &[], "uncorrectable ECC");
        let (line, text) = (3, "uncorrectable ECC error".to_owned());
        why.cause.as_mut().unwrap().evidence.push(Evidence { source: source.to_owned(), line, text });
        JobRecord::of(&detail(replicas), Some(&why), start()).unwrap().cause.unwrap().nodes
    };
    let slurm = [("gpu-3", "gpu-3"), ("gpu-17", "gpu-17")];
    let doubtful = |named: &[&str]| {
        let mut why = why("GPU-ECC", named, "uncorrectable ECC");
        why.cause.as_mut().unwrap().confidence = Confidence::Low;
        JobRecord::of(&detail(&slurm), Some(&why), start()).unwrap().cause.unwrap().confidence
    };
    assert_eq!(
        (doubtful(&["gpu-17"]), doubtful(&[])),
        (Confidence::Medium, Confidence::Low),
        "the rank is not known"
    );
    assert_eq!(node(&slurm, "node1"), ["gpu-17"]);
    let pods = [("t-worker-1", "gpu-3"), ("t-worker-10", "gpu-17")];
    assert_eq!(node(&pods, "t-worker-1"), ["gpu-3"]);
    assert_eq!(node(&pods, "t-worker-10/pytorch"), ["gpu-17"]);
    for other in ["batch", "node2", "node", "node99999999999999999999", "t-worker", ""] {
        assert_eq!(node(&slurm, other), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn hardware_is_told_from_what_a_driver_may_do_wrong() {
    let detail = detail(&[("r", "n1")]);
    let fault = |code, line| {
        JobRecord::of(&detail, Some(&why(code, &["n1"], line)), start()).unwrap().cause.unwrap().fault
    };
    assert_eq!(
        fault("GPU-XID", "the driver reports Xid 79: the GPU fell off the bus"),
        Some(Fault::Hardware)
    );
    assert_eq!(
        fault("GPU-XID", "the driver reports Xid 119: the GSP of the GPU does not answer"),
        Some(Fault::Node)
    );
    assert_eq!(fault("IB-ASYNC-EVENT", "Got async event : port error"), Some(Fault::Hardware));
    assert_eq!(fault("PROGRAM-EXCEPTION", "ValueError: Xid 79"), None);
}

fn input<'a>(cause: Option<&'a CauseRecord>) -> RetryInput<'a> {
    RetryInput {
        phase: JobPhase::Failed,
        by_cluster: false,
        cause,
        made: 0,
        max: 3,
        for_network: 0,
        left_out: &[],
        suspects: &[],
        avoid: RetryAvoid::Proven,
    }
}

fn left(node: &str) -> LeftOut {
    LeftOut { node: node.to_owned(), why: "before".to_owned() }
}

fn avoided(decision: &Decision) -> Option<Vec<&str>> {
    match decision {
        Decision::Retry { proven, suspects, .. } => {
            Some(proven.iter().chain(suspects).map(|left| left.node.as_str()).collect())
        }
        Decision::Stop { .. } => None,
    }
}

#[test]
fn a_retry_leaves_out_the_node_that_failed() {
    let cause = |fault, nodes: &[&str]| failed(job(1, start(), nodes), "X", fault, nodes).cause.unwrap();
    let decided = |cause: &CauseRecord| decide(&input(Some(cause)));
    for fault in [Fault::Hardware, Fault::Node, Fault::Link] {
        let cause = cause(Some(fault), &["a"]);
        assert_eq!(avoided(&decided(&cause)), Some(vec!["a"]), "{fault:?}");
        let again = RetryInput { left_out: &[left("a")], ..input(Some(&cause)) };
        assert_eq!(avoided(&decide(&again)), None, "left out already");
        let two = RetryInput { left_out: &[left("b"), left("c")], ..input(Some(&cause)) };
        assert_eq!(avoided(&decide(&two)), None, "two nodes are left out");
        let enough = RetryInput { made: 3, ..input(Some(&cause)) };
        assert_eq!(avoided(&decide(&enough)), None, "all retries were made");
    }
    // Either end of a link may be at fault, unless one is suspected.
    let link = cause(Some(Fault::Link), &["a", "b"]);
    assert_eq!(avoided(&decided(&link)), Some(vec![]));
    let suspected = RetryInput { suspects: &[left("b")], ..input(Some(&link)) };
    assert_eq!(avoided(&decide(&suspected)), Some(vec!["b"]));
    let suspects = cause(Some(Fault::Hardware), &["a"]);
    let suspected =
        RetryInput { suspects: &[left("a"), left("x"), left("y"), left("z")], ..input(Some(&suspects)) };
    assert_eq!(avoided(&decide(&suspected)), Some(vec!["a"]), "the policy leaves out what is proven");
    let suspected = RetryInput { avoid: RetryAvoid::Suspects, ..suspected };
    assert_eq!(avoided(&decide(&suspected)), Some(vec!["a", "x", "y", "z"]));
}

#[test]
fn a_network_is_retried_once_and_a_program_never() {
    let cause = |fault, nodes: &[&str]| failed(job(1, start(), nodes), "X", fault, nodes).cause.unwrap();
    for cause in [
        cause(Some(Fault::Network), &["a"]),
        cause(Some(Fault::Hardware), &[]),
        cause(Some(Fault::Link), &["a", "b"]),
    ] {
        assert_eq!(avoided(&decide(&input(Some(&cause)))), Some(vec![]), "{cause:?}");
        let second = RetryInput { made: 1, for_network: 1, ..input(Some(&cause)) };
        assert_eq!(avoided(&decide(&second)), None, "{cause:?}");
    }
    let cluster = cause(Some(Fault::Cluster), &[]);
    let second = RetryInput { made: 1, for_network: 1, ..input(Some(&cluster)) };
    assert_eq!(avoided(&decide(&second)), Some(vec![]));
    assert_eq!(avoided(&decide(&input(None))), None);
    assert_eq!(avoided(&decide(&input(Some(&cause(None, &["a"]))))), None);
}

/// The cluster starts the job itself: it is not submitted a second time.
#[test]
fn a_job_that_has_not_ended_badly_is_not_submitted_again() {
    let cause = failed(job(1, start(), &["a"]), "X", Some(Fault::Hardware), &["a"]).cause.unwrap();
    for phase in JobPhase::ALL {
        let decision = decide(&RetryInput { phase, ..input(Some(&cause)) });
        assert_eq!(avoided(&decision).is_some(), phase == JobPhase::Failed, "{phase}: {decision:?}");
    }
    let cancelled = RetryInput { phase: JobPhase::Cancelled, ..input(Some(&cause)) };
    assert_eq!(decide(&cancelled), Decision::Stop { why: "the job was cancelled".to_owned() });
    assert!(avoided(&decide(&RetryInput { by_cluster: true, ..cancelled })).is_some());
}

/// Only the cluster's own word, and never after a person's.
#[test]
fn a_cancelled_job_is_of_the_cluster_only_by_its_own_word() {
    let ended = |reason: &str, codes: &[&str]| {
        let mut detail = detail(&[("t-worker-0", "gpu-17")]);
        (detail.summary.phase, detail.summary.reason) = (JobPhase::Cancelled, reason.to_owned());
        detail.findings = codes.iter().map(|code| Finding::error(*code, "words")).collect();
        ended_by_cluster(&detail)
    };
    assert!(ended("Preempted", &[]) && ended("NODE_FAIL", &[]) && ended("Evicted", &[]));
    assert!(ended("", &["K8S-PREEMPTED"]) && ended("deleted", &["K8S-NODE-LOST"]));
    for reason in [
        "CANCELLED by 2001",
        "cancelled",
        "was cancelled",
        "cancelled from here",
        "PREEMPTED, CANCELLED by 0",
    ] {
        assert!(!ended(reason, &[]) && !ended(reason, &["K8S-PREEMPTED", "SLURM-NODE-FAILED"]), "{reason}");
    }
    for codes in [&[][..], &["K8S-DELETED"], &["K8S-OOM"], &["K8S-EXIT"]] {
        assert!(!ended("", codes) && !ended("deleted", codes), "{codes:?}");
    }
}

/// A later look that knows less takes no evidence away; one that knows more replaces it.
#[test]
fn a_vaguer_look_keeps_the_evidence() {
    let earlier = failed(job(1, start(), &["a"]), "GPU-LOST", Some(Fault::Hardware), &["a"]);
    let code = |later: JobRecord, earlier: &JobRecord| later.over(earlier).cause.unwrap().code;
    let look = |code: &str, fault, nodes: &[&str]| failed(job(1, start(), &["a"]), code, fault, nodes);
    assert_eq!(code(look("PROCESS-EXITED", None, &["a"]), &earlier), "GPU-LOST");
    assert_eq!(code(look("SLURM-NODE-FAILED", Some(Fault::Node), &[]), &earlier), "GPU-LOST");
    assert_eq!(code(look("K8S-NODE-LOST", Some(Fault::Node), &["a"]), &earlier), "K8S-NODE-LOST");
    let vague = look("PROCESS-EXITED", None, &["a"]);
    assert_eq!(code(look("PROGRAM-EXCEPTION", None, &["a"]), &vague), "PROGRAM-EXCEPTION");
    let mut doubtful = earlier;
    doubtful.cause.as_mut().unwrap().confidence = Confidence::Low;
    assert_eq!(code(look("PROGRAM-EXCEPTION", None, &["a"]), &doubtful), "PROGRAM-EXCEPTION");
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn chance(&mut self, of_10_000: u64) -> bool {
        self.below(10_000) < of_10_000
    }
}

const NODES: u64 = 500;
const BAD: [u64; 3] = [17, 203, 388];

/// A year of 20,000 jobs of 1 to 64 nodes: a bad node fails now and then by itself, any node once in a long while, links between
/// two nodes lose packets, and programs fail ten times as often as all of these.
fn year(seed: u64) -> Vec<JobRecord> {
    let mut numbers = Numbers(seed);
    let (mut records, mut own, mut programs) = (Vec::new(), 0_u64, 0_u64);
    for number in 0..20_000_u64 {
        let at = start() - SignedDuration::from_secs(i64::try_from((20_000 - number) * 1577).unwrap());
        let count = 1 + numbers.below(64);
        let nodes: BTreeSet<u64> = (0..count).map(|_| numbers.below(NODES)).collect();
        let names: Vec<String> = nodes.iter().map(|node| format!("gpu-{node:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let record = job(number, at, &names);
        let bad = nodes.iter().find(|node| BAD.contains(node)).filter(|_| numbers.chance(600));
        let any = nodes.iter().find(|_| numbers.chance(1));
        let Some(node) = bad.or(any) else {
            let program = programs < own * 10 && numbers.chance(9000);
            programs += u64::from(program);
            // A program names nodes too.
            let at = &names[..1];
            records.push(if program { failed(record, "PROGRAM-EXCEPTION", None, at) } else { record });
            continue;
        };
        own += 1;
        let node = format!("gpu-{node:03}");
        let (code, fault) = match numbers.below(3) {
            0 => ("GPU-STATE-UNKNOWN", Fault::Node),
            1 => ("NODE-FAILED", Fault::Node),
            _ => ("IB-RETRY-EXCEEDED", Fault::Link),
        };
        let peer = names.iter().copied().find(|name| *name != node && numbers.chance(3000));
        let ends: Vec<&str> =
            [node.as_str()].into_iter().chain(peer.filter(|_| fault == Fault::Link)).collect();
        records.push(failed(record, code, Some(fault), &ends));
    }
    assert!(programs >= own * 9, "{programs} of programs, {own} of nodes");
    records
}

#[test]
fn a_year_shows_the_bad_nodes_and_hardly_another() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 1..=3 {
        let nodes = judge(&year(seed), &FoldedRuns::new(), start());
        assert_eq!(nodes.len(), 500);
        let suspects: Vec<&NodeReport> = nodes.iter().filter(|node| node.is_suspect()).collect();
        for bad in BAD {
            let name = format!("gpu-{bad:03}");
            assert!(suspects.iter().any(|node| node.node == name), "{name} is not found (seed {seed})");
        }
        right += BAD.len();
        wrong += suspects.len() - BAD.len();
        for node in nodes.iter().filter(|node| node.is_suspect()) {
            let events: BTreeSet<&str> =
                node.events.iter().filter(|event| event.counts).map(|event| event.job.as_str()).collect();
            let proof = node.events.iter().any(|event| event.fault == Some(Fault::Hardware));
            assert!(events.len() >= LEAST_EVENTS || proof, "{node:?}");
        }
    }
    let precision =
        f64::from(u32::try_from(right).unwrap()) / f64::from(u32::try_from(right + wrong).unwrap());
    assert!(
        precision >= 0.95,
        "{wrong} good nodes are judged suspects beside {right} bad ones: {precision:.3}"
    );
}
