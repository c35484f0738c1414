//! The script: the options, then the job as one function that a user could write by hand, then the
//! [`bookkeeping`] that calls it.

use weftrun_convert::{BLOCK_BEGIN, BLOCK_END, Directives};
use weftrun_core::shell::variable;
use weftrun_core::spec::{Launch, RestartPolicy};
use weftrun_core::{Error, ErrorKind, Result};

use super::{RenderInput, bookkeeping, directives, launch, tasks};
use crate::remote::script;
use crate::slurm::{BACKEND, quote};

/// Writes the script.
pub fn write(draft: &RenderInput<'_>, components: &[Directives]) -> Result<String> {
    let dir = draft.log_dir();
    let from_home = if dir.starts_with('/') { "" } else { ", in the home directory" };
    let by_hand = match draft.job.spec.code_folder() {
        Some(_) => {
            "`weftrun submit` sends the job's folder beside this file, which alone has none".to_owned()
        }
        None => format!("By hand{from_home}: mkdir -p {} && sbatch THIS_FILE", quote::word(&dir)?),
    };
    let mut text = format!("#!{}\n# Rendered by weftrun. {by_hand}\n", shell(draft)?);
    text.push_str(&directives::write(components)?);
    text.push_str("\nset -eo pipefail\n");
    // Bash reads a function whole before it runs a line of it: what changes how it reads comes before.
    text.push_str(&script::setup(draft.own.setup.iter().filter(|line| changes_syntax(line)))?);
    text.push_str("\nweftrun_job() {\n");
    text.push_str(&script::setup(&draft.own.setup)?);
    text.push_str(&environment(draft)?);
    text.push_str(&script::library(draft.job, launch::LIBRARY)?);
    text.push_str(&fabric(draft)?);
    if draft.job.spec.launch != Launch::Once {
        text.push_str(&rendezvous(draft));
    }
    text.push_str(&code(draft)?);
    text.push_str(launch::explanation(draft));
    text.push_str(&restarted(draft, &launch::write(draft, components)?));
    text.push_str("}\n\n");
    text.push_str(&bookkeeping::write(draft)?);
    Ok(text)
}

/// Returns whether a line of `setup` changes how bash reads the lines after it.
fn changes_syntax(line: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    matches!(words.as_slice(), ["shopt", rest @ ..] if !rest.is_empty() && rest.iter().all(plain))
}

/// Returns the shell of the script: bash, or the job's own with options (`/bin/bash -l` is a login shell).
fn shell<'a>(draft: &'a RenderInput<'_>) -> Result<&'a str> {
    let shell = draft.own.shell.as_deref().unwrap_or("/bin/bash");
    let mut words = shell.split(' ');
    let is_bash = words.next().is_some_and(|program| program.starts_with('/') && program.ends_with("/bash"));
    if is_bash && !shell.chars().any(char::is_control) {
        return Ok(shell);
    }
    Err(Error::new(
        ErrorKind::InvalidSpec,
        "`backend.slurm.shell` is the absolute path of bash, and its options",
    )
    .with("value", shell.escape_debug())
    .hint("write `shell = \"/bin/bash -l\"` for a login shell"))
}

/// Returns the command, repeated after a failure if the job may restart. In the same allocation: a requeue
/// would wait two minutes and queue again. The whole step restarts, with torchrun too: -K1 has ended the rest
/// of it.
fn restarted(draft: &RenderInput<'_>, command: &str) -> String {
    match draft.job.spec.restart {
        RestartPolicy::OnFailure { max } if max > 0 => format!(
            "# After a failure all ranks start again on the same nodes, up to {max} times.\n\
             until {}; do weftrun_restart \"$?\"; done\n",
            command.trim_end()
        ),
        _ => command.to_owned(),
    }
}

/// Returns the path of the log folder as a word of the script's shell.
pub fn log_dir(draft: &RenderInput<'_>) -> Result<String> {
    let dir = draft.log_dir();
    let root = if dir.starts_with('/') { "" } else { "\"$HOME/\"" };
    Ok(format!("{root}{}", quote::word(&dir)?))
}

/// Returns a name that is safe in a file name and in the log's first line.
pub fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Writes the job's own variables. Values are literal.
fn environment(draft: &RenderInput<'_>) -> Result<String> {
    let spec = &draft.job.spec;
    let mut text = tasks::environment(spec)?;
    if !spec.env.iter().any(|var| var.name == "PYTHONUNBUFFERED") {
        text.push_str("export PYTHONUNBUFFERED=1\n");
    }
    let single = draft.workers.first().filter(|_| draft.workers.len() == 1);
    let variables = spec.env.iter().chain(single.into_iter().flat_map(|role| &role.env));
    text.push_str(&script::exports(variables)?);
    if !spec.secrets.is_empty() {
        let dir = draft
            .own
            .secrets_dir
            .as_deref()
            .map_or(Ok("\"$HOME/.config/weftrun/secrets\"".to_owned()), quote::word)?;
        text.push_str(&format!("# Secrets stay in files on the cluster.\nweftrun_secrets={dir}\n"));
        for secret in &spec.secrets {
            let (name, path) = (variable(&secret.env)?, script::secret(secret)?);
            text.push_str(&format!("{name}=$(cat -- \"$weftrun_secrets\"/{path})\nexport {name}\n"));
        }
    }
    Ok(format!("{text}\n"))
}

/// Writes the block of the fabric, with the reason for each line.
fn fabric(draft: &RenderInput<'_>) -> Result<String> {
    let Some(first) = draft.fabric.first() else { return Ok(String::new()) };
    let mut lines = Vec::new();
    let why = |rule: &str, why: &str| format!("# {rule}: {}", why.replace(char::is_control, " "));
    for op in [&first.whole_nodes, &first.one_switch].into_iter().flatten() {
        lines.push(why(&op.rule, &op.why));
    }
    if let Some(op) = &first.memlock {
        lines.push(why(&op.rule, &op.why));
        lines.push("ulimit -l unlimited 2> /dev/null || :".to_owned());
    }
    for (name, value, op) in first.env.iter().filter(|entry| draft.all_set(entry)) {
        lines.push(why(&op.rule, &op.why));
        // The path that the node's own profile or `setup` set is appended to ours.
        let is_path = name == "LD_LIBRARY_PATH" && !spec_sets(draft, name);
        let tail = if is_path { "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"" } else { "" };
        lines.push(format!("export {}={}{tail}", variable(name)?, script::value(value, launch::LIBRARY)?));
    }
    if lines.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("{BLOCK_BEGIN}\n{}\n{BLOCK_END}\n\n", lines.join("\n")))
}

fn spec_sets(draft: &RenderInput<'_>, name: &str) -> bool {
    let roles = draft.workers.iter().flat_map(|role| &role.env);
    draft.job.spec.env.iter().chain(roles).any(|var| var.name == name)
}

/// Returns the rendezvous of the ranks: the first node of the list, and a port that differs between two jobs
/// on one node.
fn rendezvous(draft: &RenderInput<'_>) -> String {
    let nodes: u32 = draft.workers.iter().map(|role| role.nodes).sum();
    format!(
        "# Where the ranks meet. Not in a pipe: of a long list its reader would end `scontrol` with SIGPIPE, and that the job.\n\
         read -r MASTER_ADDR < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n\
         export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) NNODES={nodes} WORLD_SIZE={}\n\n",
        draft.world()
    )
}

fn code(draft: &RenderInput<'_>) -> Result<String> {
    let Some(code) = &draft.job.spec.code else { return Ok(String::new()) };
    if draft.job.spec.code_folder().is_some() && draft.settings.reached_log_dir().is_none() {
        let message = "slurmrestd carries no files, so the job's folder cannot be sent";
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint("set `path-map` of the target where its folder for logs is mounted here, or `ssh`")
            .hint("or let the job clone a Git repository: `code = { git = … }`"));
    }
    let archive = format!("\"$weftrun_once.{}\"", script::ARCHIVE);
    let fetch = script::code(BACKEND, code, "\"$weftrun_source\"", &archive, "exit 1")?;
    Ok(format!(
        "# The job's code, where every node sees it.\nweftrun_source=$weftrun_base.code\n\
         mkdir -- \"$weftrun_source\" 2> /dev/null || :\n\
         if [ ! -d \"$weftrun_source\" ] || [ -L \"$weftrun_source\" ] || [ ! -O \"$weftrun_source\" ]; then\n  \
         echo \"weftrun: $weftrun_source cannot be created, or belongs to another user\" >&2\n  exit 1\nfi\n{fetch}\n"
    ))
}
