//! Benchmarks of collectives: their tables read, judged against published figures, and slow nodes found by
//! halving.

mod bisect;
mod table;
mod verdict;

pub use bisect::{Answer, Bisect, Group, Step};
pub use table::{Collective, Figures, Row, Run, read};
pub use verdict::{Judgement, Verdict, judge};
