//! A running cluster, for the tests of the backend and of the command line: both include this file.

use std::path::PathBuf;

use serde_json::{Value, json};

#[path = "../cluster.rs"]
mod any;

/// A running cluster.
#[derive(Clone, Debug)]
pub struct TestCluster {
    pub dir: PathBuf,
}

/// How the commands are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Here,
    Ssh,
    /// Over slurmrestd; the logs are read where this machine sees the shared folder.
    Rest,
}

/// Every way.
pub const EVERY: [Way; 3] = [Way::Here, Way::Ssh, Way::Rest];
/// The ways by Slurm's commands.
pub const WAYS: [Way; 2] = [Way::Here, Way::Ssh];

impl TestCluster {
    /// The cluster the environment names; says how to have one where it names none.
    pub fn find() -> Option<Self> {
        Self::named("WEFTRUN_TEST_SLURM")
    }

    /// The cluster a variable names.
    pub fn named(variable: &str) -> Option<Self> {
        let cluster = Self { dir: any::find(variable, "shims/sbatch", "slurm")? };
        cluster.sh("mkdir -p \"$CLUSTER/shared/fsx/logs\" && chmod 1777 \"$CLUSTER/shared/fsx/logs\"");
        Some(cluster)
    }

    /// The settings of a target on it.
    pub fn settings(&self, way: Way) -> Vec<(&'static str, Value)> {
        let dir = self.dir.display();
        match way {
            Way::Here => vec![("log-dir", json!(format!("{dir}/shared/fsx/logs")))],
            Way::Ssh => {
                vec![("ssh", json!("head-node")), ("ssh-config", json!(format!("{dir}/ssh/config")))]
            }
            Way::Rest => vec![
                ("rest", json!(format!("http://127.0.0.1:{}", self.rest_port()))),
                ("token-command", json!([format!("{dir}/bin/clusterctl"), "token"])),
                ("log-dir", json!("/fsx/logs")),
                ("path-map", json!({ "/fsx": format!("{dir}/shared/fsx") })),
            ],
        }
    }

    /// Where slurmrestd listens on this machine.
    pub fn rest_port(&self) -> u16 {
        let port = self.sh(". \"$CLUSTER/lib/env\"; echo $REST_PORT");
        port.trim().parse().expect("the cluster has a port for slurmrestd")
    }

    /// The environment in which the local commands are those of the cluster.
    pub fn env(&self, way: Way) -> Vec<(&'static str, String)> {
        let dir = self.dir.display();
        let path = std::env::var("PATH").unwrap_or_default();
        match way {
            Way::Here => vec![("HOME", format!("{dir}/shared/fsx")), ("PATH", format!("{dir}/shims:{path}"))],
            Way::Ssh | Way::Rest => Vec::new(),
        }
    }

    /// A folder for `bin-dir` with a program that stands before Slurm's own, which it finds in `$real`.
    pub fn wrapper(&self, way: Way, name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let nonce =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_nanos();
        let dir = self.dir.join(format!("lossy-{way:?}-{nonce:x}"));
        std::fs::create_dir_all(&dir).expect("a folder");
        let real = match way {
            Way::Here => self.dir.join("shims").join(name).display().to_string(),
            Way::Ssh | Way::Rest => format!("/usr/bin/{name}"),
        };
        let file = dir.join(name);
        let text = format!("#!/bin/bash\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nreal={real}\n{script}\n");
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
        dir
    }

    /// Runs a shell line as root on the machine of the cluster, with `$CLUSTER`; no longer than two minutes.
    pub fn sh(&self, line: &str) -> String {
        any::sh(&self.dir, line)
    }

    /// `clusterctl` with these words.
    pub fn ctl(&self, words: &str) -> String {
        self.sh(&format!("\"$CLUSTER/bin/clusterctl\" {words}"))
    }

    /// How many jobs of a name slurmctld knows.
    pub fn count(&self, name: &str) -> usize {
        self.ctl(&format!("head squeue -h -t all -n {name} -o %i")).lines().count()
    }

    /// Ends every ssh connection to the head node at once: what a dead link looks like from both ends.
    pub fn cut_ssh(&self) {
        self.ctl("head -u root pkill -KILL -u researcher -x sshd");
    }
}
