//! Plans a job, submits it, follows its logs, and ends with an error when the ranks did not use the planned fabric.
//!
//! ```sh
//! cargo run -p weftrun --example submit -- local      # or a target of your configuration
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use futures_util::TryStreamExt;
use weftrun::core::spec::Code;
use weftrun::prelude::*;

/// Stands for a training script.
const TRAIN: &str =
    "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n";

#[tokio::main]
async fn main() -> weftrun::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "local".to_owned());
    let client = Client::builder().config(Config::load()?).build()?;
    run(&client, &target).await
}

/// The example of the crate's front page, with its script along.
pub async fn run(client: &Client, target: &str) -> weftrun::Result<()> {
    let spec = JobSpec::builder("llama-8b")
        .image("pytorch:25.09")
        .launch(Launch::Torchrun)
        .code(Code::Script { name: "train.py".to_owned(), text: TRAIN.to_owned() })
        .role(Role::worker().nodes(4).gpus_per_node(8).command(["train.py"]))
        .fabric(Fabric::Efa)
        .build()?;
    let job = client.plan(target, &spec).await?.submit().await?;
    let (mut logs, mut map) = (job.logs(LogOptions::follow()), TransportMap::default());
    while let Some(batch) = logs.try_next().await? {
        print!("{}", String::from_utf8_lossy(&batch.bytes));
        for event in batch.read_into(&mut map) {
            println!("{event}");
        }
    }
    let end = job.wait().await?;
    println!("{}: {} {}", end.handle, end.phase, end.reason);
    job.diagnose(&map).into_result()?; // an error when planned EFA ran on sockets
    Ok(())
}
