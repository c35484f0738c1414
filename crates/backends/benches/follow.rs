//! How fast the local backend's logs are read: `cargo bench -p weftrun-backends --bench follow`.
//!
//! Prints MB/s of three ways: one finished log, many finished logs, and one log that is followed while it is written.
#![allow(clippy::print_stdout, reason = "a benchmark is a program of its own")]

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::StreamExt;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, TargetConfig};
use weftrun_core::log::LogOptions;
use weftrun_testkit::conformance::{Bench, Fixture, Submitted};

struct Local(tempfile::TempDir);

#[async_trait]
impl Fixture for Local {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let mut target = TargetConfig::new("bench", "local", self.0.path());
        target.env = std::env::vars().collect();
        weftrun_backends::local::connect(target).await
    }
}

async fn read(job: &Submitted, options: LogOptions) -> usize {
    let mut batches = job.backend.logs(&job.handle, options);
    let mut bytes = 0;
    while let Some(batch) = batches.next().await {
        bytes += batch.map_or(0, |batch| batch.bytes.len());
    }
    bytes
}

async fn measure(name: &str, ranks: u32, megabytes: u32, follow: bool) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let local = Local(folder);
    let line = "step 120 tokens/sec: 43939.3 loss 2.0571 lr 3.0e-04 grad_norm 0.412";
    let script = format!("yes '{line}' | head -c {}", u64::from(megabytes) << 20);
    let job = match Bench::new(&local).submit_spec(local.job("bench", 1, ranks, &script)).await {
        Ok(job) => job,
        Err(why) => return println!("{name}: {why}"),
    };
    if !follow && let Err(why) = job.wait().await {
        return println!("{name}: {why}");
    }
    let began = Instant::now();
    let options = if follow { LogOptions::follow() } else { LogOptions::default() };
    let bytes = read(&job, options).await;
    let seconds = began.elapsed().as_secs_f64();
    let speed = bytes as f64 / 1e6 / seconds;
    println!("{name}: {ranks} logs, {:.0} MB in {seconds:.2} s, {speed:.0} MB/s", bytes as f64 / 1e6);
}

fn main() {
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return };
    runtime.block_on(async {
        measure("finished", 1, 512, false).await;
        measure("finished", 64, 8, false).await;
        measure("followed while written", 1, 512, true).await;
    });
}
