//! weftrun with one more backend: every verb and the terminal UI know it.

// Naming the crate keeps its backend in the program.
use acme_spool as _;

fn main() -> std::process::ExitCode {
    weftrun::link();
    weftrun_cli::main_with(weftrun::Registry::linked())
}
