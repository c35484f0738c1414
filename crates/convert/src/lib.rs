//! Documents and scripts of other tools: Kubernetes objects, sbatch scripts, command lines of Run:ai.
//! Mutated in place, or read into a job.
//!
//! A stream is split into documents ([`Splitter`]); each is read into a tree with places, its jobs become
//! [`JobView`](weftrun_core::fabric::JobView)s, the engine decides, its operations become data, and the text is
//! changed where the data differ ([`edit`]). Documents that are no jobs pass through unchanged.

#[macro_use(word_enum)]
extern crate weftrun_nccl;

mod docker;
mod edit;
mod imported;
mod kubeflow;
pub mod lint;
mod mutate;

mod report;
mod runai_cli;
mod slurm;
mod without_job;

pub use docker::docker_commands;
pub use edit::{Blocked, edit, same, to_yaml};
pub use imported::Imported;
pub use kubeflow::{
    Splitter, TrainerVersion, apply_ops, apply_with_own_runtime, at_pointer, import, kinds, mutate, no_job,
};
pub use mutate::{MutateOptions, Mutated, Start};
pub use report::MutatedJob;
pub use runai_cli::import_runai;
pub use slurm::{
    BLOCK_BEGIN, BLOCK_END, Directive, Directives, NoCounterpart, Program, ScriptChange, ScriptContext,
    decision_text, import_sbatch, is_sbatch, lint_sbatch, mutate_sbatch, script_change, slurm_duration,
};
pub use weftrun_core::spec::runtimes_in;
pub use without_job::nothing_in;

use weftrun_core::Finding;

/// Returns the findings about one document of a stream, in the order of its text.
pub fn lint_document(text: &str, start: Start<'_>, settings: &MutateOptions<'_>) -> Vec<Finding> {
    if is_sbatch(text) {
        lint_sbatch(text, start, settings)
    } else {
        kubeflow::lint_document(text, start, settings)
    }
}
