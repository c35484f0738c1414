//! The target's settings (`[target.NAME]` with `backend = "hosts"`) and a job's own (`[backend.hosts]` in a job file).

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use weftrun_core::backend::TargetConfig;
use weftrun_core::spec::JobSpec;
use weftrun_core::text::nodelist;
use weftrun_core::{Error, ErrorKind, Result};

use super::BACKEND;
use crate::files;
use crate::settings::{merged, of_job, seconds, split};

/// Largest number of hosts of a target.
const MOST_HOSTS: usize = 4096;
/// Largest hostfile that is read.
const MOST_HOSTFILE: u64 = 1 << 20;

/// Settings of a target of plain hosts. Every key may be written with `-` or `_`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct HostsTarget {
    /// The hosts, as `ssh` names them: `["a", "b"]`, or lists such as `"gpu-[1-4]"`.
    pub hosts: Vec<String>,
    /// A hostfile on this machine, one host a line, as Open MPI reads it (`gpu-1 slots=8`).
    pub hostfile: Option<PathBuf>,
    /// Ranks that a host may run, where the hostfile sets none; any number if absent.
    pub slots: Option<u32>,
    /// User on the hosts, where `~/.ssh/config` sets none.
    pub user: Option<String>,
    /// Hosts to go through, as `ssh -J`.
    pub jump: Option<String>,
    /// Another ssh configuration file than the user's (`ssh -F`).
    pub ssh_config: Option<String>,
    /// Further options for `ssh`, one word each.
    pub ssh_args: Vec<String>,
    /// Share one connection to a host (`ControlMaster`); yes if absent.
    pub ssh_share: Option<bool>,
    folder: Option<String>,
    connect_seconds: Option<u32>,
    poll_seconds: Option<f64>,
    command_seconds: Option<u64>,
    grace: Option<u32>,
    keep_days: Option<u32>,
    /// Defaults for jobs, as they were given.
    #[serde(skip)]
    pub(super) job: Map<String, Value>,
    /// Number of ranks that each host may run, by the hostfile.
    #[serde(skip)]
    limits: Vec<(String, Option<u32>)>,
}

/// Settings of a job on plain hosts: in `[backend.hosts]` of a job file, or in the target for all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct JobSettings {
    /// The hosts that the job runs on, in the order of its ranks; by default the first that are free.
    #[serde(deserialize_with = "list")]
    pub nodelist: Option<String>,
    /// What starts the containers of a job with an image.
    pub container: Option<Container>,
    /// Network interface over which the ranks find each other (`ens192`).
    pub interface: Option<String>,
    /// `own`: `mpirun` uses the keys that the hosts have for each other; `job`: a key is made for each job and removed after it.
    pub ssh_keys: Option<SshKeys>,
    /// How long a job waits for hosts (`30m`), where too few are free.
    pub wait_for_hosts: Option<String>,
    /// Shell lines that run on each host before the ranks start (`module load …`).
    pub setup: Vec<String>,
    /// Further options for `mpirun`, one word each.
    pub mpirun: Vec<String>,
    /// Further options for `docker run`, `podman run` or `apptainer exec`, one word each.
    pub container_args: Vec<String>,
}

/// What starts containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// The `docker` command.
    #[default]
    Docker,
    /// The `podman` command, also without root.
    Podman,
    /// The `apptainer` command.
    Apptainer,
    /// The image is ignored: the programs are installed on the hosts.
    None,
}

/// The keys with which `mpirun` reaches the other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SshKeys {
    /// Those that the hosts have.
    #[default]
    Own,
    /// One made for the job.
    Job,
}

impl HostsTarget {
    /// Reads and checks the settings of a target, and its hostfile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming the key.
    pub fn of(target: &TargetConfig) -> Result<Self> {
        let (own, of_jobs) = split::<Self, JobSettings>(target, "a target of plain hosts")?;
        let bad =
            |what: String| Error::new(ErrorKind::InvalidConfig, format!("target `{}`: {what}", target.name));
        let mut settings: Self = read(own).map_err(bad)?;
        read::<JobSettings>(of_jobs.clone()).and_then(|job| job.check()).map_err(bad)?;
        settings.job = of_jobs;
        for (key, value) in [
            ("folder", settings.folder.as_ref()),
            ("user", settings.user.as_ref()),
            ("jump", settings.jump.as_ref()),
        ] {
            if value.is_some_and(|value| {
                value.is_empty()
                    || value.starts_with('-')
                    || value.chars().any(|c| c.is_control() || c == '\'')
            }) {
                return Err(bad(format!(
                    "`{key}` may not be empty, begin with `-`, or hold control characters or `'`"
                )));
            }
        }
        // It is in settings of ssh and Open MPI, and in lines of several shells, where nothing can quote it.
        if !settings.folder().chars().all(|c| c.is_alphanumeric() || "._-/+@=".contains(c)) {
            return Err(bad(format!(
                "`folder`: `{}` may hold letters, digits and `._-/+@=` only; a relative one is below the home directory",
                settings.folder().escape_debug()
            )));
        }
        settings.limits = settings.read_hosts().map_err(bad)?;
        Ok(settings)
    }

    /// Returns the hosts in order, each with the number of ranks that it may run.
    pub fn hosts(&self) -> &[(String, Option<u32>)] {
        &self.limits
    }

    fn read_hosts(&self) -> std::result::Result<Vec<(String, Option<u32>)>, String> {
        let mut hosts: Vec<(String, Option<u32>)> = Vec::new();
        let named = self.hosts.iter().flat_map(|list| nodelist::expand(list)).map(|name| (name, self.slots));
        hosts.extend(named.take(MOST_HOSTS + 1));
        if let Some(path) = &self.hostfile {
            let text = files::read_text(path, MOST_HOSTFILE)
                .map_err(|error| format!("the hostfile {} cannot be read: {error}", path.display()))?;
            for (number, line) in text.lines().enumerate() {
                let line = line.split('#').next().unwrap_or_default();
                let mut words = line.split_whitespace();
                let Some(name) = words.next() else { continue };
                let mut slots = self.slots;
                for word in words {
                    let Some((key, value)) = word.split_once('=') else {
                        return Err(format!(
                            "line {} of the hostfile: `{word}` is not `slots=N`",
                            number + 1
                        ));
                    };
                    if key == "slots" {
                        slots = Some(value.parse().map_err(|_| {
                            format!("line {} of the hostfile: `{value}` is not a number of slots", number + 1)
                        })?);
                    }
                }
                hosts.push((name.to_owned(), slots));
            }
        }
        if hosts.len() > MOST_HOSTS {
            return Err(format!("more than {MOST_HOSTS} hosts"));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (name, _) in &hosts {
            check_host(name)?;
            if !seen.insert(name) {
                return Err(format!("host `{name}` is named twice"));
            }
        }
        Ok(hosts)
    }

    /// Returns the folder on the hosts for jobs and logs; a relative one starts at the home directory.
    pub fn folder(&self) -> &str {
        self.folder.as_deref().unwrap_or(".weftrun").trim_end_matches('/')
    }

    /// Returns the seconds after which a host that does not answer is given up.
    pub fn connect_seconds(&self) -> u32 {
        self.connect_seconds.unwrap_or(5).clamp(1, 120)
    }

    /// Returns the longest time between two queries of a running job.
    pub fn poll(&self) -> Duration {
        seconds(self.poll_seconds, 2.0, 0.2, 3600.0)
    }

    /// Returns the time limit of one program on a host.
    pub fn command_timeout(&self) -> Duration {
        Duration::from_secs(self.command_seconds.unwrap_or(60).clamp(1, 3600))
    }

    /// Returns the seconds between TERM and KILL.
    pub fn grace(&self) -> u32 {
        self.grace.unwrap_or(10)
    }

    /// Returns the days that an ended job and its logs are kept on the hosts.
    pub fn keep_days(&self) -> u32 {
        self.keep_days.unwrap_or(30)
    }

    /// Returns the settings of a job: its own over the target's.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] naming the key.
    pub fn job(&self, spec: &JobSpec) -> Result<JobSettings> {
        let own = of_job::<JobSettings>(spec, BACKEND)?;
        let in_job = |what: String| Error::new(ErrorKind::InvalidSpec, format!("`backend.hosts`: {what}"));
        read::<JobSettings>(own.clone()).and_then(|own| own.check()).map_err(in_job)?;
        read(merged(&self.job, own, &["setup", "mpirun", "container-args"])).map_err(in_job)
    }
}

impl JobSettings {
    fn check(&self) -> std::result::Result<(), String> {
        if let Some(name) = &self.interface
            && (name.is_empty()
                || name.len() > 15
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c))
                || name.starts_with('-'))
        {
            return Err(format!(
                "`interface`: `{}` is not the name of a network interface",
                name.escape_debug()
            ));
        }
        for name in self.nodelist.iter().flat_map(|list| nodelist::expand(list)) {
            check_host(&name).map_err(|what| format!("`nodelist`: {what}"))?;
        }
        self.wait().map(drop)
    }

    /// Returns how long the job waits for hosts.
    ///
    /// # Errors
    /// The text of an error, where the setting is no duration.
    pub fn wait(&self) -> std::result::Result<Duration, String> {
        let Some(text) = &self.wait_for_hosts else { return Ok(Duration::ZERO) };
        weftrun_core::text::parse_duration(text).ok_or_else(|| {
            format!("`wait-for-hosts`: `{}` is not a duration such as `30m`", text.escape_debug())
        })
    }
}

/// Refuses what is not the name of a host, after lists were expanded.
fn check_host(name: &str) -> std::result::Result<(), String> {
    let shown = name.escape_debug();
    if name.contains(['[', ']']) {
        return Err(format!(
            "`{shown}` is not a list of hosts such as `gpu-[1-4,7]`, the lower number first"
        ));
    }
    let good = |c: char| c.is_alphanumeric() || "._-@:".contains(c);
    match name.is_empty() || name.starts_with('-') || !name.chars().all(good) {
        true => Err(format!("`{shown}` is not the name of a host")),
        false => Ok(()),
    }
}

/// Reads settings; the text of an error names the key.
fn read<T: serde::de::DeserializeOwned>(settings: Map<String, Value>) -> std::result::Result<T, String> {
    serde_json::from_value(Value::Object(settings.clone())).map_err(|whole: serde_json::Error| {
        let alone = |(key, value): (String, Value)| {
            let one = Map::from_iter([(key.clone(), value)]);
            let error = serde_json::from_value::<T>(Value::Object(one)).err()?;
            Some(format!("`{key}`: {error}"))
        };
        settings.into_iter().find_map(alone).unwrap_or_else(|| whole.to_string())
    })
}

/// Reads names of hosts: a text, or a list of them.
fn list<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    let names = match Value::deserialize(from)? {
        Value::String(text) => Some(text),
        Value::Array(items) => {
            let names: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            names.map(|names| names.join(","))
        }
        _ => None,
    };
    let expected = "it is a list of hosts (`[\"a\", \"b\"]`) or one text (`\"gpu-[1-4]\"`)";
    names.map(Some).ok_or_else(|| serde::de::Error::custom(expected))
}

#[cfg(test)]
mod tests {
    use weftrun_core::spec::Role;

    use super::*;

    fn settings(further: &[(&str, Value)]) -> Result<HostsTarget> {
        let target = TargetConfig::new("rack", BACKEND, "/state");
        HostsTarget::of(&further.iter().fold(target, |target, (key, value)| target.with(*key, value.clone())))
    }

    #[test]
    fn hosts_come_from_lists_and_from_a_hostfile() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "# the rack\nlab-1 slots=8 max-slots=9\n\nlab-2   # spare\n").unwrap();
        let given = [
            ("hosts", serde_json::json!(["gpu-[1-2]", "x"])),
            ("hostfile", serde_json::json!(file)),
            ("slots", serde_json::json!(4)),
        ];
        let hosts = settings(&given).unwrap();
        let hosts: Vec<_> =
            hosts.hosts().iter().map(|(name, slots)| (name.as_str(), slots.unwrap())).collect();
        assert_eq!(hosts, [("gpu-1", 4), ("gpu-2", 4), ("x", 4), ("lab-1", 8), ("lab-2", 4)]);
    }

    #[test]
    fn a_nodelist_is_a_text_or_a_list() {
        for value in [serde_json::json!("n[1-2],x"), serde_json::json!(["n[1-2]", "x"])] {
            let settings = settings(&[("nodelist", value)]).unwrap();
            let spec = JobSpec::builder("j").role(Role::worker().command(["true"])).build().unwrap();
            assert_eq!(settings.job(&spec).unwrap().nodelist.as_deref(), Some("n[1-2],x"));
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_the_reason() {
        for (key, value, said) in [
            ("hosts", serde_json::json!(["a", "a"]), "named twice"),
            ("hosts", serde_json::json!(["-oProxyCommand=x"]), "not the name of a host"),
            ("hosts", serde_json::json!(["a b"]), "not the name of a host"),
            ("hosts", serde_json::json!(["gpu-[9-1]"]), "`gpu-[9-1]` is not a list of hosts"),
            ("hosts", serde_json::json!(["n[1-2,4-3]"]), "`n[1-2,4-3]` is not a list of hosts"),
            ("hosts", serde_json::json!("a"), "`hosts`: invalid type: string"),
            ("slots", serde_json::json!("8"), "`slots`: invalid type: string"),
            ("nodelist", serde_json::json!("gpu-[9-1]"), "`nodelist`: `gpu-[9-1]` is not a list of hosts"),
            ("nodelist", serde_json::json!(4), "`nodelist`: it is a list of hosts"),
            ("nodelist", serde_json::json!(["a", 1]), "`nodelist`: it is a list of hosts"),
            ("container", serde_json::json!("lxc"), "`container`: unknown variant"),
            ("host", serde_json::json!(["a"]), "not a setting"),
            ("folder", serde_json::json!("-x"), "begin with `-`"),
            ("folder", serde_json::json!("/data/$USER"), "letters, digits"),
            ("folder", serde_json::json!("my jobs"), "letters, digits"),
            ("folder", serde_json::json!("a\"b"), "letters, digits"),
            ("folder", serde_json::json!("~/jobs"), "below the home directory"),
            ("interface", serde_json::json!("a;b"), "not the name of a network interface"),
            ("wait-for-hosts", serde_json::json!("soon"), "not a duration"),
        ] {
            let refused = settings(&[(key, value.clone())]).expect_err(key);
            assert!(refused.message().contains(said), "{key} = {value}: {refused}");
        }
    }
}
