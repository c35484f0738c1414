//! Commands: torchrun, which weftrun starts itself, and all others, which stay as they are.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value as Json;

use super::Reading;
use super::container::{is_environment, literally, references, unescape};
use weftrun_core::Finding;
use weftrun_core::spec::{Launch, Role};

/// Options of torchrun that weftrun sets itself (PyTorch 2.9, `torch/distributed/run.py`). Only `standalone` takes no
/// value. With another (`rdzv-conf`, `max-restarts`, `log-dir`) the whole command is kept.
pub(crate) const OURS: &str =
    "nnodes nproc-per-node node-rank master-addr master-port rdzv-id rdzv-backend rdzv-endpoint standalone";

/// Sets the launcher of a node's ranks, and the command.
pub(super) fn start(job: &mut Reading, role: &mut Role, argv: &[String]) {
    if let Some((ranks, script)) = torchrun(argv) {
        job.spec.launch = Launch::Torchrun;
        role.ranks_per_node = ranks.or(role.ranks_per_node).filter(|ranks| *ranks != role.gpus_per_node);
        literal(job, role, &script, "/spec");
        role.command = unescaped(&script);
        job.findings.push(torchrun_is_ours());
        return;
    }
    job.spec.launch = Launch::PerNode;
    literal(job, role, argv, "/spec");
    if argv.is_empty() {
        let message = "no command is written; the image's own is not known here";
        job.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix("set `command` in the job file"));
    }
    role.command = unescaped(argv);
}

/// Returns the finding that weftrun replaces the torchrun of a command.
pub(crate) fn torchrun_is_ours() -> Finding {
    let message = "weftrun starts torchrun itself, on every node, with its own rendezvous";
    Finding::info("I-IMPORT-TORCHRUN", message)
        .fix("nothing; `launch = \"per-node\"` with the whole command keeps it as it was")
}

/// Returns the words as the program gets them, where no variable is substituted.
pub(super) fn unescaped(argv: &[String]) -> Vec<String> {
    argv.iter().map(|word| unescape(word)).collect()
}

/// Returns the ranks of a node and the script after torchrun's own options, if all of these are known.
pub(crate) fn torchrun(argv: &[String]) -> Option<(Option<u32>, Vec<String>)> {
    let base = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    let first = base(argv.first()?);
    let mut at = if first == "torchrun" {
        1
    } else if first.starts_with("python")
        && argv.get(1).is_some_and(|word| word == "-m")
        && argv.get(2).is_some_and(|word| word == "torch.distributed.run")
    {
        3
    } else {
        return None;
    };
    let mut ranks = None;
    loop {
        let word = argv.get(at)?;
        let Some(option) = word.strip_prefix("--") else { break };
        let (name, mut value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        OURS.split(' ').find(|known| *known == name)?;
        if value.is_none() && name != "standalone" {
            at += 1;
            value = argv.get(at).map(String::as_str);
        }
        if name == "nproc-per-node" {
            // `gpu`, `auto`, and a variable that the operator sets, are one rank per GPU.
            ranks = value.and_then(|text| text.parse().ok());
        }
        at += 1;
    }
    let script = argv.get(at..)?.to_vec();
    (script.first()?.ends_with(".py") || script[0] == "-m").then_some((ranks, script))
}

/// Reports each variable of a command that Kubernetes would substitute, and a job file does not.
pub(super) fn literal(job: &mut Reading, role: &Role, argv: &[String], at: &str) {
    let mut names: BTreeSet<&str> = argv.iter().flat_map(|word| references(word)).collect();
    if names.is_empty() {
        return;
    }
    // The variables of the object too: what the job file cannot hold (`valueFrom`) is only there.
    let mut defined = HashSet::new();
    variables(job.rest.before(), &mut defined);
    let knows = |name: &str| {
        role.env.iter().any(|var| var.name == name)
            || job.spec.secrets.iter().any(|secret| secret.env == name)
            || is_environment(name)
            || defined.contains(name)
    };
    names.retain(|name| knows(name));
    let found: Vec<Finding> = names.into_iter().map(|name| literally("the command", name).at(at)).collect();
    job.findings.extend(found);
}

/// Adds the names of all variables of an object.
fn variables<'o>(object: &'o Json, names: &mut HashSet<&'o str>) {
    match object {
        Json::Object(map) => {
            for (key, value) in map {
                if key == "env" {
                    let of_env = value.as_array().into_iter().flatten();
                    names.extend(of_env.filter_map(|var| var["name"].as_str()));
                }
                variables(value, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| variables(item, names)),
        _ => {}
    }
}

/// Returns whether a worker of an MPI job only waits for mpirun, as the operator's default command does
/// (`/usr/sbin/sshd -De`, mpi-operator 0.6; `sleep 365d`, training-operator 1.9). An sshd with a port or a
/// configuration of its own, or with commands before it, does more.
pub(super) fn only_waits(argv: &[String]) -> bool {
    let in_shell = match argv {
        [shell, option, script] if is_shell(shell) && option.ends_with('c') => shlex::split(script),
        _ => Some(argv.to_vec()),
    };
    let Some(words) = in_shell else { return false };
    let words: Vec<&str> =
        words.iter().map(|word| word.trim_end_matches(';')).filter(|word| *word != "exec").collect();
    match words.split_first() {
        None => true,
        Some((program, rest)) => match program.rsplit('/').next().unwrap_or_default() {
            "sshd" => rest.iter().all(|word| matches!(*word, "-D" | "-e" | "-De")),
            "sleep" => rest.len() == 1,
            "tail" => *rest == ["-f", "/dev/null"],
            _ => false,
        },
    }
}

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "bash"))
}
