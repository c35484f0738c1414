//! Tables of all versions, and bytes of any kind.

use proptest::prelude::*;

use super::*;
use crate::table::{Collective, Run};

const NEW: &str = "#                                                              out-of-place                       in-place\n\
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";

fn one(log: &str) -> Run {
    let runs = read(log.as_bytes());
    assert_eq!(runs.len(), 1, "{log}: {runs:?}");
    runs.into_iter().next().unwrap()
}

/// The header, a row of it, and the time, bus bandwidth and wrong elements of the row.
const VERSIONS: [(&str, &str, (f64, f64, u64)); 12] = [
    // 2017: milliseconds.
    (
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n",
        "2147483648 536870912 float sum 8.500 252.64 473.70 2e-06 8.600 249.70 468.19 2e-06",
        (8500.0, 473.70, 0),
    ),
    (
        "# bytes N type op time algbw busbw res time algbw busbw res\n",
        "2147483648 2147483648 char prod 8.500 252.64 473.70 0e+00 8.600 249.70 468.19 0e+00",
        (8500.0, 473.70, 0),
    ),
    // 2.0 to 2.9: an error, no root.
    (
        "# size count type redop time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 float sum 8500.1 252.64 473.70 2e-06 8600.1 249.70 468.19 2e-06",
        (8500.1, 473.70, 0),
    ),
    (
        "# size count type redop time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 float sum 8500.1 252.64 473.70 5e-04 8600.1 249.70 468.19 0e+00",
        (8500.1, 473.70, 1),
    ),
    (
        "# size count type redop time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 half sum 8500.1 252.64 473.70 5e-04 8600.1 249.70 468.19 N/A",
        (8500.1, 473.70, 0),
    ),
    (
        "# size count type redop time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 int32 sum 8500.1 252.64 473.70 1e+00 8600.1 249.70 468.19 nan",
        (8500.1, 473.70, 2),
    ),
    // A broadcast has a root instead of an operation, and an all-gather has neither.
    (
        "# size count type root time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 float 0 8500.1 252.64 473.70 0e+00 8600.1 249.70 468.19 0e+00",
        (8500.1, 473.70, 0),
    ),
    (
        "# size count type time algbw busbw error time algbw busbw error\n",
        "2147483648 536870912 float 8500.1 252.64 473.70 0e+00 8600.1 249.70 468.19 0e+00",
        (8500.1, 473.70, 0),
    ),
    // 2.13 to 2.16, and rccl-tests, which leaves an operation blank.
    (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n",
        "2147483648 536870912 fp8_e4m3 -1 18500 252.64 473.70 0 18600 249.70 468.19 1e+05",
        (18500.0, 473.70, 100_000),
    ),
    // Without checks, out of place only.
    (
        "# size count type redop root time algbw busbw #wrong\n",
        "2147483648 536870912 float sum -1 8500.1 252.64 473.70 N/A",
        (8500.1, 473.70, 0),
    ),
    // 2.17 and later: `-C` and `-S`.
    (
        "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong timestamp\n",
        "2147483648 536870912 bfloat16 avg -1 8500.1 252.64 473.70 0 8600.1 249.70 468.19 0 2026-07-09 16:03:21",
        (8500.1, 473.70, 0),
    ),
    // 2.19: figures of single operations.
    (
        "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%\n",
        "2147483648 536870912 f8e5m2 sum -1 8500.1 252.64 473.70 0 8400.1 8600.1 8599.2 1.20 8600.1 249.70 474.19 3 8400.1 8600.1 8599.2 1.20",
        (8500.1, 474.19, 3),
    ),
];

#[test]
fn tables_of_all_versions_are_read_by_their_headers() {
    for (header, row, (time, busbw, wrong)) in VERSIONS {
        for prefix in ["", "[1,0]<stdout>:", "  0: ", "2026-11-22T10:00:00.123Z stdout F "] {
            let log = format!("{prefix}{header}{prefix}{row}\n");
            let run = one(&log);
            let read = &run.rows[0];
            assert_eq!(run.rows.len(), 1, "{log}");
            assert_eq!(
                (read.size, read.out_of_place.time_us, read.busbw(), read.wrong(), read.is_broken()),
                (2 << 30, Some(time), Some(busbw), wrong, false),
                "{log}"
            );
        }
    }
    // The unit is below the header.
    let header = NEW.replace("(us)", "(ms)");
    let row = "1073741824 268435456 float sum -1 4.7392 226.57 424.82 0 4.7420 226.43 424.56 0";
    let run = one(&format!("{header}{row}\n"));
    assert!((run.rows[0].out_of_place.time_us.unwrap() - 4739.2).abs() < 0.01);
    // A copy without the number signs.
    let row = "1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 4742.0 226.43 424.56 0";
    let run = one(&format!("{}{row}\n", NEW.replace("# ", "  ")));
    assert_eq!((run.rows.len(), run.rows[0].busbw()), (1, Some(424.82)));
    // A column that no released version has.
    let more = "# size count type redop root time algbw busbw #wrong other time algbw busbw #wrong other\n\
        1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 12 4742.0 226.43 424.90 3 12\n";
    let run = one(more);
    assert_eq!((run.rows[0].busbw(), run.rows[0].wrong()), (Some(424.90), 3));
}

#[test]
fn rows_are_read_without_a_header_and_behind_prefixes() {
    let row = "1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 4742.0 226.43 424.56 N/A";
    for prefix in ["", "[1,0]<stdout>:  ", "0: ", "node-0/rank0| ", "2026-11-22T10:00:00Z stdout F  "] {
        let run = one(&format!("{prefix}{row}\r\n"));
        assert_eq!(run.rows.len(), 1, "{prefix}");
        assert_eq!((run.rows[0].size, run.rows[0].busbw()), (1 << 30, Some(424.82)), "{prefix}");
        assert_eq!(run.rows[0].in_place.unwrap().wrong, None);
    }
    // Docker's json-file driver.
    let json = format!("{{\"log\":\"{row}\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-22T10:00:00Z\"}}\n");
    assert_eq!(one(&json).rows[0].busbw(), Some(424.82));
    // No operation and no root.
    let run = one("1048576 262144 float 30.95 33.88 29.64 0 30.20 34.72 30.38 0\n");
    assert_eq!(run.rows[0].busbw(), Some(30.38));
    // Times of ten milliseconds and more have no fraction, and the result was not checked.
    let run = one("8589934592 2147483648 float sum -1 47392 181.2 339.8 47420 181.1 339.6\n");
    assert_eq!(run.rows[0].out_of_place.time_us, Some(47392.0));
    assert_eq!((run.rows[0].busbw(), run.rows[0].wrong()), (Some(339.8), 0));
    let run = one("8589934592 2147483648 float sum -1 47392 181.2 339.8 0 47420 181.1 339.6 0\n");
    assert_eq!((run.rows[0].busbw(), run.rows[0].wrong(), run.rows[0].is_broken()), (Some(339.8), 0, false));
    assert_eq!(read(b"epoch 3 of float 7, step 1.5\n"), []);
}

/// NCCL writes to the same stream, and nccl-tests writes a row in two parts.
#[test]
fn rows_that_nccl_printed_into_are_put_together() {
    let info = "vm:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/CUMEM";
    for header in [NEW, ""] {
        let log = format!(
            "{header}  1073741824     268435456     float     sum      -1{info}\nvm:7:9 [0] NCCL INFO Connected all rings\n   4739.2  226.57  424.82      0   4742.0  226.43  424.56      0\n"
        );
        let run = one(&log);
        assert_eq!((run.rows.len(), run.rows[0].is_broken()), (1, false), "{run:?}");
        assert_eq!(run.rows[0].busbw(), Some(424.82));
        let log = format!(
            "{header}  1073741824     268435456     float     sum      -1   4739.2  226.57  424.82      0{info}\n   4742.0  226.43  425.56      0\n"
        );
        let run = one(&log);
        assert_eq!((run.rows.len(), run.rows[0].is_broken()), (1, false), "{run:?}");
        assert_eq!(run.rows[0].busbw(), Some(425.56));
    }
}

#[test]
fn each_table_is_a_run_and_its_summary_counts() {
    let header = "# size count type redop time algbw busbw error\n";
    let row = "1048576 262144 half sum 30.95 33.88 29.64 2e-03\n";
    let runs = read(
        format!(
            "{header}{row}# Out of bounds values : 0 OK\n{header}{row} Out of bounds values : 3 FAILED\n"
        )
        .as_bytes(),
    );
    let wrong: Vec<_> = runs.iter().map(|run| (run.rows.len(), run.rows[0].wrong())).collect();
    assert_eq!(wrong, [(1, 0), (1, 3)]);
}

#[test]
fn figures_that_are_no_numbers_are_missing() {
    let run = one("1073741824 268435456 float sum -1 4739.2 -nan nan 0 inf 226.43 424.56 0\n");
    assert!(run.rows[0].is_broken());
    assert_eq!(run.rows[0].out_of_place.busbw, None);
    assert_eq!(run.rows[0].busbw(), Some(424.56));
    // Results that are no numbers are wrong.
    let run = one(&format!("{NEW}1073741824 268435456 float sum -1 4739.2 226.57 424.82 -nan\n"));
    assert_eq!((run.rows[0].is_broken(), run.rows[0].wrong()), (false, 1));
}

/// Processes that do not know of each other each print a list of rank 0.
#[test]
fn the_ranks_of_each_run_are_its_own() {
    let ranks = |all: &[(u32, &str, u32)]| {
        all.iter().fold("# Using devices\n".to_owned(), |text, (rank, host, process)| {
            format!(
                "{text}#  Rank {rank:2} Group  0 Pid {process:6} on {host:>10} device  0 [0x53] NVIDIA H100\n"
            )
        })
    };
    let row = "1073741824 268435456 float sum -1 4739.2 226.57 226.57 0\n";
    let two = ranks(&[(0, "a", 7), (1, "b", 7)]);
    let runs = read(
        format!("{two}{NEW}{row}{}{NEW}{row}", ranks(&[(0, "a", 7), (1, "a", 8), (2, "a", 9)])).as_bytes(),
    );
    let seen: Vec<_> = runs.iter().map(|run| (run.ranks, run.nodes, run.alone)).collect();
    assert_eq!(seen, [(Some(2), Some(2), false), (Some(3), Some(1), false)]);
    let alone = [ranks(&[(0, "a", 7)]), ranks(&[(0, "b", 7)]), NEW.to_owned(), row.to_owned()].concat();
    assert!(one(&alone).alone);
    // An attempt that ended before its first row is none of the run after it.
    let program = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n";
    let row_of = |size: u32| format!("{size} 268435456 float sum -1 4739.2 226.57 226.57 0\n");
    let [first, second] = [[(0, "a", 7), (1, "c", 7)], [(0, "a", 9), (1, "b", 9)]];
    let [first, second] = [first, second].map(|all| format!("{program}{}", ranks(&all)));
    let own = format!("{}# weftrun-verify all_reduce\n{NEW}", ranks(&[(0, "a", 7), (1, "c", 0)]));
    for died in [first.clone(), format!("{first}{NEW}"), first.repeat(2), own] {
        let run = one(&format!("{died}{second}{NEW}{}{}", row_of(512), row_of(1024)));
        assert_eq!((run.ranks, run.nodes, run.alone), (Some(2), Some(2), false), "{died}");
    }
    // Processes on their own print a table each, however their lines are mixed.
    for tables in [
        format!("{first}{second}{NEW}{NEW}{}", row_of(512)),
        format!("{first}{NEW}{second}{NEW}{}{}", row_of(512), row_of(512)),
        format!("{first}{NEW}{second}{}{}{}", row_of(512), row_of(1024), row_of(512)),
    ] {
        let run = one(&tables);
        assert!(run.mixed && run.nodes.is_none(), "{tables}");
    }
    // The kernel's first releases print no group.
    let old = "#   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100\n";
    assert_eq!(one(&format!("{old}{NEW}{row}")).nodes, Some(1));
}

#[test]
fn the_collective_comes_from_the_log() {
    let log = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n# Using devices\n\
        #  Rank  0 Group  0 Pid   4711 on     gpu-a device  0 [0x53] NVIDIA H100\n\
        #  Rank  1 Group  0 Pid   4712 on     gpu-b device  0 [0x53] NVIDIA H100\n";
    let row = "1048576 262144 float none -1 30.95 33.88 16.94 0\n";
    let run = one(&format!("{log}{row}"));
    assert_eq!((run.ranks, run.nodes, run.collective), (Some(2), Some(2), None));
    let runs = read(
        format!("{log}# weftrun-verify all_reduce\n{row}{row}# weftrun-verify alltoall\n{row}").as_bytes(),
    );
    let seen: Vec<_> = runs.iter().map(|run| (run.collective, run.rows.len())).collect();
    assert_eq!(seen, [(Some(Collective::AllReduce), 2), (Some(Collective::AllToAll), 1)]);
    for (name, collective) in
        [("all_gather_perf", Collective::AllGather), ("alltoall_perf", Collective::AllToAll)]
    {
        let run = one(&format!("{log}# Collective test starting: {name}\n"));
        assert_eq!(run.collective, Some(collective));
        let run = one(&format!("+ mpirun -np 2 ./build/{name} -b 8 -e 1G\n{log}{NEW}{row}"));
        assert_eq!(run.collective, Some(collective));
    }
    // The figures of a broadcast are not those of the collective before it.
    let log = format!("./all_gather_perf -g 2\n{log}{NEW}{row}./broadcast_perf -g 2\n{NEW}{row}");
    let names: Vec<_> = read(log.as_bytes()).iter().map(|run| run.collective).collect();
    assert_eq!(names, [Some(Collective::AllGather), None]);
    assert_eq!(Collective::parse("reduce-scatter"), Some(Collective::ReduceScatter));
    assert_eq!(Collective::parse("AllReduce"), Some(Collective::AllReduce));
    assert_eq!(Collective::parse("all_reduce_perf_mpi"), Some(Collective::AllReduce));
    assert_eq!(Collective::parse("broadcast"), None);
}

#[test]
fn bytes_may_be_cut_anywhere() {
    let log = format!(
        "{NEW}1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 4742.0 226.43 424.56 0\nweftrun-probe {{\"host\":\"a\"}}"
    );
    let whole = read(log.as_bytes());
    for size in 1..40 {
        let mut logs = Logs::default();
        log.as_bytes().chunks(size).for_each(|part| logs.add(&SourceId::new("log"), part));
        assert_eq!(logs.runs(), whole, "{size}");
        assert_eq!(logs.probes().hosts().collect::<Vec<_>>(), ["a"], "{size}");
    }
}

/// Published lists of ranks are shortened, and the figures then tell the number of ranks: excerpts of
/// github.com/oracle-quickstart/oci-hpc-oke (docs/running-nccl-rccl-tests-from-slurm-operator.md, 16 ranks),
/// github.com/coreweave/nccl-tests (README.md, 72 ranks) and github.com/hisohara (rccl.md), read 2026-11-23.
#[test]
fn a_shortened_list_of_ranks_does_not_hide_their_number() {
    let listed = |ranks: &[(u32, &str, u32)]| {
        let line = |(rank, host, device): &(u32, &str, u32)| {
            format!(
                "#  Rank {rank:2} Group  0 Pid   2574 on {host} device  {device} [0000:0f:00] NVIDIA A100\n"
            )
        };
        ranks.iter().map(line).collect::<String>()
    };
    let row_16 = "8589934592 2147483648 float sum -1 84948.7 101.12 189.60 0 84992.3 101.07 189.50 0\n";
    let row_72 = "8589934592 2147483648 float sum -1 20299 423.16 834.57 0 20006 429.37 846.82 0\n";
    let all_reduce = Some(Collective::AllReduce);
    for (ranks, row, wanted) in [
        (listed(&[(0, "a", 0), (7, "a", 7), (8, "b", 0), (15, "b", 7)]), row_16, (Some(16), Some(2))),
        // The head of the list is cut, or its end.
        (listed(&[(8, "b", 0), (15, "b", 7)]), row_16, (Some(16), Some(2))),
        (listed(&[(0, "a", 0), (1, "a", 1)]), row_16, (Some(16), None)),
        (listed(&[(71, "a", 3)]), row_72, (Some(72), Some(18))),
        (String::new(), row_16, (Some(16), None)),
        // Without numbers of devices the nodes are not known.
        (listed(&[(0, "a", 0), (15, "b", 0)]), row_16, (Some(16), None)),
        (listed(&[(3, "a", 0), (15, "b", 0)]), row_16, (Some(16), None)),
    ] {
        let run = one(&format!("{ranks}{NEW}{row}"));
        assert_eq!((run.ranks, run.nodes, run.collective), (wanted.0, wanted.1, all_reduce), "{ranks}{row}");
    }
    // More ranks than the digits tell apart, a ratio that no number of ranks has, and one that no all-reduce has.
    let four = listed(&[(0, "a", 0), (1, "a", 1), (2, "a", 2), (3, "a", 3)]);
    let seen = |ranks: &str, row: &str| {
        let run = one(&format!("{ranks}{NEW}{row}"));
        (run.collective, run.ranks, run.nodes)
    };
    assert_eq!(seen(&four, "8589934592 2147483648 float sum -1 9 10.00 19.98 0\n"), (all_reduce, None, None));
    assert_eq!(
        seen(&four, "8589934592 2147483648 float sum -1 9 100.00 185.00 0\n"),
        (all_reduce, Some(4), Some(1))
    );
    assert_eq!(
        seen(&four, "8589934592 2147483648 float sum -1 9 100.00 250.00 0\n"),
        (None, Some(4), Some(1))
    );
}

/// Rows that were copied behind a finished table are of other runs.
#[test]
fn rows_behind_a_summary_are_other_runs() {
    let row = |size: u64, algbw: &str, busbw: &str| {
        format!("{size} 2147483648 float sum -1 47217 {algbw} {busbw} 0 47268 {algbw} {busbw} 0\n")
    };
    let log = [
        "mpirun -np 16 all_reduce_perf -b 8\n#  Rank  0 Pid 1 on a device 0\n#  Rank 15 Pid 1 on b device 7\n",
        NEW,
        &row(8 << 30, "189.94", "356.14"),
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 92.3318\n",
        &row(8 << 30, "181.93", "318.37"),
        &row(16 << 30, "182.33", "319.08"),
        "some text\n",
        &row(8 << 30, "180.60", "349.92"),
        &row(8 << 30, "177.77", "349.98"),
    ]
    .concat();
    let seen: Vec<_> = read(log.as_bytes()).iter().map(|run| (run.ranks, run.rows.len())).collect();
    assert_eq!(seen, [(Some(16), 1), (Some(8), 2), (Some(32), 1), (Some(64), 1)]);
}

/// Words of tables, rows and reports, in any order.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "# ",
        "size",
        "bytes",
        "time",
        "busbw",
        "#wrong",
        "error",
        "root",
        "float",
        "int8",
        "sum",
        "-1",
        "0",
        "1073741824",
        "18446744073709551616",
        "1e400",
        "-nan",
        "inf",
        "N/A",
        " ",
        "\n",
        "NCCL INFO",
        "{\"log\":\"",
        "weftrun-probe {",
        "\"host\":\"a\"}",
        "Rank 0 Pid 7 on h device 0",
        "Out of bounds values : 3",
        "weftrun-verify all_reduce",
        "(ms)",
        "(GB/s)",
        "\u{1b}[31m",
        "\u{ff}",
    ];
    let word = prop_oneof![4 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..9)];
    prop::collection::vec(word, 0..120).prop_map(|words| words.join(&b' '))
}

/// Runs of two hosts that were printed into one another are two runs of one node, wherever their banners stand; processes of one
/// rank each are none.
#[test]
fn separate_runs_in_one_log_are_never_one_of_two_nodes() {
    let case = |name: &str| {
        let path = format!("{}/../../tests/cases/verify/{name}.log", env!("CARGO_MANIFEST_DIR"));
        let runs = read(&std::fs::read(path).unwrap());
        runs.iter().map(|run| (run.ranks, run.nodes, run.mixed, run.alone)).collect::<Vec<_>>()
    };
    for name in ["two-runs", "two-runs-late-banner"] {
        assert_eq!(case(name), [(Some(2), Some(1), true, false); 2], "{name}");
    }
    assert_eq!(case("one-rank-each"), [(Some(1), Some(1), false, true)]);
    assert_eq!(case("one-rank-each-no-header"), [(Some(1), None, false, false)]);
}

#[test]
fn rows_with_tags_and_processes_with_all_ranks_are_read() {
    // As a launcher printed it (issue 1453 of NVIDIA/nccl, its largest sizes).
    let run = one(
        "[0]   1073741824     268435456     float     sum      -1[0]    387818    2.77    5.31      0[0]    385806    2.78    5.33      0\n",
    );
    assert_eq!((run.rows[0].size, run.rows[0].busbw()), (1_073_741_824, Some(5.33)));
    let run = one(
        "[1,0]<stdout>:  8589934592    2147483648     float     sum      -1[1,0]<stdout>:   204078   42.09   78.92      0[1,0]<stdout>:   204089   42.09   78.92      0\n",
    );
    assert_eq!((run.rows[0].busbw(), run.ranks), (Some(78.92), Some(16)));
    // A row that the failure of the benchmark broke off.
    let run = one(&format!(
        "{NEW}     2097152         32768     float    none      -1 node0: Test CUDA failure common.cu:389 'an illegal memory access was encountered'\n"
    ));
    assert!(run.rows.is_empty() && run.failure.is_some_and(|failure| failure.ends_with("encountered'")));
    // Two ranks of a broadcast have the factor of an all-reduce.
    let all = format!(
        "# ./build/broadcast_perf -b 8 -e 1G -g 2\n{NEW}1073741824 268435456 float none 0 5253.3 204.39 204.39 0\n"
    );
    let run = one(&all);
    assert_eq!((run.collective, run.other), (None, true));
    assert_eq!(one(&all.replace("broadcast", "all_reduce")).collective, Some(Collective::AllReduce));
    // As Oracle posted it for one node: without the list of ranks.
    let all = format!(
        "# nThread 1 nGpus 8 minBytes 524288 maxBytes 8589934592 step: 2(factor)\n{NEW}\
         8589934592 2147483648 float sum -1 18006 477.05 834.84 0 17990 477.49 835.61 0\n"
    );
    let run = one(&all);
    assert_eq!((run.ranks, run.nodes), (Some(8), Some(1)));
    let run = one(&all.replace("nGpus 8", "nGpus 1"));
    assert_eq!((run.ranks, run.nodes), (Some(8), None));
}

proptest! {
    /// Any bytes are read without a panic, and cuts do not matter.
    #[test]
    fn any_log_is_read(log in hostile(), size in 1..64_usize) {
        let whole = read(&log);
        let mut logs = Logs::default();
        log.chunks(size).for_each(|part| logs.add(&SourceId::new("log"), part));
        prop_assert_eq!(logs.runs(), whole.clone());
        for run in &whole {
            prop_assert!(run.rows.iter().all(|row| row.busbw().is_none_or(f64::is_finite)));
            let subject = crate::Subject { instance: Some("p5.48xlarge".to_owned()), nodes: Some(2), ..crate::Subject::default() };
            let _ = crate::judge(run, &subject, &crate::Probes::default());
        }
        let _ = logs.probes().findings();
    }
}

/// A program that computes the bus bandwidth in its own way does not take ranks away that the log lists.
#[test]
fn a_ratio_adds_ranks_to_a_list_and_takes_none_away() {
    let rank =
        |rank: u32| format!("#  Rank {rank:2} Group  0 Pid 4711 on gpu-0 device {rank} [0x53] NVIDIA H100\n");
    let log = |listed: u32, algbw: &str, busbw: &str| {
        format!(
            "# Collective test starting: all_reduce_perf\n{}2147483648 536870912 float sum -1 9000.0 {algbw} {busbw} 0\n",
            (0..listed).map(rank).collect::<String>()
        )
    };
    let ranks = |listed, algbw, busbw| read(log(listed, algbw, busbw).as_bytes())[0].ranks;
    assert_eq!(ranks(4, "238.61", "238.61"), Some(4));
    assert_eq!(ranks(4, "200.00", "375.00"), Some(16));
    assert_eq!(ranks(16, "200.00", "375.00"), Some(16));
}
