//! The native part of the Python package `weftrun`: thin wrappers of the SDK, which give reports as plain Python
//! data. Names, types and documentation for users are in `python/weftrun`.

#![allow(clippy::needless_pass_by_value, reason = "pyo3 hands arguments over by value")]
#![allow(missing_debug_implementations, reason = "Python has `__repr__`")]
#![allow(clippy::redundant_closure_for_method_calls, reason = "`attach` wants a closure of any lifetime")]

mod job;
mod logs;
mod plan;
mod run;
mod text;

use pyo3::prelude::*;

/// The module `weftrun._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::job::{Events, Job};
    #[pymodule_export]
    use crate::logs::Logs;
    #[pymodule_export]
    use crate::plan::{Client, Plan};
    #[pymodule_export]
    use crate::text::{import_job, lint, mutate, transport, why};
}
