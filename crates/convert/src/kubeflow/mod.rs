//! Kubeflow objects (PyTorchJob, MPIJob, TrainJob): mutated in place, linted, or read into a job.

mod apply;
pub(super) mod document;
mod import;
mod job;
mod lint;
mod object;
mod object_kind;
mod own_runtime;
mod pod;
mod stream;
mod trainjob;
mod workload;

pub use apply::apply_ops;
pub use document::{at_pointer, mutate};
pub(super) use import::{OURS as TORCHRUN_OPTIONS, torchrun, torchrun_is_ours, unescape};
pub use import::{import, kinds, no_job};
pub use lint::lint_document;
pub use own_runtime::apply_with_own_runtime;
pub use stream::Splitter;
pub use trainjob::TrainerVersion;
