//! Converts a command line of the official `runai` to a job file.

mod flags;
mod line;
mod options;
mod value;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Imported;
use crate::kubeflow::{torchrun, torchrun_is_ours, unescape};
use flags::{FLAGS, Flag, Means, is_switch};
use line::Word;
use weftrun_core::Finding;
use weftrun_core::request::Fabric;
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role, Volume, VolumeSource};
use weftrun_core::text::did_you_mean;

/// The fix for what the API may have a field for.
const SET_FIELD: &str = "if it matters, set its field in `[backend.runai.spec]`";

/// Reads `runai training pytorch submit …`, `runai submit-dist …` and their like.
///
/// ```
/// use weftrun_convert::import_runai;
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
    let words = line::words(line).map_err(no)?;
    let end = words.iter().position(|word| word.text == "--").unwrap_or(words.len());
    let (options, command) = words.split_at(end);
    let mut options = options.iter().skip(1).peekable();
    let mut job = Reading { role: Role::worker(), ..Reading::default() };
    while let Some(word) = options.peek().filter(|word| !word.text.starts_with('-')) {
        if !job.noun(&word.text) {
            break;
        }
        options.next();
    }
    if !job.submits {
        return Err(no("the command line submits nothing"));
    }
    while let Some(word) = options.next() {
        let found = job.known(&word.text);
        let of_master = if found.is_none() { master_flag(&word.text) } else { None };
        let Some((flag, attached)) = found.or_else(|| of_master.clone()) else {
            job.unknown_word(word, &mut options);
            continue;
        };
        let mut value = Word { text: attached.unwrap_or_default(), ..word.clone() };
        if value.text.is_empty() && !word.text.ends_with('=') {
            // The older `--command` takes the command itself; the name is before it.
            let has_words = flag.means == Means::Command
                && !job.spec.name.is_empty()
                && options.peek().is_some_and(|next| !next.text.starts_with('-'));
            if is_switch(flag.means) && !has_words {
                "true".clone_into(&mut value.text);
            } else {
                let next = options.next();
                value = next.ok_or_else(|| no(&format!("`{}` has no value", word.text)))?.clone();
            }
        }
        if of_master.is_none() {
            job.option(flag, &word.text, &value);
        } else if !value.unknown.is_empty() {
            job.unknown_value(&format!("`{}`", word.text), &value);
        } else if !job.of_master(flag.means, &value.text) {
            job.left(&word.text, &value.text);
        }
    }
    let command = command.get(1..).unwrap_or_default();
    job.notes(command);
    // Kubernetes reads them before the program.
    Ok(job.finish(&command.iter().map(|word| unescape(&word.text)).collect::<Vec<_>>()))
}

/// Returns the flag that a word names, and the value attached to it (`--workers=2`, `-g4`).
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

/// Returns the flag of workers that a word sets for the master alone: `--master-gpu-devices-request`.
fn master_flag(word: &str) -> Option<(&'static Flag, Option<String>)> {
    known(&format!("--{}", word.strip_prefix("--master-")?))
}

/// A command line while it is read.
#[derive(Default)]
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
    /// Whether it is a command line of 2.18 or newer, where `-c` means `--command`.
    newer: bool,
    pools: Vec<String>,
    args: Vec<String>,
}

impl Reading {
    /// Returns the flag that a word names; `-c` was `--cpu` in 2.13.
    fn known(&self, word: &str) -> Option<(&'static Flag, Option<String>)> {
        if self.newer && word == "-c" {
            return known("--command");
        }
        known(word)
    }

    /// Takes a word before the flags; returns false if it does not name what is submitted.
    fn noun(&mut self, word: &str) -> bool {
        match word {
            "training" | "standard" => self.newer = true,
            "distributed" => (self.distributed, self.newer) = (true, true),
            "submit" => self.submits = true,
            "submit-dist" => (self.submits, self.distributed) = (true, true),
            "workspace" => (self.workspace, self.newer) = (true, true),
            "pytorch" => self.distributed = true,
            "mpi" | "submit-mpi" => {
                (self.distributed, self.spec.launch) = (true, Launch::Mpi);
                self.submits |= word == "submit-mpi";
            }
            "tf" | "tensorflow" | "xgboost" | "jax" => return self.framework(word),
            _ => return false,
        }
        true
    }

    /// Takes the name of a framework; returns false if it is none.
    fn framework(&mut self, word: &str) -> bool {
        self.distributed = true;
        let word = match word.to_lowercase().as_str() {
            "pytorch" => return true,
            "mpi" => {
                self.spec.launch = Launch::Mpi;
                return true;
            }
            "xgboost" => "XGBoost",
            "jax" => "JAX",
            "tf" | "tensorflow" => "TF",
            _ => return false,
        };
        value::set(&mut self.fields, "distributedFramework", json!(word))
    }

    /// Takes the name of the job, or reports an unknown flag.
    fn unknown_word<'w>(
        &mut self,
        word: &'w Word,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'w Word>>,
    ) {
        if !word.text.starts_with('-') && self.spec.name.is_empty() {
            return self.name(word);
        }
        let word = word.text.as_str();
        // Its value, if it has one, belongs to it.
        let mut shown = word.to_owned();
        if word.starts_with('-')
            && !word.contains('=')
            && let Some(value) = rest.next_if(|next| !next.text.starts_with('-'))
        {
            shown = format!("{word} {}", value.text);
        }
        let names = FLAGS.iter().flat_map(|flag| flag.names.iter().copied());
        let bare = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        let near = did_you_mean(bare, names).map(|near| format!("if it is `--{near}`, write that"));
        let fix = near.unwrap_or_else(|| SET_FIELD.to_owned());
        self.lost(format!("`{shown}` is not known here and was left out"), bare, fix);
    }

    /// Reports something that has no place in the job file.
    fn lost(&mut self, message: impl Into<String>, subject: &str, fix: impl Into<String>) {
        self.findings.push(Finding::warning("W-IMPORT-LOST", message).at(subject).fix(fix));
    }

    fn info(&mut self, code: &str, message: impl Into<String>, fix: impl Into<String>) {
        self.findings.push(Finding::info(code, message).fix(fix));
    }

    fn left(&mut self, flag: &str, value: &str) {
        let message = format!("the value of `{flag}` cannot be read: `{value}`");
        self.findings.push(Finding::warning("W-IMPORT-LOST", message).at(flag));
    }

    /// Ignores a name that a shell expansion would make: the name in the job file must be chosen.
    fn name(&mut self, word: &Word) {
        if word.unknown.is_empty() {
            word.text.clone_into(&mut self.spec.name);
        } else {
            self.unknown_value("the name", word);
        }
    }

    fn unknown_value(&mut self, what: &str, word: &Word) {
        let message = format!(
            "{what} is `{}`, and only the shell in which the line was typed has the value of `{}`",
            word.text,
            word.unknown.join("`, `")
        );
        self.findings
            .push(Finding::warning("W-IMPORT-VARIABLE", message).fix("write the value into the job file"));
    }

    /// Reports the variables in the command's words, but not those of a script that a shell in the
    /// container reads.
    fn notes(&mut self, command: &[Word]) {
        let shell = command.first().is_some_and(|program| {
            matches!(program.text.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh" | "ksh"))
        });
        let mut before = "";
        for word in command {
            if !word.unknown.is_empty() {
                self.unknown_value("a word of the command", word);
            }
            let script = shell && before.starts_with('-') && before.ends_with('c');
            before = &word.text;
            // The platform splits a single word with spaces into a command line.
            let alone = command.len() == 1 && word.text.contains(' ');
            if !word.literal.is_empty() && !script && !alone {
                let names = word.literal.clone();
                self.literal(&word.text, &names);
            }
        }
    }

    /// Reads `--command`: alone it means that the words after `--` replace the image's entrypoint; the
    /// older one has a value.
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
        self.implied();
        self.same_master();
        self.fabric();
        if self.spec.name.is_empty() {
            "imported".clone_into(&mut self.spec.name);
            let message = "the command line gives no name: the platform made one";
            self.info("I-IMPORT-NAME", message, "choose a `name`");
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

    /// Sets the number of nodes. runai's workers exclude the master, except with MPI, where the master is a
    /// launcher.
    fn nodes(&mut self) {
        if !self.distributed {
            return;
        }
        let workers = self.workers.unwrap_or(1);
        let master = self.spec.launch != Launch::Mpi && !self.no_master;
        self.role.nodes = workers.saturating_add(u32::from(master));
        if self.workers.is_none() {
            let message = format!("without `--workers` it is one worker: {} nodes", self.role.nodes);
            self.info("I-IMPORT-NODES", message, "set `nodes`");
        }
        if self.no_master {
            let message =
                "weftrun makes the first node the master; with `--no-master` it was a worker as the others";
            self.findings.push(Finding::info("I-IMPORT-NODES", message));
        }
    }

    fn words(&mut self, words: &[String]) {
        // The platform splits a single word with spaces (`-- "sleep infinity"`).
        let mut split = match words {
            [one] => shlex::split(one).unwrap_or_else(|| words.to_vec()),
            _ => words.to_vec(),
        };
        if split.is_empty() {
            split = std::mem::take(&mut self.args);
        }
        let options_only = split.first().is_some_and(|first| first.starts_with('-'));
        if !self.role.command.is_empty() {
            self.role.command.append(&mut split);
        } else if options_only && !self.replaces_entrypoint && self.spec.launch != Launch::Mpi {
            // No program name begins so: the words are for the image's entrypoint.
            let joined = shlex::try_join(split.iter().map(String::as_str)).unwrap_or_default();
            value::set(&mut self.fields, "args", json!(joined));
        } else {
            self.role.command = split;
        }
        if self.role.command.is_empty() && self.spec.launch == Launch::Mpi {
            let message = "no command is written, and the image's own is not known here";
            self.findings
                .push(Finding::warning("W-IMPORT-COMMAND", message).fix("set `command` in the job file"));
        } else if self.role.command.is_empty() {
            let message = "no command is written: the image's entrypoint is started";
            self.info("I-IMPORT-COMMAND", message, "set `command` to start another program");
        } else if !self.replaces_entrypoint {
            let message = "without `--command` the words were arguments of the image's entrypoint; here they are the command";
            self.info("I-IMPORT-ENTRYPOINT", message, "put the entrypoint before them if the image has one");
        }
        if self.spec.launch == Launch::Mpi {
            return;
        }
        self.spec.launch = Launch::PerNode;
        if let Some((ranks, script)) = torchrun(&self.role.command) {
            self.spec.launch = Launch::Torchrun;
            self.role.ranks_per_node = ranks.filter(|ranks| *ranks != self.role.gpus_per_node);
            self.role.command = script;
            self.findings.push(torchrun_is_ours());
        }
    }

    /// Reads the fabric that was requested by hand; weftrun adds what is missing.
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
