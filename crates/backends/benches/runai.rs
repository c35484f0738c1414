//! What a large project costs: `cargo bench -p weftrun-backends --bench runai`, or `just bench-runai`.
//!
//! Lists 5,000 workloads of our own control plane, beside the vendor's Python client doing the same where `.ci/runapy`
//! has put it, and prints the ratio; then follows the logs of 512 pods in a process of its own, and prints the most
//! memory that process had.
#![allow(clippy::print_stdout, reason = "a benchmark is a program of its own")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use futures_util::TryStreamExt;
use weftrun_core::Result;
use weftrun_core::backend::{Backend, Registry, TargetConfig};
use weftrun_core::job::JobFilter;
use weftrun_core::log::LogOptions;
use weftrun_testkit::fake_runai::{CLIENT_ID, CLIENT_SECRET, FakeRunAi, PROJECT};

const WORKLOADS: usize = 5_000;
const PODS: usize = 512;
const LINES: usize = 200;
/// Set to the control plane's URL in the process that follows.
const FOLLOW: &str = "WEFTRUN_BENCH_FOLLOW";

async fn connect(url: &str) -> Result<Arc<dyn Backend>> {
    weftrun_backends::link();
    let mut target = TargetConfig::new("bench", "runai", std::env::temp_dir().join("weftrun-bench-runai"))
        .with("url", url)
        .with("client-id", CLIENT_ID)
        .with("client-secret-env", "SECRET");
    target.project = Some(PROJECT.into());
    target.env.insert("SECRET".into(), CLIENT_SECRET.into());
    (Registry::linked().get("runai")?.connect)(target).await
}

/// Seconds to list everything, the best of three.
async fn list(url: &str) -> Result<f64> {
    let backend = connect(url).await?;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        let found = backend.list(&JobFilter::all()).await?.len();
        best = best.min(began.elapsed().as_secs_f64());
        assert_eq!(found, WORKLOADS);
    }
    Ok(best)
}

/// The same by the vendor's client, in seconds.
fn peer(url: &str) -> Option<f64> {
    let cache = std::env::var_os("WEFTRUN_RUNAPY")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/weftrun-ci/runapy")))?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runai/runapy.py");
    let mut best = None;
    for _ in 0..3 {
        let mut command = Command::new(cache.join("venv/bin/python"));
        command.args([script, "list", url, CLIENT_ID, CLIENT_SECRET]).env("PYTHONPATH", cache.join("1.224"));
        let output = command.output().ok().filter(|output| output.status.success())?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let seconds = said["seconds"].as_f64().filter(|_| said["found"] == WORKLOADS)?;
        best = Some(best.unwrap_or(f64::MAX).min(seconds));
    }
    best
}

/// Follows one workload until every line of every pod came; prints the most memory this process had.
async fn follow(url: &str) -> Result<()> {
    let backend = connect(url).await?;
    let handle = backend.list(&JobFilter::all()).await?.remove(0).handle;
    let began = Instant::now();
    let mut batches = backend.logs(&handle, LogOptions::follow());
    let mut lines = 0;
    while lines < PODS * LINES {
        let Some(batch) = batches.try_next().await? else { break };
        lines += batch.lines.len();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map_or("?", str::trim);
    println!(
        "follow: {lines} lines of {PODS} pods in {:.2} s, at most {most} of memory",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn run() -> Result<()> {
    if let Ok(url) = std::env::var(FOLLOW) {
        return follow(&url).await;
    }
    let Ok(fake) = FakeRunAi::start(24).await else { return Ok(()) };
    fake.add((0..WORKLOADS).map(|i| format!("job-{i}")), 2, 0);
    let url = fake.url();
    let ours = list(&url).await?;
    print!("list: {WORKLOADS} workloads in {ours:.3} s");
    match tokio::task::spawn_blocking(move || peer(&url)).await.ok().flatten() {
        Some(theirs) => println!(", runapy in {theirs:.3} s: {:.1} times as fast", theirs / ours),
        None => println!("; runapy is not here (`.ci/runapy` installs it)"),
    }
    let Ok(fake) = FakeRunAi::start(24).await else { return Ok(()) };
    fake.add(["wide".to_owned()], PODS, LINES);
    let url = fake.url();
    let child = tokio::task::spawn_blocking(move || {
        let program = std::env::current_exe().ok()?;
        Command::new(program).env(FOLLOW, url).status().ok()
    });
    assert!(
        child.await.ok().flatten().is_some_and(|status| status.success()),
        "the process that follows failed"
    );
    Ok(())
}

fn main() {
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return };
    if let Err(error) = runtime.block_on(run()) {
        println!("{error}");
        std::process::exit(1);
    }
}
