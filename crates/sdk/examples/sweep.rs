//! Twenty jobs of one shape, at most four at a time: the rest wait here, not in the cluster's queue.
//! `cargo run -p weftrun --example sweep [TARGET]`
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its result")]

use futures_util::{StreamExt, stream};
use weftrun::core::job::JobSummary;
use weftrun::prelude::*;

const JOBS: u32 = 20;
const AT_ONCE: usize = 4;

#[tokio::main]
async fn main() -> weftrun::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "local".to_owned());
    let client = Client::builder().config(Config::load()?).build()?;
    let results: Vec<_> = stream::iter(0..JOBS)
        .map(|seed| run(client.clone(), target.clone(), seed))
        .buffer_unordered(AT_ONCE)
        .inspect(|result| match result {
            Ok(job) => println!("{:10} {}", job.phase, job.handle),
            Err(error) => eprintln!("error: {error}"),
        })
        .collect()
        .await;
    let failed =
        results.into_iter().filter(|result| !matches!(result, Ok(job) if job.phase == JobPhase::Succeeded));
    match failed.count() {
        0 => Ok(()),
        count => {
            let message = format!("{count} of {JOBS} jobs did not succeed");
            Err(weftrun::Error::new(weftrun::ErrorKind::Refused, message))
        }
    }
}

async fn run(client: Client, target: String, seed: u32) -> weftrun::Result<JobSummary> {
    // A name of its own, so that a second sweep is not refused for the names of the first.
    let name = format!("sweep-{seed}-{:08x}", std::process::id());
    let role = Role::worker().ranks_per_node(1).command(["sh", "-c", &format!("exit $(({seed} / 100))")]);
    let spec = JobSpec::builder(name).launch(Launch::PerRank).role(role).build()?;
    client.plan(&target, &spec).await?.submit().await?.wait().await
}
