//! Targets on running hosts. Tests take turns: each uses the hosts as if it were alone.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use weftrun_backends::hosts::Hosts;
use weftrun_core::backend::{Backend, TargetConfig};

#[path = "../../../../test-cluster/hosts/cluster.rs"]
mod running;

pub use running::TestCluster;

static TURN: Mutex<()> = Mutex::const_new(());

impl TestCluster {
    /// Waits until no other test uses the hosts, and takes away what a failed one left.
    pub async fn turn(&self) -> MutexGuard<'static, ()> {
        let turn = TURN.lock().await;
        for host in ["a", "b", "c", "d"] {
            self.on(
                host,
                "for f in ~/.weftrun/hosts/*/jobs/*/go-*/supervisor /small/weftrun/hosts/*/jobs/*/go-*/supervisor; do\n\
                 [ -f $f ] || continue; read -r pid rest < $f; kill -9 $pid; id=${f%/go-*}; id=${id##*/}\n\
                 for p in $(grep -lF WEFTRUN_SUBMISSION=$id /proc/[0-9]*/environ); do p=${p#/proc/}; kill -9 ${p%/environ}; done\n\
                 done 2> /dev/null; rm -rf ~/.weftrun /small/*\n\
                 [ ! -S /var/run/docker.sock ] || for c in $(docker ps -q); do docker kill $c; done",
            );
        }
        turn
    }

    /// A target of all four hosts.
    pub fn target(&self) -> TargetConfig {
        TargetConfig::new("rack", "hosts", self.dir.join("state"))
            .with("hosts", json!(["a", "b", "c", "d"]))
            .with("ssh-config", self.ssh_config())
            .with("grace", 2)
            .with("poll-seconds", 0.5)
    }

    pub fn connect(&self) -> Arc<dyn Backend> {
        connect(&self.target())
    }

    /// A folder for the PATH with an `ssh` that runs a script instead; `$program` is a file with what would be sent, and
    /// `real` runs the true one.
    pub fn ssh(&self, script: &str) -> (tempfile::TempDir, TargetConfig) {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a folder");
        let file: PathBuf = dir.path().join("ssh");
        let text = format!(
            "#!/bin/bash\nreal() {{ /usr/bin/ssh \"${{words[@]}}\"; }}\nwords=(\"$@\")\nprogram=$(mktemp)\ntrap 'rm -f \"$program\"' EXIT\ncat > \"$program\"\n{script}\n"
        );
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
        let mut target = self.target();
        let path = weftrun_testkit::child::path();
        target.env.insert("PATH".to_owned(), format!("{}:{path}", dir.path().display()));
        (dir, target)
    }
}

pub fn connect(target: &TargetConfig) -> Arc<dyn Backend> {
    Arc::new(Hosts::new(target).expect("the target is good"))
}
