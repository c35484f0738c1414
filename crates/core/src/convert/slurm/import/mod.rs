//! An sbatch script as a job file. `#SBATCH` lines become the job's words, or settings of `[backend.slurm]` where only
//! Slurm knows them; the `srun` that starts the ranks becomes the command; what stands before it is kept as `setup`.
//! What a job file has no words for is said.

mod launch;
mod options;

use serde_json::{Map, Value as Json, json};

use crate::Finding;
use crate::catalogue::Catalogue;
use crate::convert::slurm::{Script, is_sbatch};
use crate::spec::{Code, EnvVar, JobSpec, Launch, Role, Volume, VolumeSource};

use options::Options;
pub use options::slurm_duration;

/// Reads a script as a job, with what could not be carried.
///
/// ```
/// use weftrun_core::convert::import_sbatch;
/// let text = "#!/bin/bash\n#SBATCH -J llama -N 4 --gpus-per-node=8\nsrun torchrun --nproc_per_node 8 train.py --lr 1\n";
/// let (spec, lost) = import_sbatch(text).map_err(|finding| finding.message)?;
/// assert_eq!((spec.name.as_str(), spec.nodes(), lost.len()), ("llama", 4, 0));
/// assert_eq!(spec.roles[0].command, ["train.py", "--lr", "1"]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A finding `E-IMPORT-JOB` where the text is no sbatch script, or starts nothing.
pub fn import_sbatch(text: &str) -> Result<(JobSpec, Vec<Finding>), Finding> {
    if !is_sbatch(text) {
        return Err(Finding::error("E-IMPORT-JOB", "this is no sbatch script: it has no `#SBATCH` line")
            .fix("give a script that begins with `#!` and has `#SBATCH` lines"));
    }
    let script = Script::read(text);
    let mut import = Import::new(&script);
    import.options();
    launch::read(&mut import, &script)?;
    Ok(import.finish())
}

/// A job while it is put together.
struct Import {
    spec: JobSpec,
    role: Role,
    /// `[backend.slurm]`.
    slurm: Map<String, Json>,
    options: Options,
    findings: Vec<Finding>,
}

impl Import {
    fn new(script: &Script<'_>) -> Self {
        let mut options = Options::new(script.options());
        let name = options.take(&["job-name", "J"]).unwrap_or_else(|| "job".to_owned());
        let mut spec = JobSpec::empty();
        spec.name = label(&name);
        let mut findings = Vec::new();
        if spec.name != name {
            let message =
                format!("the name `{name}` is written `{}`: clusters make host names of it", spec.name);
            findings.push(Finding::warning("W-IMPORT-LOST", message));
        }
        Self { spec, role: Role::worker(), slurm: Map::new(), options, findings }
    }

    /// What the `#SBATCH` lines ask.
    fn options(&mut self) {
        let options = &mut self.options;
        let nodes = options.number(&["nodes", "N"]);
        let tasks = options.number(&["ntasks", "n"]);
        let by_node = options.number(&["ntasks-per-node"]);
        self.role.nodes =
            nodes.or_else(|| Some(tasks?.div_ceil(by_node.filter(|each| *each > 0)?))).unwrap_or(1).max(1);
        let each = by_node.or_else(|| tasks.map(|all| all / self.role.nodes.max(1)));
        self.role.ranks_per_node = each.filter(|each| *each > 1);
        self.role.gpus_per_node = options.gpus(self.role.nodes, each.unwrap_or(1));
        let cpus = options.number(&["cpus-per-task", "c"]);
        self.role.cpus = cpus.map(|cpus| (cpus * each.unwrap_or(1).max(1)).to_string());
        self.role.memory = options.take(&["mem"]).as_deref().and_then(options::memory);
        self.spec.time_limit = options.take(&["time", "t"]).as_deref().and_then(options::slurm_duration);
        self.spec.priority = options.take(&["qos", "q"]);
        self.spec.queue = options.take(&["partition", "p"]);
        self.spec.image = options.take(&["container-image"]).map(|image| image.replace('#', "/"));
        self.spec.workdir = options.take(&["chdir", "D", "container-workdir"]);
        let mounts = options.take(&["container-mounts"]);
        self.mounts(mounts.as_deref().unwrap_or_default());
        self.constraint();
        self.of_slurm();
    }

    fn constraint(&mut self) {
        let Some(text) = self.options.take(&["constraint", "C"]) else { return };
        if Catalogue::builtin().get(&text).is_some() {
            self.role.instance_type = Some(text);
        } else {
            self.slurm.insert("constraint".to_owned(), json!(text));
        }
    }

    /// What only Slurm knows.
    fn of_slurm(&mut self) {
        let words = [
            ("account", "A"),
            ("reservation", ""),
            ("array", "a"),
            ("dependency", "d"),
            ("begin", "b"),
            ("signal", ""),
        ];
        for (name, short) in words {
            if let Some(value) = self.options.take(&[name, short]) {
                self.slurm.insert(name.to_owned(), json!(value));
            }
        }
        for (name, key, value) in
            [("exclusive", "exclusive", true), ("requeue", "requeue", true), ("no-requeue", "requeue", false)]
        {
            if self.options.take(&[name]).is_some() {
                self.slurm.insert(key.to_owned(), json!(value));
            }
        }
        if self.options.take(&["container-mount-home"]).is_some() {
            self.slurm.insert("mount-home".to_owned(), json!(true));
        }
        if self.options.take(&["export"]).is_some_and(|what| what.eq_ignore_ascii_case("none")) {
            self.slurm.insert("export".to_owned(), json!("none"));
        }
        // weftrun writes the log where it finds it again, behind what an earlier life of the job wrote.
        let log = self.options.take(&["output", "o"]).or(self.options.take(&["error", "e"]));
        if log.is_some() {
            self.findings.push(
                Finding::warning(
                    "W-IMPORT-LOST",
                    "the log's file is not carried over: weftrun names it itself",
                )
                .fix("`log-dir` of the target says where logs are; `weftrun logs` prints them"),
            );
        }
        for name in ["error", "e", "open-mode", "comment", "no-container-mount-home", "parsable"] {
            self.options.take(&[name]);
        }
        let (further, unknown) = self.options.rest();
        if !further.is_empty() {
            self.slurm.insert("sbatch".to_owned(), json!(further));
        }
        self.findings.extend(unknown.into_iter().map(|option| lost(&format!("`#SBATCH -{option}`"))));
    }

    /// `FROM:TO[:FLAGS],…`
    fn mounts(&mut self, list: &str) {
        for mount in list.split(',').filter(|mount| !mount.is_empty()) {
            let mut parts = mount.split(':');
            let from = parts.next().unwrap_or_default();
            let to = parts.next().filter(|to| !to.is_empty()).unwrap_or(from);
            if from.contains('$') || to.contains('$') || !from.starts_with('/') {
                self.findings.push(lost(&format!("the mount `{mount}`")));
                continue;
            }
            self.spec.volumes.push(Volume {
                name: format!("mount{}", self.spec.volumes.len() + 1),
                mount: to.to_owned(),
                source: VolumeSource::HostPath(from.to_owned()),
                read_only: parts.next().is_some_and(|flags| flags.split('+').any(|flag| flag == "ro")),
            });
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.spec.env.push(EnvVar { name: name.to_owned(), value: value.to_owned() });
    }

    /// The whole body as a script that runs on each node: for what is no single `srun`.
    fn carry_whole(&mut self, body: &str, why: &str) {
        self.spec.launch = Launch::PerNode;
        self.spec.code =
            Some(Code::Script { name: "job.sh".to_owned(), text: format!("#!/bin/bash\n{body}") });
        self.role.command = vec!["bash".to_owned(), "job.sh".to_owned()];
        self.findings.push(
            Finding::warning("W-IMPORT-COMMAND", format!("{why}: the whole script runs once on each node"))
                .fix("say which program starts the ranks, and set `launch`"),
        );
    }

    fn finish(mut self) -> (JobSpec, Vec<Finding>) {
        if self.role.ranks_per_node == Some(self.role.gpus_per_node) {
            self.role.ranks_per_node = None;
        }
        self.spec.roles = vec![self.role];
        if !self.slurm.is_empty() {
            self.spec.backend.insert("slurm".to_owned(), Json::Object(self.slurm));
        }
        (self.spec, self.findings)
    }
}

fn lost(what: &str) -> Finding {
    Finding::warning("W-IMPORT-LOST", format!("{what}: a job file has no word for it"))
}

/// A DNS label made of a name.
fn label(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain =
        plain.trim_matches('-').get(..plain.trim_matches('-').len().min(63)).unwrap_or_default().to_owned();
    let plain = plain.trim_end_matches('-');
    match plain.chars().next() {
        None => "job".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("job-{plain}"),
        Some(_) => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests;
