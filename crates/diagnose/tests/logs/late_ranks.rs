//! What weftrun's library measures in a job: the late rank, by its number in the job, what it costs, and what is expected.

use std::fmt::Write as _;
use std::sync::Arc;

use weftrun_core::fabric::{Fabric, FabricPlan};
use weftrun_core::log::SourceId;
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::bandwidth::Collective;
use weftrun_diagnose::{Diagnosis, Sources};

/// A line of the library of a rank of a communicator.
fn line(second: u64, comm: &str, (rank, ranks): (u32, u32), process: (&str, u32), nanos: u64) -> String {
    let (host, pid) = process;
    format!(
        "weftrun: NCCL {{\"weftrun_nccl\":1,\"t\":{},\"host\":\"{host}\",\"pid\":{pid},\"comm\":\"{comm}\",\"rank\":{rank},\"n\":{ranks},\
         \"nodes\":2,\"op\":\"AllReduce\",\"count\":10,\"bytes\":10737418240,\"ns\":{},\"seq\":{second},\
         \"seq_bytes\":1073741824,\"seq_ns\":{nanos},\"dropped\":0}}\n",
        1_795_696_000_000 + second * 1000,
        nanos * 10,
    )
}

/// Returns the diagnosis of a job of eight ranks on two nodes of p4d, in two communicators of four, each without the rank that
/// the other has; the last rank of the second one is late. `more` is what rank 0 prints besides.
fn diagnosed(more: &str) -> Diagnosis {
    let mut map = TransportMap::new();
    for rank in 0..8u32 {
        // The host's name has a domain in the library's lines, and none in NCCL's.
        let (host, pid) = (format!("n{}", rank / 4), 100 + rank);
        let mut text = if rank == 0 { more.to_owned() } else { String::new() };
        let init = format!(
            "{host}:{pid}:1 [{0}] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {rank} nranks 8 cudaDev {0} nvmlDev {0} busId 60 commId 0xabc",
            rank % 4
        );
        writeln!(text, "{init} - Init START\n{init} - Init COMPLETE").unwrap();
        for second in 0..20 {
            let comm = if rank % 2 == 0 { "0xa" } else { "0xb" };
            let nanos = if rank % 2 == 1 && rank != 7 { 40_000_000 } else { 20_000_000 };
            text.push_str(&line(second, comm, (rank / 2, 4), (&format!("{host}.cluster.local"), pid), nanos));
        }
        let source = Arc::new(SourceId::new(format!("rank{rank}")));
        map.read(&source, text.as_bytes());
    }
    map.end_all();
    let mut plan = FabricPlan::unchanged(Fabric::Efa);
    plan.instance_type = Some("p4d.24xlarge".to_owned());
    Sources::of_logs(&map).plan(Some(&plan)).running().diagnose()
}

fn late(diagnosis: &Diagnosis) -> (Vec<u32>, String) {
    let finding = diagnosis.findings.iter().find(|finding| finding.code == "NCCL-RANK-LATE").unwrap();
    (finding.ranks.clone(), finding.message.clone())
}

/// No communicator of the library's lines has all ranks: NCCL's lines tell that its rank 3 is rank 7 of the job.
#[test]
fn a_late_rank_is_named_by_its_number_in_the_job() {
    let diagnosis = diagnosed("");
    let (ranks, message) = late(&diagnosis);
    assert_eq!(ranks, [7]);
    assert!(
        message.starts_with(
            "rank 7 on n1.cluster.local reaches AllReduce last: the others waited 20 % of 20.0 s"
        ),
        "{message}"
    );
    assert_eq!(diagnosis.measured.as_ref().unwrap().limit, Some("slow"));
    assert!(diagnosis.why.findings.iter().any(|finding| finding.code == "NCCL-RANK-LATE"));
}

#[test]
fn the_cost_of_a_late_rank_is_of_the_steps_that_the_log_times() {
    assert_eq!(diagnosed("").measured.unwrap().step, None);
    assert_eq!(diagnosed("step 1 tokens/sec: 12,345.6\n").measured.unwrap().step, None, "no duration");
    for (lines, step, text) in [
        (
            "iteration 1 | elapsed time per iteration (ms): 9000 |\niteration 2 | elapsed time per iteration (ms): 480.0 |\n\
             iteration 3 | elapsed time per iteration (ms): 520.0 |\n",
            0.52,
            ", about 104 ms of each step of 520 ms",
        ),
        ("train_step_timing in s=2.0\n", 2.0, ", about 400 ms of each step of 2.0 s"),
        (" 45%|####5     | 45/100 [00:12<00:15,  4.00it/s]\n", 0.25, ", about 50 ms of each step of 250 ms"),
    ] {
        let diagnosis = diagnosed(lines);
        let (_, message) = late(&diagnosis);
        assert!(message.ends_with(text), "{message}");
        let cost = diagnosis.measured.unwrap().step.unwrap();
        assert!((cost.step_seconds - step).abs() < 1e-9, "{cost:?}");
    }
}

#[test]
fn what_is_expected_is_that_of_the_planned_instance_type() {
    let measured = diagnosed("").measured.unwrap();
    let expected = measured.expected("0xa", Collective::AllReduce).unwrap();
    // Two of the eight GPUs of each node: a quarter of its four interfaces of 100 Gb/s.
    assert_eq!((expected.low, expected.high), (12.5, 12.5));
    assert!(measured.expected("0xa", Collective::AllGather).is_none());
}

/// Over sockets the wire takes the time; with steady ranks nobody is named.
#[test]
fn a_job_that_the_network_slows_says_so_with_what_is_expected() {
    let mut map = TransportMap::new();
    for rank in 0..16u32 {
        let node = rank / 8;
        let text: String = (0..20)
            .map(|second| line(second, "0x1", (rank, 16), (&format!("n{node}"), rank), 90_000_000))
            .collect();
        map.read(&Arc::new(SourceId::new(format!("rank{rank}"))), text.as_bytes());
    }
    map.end_all();
    let mut plan = FabricPlan::unchanged(Fabric::Efa);
    plan.instance_type = Some("p4d.24xlarge".to_owned());
    let diagnosis = Sources::of_logs(&map).plan(Some(&plan)).running().diagnose();
    let finding = diagnosis.findings.iter().find(|finding| finding.code == "NCCL-NETWORK-BOUND").unwrap();
    assert_eq!(
        finding.message,
        "network-bound: the transfer of AllReduce takes 90 % of the time, at 22.4 GB/s (77.9 expected of messages of 1 GiB), and no rank is late"
    );
    assert!(
        diagnosis.why.lines().iter().any(|line| line.contains("network-bound: the transfer of AllReduce"))
    );
    assert!(diagnosis.findings.iter().all(|finding| finding.code != "NCCL-RANK-LATE"));
    assert_eq!(diagnosis.measured.unwrap().limit, Some("network-bound"));
}
