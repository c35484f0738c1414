//! The local backend with real, detached supervisors. This test program is its own `weftrun supervise`, so it has a
//! main of its own: `cargo test -p weftrun-backends --test local [WORD…]` runs the tests whose name holds a word.
#![allow(
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

#[cfg(feature = "local")]
mod bad_input;
#[cfg(feature = "local")]
mod bench;
#[cfg(feature = "local")]
mod clones;
#[cfg(feature = "local")]
mod crashes;

#[cfg(feature = "local")]
fn main() -> std::process::ExitCode {
    bench::main()
}

#[cfg(not(feature = "local"))]
fn main() {}
