//! The binary itself, run as a user who has rights in one namespace only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::cluster::TestCluster;
use weftrun_testkit::child;

/// Jobs that take all nodes would wait for each other's GPUs, half of each scheduled.
static WHOLE_CLUSTER: Mutex<()> = Mutex::new(());

pub fn whole_cluster() -> MutexGuard<'static, ()> {
    WHOLE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A researcher's shell: an empty home, a kubeconfig, and the binary.
pub struct Shell {
    pub cluster: TestCluster,
    pub home: tempfile::TempDir,
    pub binary: PathBuf,
    pub kubeconfig: PathBuf,
}

/// What a command did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ran {
    /// The events of `-o json`.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
    }

    /// The ranks' lines, each with how often it came.
    pub fn lines(&self) -> BTreeMap<String, usize> {
        let mut lines = BTreeMap::new();
        for event in self.events().iter().filter(|event| event["type"] == "log") {
            *lines.entry(event["text"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        lines
    }

    pub fn ended(&self) -> Value {
        self.events()
            .into_iter()
            .rfind(|event| event["type"] == "ended")
            .unwrap_or_else(|| panic!("{}", self.stderr))
    }
}

impl Shell {
    pub fn of(cluster: TestCluster, who: &str) -> Self {
        // Beside the test binaries lies what `cargo build --workspace --bin weftrun` made.
        let beside = || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("weftrun");
        let binary = std::env::var_os("WEFTRUN_TEST_BINARY").map_or_else(beside, PathBuf::from);
        assert!(binary.is_file(), "no {}: cargo build --workspace --bin weftrun", binary.display());
        let kubeconfig = cluster.kubeconfig(who);
        Self { cluster, home: tempfile::tempdir().unwrap(), binary, kubeconfig }
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.home.path().join(file), text).unwrap();
    }

    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = child::command(program);
        command.args(args).current_dir(self.home.path()).env_clear().env("HOME", self.home.path());
        command.env("PATH", "/usr/bin:/bin").env("KUBECONFIG", &self.kubeconfig).env("NO_COLOR", "1");
        command
    }

    pub fn weftrun(&self, args: &[&str]) -> Ran {
        let ran = Ran::from(self.command(&self.binary, args).stdin(Stdio::null()).output().unwrap());
        eprintln!("weftrun {}: {}", args.join(" "), ran.code);
        ran
    }

    /// Runs kubectl as the researcher.
    pub fn kubectl(&self, args: &[&str]) -> Ran {
        self.command(&self.cluster.state.join("kubectl"), args).output().unwrap().into()
    }

    pub fn delete(&self, handle: &str) {
        let ran = self.weftrun(&["delete", "--yes", handle]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}
