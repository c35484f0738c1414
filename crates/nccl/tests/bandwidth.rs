//! Files of a profiler of NCCL: recordings of real runs, lines of each version, and generated jobs of many ranks.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use weftrun_nccl::bandwidth::{Bandwidth, Collective, Order, Source, Speeds};
use weftrun_nccl::{SourceId, TransportMap};

/// Reads texts, each as a file, in pieces of a size.
fn read<'a>(texts: impl IntoIterator<Item = &'a [u8]>, piece: usize) -> Speeds {
    let mut bandwidth = Bandwidth::default();
    for text in texts {
        let mut source = Source::default();
        text.chunks(piece).for_each(|bytes| bandwidth.read(&mut source, bytes));
        bandwidth.end(&mut source);
    }
    bandwidth.speeds()
}

fn recording(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bandwidth").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn of_recording(name: &str) -> Speeds {
    read(recording(name).iter().map(Vec::as_slice), 1 << 20)
}

fn late(speeds: &Speeds) -> Vec<u32> {
    speeds.late.iter().map(|rank| rank.rank).collect()
}

/// The rank whose time is the shortest is late. Several published tools name the one with the longest.
#[test]
fn the_late_rank_of_each_recording_is_named() {
    for (name, expected) in [
        ("inspector-2.28.9-ok", None),
        ("inspector-2.28.9-slow-plain", Some(1)),
        ("inspector-2.32.3-slow", Some(1)),
        ("library-2.28.9-ok", None),
        ("library-2.28.9-slow", Some(1)),
        ("library-2.32.3-slow", Some(1)),
        ("weftrun-2.28.9-none", None),
        ("weftrun-2.28.9-5ms-rank0", Some(0)),
        ("weftrun-2.28.9-5ms-rank1", Some(1)),
        ("weftrun-2.32.3-none", None),
        ("weftrun-2.32.3-150ms-rank0", Some(0)),
        // The wire takes the time; and two ranks that were switched on apart.
        ("library-2.32.3-two_slow", None),
        ("library-2.32.3-switched-live", None),
    ] {
        let speeds = of_recording(name);
        assert_eq!(late(&speeds), Vec::from_iter(expected), "{name}: {}", speeds.sentence);
        assert_eq!((speeds.dropped, speeds.unusable), (0, 0), "{name}");
    }
    let slow = of_recording("inspector-2.28.9-slow-plain");
    assert!(
        slow.sentence.starts_with("rank 1 on vm reaches AllReduce last: the others waited "),
        "{}",
        slow.sentence
    );
    assert_eq!(of_recording("inspector-2.28.9-ok").sentence, "no rank is late");
    let wire = of_recording("library-2.32.3-two_slow");
    assert_eq!(wire.sentence, "no rank is late: the transfer itself takes the time");
}

/// In a rank's log, between other lines and after the prefix of a launcher, the lines of the library say the same.
#[test]
fn the_map_of_a_log_has_what_the_library_measured() {
    let mut map = TransportMap::new();
    for (rank, file) in recording("weftrun-2.28.9-5ms-rank1").iter().enumerate() {
        let source = Arc::new(SourceId::new(format!("rank{rank}")));
        for line in String::from_utf8_lossy(file).lines() {
            let text =
                format!("step 1 loss 2.5\n[default{rank}]:weftrun: NCCL {line}\n{{\"weftrun_nccl\": 0}}\n");
            text.as_bytes().chunks(100).for_each(|bytes| _ = map.read(&source, bytes));
        }
    }
    map.end_all();
    let speeds = map.snapshot().bandwidth().speeds();
    assert_eq!(speeds, of_recording("weftrun-2.28.9-5ms-rank1"));
    assert_eq!(late(&speeds), [1]);
    assert!(map.snapshot().ranks().is_empty(), "the lines name no processes of NCCL's own");
}

#[test]
fn bus_bandwidth_is_that_of_the_rank_that_waited_least() {
    for (name, least, most) in [
        ("inspector-2.28.9-ok", 225.0, 240.0),
        ("library-2.28.9-slow", 205.0, 225.0),
        // Its single operations are all the slow first one of a step, of 150 GB/s.
        ("weftrun-2.28.9-none", 225.0, 240.0),
        ("weftrun-2.28.9-5ms-rank1", 235.0, 245.0),
        ("weftrun-2.32.3-none", 265.0, 275.0),
    ] {
        let speeds = of_recording(name);
        let all = speeds.communicators.iter().flat_map(|comm| &comm.collectives);
        let reduce = all.filter(|speed| speed.collective == Collective::AllReduce);
        let size = reduce.flat_map(|speed| &speed.sizes).find(|size| size.least_bytes >> 20 == 64).unwrap();
        let median = size.busbw_gbps.unwrap();
        assert!((least..most).contains(&median) && size.slowest_gbps.unwrap() <= median, "{name}: {size:?}");
    }
}

/// The library writes sums of a time, Inspector operations with a number.
#[test]
fn the_bandwidth_over_time_is_that_of_the_parts() {
    for (name, parts, least, most) in
        [("weftrun-2.28.9-none", 17..=17, 150.0, 300.0), ("inspector-2.28.9-ok", 60..=60, 150.0, 300.0)]
    {
        let speeds = of_recording(name);
        let all = speeds.communicators.iter().flat_map(|comm| &comm.collectives);
        let reduce = all.filter(|speed| speed.collective == Collective::AllReduce);
        let over_time = &reduce.max_by_key(|speed| speed.over_time.len()).unwrap().over_time;
        assert!(parts.contains(&over_time.len()), "{name}: {over_time:?}");
        let seen: Vec<f64> = over_time.iter().copied().flatten().collect();
        let usual = seen.iter().filter(|speed| (least..most).contains(*speed)).count();
        assert!(usual * 10 >= seen.len() * 8, "{name}: {over_time:?}");
    }
    // A second in which nothing ran, and the operations of half the speed.
    let line = |second: u64, rank: u32, nanos: u64| {
        format!(
            "{{\"weftrun_nccl\":1,\"t\":{},\"host\":\"h\",\"pid\":{rank},\"comm\":\"0x1\",\"rank\":{rank},\"n\":2,\"nodes\":1,\
             \"op\":\"AllReduce\",\"count\":1,\"bytes\":1000,\"ns\":{nanos},\"seq\":{second},\"seq_bytes\":1000,\"seq_ns\":{nanos}}}\n",
            second * 1000
        )
    };
    let text = [(10, 0, 10), (10, 1, 90), (11, 0, 10), (11, 1, 10), (13, 0, 20), (13, 1, 70)]
        .map(|(second, rank, nanos)| line(second, rank, nanos))
        .concat();
    let speeds = read([text.as_bytes()], 64);
    let over_time = &speeds.communicators[0].collectives[0].over_time;
    assert_eq!(*over_time, [Some(100.0), None, Some(50.0)], "of the fastest rank in each part of the time");
}

#[test]
fn the_pieces_in_which_a_file_arrives_do_not_matter() {
    let files = recording("inspector-2.28.9-slow");
    let whole = read(files.iter().map(Vec::as_slice), usize::MAX);
    assert_eq!((whole.operations, whole.communicators.len(), whole.unusable), (24, 2, 0));
    for piece in [1, 7, 460, 4096] {
        assert_eq!(read(files.iter().map(Vec::as_slice), piece), whole, "{piece}");
    }
}

const HEADER: &str = r#""header":{"id":"0x2a","comm_name":"a \"{\\","rank":0,"n_ranks":4,"nnodes":2},"metadata":{"inspector_output_format_version":"v4.3","dump_timestamp_us":1795640443213929,"hostname":"n1.cluster.example","pid":7,"extra_tags":{"rank":"9"}}"#;
const COLL: &str = r#""coll_perf":{"coll":"AllGather","coll_sn":3,"coll_msg_size_bytes":1048576,"coll_exec_time_us":100.5,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1,"coll_busbw_gbs":1,"coll_algo":"NVLS","coll_proto":"SIMPLE"}"#;
const P2P: &str = r#""p2p_perf":{"p2p":"Send","p2p_sn":1,"p2p_peer":3,"p2p_msg_size_bytes":4096,"p2p_exec_time_us":8,"p2p_timing_source":"kernel_cpu"}"#;

#[test]
fn every_version_of_inspector_is_read() {
    // v4.1 to v4.2: complete lines, and lines with what was dropped.
    let text = format!(
        "{{{HEADER},{COLL}}}\n{{{HEADER},\"dump_stats\":{{\"coll_records\":0,\"coll_dropped_total\":5,\
         \"coll_dropped_since_last_dump\":5,\"p2p_dropped_total\":2}}}}\n{{{HEADER},{P2P}}}\n"
    );
    // v4.3 and v4.4: who measured is in one line, and the records that follow have nothing else.
    let later = format!(
        "{{{HEADER},\"dump_stats\":{{\"coll_records\":1,\"p2p_records\":1,\"proxy_records\":1,\
         \"coll_dropped_total\":5,\"p2p_dropped_total\":2}}}}\n\
         {{\"proxy_trace\":{{\"record_type\":\"proxy_op\",\"peer\":1,\"rank\":3,\"pid\":1}}}}\n{{{COLL}}}\n{{{P2P}}}\n{{{COLL}}}\n"
    );
    for (text, unusable) in [(&text, 0), (&later, 1)] {
        let speeds = read([text.as_bytes()], 100);
        let comm = &speeds.communicators[0];
        assert_eq!((&*comm.id, comm.ranks, comm.nodes, comm.seen_ranks), ("0x2a", 4, 2, 1));
        assert_eq!((speeds.operations, speeds.dropped, speeds.unusable), (2, 7, unusable), "{text}");
        let gather = comm.collectives.iter().find(|speed| speed.collective == Collective::AllGather).unwrap();
        let gbps = gather.sizes[0].busbw_gbps.unwrap();
        assert!((gbps - 3.0 * 1_048_576.0 / 100_500.0).abs() < 1e-6, "{gbps}");
        assert!(speeds.notes.iter().any(|note| note.contains("timed by the CPU")), "{:?}", speeds.notes);
    }
}

#[test]
fn prometheus_text_gives_rates_of_nodes() {
    let text = "# HELP nccl_bus_bandwidth_gbs x\n\
        nccl_bus_bandwidth_gbs{version=\"v5.1\",slurm_job_id=\"7\",node=\"n1\",gpu=\"GPU0\",comm_name=\"tp\",n_nodes=\"1\",\
        nranks=\"8\",collective=\"AllReduce\",message_size=\"4-5GB\",algo_proto=\"Ring_ll\"} 329.5\n\
        nccl_collective_exec_time_microseconds{node=\"n1\",gpu=\"GPU0\",comm_name=\"tp\",collective=\"AllReduce\",message_size=\"4-5GB\"} 26000\n\
        nccl_p2p_bus_bandwidth_gbs{node=\"n1\",gpu=\"GPU0\",p2p_operation=\"Send\",message_size=\"1-2MB\"} NaN\n";
    let speeds = read([text.as_bytes()], 10);
    assert_eq!(speeds.rates.len(), 1);
    let rate = &speeds.rates[0];
    assert_eq!((&*rate.node, &*rate.gpu, &*rate.size), ("n1", "GPU0", "4-5GB"));
    assert_eq!((rate.busbw_gbps, rate.time_us), (Some(329.5), Some(26_000.0)));
}

/// A job whose ranks write a line each second, as weftrun's library does.
struct Job {
    ranks: u32,
    seconds: u64,
    op: &'static str,
    /// Nanoseconds of an operation without waiting, and how long a rank waits in one of eight.
    transfer: u64,
    wait: fn(rank: u32, second: u64) -> u64,
}

impl Job {
    fn read(&self) -> Speeds {
        let text = |rank: u32| -> String {
            let line = |second: u64| {
                // What each rank measures differs a little.
                let noise = (u64::from(rank) * 7919 + second * 104_729) % 1_000;
                let nanos = 80 * (self.transfer + noise) + 10 * (self.wait)(rank, second);
                format!(
                    "{{\"weftrun_nccl\":1,\"t\":{},\"host\":\"n{}\",\"pid\":{rank},\"comm\":\"0x7\",\"rank\":{rank},\"n\":{},\
                     \"nodes\":{},\"op\":\"{}\",\"count\":80,\"bytes\":{},\"ns\":{nanos},\"min\":1,\"max\":2,\"seq\":{},\
                     \"seq_bytes\":67108864,\"seq_ns\":{},\"dropped\":0}}\n",
                    (1_795_640_443 + second) * 1000,
                    rank / 8,
                    self.ranks,
                    self.ranks / 8,
                    self.op,
                    80_u64 << 26,
                    second * 64,
                    self.transfer + noise,
                )
            };
            (0..self.seconds).map(line).collect()
        };
        let texts: Vec<String> = (0..self.ranks).map(text).collect();
        read(texts.iter().map(String::as_bytes), 1 << 20)
    }
}

#[test]
fn one_rank_or_one_node_of_many_is_named_and_nobody_without_cause() {
    let job = |ranks, wait| Job { ranks, seconds: 16, op: "AllReduce", transfer: 300_000, wait };
    for ranks in [64, 4096] {
        let one = job(ranks, |rank, _| if rank == 40 { 0 } else { 20_000_000 }).read();
        assert_eq!(late(&one), [40], "{}", one.sentence);
        assert_eq!(
            one.sentence,
            "rank 40 on n5 reaches AllReduce last: the others waited 20 % of 16.0 s for it"
        );
        let node = job(ranks, |rank, _| if rank / 8 == 5 { 30_000 } else { 20_000_000 }).read();
        assert_eq!(late(&node), (40..48).collect::<Vec<_>>(), "{}", node.sentence);
        let none = job(ranks, |_, _| 0).read();
        assert_eq!((late(&none), &*none.sentence), (vec![], "no rank is late"));
        if ranks > 64 {
            continue;
        }
        // Each second another rank: all have to wait, and nobody is it.
        let turns = job(ranks, |rank, second| if u64::from(rank) == second { 0 } else { 20_000_000 }).read();
        assert!(turns.late.is_empty(), "{}", turns.sentence);
        // Half of the ranks.
        let half = job(ranks, |rank, _| if rank % 2 == 0 { 0 } else { 20_000_000 }).read();
        assert!(half.late.is_empty(), "{}", half.sentence);
        // Once, for a checkpoint.
        let once = job(ranks, |rank, second| if rank == 40 || second != 3 { 0 } else { 90_000_000 }).read();
        assert!(once.late.is_empty(), "{}", once.sentence);
    }
    let wire =
        Job { transfer: 11_000_000, ..job(64, |rank, _| if rank == 40 { 0 } else { 5_000_000 }) }.read();
    assert!(wire.late.is_empty() && wire.sentence.contains("the transfer itself"), "{}", wire.sentence);
    for op in ["Send", "Recv", "AlltoAll", "Broadcast"] {
        let pipeline = Job { op, ..job(64, |rank, _| if rank == 40 { 0 } else { 20_000_000 }) }.read();
        assert_eq!(pipeline.communicators[0].collectives[0].arrival.order, Order::PointToPoint, "{op}");
        assert!(pipeline.late.is_empty(), "{op}: {}", pipeline.sentence);
    }
}

/// Of a job that has run for long, what happens now is said beside what happened in all, and who is late now before who was.
#[test]
fn the_last_seconds_of_a_long_job_are_judged_by_themselves() {
    let job = |wait| Job { ranks: 8, seconds: 200, op: "AllReduce", transfer: 300_000, wait }.read();
    for (wait, ranks, sentence) in [
        (
            (|rank, second| if rank == 5 || second < 180 { 0 } else { 50_000_000 }) as fn(u32, u64) -> u64,
            vec![5],
            "rank 5 on n0 reaches AllReduce last: the others waited 50 % of the last 20 s for it",
        ),
        (
            |rank, second| if rank == 5 || second >= 180 { 0 } else { 50_000_000 },
            vec![5],
            "rank 5 on n0 reaches AllReduce last: the others waited 50 % of 200.0 s for it, but not in the last 20 s",
        ),
        (
            |rank, second| if rank == 5 { 0 } else { 20_000_000 + 3_000_000 * (second / 20) },
            vec![5],
            "rank 5 on n0 reaches AllReduce last: the others waited 33 % of 200.0 s for it, 47 % of the last 20 s",
        ),
        (
            |rank, second| if rank == if second < 180 { 5 } else { 3 } { 0 } else { 50_000_000 },
            vec![3],
            "rank 3 on n0 reaches AllReduce last: the others waited 50 % of the last 20 s for it",
        ),
        (|_, second| if second % 20 == 19 { 90_000_000 } else { 0 }, vec![], "no rank is late"),
    ] {
        let speeds = job(wait);
        assert_eq!((late(&speeds), &*speeds.sentence), (ranks, sentence));
    }
}

/// A line of weftrun's library: an all-reduce in which a rank waited so many milliseconds.
fn line(comm: u64, rank: u32, second: u64, waited: u64) -> String {
    let nanos = waited * 1_000_000 + 80 * 300_000;
    format!(
        "{{\"weftrun_nccl\":1,\"t\":{},\"host\":\"n0\",\"pid\":{rank},\"comm\":\"{comm:#x}\",\"rank\":{rank},\"n\":4,\"nodes\":1,\
         \"op\":\"AllReduce\",\"count\":80,\"bytes\":{},\"ns\":{nanos},\"seq\":{},\"seq_bytes\":67108864,\"seq_ns\":300000}}\n",
        (1_795_640_443 + second) * 1000,
        80_u64 << 26,
        second * 64,
    )
}

/// The lines of a communicator of four ranks, by rank, of which `late` comes last.
fn lines(comm: u64, seconds: std::ops::Range<u64>, late: impl Fn(u64) -> Option<u32>) -> [String; 4] {
    [0, 1, 2, 3].map(|rank| {
        let waited = |second| if late(second).is_none_or(|late| late == rank) { 0 } else { 500 };
        seconds.clone().map(|second| line(comm, rank, second, waited(second))).collect()
    })
}

/// What the last seconds are does not depend on the order of files, and needs all ranks and a communicator that still has records.
#[test]
fn the_last_seconds_are_those_of_the_job() {
    let speeds = |texts: &[String]| read(texts.iter().map(String::as_bytes), 1 << 20);
    let late_then_not = |second: u64| (second < 300).then_some(2);
    // A library's older file is read after the one that follows.
    let older = lines(7, 0..300, late_then_not);
    let newer = lines(7, 300..400, late_then_not);
    let rotated = speeds(&[newer.clone(), older.clone()].concat());
    assert!(rotated.sentence.ends_with(", but not in the last 20 s"), "{}", rotated.sentence);
    assert_eq!(rotated, speeds(&[older, newer].concat()));
    // One rank's lines come some seconds later than those of the others.
    let mut behind = lines(7, 0..200, |second| (second >= 150).then_some(2));
    behind[1] = behind[1].lines().take(196).map(|line| format!("{line}\n")).collect();
    let behind = speeds(&behind);
    assert_eq!((late(&behind), behind.sentence.ends_with("50 % of the last 16 s for it")), (vec![2], true));
    // An attempt before had a communicator of its own, which is silent since.
    let before = lines(7, 0..200, |second| (second >= 150).then_some(2));
    let after = lines(8, 1000..1200, |_| None);
    assert_eq!(speeds(&[before, after].concat()).sentence, "no rank is late");
    // Who is late now comes before who waited longer in all.
    let was = lines(7, 0..400, late_then_not);
    let is = lines(9, 0..400, |second| (second >= 380).then_some(3));
    let both = speeds(&[was, is].concat());
    assert_eq!(late(&both), [3], "{}", both.sentence);
    // The time of a line counts: eight lines of a second each are eight seconds.
    let few = speeds(&lines(7, 0..8, |_| Some(1)));
    assert!(few.sentence.ends_with("the others waited 50 % of 8.0 s for it"), "{}", few.sentence);
}

#[test]
fn times_that_cannot_be_are_counted_and_not_used() {
    let line = |rank: u32, ns: &str| {
        format!(
            "{{\"weftrun_nccl\":1,\"t\":1,\"comm\":\"0x7\",\"rank\":{rank},\"n\":2,\"op\":\"AllReduce\",\"count\":1,\
             \"bytes\":4096,\"ns\":{ns},\"seq\":1,\"seq_bytes\":4096,\"seq_ns\":{ns}}}\n"
        )
    };
    let text = [
        line(0, "18446744073709551615"),
        line(0, "18446744073709551616"),
        line(0, "0"),
        line(0, "-5"),
        line(0, "1e400"),
        line(2, "100"),
        line(0, "100"),
    ];
    let speeds = read([text.concat().as_bytes()], 64);
    assert_eq!((speeds.operations, speeds.unusable), (1, 6));
}

proptest! {
    #[test]
    fn no_input_panics(
        lines in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(from, to, byte)| {
                let mut line = format!("{{{HEADER},{COLL}}}").into_bytes();
                let (from, to) = (from.index(line.len()), to.index(line.len()));
                line[from] = byte;
                line.truncate(to.max(1));
                line
            }),
            "\\{\"(header|coll_perf|c|weftrun_nccl|dump_stats)\"(:|\\{|\"|[0-9]|,|n_ranks|rank|coll){0,60}".prop_map(String::into_bytes),
        ], 0..20),
        piece in 1_usize..500,
    ) {
        let text = lines.join(&b'\n');
        let speeds = read([text.as_slice()], piece);
        prop_assert_eq!(&speeds, &read([text.as_slice()], usize::MAX));
    }
}
