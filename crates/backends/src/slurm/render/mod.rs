//! A planned job becomes an sbatch script that a cluster's administrator would nod at.

mod container;
mod directives;
mod launch;
mod ops;
mod script;

use weftrun_core::backend::{Document, Language, PlannedJob, Rendered};
use weftrun_core::fabric::Fabric;
use weftrun_core::fabric::Op;
use weftrun_core::spec::{RestartPolicy, Role, RoleKind};
use weftrun_core::{Error, ErrorKind, Result};

use super::config::{JobSettings, Settings};
use ops::Translated;

pub use ops::INEXPRESSIBLE;

/// Everything the parts of a script are made of.
struct Draft<'a> {
    job: &'a PlannedJob,
    settings: &'a Settings,
    own: JobSettings,
    /// The roles that have ranks: one, or one for each component of a heterogeneous job.
    workers: Vec<&'a Role>,
    /// For each worker, what the fabric's ops mean on Slurm.
    fabric: Vec<Translated>,
}

/// Renders a job. Pure.
pub fn render(settings: &Settings, job: &PlannedJob) -> Result<Rendered> {
    let workers: Vec<&Role> =
        job.spec.roles.iter().filter(|role| role.kind == RoleKind::Worker && role.nodes > 0).collect();
    if workers.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("job `{}` has no worker role: nothing would run", job.spec.name),
        ));
    }
    job.spec.refuse_nul()?;
    check_name(&job.spec.name)?;
    let own = settings.job(&job.spec)?;
    let (fabric, applied, inexpressible) = ops::translate(job, &own, &workers);
    let draft = Draft { job, settings, own, workers, fabric };
    let text = script::write(&draft)?;
    let document = Document { title: "sbatch script".to_owned(), language: Language::Shell, text };
    let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    Ok(rendered)
}

/// Slurm takes any name, but a `/` makes folders of `%x` and a newline breaks every list of jobs.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('/') || name.chars().any(char::is_control) || name.len() > 200 {
        let message =
            "a job's name may not be empty, longer than 200 bytes, or hold `/` or control characters";
        return Err(Error::new(ErrorKind::InvalidSpec, message).with("name", name.escape_debug()));
    }
    Ok(())
}

impl Draft<'_> {
    /// The log file's name without its ending, with Slurm's pattern for the job id.
    fn log_name(&self) -> String {
        self.file_name(if self.own.array.is_some() { "%A_%a" } else { "%j" })
    }

    /// The same, with the shell's words for the job id.
    fn log_name_in_shell(&self) -> String {
        let array = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}";
        self.file_name(if self.own.array.is_some() { array } else { "${SLURM_JOB_ID}" })
    }

    /// `NAME-ID-SUBMISSION`: the id alone finds it, the submission keeps a reused id apart.
    fn file_name(&self, id: &str) -> String {
        let short: String = self.job.submission.as_str().chars().take(8).collect();
        format!("{}-{id}-{short}", script::safe(&self.job.spec.name))
    }

    /// Whether Slurm may queue the job again after a node failure.
    fn requeues(&self) -> bool {
        self.own.requeue.unwrap_or(self.job.spec.restart != RestartPolicy::Never)
    }

    /// Whether every component gets this variable with this value, and none of its own: then it stands in the one block.
    fn all_set(&self, (name, value, _): &(String, String, Op)) -> bool {
        let same =
            |fabric: &Translated| fabric.env.iter().any(|(known, other, _)| known == name && other == value);
        self.fabric.iter().all(same)
            && (self.workers.len() == 1
                || self.workers.iter().all(|role| role.env.iter().all(|var| var.name != *name)))
    }

    /// Whether the job gets a fabric whose devices belong to whole nodes.
    fn uses_rdma(&self) -> bool {
        let plan = &self.job.plan;
        let rules = ["efa.", "roce.", "ib."];
        matches!(plan.fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand)
            && plan.ops.iter().any(|op| rules.iter().any(|start| op.rule.starts_with(start)))
    }

    /// Number of ranks of all workers.
    fn world(&self) -> u32 {
        self.workers.iter().map(|role| role.nodes.saturating_mul(role.procs_per_node())).sum()
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
