//! The job that runs the benchmark: one shell script, started once for each rank.

use super::Collective;
use weftrun_core::spec::{Code, JobSpec, Launch};

const SCRIPT: &str = include_str!("../data/verify/verify.sh");
const BENCH: &str = include_str!("../data/verify/bench.py");
/// The name of the script in the job.
const NAME: &str = "verify.sh";

/// The measurements of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The collectives, one after another; none for the probe of the nodes alone.
    pub collectives: Vec<Collective>,
    /// Smallest size, bytes.
    pub low: u64,
    /// Largest size, bytes.
    pub high: u64,
    /// Operations for each size.
    pub rounds: u32,
}

impl Default for Payload {
    fn default() -> Self {
        Self { collectives: vec![Collective::AllReduce], low: 1 << 20, high: 8 << 30, rounds: 20 }
    }
}

impl Payload {
    /// Replaces the command of a job by the benchmark. Its nodes, image, environment, volumes and fabric are kept.
    /// Without `mpirun` the benchmark runs once for each rank.
    pub fn apply(&self, spec: &mut JobSpec) {
        if spec.launch != Launch::Mpi {
            spec.launch = Launch::PerRank;
        }
        let names: Vec<&str> = self.collectives.iter().map(|collective| collective.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        let command = [
            "sh".to_owned(),
            NAME.to_owned(),
            names,
            self.low.to_string(),
            self.high.to_string(),
            self.rounds.to_string(),
        ];
        spec.code = Some(Code::Script { name: NAME.to_owned(), text: script() });
        for role in &mut spec.roles {
            role.command = command.to_vec();
        }
    }
}

/// Returns the command that prints one node's report without a benchmark: a `weftrun-probe` line with the counters of its
/// interfaces.
pub fn probe_command() -> Vec<String> {
    // The report is that of the first rank of a node.
    ["env", "LOCAL_RANK=0", "sh", "-c", SCRIPT, NAME, "none"].map(str::to_owned).to_vec()
}

/// Returns the script, with the benchmark in Python inside it.
fn script() -> String {
    SCRIPT.replace("@BENCH@", BENCH.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The benchmark is part of a here-document inside a command substitution of the shell.
    #[test]
    fn the_benchmark_does_not_end_the_shells_text() {
        assert_eq!(SCRIPT.matches("@BENCH@").count(), 1);
        assert!(!BENCH.lines().any(|line| line == "PYTHON"));
        assert!(!script().contains("@BENCH@") && script().is_ascii());
        assert!(script().lines().any(|line| line == weftrun_core::spec::NO_EVIDENCE));
    }
}
