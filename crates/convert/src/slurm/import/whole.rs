//! A script that is carried as it is, and what is to be known about it.

use std::sync::LazyLock;

use super::Import;
use crate::slurm::Script;
use crate::slurm::script::leaves_nodes_to_slurm;
use regex::Regex;
use weftrun_core::Finding;
use weftrun_core::shell::without_comment;
use weftrun_core::spec::{Code, Launch, VolumeSource};

impl Import {
    /// Carries the script as it is: it runs once, on the first node, as under sbatch.
    pub(super) fn carry_whole(&mut self, body: &str, why: &str, script: &Script<'_>) {
        let program = self.interpreter.clone().unwrap_or_else(|| "bash".to_owned());
        let first = match &self.interpreter {
            Some(_) => script.text.lines().next().unwrap_or_default(),
            None => "#!/bin/bash",
        };
        self.spec.launch = Launch::Once;
        self.spec.code = Some(Code::Script { name: "job.sh".to_owned(), text: format!("{first}\n{body}") });
        self.role.command = program.split(' ').chain(["job.sh"]).map(str::to_owned).collect();
        self.role.ranks_per_node = self.tasks;
        // The script starts its containers itself; options of pyxis stay options of sbatch.
        let mut further: Vec<String> =
            self.spec.image.take().map(|image| format!("--container-image={image}")).into_iter().collect();
        for volume in std::mem::take(&mut self.spec.volumes) {
            if let VolumeSource::HostPath(from) = &volume.source {
                let read_only = if volume.read_only { ":ro" } else { "" };
                further.push(format!("--container-mounts={from}:{}{read_only}", volume.mount));
            }
        }
        if self.slurm.remove("mount-home").is_some() {
            further.push("--container-mount-home".to_owned());
        }
        self.keep_for_sbatch(further);
        let message = format!("{why}: the script is carried as it is, and runs once, on the first node");
        let fix = "nothing, if the script starts its ranks itself; else set `launch` and `command`";
        self.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix));
        if self.interpreter.is_none() {
            self.arguments(body);
        }
        self.files_beside(body);
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

    /// Warns of files that stand beside the script or where it is submitted.
    fn files_beside(&mut self, body: &str) {
        // A usage text has `$0` as the name of the script.
        static OWN_PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"BASH_SOURCE|\b(?:dirname|realpath|readlink)\b[^;|&]*\$(?:0\b|\{0\b)|\$\{0%").ok()
        });
        let lines = body.lines().map(without_comment);
        let has = |text: &str| lines.clone().any(|line| line.contains(text));
        let by_slurm = has("scontrol") && has("Command=");
        let own_place = OWN_PLACE.as_ref().is_some_and(|own| lines.clone().any(|line| own.is_match(line)));
        if own_place || by_slurm {
            let message = "the script looks for files beside itself (`$0`, BASH_SOURCE, `Command=` of scontrol); the job's copy stands elsewhere";
            let fix = "write the folder out";
            self.findings.push(Finding::warning("W-IMPORT-FILES", message).fix(fix));
        }
        let relative = of_submission(body).find_map(|segment| {
            let in_words =
                segment.split_whitespace().flat_map(|word| word.split(['=', ',', '"', '\'', '(', ')']));
            in_words.into_iter().find(|word| is_relative(word)).or_else(|| sourced(segment))
        });
        self.relative_file(relative);
    }

    /// Warns of files in `setup` that the shell reads from the folder where the job is submitted.
    pub(super) fn sourced_files(&mut self, setup: &str) {
        self.relative_file(of_submission(setup).find_map(sourced));
    }

    pub(super) fn relative_file(&mut self, file: Option<&str>) {
        if let Some(file) = file.filter(|_| self.spec.workdir.is_none()) {
            let message = format!("`{file}` is looked up in the folder where the job is submitted");
            let fix = "submit the job from the script's folder, or set `workdir`";
            self.findings.push(Finding::warning("W-IMPORT-FILES", message).fix(fix));
        }
    }

    /// Warns where only the launcher names the GPUs. Requesting them would fail on a cluster that does not count its
    /// GPUs, and there the script runs as it is.
    pub(super) fn unrequested_gpus(&mut self, script: &Script<'_>) {
        if let Some(gpus) = script.launched.gpus.filter(|_| self.role.gpus_per_node == 0) {
            // A step can only use GPUs that the job was given.
            self.role.gpus_per_node = gpus;
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
            (Some(nodes), _) if nodes > 1 && !["nodes", "ntasks-per-node", "gpus"].iter().any(|name| options.has(name)) => {
                format!("no `#SBATCH` line names the nodes; {nodes} are computed from `--ntasks` and the GPUs of each node")
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
                "the script uses whole nodes, and no line of it names their number, so that it is not known; 1 is written"
                    .to_owned()
            }
            (None, None) => return,
        };
        self.findings.push(Finding::warning("W-IMPORT-NODES", why).fix("set `nodes`"));
    }
}

/// Returns the commands that run in the folder where the job is submitted, without those that only print: all up to the first
/// `cd` to another folder, of the script's outermost level.
fn of_submission(body: &str) -> impl Iterator<Item = &str> {
    let leaves = |line: &str| {
        let folder =
            line.strip_prefix("cd ").map(|folder| folder.trim_start().trim_start_matches(['"', '\'']));
        folder.is_some_and(|folder| {
            ["/", "~", "$HOME", "${HOME}"].iter().any(|start| folder.starts_with(start))
        })
    };
    let segments = body.lines().map(without_comment).flat_map(|line| line.split([';', '&', '|']));
    segments.take_while(move |segment| !leaves(segment)).filter(|segment| {
        let begin =
            segment.split_whitespace().find(|word| !matches!(*word, "then" | "do" | "else" | "{" | "("));
        !matches!(begin, Some("echo" | "printf"))
    })
}

/// Returns whether a word is the path of a file in the current folder.
fn is_relative(word: &str) -> bool {
    const ENDINGS: [&str; 7] = [".sh", ".py", ".yaml", ".yml", ".json", ".toml", ".sqsh"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    word.starts_with("./")
        || word.starts_with("../")
        || word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(plain)
            && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// Returns the relative path that a command reads into the shell; a name without a folder is looked up in PATH.
fn sourced(segment: &str) -> Option<&str> {
    let mut words =
        segment.split_whitespace().skip_while(|word| matches!(*word, "then" | "do" | "else" | "{" | "("));
    let is_source = matches!(words.next(), Some("source" | "."));
    let file = words.next().filter(|_| is_source)?.trim_matches(['"', '\'']);
    let in_folder = file.contains('/') && file.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    in_folder.then_some(file)
}
