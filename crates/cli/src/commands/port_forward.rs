//! `port-forward`: a port of this machine leads to a port inside a job.

use std::collections::BTreeSet;
use std::str::FromStr;

use clap::Args;
use futures_util::future::try_join_all;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::report::PortReport;

use crate::context::Context;
use crate::interrupt::interrupted;

const EXAMPLES: &str = "\
Examples:
  weftrun port-forward slurm://prod/4711 6006                 TensorBoard beside the first rank
  weftrun port-forward train -b prod --rank 8 5678            a debugger beside rank 8
  weftrun port-forward train -b prod 8080:8888 6006           port 8080 of this machine leads to 8888

It ends with the job, or with Ctrl-C, and then the job continues. Only this machine can connect.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PortForwardArgs {
    /// Handle of the job, or its name on the target of -b
    #[arg(value_name = "HANDLE")]
    pub handle: String,
    /// Port of localhost inside the job; before it, another port of this machine (0: a free one)
    #[arg(value_name = "[LOCAL:]PORT", required = true)]
    pub ports: Vec<Ports>,
    /// Connect where this global rank runs [default: on the job's first node]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
}

/// A port of this machine, and the one inside the job.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    local: u16,
    remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let number =
            |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port (0 to 65535)"));
        match (number(local)?, number(remote)?) {
            (_, 0) => Err("no service listens on port 0: write `LOCAL:PORT`".to_owned()),
            (local, remote) => Ok(Self { local, remote }),
        }
    }
}

/// Carries connections until Ctrl-C.
pub fn run(context: &Context, args: &PortForwardArgs) -> Result<u8> {
    let client = context.client()?;
    context.block_on(async {
        let job = context.job(&client, &args.handle).await?;
        let listen = args.ports.iter().map(|ports| job.forward_port(args.rank, ports.remote, ports.local));
        let forwarded = try_join_all(listen).await?;
        let beside = args.rank.map_or_else(String::new, |rank| format!(" beside rank {rank}"));
        for (port, ports) in forwarded.iter().zip(&args.ports) {
            let line = format!(
                "127.0.0.1:{} leads to port {}{beside} of {}",
                port.local,
                ports.remote,
                job.handle()
            );
            if context.out.is_data() {
                context.out.item(&PortReport::new(job.handle(), port.local, ports.remote, args.rank))?;
            } else {
                context.out.line(line)?;
            }
        }
        let serve = forwarded.iter().map(|port| async move {
            // A page that asks again and again says it once.
            let mut said = BTreeSet::new();
            port.serve(&mut |error| {
                let text = error.one_line();
                if said.len() < 100 && said.insert(text.clone()) {
                    context.out.stderr(&clean_text(&format!("weftrun: {text}")));
                }
            })
            .await
        });
        tokio::select! {
            ended = try_join_all(serve) => ended.map(drop)?,
            () = interrupted() => {}
        }
        Ok(exit_codes::OK)
    })
}
