//! The fast reader of training logs gives the same result as reading line by line, for any content.

use std::sync::Arc;

use proptest::prelude::*;
use weftrun_nccl::{Series, SourceId, TransportMap};

/// The data that a map keeps of one stream: its series and its lines.
type Read = (Vec<Series>, Vec<String>, u64);

fn result(map: &TransportMap) -> Read {
    let snapshot = map.snapshot();
    let series = snapshot.throughput().map(|(_, series)| series.clone()).collect();
    let lines = snapshot.failures().reports().iter().map(|report| format!("{report:?}")).collect();
    (series, lines, snapshot.totals().lines)
}

/// Reads a stream in pieces of the given length.
fn in_pieces(stream: &[u8], length: usize) -> Read {
    let (mut map, source) = (TransportMap::new(), Arc::new(SourceId::new("log")));
    for piece in stream.chunks(length.max(1)) {
        map.read(&source, piece);
    }
    map.end(&source);
    result(&map)
}

/// Reads every line in two pieces, so that each is assembled and searched on its own.
fn line_by_line(stream: &[u8]) -> Read {
    let (mut map, source) = (TransportMap::new(), Arc::new(SourceId::new("log")));
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        let (head, tail) = line.split_at(line.len() / 2);
        map.read(&source, head);
        map.read(&source, tail);
    }
    map.end(&source);
    result(&map)
}

/// Lines of training output, with and without rates, plain and damaged.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let label = prop::sample::select(vec![
        "tokens/s ",
        "tokens/s: ",
        "tokens/s=",
        "tokens/sec: ",
        "tokens/sec=",
        "tokens/sec/gpu: ",
        "samples/sec: ",
        "samples/sec=",
        "images/sec: ",
        "total images/sec: ",
        "img/sec: ",
        "iterations/sec: ",
        "it/s ",
        "per_sec: ",
        "samples_per_sec: ",
        "SamplesPerSec=",
        "elapsed time per iteration (ms): ",
        "train_step_timing in s=",
        "samples per second: ",
        "tokens/",
        "it/",
        "/sec",
        "Total img/sec on 8 GPU(s): ",
        "",
    ]);
    let head = prop::sample::select(vec![
        "",
        "[rank{}]: ",
        "[rank{}] ",
        "[1,{}]<stdout>:",
        "[default{}]:",
        "{}: ",
        "2026/11/22 [rank{}]: ",
        "\t[rank{}]:",
        "{\"rank\": {}, \"log\": \"",
        "[Rank {}] ",
        "[rankx]: ",
        "[rank3]: [rank{}]: ",
        "pod/w-0 [rank{}]: ",
    ]);
    let middle = prop::sample::select(vec![
        "",
        "step 7 loss 0.33 ",
        "a/b ",
        "100%|██████| 45/100 [00:12<00:15,  3.61it/s] ",
        "tokens/s n/a ",
        "NCCL ",
        "elapsed time ",
        "\r",
        "\0",
        "\x1b[32m",
        "\t",
        "über ",
        "Exit code: 1 ",
        "Traceback (most recent call last):",
    ]);
    let tail = prop::sample::select(vec![
        "",
        "12.5",
        "10234",
        "1e9",
        "1,024.5 x",
        "n/a",
        " GPU(s) 4",
        "8 GPU(s): 9.5",
        ": 7",
        "12345678901234567890123456789",
        "10 tokens/s: 7",
        "\r",
        "5\r",
        " 3.5it/s",
    ]);
    let damage = prop::option::weighted(0.1, (any::<prop::sample::Index>(), any::<u8>()));
    (head, 0_u32..70, middle, label, tail, damage).prop_map(|(head, rank, middle, label, tail, damage)| {
        let head = head.replacen("{}", &rank.to_string(), 1);
        let mut line = format!("{head}{middle}{label}{tail}\n").into_bytes();
        if let Some((at, byte)) = damage {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line
    })
}

/// Generates a log: runs of typical lines with arbitrary lines between them.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let usual = (prop::sample::select(vec!["tokens/s ", "samples/sec: ", "tokens/sec="]), 0_usize..80)
        .prop_map(|(label, count)| {
            let of = |step: usize| {
                format!("[rank{}]: step {step} loss 0.{step} {label}{}\n", step % 40, 900 + step)
            };
            (0..count).map(of).collect::<String>().into_bytes()
        });
    let part = prop_oneof![usual, prop::collection::vec(line(), 0..20).prop_map(|lines| lines.concat())];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fast_reading_equals_reading_line_by_line(stream in stream(), piece in 1_usize..4096) {
        let wanted = line_by_line(&stream);
        prop_assert_eq!(&in_pieces(&stream, usize::MAX), &wanted);
        prop_assert_eq!(&in_pieces(&stream, piece), &wanted);
    }
}

/// Every rank's series has all its values, with their lines, beside NCCL's lines and more ranks than series are kept.
#[test]
fn a_usual_training_log_is_read_completely() {
    let mut log = String::new();
    for step in 0..2000 {
        for rank in 0..40 {
            log += &format!("[rank{rank}]: step {step} loss 0.5 tokens/s {}\n", 1000 * rank + step);
        }
        if step % 10 == 0 {
            log += "node-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n";
        }
    }
    let (series, _, lines) = in_pieces(log.as_bytes(), 1 << 16);
    assert_eq!(lines, 2000 * 40 + 200);
    assert_eq!(series.len(), 32);
    for (at, series) in series.iter().enumerate() {
        assert_eq!((series.rank, series.count), (u32::try_from(at).ok(), 2000));
        assert_eq!((series.first.value, series.first.line), (1000.0 * at as f64, at as u64 + 1));
        let last = series.last();
        assert_eq!((last.value, last.line), (1000.0 * at as f64 + 1999.0, 1999 * 40 + 200 + at as u64 + 1));
        assert!((128..=256).contains(&series.samples.len()));
    }
}
