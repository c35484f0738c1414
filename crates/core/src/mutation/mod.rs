//! The changes a fabric plan means, before any backend translates them.

mod op;

pub use op::{Change, Op};
