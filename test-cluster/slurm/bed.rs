//! A running bed, for the tests of the backend and of the command line: both include this file.

use std::path::PathBuf;
use std::process::Command;

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
        Self::named("WEFTRUN_TEST_SLURM")
    }

    /// The bed a variable names.
    pub fn named(variable: &str) -> Option<Self> {
        let Some(dir) = std::env::var_os(variable).map(PathBuf::from) else {
            eprintln!(
                "skipped: needs a Slurm bed in {variable}; as root, test-cluster/slurm/ci.sh makes one and runs all"
            );
            return None;
        };
        assert!(dir.join("shims/sbatch").exists(), "{variable}={} is no running bed", dir.display());
        let bed = Self { dir };
        bed.sh("mkdir -p \"$BED/shared/fsx/logs\" && chmod 1777 \"$BED/shared/fsx/logs\"");
        Some(bed)
    }

    /// The settings of a target on it.
    pub fn settings(&self, way: Way) -> Vec<(&'static str, String)> {
        let dir = self.dir.display();
        match way {
            Way::Here => vec![("log-dir", format!("{dir}/shared/fsx/logs"))],
            Way::Ssh => vec![("ssh", "head-node".to_owned()), ("ssh-config", format!("{dir}/ssh/config"))],
        }
    }

    /// The environment in which the local commands are those of the bed.
    pub fn env(&self, way: Way) -> Vec<(&'static str, String)> {
        let dir = self.dir.display();
        let path = std::env::var("PATH").unwrap_or_default();
        match way {
            Way::Here => vec![("HOME", format!("{dir}/shared/fsx")), ("PATH", format!("{dir}/shims:{path}"))],
            Way::Ssh => Vec::new(),
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
            Way::Ssh => format!("/usr/bin/{name}"),
        };
        let file = dir.join(name);
        let text = format!("#!/bin/bash\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nreal={real}\n{script}\n");
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
        dir
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

    /// Ends every ssh connection to the head node at once: what a dead link looks like from both ends.
    pub fn cut_ssh(&self) {
        self.ctl("head -u root pkill -KILL -u researcher -x sshd");
    }
}
