//! What was measured of NCCL's collectives, beside what their network should reach, and what a late rank costs.

use serde::Serialize;
use weftrun_core::catalogue::{Expected, InstanceType, expected_rate};
use weftrun_nccl::bandwidth::{Arrival, Collective, CollectiveSpeed, CommunicatorSpeed, RankWait, Speeds};
use weftrun_nccl::{Series, Snapshot};

/// Smallest part of a step that is said to be lost: below it the durations of steps differ by more.
const SMALLEST_COST: f64 = 0.05;

/// How fast a job's collectives are, and what that means.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Measured {
    /// What was measured.
    #[serde(flatten)]
    pub speeds: Speeds,
    /// What makes the job slow: `slow` where ranks come last, `network-bound` where the transfer itself takes most of the time;
    /// null where neither is shown.
    pub limit: Option<&'static str>,
    /// What the collectives should reach, by the instance type of the plan. One that is not listed is not known.
    pub expected: Vec<ExpectedSpeed>,
    /// What the late ranks cost each training step; null where no rank is late, or the log has no duration of steps.
    pub step: Option<StepCost>,
}

/// What a collective of a communicator should reach with messages of at least 1 GiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ExpectedSpeed {
    /// The communicator.
    pub communicator: String,
    /// The collective.
    pub collective: Collective,
    /// The bandwidth and its source.
    #[serde(flatten)]
    pub expected: Expected,
}

/// What the late ranks cost each training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StepCost {
    /// Seconds of a step, the median of those in the log.
    pub step_seconds: f64,
    /// Seconds of it in which the others wait.
    pub waited_seconds: f64,
    /// The value in the log that has the duration: `iteration time`.
    pub metric: &'static str,
}

impl Measured {
    /// Adds to speeds what the instance type should reach.
    pub fn new(speeds: Speeds, instance: Option<&InstanceType>) -> Self {
        let expected = instance.map_or_else(Vec::new, |row| expected(&speeds, row));
        Self { limit: speeds.limit(), speeds, expected, step: None }
    }

    /// Returns what the lines of a job's log say of its collectives; none if they have no measurement.
    pub fn of_logs(logs: &Snapshot<'_>, instance: Option<&InstanceType>) -> Option<Self> {
        let mut measured = Self::new(logs.speeds()?, instance);
        measured.step = measured.cost(logs);
        if let Some(cost) = &measured.step {
            let more = format!(
                ", about {} of each step of {}",
                seconds(cost.waited_seconds),
                seconds(cost.step_seconds)
            );
            measured.speeds.sentence.push_str(&more);
        }
        Some(measured)
    }

    /// Returns what a collective should reach, where that is known.
    pub fn expected(&self, communicator: &str, collective: Collective) -> Option<&Expected> {
        let of = |one: &&ExpectedSpeed| one.collective == collective && one.communicator == communicator;
        self.expected.iter().find(of).map(|one| &one.expected)
    }

    /// Returns the sentence, after what makes the job slow in a word: `slow: rank 1 reaches …`.
    pub fn sentence(&self) -> String {
        match self.limit {
            Some(limit) => format!("{limit}: {}", self.speeds.sentence),
            None => self.speeds.sentence.clone(),
        }
    }

    /// Returns the ranks for which the others wait, by their numbers in the job.
    pub fn late_ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.speeds.late.iter().map(RankWait::job_rank).collect();
        ranks.sort_unstable();
        ranks
    }

    fn cost(&self, logs: &Snapshot<'_>) -> Option<StepCost> {
        let all = self.speeds.collectives().map(|(_, speed)| &speed.arrival);
        // The last seconds alone say nothing of the median step, and what is over costs nothing.
        let of_all = |arrival: &&Arrival| {
            arrival.recent.is_none_or(|recent| !recent.is_judged && recent.waited_share > 0.0)
        };
        let late = all.filter(|arrival| !arrival.late.is_empty()).filter(of_all);
        // The one that the sentence is about.
        let waited = late.filter(|arrival| arrival.late == self.speeds.late);
        let waited = waited.map(|arrival| arrival.waited_seconds).max_by(f64::total_cmp)?;
        // Of the time of the whole job, which has steps without this collective too.
        let all = self.speeds.seconds.filter(|seconds| *seconds > 0.0)?;
        let share = Some((waited / all).min(1.0)).filter(|share| *share >= SMALLEST_COST)?;
        let timed = logs.throughput().filter_map(|(_, series)| Some((series, step_seconds(series)?)));
        let (series, step_seconds) = timed.max_by_key(|(series, _)| series.count)?;
        Some(StepCost { step_seconds, waited_seconds: share * step_seconds, metric: series.metric })
    }
}

fn expected(speeds: &Speeds, row: &InstanceType) -> Vec<ExpectedSpeed> {
    let of = |(comm, speed): (&CommunicatorSpeed, &CollectiveSpeed)| {
        let name = published_name(speed.collective)?;
        Some(ExpectedSpeed {
            communicator: comm.id.clone(),
            collective: speed.collective,
            expected: expected_rate(row, comm.nodes, comm.ranks, name)?,
        })
    };
    speeds.collectives().filter_map(of).collect()
}

/// Returns the name of a collective in the table of published figures.
fn published_name(collective: Collective) -> Option<&'static str> {
    Some(match collective {
        Collective::AllReduce => "all_reduce",
        Collective::AllGather => "all_gather",
        Collective::ReduceScatter => "reduce_scatter",
        Collective::Broadcast => "broadcast",
        Collective::Reduce => "reduce",
        Collective::AllToAll => "alltoall",
        _ => return None,
    })
}

/// Returns the median duration of a step, where a series has it.
fn step_seconds(series: &Series) -> Option<f64> {
    let of = |value: f64| match series.unit {
        "ms" => Some(value / 1e3),
        "s" => Some(value),
        "it/s" => Some(1.0 / value),
        _ => None,
    };
    let mut all: Vec<f64> = series.samples.iter().filter_map(|sample| of(sample.value)).collect();
    all.retain(|seconds| seconds.is_finite() && *seconds > 0.0);
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Formats a duration: `150 ms`, `7.4 ms`, `2.1 s`.
fn seconds(seconds: f64) -> String {
    match seconds * 1e3 {
        millis if millis < 10.0 => format!("{millis:.1} ms"),
        millis if millis < 1e3 => format!("{millis:.0} ms"),
        _ => format!("{seconds:.1} s"),
    }
}
