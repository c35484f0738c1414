//! Throughput values that training programs and benchmarks print.

use std::fmt::Write as _;

use serde_json::json;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profiles};
use weftrun_core::spec::{JobSpec, Role};

use crate::report;

#[test]
fn every_program_has_its_words() {
    for (line, metric, value) in [
        ("100\timages/sec: 2100.6 +/- 3.2 (jitter = 10.1)\t7.608", "images/sec", 2100.6),
        ("total images/sec: 16804.51", "total images/sec", 16804.51),
        ("# Avg bus bandwidth    : 182.317", "busbw avg", 182.317),
        (
            "  1073741824     268435456     float     sum      -1    47392   22.66   42.48      0    47420   22.64   42.46      0",
            "busbw",
            42.48,
        ),
        (
            "   33554432       8388608  bfloat16    none      -1   2049.1   16.38   14.33      0   2050.2   16.37   14.32    N/A",
            "busbw",
            14.33,
        ),
        (
            " iteration      120/  500000 | consumed samples:        30720 | elapsed time per iteration (ms): 512.3 | lm loss: 2.3E+00 |",
            "iteration time",
            512.3,
        ),
        (
            "[Rank 0] step=10, skipped=0, lr=[0.001], RunningAvgSamplesPerSec=312.4, CurrSamplesPerSec=310.1",
            "samples/sec",
            312.4,
        ),
        (
            "Epoch 0:  12%| | 6/50 [00:10<01:13, reduced_train_loss=10.9, train_step_timing in s=1.602]",
            "train step time",
            1.602,
        ),
        ("step 50 loss 2.34 tokens/sec: 12,345.6", "tokens/sec", 12345.6),
        (" 45%|####5     | 45/100 [00:12<00:15,  3.61it/s]", "iterations/sec", 3.61),
    ] {
        let report = report(&format!("{line}\n"));
        let shown = &report["throughput"][0];
        assert_eq!((&shown["metric"], &shown["value"]), (&json!(metric), &json!(value)), "{line}: {shown}");
        assert_eq!(shown["line"], 1);
    }
}

/// Every rank prints the total of the whole job: it is one number per rank, never a sum.
#[test]
fn a_total_is_no_sum() {
    let log: String = (0..4).map(|rank| format!("[1,{rank}]<stdout>:total images/sec: 16804.51\n")).collect();
    let report = report(&log);
    let totals = report["throughput"].as_array().unwrap();
    assert!(totals.iter().all(|series| series["value"] == json!(16804.51) && series["count"] == json!(1)));
    assert_eq!(totals.len(), 4);
}

#[test]
fn a_long_run_is_its_first_its_last_and_how_many() {
    let mut log = String::new();
    for step in 1..=5000 {
        let _ = writeln!(log, "step {step} tokens/sec: {step}.5");
    }
    let report = report(&log);
    let series = &report["throughput"][0];
    assert_eq!(series["first"], 1.5);
    assert_eq!(
        (&series["value"], &series["count"], &series["line"]),
        (&json!(5000.5), &json!(5000), &json!(5000))
    );
}

/// A bandwidth is shown beside the published one for the planned instance type and number of nodes, and
/// alone where none is known: a slow network must not look normal.
#[test]
fn a_bandwidth_stands_beside_what_was_published_for_the_plan() {
    let expected = |instance: &str| {
        let worker = Role::worker().nodes(2).gpus_per_node(8).memory("700Gi").instance_type(instance);
        let spec = JobSpec::builder("job").image("i:1").role(worker.command(["train.py"])).build().unwrap();
        let profile = Profiles::builtin().get("dgxc").unwrap();
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        let source = std::sync::Arc::new(weftrun_core::log::SourceId::new("log"));
        let mut map = weftrun_core::nccl::TransportMap::new();
        let log = "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId 0x7 - Init COMPLETE\n\
                   b:2:2 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 busId 1 commId 0x7 - Init COMPLETE\n\
                   a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n# Avg bus bandwidth    : 4.7\n";
        map.read(&source, log.as_bytes());
        map.end(&source);
        let report = weftrun_diagnose::report::TransportReport::new(Some(&plan), &map);
        serde_json::to_value(report).unwrap()["throughput"][0]["expected"].clone()
    };
    let published = expected("p4d.24xlarge");
    assert_eq!((&published["low"], &published["high"]), (&json!(77.9), &json!(77.9)), "{published}");
    assert!(published["source"].as_str().unwrap().contains("2 p4d.24xlarge: https://"), "{published}");
    assert_eq!(expected("g5.48xlarge"), json!(null));
}

#[test]
fn what_is_no_speed_is_none() {
    for line in [
        "images/sec: fast",
        "it/s",
        "busbw",
        "  10 20 sum",
        "nan images/sec: nan",
        "elapsed time per iteration (ms): inf",
    ] {
        assert_eq!(report(&format!("{line}\n"))["throughput"], json!([]), "{line}");
    }
}
