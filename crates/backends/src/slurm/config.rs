//! The target's settings (`[target.NAME]` with `backend = "slurm"`) and a job's own (`[backend.slurm]` in a job file).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use weftrun_core::backend::TargetConfig;
use weftrun_core::spec::{JobSpec, Tasks};
use weftrun_core::{Error, ErrorKind, Result};

use super::BACKEND;
use crate::settings::{merged, of_job, seconds, split};

/// Settings of a Slurm target. Every key may be written with `-` or `_`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct SlurmTarget {
    /// Host for `ssh`, as in `~/.ssh/config`; without it the commands run on this host.
    pub ssh: Option<String>,
    /// Another ssh configuration file than the user's (`ssh -F`).
    pub ssh_config: Option<String>,
    /// Further options for `ssh`, one word each.
    pub ssh_args: Vec<String>,
    /// Share one connection (`ControlMaster`), unless `false`, where the server forbids several sessions.
    pub ssh_share: Option<bool>,
    /// Folder of `sbatch` on the cluster, if it is not in the PATH of a non-login shell.
    pub bin_dir: Option<String>,
    /// Cluster for `-M`, where one head node serves several.
    pub cluster: Option<String>,
    pub(super) log_dir: Option<String>,
    pub(super) poll_seconds: Option<f64>,
    pub(super) command_seconds: Option<u64>,
    /// Seconds that a submission without an answer is searched for before it counts as not queued; derived
    /// from slurmctld's own timeouts by default.
    pub absence_seconds: Option<u64>,
    pub(super) settle_seconds: Option<f64>,
    /// Address of slurmrestd (`http://head:6820`), which is then used instead of Slurm's commands.
    pub rest: Option<String>,
    /// User of the token, if the token does not name one.
    pub rest_user: Option<String>,
    /// Environment variable that holds a token; `SLURM_JWT` by default.
    pub token_env: Option<String>,
    /// File that holds a token, read again when the token expires.
    pub token_file: Option<PathBuf>,
    /// Command that prints a token (`["ssh", "head", "scontrol", "token"]`).
    pub token_command: Vec<String>,
    /// CA certificates (PEM) of an `https` address.
    pub ca_file: Option<PathBuf>,
    /// Send the token unencrypted to another machine.
    pub insecure: bool,
    /// Folders of the cluster that are also mounted here: the cluster's path, then this machine's.
    pub path_map: BTreeMap<String, String>,
    /// Defaults for jobs, as they were given.
    #[serde(skip)]
    pub(super) job: Map<String, Value>,
}

/// Settings of a job on Slurm: in `[backend.slurm]` of a job file, or in the target for all jobs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct JobSettings {
    /// Partition, if the job sets no `queue`.
    pub partition: Option<String>,
    pub account: Option<String>,
    /// QOS, if the job sets no `priority`.
    pub qos: Option<String>,
    pub reservation: Option<String>,
    /// Constraint instead of the one derived from the instance type.
    pub constraint: Option<String>,
    /// Whole nodes; by default derived from the requested GPUs and the fabric.
    pub exclusive: Option<bool>,
    /// `pyxis`, `enroot`, `docker`, `apptainer`, `singularity` or `none`; by default pyxis for a job with an
    /// image.
    pub container: Option<Container>,
    /// Whether the home directory is mounted in the container.
    pub mount_home: bool,
    /// `pmix` or `pmi2` for `launch = "mpi"`.
    pub mpi: Option<String>,
    /// Array of jobs, as `sbatch --array`.
    pub array: Option<String>,
    /// Dependency, as `sbatch --dependency`.
    pub dependency: Option<String>,
    /// Not before this time, as `sbatch --begin`.
    pub begin: Option<String>,
    /// Warning signal before the time limit, as `NAME@SECONDS`: delivered to the ranks, for a last
    /// checkpoint.
    pub signal: Option<String>,
    /// Queue the job again after a node failure; by default as the job's restart policy requires.
    pub requeue: Option<bool>,
    /// One log file for each task instead of one for all: `true`, or where the files are, with the patterns of
    /// `srun --output`, from the log folder (`%j/%N-%t.log`).
    pub rank_logs: Option<RankLogs>,
    /// Shell of the script with its options: `/bin/bash -l` is a login shell.
    pub shell: Option<String>,
    /// Which part of the submitting environment the job inherits: `all` or `none`.
    pub export: Option<String>,
    /// Shell lines that run on the first node before the ranks start (`module load …`).
    pub setup: Vec<String>,
    /// Nodes that the job must include, as `sbatch --nodelist`.
    pub nodelist: Option<String>,
    /// Nodes that the job must not include, as `sbatch --exclude`.
    pub exclude: Option<String>,
    /// Largest number of switches between the nodes, as `sbatch --switches`.
    pub switches: Option<String>,
    /// Number of nodes in one block of the topology, as `sbatch --segment`.
    pub segment: Option<u32>,
    /// Licenses, as `sbatch --licenses`.
    pub licenses: Option<String>,
    /// Address that receives a mail when the job has ended or failed, or at the events of `mail-type`.
    pub mail: Option<String>,
    /// When a mail is sent, as `sbatch --mail-type`.
    pub mail_type: Option<String>,
    /// Workload characterisation key, as `sbatch --wckey`.
    pub wckey: Option<String>,
    /// Further `sbatch` options, each `--name=value`.
    pub sbatch: Vec<String>,
    /// Further `srun` options, each `--name=value`.
    pub srun: Vec<String>,
    /// Folder on the cluster that holds secrets: the file `SECRET/KEY` is read on the node where the job
    /// starts.
    pub secrets_dir: Option<String>,
}

/// Where the tasks of a job write their output.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum RankLogs {
    /// Whether each has a file beside the job's log.
    Each(bool),
    /// Files by this pattern.
    Files(String),
}

/// The runtime that starts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// `srun --container-image`, NVIDIA's plugin.
    Pyxis,
    /// The `enroot` command.
    Enroot,
    /// The `docker` command.
    Docker,
    /// The `apptainer` command.
    Apptainer,
    /// The `singularity` command, which takes the same options.
    Singularity,
    /// The image is ignored: the programs are installed on the nodes.
    None,
}

impl SlurmTarget {
    /// Reads and checks the settings of a target.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the key.
    pub fn of(target: &TargetConfig) -> Result<Self> {
        let (own, of_jobs) = split::<Self, JobSettings>(target, "a Slurm target")?;
        let mut settings: Self = read(&target.name, own)?;
        check_array(&read(&target.name, of_jobs.clone())?).map_err(|why| {
            let message = format!("target `{}`: {why}", target.name);
            Error::new(ErrorKind::InvalidConfig, message).hint(ARRAYS)
        })?;
        settings.job = of_jobs;
        settings.check(&target.name)?;
        Ok(settings)
    }

    fn check(&self, target: &str) -> Result<()> {
        let bad = |key: &str, value: &str, why: &str| {
            Err(Error::new(ErrorKind::InvalidConfig, format!("target `{target}`: `{key}` {why}"))
                .with("value", value.escape_debug()))
        };
        let texts = [
            ("ssh", self.ssh.as_deref()),
            ("bin-dir", self.bin_dir.as_deref()),
            ("cluster", self.cluster.as_deref()),
            ("log-dir", self.log_dir.as_deref()),
        ];
        for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            if value.is_empty() || value.starts_with('-') {
                return bad(key, value, "may not be empty or begin with `-`");
            }
            if value.chars().any(char::is_control) {
                return bad(key, value, "may not hold control characters");
            }
        }
        if self.log_dir().contains(['%', '\\']) {
            // With a backslash, sbatch replaces nothing in the whole path (sbatch(1), "filename pattern").
            return bad(
                "log-dir",
                self.log_dir(),
                "may not hold `%` or `\\`, which Slurm treats as patterns; `rank-logs = \"%j/%N-%t.log\"` makes a \
                 folder for each job",
            );
        }
        let Some(rest) = &self.rest else { return Ok(()) };
        if !rest.starts_with("http://") && !rest.starts_with("https://") {
            return bad("rest", rest, "is the address of slurmrestd, such as `https://head:6820`");
        }
        if !self.insecure && crate::requests::is_clear(rest) {
            return bad(
                "rest",
                rest,
                "would send the token unencrypted: use https, or set `insecure = true`",
            );
        }
        if !self.log_dir().starts_with('/') {
            return bad(
                "log-dir",
                self.log_dir(),
                "must begin with `/` where `rest` is set: slurmrestd has no home directory",
            );
        }
        if let Some(cluster) = &self.cluster {
            return bad("cluster", cluster, "cannot be chosen over slurmrestd, which serves one cluster");
        }
        Ok(())
    }

    /// Returns the folder on the cluster for logs and exit files, which must be visible on every node; a relative
    /// one starts at the home directory.
    pub fn log_dir(&self) -> &str {
        self.log_dir.as_deref().unwrap_or("weftrun")
    }

    /// Returns the log folder as it is accessed: on the cluster, or on this machine if `path-map` contains
    /// it. None where only slurmrestd is available.
    pub fn reached_log_dir(&self) -> Option<String> {
        self.reached(self.log_dir())
    }

    /// Returns the path under which weftrun reads a file of the cluster; none if the file cannot be read.
    pub fn reached(&self, path: &str) -> Option<String> {
        if self.rest.is_none() || self.ssh.is_some() {
            return Some(path.to_owned());
        }
        let mapped = |(theirs, ours): (&String, &String)| {
            let rest = path.strip_prefix(theirs.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| (theirs.len(), format!("{}{rest}", ours.trim_end_matches('/'))))
        };
        // The longest prefix that matches.
        self.path_map.iter().filter_map(mapped).max().map(|(_, folder)| folder)
    }

    /// Returns the time between two queries of the queue.
    pub fn poll(&self) -> Duration {
        seconds(self.poll_seconds, 2.0, 2.0, 3600.0)
    }

    /// Returns the time limit of one command.
    pub fn command_timeout(&self) -> Duration {
        Duration::from_secs(self.command_seconds.unwrap_or(60).clamp(1, 3600))
    }

    /// Returns the time that a log is still read after its job ended without writing its last line.
    pub fn settle(&self) -> Duration {
        seconds(self.settle_seconds, 3.0, 0.0, 600.0)
    }

    /// Returns the settings of a job: its own over the target's.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] naming the key.
    pub fn job(&self, spec: &JobSpec) -> Result<JobSettings> {
        let bad = |what: String| Error::new(ErrorKind::InvalidSpec, what);
        let own = of_job::<JobSettings>(spec, BACKEND)?;
        let read = |own| {
            serde_json::from_value::<JobSettings>(Value::Object(own))
                .map_err(|error| bad(format!("`backend.slurm`: {error}")))
        };
        read(own.clone())?;
        let settings = read(merged(&self.job, own, &["setup", "sbatch", "srun"]))?;
        check_array(&settings).map_err(|why| bad(why).hint(ARRAYS))?;
        Ok(settings)
    }
}

const ARRAYS: &str = "write `0-31`, `1,3,5-7`, `0-100:10`, or `0-31%4` for at most four at a time";

fn check_array(settings: &JobSettings) -> std::result::Result<(), String> {
    match &settings.array {
        Some(tasks) if Tasks::parse(tasks).is_none() => {
            Err(format!("`array`: `{tasks}` is not a list of tasks"))
        }
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(target: &str, keys: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(keys))
        .map_err(|error| Error::new(ErrorKind::InvalidConfig, format!("target `{target}`: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rest(further: &[(&str, Value)]) -> Result<SlurmTarget> {
        let target = TargetConfig::new("t", "slurm", "/state")
            .with("rest", "http://localhost:6820")
            .with("log-dir", "/fsx/team/logs");
        SlurmTarget::of(&further.iter().fold(target, |target, (key, value)| target.with(*key, value.clone())))
    }

    #[test]
    fn the_longest_mapped_folder_is_where_logs_are_read() {
        let here = |further: &[(&str, Value)]| rest(further).expect("good settings").reached_log_dir();
        let map = json!({"/fsx": "/mnt/fsx/", "/fsx/team/": "/mnt/team", "/fsx/team/logs2": "/wrong"});
        assert_eq!(here(&[("path-map", map)]).as_deref(), Some("/mnt/team/logs"));
        assert_eq!(here(&[("path-map", json!({"/fs": "/mnt"}))]), None, "half a name is no folder");
        assert_eq!(here(&[]), None);
        assert_eq!(here(&[("ssh", json!("head"))]).as_deref(), Some("/fsx/team/logs"));
    }

    #[test]
    fn what_slurmrestd_cannot_be_asked_is_refused() {
        for (key, value, said) in [
            ("rest", json!("head:6820"), "address"),
            ("rest", json!("http://head:6820"), "unencrypted"),
            ("rest", json!("http://localhost.evil.example:6820"), "unencrypted"),
            ("log-dir", json!("weftrun"), "must begin with `/`"),
            ("cluster", json!("b"), "one cluster"),
        ] {
            let refused = rest(&[(key, value.clone())]).expect_err("refused");
            assert!(refused.message().contains(said), "{key} = {value}: {refused}");
        }
        assert!(rest(&[("rest", json!("http://head:6820")), ("insecure", json!(true))]).is_ok());
        assert!(rest(&[("rest", json!("http://[::1]:6820"))]).is_ok());
    }
}
