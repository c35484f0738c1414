//! weftrun's library for NCCL's profiler interface: how long each collective takes on each rank, by the GPU's clock, without CUDA
//! and without a change of the image. NCCL 2.27 and later load it with `NCCL_PROFILER_PLUGIN=/path/to/it.so`; older releases
//! print one line and go on. `WEFTRUN_NCCL_OUT` names the folder of its files, or `stderr`.
//!
//! The library itself is `plugin`: fixed memory, no locks, one thread that writes, and no error that reaches the job. It is
//! compiled by `build.rs` for the machines that run jobs, whatever this program is compiled for.

#[cfg(any(test, clippy))]
mod plugin;

include!(concat!(env!("OUT_DIR"), "/libraries.rs"));

/// The milliseconds between two lines of the library: 1000 unless it is set.
pub const PERIOD: &str = "WEFTRUN_NCCL_MS";
/// The folder into which the library writes, or `stderr`. Without it the library does nothing.
pub const OUT: &str = "WEFTRUN_NCCL_OUT";

/// Returns the library for a kind of machine (`x86_64`, `aarch64`); none if this build lacks it.
pub fn library(machine: &str) -> Option<&'static [u8]> {
    LIBRARIES.iter().find(|(name, _)| *name == machine).map(|(_, bytes)| *bytes)
}

/// Returns the kinds of machine for which this build has the library.
pub fn machines() -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().map(|(name, _)| *name)
}
