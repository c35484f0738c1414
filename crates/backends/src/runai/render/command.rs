//! The command of a pod, as the API's two strings.

use serde_json::{Map, Value, json};
use weftrun_core::backend::PlannedJob;
use weftrun_core::fabric::Change;
use weftrun_core::spec::{Launch, Rendezvous, Role, node_command};
use weftrun_core::{Error, ErrorKind, Result};

use crate::kubernetes::code::{Delivery, Scripts};
use crate::kubernetes::escape::literal;
use crate::kubernetes::mpirun;
use crate::runai::quote::{self, Filled};

/// The environment variable that contains a command line which is too long for the API's string.
pub const CARRIER: &str = "WEFTRUN_ARGV";
/// Longest value of an environment variable: the kernel accepts 128 KiB with the name (`MAX_ARG_STRLEN`,
/// Linux 2.6.23).
const LONGEST_VALUE: usize = 128 * 1024 - 64;

/// Returns the words of a node's main process; none for an MPI worker, which runs sshd when it has no
/// command.
pub fn node(job: &PlannedJob, role: &Role, waits: bool) -> Result<Vec<String>> {
    if waits || job.spec.starts_entrypoint(role) {
        return Ok(Vec::new());
    }
    refuse_marks(&role.command)?;
    let [rank, address, port] = quote::MARKS;
    let at = Rendezvous { node_rank: rank, master_addr: address, master_port: port };
    let words = match rewritten(job, role) {
        // If the launch is the user's own, its words were rewritten as a whole.
        Some(after) if matches!(job.spec.launch, Launch::PerNode | Launch::Mpi) => after,
        _ => node_command(&job.spec, role, &at),
    };
    let words = delivery(job)?.command(&job.spec, words);
    Ok(mpirun::wrap_of(job, role).into_iter().chain(words).collect())
}

/// Returns the words of an MPI launcher.
pub fn launcher(job: &PlannedJob, worker: &Role, launcher: &Role, own: &[String]) -> Result<Vec<String>> {
    refuse_marks(&worker.command)?;
    refuse_marks(&launcher.command)?;
    let delivery = delivery(job)?;
    let (mut worker, mut launcher) = (worker.clone(), launcher.clone());
    if let Some(after) = rewritten(job, &launcher) {
        launcher.command = after;
        worker.command.clear();
    }
    mpirun::line(job, &worker, &launcher, own, |ranks| delivery.command(&job.spec, ranks))
}

/// Refuses a user's word that contains one of the placeholders.
fn refuse_marks(words: &[String]) -> Result<()> {
    match words.iter().find(|word| quote::MARKS.iter().any(|mark| word.contains(mark))) {
        None => Ok(()),
        Some(word) => {
            let message = "an argument holds the control character U+0001, which cannot be carried to Run:ai";
            Err(Error::new(ErrorKind::InvalidSpec, message).with("argument", word.escape_debug()))
        }
    }
}

/// Returns the command that a rule made of the role's own.
fn rewritten(job: &PlannedJob, role: &Role) -> Option<Vec<String>> {
    job.plan.ops.iter().rev().filter(|op| op.role == role.name).find_map(|op| match &op.change {
        Change::Command { after, .. } => Some(after.clone()),
        _ => None,
    })
}

/// Always inline: the API cannot create ConfigMaps.
fn delivery(job: &PlannedJob) -> Result<Delivery> {
    Delivery::of(&job.spec, Scripts::Inline, Some(false))
}

/// Writes command and arguments; if they are longer than the API is known to accept, a small shell script
/// that reads the words from an environment variable.
pub fn write(words: &[String], pod: &mut Map<String, Value>, env: &mut Vec<(String, Value)>) -> Result<()> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let (command, args) = (quote::join(std::slice::from_ref(program))?, quote::join(arguments)?);
    if command.len() + args.len() <= quote::LONGEST {
        pod.insert("command".into(), json!(command));
        if !args.is_empty() {
            pod.insert("args".into(), json!(args));
        }
        return Ok(());
    }
    let whole = literal(&quote::shell_line(words, Filled::ByShell)?);
    if whole.len() > LONGEST_VALUE {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("the command line has {} bytes, and {LONGEST_VALUE} fit into the environment variable that carries it", whole.len()),
        )
        .hint("put the script into the image, on a shared volume, or into a Git repository (`code.git`)"));
    }
    env.push((CARRIER.to_owned(), json!({ "value": whole })));
    pod.insert("command".into(), json!("/bin/sh"));
    pod.insert("args".into(), json!(quote::join(&["-c".into(), format!("eval \"exec ${CARRIER}\"")])?));
    Ok(())
}
