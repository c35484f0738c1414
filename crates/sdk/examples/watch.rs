//! Watches every job of a target over one connection, one line a change. `cargo run -p weftrun --example watch [TARGET]`;
//! Ctrl-C ends it.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its result")]

use futures_util::TryStreamExt;
use weftrun::prelude::*;

#[tokio::main]
async fn main() -> weftrun::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "local".to_owned());
    let client = Client::builder().config(Config::load()?).build()?;
    let mut events = client.watch(&target, JobFilter::all()).await?;
    while let Some(event) = events.try_next().await? {
        match event {
            JobEvent::Status { job } => println!("{:10} {} {}", job.phase, job.handle, job.reason),
            JobEvent::Stuck { job, finding } => println!("{:10} {job} {}", "stuck", finding.message),
            JobEvent::Gone { job } => println!("{:10} {job}", "gone"),
            JobEvent::Disconnected { lost: true, reason } => {
                eprintln!("the cluster does not answer: {reason}");
            }
            _ => {}
        }
    }
    Ok(())
}
