//! `mcp`: the verbs as tools for an agent.

use clap::Args;
use rmcp::ServiceExt;
use weftrun::core::exit_codes;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::interrupt::interrupted;
use crate::mcp::Server;

const EXAMPLES: &str = "\
Examples:
  weftrun mcp                          read only: plan, lint, render, list, describe, logs, why, transport and more
  weftrun mcp -b prod                  the same, of a target
  weftrun mcp --allow-write            with submit, cancel, delete, retry and probe, each after a preview

It speaks the Model Context Protocol on stdin and stdout, and is started by the agent's program:
  {\"mcpServers\": {\"weftrun\": {\"command\": \"weftrun\", \"args\": [\"mcp\"]}}}

It reads every file that you can read. Answers have at most 8 kB.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct McpArgs {
    /// Offer submit, cancel, delete, retry and probe: each shows a preview first, and acts when it is confirmed
    #[arg(long)]
    pub allow_write: bool,
}

/// Serves until the client closes stdin.
pub fn run(context: &Context, args: &McpArgs) -> Result<u8> {
    context.out.text_only("`mcp`")?;
    let program = std::env::current_exe()
        .map_err(|error| Error::new(ErrorKind::Io, "cannot find this program").with_source(error))?;
    let global = &context.global;
    let config = global.config.as_ref().map(|path| path.display().to_string());
    let flags = [
        ("backend", &global.backend),
        ("namespace", &global.namespace),
        ("project", &global.project),
        ("profile", &global.profile),
        ("config", &config),
    ];
    let flags = flags.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
    let server = Server::new(program, flags.collect(), args.allow_write);
    let failed =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::Protocol, format!("cannot serve: {error}"));
    let served = context.block_on(async {
        let serve = async {
            match server.serve(rmcp::transport::stdio()).await {
                Ok(serving) => serving.waiting().await.map(drop).map_err(|error| failed(&error)),
                // The client left before it began.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
                Err(error) => Err(failed(&error)),
            }
        };
        tokio::select! {
            served = serve => served.map(|()| exit_codes::OK),
            () = interrupted() => Ok(exit_codes::INTERRUPTED),
        }
    });
    crate::mcp::stop_all();
    served
}
