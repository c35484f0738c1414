//! Benchmarks of collectives: reads their tables, compares them with published figures, and finds slow nodes by
//! halving groups.

#[macro_use(word_enum)]
extern crate weftrun_nccl;

mod bisect;
mod bus;
mod device;
mod gpu;
mod history;
mod machine;
mod payload;
mod probe;
mod reader;
mod table;
mod verdict;

pub use bisect::{Answer, Bisect, Group, Step};
pub use device::Device;
pub use history::{KeptFigure, KeptRun, NodeHistory, nodes, regressions};
pub use payload::{Payload, probe_command};
pub use probe::{Fact, Probes, Traffic};
pub use reader::{Logs, read};
pub use table::{Collective, Figures, Row, Run};
pub use verdict::{Judgement, Subject, Verdict, judge};
