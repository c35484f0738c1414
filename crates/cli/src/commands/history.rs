//! `history`: the jobs that are kept of a target, for the user to take along or to remove.

use std::path::PathBuf;

use clap::Args;
use weftrun::core::backend::TargetConfig;
use weftrun::core::exit_codes;
use weftrun::core::text::counted;
use weftrun::report::{HistoryExport, HistoryReport};
use weftrun::{Client, Error, ErrorKind, Imported, JobHistory, Result};

use crate::context::Context;
use crate::global::Format;

const EXAMPLES: &str = "\
Examples:
  weftrun history -b prod                           where it is, and how much
  weftrun history --export -b prod > jobs.jsonl     a job a line, as docs/guides/nodes.md describes
  weftrun history --import /fsx/nvrx -b prod        the cycles of jobs that ran under NVRx (--ft-cycle-info-dir)
  weftrun history --forget --node gpu-17 -b prod    after a repair
  weftrun history --forget -b prod                  all of it";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    /// Print every job that is kept, as one line of JSON each
    #[arg(long, conflicts_with = "forget")]
    pub export: bool,
    /// Add the cycles of jobs that ran under NVRx, from a `cycle_info.*` file or a folder of them: which nodes ran, and why a
    /// cycle failed where its log is there
    #[arg(long, value_name = "PATH", conflicts_with_all = ["forget", "export"])]
    pub import: Option<PathBuf>,
    /// Remove the history of the target, or with --node what counts against one node
    #[arg(long)]
    pub forget: bool,
    /// Node whose failures are forgotten
    #[arg(long, value_name = "NODE", requires = "forget")]
    pub node: Option<String>,
}

/// Prints where the history is, exports it, or forgets it.
pub fn run(context: &Context, args: &HistoryArgs) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    // What was kept before it was switched off can still be removed.
    let history =
        if args.forget { JobHistory::at(client.config(), &target) } else { of_target(&client, &target)? };
    let path = history.path().display();
    match (args.forget, &args.node) {
        (true, Some(node)) => match history.forget_node(node)? {
            0 => context.out.say(format!("nothing counted against {node} in {path}")),
            events => context.out.say(format!("forgot {} of {node} in {path}", counted(events, "event"))),
        },
        (true, None) if history.forget()? => context.out.say(format!("removed {path}")),
        (true, None) => context.out.say(format!("there is no {path}")),
        (false, _) if args.export => {
            let past = history.read()?;
            if context.out.format == Format::Table {
                past.records.iter().try_for_each(|record| context.out.item(record))?;
            } else {
                context.out.value(&HistoryExport::new(&target.name, &past.records))?;
            }
        }
        (false, _) => {
            if let Some(from) = &args.import {
                refuse_simulated(&client, &target)?;
                say_imported(context, history.import_cycles(&target, from)?);
            }
            let past = history.read()?;
            let (jobs, nodes) = (past.records.len(), past.nodes().len());
            if context.out.format == Format::Table {
                let (jobs, nodes) = (counted(jobs, "job"), counted(nodes, "node"));
                context.out.line(format!("{path}: {jobs}, {nodes}"))?;
                if past.unread > 0 {
                    let lines = counted(past.unread, "line");
                    context.out.say(format!("{lines} of it cannot be read as a record, and do not count"));
                }
            } else {
                context.out.value(&HistoryReport::new(
                    &target.name,
                    history.path(),
                    jobs,
                    nodes,
                    past.unread,
                ))?;
            }
        }
    }
    Ok(exit_codes::OK)
}

/// Returns the history of a target.
///
/// # Errors
/// [`ErrorKind::NotFound`] where none is kept.
pub fn of_target(client: &Client, target: &TargetConfig) -> Result<JobHistory> {
    JobHistory::of(client.config(), target).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "no history is kept: `[history] enabled` is false")
            .hint("`weftrun config set history.enabled true` keeps one")
    })
}

/// Refuses cycles for a target whose nodes are simulated: they would be kept, and no node judged by them.
fn refuse_simulated(client: &Client, target: &TargetConfig) -> Result<()> {
    if client.job_history(target).is_some() {
        return Ok(());
    }
    let message = format!("the target `{}` keeps no history of nodes: they are simulated", target.name);
    Err(Error::new(ErrorKind::Usage, message)
        .hint("name the target whose nodes ran the cycles: `weftrun history --import PATH -b TARGET`"))
}

fn say_imported(context: &Context, imported: Imported) {
    let mut line = format!("{} of NVRx", counted(imported.cycles, "cycle"));
    if imported.with_cause > 0 {
        line.push_str(&format!(", {} with the cause of their failure", imported.with_cause));
    }
    if imported.without_end > 0 {
        line.push_str(&format!("; {} without an end not imported", counted(imported.without_end, "cycle")));
    }
    if imported.unread > 0 {
        line.push_str(&format!("; {} cannot be read as a cycle", counted(imported.unread, "file")));
    }
    if imported.logs_left_out > 0 {
        let logs = counted(imported.logs_left_out, "log");
        line.push_str(&format!(
            "; {logs} not used: named by another cycle too, written at another time, longer than 1 GiB, or not read within ten minutes"
        ));
    }
    context.out.say(line);
}
