//! A planned job becomes a POSIX shell script. Pure: the same job gives the same bytes.

use std::fmt::Write as _;

use weftrun_core::backend::{Document, Inexpressible, Language, PlannedJob, Rendered};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::{JobSpec, Launch, Rendezvous, RestartPolicy, node_command};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::NAME;

/// Starts the nodes, ends all when one fails or the file `cancelled` appears, and writes how it went. Each node runs in
/// a session of its own, so that everything it starts can be ended with it. `started` is made once, so that a script
/// that is started twice runs once.
const RUNNER: &str = r#"
cd "$(dirname "$0")" || exit 1
mkdir started 2>/dev/null || exit 0
echo "$$" > runner.part && mv runner.part runner
node() {
  n=$1; shift
  setsid --wait sh -c 'echo "$$" > "$0.pid"; cd "$1" || exit 126; shift; exec "$@"' "node$n" "$workdir" "$@" > "node$n.log" 2>&1
  echo "$?" > "node$n.part" && mv "node$n.part" "node$n.code"
}
kill_all() { for pid in node*.pid; do [ ! -e "$pid" ] || read -r group < "$pid" && kill "-$1" "-$group" 2>/dev/null; done; }
# Waits up to five seconds until every node has a file of a kind.
all_have() {
  tries=0
  while [ "$(ls node*."$1" 2>/dev/null | wc -l)" -lt "$nodes" ] && [ "$tries" -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
}
finish() {
  all_have pid
  kill_all TERM
  all_have code
  kill_all KILL
  wait
  echo "$1" > ended.part && mv ended.part ended
  exit 0
}
watch_nodes() {
  while :; do
    well=0
    for file in node*.code; do
      [ -e "$file" ] || continue
      read -r code < "$file"
      [ "$code" = 0 ] || finish "$code"
      well=$((well + 1))
    done
    [ "$well" -lt "$nodes" ] || finish 0
    [ ! -e cancelled ] || finish 143
    sleep 0.1
  done
}
"#;

/// Renders a job.
pub(crate) fn render(job: &PlannedJob) -> Result<Rendered> {
    let spec = &job.spec;
    refuse_what_has_no_place(spec)?;
    job.refuse_avoid("spool")?;
    let (applied, inexpressible) = split(&job.plan.ops);
    let nodes: u32 = spec.roles.iter().map(|role| role.nodes).sum();
    let mut text = format!("#!/bin/sh\n# weftrun-submission: {}\n", job.submission);
    let workdir = word(spec.workdir.as_deref().unwrap_or("."))?;
    let _ = writeln!(text, "nodes={nodes}\nworkdir={workdir}{RUNNER}");
    for var in &spec.env {
        let _ = writeln!(text, "export {}={}", var.name, word(&var.value)?);
    }
    let port = 20_000
        + job.submission.as_str().bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 20_000);
    let _ = writeln!(text, "export MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
    let mut number = 0;
    for role in &spec.roles {
        let own = role.env.iter().map(|var| (var.name.as_str(), var.value.as_str()));
        let decided = applied.iter().filter(|op| op.role == role.name).filter_map(|op| match &op.change {
            Change::Env { name, value } => Some((name.as_str(), value.as_str())),
            _ => None,
        });
        let mut env = vec!["env".to_owned()];
        for (name, value) in own.chain(decided) {
            env.push(word(&format!("{name}={value}"))?);
        }
        for _ in 0..role.nodes {
            let rank = number.to_string();
            let at =
                Rendezvous { node_rank: &rank, master_addr: "127.0.0.1", master_port: &port.to_string() };
            let argv =
                node_command(spec, role, &at).iter().map(|arg| word(arg)).collect::<Result<Vec<_>>>()?;
            let _ = writeln!(text, "node {number} {} NODE_RANK={number} {} &", env.join(" "), argv.join(" "));
            number += 1;
        }
    }
    text.push_str("watch_nodes\n");
    let document = Document { title: "job script".to_owned(), language: Language::Shell, text };
    let mut rendered = Rendered::new(&spec.name, job.submission.clone(), document);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    if let Some(image) = &spec.image {
        rendered.findings.push(
            Finding::info(
                "SPOOL-IMAGE",
                format!("the image `{image}` is not used: jobs run the host's own software"),
            )
            .at("image"),
        );
    }
    Ok(rendered)
}

/// The decisions were made in core; a backend only says which of them it can express. Here that is the environment.
fn split(ops: &[Op]) -> (Vec<Op>, Vec<Inexpressible>) {
    let (applied, rest): (Vec<_>, Vec<_>) =
        ops.iter().cloned().partition(|op| matches!(op.change, Change::Env { .. }));
    let reason = "jobs are plain processes of the host: there is nothing to mount, ask for or annotate";
    (applied, rest.into_iter().map(|op| Inexpressible { op, reason: reason.to_owned() }).collect())
}

/// What a user asks for and would not get is an error before anything is sent, never left out in silence.
fn refuse_what_has_no_place(spec: &JobSpec) -> Result<()> {
    let missing = [
        ("mpi", spec.launch == Launch::Mpi),
        ("restarts", spec.restart != RestartPolicy::Never),
        ("time_limit", spec.time_limit.is_some()),
        ("secrets", !spec.secrets.is_empty()),
        ("code", spec.code.is_some()),
    ];
    match missing.iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(Error::unsupported(NAME, what)),
        None => Ok(()),
    }
}

/// A word of a shell script that comes back as data, whatever is in it.
fn word(text: &str) -> Result<String> {
    shlex::try_quote(text).map(std::borrow::Cow::into_owned).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "a NUL byte cannot stand in a command or variable")
            .with("value", format!("{text:?}"))
    })
}
