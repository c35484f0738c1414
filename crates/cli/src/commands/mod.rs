//! One file per verb: its arguments, and its implementation.

pub mod act;
pub mod advisories;
pub mod backends;
pub mod bandwidth;
pub mod completions;
pub mod config;
pub mod demo;
pub mod describe;
pub mod doctor;
pub mod exec;
pub mod explain;
pub mod health;
pub mod history;
pub mod import;
pub mod init;
pub mod instances;
pub mod lint;
pub mod list;
pub mod logs;
pub mod man;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod mutate;
pub mod nodes;
pub mod plan;
pub mod port_forward;
pub mod probe;
pub mod profiles;
pub mod render;
pub mod report;
pub mod retry;
pub mod skill;
pub mod submit;
pub mod supervise;
pub mod targets;
pub mod transport;
pub mod tui;
pub mod verify;
pub mod wait;
pub mod watch;
pub mod why;

use weftrun::core::exit_codes;
use weftrun::core::job::Action;
use weftrun::{Error, ErrorKind, Result};

use crate::args::Command;
use crate::context::Context;
use crate::global::Format;

/// Runs a verb and returns the exit code.
pub fn dispatch(context: &Context, command: Option<Command>) -> Result<u8> {
    check_output(context.out.format, command.as_ref())?;
    match command {
        None => tui::run(context, tui::TuiArgs::default()),
        Some(Command::Submit(args)) => submit::run(context, &args),
        Some(Command::Plan(args)) => plan::run(context, &args),
        Some(Command::Render(args)) => render::run(context, &args),
        Some(Command::Mutate(args)) => mutate::run(context, &args),
        Some(Command::Lint(args)) => lint::run(context, &args),
        Some(Command::Import(args)) => import::run(context, &args),
        Some(Command::Explain(args)) => explain::run(context, &args),
        Some(Command::Transport(args)) => transport::run(context, &args),
        Some(Command::Why(args)) => why::run(context, &args),
        Some(Command::Report(args)) => report::run(context, &args),
        Some(Command::Verify(args)) => verify::run(context, &args),
        Some(Command::Probe(args)) => probe::run(context, &args),
        Some(Command::Health(args)) => health::run(context, &args),
        Some(Command::Bandwidth(args)) => bandwidth::run(context, &args),
        Some(Command::Logs(args)) => logs::run(context, args),
        Some(Command::Exec(args)) => exec::run(context, &args),
        Some(Command::PortForward(args)) => port_forward::run(context, &args),
        Some(Command::Watch(args)) => watch::run(context, &args),
        Some(Command::Wait(args)) => wait::run(context, &args),
        Some(Command::Retry(args)) => retry::run(context, &args),
        Some(Command::List(args)) => list::run(context, &args),
        Some(Command::Describe(args)) => describe::run(context, &args),
        Some(Command::Cancel(args)) => act::cancel(context, &args),
        Some(Command::Delete(args)) => act::delete(context, &args),
        Some(Command::Suspend(args)) => act::run(context, &args.handles, Action::Suspend),
        Some(Command::Resume(args)) => act::run(context, &args.handles, Action::Resume),
        Some(Command::Hold(args)) => act::run(context, &args.handles, Action::Hold),
        Some(Command::Release(args)) => act::run(context, &args.handles, Action::Release),
        Some(Command::Requeue(args)) => act::run(context, &args.handles, Action::Requeue),
        Some(Command::Advisories(args)) => advisories::run(context, &args),
        Some(Command::Backends) => backends::run(context),
        Some(Command::Config(args)) => config::run(context, &args),
        Some(Command::Init(args)) => init::run(context, &args),
        Some(Command::Instances(args)) => instances::run(context, &args),
        Some(Command::Profiles(args)) => profiles::run(context, &args),
        Some(Command::Nodes(args)) => nodes::run(context, &args),
        Some(Command::History(args)) => history::run(context, &args),
        Some(Command::Targets) => targets::run(context),
        Some(Command::Doctor(args)) => doctor::run(context, &args),
        Some(Command::Demo(args)) => demo::run(context, &args),
        Some(Command::Supervise(args)) => supervise::run(&args),
        Some(Command::Completions(args)) => completions::run(context, &args),
        Some(Command::Man(args)) => man::run(context, &args),
        #[cfg(feature = "mcp")]
        Some(Command::Mcp(args)) => mcp::run(context, &args),
        Some(Command::Skill(args)) => skill::run(context, &args),
        Some(Command::Tui(args)) => tui::run(context, args),
        Some(Command::Version) => {
            context.out.text_only("`version`")?;
            context.out.line(concat!("weftrun ", env!("CARGO_PKG_VERSION")))?;
            Ok(exit_codes::OK)
        }
    }
}

/// Refuses an output that only other verbs have.
fn check_output(format: Format, command: Option<&Command>) -> Result<()> {
    let (has, verbs) = match format {
        Format::Table | Format::Json | Format::Yaml => return Ok(()),
        Format::Name => (matches!(command, Some(Command::List(_))), "`list`"),
        Format::Wide => {
            (matches!(command, Some(Command::List(_) | Command::Describe(_))), "`list` and `describe`")
        }
        Format::Sarif => (matches!(command, Some(Command::Lint(_))), "`lint`"),
        Format::Mermaid => (matches!(command, Some(Command::Transport(_))), "`transport`"),
        Format::Html => (
            match command {
                Some(Command::Transport(_) | Command::Report(_) | Command::Why(_)) => true,
                Some(Command::Verify(args)) => !args.history,
                _ => false,
            },
            "`report`, `why`, `transport` and `verify`",
        ),
    };
    if has {
        return Ok(());
    }
    let word = crate::global::word(&format);
    Err(Error::new(ErrorKind::Usage, format!("this verb has no {word} output"))
        .hint(format!("use -o table, json or yaml; {word} is an output of {verbs}")))
}
