//! The real binary, run as a user runs it: what it prints, where, and with which exit code.

mod adversity;
mod bad_input;
mod bad_jobs;
mod captures;
mod commands_in_pages;
mod config;
mod crashes;
mod demo;
mod exit_codes;
mod hostile;
mod init;
mod job_files;
mod killed;
mod markdown;
mod pages;
mod place;
mod promises;
mod reference;
mod schemas;
mod transport;
mod tui;
mod upgrade;
mod verbs;
