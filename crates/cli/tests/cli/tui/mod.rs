//! The terminal UI as a user has it: the real binary in a real terminal.

mod contents;
mod journeys;
mod logs;
mod manners;
mod targets;
pub mod tmux;
mod ways;
mod wide;
