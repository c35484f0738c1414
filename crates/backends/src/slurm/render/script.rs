//! The script from its first line to its last.

use weftrun_core::convert::{BLOCK_BEGIN, BLOCK_END, Directives};
use weftrun_core::spec::{Code, Launch, RestartPolicy};
use weftrun_core::{Error, ErrorKind, Result};

use super::{Draft, directives, launch};
use crate::slurm::quote;

/// Writes the script.
pub fn write(draft: &Draft<'_>, components: &[Directives]) -> Result<String> {
    let dir = draft.log_dir();
    let from_home = if dir.starts_with('/') { "" } else { ", in the home directory" };
    let mut text = format!(
        "#!{}\n# Rendered by weftrun. By hand{from_home}: mkdir -p {} && sbatch THIS_FILE\n",
        shell(draft)?,
        quote::word(&dir)?
    );
    text.push_str(&directives::write(components)?);
    text.push_str("\nset -eo pipefail\n\n");
    text.push_str(&claim(draft)?);
    text.push_str(&records(draft)?);
    for line in &draft.own.setup {
        quote::line(line)?;
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&environment(draft)?);
    text.push_str(&fabric(draft)?);
    if draft.job.spec.launch != Launch::Once {
        text.push_str(&rendezvous(draft));
    }
    text.push_str(&code(draft)?);
    text.push_str(&restarted(draft, &launch::write(draft)?));
    Ok(text)
}

/// The shell of the script: bash, or as the job says with options (`/bin/bash -l` is a login shell).
fn shell<'a>(draft: &'a Draft<'_>) -> Result<&'a str> {
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

/// How often a job is queued again after failed launches, where only `requeue` is said.
const LAUNCHES: u32 = 3;

/// Queues the job again where a node was lost while srun launched. Slurm's own requeue comes only once slurmctld misses the
/// node (SlurmdTimeout, minutes on most sites); srun gives up within seconds, and a script that then ends is a job
/// that failed (seen on 22.05.8: FAILED with 233, Restarts=0).
fn lost_launch(draft: &Draft<'_>) -> String {
    let most = match draft.job.spec.restart {
        RestartPolicy::OnFailure { max } => max,
        RestartPolicy::Never => LAUNCHES,
    };
    if !draft.requeues() || most == 0 {
        return String::new();
    }
    format!(
        "# A node that is lost while srun launches ends srun, and not yet the job: it is queued again, as after a node failure.\n\
         weftrun_lost() {{\n  awk '/^#weftrun log=1 /{{lost=0}} /^srun: error: Application launch failed: /{{lost=1}} END{{exit !lost}}' \"$weftrun_base.log\"\n}}\n\
         weftrun_requeue() {{\n  \
         if [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {most} ] && weftrun_lost && scontrol requeue \"$SLURM_JOB_ID\"; then exec sleep 600; fi\n}}\n"
    )
}

/// The command, again after a failure where the job may restart. In the same allocation: a requeue would wait two
/// minutes and queue again. The whole step begins again, with torchrun too: -K1 has ended what was left of it.
fn restarted(draft: &Draft<'_>, command: &str) -> String {
    let lost = if draft.requeues() { " || weftrun_lost" } else { "" };
    match draft.job.spec.restart {
        RestartPolicy::OnFailure { max } if max > 0 => format!(
            "weftrun_restarts=0\nwhile :; do\nweftrun_code=0\n{} || weftrun_code=$?\n\
             if [ \"$weftrun_code\" -eq 0 ] || [ \"$weftrun_restarts\" -ge {max} ]{lost}; then exit \"$weftrun_code\"; fi\n\
             weftrun_restarts=$((weftrun_restarts + 1)) weftrun_attempt=$((weftrun_attempt + 1))\nweftrun_begin\ndone\n",
            command.trim_end()
        ),
        _ => command.to_owned(),
    }
}

/// The path of the folder of logs, as the script's shell knows it.
fn log_dir(draft: &Draft<'_>) -> Result<String> {
    let dir = draft.log_dir();
    let root = if dir.starts_with('/') { "" } else { "\"$HOME/\"" };
    Ok(format!("{root}{}", quote::word(&dir)?))
}

/// Exit code of a job that found its submission claimed by another job.
pub const IS_A_COPY: i32 = 75;

/// The first lines: a submission that Slurm has twice (its answer was lost, and it was sent again) runs once. The first
/// job to start makes a link that holds its id, in the folder that the submission has from before it was sent; making a
/// link succeeds once, on NFS too. The same job passes again after a requeue, and all tasks of an array are one job. A
/// script that somebody submits by hand has no such folder, and runs as often as it is submitted.
fn claim(draft: &Draft<'_>) -> Result<String> {
    Ok(format!(
        "# If Slurm has this submission twice, only the first job to start runs it.\n\
         weftrun_once={dir}/.submit-{submission} weftrun_me=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}\n\
         [ -z \"${{WEFTRUN_ONCE:-}}\" ] || mkdir -p -- \"$weftrun_once\" || :\n\
         unset WEFTRUN_ONCE\n\
         if [ -d \"$weftrun_once\" ] && [ ! -L \"$weftrun_once\" ] && [ -O \"$weftrun_once\" ]; then\n  \
         ln -s -n -- \"$weftrun_me\" \"$weftrun_once/job\" 2> /dev/null || :\n  \
         weftrun_first=$(readlink -- \"$weftrun_once/job\") || weftrun_first=$weftrun_me\n  \
         if [ \"$weftrun_first\" != \"$weftrun_me\" ]; then\n    \
         echo \"weftrun: job $weftrun_first runs this submission already; job $weftrun_me is a copy of it and ends\" >&2\n    \
         exit {IS_A_COPY}\n  fi\nfi\n\n",
        dir = log_dir(draft)?,
        submission = draft.job.submission,
    ))
}

/// Two lines in the log and one file beside it: which life of the job wrote what, and how it ended. Slurm forgets exit
/// codes after MinJobAge where there is no accounting, and accounting before 26.05 tells some of them wrongly.
fn records(draft: &Draft<'_>) -> Result<String> {
    let labels = match (draft.own.rank_logs, launch::tasks_are_ranks(draft)) {
        (true, _) => "none",
        _ if draft.job.spec.launch == Launch::Once => "none",
        (false, true) => "rank",
        (false, false) => "node",
    };
    let tasks =
        |role: &weftrun_core::spec::Role| role.nodes.saturating_mul(launch::tasks_per_node(draft, role));
    let roles: Vec<String> =
        draft.workers.iter().map(|role| format!("{}:{}", safe(&role.name), tasks(role))).collect();
    let lost = lost_launch(draft);
    Ok(format!(
        "# What weftrun reads later: the file of the exit code, and two lines of the log.\n\
         weftrun_base={}/\"{}\"\n\
         weftrun_attempt=$(grep -a -c '^#weftrun log=1 ' \"$weftrun_base.log\" 2> /dev/null) || weftrun_attempt=0\n\
         rm -f \"$weftrun_base.exit\"\n\
         weftrun_begin() {{\n  printf '#weftrun log=1 attempt=%s labels={labels} tasks={} ranks={}\\n' \"$weftrun_attempt\"\n}}\n\
         weftrun_first() {{\n  \
         awk '/^#weftrun log=1 /{{first=\"\"}} first==\"\" && /^srun: error: [^:]*: tasks? [0-9,-]*: /{{first=$0}} END{{print first}}' \"$weftrun_base.log\" |\n    \
         sed -n -e 's/.*: Exited with exit code \\([0-9]*\\).*/\\1/p' -e 's/.*: Segmentation fault.*/139/p' -e 's/.*: Aborted.*/134/p' -e 's/.*: Bus error.*/135/p' -e 's/.*: Killed.*/137/p'\n}}\n\
         {follow}{lost}weftrun_end() {{\n  weftrun_code=$?\n  trap - EXIT\n  {requeue}\
         # srun tells the greatest code, and the ranks that -K1 ended have 143: the first failure is the job's.\n  \
         if [ \"$weftrun_code\" -ge 128 ]; then weftrun_code=$(weftrun_first 2> /dev/null | grep . || echo \"$weftrun_code\"); fi\n  \
         printf '#weftrun end attempt=%s code=%s\\n' \"$weftrun_attempt\" \"$weftrun_code\"\n  \
         {{ rm -f \"$weftrun_base.exit.new\" && (set -C; printf '%s %s\\n' \"$weftrun_code\" \"$weftrun_attempt\" > \"$weftrun_base.exit.new\") && mv -f \"$weftrun_base.exit.new\" \"$weftrun_base.exit\"; }} || :\n  exit \"$weftrun_code\"\n}}\n\
         trap weftrun_end EXIT\nweftrun_begin\n\n",
        log_dir(draft)?,
        draft.log_name_in_shell(),
        roles.join(","),
        draft.world(),
        follow = if draft.has_own_output() { FOLLOW } else { "" },
        requeue = if lost.is_empty() { "" } else { "[ \"$weftrun_code\" -eq 0 ] || weftrun_requeue\n  " },
    ))
}

/// Where the job names its own output file, the log that is followed is a link to it.
const FOLLOW: &str = "weftrun_output=$(readlink \"/proc/$$/fd/1\") || weftrun_output=\n\
    case $weftrun_output in (/*) ln -s -n -f -- \"$weftrun_output\" \"$weftrun_base.log\" || : ;; esac\n";

/// A name that is safe in a file name and in the log's first line.
pub fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// The job's own variables. Values are literal, whatever they hold.
fn environment(draft: &Draft<'_>) -> Result<String> {
    let spec = &draft.job.spec;
    let mut text = String::new();
    if !spec.env.iter().any(|var| var.name == "PYTHONUNBUFFERED") {
        text.push_str("export PYTHONUNBUFFERED=1\n");
    }
    let single = draft.workers.first().filter(|_| draft.workers.len() == 1);
    for var in spec.env.iter().chain(single.into_iter().flat_map(|role| &role.env)) {
        text.push_str(&format!("export {}={}\n", variable(&var.name)?, quote::value(&var.value)?));
    }
    if !spec.secrets.is_empty() {
        let dir = draft
            .own
            .secrets_dir
            .as_deref()
            .map_or(Ok("\"$HOME/.config/weftrun/secrets\"".to_owned()), quote::word)?;
        text.push_str(&format!("# Secrets stay in files on the cluster.\nweftrun_secrets={dir}\n"));
        for secret in &spec.secrets {
            if secret.secret.contains("..") || secret.key.contains("..") {
                return Err(Error::new(ErrorKind::InvalidSpec, "a secret's name may not hold `..`")
                    .with("secret", &secret.secret));
            }
            let (name, path) =
                (variable(&secret.env)?, quote::word(&format!("{}/{}", secret.secret, secret.key))?);
            text.push_str(&format!("{name}=$(cat -- \"$weftrun_secrets\"/{path})\nexport {name}\n"));
        }
    }
    Ok(format!("{text}\n"))
}

pub fn variable(name: &str) -> Result<&str> {
    let good = name
        .bytes()
        .enumerate()
        .all(|(at, b)| b == b'_' || b.is_ascii_alphabetic() || at > 0 && b.is_ascii_digit());
    if good && !name.is_empty() {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::InvalidSpec, "not the name of an environment variable")
        .with("name", name.escape_debug()))
}

/// The one block of the fabric, with the why of each line.
fn fabric(draft: &Draft<'_>) -> Result<String> {
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
        // What the node's own profile or `setup` put there is kept behind ours.
        let is_path = name == "LD_LIBRARY_PATH" && !spec_sets(draft, name);
        let tail = if is_path { "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"" } else { "" };
        lines.push(format!("export {}={}{tail}", variable(name)?, quote::value(value)?));
    }
    if lines.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("{BLOCK_BEGIN}\n{}\n{BLOCK_END}\n\n", lines.join("\n")))
}

fn spec_sets(draft: &Draft<'_>, name: &str) -> bool {
    let roles = draft.workers.iter().flat_map(|role| &role.env);
    draft.job.spec.env.iter().chain(roles).any(|var| var.name == name)
}

/// Where the ranks meet: the first node of the list, and a port that two jobs on one node do not share.
fn rendezvous(draft: &Draft<'_>) -> String {
    let nodes: u32 = draft.workers.iter().map(|role| role.nodes).sum();
    format!(
        "# Where the ranks meet.\nMASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
         export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) NNODES={nodes} WORLD_SIZE={}\n\n",
        draft.world()
    )
}

fn code(draft: &Draft<'_>) -> Result<String> {
    let Some(code) = &draft.job.spec.code else { return Ok(String::new()) };
    let fetch = match code {
        Code::Script { name, text } => {
            if name.is_empty()
                || name.contains('/')
                || name.chars().any(char::is_control)
                || name.starts_with(['-', '.'])
            {
                return Err(Error::new(ErrorKind::InvalidSpec, "the code's file name may hold no folder")
                    .with("name", name.escape_debug()));
            }
            quote::feed(&format!("cat > \"$weftrun_source\"/{}", quote::word(name)?), text)?
        }
        Code::Git { url, rev } => {
            let checkout = match rev {
                Some(rev) if rev.starts_with('-') => {
                    return Err(Error::new(ErrorKind::InvalidSpec, "not a Git revision")
                        .with("rev", rev.escape_debug()));
                }
                Some(rev) => {
                    format!("git -C \"$weftrun_source\" checkout --quiet {} --\n", quote::word(rev)?)
                }
                None => String::new(),
            };
            format!(
                "[ -d \"$weftrun_source/.git\" ] || git clone --quiet -- {} \"$weftrun_source\"\n{checkout}",
                quote::word(url)?
            )
        }
        _ => return Err(Error::unsupported("slurm", "code of this kind")),
    };
    Ok(format!(
        "# The job's code, where every node sees it.\nweftrun_source=$weftrun_base.code\n\
         mkdir -- \"$weftrun_source\" 2> /dev/null || :\n\
         if [ ! -d \"$weftrun_source\" ] || [ -L \"$weftrun_source\" ] || [ ! -O \"$weftrun_source\" ]; then\n  \
         echo \"weftrun: $weftrun_source cannot be made, or is somebody else's\" >&2\n  exit 1\nfi\n{fetch}\n"
    ))
}
