//! Replays recorded NCCL logs, unchanged or scaled to any number of ranks, with the expected transport map.
//!
//! ```
//! use weftrun_replay::{Capture, Shape};
//!
//! let capture = Capture::shipped("socket_2x2")?;
//! let wide = capture.scale(Shape::new(4, 8))?;
//! let mut log = Vec::new();
//! wide.write_log(31, &mut log)?;
//! assert!(String::from_utf8_lossy(&log).contains("rank 31 nranks 32 cudaDev 7"));
//! assert_eq!(wide.expected().verdict_fabric, "socket");
//! # Ok::<(), weftrun_core::Error>(())
//! ```
//!
//! A [`Replay`] writes the output of each rank: as a log, as a timed file for the POSIX sh
//! [player](Replay::script), or as one self-contained script that runs in a busybox pod, under `srun`, and on
//! the local backend. It streams: 16,384 ranks of 32 channels need no more memory than one.

mod backend;
mod capture;
mod expected;
mod player;
mod scale;
mod template;
mod topology;

pub use backend::{NAME, ReplayBackend};
pub use capture::{Capture, SHIPPED, TimedLine};
pub use expected::{Expected, Pair};
pub use player::PLAYER;
pub use scale::{Replay, Shape};
