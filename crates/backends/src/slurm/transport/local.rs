//! Programs on this host.

use tokio::process::Command;

/// Returns a shell that reads its program from standard input, in a process group of its own: Ctrl-C at the
/// terminal ends weftrun, not a running `sbatch`.
pub fn command() -> Command {
    let mut command = Command::new("/bin/sh");
    command.process_group(0);
    command
}
