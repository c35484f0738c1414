//! Renders a planned job as a readable sbatch script.

mod bookkeeping;
mod container;
mod directives;
mod launch;
mod ops;
mod script;
mod tasks;

use weftrun_convert::Directives;
use weftrun_core::backend::{Document, Language, PlannedJob, Prepared, Rendered};
use weftrun_core::fabric::{Fabric, Op};
use weftrun_core::request::FabricRule;
use weftrun_core::spec::{CodeContent, Launch, RestartPolicy, Role};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::config::{Container, JobSettings, RankLogs, SlurmTarget};
use super::records::Marker;
use super::task_files::TaskFiles;
use crate::remote::ops::Translated;

pub use directives::OF_COMPONENT;
pub use tasks::refuse_other_target;

/// The properties of a script that the checks and the submission need.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The `#SBATCH` lines, separately for each component of a heterogeneous job.
    pub components: Vec<Directives>,
    /// The marker that identifies the job.
    pub marker: Option<Marker>,
    /// Whether srun starts the containers.
    pub pyxis: bool,
    /// The MPI plugin of srun.
    pub mpi: Option<String>,
    /// The working directory that the job file names, if it is a folder of the nodes.
    pub workdir: Option<String>,
    /// Whether the output file is relative to the home directory, which was not known yet.
    pub from_home: bool,
    /// Whether the user's options set the output file.
    pub own_output: bool,
    /// The folder that is sent with the job.
    pub code: Option<CodeContent>,
}

impl Script {
    /// Returns an option of the job, or of its first component.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.components.first()?.value(name)
    }
}

/// The inputs of all parts of a script.
struct RenderInput<'a> {
    job: &'a PlannedJob,
    settings: &'a SlurmTarget,
    own: JobSettings,
    /// The roles that have ranks: one, or one per component of a heterogeneous job.
    workers: Vec<&'a Role>,
    /// For each worker, its fabric operations translated to Slurm.
    fabric: Vec<Translated>,
    output: Output,
}

/// The destination of a job's output.
#[derive(Debug, Default)]
struct Output {
    /// The user's file, which Slurm can create.
    own: bool,
    /// The user's path whose folder the script creates. The path becomes a link to the log.
    link: Option<TaskFiles>,
    tasks: Option<TaskFiles>,
    /// Whether the files of the tasks are relative to the log folder instead of the working directory.
    in_log_dir: bool,
}

impl Output {
    fn of(job: &PlannedJob, own: &JobSettings, base: &str) -> Result<Self> {
        let parse =
            |key: &str, pattern: &str| TaskFiles::of_job(key, pattern, &job.spec.name, own.array.is_some());
        let mut batch = own.sbatch.iter().filter_map(|text| directives::further(text).ok());
        let batch = batch.rfind(|option| option.name == "output").and_then(|option| option.value);
        let step = own.srun.iter().find_map(|text| text.strip_prefix("--output="));
        if let Some(text) = own.srun.iter().find(|text| text.starts_with("--error=")) {
            let message =
                format!("`srun = [\"{text}\"]`: the errors of the ranks go where their output goes");
            return Err(
                Error::new(ErrorKind::InvalidSpec, message).hint("leave it out, or set `--output` alone")
            );
        }
        let once = job.spec.launch == Launch::Once;
        let each = batch.as_deref().filter(|path| TaskFiles::is_of_tasks(path) && !once);
        let of_ranks = match &own.rank_logs {
            None | Some(RankLogs::Each(false)) => None,
            Some(RankLogs::Each(true)) => {
                let word = if launch::are_ranks(job.spec.launch) { "rank" } else { "node" };
                Some(format!("{base}.{word}%t.log"))
            }
            Some(RankLogs::Files(pattern)) => Some(pattern.clone()),
        };
        let given =
            [("srun", step, false), ("sbatch", each, false), ("rank-logs", of_ranks.as_deref(), true)];
        let mut given = given.into_iter().filter_map(|(key, path, ours)| Some((key, path?, ours)));
        let chosen = given.next();
        if let (Some((first, ..)), Some((second, ..))) = (chosen, given.next()) {
            let message = format!("`{first}` and `{second}` both name the files of the ranks");
            return Err(Error::new(ErrorKind::InvalidSpec, message).hint("keep one of them"));
        }
        let tasks = chosen.map(|(key, path, _)| parse(key, path)).transpose()?;
        let shared = batch.as_deref().filter(|_| each.is_none());
        let link = shared.filter(|path| TaskFiles::has_folder_of_job(path));
        let link = link.map(|path| parse("sbatch", path)).transpose()?;
        Ok(Self {
            own: shared.is_some() && link.is_none(),
            link,
            tasks,
            in_log_dir: chosen.is_some_and(|(.., ours)| ours),
        })
    }
}

/// Renders a job. Pure.
pub fn render(settings: &SlurmTarget, job: &PlannedJob) -> Result<Rendered> {
    let workers = crate::remote::script::workers(&job.spec)?;
    job.spec.refuse_nul()?;
    job.spec.refuse_entrypoint("slurm")?;
    check_name(&job.spec.name)?;
    let mut own = settings.job(&job.spec)?;
    tasks::apply(&job.spec, &mut own)?;
    let (fabric, applied, inexpressible) = ops::translate(job, &own, &workers);
    let mut draft = RenderInput { job, settings, own, workers, fabric, output: Output::default() };
    draft.output = Output::of(job, &draft.own, &draft.log_name())?;
    let components = directives::of(&draft)?;
    let text = script::write(&draft, &components)?;
    let document = Document { title: "sbatch script".to_owned(), language: Language::Shell, text };
    let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    rendered.findings = draft.findings();
    rendered.findings.extend(draft.cpus(&components));
    rendered.prepared = Prepared::new(Script {
        components,
        marker: Some(draft.marker()),
        pyxis: draft.workers.iter().any(|role| draft.container_of(role) == Some(Container::Pyxis)),
        mpi: (job.spec.launch == Launch::Mpi).then(|| launch::mpi(&draft).to_owned()),
        workdir: draft.bare_workdir().map(str::to_owned),
        from_home: !draft.log_dir().starts_with('/') && !draft.output.own,
        own_output: draft.output.own,
        code: job.spec.code_archive()?.cloned(),
    });
    Ok(rendered)
}

/// Checks the job's name: Slurm accepts any, but a `/` makes folders of `%x` and a newline breaks lists of
/// jobs.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('/') || name.chars().any(char::is_control) || name.len() > 200 {
        let message =
            "a job's name may not be empty, longer than 200 bytes, or hold `/` or control characters";
        return Err(Error::new(ErrorKind::InvalidSpec, message).with("name", name.escape_debug()));
    }
    Ok(())
}

impl RenderInput<'_> {
    /// Returns the log file's name without its extension, with Slurm's pattern for the job id.
    fn log_name(&self) -> String {
        self.file_name(if self.own.array.is_some() { "%A_%a" } else { "%j" })
    }

    /// Returns the same, with the shell's variables for the job id.
    fn log_name_in_shell(&self) -> String {
        let array = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}";
        self.file_name(if self.own.array.is_some() { array } else { "${SLURM_JOB_ID}" })
    }

    /// Returns `NAME-ID-SUBMISSION`: the id alone finds the file, the submission distinguishes a reused id.
    fn file_name(&self, id: &str) -> String {
        let short: String = self.job.submission.as_str().chars().take(8).collect();
        format!("{}-{id}-{short}", script::safe(&self.job.spec.name))
    }

    /// Returns the marker that identifies the job.
    fn marker(&self) -> Marker {
        Marker {
            submission: self.job.submission.clone(),
            fabric: Some(self.job.plan.fabric),
            roles: self.workers.iter().map(|role| role.name.clone()).collect(),
            labels: self.job.spec.labels.clone(),
        }
    }

    /// Returns the log folder, absolute if the home directory is known.
    fn log_dir(&self) -> String {
        let dir = self.settings.log_dir().trim_end_matches('/');
        match self.job.facts.ids.get("home").filter(|_| !dir.starts_with('/')) {
            Some(home) if home.starts_with('/') && !home.contains(['%', '\\']) => {
                format!("{}/{dir}", home.trim_end_matches('/'))
            }
            _ => dir.to_owned(),
        }
    }

    /// Returns the container runtime of a role; none if it has no container.
    fn container_of(&self, role: &Role) -> Option<Container> {
        let has_image = role.image.is_some() || self.job.spec.image.is_some();
        let kind = self.own.container.unwrap_or(Container::Pyxis);
        (has_image && kind != Container::None).then_some(kind)
    }

    /// Returns the working directory that the job file names, if it is not inside a container.
    fn bare_workdir(&self) -> Option<&str> {
        let contained = self.workers.iter().any(|role| self.container_of(role).is_some());
        let spec = &self.job.spec;
        spec.workdir.as_deref().filter(|_| !contained && spec.workdir_in_code().is_none())
    }

    /// Returns the working directory if an `#SBATCH` line can contain it; any other is passed to srun.
    fn chdir(&self) -> Option<&str> {
        self.bare_workdir().filter(|folder| !folder.chars().any(char::is_control))
    }

    /// Returns whether the job allows Slurm to requeue it after a node failure.
    fn requeues(&self) -> bool {
        self.own.requeue.unwrap_or(self.job.spec.restart != RestartPolicy::Never)
    }

    /// Returns the plan's findings apart from the fabric: where the job runs, and whether it is requeued.
    fn findings(&self) -> Vec<Finding> {
        let facts = &self.job.facts;
        let mut findings = Vec::new();
        let brings = self.job.spec.code.is_some() && self.job.spec.launch != Launch::Once;
        let of_code = brings || self.job.spec.code_folder().is_some();
        let contained = self.workers.iter().any(|role| self.container_of(role).is_some());
        if !of_code && !contained && self.settings.rest.is_none() {
            let folder = match (self.job.spec.workdir.as_deref(), facts.ids.get("folder"), facts.online) {
                (Some(folder), ..) => format!("`{folder}` (`workdir`)"),
                (None, Some(folder), _) => format!("`{folder}`, where `submit` is called"),
                (None, None, true) => {
                    "your home directory: the folder where `submit` is called does not exist on the cluster"
                        .to_owned()
                }
                (None, None, false) => {
                    "the folder where `submit` is called, if the cluster has it, else your home directory"
                        .to_owned()
                }
            };
            findings.push(Finding::info("SLURM-WORKDIR", format!("the job runs in {folder}")).at("workdir"));
        }
        let told = self.own.requeue.is_some() || self.job.spec.restart != RestartPolicy::Never;
        let by_site = match facts.extra.get("JobRequeue").and_then(|value| value.as_str()) {
            Some("1") => "it is queued again (JobRequeue=1 of this cluster)",
            Some(_) => "it ends (JobRequeue=0 of this cluster)",
            None => "the cluster's default decides (JobRequeue)",
        };
        let message = match (told, self.requeues()) {
            (false, _) => by_site,
            (true, true) => "it is queued again, as the job file says",
            (true, false) => "it ends, as the job file says",
        };
        let message = format!("if a node fails: {message}");
        findings.push(Finding::info("SLURM-REQUEUE", message).at("backend.slurm.requeue"));
        let spec = &self.job.spec;
        if !spec.annotations.is_empty() {
            let message = "`annotations` is not used: jobs of Slurm have none";
            findings.push(Finding::info("SLURM-UNUSED", message).at("annotations"));
        }
        findings
    }

    /// Returns what the plan reports of the CPUs: Slurm's defaults suit few jobs with GPUs.
    fn cpus(&self, components: &[Directives]) -> Option<Finding> {
        let (role, options) = (self.workers.first()?, components.first()?);
        let set = ["cpus-per-task", "cpus-per-gpu"].iter().any(|name| options.value(name).is_some());
        let finding = |message: String| Finding::info("SLURM-CPUS", message).at("cpus");
        match directives::whole_nodes(self, 0) {
            Some(why) => {
                let has = |name: &str| options.value(name).is_some();
                let added =
                    if options.value("mem") == Some("0") { "`--exclusive --mem=0`" } else { "`--exclusive`" };
                let share = match (set, has("mem") && options.value("mem") != Some("0")) {
                    (false, false) => "the tasks of a node share all of its CPUs, GPUs and memory",
                    (false, true) => "the tasks of a node share all of its CPUs and GPUs",
                    (true, false) => "the tasks of a node share all of its GPUs and memory",
                    (true, true) => "the tasks of a node share all of its GPUs, and no other job runs there",
                };
                Some(finding(format!("whole nodes ({added}), because {why}: {share}")))
            }
            None if set || role.gpus_per_node == 0 => None,
            None => Some(
                finding(
                    "`cpus` is not set: Slurm gives each task the partition's DefCpuPerGPU, or one CPU"
                        .to_owned(),
                )
                .fix("set `cpus` in the job file to the number of CPUs of a node that the job needs"),
            ),
        }
    }

    /// Returns whether every component gets this variable with this value, and none sets its own: then it is
    /// in the shared block.
    fn all_set(&self, (name, value, _): &(String, String, Op)) -> bool {
        let same =
            |fabric: &Translated| fabric.env.iter().any(|(known, other, _)| known == name && other == value);
        self.fabric.iter().all(same)
            && (self.workers.len() == 1
                || self.workers.iter().all(|role| role.env.iter().all(|var| var.name != *name)))
    }

    /// Returns whether the job gets a fabric whose devices belong to whole nodes.
    fn uses_rdma(&self) -> bool {
        let plan = &self.job.plan;
        let rdma = |fabric| matches!(fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand);
        rdma(plan.fabric) && plan.ops.iter().any(|op| rdma(FabricRule::fabric_of(&op.rule)))
    }

    /// Returns the number of ranks of all workers.
    fn world(&self) -> u32 {
        self.workers.iter().map(|role| role.nodes.saturating_mul(role.procs_per_node())).sum()
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
