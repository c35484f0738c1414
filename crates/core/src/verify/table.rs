//! The tables that nccl-tests, rccl-tests and weftrun's own benchmark print.
//!
//! A table's header names its columns, and differs between versions: `error` became `#wrong`, `root` came
//! with 2.10, options add columns (<https://github.com/NVIDIA/nccl-tests>, `src/common.cu`, read 2026-11-22).
//! So rows are read by the header above them, or by their shape if the log contains no header.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// Largest number of rows kept; a sweep has about 30.
const MAX_ROWS: usize = 1 << 20;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Collective {
    /// Sum over all ranks, on all ranks.
    AllReduce,
    /// The data of all ranks, on all ranks.
    AllGather,
    /// A part of the sum on each rank.
    ReduceScatter,
    /// Each rank's data to each other one.
    #[serde(rename = "alltoall")]
    AllToAll,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll];

    /// Returns the name that tables of published figures use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "alltoall",
        }
    }

    /// Returns the collective of a name: `all_reduce`, `all-reduce`, `all_reduce_perf`, `AllReduce`.
    pub fn parse(name: &str) -> Option<Self> {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let plain = plain.strip_suffix("perf").unwrap_or(&plain);
        Self::ALL.into_iter().find(|known| known.as_str().replace('_', "") == plain)
    }

    /// Returns the bus bandwidth of an algorithm bandwidth of 1 among this many ranks
    /// (<https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>, read 2026-11-22).
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        let others = (ranks - 1.0) / ranks;
        if self == Self::AllReduce { 2.0 * others } else { others }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The figures of one size, out of place or in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Time of one operation, microseconds.
    pub time_us: Option<f64>,
    /// Algorithm bandwidth, GB/s; none where the table has no finite number.
    pub algbw: Option<f64>,
    /// Bus bandwidth, GB/s.
    pub busbw: Option<f64>,
    /// Wrong elements; none where the result was not checked.
    pub wrong: Option<u64>,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Bytes.
    pub size: u64,
    /// Out of place.
    pub out_of_place: Figures,
    /// In place, if it was measured.
    pub in_place: Option<Figures>,
    /// Line in the log, from 1.
    pub line: u64,
}

impl Row {
    /// Returns the better bus bandwidth of both, GB/s.
    pub fn busbw(&self) -> Option<f64> {
        let both = [Some(&self.out_of_place), self.in_place.as_ref()];
        both.into_iter().flatten().filter_map(|figures| figures.busbw).reduce(f64::max)
    }

    /// Returns the number of wrong elements.
    pub fn wrong(&self) -> u64 {
        let both = [Some(&self.out_of_place), self.in_place.as_ref()];
        both.into_iter().flatten().filter_map(|figures| figures.wrong).fold(0, u64::saturating_add)
    }

    /// Returns whether a figure is missing or no finite number.
    pub fn is_broken(&self) -> bool {
        let broken = |figures: &Figures| figures.time_us.is_none() || figures.busbw.is_none();
        broken(&self.out_of_place) || self.in_place.as_ref().is_some_and(broken)
    }
}

/// The tables of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The collective, if the log or the figures show it.
    pub collective: Option<Collective>,
    /// Number of ranks, if the log names them.
    pub ranks: Option<u32>,
    /// Number of hosts, if the log names them.
    pub nodes: Option<u32>,
    /// All rows, in the order of the log.
    pub rows: Vec<Row>,
}

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Time,
    AlgBw,
    BusBw,
    Wrong,
    /// Text or a number that is ignored.
    Other,
}

/// Reads the tables of a log. Returns a run for each collective that the log names, or one run for all tables.
///
/// ```
/// use weftrun_core::verify::{Collective, read};
/// let log = "# Rank  0 Group  0 Pid 7 on  n0 device  0\n# Rank  1 Group  0 Pid 8 on  n1 device  0\n\
///            #  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n\
///            1073741824 268435456 float sum -1 4739.2 226.57 226.57 0 4742.0 226.43 226.43 0\n";
/// let run = &read(log.as_bytes())[0];
/// assert_eq!((run.collective, run.ranks, run.nodes), (Some(Collective::AllReduce), Some(2), Some(2)));
/// assert_eq!(run.rows[0].busbw(), Some(226.57));
/// ```
pub fn read(log: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    let (mut hosts, mut ranks) = (BTreeSet::new(), BTreeSet::new());
    let (mut words, mut rows) = (Vec::new(), 0);
    for (index, line) in log.split(|byte| *byte == b'\n').enumerate() {
        // Rows and comments of tables are short; longer lines are other output.
        if line.len() > 1024 || !line.iter().any(|byte| byte.is_ascii_digit() || *byte == b'#') {
            continue;
        }
        let Ok(text) = std::str::from_utf8(line) else { continue };
        if let Some(comment) = text.find('#').map(|at| &text[at..]).filter(|comment| is_comment(comment)) {
            if let Some(header) = header(comment) {
                columns = header;
                // Another table is another run.
                if runs.last().is_some_and(|run| !run.rows.is_empty()) {
                    runs.push(Run::default());
                }
            } else if let Some(wrong) = out_of_bounds(comment) {
                let row = runs.last_mut().and_then(|run| run.rows.last_mut()).filter(|row| row.wrong() == 0);
                if let Some(row) = row {
                    row.out_of_place.wrong = Some(wrong);
                }
            } else if let Some((rank, host)) = device(comment) {
                ranks.insert(rank);
                hosts.insert(host.to_owned());
            } else if let Some(collective) = starting(comment) {
                // A run may be named twice: by its program, and by the script that starts it.
                runs.pop_if(|run| run.rows.is_empty());
                runs.push(Run { collective: Some(collective), ..Run::default() });
            }
            continue;
        }
        words.clear();
        words.extend(text.split_ascii_whitespace());
        let line = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
        if rows < MAX_ROWS
            && let Some(row) = row(&words, &columns, line)
        {
            rows += 1;
            match runs.last_mut() {
                Some(run) => run.rows.push(row),
                None => runs.push(Run { rows: vec![row], ..Run::default() }),
            }
        }
    }
    if runs.len() > 1 {
        runs.retain(|run| !run.rows.is_empty());
    }
    let count = |size: usize| u32::try_from(size).ok().filter(|size| *size > 0);
    for run in &mut runs {
        (run.ranks, run.nodes) = (count(ranks.len()), count(hosts.len()));
        run.collective = run.collective.or_else(|| by_factor(run));
    }
    runs
}

/// Returns whether a line may belong to a table or to a node's report. Other lines need not be kept.
pub fn is_relevant(line: &[u8]) -> bool {
    let head = &line[..line.len().min(1024)];
    head.contains(&b'#')
        || memchr::memmem::find(head, b"weftrun-").is_some()
        || std::str::from_utf8(head)
            .is_ok_and(|text| text.split_ascii_whitespace().any(|word| KINDS.contains(&word)))
}

/// Returns whether a `#` begins a comment and not the name of a column (`#wrong`).
fn is_comment(text: &str) -> bool {
    text.strip_prefix('#').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '#']))
}

/// Reads the header of a table: `#       size         count      type   redop    root     time   algbw   busbw #wrong`.
fn header(comment: &str) -> Option<Vec<Column>> {
    let names: Vec<&str> = comment.trim_start_matches('#').split_ascii_whitespace().collect();
    if names.first() != Some(&"size") || !names.contains(&"busbw") {
        return None;
    }
    let column = |name: &&str| match *name {
        "size" => Column::Size,
        "time" => Column::Time,
        "algbw" => Column::AlgBw,
        "busbw" => Column::BusBw,
        "#wrong" | "error" => Column::Wrong,
        _ => Column::Other,
    };
    Some(names.iter().map(column).collect())
}

/// Reads `#  Rank  0 Group  0 Pid 4711 on  node-a device  0 [0x53] NVIDIA H100`.
fn device(comment: &str) -> Option<(u32, &str)> {
    let mut words = comment.trim_start_matches('#').split_ascii_whitespace();
    if words.next() != Some("Rank") {
        return None;
    }
    let rank = words.next()?.trim_end_matches(':').parse().ok()?;
    let host = words.by_ref().skip_while(|word| *word != "on").nth(1)?;
    Some((rank, host))
}

/// Reads `# Collective test starting: all_reduce_perf`, and weftrun's own `# weftrun-verify all_reduce`.
fn starting(comment: &str) -> Option<Collective> {
    let name = comment.split_once("Collective test starting:").map(|(_, rest)| rest);
    let name = name.or_else(|| comment.split_once("weftrun-verify").map(|(_, rest)| rest))?;
    Collective::parse(name.split_ascii_whitespace().next()?)
}

/// The element types of nccl-tests and rccl-tests.
const KINDS: [&str; 15] = [
    "float", "double", "half", "bfloat16", "bf16", "int8", "uint8", "int32", "uint32", "int64", "uint64",
    "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2",
];

/// Reads a row after any prefix that a launcher prints.
fn row(words: &[&str], columns: &[Column], line: u64) -> Option<Row> {
    let kind = words.iter().position(|word| KINDS.contains(word)).filter(|at| *at >= 2)?;
    let cells = &words[kind - 2..];
    let size: u64 = cells[0].parse().ok()?;
    let _: u64 = cells[1].parse().ok()?;
    let mut groups: Vec<Figures> = Vec::new();
    if columns.len() == cells.len() && columns.first() == Some(&Column::Size) {
        for (column, cell) in columns.iter().zip(cells) {
            if *column == Column::Time {
                groups.push(Figures::default());
            }
            let Some(group) = groups.last_mut() else { continue };
            match column {
                Column::Time => group.time_us = number(cell),
                Column::AlgBw => group.algbw = number(cell),
                Column::BusBw => group.busbw = number(cell),
                Column::Wrong => group.wrong = wrong(cell),
                Column::Size | Column::Other => {}
            }
        }
    } else {
        // After the type come a reduction and a root, or neither; then groups of three or four figures.
        let mut figures = cells.get(3..)?;
        if figures.first().is_some_and(|cell| number(cell).is_none() && !is_no_number(cell)) {
            figures = &figures[1..];
        }
        if matches!(figures.len(), 5 | 7 | 9) {
            figures = &figures[1..];
        }
        let size = if figures.len() % 4 == 0 { 4 } else { 3 };
        for group in figures.chunks(size).filter(|group| group.len() >= 3).take(2) {
            groups.push(Figures {
                time_us: number(group[0]),
                algbw: number(group[1]),
                busbw: number(group[2]),
                wrong: group.get(3).and_then(|cell| wrong(cell)),
            });
        }
    }
    let mut groups = groups.into_iter();
    Some(Row { size, out_of_place: groups.next()?, in_place: groups.next(), line })
}

fn number(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

fn is_no_number(cell: &str) -> bool {
    matches!(cell.trim_start_matches('-').to_ascii_lowercase().as_str(), "nan" | "inf" | "n/a")
}

/// Reads a count of wrong elements (`0`), or the largest error that older versions print (`2e-06`; at most a hundredth
/// with half precision). `N/A` means that the result was not checked.
fn wrong(cell: &str) -> Option<u64> {
    let value = number(cell)?;
    if let Ok(count) = cell.parse() {
        return Some(count);
    }
    // A count above 99999 is printed as `1e+05`; an error is below 1 unless the result is wrong.
    Some(if value >= 1.0 { value as u64 } else { u64::from(value > 1e-2) })
}

/// Reads `# Out of bounds values : 3 FAILED`; none if there are none.
fn out_of_bounds(comment: &str) -> Option<u64> {
    let (_, rest) = comment.split_once("Out of bounds values")?;
    let count = rest.trim_start_matches([' ', ':', '\t']).split_ascii_whitespace().next()?;
    count.parse().ok().filter(|count| *count > 0)
}

/// Returns the only collective whose ratio of bus to algorithm bandwidth matches the figures; none if several do.
fn by_factor(run: &Run) -> Option<Collective> {
    let ranks = run.ranks.filter(|ranks| *ranks > 1)?;
    let row = run.rows.iter().max_by_key(|row| row.size)?;
    let factor = row.out_of_place.busbw? / row.out_of_place.algbw.filter(|algbw| *algbw > 0.0)?;
    // The other collectives share one factor.
    let expected = Collective::AllReduce.bus_factor(ranks);
    ((factor / expected - 1.0).abs() < 0.02).then_some(Collective::AllReduce)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "#                                                              out-of-place                       in-place\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";

    #[test]
    fn the_header_names_the_columns_of_its_version() {
        let row = "  1073741824     268435456     float     sum      -1   4739.2  226.57  424.82      0   4742.0  226.43  424.56      0";
        let run = &read(format!("{NEW}{row}\n").as_bytes())[0];
        assert_eq!(run.rows.len(), 1);
        assert_eq!((run.rows[0].busbw(), run.rows[0].wrong()), (Some(424.82), 0));
        // Versions 2.0 to 2.9 have no root, and an error instead of a count.
        let old = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n\
            1073741824 268435456 float sum 4739.2 226.57 424.82 2e-06 4742.0 226.43 424.56 2e-06\n";
        let run = &read(old.as_bytes())[0];
        assert_eq!(
            (run.rows[0].busbw(), run.rows[0].wrong(), run.rows[0].is_broken()),
            (Some(424.82), 0, false)
        );
        // A column that no released version has.
        let more = "# size count type redop root time algbw busbw #wrong cputime time algbw busbw #wrong cputime\n\
            1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 12 4742.0 226.43 424.90 3 12\n";
        let run = &read(more.as_bytes())[0];
        assert_eq!((run.rows[0].busbw(), run.rows[0].wrong()), (Some(424.90), 3));
    }

    #[test]
    fn rows_are_read_without_a_header_and_behind_prefixes() {
        let row = "1073741824 268435456 float sum -1 4739.2 226.57 424.82 0 4742.0 226.43 424.56 N/A";
        for prefix in ["", "[1,0]<stdout>:  ", "0: ", "node-0/rank0| ", "2026-11-22T10:00:00Z stdout F  "] {
            let run = &read(format!("{prefix}{row}\r\n").as_bytes())[0];
            assert_eq!(run.rows.len(), 1, "{prefix}");
            assert_eq!((run.rows[0].size, run.rows[0].busbw()), (1 << 30, Some(424.82)), "{prefix}");
            assert_eq!(run.rows[0].in_place.unwrap().wrong, None);
        }
        // No operation and no root.
        let run = &read(b"1048576 262144 float 30.95 33.88 29.64 0 30.20 34.72 30.38 0\n")[0];
        assert_eq!(run.rows[0].busbw(), Some(30.38));
        // Times of ten milliseconds and more have no fraction, and the result was not checked.
        let run = &read(b"8589934592 2147483648 float sum -1 47392 181.2 339.8 47420 181.1 339.6\n")[0];
        assert_eq!(run.rows[0].out_of_place.time_us, Some(47392.0));
        assert_eq!((run.rows[0].busbw(), run.rows[0].wrong()), (Some(339.8), 0));
        let run = &read(b"8589934592 2147483648 float sum -1 47392 181.2 339.8 0 47420 181.1 339.6 0\n")[0];
        assert_eq!(
            (run.rows[0].busbw(), run.rows[0].wrong(), run.rows[0].is_broken()),
            (Some(339.8), 0, false)
        );
        assert_eq!(read(b"epoch 3 of float 7, step 1.5\n"), []);
    }

    #[test]
    fn each_table_is_a_run_and_its_summary_counts() {
        let header = "# size count type redop time algbw busbw error\n";
        let row = "1048576 262144 half sum 30.95 33.88 29.64 2e-03\n";
        let runs = read(
            format!(
                "{header}{row}# Out of bounds values : 0 OK\n{header}{row}# Out of bounds values : 3 FAILED\n"
            )
            .as_bytes(),
        );
        let wrong: Vec<_> = runs.iter().map(|run| (run.rows.len(), run.rows[0].wrong())).collect();
        assert_eq!(wrong, [(1, 0), (1, 3)]);
    }

    #[test]
    fn figures_that_are_no_numbers_are_missing() {
        let run = &read(b"1073741824 268435456 float sum -1 4739.2 -nan nan 0 inf 226.43 424.56 0\n")[0];
        assert!(run.rows[0].is_broken());
        assert_eq!(run.rows[0].out_of_place.busbw, None);
        assert_eq!(run.rows[0].busbw(), Some(424.56));
    }

    #[test]
    fn ranks_hosts_and_the_collective_come_from_the_log() {
        let log = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n# Using devices\n\
            #  Rank  0 Group  0 Pid   4711 on     gpu-a device  0 [0x53] NVIDIA H100\n\
            #  Rank  1 Group  0 Pid   4712 on     gpu-b device  0 [0x53] NVIDIA H100\n";
        let row = "1048576 262144 float none -1 30.95 33.88 16.94 0\n";
        let run = &read(format!("{log}{row}").as_bytes())[0];
        assert_eq!((run.ranks, run.nodes, run.collective), (Some(2), Some(2), None));
        let runs = read(
            format!("{log}# weftrun-verify all_reduce\n{row}{row}# weftrun-verify alltoall\n{row}")
                .as_bytes(),
        );
        let seen: Vec<_> = runs.iter().map(|run| (run.collective, run.rows.len())).collect();
        assert_eq!(seen, [(Some(Collective::AllReduce), 2), (Some(Collective::AllToAll), 1)]);
        for (name, collective) in
            [("all_gather_perf", Collective::AllGather), ("alltoall_perf", Collective::AllToAll)]
        {
            let run = &read(format!("{log}# Collective test starting: {name}\n").as_bytes())[0];
            assert_eq!(run.collective, Some(collective));
        }
        assert_eq!(Collective::parse("reduce-scatter"), Some(Collective::ReduceScatter));
        assert_eq!(Collective::parse("AllReduce"), Some(Collective::AllReduce));
        assert_eq!(Collective::parse("broadcast"), None);
    }
}
