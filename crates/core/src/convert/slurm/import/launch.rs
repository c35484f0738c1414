//! What starts the ranks: the one `srun` of a script, or its last command where there is no `srun`.

use serde_json::json;

use super::{Import, lost};
use crate::Finding;
use crate::convert::slurm::Script;
use crate::shell::{ScriptCommand, commands};
use crate::spec::{Launch, RestartPolicy};

/// Options of srun that take the next word as their value where no `=` stands.
const WITH_VALUE: &[&str] = &[
    "n",
    "N",
    "c",
    "w",
    "p",
    "A",
    "t",
    "G",
    "D",
    "o",
    "e",
    "i",
    "J",
    "m",
    "x",
    "ntasks",
    "nodes",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus-per-node",
    "gpus-per-task",
    "gpus",
    "mpi",
    "export",
    "container-image",
    "container-mounts",
    "container-workdir",
    "container-name",
    "container-env",
    "output",
    "error",
    "cpu-bind",
    "gpu-bind",
    "distribution",
    "chdir",
    "nodelist",
    "exclude",
    "mem",
    "time",
    "label-format",
    "het-group",
];
/// What weftrun's own srun says or the job file already holds.
const KNOWN: &[&str] = &[
    "l",
    "label",
    "u",
    "unbuffered",
    "K",
    "kill-on-bad-exit",
    "export",
    "n",
    "ntasks",
    "N",
    "nodes",
    "ntasks-per-node",
    "gpus-per-node",
    "gpus-per-task",
    "G",
    "gpus",
    "c",
    "cpus-per-task",
    "o",
    "output",
    "e",
    "error",
    "container-name",
    "container-env",
    "no-container-mount-home",
    "J",
    "job-name",
    "exclusive",
    "wait",
    "W",
];

/// Reads it into the job.
pub(super) fn read(import: &mut Import, script: &Script<'_>) -> Result<(), Finding> {
    let body = script.body();
    let found = commands(&body).unwrap_or_default();
    let is_srun =
        |command: &&ScriptCommand| command.words.get(command.program).is_some_and(|word| word == "srun");
    let sruns: Vec<&ScriptCommand> = found.iter().filter(is_srun).collect();
    let starter = match sruns.as_slice() {
        [one] => *one,
        [] => match found.last() {
            Some(last) => last,
            None => return Err(Finding::error("E-IMPORT-JOB", "the script starts nothing")),
        },
        _ => {
            import.carry_whole(&body, &format!("it has {} `srun` commands", sruns.len()));
            return Ok(());
        }
    };
    let before = body.get(..starter.start).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    // In a loop, a condition or behind a pipe it is no command of its own.
    let alone = body.get(line..starter.start).is_some_and(|text| text.trim().is_empty())
        && commands(body.get(..line).unwrap_or_default()).is_ok();
    if !alone {
        import.carry_whole(&body, "its `srun` is part of a larger command");
        return Ok(());
    }
    setup(import, body.get(..line).unwrap_or_default());
    let behind = body.get(starter.end..).unwrap_or_default();
    if behind.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        import.findings.push(lost("what stands behind the command that starts the ranks"));
    }
    let mut words = starter.words.get(starter.program..).unwrap_or_default().to_vec();
    if words.first().is_some_and(|word| word == "srun") {
        words = srun(import, &words[1..]);
    }
    program(import, words)
}

/// Exports of plain text become the job's environment, everything else stays shell.
fn setup(import: &mut Import, text: &str) {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        let body = line.trim();
        let shell_options = body.starts_with("set -") || body.starts_with("set +");
        if body.is_empty() || body.starts_with('#') || shell_options {
            continue;
        }
        let literal = body.strip_prefix("export ").filter(|rest| !rest.contains(['$', '`', '\\']));
        let pairs: Option<Vec<(String, String)>> = literal.and_then(shlex::split).and_then(|words| {
            words
                .iter()
                .map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
                .collect()
        });
        match pairs.filter(|pairs| !pairs.is_empty()) {
            Some(pairs) if lines.is_empty() || !lines.iter().any(|kept| kept.ends_with('\\')) => {
                pairs.iter().for_each(|(name, value)| import.variable(name, value));
            }
            _ => lines.push(line),
        }
    }
    if !lines.is_empty() {
        import.slurm.insert("setup".to_owned(), json!(lines));
    }
}

/// Takes srun's options; gives the program.
fn srun(import: &mut Import, words: &[String]) -> Vec<String> {
    let mut further: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && word.len() > 1) {
        at += 1;
        let bare = word.trim_start_matches('-');
        let (name, mut value) = match bare.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None if word.starts_with("--") => (bare.to_owned(), None),
            // `-n8`, `-K1`
            None => {
                let (name, value) = bare.split_at(bare.chars().next().map_or(0, char::len_utf8));
                (name.to_owned(), Some(value.to_owned()).filter(|value| !value.is_empty()))
            }
        };
        if value.is_none() && WITH_VALUE.contains(&name.as_str()) {
            value = words.get(at).cloned();
            at += 1;
        }
        option(import, &name, value, &mut further);
    }
    if !further.is_empty() {
        import.slurm.insert("srun".to_owned(), json!(further));
    }
    words.get(at..).unwrap_or_default().to_vec()
}

fn option(import: &mut Import, name: &str, value: Option<String>, further: &mut Vec<String>) {
    match (name, value) {
        ("mpi", Some(value)) => {
            import.spec.launch = Launch::Mpi;
            import.slurm.insert("mpi".to_owned(), json!(value));
        }
        ("container-image", Some(value)) if !value.contains('$') => {
            import.spec.image = Some(value.replace('#', "/"));
        }
        ("container-mounts", Some(value)) => import.mounts(&value),
        ("container-workdir" | "chdir" | "D", Some(value)) => import.spec.workdir = Some(value),
        ("container-mount-home", _) => drop(import.slurm.insert("mount-home".to_owned(), json!(true))),
        ("ntasks-per-node", Some(value)) => import.role.ranks_per_node = value.parse().ok(),
        (name, _) if KNOWN.contains(&name) => {}
        (name, Some(value)) if value.contains('$') => {
            import.findings.push(lost(&format!("`srun --{name}={value}`")));
        }
        (name, None) if name.len() > 1 => further.push(format!("--{name}")),
        (name, Some(value)) if name.len() > 1 => further.push(format!("--{name}={value}")),
        (name, _) => import.findings.push(lost(&format!("`srun -{name}`"))),
    }
}

/// The program that each task runs.
fn program(import: &mut Import, words: Vec<String>) -> Result<(), Finding> {
    let Some(first) = words.first() else {
        return Err(Finding::error("E-IMPORT-JOB", "`srun` starts nothing"));
    };
    let base = first.rsplit('/').next().unwrap_or(first);
    let module = words.get(1).is_some_and(|word| word == "-m")
        && words.get(2).is_some_and(|name| {
            matches!(name.as_str(), "torch.distributed.run" | "torch.distributed.launch")
        });
    if base == "torchrun" {
        torchrun(import, &words[1..]);
    } else if base.starts_with("python") && module {
        torchrun(import, &words[3..]);
    } else {
        if import.spec.launch != Launch::Mpi {
            let ranks = import.role.ranks_per_node.is_some_and(|ranks| ranks > 1);
            import.spec.launch = if ranks { Launch::PerRank } else { Launch::PerNode };
        }
        import.role.command = words;
    }
    if let Some(word) = import.role.command.iter().find(|word| word.contains(['$', '`'])) {
        import.findings.push(
            Finding::warning(
                "W-IMPORT-COMMAND",
                format!("`{word}` is not expanded: a command's words are taken literally"),
            )
            .fix(
                "write the value, or let a shell expand it: command = [\"bash\", \"-c\", \"exec … \"$@\"\"]",
            ),
        );
    }
    Ok(())
}

/// torchrun's own options are what the job file says by other words; the script and its arguments remain.
fn torchrun(import: &mut Import, words: &[String]) {
    const FLAGS: &[&str] = &["standalone", "no-python", "run-path", "m", "module"];
    import.spec.launch = Launch::Torchrun;
    import.role.ranks_per_node = None;
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        let bare = word.trim_start_matches('-').replace('_', "-");
        if matches!(bare.as_str(), "m" | "module" | "no-python") {
            break;
        }
        at += 1;
        let (name, mut value) = match bare.split_once('=') {
            Some((name, _)) => (name.to_owned(), word.split_once('=').map(|(_, value)| value.to_owned())),
            None => (bare.clone(), None),
        };
        if value.is_none() && !FLAGS.contains(&name.as_str()) {
            value = words.get(at).cloned();
            at += 1;
        }
        let number = value.as_deref().and_then(|value| value.parse::<u32>().ok());
        match (name.as_str(), number) {
            ("nproc-per-node", Some(number)) => import.role.ranks_per_node = Some(number),
            ("max-restarts", Some(max)) if max > 0 => import.spec.restart = RestartPolicy::OnFailure { max },
            // Where the ranks meet is weftrun's business.
            _ if name.starts_with("rdzv") || name.starts_with("master") || name.starts_with("node-rank") => {}
            (
                "nnodes" | "nproc-per-node" | "max-restarts" | "standalone" | "log-dir" | "tee" | "redirects",
                _,
            ) => {}
            _ => import.findings.push(lost(&format!("torchrun's `--{name}`"))),
        }
    }
    import.role.command = words.get(at..).unwrap_or_default().to_vec();
}
