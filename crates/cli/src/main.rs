//! The binary `weftrun`.

// The allocator of musl takes one lock for all threads and is several times as slow as that of glibc (docs/performance.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    weftrun::link();
    weftrun_cli::main_with(weftrun::Registry::linked())
}
