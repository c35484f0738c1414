//! A command line of the official `runai`, as a job: what people have in their notes becomes a job file.

mod flags;
mod value;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Imported;
use crate::Finding;
use crate::convert::kubeflow::torchrun;
use crate::request::Fabric;
use crate::spec::{EnvVar, JobSpec, Launch, RestartPolicy, Role, Volume, VolumeSource};
use crate::text::did_you_mean;
use flags::{FLAGS, Flag, Means, is_switch};

/// Reads `runai training pytorch submit …`, `runai submit-dist …` and their like.
///
/// ```
/// use weftrun_core::convert::import_runai;
/// let line = "runai submit-dist pytorch --name demo --workers=2 -g 4 -i train:v1 -- torchrun --nproc-per-node=4 main.py";
/// let job = import_runai(line).map_err(|finding| finding.message)?.spec;
/// assert_eq!((job.nodes(), job.roles[0].gpus_per_node), (3, 4));
/// assert_eq!(job.roles[0].command, ["main.py"]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A finding: `E-IMPORT-JOB` where the text is no such command line.
pub fn import_runai(line: &str) -> Result<Imported, Finding> {
    let no = |why: &str| {
        Finding::error("E-IMPORT-JOB", why)
            .fix("give the whole line in quotes: weftrun import runai 'runai training pytorch submit NAME …'")
    };
    // As a shell reads it, a line goes on behind a backslash; shlex would make an empty word of it.
    let line = line.replace("\\\r\n", "").replace("\\\n", "");
    let words = shlex::split(&line).ok_or_else(|| no("a quote is not closed in the command line"))?;
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, command) = words.split_at(end);
    let mut options = options.iter().map(String::as_str).peekable();
    if options.next().map(|word| word.rsplit('/').next()) != Some(Some("runai")) {
        return Err(no("the command line does not begin with `runai`"));
    }
    let mut job = Reading::new();
    while let Some(word) = options.peek().filter(|word| !word.starts_with('-')) {
        if !job.noun(word) {
            break;
        }
        options.next();
    }
    if !job.submits {
        return Err(no("the command line submits nothing"));
    }
    while let Some(word) = options.next() {
        let Some((flag, attached)) = known(word) else {
            job.stranger(word, &mut options);
            continue;
        };
        let value = match (attached, is_switch(flag.means)) {
            (Some(value), _) => value,
            (None, true) => "true".to_owned(),
            (None, false) => options.next().ok_or_else(|| no(&format!("`{word}` has no value")))?.to_owned(),
        };
        job.take(flag, word, &value);
    }
    Ok(job.finish(command.get(1..).unwrap_or_default()))
}

/// The flag a word names, and the value attached to it (`--workers=2`, `-g4`).
fn known(word: &str) -> Option<(&'static Flag, Option<String>)> {
    let find = |name: &str| FLAGS.iter().find(|flag| flag.names.contains(&name));
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        return Some((find(name).filter(|_| name.len() > 1)?, value));
    }
    let short = word.strip_prefix('-')?;
    let first = short.chars().next()?;
    let rest = &short[first.len_utf8()..];
    let value = (!rest.is_empty()).then(|| rest.trim_start_matches('=').to_owned());
    Some((find(&short[..first.len_utf8()])?, value))
}

/// A command line while it is read.
struct Reading {
    spec: JobSpec,
    role: Role,
    submits: bool,
    distributed: bool,
    workers: Option<u32>,
    no_master: bool,
    replaces_entrypoint: bool,
    workspace: bool,
    template: Option<String>,
    fields: Map<String, Value>,
    master: Map<String, Value>,
    findings: Vec<Finding>,
}

impl Reading {
    fn new() -> Self {
        Self {
            spec: JobSpec::empty(),
            role: Role::worker(),
            submits: false,
            distributed: false,
            workers: None,
            no_master: false,
            replaces_entrypoint: false,
            workspace: false,
            template: None,
            fields: Map::new(),
            master: Map::new(),
            findings: Vec::new(),
        }
    }

    /// Takes a word before the flags; false if it is none that says what is submitted.
    fn noun(&mut self, word: &str) -> bool {
        match word {
            "training" | "standard" => {}
            "submit" => self.submits = true,
            "submit-dist" => (self.submits, self.distributed) = (true, true),
            "workspace" => self.workspace = true,
            "pytorch" => self.distributed = true,
            "mpi" | "submit-mpi" => {
                (self.distributed, self.spec.launch) = (true, Launch::Mpi);
                self.submits |= word == "submit-mpi";
            }
            "tf" | "tensorflow" | "xgboost" | "jax" => {
                self.distributed = true;
                let word = match word {
                    "xgboost" => "XGBoost",
                    "jax" => "JAX",
                    _ => "TF",
                };
                self.fields.insert("distributedFramework".into(), json!(word));
            }
            _ => return false,
        }
        true
    }

    fn stranger<'w>(&mut self, word: &str, rest: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) {
        if !word.starts_with('-') && self.spec.name.is_empty() {
            word.clone_into(&mut self.spec.name);
            return;
        }
        // Its value, if it has one, goes with it.
        let mut shown = word.to_owned();
        if word.starts_with('-')
            && !word.contains('=')
            && let Some(value) = rest.next_if(|next| !next.starts_with('-'))
        {
            shown = format!("{word} {value}");
        }
        let names = FLAGS.iter().flat_map(|flag| flag.names.iter().copied());
        let bare = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        let finding =
            Finding::warning("W-IMPORT-LOST", format!("`{shown}` is not known here and was left out"))
                .at(bare);
        self.findings.push(match did_you_mean(bare, names) {
            Some(near) => finding.fix(format!("if it is `--{near}`, write that")),
            None => finding.fix("if it matters, set its field in `[backend.runai.spec]`"),
        });
    }

    fn left(&mut self, flag: &str, value: &str) {
        let message = format!("the value of `{flag}` cannot be read: `{value}`");
        self.findings.push(Finding::warning("W-IMPORT-LOST", message).at(flag));
    }

    fn take(&mut self, flag: &Flag, word: &str, text: &str) {
        let own = &mut self.fields;
        let taken = match flag.means {
            Means::Name => put(&mut self.spec.name, text.to_owned()),
            Means::NamePrefix => {
                let finding =
                    Finding::info("I-IMPORT-NAME", "the platform made a name of this prefix each time");
                self.findings.push(finding.fix("`weftrun submit --name-suffix` does so"));
                put(&mut self.spec.name, text.to_owned())
            }
            Means::Project => {
                let message = format!("the project `{text}` is where the job goes, and no part of it");
                let fix = format!("`weftrun submit -p {text}`, or `project` of the target");
                self.findings.push(Finding::info("I-IMPORT-PROJECT", message).fix(fix));
                true
            }
            Means::Image => put(&mut self.spec.image, Some(text.to_owned())),
            Means::Workers => text.parse().is_ok_and(|workers| put(&mut self.workers, Some(workers))),
            Means::NoMaster => put(&mut self.no_master, true),
            Means::Gpus => self.gpus(text),
            Means::Cpus => put(&mut self.role.cpus, Some(text.to_owned())),
            Means::Memory => put(&mut self.role.memory, Some(text.to_owned())),
            Means::Workdir => put(&mut self.spec.workdir, Some(text.to_owned())),
            Means::Queue if text.contains([',', ' ']) => {
                let pools: Vec<&str> = text.split([',', ' ']).filter(|pool| !pool.is_empty()).collect();
                value::set(own, "nodePools", json!(pools))
            }
            Means::Queue => put(&mut self.spec.queue, Some(text.to_owned())),
            Means::Priority => put(&mut self.spec.priority, Some(text.to_owned())),
            Means::Backoff => text.parse().is_ok_and(|max: u32| put(&mut self.spec.restart, restarts(max))),
            Means::Interactive => put(&mut self.workspace, true),
            Means::Command => self.own_command(text),
            Means::Env => {
                pair(text).is_some_and(|(name, value)| push(&mut self.spec.env, EnvVar { name, value }))
            }
            Means::EnvSecret => {
                value::secret(text).is_some_and(|secret| push(&mut self.spec.secrets, secret))
            }
            Means::EnvField => text.split_once('=').is_some_and(|(name, path)| {
                value::push(own, "environmentVariables", json!({"name": name, "podFieldRef": {"path": path}}))
            }),
            Means::Annotation => insert(&mut self.spec.annotations, text),
            Means::Label => insert(&mut self.spec.labels, text),
            Means::Resource => insert(&mut self.role.resources, text),
            Means::MasterResource => pair(text).is_some_and(|(resource, quantity)| {
                let asked = json!({"resource": resource, "quantity": quantity});
                value::push(&mut self.master, "compute.extendedResources", asked)
            }),
            Means::Claim => self.volume(value::claim(text)),
            Means::OldClaim => self.volume(value::old_claim(text)),
            Means::HostPath => self.volume(value::host_path(text)),
            Means::OldVolume => self.volume(value::old_volume(text)),
            Means::Nfs => value::push(own, "storage.nfs", value::nfs(text)),
            Means::Git => value::push(own, "storage.git", value::git(text)),
            Means::Toleration => value::push(own, "tolerations", value::toleration(text)),
            Means::Template => put(&mut self.template, Some(text.to_owned())),
            Means::Field(path, shape) => value::of_shape(shape, text).is_some_and(|made| match made {
                Value::Array(items) => items.into_iter().all(|item| value::push(own, path, item)),
                other => value::set(own, path, other),
            }),
            Means::Master(field) => value::set(&mut self.master, field, json!(text)),
            Means::Client(instead) => {
                let message = format!("`{word}` is about the client, and no part of the job");
                self.findings.push(Finding::info("I-IMPORT-CLIENT", message).fix(instead));
                true
            }
        };
        if !taken {
            self.left(word, text);
        }
    }

    /// `-g 4`; part of a GPU (`-g 0.5`) is the platform's own.
    fn gpus(&mut self, text: &str) -> bool {
        if let Ok(whole) = text.parse() {
            return put(&mut self.role.gpus_per_node, whole);
        }
        let part = text.parse().ok().filter(|part: &f64| part.is_finite() && *part > 0.0);
        part.is_some_and(|part| {
            value::set(&mut self.fields, "compute.gpuDevicesRequest", json!(1))
                && value::set(&mut self.fields, "compute.gpuRequestType", json!("portion"))
                && value::set(&mut self.fields, "compute.gpuPortionRequest", json!(part))
        })
    }

    /// `--command` alone says that the words behind `--` replace the image's entrypoint; the older one has the words.
    fn own_command(&mut self, text: &str) -> bool {
        self.replaces_entrypoint = true;
        text == "true" || shlex::split(text).is_some_and(|words| put(&mut self.role.command, words))
    }

    fn volume(&mut self, made: Option<(VolumeSource, String, bool)>) -> bool {
        made.is_some_and(|(source, mount, read_only)| {
            let name = format!("volume-{}", self.spec.volumes.len() + 1);
            push(&mut self.spec.volumes, Volume { name, mount, source, read_only })
        })
    }

    fn finish(mut self, words: &[String]) -> Imported {
        self.nodes();
        self.words(words);
        self.fabric();
        if self.spec.name.is_empty() {
            "imported".clone_into(&mut self.spec.name);
            let finding =
                Finding::info("I-IMPORT-NAME", "the command line gives no name: the platform made one");
            self.findings.push(finding.fix("choose a `name`"));
        }
        let mut own = Map::new();
        if self.workspace {
            own.insert("workspace".into(), json!(true));
        }
        if let Some(template) = self.template {
            own.insert("template".into(), json!(template));
        }
        for (key, fields) in [("spec", self.fields), ("master", self.master)] {
            if !fields.is_empty() {
                own.insert(key.into(), Value::Object(fields));
            }
        }
        if !own.is_empty() {
            self.spec.backend.insert("runai".into(), Value::Object(own));
        }
        self.spec.roles = vec![self.role];
        Imported::new(self.spec, self.findings)
    }

    /// Their workers leave the master out, except with MPI, where it is a launcher.
    fn nodes(&mut self) {
        if !self.distributed {
            return;
        }
        let workers = self.workers.unwrap_or(1);
        let master = self.spec.launch != Launch::Mpi && !self.no_master;
        self.role.nodes = workers.saturating_add(u32::from(master));
        if self.workers.is_none() {
            let finding = Finding::info(
                "I-IMPORT-NODES",
                format!("without `--workers` it is one worker: {} nodes", self.role.nodes),
            );
            self.findings.push(finding.fix("set `nodes`"));
        }
        if self.no_master {
            let message =
                "weftrun makes the first node the master; with `--no-master` it was a worker as the others";
            self.findings.push(Finding::info("I-IMPORT-NODES", message));
        }
    }

    fn words(&mut self, words: &[String]) {
        // One word with spaces (`-- "sleep infinity"`) is taken apart by the platform.
        let split = match words {
            [one] => shlex::split(one).unwrap_or_else(|| words.to_vec()),
            _ => words.to_vec(),
        };
        if !split.is_empty() {
            self.role.command = split;
        }
        if self.role.command.is_empty() {
            let message = "no command is written; the image's own is not known here";
            self.findings
                .push(Finding::warning("W-IMPORT-COMMAND", message).fix("set `command` in the job file"));
        } else if !self.replaces_entrypoint {
            let message = "without `--command` the words were arguments of the image's entrypoint; here they are the command";
            self.findings.push(
                Finding::info("I-IMPORT-ENTRYPOINT", message)
                    .fix("put the entrypoint before them if the image has one"),
            );
        }
        if self.spec.launch == Launch::Mpi {
            return;
        }
        self.spec.launch = Launch::PerNode;
        if let Some((ranks, script)) = torchrun(&self.role.command) {
            self.spec.launch = Launch::Torchrun;
            self.role.ranks_per_node = ranks.filter(|ranks| *ranks != self.role.gpus_per_node);
            self.role.command = script;
            let message = "weftrun starts torchrun itself, on every node, with a rendezvous of its own";
            self.findings.push(
                Finding::info("I-IMPORT-TORCHRUN", message)
                    .fix("nothing; `launch = \"per-node\"` with the whole command keeps it as it was"),
            );
        }
    }

    /// The fabric that somebody asked for by hand: weftrun adds what is still missing.
    fn fabric(&mut self) {
        let asks = |part: &str| self.role.resources.keys().any(|name| name.contains(part));
        let is_off = |(key, value): (&String, &String)| key == "disable-auto-efa" && value == "true";
        let (kind, why) = if self.spec.annotations.iter().any(is_off) {
            (Fabric::Off, "the annotation disable-auto-efa")
        } else if asks("vpc.amazonaws.com/efa") {
            (Fabric::Efa, "the resource vpc.amazonaws.com/efa")
        } else if self.spec.annotations.contains_key("k8s.v1.cni.cncf.io/networks") && asks("rdma") {
            (Fabric::Roce, "the network's annotation and its RDMA resource")
        } else {
            return;
        };
        self.spec.fabric.kind = kind;
        self.findings.push(Finding::info("I-IMPORT-FABRIC", format!("{why} say which fabric was meant")));
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.trim().to_owned(), value.to_owned()))
}

fn put<T>(place: &mut T, value: T) -> bool {
    *place = value;
    true
}

fn push<T>(list: &mut Vec<T>, value: T) -> bool {
    list.push(value);
    true
}

fn insert(map: &mut BTreeMap<String, String>, text: &str) -> bool {
    pair(text).is_some_and(|(key, value)| {
        map.insert(key, value);
        true
    })
}

fn restarts(max: u32) -> RestartPolicy {
    if max == 0 { RestartPolicy::Never } else { RestartPolicy::OnFailure { max } }
}

#[cfg(test)]
mod tests;
