//! Reads the tables that nccl-tests, rccl-tests and weftrun's own benchmark print.
//!
//! A table's header names its columns, and differs between versions: times were in milliseconds in 2017, `error` became
//! `#wrong`, `root` came with 2.11, `-C` prints `cputime`, and other options add columns
//! (<https://github.com/NVIDIA/nccl-tests>, `src/common.cu` and `src/util.cu` of all releases up to 2.19.6, read
//! 2026-11-23). So rows are read by the header above them, or by their shape if the log contains no header.

mod factor;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use weftrun_nccl::{LINE_CAP, OpenLine, pieces, unwrap};

use super::probe::Probes;
use super::table::{Collective, Row, Run};
use factor::by_factor;
use row::{Header, Kind, figures, is_figure, start};
use weftrun_core::log::SourceId;

/// Largest number of rows and of ranks kept of one log; a sweep has about 30 rows.
const MAX_ROWS: usize = 1 << 16;
/// Largest row or comment of a table in bytes.
const MAX_ROW: usize = 1024;

/// Reads the tables of a log. Returns a run for each table.
///
/// ```
/// use weftrun_verify::{Collective, read};
/// let log = "# Rank  0 Group  0 Pid 7 on  n0 device  0\n# Rank  1 Group  0 Pid 8 on  n1 device  0\n\
///            #  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n\
///            1073741824 268435456 float sum -1 4739.2 226.57 226.57 0 4742.0 226.43 226.43 0\n";
/// let run = &read(log.as_bytes())[0];
/// assert_eq!((run.collective, run.ranks, run.nodes), (Some(Collective::AllReduce), Some(2), Some(2)));
/// assert_eq!(run.rows[0].busbw(), Some(226.57));
/// ```
pub fn read(log: &[u8]) -> Vec<Run> {
    let mut logs = Logs::default();
    logs.add(&SourceId::new("log"), log);
    logs.runs()
}

/// The logs of a benchmark: tables and the nodes' reports, read as the bytes arrive. Only these are kept.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    sources: BTreeMap<String, Source>,
    probes: Probes,
}

/// The log of one source.
#[derive(Clone, Debug, Default)]
struct Source {
    /// The incomplete last line.
    open: OpenLine,
    lines: u64,
    tables: Tables,
}

impl Logs {
    /// Reads the next bytes of a source. Lines may be split anywhere.
    pub fn add(&mut self, source: &SourceId, bytes: &[u8]) {
        let name = source.to_string();
        let source = self.sources.entry(name).or_default();
        let Source { open, lines, tables } = source;
        open.each(bytes, |bytes| {
            *lines += 1;
            line(tables, &mut self.probes, bytes, *lines);
        });
    }

    /// Returns the runs of all sources. The last line of a source may be incomplete.
    pub fn runs(&self) -> Vec<Run> {
        let of = |source: &Source| {
            let mut tables = source.tables.clone();
            if let Some(last) = source.open.clone().end() {
                line(&mut tables, &mut Probes::default(), &last, source.lines + 1);
            }
            tables.finish()
        };
        self.sources.values().flat_map(of).collect()
    }

    /// Returns the nodes' reports.
    pub fn probes(&self) -> Probes {
        let mut probes = self.probes.clone();
        self.sources
            .values()
            .filter_map(|source| source.open.clone().end())
            .for_each(|last| probes.read(&last));
        probes
    }
}

/// Reads one line, as it was printed or wrapped in JSON by a log shipper.
fn line(tables: &mut Tables, probes: &mut Probes, line: &[u8], number: u64) {
    // What is cut is no node's report.
    if line.len() >= LINE_CAP {
        return;
    }
    for text in pieces(&unwrap(line)) {
        probes.read_line(text);
        // Longer lines are other output.
        if text.len() <= MAX_ROW
            && let Ok(text) = std::str::from_utf8(text)
        {
            tables.line(text, number);
        }
    }
}

/// The tables of one log so far.
#[derive(Clone, Debug, Default)]
struct Tables {
    runs: Vec<Run>,
    rows: usize,
    header: Option<Header>,
    /// The collective of the tables to come, by the program that prints them.
    named: Option<Collective>,
    /// Whether that program measures something else.
    other: bool,
    hosts: BTreeSet<String>,
    ranks: BTreeMap<u32, String>,
    /// The number of each listed rank's device on its host.
    devices: BTreeMap<u32, u32>,
    /// The GPUs of the listed ranks.
    gpus: BTreeSet<String>,
    /// The lists before this one, by other programs, that no row followed: of an attempt that failed, or of processes that
    /// each run on their own. The latter print more than one table.
    earlier: BTreeMap<u32, String>,
    /// Whether a rank of those is another process in this list.
    again: bool,
    /// Whether a program began since the last line of a list.
    began: bool,
    /// The ranks of each of its processes, by its first line.
    of_process: Option<u32>,
    /// Whether a list of ranks began inside a table, and whether that table went on after it: another run prints into it.
    torn: bool,
    mixing: bool,
    /// Tables since the list began.
    headers: u32,
    alone: bool,
    /// Whether rows came after the list of ranks; the next list is that of another run.
    listed: bool,
    /// Whether the summary of the last table was read: rows after it are another run's.
    ended: bool,
    /// A row whose figures are on a later line, since NCCL printed into its line.
    pending: Option<Pending>,
}

/// The start of a row that is continued on a later line.
#[derive(Clone, Copy, Debug)]
struct Pending {
    size: u64,
    kind: Kind,
    line: u64,
    /// Whether the figures out of place were read, and those in place are missing.
    half: bool,
    /// Whether its line ended before the figures: a launcher printed each group of them as a line.
    cut: bool,
}

/// What nccl-tests print where a call failed (`NCCLCHECK` and `CUDACHECK` in `src/common.h` of 2.17).
const FAILURES: [&str; 2] = ["Test NCCL failure", "Test CUDA failure"];
/// Longest such line that is kept.
const LONGEST_FAILURE: usize = 200;

/// Words of which each row and each other line of a table has one: most lines of a job's log have none.
static NEEDLES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::new([
        "#",
        "busbw",
        "Out of bounds values",
        FAILURES[0],
        FAILURES[1],
        "Rank ",
        "_perf",
        "Collective test",
        "weftrun-",
        "(ms)",
        " float",
        " double",
        " half",
        " bf",
        " fp8_",
        " f8e",
        " int8",
        " int32",
        " int64",
        " int ",
        " uint",
        " char",
    ])
    .ok()
});

impl Tables {
    fn line(&mut self, text: &str, line: u64) {
        if self.pending.is_none() && !NEEDLES.as_ref().is_none_or(|needles| needles.is_match(text)) {
            return;
        }
        // It may stand in a row that the failure broke off.
        if let Some(at) = FAILURES.iter().find_map(|failure| text.find(failure)) {
            if self.runs.is_empty() {
                self.begin_run();
            }
            if let Some(run) = self.runs.last_mut() {
                run.failure.get_or_insert_with(|| text[at..].chars().take(LONGEST_FAILURE).collect());
            }
            return;
        }
        if let Some(comment) = text.find('#').map(|at| &text[at..]).filter(|comment| is_comment(comment)) {
            self.comment(comment);
            return;
        }
        let words: Vec<&str> =
            text.split_ascii_whitespace().map(without_tag).filter(|word| !word.is_empty()).collect();
        if let Some((size, kind, cells)) = start(&words) {
            self.pending = None;
            if self.rows < MAX_ROWS {
                self.row(Pending { size, kind, line, half: false, cut: false }, cells, text.contains("NCCL"));
            }
        } else if let Some(pending) = self.pending
            && words.len() >= 3
            && words.iter().all(|word| is_figure(word))
        {
            self.pending = None;
            self.row(pending, &words, false);
        } else {
            self.comment(text);
        }
    }

    /// Reads a line that belongs to a table but is not a row. Some programs print these lines without `#`.
    fn comment(&mut self, text: &str) {
        if text.contains("busbw")
            && let Some(header) = Header::read(text)
        {
            self.header = Some(header);
            self.torn = false;
            self.pending = None;
            self.ended = false;
            self.headers = self.headers.saturating_add(1);
            self.alone |= self.again && self.headers > 1;
            // Another table is another run.
            if self.runs.last().is_none_or(|run| !run.rows.is_empty() || run.failure.is_some()) {
                self.begin_run();
            }
            return;
        }
        self.ended |= text.contains("Avg bus bandwidth");
        if let Some(wrong) = out_of_bounds(text) {
            self.ended = true;
            let row = self.runs.last_mut().and_then(|run| run.rows.last_mut());
            if let Some(row) = row.filter(|row| wrong > 0 && row.wrong() == 0) {
                row.out_of_place.wrong = Some(wrong);
            }
            return;
        }
        // The first line of nccl-tests' programs.
        if text.contains("nThread") {
            self.began = true;
            self.of_process = ranks_of_process(text);
            return;
        }
        if let Some(Listed { rank, host, process, device, gpu }) = Listed::read(text) {
            if self.listed {
                self.torn = !self.ended;
                (self.listed, self.alone, self.again, self.ended) = (false, false, false, false);
                self.earlier.clear();
                self.forget_ranks();
            } else if self.began {
                if self.earlier.len() < MAX_ROWS {
                    self.earlier.append(&mut self.ranks);
                }
                self.forget_ranks();
            }
            self.began = false;
            if self.ranks.len() < MAX_ROWS {
                self.again |= self.earlier.get(&rank).is_some_and(|earlier| *earlier != process);
                let earlier = self.ranks.insert(rank, process.clone());
                self.alone |= earlier.is_some_and(|earlier| earlier != process);
                if self.hosts.len() < MAX_ROWS {
                    self.hosts.insert(host);
                }
                self.devices.extend(device.map(|device| (rank, device)));
                // Two are enough to know that there is more than one.
                if self.gpus.len() < 2 {
                    self.gpus.extend(gpu);
                }
            }
            return;
        }
        if text.contains("(ms)") && text.contains("(GB/s)") {
            self.header.iter_mut().for_each(|header| header.unit = 1000.0);
            return;
        }
        if let Some(collective) = starting(text) {
            (self.began, self.ended) = (true, false);
            (self.named, self.other) = (Some(collective), false);
            // A run may be named twice: by its program, and by the script that starts it.
            self.runs.pop_if(|run| run.rows.is_empty() && run.failure.is_none());
            self.begin_run();
            return;
        }
        // The command of a program whose table does not name the collective.
        let program = text.split_ascii_whitespace().find_map(|word| {
            let name = word.rsplit('/').next()?;
            let name = name.trim_matches(['"', '\'', ':', ',']);
            name.contains("_perf").then(|| (Collective::parse(name), is_other(name)))
        });
        if let Some(named) = program {
            (self.named, self.other) = named;
        }
    }

    fn begin_run(&mut self) {
        self.runs.push(Run { collective: self.named, other: self.other, ..Run::default() });
    }

    fn forget_ranks(&mut self) {
        self.ranks.clear();
        self.hosts.clear();
        self.devices.clear();
        self.gpus.clear();
        self.headers = 0;
    }

    /// Returns the number of nodes of a run; none where the list of its ranks is shortened and does not show it.
    fn nodes(&self, ranks: u32) -> Option<u32> {
        let hosts = u32::try_from(self.hosts.len()).ok().filter(|hosts| *hosts > 0)?;
        if u32::try_from(self.ranks.len()) == Ok(ranks) {
            return Some(hosts);
        }
        // Where ranks go round the devices of each node, as mpirun and srun start them.
        let each = self.devices.values().max()?.checked_add(1).filter(|each| *each > 1)?;
        let in_turn = self.devices.iter().all(|(rank, device)| rank % each == *device);
        let nodes = ranks / each;
        (in_turn && ranks.is_multiple_of(each) && nodes >= hosts).then_some(nodes)
    }

    /// Adds a row, or the figures in place of the last row.
    fn row(&mut self, row: Pending, cells: &[&str], broken_off: bool) {
        let last = self.runs.last().and_then(|run| run.rows.last());
        if self.ended && !self.alone && !self.again && last.is_some_and(|last| row.size <= last.size) {
            // Copied without its header and its ranks.
            self.forget_ranks();
            self.begin_run();
        }
        // Published lists are shortened in the middle.
        let ranks = self.ranks.last_key_value().and_then(|(last, _)| last.checked_add(1));
        let (figures, rest) = figures(cells, self.header.as_ref(), row.kind, ranks);
        let broken_off = broken_off && rest;
        let mut figures = figures.into_iter();
        let Some(first) = figures.next() else {
            let cut = !rest && !row.half;
            self.pending = (broken_off || cut).then_some(Pending { cut, ..row });
            return;
        };
        if row.half {
            let last = self.runs.last_mut().and_then(|run| run.rows.last_mut());
            if let Some(last) = last.filter(|last| last.line == row.line) {
                last.in_place = Some(first);
            }
            return;
        }
        let in_place = figures.next();
        let more = (broken_off || row.cut) && in_place.is_none();
        self.pending = more.then_some(Pending { half: true, ..row });
        let row = Row { size: row.size, out_of_place: first, in_place, line: row.line };
        self.rows += 1;
        self.listed = true;
        self.mixing |= std::mem::take(&mut self.torn);
        if self.runs.is_empty() {
            self.begin_run();
        }
        let nodes = ranks.and_then(|ranks| self.nodes(ranks));
        let process = self.ranks.values().next();
        let of_one_process = self.ranks.values().all(|one| Some(one) == process);
        let gpu = self.gpus.first().filter(|_| self.gpus.len() == 1).cloned();
        if let Some(run) = self.runs.last_mut() {
            // Tables of several processes are mixed row by row, or follow each other.
            let both = [run.rows.first(), run.rows.last()];
            self.alone |= self.again && both.into_iter().flatten().any(|earlier| earlier.size == row.size);
            run.rows.push(row);
            (run.ranks, run.nodes, run.gpu) = (ranks, nodes, gpu);
            run.of_process = self.of_process;
            // Each of several ranks is a whole run of its own host: those without MPI are one process.
            let several = self.alone && ranks.is_some_and(|ranks| ranks > 1);
            (run.alone, run.mixed) = (self.alone && !several, several || self.mixing);
            if several {
                run.nodes = of_one_process.then_some(1);
            }
        }
    }

    fn finish(mut self) -> Vec<Run> {
        let any = self.runs.iter().any(|run| !run.rows.is_empty());
        // A run that was announced but has no rows is kept only if it is all there is.
        self.runs.retain(|run| !any || !run.rows.is_empty() || run.failure.is_some());
        self.runs.truncate(if any { usize::MAX } else { 1 });
        self.runs.retain(|run| any || run.collective.is_some() || run.failure.is_some());
        for run in &mut self.runs {
            run.collective = run.collective.or_else(|| by_factor(run).filter(|_| !run.other));
            if !run.alone {
                factor::correct(run);
            }
            // One process has all ranks, and is on one node.
            let one_process = run.ranks > Some(1) && run.ranks == run.of_process;
            run.nodes = run.nodes.or(one_process.then_some(1));
        }
        self.runs
    }
}

/// Returns a word without the tag of its rank that launchers print into rows: `-1[0]`, `[0]`, `0[1,0]<stdout>:`.
fn without_tag(word: &str) -> &str {
    let open = word.strip_suffix("<stdout>:").or_else(|| word.strip_suffix("<stderr>:")).unwrap_or(word);
    let tag = open.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    match tag {
        Some((before, rank))
            if !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit() || byte == b',') =>
        {
            before
        }
        _ => word,
    }
}

/// Reads `# nThread 1 nGpus 8 minBytes …`: the threads of a process and the GPUs of each.
fn ranks_of_process(text: &str) -> Option<u32> {
    let number = |name: &str| {
        text.split_ascii_whitespace().skip_while(|word| *word != name).nth(1)?.parse::<u32>().ok()
    };
    number("nThread")?.checked_mul(number("nGpus")?)
}

/// Returns whether a name is that of a program of nccl-tests whose figures are not judged.
fn is_other(name: &str) -> bool {
    const OTHERS: [&str; 7] =
        ["broadcast", "reduce", "sendrecv", "scatter", "gather", "hypercube", "alltoallv"];
    name.split_once("_perf").is_some_and(|(program, _)| OTHERS.contains(&program))
}

/// Returns whether a `#` begins a comment and not the name of a column (`#wrong`).
fn is_comment(text: &str) -> bool {
    text.strip_prefix('#').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '#', '\r']))
}

/// Longest name of a GPU.
const LONGEST_GPU: usize = 64;

/// A line of the list of ranks.
struct Listed {
    rank: u32,
    host: String,
    /// The host and the process.
    process: String,
    device: Option<u32>,
    gpu: Option<String>,
}

impl Listed {
    /// Reads `#  Rank  0 Group  0 Pid 4711 on  node-a device  0 [0x53] NVIDIA H100`.
    fn read(text: &str) -> Option<Self> {
        let (_, text) = text.split_once("Rank ")?;
        let (before, device) = text.split_once(" device ")?;
        let mut words = before.split_ascii_whitespace();
        let rank = words.next()?.trim_end_matches(':').parse().ok()?;
        let process = words.by_ref().skip_while(|word| *word != "Pid").nth(1)?;
        let host = words.by_ref().skip_while(|word| *word != "on").nth(1)?;
        let mut words = device.split_ascii_whitespace().filter(|word| !word.starts_with('['));
        let device = words.next().and_then(|word| word.parse().ok());
        let gpu = words.collect::<Vec<_>>().join(" ");
        let gpu = Some(gpu).filter(|gpu| !gpu.is_empty() && gpu.len() <= LONGEST_GPU);
        Some(Self { rank, host: host.to_owned(), process: format!("{host} {process}"), device, gpu })
    }
}

/// Reads `# Collective test starting: all_reduce_perf`, and weftrun's own `# weftrun-verify all_reduce`.
fn starting(text: &str) -> Option<Collective> {
    let name = ["Collective test starting:", "weftrun-verify "].iter().find_map(|word| text.split_once(word));
    Collective::parse(name?.1.split_ascii_whitespace().next()?.rsplit('/').next()?)
}

/// Reads `# Out of bounds values : 3 FAILED`.
fn out_of_bounds(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Out of bounds values")?;
    rest.trim_start_matches([' ', ':', '\t']).split_ascii_whitespace().next()?.parse().ok()
}
