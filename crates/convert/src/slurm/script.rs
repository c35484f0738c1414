//! A parsed script: its options, variables and blocks, and the job that they describe.

use std::collections::BTreeMap;
use std::ops::Range;

use super::assignments::{Assignment, assignments};
use super::launched::Launched;
use super::{BLOCK_BEGIN, BLOCK_END};
use crate::lint::script::{holds, is_command};
use crate::mutate::MutateOptions;
use weftrun_core::Finding;
use weftrun_core::catalogue::InstanceType;
use weftrun_core::fabric::view::{ContainerView, EnvView, JobKind, JobView, Mpi, RoleView};
use weftrun_core::request::{Fabric, FabricRequest};
use weftrun_core::shell::sbatch::{Directives, is_gpu};
use weftrun_core::shell::{ScriptCommand, commands, is_mpirun, without_comment};

/// A parsed script.
pub(super) struct Script<'t> {
    pub(super) text: &'t str,
    /// The `#SBATCH` lines, one entry for each component of a heterogeneous job.
    pub(super) components: Vec<Directives>,
    /// Where weftrun's block is inserted: after the last `#SBATCH` line that Slurm reads.
    pub(super) head_end: usize,
    /// Variables that the script sets, with their positions.
    pub(super) exports: Vec<Assignment>,
    /// What `srun` and the launchers of ranks are given.
    pub(super) launched: Launched,
    /// Byte ranges of weftrun's own blocks; more than one if scripts were concatenated.
    pub(super) blocks: Vec<Range<usize>>,
}

/// Returns the length of the first line with those that it continues by a backslash.
fn logical_line(text: &str) -> usize {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end_matches(['\n', '\r']).ends_with('\\') {
            break;
        }
    }
    end
}

impl<'t> Script<'t> {
    pub(super) fn read(text: &'t str) -> Self {
        let blocks = blocks(text);
        let components = vec![Directives::default()];
        let launched = Launched::default();
        let mut script = Self { text, components, head_end: 0, exports: Vec::new(), launched, blocks };
        let (mut at, mut in_head, mut continued) = (0, true, 0);
        for line in text.split_inclusive('\n') {
            let (start, end) = (at, at + line.len());
            at = end;
            if end <= continued {
                continue;
            }
            if holds(&script.blocks, start) {
                continue;
            }
            match line.trim_end() {
                // Slurm stops reading `#SBATCH` lines at the first command.
                line if in_head && line.starts_with("#SBATCH") => {
                    script.directive(&line["#SBATCH".len()..]);
                    script.head_end = end;
                }
                line if in_head && line.starts_with("#!") => script.head_end = end,
                line if !is_command(line.trim_start()) => {}
                _ => {
                    in_head = false;
                    continued = start + logical_line(&text[start..]);
                    let line = text.get(start..continued).unwrap_or_default();
                    script.exports.extend(assignments(line).into_iter().map(|mut one| {
                        one.place = start + one.place.start..start + one.place.end;
                        one
                    }));
                }
            }
        }
        let options = script.components.last().cloned().unwrap_or_default();
        script.launched = Launched::read(text, &options, &script.exports);
        script
    }

    pub(super) fn directive(&mut self, line: &str) {
        if matches!(line.trim(), "hetjob" | "packjob") {
            self.components.push(Directives::default());
        } else if let Some(last) = self.components.last_mut() {
            last.read_line(line);
        }
    }

    /// Returns everything after the lines that Slurm reads, without weftrun's block.
    pub(super) fn body(&self) -> String {
        self.bare().get(self.bare_head_end()..).unwrap_or_default().to_owned()
    }

    /// Returns the end of the head in the script without weftrun's blocks.
    pub(super) fn bare_head_end(&self) -> usize {
        let before = self.blocks.iter().filter(|block| block.end <= self.head_end);
        self.head_end - before.map(ExactSizeIterator::len).sum::<usize>()
    }

    /// Returns the value of an option, from the last component that has it.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.components.iter().rev().find_map(|options| options.value(name))
    }

    /// Returns the image of the ranks: of the job, or the only one that the script's `srun` commands name.
    pub(super) fn image(&self) -> Option<&str> {
        self.option("container-image").or_else(|| {
            let words = self.text.lines().map(without_comment).flat_map(str::split_whitespace);
            let mut images = words.filter_map(|word| word.strip_prefix("--container-image="));
            let first = images.next().map(|image| image.trim_matches(['"', '\'']))?;
            images.next().is_none().then_some(first)
        })
    }

    /// Returns the environment module with NCCL that the script loads.
    pub(super) fn nccl_module(&self) -> Option<&str> {
        let loads = |line: &&str| line.starts_with("module ") || line.starts_with("ml ");
        let lines = self.text.lines().map(|line| without_comment(line).trim()).filter(loads);
        lines.flat_map(str::split_whitespace).find(|word| word.to_ascii_lowercase().contains("nccl"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.components.iter().any(|options| options.has(name))
    }

    /// Returns the number of nodes that the script names: in its `#SBATCH` lines, for `srun`, or for the launcher of
    /// the ranks.
    pub(super) fn named_nodes(&self) -> Option<u32> {
        let named: Option<u32> = self.components.iter().map(Directives::named_nodes).sum();
        named.or(self.launched.nodes)
    }

    pub(super) fn nodes(&self) -> u32 {
        self.named_nodes().unwrap_or_else(|| u32::try_from(self.components.len()).unwrap_or(1))
    }

    /// Returns whether the script uses whole nodes, and no line of it names their number: `sbatch` may be given it.
    pub(super) fn leaves_nodes_open(&self) -> bool {
        const GPUS: u32 = 8;
        const ALONE: [&str; 3] = ["--standalone", "--nnodes=1", "--nnodes 1"];
        let whole = |options: &Directives| {
            options.takes_whole_nodes() || options.gpus_per_node().is_some_and(|gpus| gpus >= GPUS)
        };
        self.named_nodes().is_none()
            && self.components.iter().any(whole)
            && !ALONE.iter().any(|option| self.text.contains(option))
    }

    /// Returns whether the script runs on as many nodes as `sbatch` is told on the command line, or Slurm chooses.
    pub(super) fn nodes_unknown(&self) -> bool {
        const READ: [&str; 7] = [
            // Without a list it expands the job's.
            "scontrol show hostnames",
            "SLURM_NNODES",
            "SLURM_JOB_NUM_NODES",
            "SLURM_JOB_NODELIST",
            "SLURM_NODELIST",
            "SLURM_NODEID",
            "SLURM_STEP_NODELIST",
        ];
        self.named_nodes().is_none()
            && (READ.iter().any(|name| self.text.contains(name))
                || self.components.iter().any(leaves_nodes_to_slurm))
    }

    /// Returns the value of the first of these options that is not a number, such as `${NODES}`. Slurm expands no
    /// variables in `#SBATCH` lines, so such a script is a template.
    pub(super) fn open_number(&self, names: &[&str]) -> Option<&str> {
        self.components.iter().find_map(|options| {
            names.iter().find_map(|name| {
                let value = options.value(name)?;
                let gpus = || value.split(',').find(|item| is_gpu(item));
                let item = if *name == "gres" { gpus()? } else { value };
                item.contains(['$', '{', '<']).then_some(item)
            })
        })
    }

    /// Returns the number of GPUs that the job has on a node: all of an exclusive node, which has at least those that
    /// are requested; as requested; or one for each process that the launcher starts there.
    pub(super) fn gpus(&self, settings: &MutateOptions<'_>) -> u32 {
        let whole = || {
            let named = settings.options.instance_type.iter().cloned().chain(self.instance_types(settings));
            let rows = named.filter_map(|name| Some(settings.catalogue.get(&name)?.accelerators));
            rows.min().unwrap_or(settings.profile.node_accelerators)
        };
        let exclusive = self.components.iter().any(Directives::takes_whole_nodes);
        let (asked, whole) = (self.asked_gpus(), exclusive.then(whole));
        asked.max(whole).or(self.launched.processes).unwrap_or(0)
    }

    fn asked_gpus(&self) -> Option<u32> {
        self.components.iter().filter_map(Directives::gpus_per_node).max().or(self.launched.gpus)
    }

    /// Returns the instance types that the script names: as features of the nodes, or by a partition that is named for
    /// a family of AWS, where the script is for AWS.
    fn instance_types(&self, settings: &MutateOptions<'_>) -> Vec<String> {
        let features = self.option("constraint").into_iter();
        let features = features.flat_map(|text| text.split(['|', '&', '[', ']', '*', ',']));
        let named: Vec<String> =
            features.filter(|name| settings.catalogue.get(name).is_some()).map(str::to_owned).collect();
        let Some(partition) =
            self.option("partition").filter(|_| named.is_empty() && settings.profile.fabric == Fabric::Efa)
        else {
            return named;
        };
        let of_family = settings.catalogue.family(partition);
        let asked = self.asked_gpus().or(self.launched.processes);
        let exact: Vec<&InstanceType> =
            of_family.iter().copied().filter(|row| Some(row.accelerators) == asked).collect();
        let rows = if exact.is_empty() { of_family } else { exact };
        rows.into_iter().map(|row| row.name.clone()).collect()
    }

    /// Returns the resources that a job has on a node. Memory is always included, since Slurm allocates some without
    /// a request (`--mem=0` requests all of it).
    pub(super) fn limits(&self, gpus: u32) -> BTreeMap<String, String> {
        let memory = self.option("mem").and_then(super::memory).unwrap_or_else(|| "0".to_owned());
        let open = self.open_number(&["gpus-per-node", "gres", "gpus", "gpus-per-task"]).map(str::to_owned);
        let amount = open.or_else(|| (gpus > 0).then(|| gpus.to_string()));
        let gpus = amount.map(|amount| ("nvidia.com/gpu".to_owned(), amount));
        gpus.into_iter().chain([("memory".to_owned(), memory)]).collect()
    }

    /// Applies the `# weftrun:` lines of the script, which override other settings.
    pub(super) fn apply_directives(&self, options: &mut FabricRequest) -> Result<(), Finding> {
        for line in self.text.lines().filter_map(directive_line) {
            for directive in line.split([',', ' ', '\t']).filter(|directive| !directive.is_empty()) {
                apply_directive(directive, options).ok_or_else(|| {
                    Finding::error("E-SCRIPT-WISH", format!("`# weftrun: {directive}` is not understood"))
                        .fix("write `# weftrun: fabric=off` or `# weftrun: efa.hugepages=off`")
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn commands(&self) -> Vec<ScriptCommand> {
        commands(&self.bare()).unwrap_or_default()
    }

    pub(super) fn view(&self, settings: &MutateOptions<'_>) -> JobView {
        let commands = self.commands();
        let mpi = commands.iter().any(|command| is_mpirun(&command.words[command.program]));
        let starts_ranks = |program: &str| {
            matches!(program.rsplit('/').next(), Some("srun" | "torchrun" | "accelerate"))
                || is_mpirun(program)
        };
        let launches = commands.iter().filter(|command| starts_ranks(&command.words[command.program]));
        let one_launch = launches.count() == 1;
        let gpus = self.gpus(settings);
        // What is set for one command is set for the job only if that command alone starts ranks.
        let is_of_job = |one: &&Assignment| {
            one.name != "LD_LIBRARY_PATH"
                && one.command.as_deref().is_none_or(|command| one_launch && starts_ranks(command))
        };
        let env = self.exports.iter().filter(is_of_job);
        let container = ContainerView {
            name: "nodes".to_owned(),
            image: self.option("container-image").map(str::to_owned),
            command: if mpi { vec!["bash".into(), "-c".into(), self.bare()] } else { Vec::new() },
            env: env
                .map(|one| EnvView {
                    name: one.name.clone(),
                    value: Some(one.value.clone()),
                    at: String::new(),
                })
                .collect(),
            limits: self.limits(gpus),
            ..ContainerView::default()
        };
        let role = RoleView {
            name: "nodes".to_owned(),
            worker: true,
            launcher: mpi,
            replicas: self.nodes(),
            replicas_text: self.open_number(&["nodes"]).map(str::to_owned),
            replicas_unknown: self.nodes_unknown(),
            instance_types: self.instance_types(settings),
            container,
            ..RoleView::default()
        };
        JobView {
            kind: JobKind::Sbatch,
            name: self.option("job-name").unwrap_or_default().to_owned(),
            queue: self.option("partition").map(str::to_owned),
            roles: vec![role],
            mpi: mpi.then_some(Mpi::OpenMpi),
            ..JobView::default()
        }
    }

    /// Returns whether a block of weftrun sets the folders of libraries, as in a script that it rendered.
    pub(super) fn sets_libraries(&self) -> bool {
        let mut blocks = self.blocks.iter().filter_map(|block| self.text.get(block.clone()));
        blocks.any(|block| block.contains("export LD_LIBRARY_PATH="))
    }

    /// Returns the script without weftrun's blocks.
    pub(super) fn bare(&self) -> String {
        let (mut bare, mut at) = (String::with_capacity(self.text.len()), 0);
        for block in &self.blocks {
            bare.push_str(self.text.get(at..block.start).unwrap_or_default());
            at = block.end;
        }
        bare + self.text.get(at..).unwrap_or_default()
    }
}

/// Returns whether Slurm chooses the nodes for a number of tasks.
pub(super) fn leaves_nodes_to_slurm(options: &Directives) -> bool {
    options.named_nodes().is_none() && options.number("ntasks").is_some_and(|tasks| tasks > 1)
}

/// Returns the settings of a `# weftrun: …` line.
fn directive_line(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("weftrun:")
}

/// Returns the byte ranges of weftrun's own blocks. weftrun writes no `#SBATCH` or `# weftrun:` lines into a block: a
/// block that contains one is not its own, and removing it would lose the line.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let (mut blocks, mut open, mut at) = (Vec::new(), None, 0);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        match line.trim_end() {
            BLOCK_BEGIN => open = open.or(Some(start)),
            BLOCK_END => blocks.extend(open.take().map(|open| open..at)),
            line if line.starts_with("#SBATCH")
                || line.starts_with("#!")
                || directive_line(line).is_some() =>
            {
                open = None;
            }
            _ => {}
        }
    }
    blocks
}

fn apply_directive(directive: &str, options: &mut FabricRequest) -> Option<()> {
    let (name, value) = directive.split_once('=')?;
    if name == "fabric" {
        options.kind = value.parse().ok()?;
    } else {
        options.rules.insert(name.to_owned(), value.parse().ok()?);
    }
    Some(())
}
