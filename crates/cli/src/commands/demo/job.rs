//! The demo's job: a replayed capture, or real NCCL if there are GPUs.

use weftrun::core::backend::ClusterFacts;
use weftrun::core::spec::{Code, JobSpec, Launch, Role};
use weftrun::{Error, ErrorKind, Result};
use weftrun_replay::{Capture, Shape};

use super::DemoArgs;

/// An all-reduce through PyTorch, for machines with GPUs.
const ALL_REDUCE: &str = include_str!("all_reduce.py");

/// A job with a description.
pub(super) struct Demo {
    pub spec: JobSpec,
    pub what: String,
}

/// Chooses real NCCL if requested, or if it can run and the capture was not requested.
pub(super) fn choose(args: &DemoArgs, facts: &ClusterFacts) -> Result<Demo> {
    let node = facts.nodes.first();
    let gpus = node.and_then(|node| node.allocatable.get("nvidia.com/gpu")?.parse::<u32>().ok()).unwrap_or(0);
    let torchrun = facts.serves.iter().any(|name| name == "torchrun");
    let can = gpus >= 2 && torchrun;
    if args.real && !can {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "real NCCL needs torchrun in PATH and two GPUs on this machine",
        )
        .with("gpus", gpus)
        .with("torchrun", if torchrun { "found" } else { "not found" })
        .hint("without --real the demo plays a captured run"));
    }
    if args.real || can && !args.replay { real(args, gpus) } else { replayed(args) }
}

/// Returns a unique name, so that demos can run in parallel.
fn name() -> String {
    let now = weftrun::clock::now().as_millisecond();
    format!("demo-{:05x}", now & 0xf_ffff)
}

fn replayed(args: &DemoArgs) -> Result<Demo> {
    let capture = Capture::shipped(&args.capture)?;
    let (nodes, ranks) = (args.nodes.unwrap_or(2), args.ranks_per_node.unwrap_or(2));
    let wide = (nodes, ranks) != (2, 2);
    let replay = if wide { capture.scale(Shape::new(nodes, ranks))? } else { capture.exact() };
    let pace = if args.pace.is_finite() { args.pace.clamp(0.0, 100.0) } else { 1.0 };
    let code = Code::Script { name: "play.sh".to_owned(), text: replay.script(pace)? };
    let role = Role::worker().nodes(nodes).ranks_per_node(ranks).command(["sh", "play.sh"]);
    let spec = JobSpec::builder(name()).launch(Launch::PerRank).code(code).role(role).build()?;
    let how = if wide {
        "a captured run of NCCL 2.28.9, widened"
    } else {
        "the bytes of a captured run of NCCL 2.28.9"
    };
    let speed = match pace {
        1.0 => "at the pace they had".to_owned(),
        0.0 => "without waiting".to_owned(),
        pace => format!("in {pace} times the time they took"),
    };
    let what = format!(
        "{} ranks on {nodes} simulated nodes of this machine print {how}\n(four H200 GPUs, capture {}), {speed}. \
         Nothing is computed; all that weftrun says it reads from their logs.",
        replay.world(),
        args.capture
    );
    Ok(Demo { spec, what })
}

fn real(args: &DemoArgs, gpus: u32) -> Result<Demo> {
    let nodes = args.nodes.unwrap_or(2).max(1);
    let each = args.ranks_per_node.unwrap_or((gpus / nodes).clamp(1, 2));
    let code = Code::Script { name: "all_reduce.py".to_owned(), text: ALL_REDUCE.to_owned() };
    let role = Role::worker().nodes(nodes).gpus_per_node(each).command(["all_reduce.py"]);
    let builder = JobSpec::builder(name()).launch(Launch::Torchrun).code(code).role(role);
    let spec = builder.env("NCCL_DEBUG", "INFO").env("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET,ENV").build()?;
    let what = format!(
        "real NCCL on {} GPUs of this machine, as {nodes} simulated nodes (NCCL_HOSTID), through torchrun",
        nodes * each
    );
    Ok(Demo { spec, what })
}
