//! How fast the job is, from what training programs and benchmarks print.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::text::{Cursor, behind, contains, text};

/// Samples kept of one series.
const SAMPLES: usize = 256;
/// Series kept of one source.
const SERIES: usize = 32;

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The value, in the unit of its series.
    pub value: f64,
    /// Line in its source, from 1.
    pub line: u64,
}

/// The values of one metric of one rank: the first, the last, how many, and a bounded number of samples between.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Series {
    /// `images/sec`, `busbw avg`, `iteration time`, …
    pub metric: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Global rank that the launcher told.
    pub rank: Option<u32>,
    /// Values in all.
    pub count: u64,
    /// First.
    pub first: Sample,
    /// Last.
    pub last: Sample,
    /// Samples, evenly spread; at most 256.
    pub samples: Vec<Sample>,
    stride: u64,
}

impl Series {
    fn new(metric: &'static str, unit: &'static str, rank: Option<u32>, sample: Sample) -> Self {
        Self { metric, unit, rank, count: 0, first: sample, last: sample, samples: Vec::new(), stride: 1 }
    }

    /// Adds a value. When the samples are full every second one is dropped and half as many are taken from then on.
    fn add(&mut self, sample: Sample) {
        if self.count.is_multiple_of(self.stride) {
            if self.samples.len() == SAMPLES {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.samples.push(sample);
            }
        }
        self.count += 1;
        self.last = sample;
    }
}

/// All series of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Throughput {
    series: Vec<Series>,
    steps: bool,
}

impl Throughput {
    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter()
    }

    /// Whether training steps were seen.
    pub fn steps(&self) -> bool {
        self.steps
    }

    /// Looks for a value in a line; whether there is one.
    pub fn observe(&mut self, rank: Option<u32>, line: u64, message: &[u8]) -> bool {
        let Some((metric, unit, value)) = read(message).filter(|(.., value)| value.is_finite()) else {
            return false;
        };
        self.steps |= !metric.starts_with("busbw");
        let sample = Sample { value, line };
        if let Some(known) = self.series.iter_mut().find(|known| known.metric == metric && known.rank == rank)
        {
            known.add(sample);
        } else if self.series.len() < SERIES {
            let mut fresh = Series::new(metric, unit, rank, sample);
            fresh.add(sample);
            self.series.push(fresh);
        }
        true
    }
}

/// Metric, unit and the label before the value.
const LABELS: &[(&str, &str, &[&str])] = &[
    // tf_cnn_benchmarks: `total images/sec` is the whole job's, printed by every rank: one number, never a sum.
    ("total images/sec", "images/s", &["total images/sec: ", "Total img/sec on "]),
    ("images/sec", "images/s", &["images/sec: ", "Img/sec per GPU: ", "img/sec: "]),
    ("busbw avg", "GB/s", &["# Avg bus bandwidth    : ", "Avg bus bandwidth"]),
    ("busbw", "GB/s", &["busbw_GBps "]),
    // Megatron-LM, DeepSpeed, NeMo, PyTorch examples.
    ("iteration time", "ms", &["elapsed time per iteration (ms): "]),
    (
        "samples/sec",
        "samples/s",
        &["SamplesPerSec=", "samples/sec: ", "samples/sec=", "samples per second: ", "samples_per_sec: "],
    ),
    (
        "tokens/sec",
        "tokens/s",
        &["tokens/sec: ", "tokens/s: ", "tokens/sec=", "tokens_per_sec: ", "tokens/sec/gpu: "],
    ),
    ("train step time", "s", &["train_step_timing in s=", "train_step_timing in s: "]),
    ("iterations/sec", "it/s", &["iterations/sec: "]),
];

/// All labels in one automaton, and which row each belongs to.
fn labels() -> Option<&'static (AhoCorasick, Vec<usize>)> {
    static LABEL_FINDER: OnceLock<Option<(AhoCorasick, Vec<usize>)>> = OnceLock::new();
    let build = || {
        let rows = LABELS.iter().enumerate().flat_map(|(row, (.., labels))| labels.iter().map(move |_| row));
        let needles = LABELS.iter().flat_map(|(.., labels)| *labels);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(needles).ok()?;
        Some((finder, rows.collect()))
    };
    LABEL_FINDER.get_or_init(build).as_ref()
}

fn read(message: &[u8]) -> Option<(&'static str, &'static str, f64)> {
    let (finder, rows) = labels()?;
    for found in finder.find_iter(message) {
        let (metric, unit, _) = LABELS[rows[found.pattern().as_usize()]];
        if let Some(value) = number(&message[found.end()..]) {
            return Some((metric, unit, value));
        }
    }
    if contains(message, "it/s") {
        return progress(message);
    }
    nccl_tests_row(message)
}

/// The first number of a text that begins with blanks, `:`, `=` or `N GPU(s): `.
fn number(rest: &[u8]) -> Option<f64> {
    let head = &rest[..rest.len().min(48)];
    let behind_count = behind(head, "GPU(s): ").unwrap_or(head);
    let start = behind_count.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b':' | b'='))?;
    let digits = Cursor::new(&behind_count[start..])
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-' | b','));
    let digits = text(digits).replace(',', "");
    digits.trim_end_matches(['.', '-', '+']).parse().ok()
}

/// tqdm: ` 45%|████ | 45/100 [00:12<00:15,  3.61it/s]`.
fn progress(message: &[u8]) -> Option<(&'static str, &'static str, f64)> {
    let end = memchr::memmem::find(message, b"it/s")?;
    let head = &message[..end];
    let start =
        head.iter().rposition(|byte| !(byte.is_ascii_digit() || *byte == b'.')).map_or(0, |at| at + 1);
    let value = text(&head[start..]).parse().ok()?;
    Some(("iterations/sec", "it/s", value))
}

/// A row of nccl-tests: `1073741824 268435456 float sum -1 47392 22.66 42.48 0 47420 22.64 42.46 0`; the eighth number
/// is the bus bandwidth out of place.
fn nccl_tests_row(message: &[u8]) -> Option<(&'static str, &'static str, f64)> {
    let mut words = message.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let bytes = words.next()?;
    let count = words.next()?;
    let kind = words.next()?;
    let numeric = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    if !numeric(bytes) || !numeric(count) || !kind.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    let operation = words.next()?;
    if !matches!(operation, b"sum" | b"prod" | b"min" | b"max" | b"avg" | b"none" | b"mulsum") {
        return None;
    }
    let mut time = words.next()?;
    // Since 2.10 a column `root` stands before the time; it is a whole number, -1 where there is none.
    if time == b"-1" || (numeric(time) && time.len() <= 3) {
        time = words.next()?;
    }
    let _: f64 = text(time).parse().ok()?;
    let _algorithm = words.next()?;
    let bus = text(words.next()?).parse().ok()?;
    Some(("busbw", "GB/s", bus))
}
