#![doc = include_str!("../README.md")]
//!
//! # One line at a time
//!
//! ```
//! use weftrun_nccl::{SourceId, TransportMap};
//!
//! let source = std::sync::Arc::new(SourceId::new("rank0.log"));
//! let mut map = TransportMap::new();
//! let line = b"vm:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n";
//! for event in map.read(&source, line) {
//!     println!("{event}");
//! }
//! assert_eq!(&*map.snapshot().pairs()[0].transport, "P2P/CUMEM");
//! ```

#[macro_use]
mod word_enum;

pub mod bandwidth;
mod channel;
mod comm;
pub mod diagnostics;
mod event;
pub mod failure;
pub mod flight_recorder;
pub mod launcher;
mod lines;
mod map;
mod message;
mod network;
mod parser;
pub mod ras;
mod record;
mod signature;
mod source;
mod text;
mod throughput;
pub mod ucx;

pub use channel::{ChannelLine, Kind, Side, Transport};
pub use comm::{CommLine, Step};
pub use event::{Connected, NcclEvent};
pub use lines::{Candidates, Escape, LINE_CAP, OpenLine, measure_escape, pieces, unwrap};
pub use map::{
    Anomalies, Channels, CommView, Devices, DevicesOfEnds, Difference, Doubts, Event, FabricSeen, GdrSeen,
    Holders, NCCL_VERSION, NVLINK_DOMAIN, OwnDiagnostic, PairView, Phase, PluginSeen, Port, RankView,
    SignatureHits, Signatures, Snapshot, SourceIndex, Summary, Totals, Trace, TransportMap, TransportUse,
    Verdict, Who, is_of_one_process, printable,
};
pub use network::{NamedNetwork, Network};
pub use parser::{Entry, Parser};
pub use record::{Level, Writer, writer};
pub use signature::Signature;
pub use source::SourceId;
pub use throughput::{Sample, Series};
