//! A running bed of plain hosts, for the tests of the backend and of the command line: both include this file.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

/// A running bed.
#[derive(Clone, Debug)]
pub struct Bed {
    pub dir: PathBuf,
}

impl Bed {
    /// The bed that `WEFTRUN_TEST_HOSTS` names; says how to have one where it names none.
    pub fn find() -> Option<Self> {
        let Some(dir) = std::env::var_os("WEFTRUN_TEST_HOSTS").map(PathBuf::from) else {
            // Not by a macro: what those print of a test that passes is never seen. Once is enough.
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: these tests need plain hosts in WEFTRUN_TEST_HOSTS; as root, test-cluster/hosts/ci.sh makes them and runs all"
                );
            });
            return None;
        };
        assert!(dir.join("bin/bedctl").exists(), "WEFTRUN_TEST_HOSTS={} is no running bed", dir.display());
        Some(Self { dir })
    }

    /// The ssh configuration that reaches its hosts.
    pub fn ssh_config(&self) -> String {
        self.dir.join("ssh/config").display().to_string()
    }

    /// Runs a shell line as root on the machine of the bed, with `$BED`; no longer than two minutes.
    pub fn sh(&self, line: &str) -> String {
        let mut command = Command::new("timeout");
        command.args(["120", "bash", "-c", line]).env("BED", &self.dir);
        let output = command.output().expect("bash runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// `bedctl` with these words.
    pub fn ctl(&self, words: &str) -> String {
        self.sh(&format!("\"$BED/bin/bedctl\" {words}"))
    }

    /// A shell line of researcher on a host.
    pub fn on(&self, host: &str, line: &str) -> String {
        let mut command = Command::new(self.dir.join("bin/bedctl"));
        let output = command.args(["as", host, "sh", "-c", line]).output().expect("bedctl runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}
