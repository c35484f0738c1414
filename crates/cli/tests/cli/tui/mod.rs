//! The terminal UI as a user has it: the real binary in a real terminal.

mod journeys;
mod logs;
mod manners;
mod targets;
pub mod tmux;
mod truth;
mod ways;
mod wide;
