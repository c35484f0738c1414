//! A running cluster of plain hosts, for the tests of the backend and of the command line: both include this file.

use std::path::PathBuf;
use std::process::Command;

#[path = "../cluster.rs"]
mod any;

/// A running cluster.
#[derive(Clone, Debug)]
pub struct TestCluster {
    pub dir: PathBuf,
}

impl TestCluster {
    /// The cluster that `WEFTRUN_TEST_HOSTS` names; says how to have one where it names none.
    pub fn find() -> Option<Self> {
        any::find("WEFTRUN_TEST_HOSTS", "bin/clusterctl", "hosts").map(|dir| Self { dir })
    }

    /// The ssh configuration that reaches its hosts.
    pub fn ssh_config(&self) -> String {
        self.dir.join("ssh/config").display().to_string()
    }

    /// Runs a shell line as root on the machine of the cluster, with `$CLUSTER`; no longer than two minutes.
    pub fn sh(&self, line: &str) -> String {
        any::sh(&self.dir, line)
    }

    /// `clusterctl` with these words.
    pub fn ctl(&self, words: &str) -> String {
        self.sh(&format!("\"$CLUSTER/bin/clusterctl\" {words}"))
    }

    /// A shell line of researcher on a host.
    pub fn on(&self, host: &str, line: &str) -> String {
        any::said(Command::new(self.dir.join("bin/clusterctl")).args(["as", host, "sh", "-c", line]))
    }
}
