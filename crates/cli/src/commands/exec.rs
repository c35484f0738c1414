//! `exec`: runs a command beside a rank of a running job.

use std::io::{IsTerminal as _, Write};

use clap::Args;
use weftrun::core::backend::{ExecRequest, ExecStream};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::interrupt::interrupted;
use crate::output::unwritten;

const EXAMPLES: &str = "\
Examples:
  weftrun exec slurm://prod/4711 -- nvidia-smi
  weftrun exec slurm://prod/4711 --rank 12 -- py-spy dump --pid 4242
  weftrun exec -it slurm://prod/4711 --rank 12 -- bash
  weftrun exec train -b prod -- sh -c 'pgrep -f train.py | xargs -n1 py-spy dump --pid'

The exit code is that of the command. Standard input is passed on with `-i`.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
    /// Run the command where this global rank runs [default: on the job's first node]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Pass standard input on to the command
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Attach this terminal to the command (with -i)
    #[arg(short = 't', long, requires = "stdin")]
    pub tty: bool,
    /// Command and its arguments; no shell reads them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Runs a command beside a rank, and forwards its output and exit code.
pub fn run(context: &Context, args: &ExecArgs) -> Result<u8> {
    let mut request = ExecRequest::new(args.command.iter().cloned());
    request.rank = args.rank;
    request.terminal = args.tty;
    let client = context.client()?;
    if args.stdin {
        if args.tty && !std::io::stdin().is_terminal() {
            return Err(Error::new(ErrorKind::Usage, "`-t` needs a terminal, and standard input is none")
                .hint("with `-i` alone, standard input is passed on as it is"));
        }
        let code =
            context.block_on(async { context.job(&client, &args.handle).await?.attach(&request).await })?;
        return Ok(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let (mut stdout, mut stderr) = (context.out.relay_writer(), context.out.stderr_relay_writer());
    let code = context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let mut sink = |stream, bytes: &[u8]| {
            let to = if stream == ExecStream::Stdout { &mut stdout } else { &mut stderr };
            to.write_all(bytes).and_then(|()| to.flush()).map_err(unwritten)
        };
        tokio::select! {
            code = job.exec(&request, &mut sink) => code,
            () = interrupted() => {
                Err(Error::new(ErrorKind::Interrupted, "interrupted: the command was ended, and the job continues"))
            }
        }
    });
    stdout.finish()?;
    stderr.finish()?;
    // A shell reports the end by a signal as 128 and more; a code that is not a byte is still a failure.
    code.map(|code| u8::try_from(code).unwrap_or(u8::MAX))
}
