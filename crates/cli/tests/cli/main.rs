//! The real binary, run as a user runs it: what it prints, where, and with which exit code.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

mod adversity;
#[cfg(feature = "mcp")]
mod agents;
mod bad_input;
mod bad_jobs;
mod bandwidth;
mod browser;
mod captures;
mod cases;
mod chromium;
mod code;
mod commands_in_pages;
mod completions;
mod config;
mod crashes;
mod demo;
mod exit_codes;
mod explain;
mod habits;
mod health;
mod hostile;
mod images;
mod import;
mod init;
mod job_files;
mod killed;
mod limits;
mod lint;
mod markdown;
mod mutate;
mod named_files;
mod nodes;
mod pages;
mod place;
mod reference;
mod render;
mod report;
mod runai;
mod schemas;
mod security;
mod state;
mod tasks;
mod terminal;
mod transport;
mod tui;
mod upgrade;
mod verbs;
mod verify;
mod why;
