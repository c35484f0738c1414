//! What reading the files of NCCL Inspector costs: `cargo bench -p weftrun-nccl --bench bandwidth [-- MEGABYTES]`.

#![allow(clippy::print_stdout, reason = "a benchmark is a program of its own")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads a clock")]

use std::time::Instant;

use weftrun_nccl::bandwidth::{Bandwidth, Source};

const RANKS: u64 = 64;
const CHUNK: usize = 1 << 20;

fn main() {
    let megabytes: usize =
        std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1000);
    let each = (megabytes << 20) / usize::try_from(RANKS).unwrap_or(1);
    let mut text = String::with_capacity(each + 1000);
    let (mut bandwidth, mut took, mut bytes) = (Bandwidth::default(), 0.0, 0);
    for rank in 0..RANKS {
        text.clear();
        for seq in 0.. {
            if text.len() >= each {
                break;
            }
            text.push_str(&line(rank, seq));
        }
        // The best of three counts: other programs on the machine only ever make a run slower.
        let read = |bandwidth: &mut Bandwidth| {
            let (begun, mut source) = (Instant::now(), Source::default());
            text.as_bytes().chunks(CHUNK).for_each(|bytes| bandwidth.read(&mut source, bytes));
            bandwidth.end(&mut source);
            begun.elapsed().as_secs_f64()
        };
        let alone = (0..2).map(|_| read(&mut Bandwidth::default())).fold(f64::INFINITY, f64::min);
        took += read(&mut bandwidth).min(alone);
        bytes += text.len();
    }
    let megabytes = bytes as f64 / 1e6;
    println!("{megabytes:.0} MB of {RANKS} ranks read in {took:.2} s: {:.0} MB/s", megabytes / took);
    let begun = Instant::now();
    let speeds = bandwidth.speeds();
    println!("judged in {:.2} s: {}", begun.elapsed().as_secs_f64(), speeds.sentence);
    [1024, 4096, 16_384].into_iter().for_each(job);
}

/// Prints what the lines of weftrun's library of five minutes cost: of all ranks in one communicator, and of eight on each node.
fn job(ranks: u64) {
    let (mut bandwidth, mut source) = (Bandwidth::default(), Source::default());
    let mut text = String::new();
    let (mut read, mut bytes) = (0.0, 0);
    for second in (0..300).step_by(5) {
        text.clear();
        for rank in 0..ranks {
            let (node, pid) = (rank / 8, 1000 + rank);
            let wait = if rank == 77 { 0 } else { 40_000_000 } + rank % 100 * 1000;
            let comms = [("0x1".to_owned(), rank, ranks), (format!("0x2{node:x}"), rank % 8, 8)];
            for ((comm, rank, ranks), op, nanos) in comms
                .iter()
                .flat_map(|comm| [(comm, "AllReduce", 20_000_000 + wait), (comm, "AllGather", 3_000_000)])
            {
                text.push_str(&format!(
                    "{{\"weftrun_nccl\":1,\"t\":{},\"host\":\"n{node}\",\"pid\":{pid},\"comm\":\"{comm}\",\"rank\":{rank},\"n\":{ranks},\
                     \"nodes\":2,\"op\":\"{op}\",\"count\":50,\"bytes\":3355443200,\"ns\":{},\"min\":1,\"max\":2,\"seq\":{},\
                     \"seq_bytes\":67108864,\"seq_ns\":{nanos},\"dropped\":0}}\n",
                    1_795_640_463_000_u64 + second * 1000,
                    nanos * 50,
                    second * 50,
                ));
            }
        }
        let begun = Instant::now();
        bandwidth.read(&mut source, text.as_bytes());
        read += begun.elapsed().as_secs_f64();
        bytes += text.len();
    }
    let begun = Instant::now();
    let speeds = bandwidth.speeds();
    println!(
        "{ranks} ranks: {:.0} MB of lines read in {read:.2} s, judged in {:.2} s ({} communicators): {}",
        bytes as f64 / 1e6,
        begun.elapsed().as_secs_f64(),
        speeds.communicators.len(),
        speeds.sentence
    );
}

fn line(rank: u64, seq: u64) -> String {
    let time = if rank == 3 || !seq.is_multiple_of(8) { 300 } else { 20_000 } + (rank * 7 + seq * 13) % 20;
    format!(
        "{{\"header\":{{\"id\":\"0xb41091393ccf0b\",\"comm_name\":\"unknown\",\"rank\":{rank},\"n_ranks\":{RANKS},\"nnodes\":8}},\
         \"metadata\":{{\"inspector_output_format_version\":\"v4.0\",\"git_rev\":\"unknown\",\
         \"rec_mechanism\":\"nccl_profiler_interface\",\"dump_timestamp_us\":{},\"hostname\":\"n{}\",\"pid\":{}}},\
         \"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_sn\":{seq},\"coll_msg_size_bytes\":67125248,\"coll_exec_time_us\":{time},\
         \"coll_timing_source\":\"kernel_gpu\",\"coll_algobw_gbs\":229.474024,\"coll_busbw_gbs\":229.474024}}}}\n",
        1_795_640_463_518_776_u64 + seq * 20_000,
        rank / 8,
        1000 + rank,
    )
}
