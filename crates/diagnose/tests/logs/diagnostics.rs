//! NCCL's own diagnostics: a clean recording, and what else its sources (2.32.3) print. The lines of the second kind are made after these
//! sources, with invented hosts.

use std::path::Path;

use serde_json::Value;

use crate::report;

fn recording(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl/tests/data/diagnostics");
    std::fs::read_to_string(data.join(name)).unwrap()
}

fn finding<'r>(report: &'r Value, code: &str) -> Option<&'r Value> {
    report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == code)
}

fn own_codes(report: &Value) -> Vec<&str> {
    let codes = report["findings"].as_array().unwrap().iter().filter_map(|finding| finding["code"].as_str());
    codes.filter(|code| code.starts_with("NCCL-DIAG-")).collect()
}

/// Two ranks of communicator 0x2a, of which NCCL prints nothing but these lines and a report.
fn with_report(lines: &str) -> String {
    let begun = |rank: u32| {
        format!(
            "n{rank}:{0}:{0} [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x2a - Init START\n",
            100 + rank
        )
    };
    let line = |said: &str| format!("n0:100 NCCL DIAG {said}\n");
    let lines: String = lines.lines().map(|said| line(said.trim())).collect();
    let (begin, end) =
        (line("=== RAS Diagnostics ==="), line("RAS diagnostics completed in 12.1 ms across 2 ranks"));
    format!("{}{}{begin}{lines}{end}", begun(0), begun(1))
}

#[test]
fn a_clean_recording_has_only_what_was_not_checked() {
    for name in ["nccl-2.32.3-clean.log", "nccl-2.32.3-clean-2.log"] {
        let report = report(&recording(name));
        assert_eq!(own_codes(&report), ["NCCL-DIAG-UNCHECKED"], "{name}");
        let unchecked = finding(&report, "NCCL-DIAG-UNCHECKED").unwrap();
        let message = unchecked["message"].as_str().unwrap();
        for check in
            ["rdma_topo check: not usable", "IOMMU mode: unable", "ATS state: unable", "net bw: skipped"]
        {
            assert!(message.contains(check), "{message}");
        }
        assert_eq!(unchecked["evidence"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn a_variable_that_differs_has_its_values_and_ranks() {
    let report = report(&with_report(
        "[INFO] NCCL environment: mismatch across 2 ranks in comm 0x2a for NCCL_BUFFSIZE
         [INFO] NCCL environment: NCCL_BUFFSIZE=(unset) on rank(s) {0}
         [INFO] NCCL environment: NCCL_BUFFSIZE=8388608 on rank(s) {1}
         [INFO] NCCL environment: mismatch across 2 ranks in comm 0x2a for NCCL_HOSTID
         [INFO] NCCL environment: NCCL_HOSTID=a on rank(s) {0}
         [INFO] NCCL environment: NCCL_HOSTID=b on rank(s) {1}
         [INFO] NCCL environment: 2 NCCL_* env var(s) differ across ranks in comm 0x2a",
    ));
    assert_eq!(own_codes(&report), ["NCCL-DIAG-ENVIRONMENT"]);
    let found = finding(&report, "NCCL-DIAG-ENVIRONMENT").unwrap();
    assert_eq!(
        found["message"],
        "NCCL's own diagnostics: variables of NCCL differ between ranks: NCCL_BUFFSIZE is not set on rank 0, `8388608` on rank 1"
    );
    assert_eq!(found["evidence"].as_array().unwrap().len(), 2);
}

/// Two H200 on 2026-11-27: what each rank was given is in the README beside the recordings.
#[test]
fn the_recorded_environment_that_differs_is_told_and_a_busy_gpu_is_not_found_by_nccl() {
    let report = report(&recording("nccl-2.32.3-env.log"));
    let found = finding(&report, "NCCL-DIAG-ENVIRONMENT").unwrap();
    let message = found["message"].as_str().unwrap();
    for said in [
        "NCCL_BUFFSIZE is not set on rank 0, `8388608` on rank 1",
        "NCCL_IB_TIMEOUT is not set on rank 0, `23` on rank 1",
        "NCCL_MIN_NCHANNELS is `4` on rank 0, not set on rank 1",
    ] {
        assert!(message.contains(said), "{message}");
    }
    assert_eq!(own_codes(&report), ["NCCL-DIAG-ENVIRONMENT", "NCCL-DIAG-UNCHECKED"]);
    assert_eq!(own_codes(&crate::report(&recording("nccl-2.32.3-busy.log"))), ["NCCL-DIAG-UNCHECKED"]);
    let off = crate::report(&recording("nccl-2.32.3-off.log"));
    let message = finding(&off, "NCCL-DIAG-UNCHECKED").unwrap()["message"].as_str().unwrap();
    assert!(message.contains("RAS diagnostics skipped: NCCL_RAS_ENABLE=0"), "{message}");
}

#[test]
fn a_slow_nic_is_the_rank_that_nccl_names() {
    let report = report(&with_report(
        "[INFO] net bw: 265.1/391.5/398.0 Gbit/s min/median/max cross-nic bw (across 2 ranks) in comm 0x2a
         [INFO] net bw: cross-nic rank 1 (n1): 265.1 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x2a",
    ));
    let found = finding(&report, "NCCL-DIAG-NET-BANDWIDTH").unwrap();
    assert_eq!(
        found["message"],
        "NCCL's own diagnostics: not all NICs are equally fast: rank 1 on n1 has 265.1 Gbit/s (cross-nic), 32 % below the median of 391.5"
    );
    assert_eq!(found["ranks"], serde_json::json!([1]));
}

#[test]
fn what_no_sentence_explains_is_quoted() {
    let said = [
        (
            "[INFO] NVLink: inactive link(s) on rank(s) {1} across 2 ranks in comm 0x2a",
            "NCCL-DIAG-NVLINK",
            "warning",
        ),
        (
            "[INFO] Xid 79 detected 2 times on host n1. The NVIDIA Xid catalog recommends resetting the affected GPU.",
            "NCCL-DIAG-XID",
            "warning",
        ),
        (
            "[INFO] ECC: uncorrected volatile errors on rank(s) {1} (worst=3) across 2 ranks in comm 0x2a",
            "NCCL-DIAG-ECC",
            "warning",
        ),
        ("[INFO] p2p: only 1/2 GPU-to-GPU peer accesses passed verification", "NCCL-DIAG-P2P", "warning"),
        (
            "[INFO] GPU inventory: count mismatch across 2 ranks in comm 0x2a, rank(s) {1} differ from rank 0 (8)",
            "NCCL-DIAG-NODES-DIFFER",
            "warning",
        ),
        (
            "[INFO] IOMMU mode: enabled (DMA remapping) for 4 relevant device(s) across 2/2 ranks in comm 0x2a",
            "NCCL-DIAG-PCI",
            "warning",
        ),
        ("[INFO] Paths: self+SYS(1/2) across 2 ranks in comm 0x2a", "NCCL-DIAG-NOTE", "info"),
        ("[INFO] A check of tomorrow: \u{1b}[31mred", "NCCL-DIAG-NOTE", "info"),
        ("[INFO] ECC: unavailable via NVML across 2 ranks in comm 0x2a", "NCCL-DIAG-UNCHECKED", "info"),
    ];
    for (line, code, severity) in said {
        let report = report(&with_report(line));
        assert_eq!(own_codes(&report), [code], "{line}");
        let found = finding(&report, code).unwrap();
        assert_eq!(found["severity"], severity);
        let words = line.trim_start_matches("[INFO] ").replace(" in comm 0x2a", "").replace("\u{1b}[31m", "");
        let quoted = found["message"].as_str().unwrap();
        assert!(quoted.contains(&words) && !quoted.contains('\u{1b}'), "{quoted}");
        let ranks = if line.contains("{1}") { serde_json::json!([1]) } else { Value::Null };
        assert_eq!(found["ranks"], ranks, "{found}");
    }
}

#[test]
fn reports_of_an_earlier_attempt_and_of_every_communicator_do_not_add_up() {
    let line = "[INFO] NVLink: inactive link(s) on rank(s) {1} across 2 ranks in comm 0x2a\n";
    let report = report(&with_report(&line.repeat(1000)));
    let found = finding(&report, "NCCL-DIAG-NVLINK").unwrap();
    assert_eq!(found["evidence"].as_array().unwrap().len(), 1);
    let many: String = (0..2000)
        .map(|comm| {
            format!("[INFO] NVLink: inactive link(s) on rank(s) {{1}} across 2 ranks in comm {comm:#x}\n")
        })
        .collect();
    let report = crate::report(&with_report(&many));
    assert!(own_codes(&report).contains(&"NCCL-DIAG-UNCHECKED"), "what is not kept is said");
}
