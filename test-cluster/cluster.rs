//! A running cluster of several machines: what those of Slurm and of plain hosts have in common.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// The folder of the cluster that a variable names; says how to have one where it names none. `program` is a file that a running cluster has.
pub fn find(variable: &str, program: &str, kind: &str) -> Option<PathBuf> {
    let Some(dir) = std::env::var_os(variable).map(PathBuf::from) else {
        // Not by a macro: what those print of a test that passes is never seen. Once is enough.
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: these tests need a cluster in {variable}; as root, test-cluster/{kind}/ci.sh makes one and runs all"
            );
        });
        return None;
    };
    assert!(dir.join(program).exists(), "{variable}={} is no running cluster", dir.display());
    Some(dir)
}

/// Runs a shell line as root on the machine of the cluster, with `$CLUSTER`; no longer than two minutes.
pub fn sh(cluster: &Path, line: &str) -> String {
    said(Command::new("timeout").args(["120", "bash", "-c", line]).env("CLUSTER", cluster))
}

/// Both outputs of a program.
pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
