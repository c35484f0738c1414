//! A script that is carried as it is, and what is to be known about it.

use std::sync::LazyLock;

use serde_json::Value as Json;

use super::Import;
use super::body::Chunk;
use crate::slurm::script::leaves_nodes_to_slurm;
use crate::slurm::{Directive, Script};
use regex::Regex;
use weftrun_core::Finding;
use weftrun_core::shell::without_comment;
use weftrun_core::spec::{Code, Launch};

/// Options that say what the job has, but for nodes, which are a key of each job. In this order: in a rendered script `--gpus` replaces
/// `--gpus-per-node` before it, and `--ntasks` what is for each node.
const SHAPE: [&str; 9] = [
    "gpus-per-task",
    "gpus",
    "gres",
    "gpus-per-node",
    "ntasks-per-gpu",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "gpu-bind",
];

impl Import {
    /// Carries the script as it is: it runs once, on the first node, as under sbatch.
    pub(super) fn carry_whole(&mut self, body: &str, why: &str, script: &Script<'_>) {
        let program = self.interpreter.clone().unwrap_or_else(|| match self.shell_options.as_str() {
            "" => self.shell.clone(),
            letters => format!("{} -{letters}", self.shell),
        });
        // A script that submits itself again needs its `#SBATCH` lines.
        let submits = body.lines().map(without_comment).any(|line| line.contains("sbatch"));
        let first = script.text.lines().next().filter(|line| line.starts_with("#!")).unwrap_or("#!/bin/bash");
        self.spec.launch = Launch::Once;
        let text = if submits && script.text.starts_with("#!") {
            script.text.to_owned()
        } else {
            format!("{first}\n{body}")
        };
        self.spec.code = Some(Code::Script { name: "job.sh".to_owned(), text });
        self.role.command = program.split(' ').chain(["job.sh"]).map(str::to_owned).collect();
        // The script starts its containers itself; options of pyxis stay options of sbatch.
        self.spec.image = None;
        self.spec.volumes.clear();
        self.slurm.remove("mount-home");
        // The program that runs it is the login shell.
        self.slurm.remove("shell");
        let further = std::mem::take(&mut self.container);
        self.keep_for_sbatch(further);
        let message = format!("{why}: the script is carried as it is, and runs once, on the first node");
        let fix = "nothing, if the script starts its ranks itself; else set `launch` and `command`";
        self.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix));
        if self.interpreter.is_none() {
            self.arguments(body);
        }
        self.files_beside(body);
        self.keep_shape(script);
    }

    /// Requests nodes, tasks, CPUs and GPUs by the script's own lines: Slurm sets variables for each of them, which the script and each
    /// `srun` in it read.
    fn keep_shape(&mut self, script: &Script<'_>) {
        let name_of =
            |option: &str| option.trim_start_matches("--").split('=').next().unwrap_or_default().to_owned();
        if let Some(kept) = self.slurm.get_mut("sbatch").and_then(Json::as_array_mut) {
            kept.retain(|option| !SHAPE.contains(&name_of(option.as_str().unwrap_or_default()).as_str()));
        }
        let native = script.components.first().cloned().unwrap_or_default().last_of_each();
        let of = |name: &&str| native.iter().find(|option| option.name == **name);
        let is_alone = |others: &[&str]| !others.iter().any(|name| native.has(name));
        let number = |option: &Directive| option.value.as_deref().and_then(|value| value.parse().ok());
        // What a key of the job is rendered as needs no line, where no other one replaces it.
        let is_key = |option: &&Directive| match option.name.as_str() {
            "gpus-per-node" => {
                number(option) == Some(self.role.gpus_per_node)
                    && is_alone(&["gpus-per-task", "gpus", "gres"])
            }
            "ntasks-per-node" => {
                number(option).is_some() && number(option) == self.tasks && is_alone(&["ntasks"])
            }
            _ => false,
        };
        let own: Vec<String> =
            SHAPE.iter().filter_map(of).filter(|option| !is_key(option)).map(Directive::written).collect();
        self.keep_for_sbatch(own);
        self.role.cpus = None;
        self.role.ranks_per_node = self.tasks.filter(|_| native.has("ntasks-per-node"));
    }

    /// Warns of positional parameters: a job has its arguments in the command.
    fn arguments(&mut self, body: &str) {
        let chunks = super::body::chunks(body);
        if let Some(name) = chunks.and_then(|chunks| argument_of(&chunks)) {
            let message =
                format!("the script reads `{name}`, an argument after `sbatch SCRIPT`; the job has none");
            let fix = "add the arguments to `command`, behind \"job.sh\"";
            self.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix));
        }
    }

    /// Warns where only the launcher names the GPUs. Requesting them would fail on a cluster that does not count its
    /// GPUs, and there the script runs as it is.
    pub(super) fn unrequested_gpus(&mut self, script: &Script<'_>) {
        if let Some(gpus) = script.launched.gpus.filter(|_| self.role.gpus_per_node == 0) {
            // A step can only use GPUs that the job was given.
            self.role.gpus_per_node = gpus;
            let message = format!(
                "no `#SBATCH` line requests GPUs, and a step uses {gpus} on each node: the job requests them"
            );
            let fix = "set `gpus_per_node = 0` where the cluster gives jobs all GPUs of their nodes";
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix(fix));
        }
        let whole = self.slurm.contains_key("exclusive");
        if let Some(each) = script.launched.processes.filter(|_| self.role.gpus_per_node == 0 && !whole) {
            let message = format!(
                "no `#SBATCH` line requests GPUs, and the launcher uses {each} on each node; the job requests none"
            );
            let fix = format!("set `gpus_per_node = {each}`, unless the cluster gives jobs all GPUs");
            self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix(fix));
        }
    }

    /// Warns where the number of nodes is given to sbatch, or chosen by Slurm.
    pub(super) fn unknown_nodes(&mut self, script: &Script<'_>) {
        let [options] = script.components.as_slice() else { return };
        let why = match (options.named_nodes(), script.launched.nodes) {
            (Some(nodes), Some(wanted)) if nodes < wanted => {
                format!("the script starts ranks on {wanted} nodes and requests {nodes}")
            }
            (Some(nodes), _)
                if nodes > 1
                    && !["nodes", "ntasks-per-node", "gpus"].iter().any(|name| options.has(name)) =>
            {
                format!(
                    "no `#SBATCH` line names the nodes; {nodes} are computed from `--ntasks` and the GPUs of each node"
                )
            }
            (Some(_), _) => return,
            (None, Some(wanted)) => {
                self.role.nodes = wanted;
                format!("no `#SBATCH` line names the nodes; a command of the script uses {wanted}")
            }
            (None, None) if leaves_nodes_to_slurm(options) => {
                "Slurm chooses the nodes for the tasks; 1 is written".to_owned()
            }
            (None, None) if script.nodes_unknown() => {
                "the number of nodes is given to `sbatch` on the command line; 1 is written".to_owned()
            }
            (None, None) if script.leaves_nodes_open() => {
                let uses = match options.gpus_per_node().filter(|_| !options.takes_whole_nodes()) {
                    Some(gpus) => format!("requests {gpus} GPUs on each node"),
                    None => "uses whole nodes".to_owned(),
                };
                format!(
                    "the script {uses}, and no line of it names the nodes, so that their number is not known; 1 is written"
                )
            }
            (None, None) => return,
        };
        self.findings.push(Finding::warning("W-IMPORT-NODES", why).fix("set `nodes`"));
    }
}

/// Returns the first positional parameter that commands read: an argument after `sbatch SCRIPT`.
pub(super) fn argument_of(chunks: &[Chunk]) -> Option<String> {
    static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ARGUMENTS).ok());
    // `getopts` and `shift` read them too. `${#NAME}` is a length.
    const ARGUMENTS: &str = r"(?:^|[^\\$])(\$[1-9@*#]|\$\{(?:[1-9@*]|#[}@*])|\$\{?OPTARG\b)|\b(getopts?)\s|(?:^|[;&|]|\b(?:then|do|else)\s)\s*(shift)(?:\s*[;&|]|\s+\d|\s*$)";
    // Functions have parameters of their own, and single quotes hold the text of other programs.
    let of_script = chunks.iter().filter(|chunk| !chunk.is_function());
    of_script.flat_map(|chunk| chunk.text.lines()).map(without_comment).find_map(|line| {
        let bare: String = line.split('\'').step_by(2).collect();
        let found = ARGUMENT.as_ref()?.captures(&bare)?;
        let name = found.iter().skip(1).flatten().next()?;
        Some(name.as_str().replace(['{', '}'], ""))
    })
}
