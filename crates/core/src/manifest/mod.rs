//! Raw Kubeflow objects and sbatch scripts, edited by span.
//!
//! A stream is cut into documents ([`Splitter`]); each is read into a tree that knows its places, its jobs become
//! [`JobView`](crate::mutation::JobView)s, the engine decides, its ops become data, and the text is changed where the
//! data differ ([`edit`]). What is not a job passes through untouched.

mod apply;
mod docker;
mod document;
mod edit;
mod emit;
mod import;
mod import_sbatch;
mod job;
mod lint;
mod object;
mod own_runtime;
mod pod;
mod report;
mod sbatch;
mod stream;
mod trainjob;

pub use apply::apply_ops;
pub use docker::docker_commands;
pub use document::{Mutated, Settings, Start, at_pointer, mutate};
pub use edit::{Blocked, edit, same};
pub use emit::to_yaml;
pub use import::import;
pub(crate) use import::torchrun;
pub use import_sbatch::{import_sbatch, slurm_duration};
pub use lint::lint_document;
pub use report::JobReport;
pub use sbatch::{BLOCK_BEGIN, BLOCK_END, is_sbatch, lint_sbatch, mutate_sbatch};
pub use stream::Splitter;
pub use trainjob::{TrainerVersion, runtimes_in};
