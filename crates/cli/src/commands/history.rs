//! `history`: the jobs that are kept of a target, for the user to take along or to remove.

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::report::{HistoryExport, HistoryReport};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::global::Format;

const EXAMPLES: &str = "\
Examples:
  weftrun history -b prod                           where it is, and how much
  weftrun history --export -b prod > jobs.jsonl     a job a line, as docs/guides/nodes.md describes
  weftrun history --forget --node gpu-17 -b prod    after a repair
  weftrun history --forget -b prod                  all of it";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    /// Print every job that is kept, as one line of JSON each
    #[arg(long, conflicts_with = "forget")]
    pub export: bool,
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
    let history = client.job_history(&target).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "no history of this target is kept: it is this machine, or `[history] enabled` is false",
        )
        .hint("`weftrun config set history.enabled true` keeps one")
    })?;
    let path = history.path().display();
    match (args.forget, &args.node) {
        (true, Some(node)) => match history.forget_node(node)? {
            0 => context.out.say(format!("nothing counted against {node} in {path}")),
            events => context.out.say(format!("forgot {events} events of {node} in {path}")),
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
            let past = history.read()?;
            let (jobs, nodes) = (past.records.len(), history.nodes()?.len());
            if context.out.format == Format::Table {
                context.out.line(format!("{path}: {jobs} jobs, {nodes} nodes"))?;
                if past.unread > 0 {
                    context.out.say(format!("{} lines of it are no records, and are not used", past.unread));
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
