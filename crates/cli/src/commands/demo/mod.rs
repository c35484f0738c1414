//! `demo`: a four-rank, two-node job on this machine, its transports read while it runs.

mod cost;
mod job;

use std::time::Duration;

use clap::{Args, builder::PossibleValuesParser};
use weftrun::{Plan, Result};
use weftrun_replay::SHIPPED;

use super::submit;
use crate::context::Context;
use crate::follow::{self, with_limits};
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun demo                              two simulated nodes of two ranks, over sockets
  weftrun demo --capture ofi_tcp_2x2        the EFA plugin is loaded, but the traffic is TCP
  weftrun demo --nodes 4 --ranks-per-node 8 the same run scaled to 32 ranks
  weftrun demo --real                       NCCL on this machine's own GPUs, through torchrun";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Captured run to replay
    #[arg(long, value_name = "NAME", default_value = "socket_2x2", value_parser = PossibleValuesParser::new(SHIPPED))]
    pub capture: String,
    /// Number of simulated nodes [default: as in the capture]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Ranks on each node [default: as in the capture]
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,
    /// Pace of the replay: 1 is real time, 0 does not wait
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub pace: f64,
    /// Run real NCCL on this machine's GPUs (the default if torchrun and two GPUs are present)
    #[arg(long, conflicts_with = "replay")]
    pub real: bool,
    /// Replay the captured run even if GPUs are present
    #[arg(long)]
    pub replay: bool,
    /// Print only the map, not the lines of the ranks
    #[arg(long)]
    pub no_logs: bool,
}

/// Submits the demo's job, follows it, and prints the cost of its transport.
pub fn run(context: &Context, args: &DemoArgs) -> Result<u8> {
    let client = context.client()?;
    let target = client.target(context.global.backend.as_deref().unwrap_or("local"))?;
    context.block_on(async {
        let facts =
            client.connect(&target).await?.discover(&weftrun::core::backend::Scope::default()).await?;
        let demo = job::choose(args, &facts)?;
        introduce(context, &demo.what);
        let planned = client.plan_for(target, &demo.spec).await?;
        play(context, args, &planned).await
    })
}

/// The pace of the demo of the terminal UI: ten times slower than the recorded run, which took a second, so that its map
/// fills while one looks.
const SLOWLY: f64 = 10.0;

/// Submits a demo without following it, for the demo key of the terminal UI. It is larger than the demo of
/// the command line, since the screen shows sixteen ranks at once.
pub async fn start(client: weftrun::Client) -> Result<weftrun::core::job::JobHandle> {
    let args = DemoArgs {
        capture: "socket_2x2".to_owned(),
        nodes: Some(4),
        ranks_per_node: Some(4),
        pace: SLOWLY,
        real: false,
        replay: true,
        no_logs: true,
    };
    let demo = job::choose(&args, &weftrun::core::backend::ClusterFacts::default())?;
    let job = client.plan("local", &demo.spec).await?.submit_unless(|| false).await?;
    client.delivered(job.handle())?;
    Ok(job.handle().clone())
}

async fn play(context: &Context, args: &DemoArgs, planned: &Plan) -> Result<u8> {
    let job = planned.submit_unless(|| false).await?;
    submit::announce(context, &job, planned)?;
    let watching = follow::Watching { snapshots: true, logs: !args.no_logs };
    let followed = follow::follow_with(context, &job, watching);
    let followed = with_limits(followed, Some(Duration::from_secs(600)), job.handle()).await?;
    let code = Box::pin(follow::conclude(context, &job, &followed, false)).await?;
    let out = &context.out;
    out.say(cost::text(&followed.map));
    out.say(format!(
        "\nThe job's record stays: `weftrun describe {0}`, `weftrun logs {0}`, `weftrun delete {0}`.",
        planned.planned().spec.name
    ));
    out.say("Next: `weftrun init > job.toml` writes a job file, `weftrun plan job.toml` lists what its fabric needs.");
    Ok(code)
}

fn introduce(context: &Context, what: &str) {
    let bold = style::BOLD;
    context.out.say(format!("{bold}weftrun demo{bold:#}: {what}"));
}
