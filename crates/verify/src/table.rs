//! The figures of a benchmark of collectives.

use serde::{Deserialize, Serialize};

word_enum! {
    /// A collective operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Collective: ALL {
        /// Sum over all ranks, on all ranks.
        AllReduce = "all_reduce",
        /// The data of all ranks, on all ranks.
        AllGather = "all_gather",
        /// A part of the sum on each rank.
        ReduceScatter = "reduce_scatter",
        /// Each rank's data to each other one.
        #[serde(rename = "alltoall")]
        AllToAll = "alltoall",
    }
}

impl Collective {
    /// Returns the collective of a name: `all_reduce`, `all-reduce`, `all_reduce_perf`, `all_reduce_perf_mpi`,
    /// `AllReduce`.
    pub fn parse(name: &str) -> Option<Self> {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let plain = plain.strip_suffix("mpi").unwrap_or(&plain);
        let plain = plain.strip_suffix("perf").unwrap_or(plain);
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
    /// Wrong elements, at least; none where the result was not checked. Old versions print an error instead of a
    /// count, and one above their tolerance counts as one element.
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
    /// Returns the figures of the measurement with the better bus bandwidth.
    pub fn best(&self) -> &Figures {
        match &self.in_place {
            Some(in_place) if in_place.busbw > self.out_of_place.busbw => in_place,
            _ => &self.out_of_place,
        }
    }

    /// Returns the better bus bandwidth of both, GB/s.
    pub fn busbw(&self) -> Option<f64> {
        self.best().busbw
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
    /// Whether several processes ran the whole benchmark each on its own, as nccl-tests built without MPI do.
    #[serde(skip)]
    pub alone: bool,
    /// Whether it is one of several runs on as many hosts that were printed into one another.
    #[serde(skip)]
    pub mixed: bool,
    /// What the benchmark printed when a call failed.
    #[serde(skip)]
    pub failure: Option<String>,
    /// Whether another program of nccl-tests printed it, whose figures are not judged: `broadcast_perf`.
    #[serde(skip)]
    pub other: bool,
    /// The ranks of each process of the benchmark, if the log names them.
    #[serde(skip)]
    pub of_process: Option<u32>,
    /// The GPU of all ranks, if the log names it and it is the same.
    #[serde(skip)]
    pub gpu: Option<String>,
    /// All rows, in the order of the log.
    pub rows: Vec<Row>,
}
