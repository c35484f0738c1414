//! What the commands of a script show of its nodes, GPUs and processes, where its `#SBATCH` lines do not.

use std::collections::HashMap;

use super::assignments::Assignment;
use weftrun_core::shell::sbatch::{Directives, Program};
use weftrun_core::shell::without_comment;

/// Numbers that `srun` and the launchers of ranks are given; the largest of several, since a script may run
/// small steps beside the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Launched {
    /// Nodes, if more than one.
    pub nodes: Option<u32>,
    /// GPUs on each node.
    pub gpus: Option<u32>,
    /// Processes that a launcher starts on each node.
    pub processes: Option<u32>,
}

/// Variables by which scripts tell their launcher the GPUs of a node, often within arithmetic
/// (`--num_processes $((NNODES * GPUS_PER_NODE))`).
const PER_NODE: [&str; 4] = ["GPUS_PER_NODE", "NUM_GPUS_PER_NODE", "NPROC_PER_NODE", "SLURM_GPUS_PER_NODE"];

impl Launched {
    pub fn read(text: &str, options: &Directives, exports: &[Assignment]) -> Self {
        let mut found = Self::default();
        // The last assignment of a name counts.
        let values: HashMap<&str, &str> =
            exports.iter().map(|one| (one.name.as_ref(), one.value.as_ref())).collect();
        let mut line = String::new();
        for part in text.lines().map(|line| without_comment(line).trim_end()) {
            if let Some(part) = part.strip_suffix('\\') {
                line.push_str(part);
                continue;
            }
            line.push_str(part);
            found.line(&line, options, &values);
            line.clear();
        }
        found.line(&line, options, &values);
        let stated = PER_NODE.iter().find_map(|name| values.get(name)?.trim().parse().ok());
        found.processes = found.processes.or(stated);
        found
    }

    fn line(&mut self, line: &str, options: &Directives, values: &HashMap<&str, &str>) {
        let words: Vec<String> = line.split_whitespace().map(|word| with_values(word, values)).collect();
        let is_srun = |word: &String| word.rsplit('/').next() == Some("srun");
        if let Some(behind) = words.iter().position(is_srun).and_then(|at| words.get(at + 1..)) {
            self.srun(&Directives::read(Program::Srun, behind).0, options);
        }
        let (mut machines, mut all) = (None, None);
        for (at, word) in words.iter().enumerate() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, words.get(at + 1).map(String::as_str)),
            };
            let number = value.and_then(|value| value.trim_matches(['"', '\'']).parse().ok());
            match name.replace('_', "-").as_str() {
                "nnodes" | "num-nodes" => self.nodes = self.nodes.max(several(number)),
                "num-machines" => machines = number,
                "nproc-per-node" | "num-gpus" => self.processes = self.processes.max(number),
                "num-processes" => all = number,
                _ => {}
            }
        }
        // `accelerate launch` is given the processes of all machines.
        self.nodes = self.nodes.max(several(machines));
        let each = all.map(|all: u32| all / machines.unwrap_or(1).max(1));
        self.processes = self.processes.max(each);
    }

    fn srun(&mut self, step: &Directives, options: &Directives) {
        let gpus = step.gpus_per_node().filter(|gpus| *gpus > 0 && step.number("gpus").is_none());
        let each = step.number("ntasks-per-node").or_else(|| options.number("ntasks-per-node"));
        // Tasks may share GPUs: their number tells that of the nodes only where nothing else does.
        let by_gpus = || gpus.or_else(|| options.gpus_per_node()).filter(|_| options.named_nodes().is_none());
        let each = each.or_else(by_gpus).filter(|each| *each > 0);
        let by_tasks = || step.number("ntasks").zip(each).map(|(all, each)| all.div_ceil(each));
        self.nodes = self.nodes.max(several(step.number("nodes").or_else(by_tasks)));
        self.gpus = self.gpus.max(gpus);
    }
}

fn several(number: Option<u32>) -> Option<u32> {
    number.filter(|number| *number > 1)
}

/// Returns a word with the value of a variable at its end, where the script sets it to a number.
fn with_values(word: &str, values: &HashMap<&str, &str>) -> String {
    let word = word.trim_matches(['"', '\'', '(', ')', ';']);
    let value = word.split_once('$').and_then(|(before, name)| {
        let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
        let number = values.get(name)?.trim();
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("{before}{number}"))
    });
    value.unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    #[test]
    fn nodes_and_gpus_stand_in_the_commands_too() {
        let read = |body: &str| {
            let text = format!("#!/bin/bash\n#SBATCH -p gpu\n{body}\n");
            let Launched { nodes, gpus, processes } = Script::read(&text).launched;
            (nodes, gpus, processes)
        };
        let none = (None, None, None);
        for (body, expected) in [
            ("srun -N 4 --gpus-per-node=8 python a.py", (Some(4), Some(8), None)),
            ("srun \\\n  --nodes=2 --gres=gpu:a100:4 \\\n  python a.py", (Some(2), Some(4), None)),
            ("srun -n 16 --ntasks-per-node 8 ./a", (Some(2), None, None)),
            ("torchrun --nnodes=4 --nproc-per-node 8 a.py", (Some(4), None, Some(8))),
            ("G=8\nN=3\nsrun torchrun --nnodes $N --nproc_per_node=\"${G}\" a.py", (Some(3), None, Some(8))),
            ("ARGS=(\n  --nproc_per_node=8 # all\n  --nnodes=$SLURM_NNODES\n)", (None, None, Some(8))),
            ("accelerate launch --num_machines 2 --num_processes 16 a.py", (Some(2), None, Some(8))),
            ("deepspeed --num_nodes=2 --num_gpus=8 a.py", (Some(2), None, Some(8))),
            (
                "export GPUS_PER_NODE=4\naccelerate launch --num_processes $(expr 2 \\* $GPUS_PER_NODE) a.py",
                (None, None, Some(4)),
            ),
            ("GPUS_PER_NODE=4\ntorchrun --nproc_per_node=2 a.py", (None, None, Some(2))),
            ("GPUS_PER_NODE=$(nvidia-smi -L | wc -l)\n./a", none),
            ("srun --gpus-per-task=2 --ntasks-per-node=4 ./a", (None, Some(8), None)),
            ("srun --nodes=1 --ntasks=1 hostname", none),
            ("#SBATCH -N 1 -n 4 --gres=gpu:2\nsrun -n 4 --gpus-per-task=0 ./a", none),
            ("# srun -N 4 ./a", none),
            ("torchrun --nnodes=1:4 a.py", none),
        ] {
            assert_eq!(read(body), expected, "{body}");
        }
    }
}
