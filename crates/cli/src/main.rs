//! The binary `weftrun`.

fn main() -> std::process::ExitCode {
    weftrun::link();
    weftrun_cli::main_with(weftrun::Registry::linked())
}
