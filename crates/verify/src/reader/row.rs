//! One row of a table: its header's columns, its element type, its figures.

use crate::table::Figures;

/// The columns of a table from its first figure on.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    columns: Vec<Column>,
    root: bool,
    /// Microseconds of the unit of time.
    pub(super) unit: f64,
}

/// One column of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    AlgBw,
    BusBw,
    Wrong,
    Error,
    Other,
}

impl Header {
    /// Reads `#       size         count      type   redop    root     time   algbw   busbw #wrong`, behind any prefix.
    pub(super) fn read(text: &str) -> Option<Self> {
        let names: Vec<&str> = text.trim_start_matches('#').split_ascii_whitespace().collect();
        let first = names.iter().position(|name| matches!(*name, "size" | "bytes"))?;
        let time = names.iter().position(|name| matches!(*name, "time" | "cputime"))?;
        let column = |name: &&str| match *name {
            "time" | "cputime" => Column::Time,
            "algbw" => Column::AlgBw,
            "busbw" => Column::BusBw,
            "#wrong" => Column::Wrong,
            "error" | "res" => Column::Error,
            _ => Column::Other,
        };
        let figures = names.get(time..)?.iter().filter(|name| **name != "timestamp");
        // The first releases, whose header begins with `bytes`, print milliseconds.
        let unit = if names.get(first) == Some(&"bytes") { 1000.0 } else { 1.0 };
        Some(Self { columns: figures.map(column).collect(), root: names.contains(&"root"), unit })
    }
}

/// The element types of nccl-tests and rccl-tests, by what their results are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Half,
    Single,
    Double,
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "float" => Self::Single,
            "double" => Self::Double,
            "half" | "bfloat16" | "bf16" | "fp8_e4m3" | "fp8_e5m2" | "f8e4m3" | "f8e5m2" => Self::Half,
            "int8" | "uint8" | "int32" | "uint32" | "int64" | "uint64" | "int" | "char" => Self::Whole,
            _ => return None,
        })
    }

    /// Returns the largest error of a right result among this many ranks (`DeltaMaxValue` in `src/common.cu` of
    /// nccl-tests 2.9, read 2026-11-23).
    fn tolerance(self, ranks: Option<u32>) -> f64 {
        let one = match self {
            Self::Half => 1e-2,
            Self::Single => 1e-5,
            Self::Double => 1e-12,
            Self::Whole => 0.0,
        };
        one * f64::from(ranks.unwrap_or(2).saturating_sub(1).max(1))
    }
}

/// Reads the start of a row behind any prefix that a launcher prints: size, count and type. Returns the cells after it.
pub(super) fn start<'a, 'b>(words: &'b [&'a str]) -> Option<(u64, Kind, &'b [&'a str])> {
    for (at, word) in words.iter().enumerate().skip(2) {
        let Some(kind) = Kind::parse(word) else { continue };
        let _: u64 = words[at - 1].parse().ok()?;
        // A prefix may end without a space: `[1,0]<stdout>:1073741824`.
        let size = words[at - 2].rsplit([':', '>', '|', ']', ')']).next()?;
        return Some((size.parse().ok()?, kind, &words[at + 1..]));
    }
    None
}

/// Reads the groups of figures of a row: out of place, in place. The second value is whether other text follows.
pub(super) fn figures(
    cells: &[&str],
    header: Option<&Header>,
    kind: Kind,
    ranks: Option<u32>,
) -> (Vec<Figures>, bool) {
    // A reduction or `none` may stand before the figures, with and without a root.
    let from = usize::from(cells.first().is_some_and(|cell| !is_figure(cell)));
    let cells = cells.get(from..).unwrap_or_default();
    let count = cells.iter().position(|cell| !is_figure(cell)).unwrap_or(cells.len());
    let rest = count < cells.len();
    let mut cells = &cells[..count];
    let no_root = cells.strip_prefix(&["-1"]);
    cells = no_root.unwrap_or(cells);
    let Some(header) = header else {
        // Three or four figures a group, one or two groups.
        if no_root.is_none() && matches!(cells.len(), 5 | 7 | 9) {
            cells = &cells[1..];
        }
        let size = if cells.len() % 4 == 0 { 4 } else { 3 };
        let columns = [Column::Time, Column::AlgBw, Column::BusBw, Column::Wrong];
        let groups = cells.chunks(size).filter(|group| group.len() >= 3).take(2);
        return (groups.map(|group| Figures::of(&columns, group, 1.0, kind, ranks)).collect(), rest);
    };
    let columns = &header.columns;
    let groups: Vec<&[Column]> = columns.chunk_by(|_, next| *next != Column::Time).collect();
    let width = groups.first().map_or(0, |group| group.len());
    let whole = [columns.len(), width].contains(&cells.len());
    if header.root && no_root.is_none() && !whole && !cells.is_empty() {
        cells = &cells[1..];
    }
    let mut figures = Vec::new();
    for group in groups.iter().take(2) {
        // The last cell of a group is not always printed.
        if cells.len() < group.len().min(3) {
            break;
        }
        let (now, later) = cells.split_at(group.len().min(cells.len()));
        figures.push(Figures::of(group, now, header.unit, kind, ranks));
        cells = later;
    }
    (figures, rest)
}

impl Figures {
    fn of(columns: &[Column], cells: &[&str], unit: f64, kind: Kind, ranks: Option<u32>) -> Self {
        let mut figures = Self::default();
        for (column, cell) in columns.iter().zip(cells) {
            match column {
                Column::Time => figures.time_us = number(cell).map(|time| time * unit),
                Column::AlgBw => figures.algbw = number(cell),
                Column::BusBw => figures.busbw = number(cell),
                Column::Wrong | Column::Error => {
                    figures.wrong = wrong(cell, *column, kind.tolerance(ranks));
                }
                Column::Other => {}
            }
        }
        figures
    }
}

/// Returns whether a word stands for a figure: a number, `-nan`, `inf` or `N/A`.
pub(super) fn is_figure(word: &str) -> bool {
    word == "N/A" || word.trim_end_matches('*').parse::<f64>().is_ok()
}

/// Reads a time or a bandwidth. No benchmark takes a million seconds, and no fabric has such a bandwidth.
fn number(cell: &str) -> Option<f64> {
    const MOST: f64 = 1e12;
    cell.parse().ok().filter(|value| (0.0..=MOST).contains(value))
}

/// Reads a count of wrong elements (`0`, `1e+05`) or the largest error that older versions print (`2e-06`); none
/// where the result was not checked. An error that is no number means wrong results.
fn wrong(cell: &str, column: Column, tolerance: f64) -> Option<u64> {
    if let Ok(count) = cell.parse() {
        return Some(count);
    }
    let value: f64 = cell.trim_end_matches('*').parse().ok()?;
    Some(match column {
        _ if !value.is_finite() => 1,
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and it saturates"
        )]
        Column::Wrong if value >= 1.0 => value as u64,
        _ => u64::from(value.abs() > tolerance),
    })
}
