//! The changes a fabric plan means, before any backend translates them.
//!
//! [`decide`] is the one engine: [`JobView`] in, [`Outcome`] out. A job file becomes a view in
//! [`FabricPlan::new`](crate::fabric::FabricPlan::new), a Kubernetes object or a script in [`manifest`](crate::manifest).

pub mod codes;
mod decide;
pub(crate) mod draft;
pub mod gid;
pub mod lint;
pub(crate) mod merge;
mod mpirun;
mod op;
mod outcome;
pub(crate) mod rule_table;
pub mod shell;
pub mod view;

pub use crate::spec::Quantity;
pub use decide::decide;
pub use mpirun::{Mpirun, MpirunNote, Rewrite};
pub use op::{Change, Op};
pub use outcome::Outcome;
pub use rule_table::{RULES, Rule};
pub use view::JobView;

/// What the user asked of the fabric: the same words in a job file, on the command line and here.
pub type Options = crate::fabric::FabricRequest;
