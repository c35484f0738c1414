//! What it costs to read the tables of many benchmarks: at most a second for 10,000 tables.
//!
//! `cargo bench -p weftrun-verify --bench verify`

#![allow(clippy::print_stdout, clippy::panic, reason = "a benchmark is a program of its own")]

use std::fmt::Write as _;
use std::time::Instant;

use weftrun_core::log::SourceId;
use weftrun_verify::Logs;

const TABLES: usize = 10_000;

fn main() {
    let table = table();
    let began = Instant::now();
    let mut rows = 0;
    for at in 0..TABLES {
        // Each from a source of its own, as from 10,000 files.
        let mut logs = Logs::default();
        logs.add(&SourceId::new(format!("log{at}")), table.as_bytes());
        rows += logs.runs().iter().map(|run| run.rows.len()).sum::<usize>();
    }
    let took = began.elapsed();
    assert!(rows == 31 * TABLES, "{rows} rows");
    println!("{TABLES} tables of {} bytes, {rows} rows: {took:.2?}", table.len());
    // The log of a large job, in which the tables are a few lines.
    let noise =
        "gpu-a:4711:4790 [3] NCCL INFO Channel 07/0 : 3[3] -> 11[3] [send] via NET/AWS Libfabric/3/GDRDMA\n";
    let log = noise.repeat(1_000_000);
    let began = Instant::now();
    let mut logs = Logs::default();
    log.as_bytes().chunks(1 << 20).for_each(|part| logs.add(&SourceId::new("log"), part));
    println!("{} MB of other lines: {:.2?}", log.len() / 1_000_000, began.elapsed());
}

/// All that nccl-tests prints on 16 ranks, from 8 bytes to 8 GiB.
fn table() -> String {
    let mut text = "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809\n\
        # Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)\n#\n# Using devices\n"
        .to_owned();
    for rank in 0..16 {
        let _ = writeln!(
            text,
            "#  Rank {rank:2} Group  0 Pid {:6} on      gpu-{} device {:2} [0000:53:00] NVIDIA H100 80GB HBM3",
            4711 + rank,
            rank / 8,
            rank % 8
        );
    }
    text.push_str("#\n#                                                              out-of-place                       in-place          \n\
        #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n");
    for power in 3..34 {
        let size = 1_u64 << power;
        let figures = format!("{:7.1}  {:6.2}  {:6.2}       0", 4739.2, 226.57, 424.82);
        let _ = writeln!(text, "{size:12}  {:12}     float     sum      -1  {figures}  {figures}", size / 4);
    }
    text.push_str("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 212.3 \n#\n# Collective test concluded: all_reduce_perf\n");
    text
}
