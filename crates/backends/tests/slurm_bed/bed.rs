//! A running bed, and targets on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::{Backend, TargetConfig};

/// A running bed.
#[derive(Clone, Debug)]
pub struct Bed {
    pub dir: PathBuf,
}

/// How the commands are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Here,
    Ssh,
}

pub const WAYS: [Way; 2] = [Way::Here, Way::Ssh];

impl Bed {
    /// The bed the environment names; says how to have one where it names none.
    pub fn find() -> Option<Self> {
        let Some(dir) = std::env::var_os("WEFTRUN_TEST_SLURM").map(PathBuf::from) else {
            eprintln!(
                "skipped: needs a Slurm bed. As root: test-cluster/slurm/install.sh; test-cluster/slurm/ci.sh"
            );
            return None;
        };
        assert!(dir.join("shims/sbatch").exists(), "WEFTRUN_TEST_SLURM={} is no running bed", dir.display());
        let bed = Self { dir };
        bed.sh("mkdir -p \"$BED/shared/fsx/logs\" && chmod 1777 \"$BED/shared/fsx/logs\"");
        Some(bed)
    }

    /// A target on it.
    pub fn target(&self, way: Way) -> TargetConfig {
        let dir = self.dir.display();
        let target = TargetConfig::new("bed", "slurm", self.dir.join("state"));
        match way {
            Way::Here => {
                let mut target = target.with("log-dir", format!("{dir}/shared/fsx/logs"));
                let path = std::env::var("PATH").unwrap_or_default();
                target.env.insert("HOME".to_owned(), format!("{dir}/shared/fsx"));
                target.env.insert("PATH".to_owned(), format!("{dir}/shims:{path}"));
                target
            }
            Way::Ssh => target.with("ssh", "head-node").with("ssh-config", format!("{dir}/ssh/config")),
        }
    }

    pub fn connect(&self, way: Way) -> Arc<dyn Backend> {
        Arc::new(Slurm::new(&self.target(way)).expect("the target is good"))
    }

    /// A program in the bed's `lossy` folder, which stands before Slurm's own.
    pub fn wrapper(&self, way: Way, name: &str, script: &str) -> TargetConfig {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = self.dir.join(format!("lossy-{way:?}-{:08x}", fastrand::u32(..)));
        std::fs::create_dir_all(&dir).expect("a folder");
        let real = match way {
            Way::Here => self.dir.join("shims").join(name).display().to_string(),
            Way::Ssh => format!("/usr/bin/{name}"),
        };
        let file = dir.join(name);
        std::fs::write(
            &file,
            format!("#!/bin/bash\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nreal={real}\n{script}\n"),
        )
        .expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
        self.target(way).with("bin-dir", dir.display().to_string())
    }

    /// Runs a shell line as root on the machine of the bed, with `$BED`.
    pub fn sh(&self, line: &str) -> String {
        let output =
            Command::new("bash").arg("-c").arg(line).env("BED", &self.dir).output().expect("bash runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// `bedctl` with these words.
    pub fn ctl(&self, words: &str) -> String {
        self.sh(&format!("\"$BED/bin/bedctl\" {words}"))
    }

    /// How many jobs of a name slurmctld knows.
    pub fn count(&self, name: &str) -> usize {
        self.ctl(&format!("head squeue -h -t all -n {name} -o %i")).lines().count()
    }
}

/// The path of a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
