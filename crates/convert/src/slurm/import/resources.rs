//! Reads nodes, tasks, GPUs, memory and time. What a key of the job file holds only in part stays among the
//! options, and is so kept in `sbatch = […]`.

use super::{Import, lost, options};
use weftrun_core::Finding;
use weftrun_core::shell::sbatch::is_gpu;

/// Options that request GPUs. In a rendered script each but the last replaces `--gpus-per-node`, so this is
/// the order in which they can stand together.
const GPUS: [&str; 4] = ["gpus-per-task", "gpus", "gres", "gpus-per-node"];

impl Import {
    /// Reads what the job requests of each node.
    pub(super) fn resources(&mut self) {
        self.role.nodes = self.options.nodes();
        self.gpus();
        self.tasks();
        self.nodes();
        let options = &mut self.options;
        if let Some(memory) = options.take_value("mem") {
            self.role.memory = options::memory(&memory);
            let whole_node = options.takes_whole_nodes();
            // `--mem=0` is all memory of a node, which a job of whole nodes requests anyway.
            if self.role.memory.is_none() && !(memory == "0" && whole_node) {
                options.add("mem", memory);
            }
        }
        if let Some(limit) = options.take_value("time") {
            self.spec.time_limit = options::slurm_duration(&limit);
            if self.spec.time_limit.is_none() {
                options.add("time", limit);
            }
        }
    }

    fn nodes(&mut self) {
        let Some(text) = self.options.take_value("nodes") else { return };
        let nodes = self.role.nodes.to_string();
        if text.split('-').any(|part| part != nodes) {
            let message = format!("`--nodes={text}`: the job gets {nodes}, since its ranks are numbered");
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix("set `nodes` in the job file"));
        }
    }

    fn tasks(&mut self) {
        let options = &mut self.options;
        // Tasks and GPUs follow from each other; Slurm accepts no number of tasks for each node beside it.
        if let Some(each) = options.number("ntasks-per-gpu").filter(|each| *each > 0) {
            options.remove("ntasks-per-gpu");
            match self.tasks {
                None => self.tasks = Some(each.saturating_mul(self.role.gpus_per_node)),
                Some(tasks) if self.role.gpus_per_node == 0 => {
                    self.role.gpus_per_node = tasks.div_ceil(each);
                }
                Some(_) => {}
            }
            if !options.has("gpu-bind") {
                options.add("gpu-bind", format!("single:{each}"));
            }
        }
        self.role.ranks_per_node = self.tasks.filter(|each| *each > 1);
        let tasks = self.tasks.unwrap_or(1).max(1);
        self.role.cpus = self.cpus_per_task.map(|cpus| cpus.saturating_mul(tasks).to_string());
        if options.number("ntasks").is_some_and(|all| all % self.role.nodes != 0) {
            self.whole = self.whole.or(Some("the tasks do not divide evenly among the nodes"));
        }
        for name in ["ntasks", "ntasks-per-node", "cpus-per-task"] {
            let number = options.number(name);
            if let Some(text) = options.take_value(name).filter(|_| number.is_none()) {
                self.findings.push(lost(&format!("`--{name}={text}`")));
            }
        }
    }

    fn gpus(&mut self) {
        let (options, nodes) = (&mut self.options, self.role.nodes);
        // `--gpus` is of all nodes: for each node it means the same at any number of nodes.
        let all = options.number("gpus").filter(|all| all % nodes == 0 && !options.has("gpus-per-node"));
        if let (Some(all), Some(text)) = (all, options.value("gpus").filter(|text| !text.contains(','))) {
            let of_type = text.rsplit_once(':').map(|(name, _)| format!("{name}:")).unwrap_or_default();
            options.remove("gpus");
            options.add("gpus-per-node", format!("{of_type}{}", all / nodes));
        }
        self.role.gpus_per_node = options.gpus_per_node().unwrap_or(0);
        // The key holds the number of each node: neither a type, nor which task has which GPU.
        let more = options.has("gpus-per-task") || options.has("gpus") || options.gpu_type().is_some();
        for name in GPUS {
            let Some(value) = options.take_value(name) else { continue };
            let left: Vec<&str> =
                value.split(',').filter(|one| more || name == "gres" && !is_gpu(one)).collect();
            if !left.is_empty() {
                options.add(name, left.join(","));
            }
        }
    }
}
