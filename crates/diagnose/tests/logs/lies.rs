//! Misleading logs: programs print what looks like NCCL, two jobs share a file, ranks are beyond their
//! number. The report lists the contradictions, and nothing is concluded from them.

use std::fmt::Write as _;

use serde_json::json;

use crate::{codes_of, report};

/// Returns the log of two ranks on two hosts over EFA's library, as their job printed it.
fn job(hosts: [&str; 2], id: &str) -> String {
    let mut log = String::new();
    for (rank, host) in hosts.iter().enumerate() {
        let pid = 100 + rank;
        let start = format!("{host}:{pid}:{pid} [0] NCCL INFO ");
        let comm = format!("comm 0x{pid} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1b0 commId 0x{id}");
        let _ = writeln!(log, "{start}ncclCommInitRank {comm} - Init START");
        let _ = writeln!(log, "{start}ncclCommInitRank {comm} - Init COMPLETE");
        let _ =
            writeln!(log, "{start}Channel 00/0 : {}[0] -> {rank}[0] [receive] via NET/IB/0/GDRDMA", 1 - rank);
        let _ =
            writeln!(log, "{start}Channel 00/0 : {rank}[0] -> {}[0] [send] via NET/IB/0/GDRDMA", 1 - rank);
        let _ = writeln!(log, "{start}Connected all rings");
    }
    log
}

#[test]
fn an_honest_log_has_no_misfits() {
    let report = report(&job(["a", "b"], "abc"));
    assert!(!codes_of(&report).iter().any(|code| code.starts_with("NCCL-LOG")), "{}", report["findings"]);
    assert_eq!(
        (&report["verdict"]["fabric"], &report["communicators"][0]["world"]),
        (&json!("verbs"), &json!(true))
    );
}

#[test]
fn a_program_that_prints_a_connection_proves_nothing() {
    let log = job(["a", "b"], "abc") + "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n";
    let report = report(&log);
    assert_eq!(report["verdict"]["fabric"], "verbs");
    let told =
        report["findings"].as_array().unwrap().iter().find(|f| f["code"] == "NCCL-LOG-UNSIGNED").unwrap();
    assert_eq!(told["evidence"][0]["line"], 11);
}

#[test]
fn ranks_beyond_the_communicator_are_told() {
    let log = job(["a", "b"], "abc")
        + "a:100:100 [0] NCCL INFO Channel 00/0 : 7[0] -> 9[0] [send] via NET/IB/0\n"
        + "a:100:100 [0] NCCL INFO comm 0x77 rank 5 nranks 2 cudaDev 0 busId 1b0 commId 0x77 - Init COMPLETE\n";
    let report = report(&log);
    let codes = codes_of(&report);
    assert!(codes.contains(&"NCCL-LOG-MISFIT".to_owned()), "{codes:?}");
    assert!(codes.contains(&"NCCL-LOG-IMPOSSIBLE".to_owned()), "{codes:?}");
    let stray = report["pairs"].as_array().unwrap().iter().find(|pair| pair["from"] == 7).unwrap();
    assert!(stray["comm"].is_null() && stray["global_from"].is_null(), "{stray}");
}

#[test]
fn two_jobs_in_one_file_are_not_numbered_together() {
    let report = report(&(job(["a", "b"], "abc") + &job(["c", "d"], "def")));
    assert!(codes_of(&report).contains(&"NCCL-LOG-SEVERAL-JOBS".to_owned()), "{}", report["findings"]);
    assert_eq!(report["communicators"].as_array().unwrap().len(), 2);
    for pair in report["pairs"].as_array().unwrap() {
        assert!(pair["global_from"].is_null(), "{pair}");
    }
}

#[test]
fn a_forged_process_is_an_outsider() {
    let log = job(["a", "b"], "abc")
        + "zz:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n";
    assert!(codes_of(&report(&log)).contains(&"NCCL-LOG-OUTSIDER".to_owned()));
}

/// Each of these once took time quadratic in the log. With a million lines they would take hours.
#[test]
fn hostile_logs_take_no_longer_than_others() {
    let mut threads = String::new();
    let mut pids = String::new();
    let mut comms = String::new();
    for number in 0..1_500 {
        let _ = writeln!(
            threads,
            "h:1:{number} [0] NCCL INFO Channel 00/0 : 0[0] -> {number}[0] [send] via NET/Socket/0"
        );
        let _ = writeln!(
            pids,
            "h{number}:7:7 [0] NCCL INFO comm 0x1 rank 0 nranks 9 cudaDev 0 busId 1b0 - Init COMPLETE"
        );
        let _ = writeln!(
            comms,
            "h:1:1 [0] NCCL INFO comm 0x{number:x} rank 0 nranks 2 cudaDev 0 busId 1b0 commId 0x{number:x} - Init COMPLETE"
        );
        let _ =
            writeln!(comms, "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[{number}] [send] via NET/Socket/0");
    }
    let words =
        format!("h:1:1 [0] NCCL WARN {}\n", "NVLS Connection refused status= ".repeat(2000)).repeat(2);
    for (name, log) in [("threads", threads), ("pids", pids), ("communicators", comms), ("words", words)] {
        let report = report(&log);
        assert_eq!(report["totals"]["bytes"], log.len(), "{name}");
    }
}
