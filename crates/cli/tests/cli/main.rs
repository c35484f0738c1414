//! The real binary, run as a user runs it: what it prints, where, and with which exit code.

mod adversity;
mod cases;
mod commands_in_pages;
mod explain;
mod hostile;
mod import;
mod killed;
mod lint;
mod markdown;
mod mutate;
mod pages;
mod place;
mod promises;
mod render;
mod upgrade;
