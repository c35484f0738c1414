//! The speed of the job, from the output of training programs and benchmarks.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::lines::RATES;
use super::text::{behind, contains, text};

/// Samples kept of one series.
const SAMPLES: usize = 256;
/// Most bytes between the start of a label or value and the words that make its line relevant.
pub(super) const REACH: usize = 32;
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
    /// Global rank that the launcher printed.
    pub rank: Option<u32>,
    /// Values in all.
    pub count: u64,
    /// First.
    pub first: Sample,
    /// Samples, evenly spread; at most 256.
    pub samples: Vec<Sample>,
    /// The last value as printed: most values are never used, so they are not parsed.
    last: Printed,
    /// Every so many values, one is a sample; a power of two.
    stride: u64,
}

/// A value as its line printed it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Printed {
    line: u64,
    text: [u8; VALUE],
    len: u8,
}

/// Most bytes of a value.
const VALUE: usize = 24;

impl Printed {
    fn new(line: u64, value: &[u8]) -> Self {
        let mut fresh = Self { line, text: [0; VALUE], len: 0 };
        fresh.set(line, value);
        fresh
    }

    /// Replaces the value in place, since a copy of bytes that were just written waits for the writes.
    #[inline]
    fn set(&mut self, line: u64, value: &[u8]) {
        // In steps of eight bytes, since a call of `memcpy` for each line costs more than the copy.
        let mut len = 0;
        for (to, from) in self.text.chunks_exact_mut(8).zip(value.chunks(8)) {
            if let (Ok(to), Ok(from)) = (<&mut [u8; 8]>::try_from(&mut *to), <[u8; 8]>::try_from(from)) {
                *to = from;
            } else {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            len += from.len();
        }
        (self.line, self.len) = (line, u8::try_from(len).unwrap_or(0));
    }

    fn sample(&self) -> Option<Sample> {
        let value = parse(&self.text[..usize::from(self.len)])?;
        Some(Sample { value, line: self.line })
    }
}

impl Series {
    /// Returns whether it is the bus bandwidth of a collective, for which there are published figures.
    pub fn is_bus_bandwidth(&self) -> bool {
        is_bus_bandwidth(self.metric)
    }

    /// Returns the last value.
    pub fn last(&self) -> Sample {
        self.last.sample().unwrap_or(self.first)
    }

    /// Returns how many values are known to be behind a line.
    pub fn count_after(&self, line: u64) -> u64 {
        let sampled = self.samples.iter().filter(|sample| sample.line > line).count() as u64;
        match sampled.checked_sub(1) {
            Some(others) => others * self.stride + 1,
            None => u64::from(self.last.line > line),
        }
    }

    /// Adds a value. When the samples are full, every second one is dropped and the stride doubles.
    fn add(&mut self, line: u64, value: &[u8]) {
        self.last.set(line, value);
        if self.count & (self.stride - 1) == 0
            && let Some(sample) = self.last.sample()
        {
            if self.samples.len() == SAMPLES {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            if self.count & (self.stride - 1) == 0 {
                self.samples.push(sample);
            }
        }
        self.count += 1;
    }
}

/// All series of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Throughput {
    series: Vec<Series>,
    /// The series of the ranks that wrote most recently, by rank.
    recent: Vec<Option<Recent>>,
    steps: bool,
    /// The label of the last value.
    usual: Option<RateLabel>,
}

/// The index of the series of a rank and a metric.
#[derive(Clone, Copy, Debug)]
struct Recent {
    metric: &'static str,
    rank: Option<u32>,
    /// None if the largest number of series is kept and this one is not among them.
    at: Option<u8>,
}

impl Throughput {
    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter()
    }

    /// Returns the values of training steps; those of benchmarks are none.
    pub fn step_series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| !is_bus_bandwidth(series.metric))
    }

    /// Returns whether training steps were seen.
    pub fn steps(&self) -> bool {
        self.steps
    }

    /// Returns the number of training step values by rank, all metrics together.
    pub fn step_counts(&self) -> BTreeMap<Option<u32>, u64> {
        let mut counts = BTreeMap::new();
        for series in self.step_series() {
            *counts.entry(series.rank).or_default() += series.count;
        }
        counts
    }

    /// Searches a value in a line; returns whether there is one.
    pub fn observe(&mut self, rank: Option<u32>, line: u64, message: &[u8]) -> bool {
        find(message).is_some_and(|found| self.add(rank, line, found))
    }

    /// Does the same for a line with a known place of the first words of a throughput value.
    #[inline]
    pub fn observe_at(&mut self, rank: Option<u32>, line: u64, message: &[u8], at: usize) -> bool {
        let found = match self.usual.and_then(|label| label.value(message, at)) {
            Some(found) => Some(found),
            None => match find_at(message, at) {
                Some((label, value)) => {
                    self.usual = label.sole.then_some(label);
                    Some((label.metric, label.unit, value))
                }
                None => find(message),
            },
        };
        found.is_some_and(|found| self.add(rank, line, found))
    }

    fn add(&mut self, rank: Option<u32>, line: u64, (metric, unit, value): Value<'_>) -> bool {
        if let Some(known) = self.series_of(metric, rank) {
            known.add(line, value);
            return true;
        }
        if self.series.len() < SERIES {
            let printed = Printed::new(line, value);
            let Some(first) = printed.sample() else { return false };
            self.steps |= !is_bus_bandwidth(metric);
            let samples = Vec::new();
            let mut fresh = Series { metric, unit, rank, count: 0, first, last: printed, samples, stride: 1 };
            fresh.add(line, value);
            self.series.push(fresh);
        }
        true
    }

    fn series_of(&mut self, metric: &'static str, rank: Option<u32>) -> Option<&mut Series> {
        let place = rank.map_or(0, |rank| rank as usize % RECENT);
        // Metrics are static texts, so pointers are compared instead of bytes.
        if let Some(Some(recent)) = self.recent.get(place)
            && recent.rank == rank
            && std::ptr::eq(recent.metric, metric)
        {
            return self.series.get_mut(usize::from(recent.at?));
        }
        let found = self.series.iter().position(|known| known.rank == rank && known.metric == metric);
        if found.is_some() || self.series.len() >= SERIES {
            self.recent.resize(RECENT, None);
            let at = found.and_then(|at| u8::try_from(at).ok());
            self.recent[place] = Some(Recent { metric, rank, at });
        }
        self.series.get_mut(found?)
    }
}

/// Returns whether a metric is the bus bandwidth of a benchmark. All others are of training steps.
fn is_bus_bandwidth(metric: &str) -> bool {
    metric.starts_with("busbw")
}

/// Number of places in which the series of a rank is found again without a search.
const RECENT: usize = 64;

/// Metric, unit and the label before the value.
const LABELS: &[(&str, &str, &[&str])] = &[
    // tf_cnn_benchmarks: `total images/sec` is for the whole job, printed by every rank: one number, never
    // a sum.
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
        &[
            "tokens/sec: ",
            "tokens/s: ",
            "tokens/s ",
            "tokens/sec=",
            "tokens/s=",
            "tokens_per_sec: ",
            "tokens/sec/gpu: ",
        ],
    ),
    ("train step time", "s", &["train_step_timing in s=", "train_step_timing in s: "]),
    ("iterations/sec", "it/s", &["iterations/sec: "]),
];

/// All labels in one automaton, and the row of each.
static LABEL_FINDER: LazyLock<Option<(AhoCorasick, Vec<usize>)>> = LazyLock::new(|| {
    let rows = LABELS.iter().enumerate().flat_map(|(row, (.., labels))| labels.iter().map(move |_| row));
    let needles = LABELS.iter().flat_map(|(.., labels)| *labels);
    let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(needles).ok()?;
    Some((finder, rows.collect()))
});

/// A value: its metric, its unit, and its digits.
type Value<'a> = (&'static str, &'static str, &'a [u8]);

/// A label that contains words of [`RATES`].
#[derive(Clone, Copy, Debug)]
struct RateLabel {
    /// Offset of the words.
    place: usize,
    metric: &'static str,
    unit: &'static str,
    label: &'static str,
    /// Whether no earlier label can match at the same words.
    sole: bool,
}

impl RateLabel {
    /// Returns the digits of the value if the words of the label are at a position.
    #[inline]
    fn digits<'a>(&self, message: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let rest = message.get(at.checked_sub(self.place)?..)?;
        number(behind_label(rest, self.label.as_bytes())?)
    }

    #[inline]
    fn value<'a>(&self, message: &'a [u8], at: usize) -> Option<Value<'a>> {
        Some((self.metric, self.unit, self.digits(message, at)?))
    }

    /// Returns whether a text may have both labels at the same words.
    fn meets(&self, other: &Self) -> bool {
        // If one label begins earlier, its bytes before the start of the other are not compared.
        let start = self.place.min(other.place);
        let common = |label: &Self| label.label.bytes().skip(label.place - start);
        common(self).zip(common(other)).all(|(one, other)| one == other)
    }
}

/// Returns the rest of a text that begins with a label. Compares eight bytes at once, since a call of `memcmp` for each line
/// costs more than the comparison.
#[inline]
fn behind_label<'a>(mut rest: &'a [u8], mut label: &[u8]) -> Option<&'a [u8]> {
    while let Some((words, more)) = label.split_first_chunk::<8>() {
        let (head, tail) = rest.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*head) != u64::from_le_bytes(*words) {
            return None;
        }
        (rest, label) = (tail, more);
    }
    let (head, tail) = rest.split_at_checked(label.len())?;
    head.iter().zip(label).all(|(one, other)| one == other).then_some(tail)
}

/// The labels that contain words of [`RATES`]. Those with the largest offset come first, as a search would find
/// them first.
static RATE_LABELS: LazyLock<Vec<RateLabel>> = LazyLock::new(|| {
    let mut known: Vec<RateLabel> = Vec::new();
    for (metric, unit, labels) in LABELS {
        for label in *labels {
            let place = RATES.iter().filter_map(|words| label.find(words)).min();
            known.extend(place.map(|place| RateLabel { place, metric, unit, label, sole: false }));
        }
    }
    known.sort_by_key(|label| std::cmp::Reverse(label.place));
    for at in 0..known.len() {
        let (before, rest) = known.split_at_mut(at);
        if let Some(label) = rest.first_mut() {
            label.sole = !before.iter().any(|earlier| earlier.meets(label));
        }
    }
    known
});

/// Finds the value whose label has its words of [`RATES`] at a position, which is the first in the message.
fn find_at(message: &[u8], at: usize) -> Option<(RateLabel, &[u8])> {
    RATE_LABELS.iter().find_map(|label| Some((*label, label.digits(message, at)?)))
}

/// Finds a value.
fn find(message: &[u8]) -> Option<Value<'_>> {
    let (finder, rows) = LABEL_FINDER.as_ref()?;
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

/// Returns the first number of a text that begins with blanks, `:`, `=` or `N GPU(s): `.
#[inline]
fn number(rest: &[u8]) -> Option<&[u8]> {
    // Usually a few digits, and then the end of the line.
    let few = rest.iter().take(VALUE).take_while(|byte| byte.is_ascii_digit()).count();
    if few > 0 && few == rest.len() {
        return Some(rest);
    }
    number_among(rest)
}

/// Does the same for any text.
fn number_among(rest: &[u8]) -> Option<&[u8]> {
    let head = &rest[..rest.len().min(48)];
    let start = head.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b':' | b'='))?;
    let digits = digits(&head[start..]);
    if digits.first().is_some_and(u8::is_ascii_digit) && !head[start + digits.len()..].starts_with(b" GPU(s)")
    {
        return Some(digits);
    }
    let behind_count = behind(head, "GPU(s): ").unwrap_or(&head[start..]).trim_ascii_start();
    let digits = self::digits(behind_count);
    parse(digits).map(|_| digits)
}

fn digits(rest: &[u8]) -> &[u8] {
    let part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-' | b',');
    &rest[..rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len())]
}

fn parse(digits: &[u8]) -> Option<f64> {
    let digits = text(digits).replace(',', "");
    digits.trim_end_matches(['.', '-', '+']).parse().ok().filter(|value: &f64| value.is_finite())
}

/// Reads the output of tqdm: ` 45%|████ | 45/100 [00:12<00:15,  3.61it/s]`.
fn progress(message: &[u8]) -> Option<(&'static str, &'static str, &[u8])> {
    let end = crate::text::find(message, b"it/s")?;
    let head = &message[..end];
    let start =
        head.iter().rposition(|byte| !(byte.is_ascii_digit() || *byte == b'.')).map_or(0, |at| at + 1);
    parse(&head[start..]).map(|_| ("iterations/sec", "it/s", &head[start..]))
}

/// Reads a row of nccl-tests: `1073741824 268435456 float sum -1 47392 22.66 42.48 0 47420 22.64 42.46 0`;
/// the eighth number is the out-of-place bus bandwidth.
fn nccl_tests_row(message: &[u8]) -> Option<(&'static str, &'static str, &[u8])> {
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
    // Since 2.10 there is a column `root` before the time; it is a whole number, -1 where there is none.
    if time == b"-1" || (numeric(time) && time.len() <= 3) {
        time = words.next()?;
    }
    let _: f64 = text(time).parse().ok()?;
    let _algorithm = words.next()?;
    let bus = words.next()?;
    parse(bus).map(|_| ("busbw", "GB/s", bus))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value at a known place is the one that a search finds.
    #[test]
    fn a_known_place_gives_what_the_search_finds() {
        let heads = ["", "x ", "step 7 total ", "elapsed time: 3, ", "it/s?, ", "tokens/s n/a tokens/s "];
        let tails = ["12.5", "n/a", "", " : 7", "1 GPU(s): 9.5 images"];
        let labels = LABELS.iter().flat_map(|(.., labels)| *labels);
        for label in labels.copied().chain(["3.61it/s", "img/sec", "tokens per second: ", "no label "]) {
            for head in heads {
                for tail in tails {
                    let line = format!("{head}{label}{tail}");
                    let Some(at) = RATES.iter().filter_map(|words| line.find(words)).min() else { continue };
                    let found = find_at(line.as_bytes(), at);
                    let found = found.map(|(label, value)| (label.metric, label.unit, value));
                    assert!(found.is_none() || found == find(line.as_bytes()), "{line}: {found:?}");
                }
            }
        }
    }
}
