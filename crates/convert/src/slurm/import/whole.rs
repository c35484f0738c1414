//! A script that is carried as it is, and what is to be known about it.

use std::sync::LazyLock;

use super::Import;
use crate::slurm::Script;
use crate::slurm::script::leaves_nodes_to_slurm;
use regex::Regex;
use weftrun_core::Finding;
use weftrun_core::shell::without_comment;
use weftrun_core::spec::{Code, Launch};

impl Import {
    /// Carries the script as it is: it runs once, on the first node, as under sbatch.
    pub(super) fn carry_whole(&mut self, body: &str, why: &str, script: &Script<'_>) {
        let program = self.interpreter.clone().unwrap_or_else(|| match self.shell_options.as_str() {
            "" => self.shell.clone(),
            letters => format!("{} -{letters}", self.shell),
        });
        let first = script.text.lines().next().filter(|line| line.starts_with("#!")).unwrap_or("#!/bin/bash");
        self.spec.launch = Launch::Once;
        self.spec.code = Some(Code::Script { name: "job.sh".to_owned(), text: format!("{first}\n{body}") });
        self.role.command = program.split(' ').chain(["job.sh"]).map(str::to_owned).collect();
        self.role.ranks_per_node = self.tasks;
        // The script starts its containers itself; options of pyxis stay options of sbatch.
        self.spec.image = None;
        self.spec.volumes.clear();
        self.slurm.remove("mount-home");
        let further = std::mem::take(&mut self.container);
        self.keep_for_sbatch(further);
        let message = format!("{why}: the script is carried as it is, and runs once, on the first node");
        let fix = "nothing, if the script starts its ranks itself; else set `launch` and `command`";
        self.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix));
        if self.interpreter.is_none() {
            self.arguments(body);
        }
        self.files_beside(body);
        self.variables_of_options(body, script);
    }

    /// Warns where the script reads a variable that Slurm sets for an option of its own, and the job has another one.
    fn variables_of_options(&mut self, body: &str, script: &Script<'_>) {
        let Some(native) = script.components.first() else { return };
        let kept = self.slurm.get("sbatch").map(ToString::to_string).unwrap_or_default();
        let changed = [
            ("SLURM_GPUS", "gpus", kept.contains("--gpus=")),
            ("SLURM_GPUS_PER_NODE", "gpus-per-node", self.role.gpus_per_node > 0),
            ("SLURM_NTASKS_PER_NODE", "ntasks-per-node", self.tasks.is_some()),
        ];
        for (name, option, is_set) in changed {
            let was_set = native.has(option);
            let reads = |text: &str| {
                text.match_indices(name).any(|(at, _)| {
                    let next = text.get(at + name.len()..).and_then(|rest| rest.chars().next());
                    !next.is_some_and(|c| c == '_' || c.is_ascii_alphanumeric())
                })
            };
            if was_set != is_set && body.lines().map(without_comment).any(reads) {
                let (before, after) =
                    if was_set { ("sets", "does not set") } else { ("does not set", "sets") };
                let message = format!(
                    "the script reads `{name}`, which Slurm {before} for its `#SBATCH` lines, and {after} for the job (`--{option}`)"
                );
                let fix = "set the variable in `[env]`, or change what the script reads";
                self.findings.push(Finding::warning("W-IMPORT-LOST", message).fix(fix));
            }
        }
    }

    /// Warns of positional parameters: a job has its arguments in the command.
    fn arguments(&mut self, body: &str) {
        static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ARGUMENTS).ok());
        // `getopts` and `shift` read them too. `${#NAME}` is a length.
        const ARGUMENTS: &str = r"(?:^|[^\\$])(\$[1-9@*#]|\$\{(?:[1-9@*]|#[}@*])|\$\{?OPTARG\b)|\b(getopts?)\s|(?:^|[;&|]|\b(?:then|do|else)\s)\s*(shift)(?:\s*[;&|]|\s+\d|\s*$)";
        // Functions have parameters of their own, and single quotes hold the text of other programs.
        let Some(chunks) = super::body::chunks(body) else { return };
        let of_script = chunks.iter().filter(|chunk| !chunk.is_function());
        let found = of_script.flat_map(|chunk| chunk.text.lines()).map(without_comment).find_map(|line| {
            let bare: String = line.split('\'').step_by(2).collect();
            let found = ARGUMENT.as_ref()?.captures(&bare)?;
            let name = found.iter().skip(1).flatten().next()?;
            Some(name.as_str().replace(['{', '}'], ""))
        });
        if let Some(name) = found {
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
