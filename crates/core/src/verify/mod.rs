//! Benchmarks of collectives: their tables read, judged against published figures, and slow nodes found by
//! halving.

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
