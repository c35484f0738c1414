//! Benchmarks of collectives: reads their tables, compares them with published figures, and finds slow nodes by
//! halving groups.

mod bisect;
mod payload;
mod probe;
mod table;
mod verdict;

pub use bisect::{Answer, Bisect, Group, Step};
pub use payload::Payload;
pub use probe::{Probes, Traffic};
pub use table::{Collective, Figures, Row, Run, is_relevant, read};
pub use verdict::{Judgement, Verdict, judge};
