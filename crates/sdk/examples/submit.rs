//! Plans a job, prints every decision, submits it and follows its ranks to the verdict.
//!
//! `cargo run -p weftrun --example submit [TARGET]`; without a target on this machine, where the job needs no GPU.

use futures_util::TryStreamExt;
use weftrun::prelude::*;

#[tokio::main]
async fn main() -> weftrun::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "local".to_owned());
    let client = Client::builder().config(Config::load()?).build()?;
    let spec = JobSpec::builder("hello-ranks")
        .launch(Launch::PerRank)
        .role(Role::worker().nodes(2).ranks_per_node(2).command([
            "sh",
            "-c",
            "echo rank $RANK of $WORLD_SIZE",
        ]))
        .build()?;

    let plan = client.plan(&target, &spec).await?;
    eprint!("{}", plan.explain());
    let job = plan.submit().await?;
    eprintln!("{}", job.handle());

    let (mut logs, mut map) = (job.logs(LogOptions::follow()), TransportMap::default());
    while let Some(batch) = logs.try_next().await? {
        print!("{}", String::from_utf8_lossy(&batch.bytes));
        for event in map.observe(&batch) {
            eprintln!("{event}");
        }
    }
    let end = job.wait().await?;
    eprintln!("{} {}", end.phase, end.reason);
    job.diagnose(&map).into_result()?;
    Ok(())
}
