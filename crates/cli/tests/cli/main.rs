//! The real binary, run as a user runs it: what it prints, where, and with which exit code.

mod adversity;
mod commands_in_pages;
mod hostile;
mod killed;
mod markdown;
mod pages;
mod place;
mod promises;
mod transport;
mod upgrade;
