//! Large projects: how many requests a list costs, and how much memory a wide job takes. Times are for the benchmark.

use futures_util::TryStreamExt;
use weftrun_core::job::JobFilter;
use weftrun_core::log::LogOptions;
use weftrun_testkit::fake_runai::FakeRunAi;

use crate::common::{connect, target_of};
use weftrun_testkit::child;

const PODS: usize = 512;
const LINES: usize = 100;
/// Set to the control plane's URL in the process that follows.
const FOLLOW: &str = "WEFTRUN_TEST_FOLLOW";

/// 5,000 workloads are ten pages of the longest size every version takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_read_in_the_longest_pages() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add((0..5_000).map(|i| format!("job-{i}")), 1, 0);
    let backend = connect(target_of(&fake.url())).await.unwrap();
    assert_eq!(backend.list(&JobFilter::all()).await.unwrap().len(), 5_000);
    assert_eq!(fake.seen("GET", "/api/v1/workloads").len(), 10);
}

/// One process follows 512 pods in less than 256 MB.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn following_512_pods_takes_little_memory() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add(["wide".to_owned()], PODS, LINES);
    let url = fake.url();
    let output = tokio::task::spawn_blocking(move || {
        let mut follower = child::command(std::env::current_exe().unwrap());
        follower.args(["--exact", "scale::follower", "--ignored", "--nocapture"]).env(FOLLOW, url);
        follower.output().unwrap()
    });
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let most: u64 = said.lines().find_map(|line| line.strip_prefix("most ")).unwrap().parse().unwrap();
    println!("followed {PODS} pods in {most} kB");
    assert!(most < 256 * 1024, "{most} kB");
}

#[test]
#[ignore = "a part of following_512_pods_takes_little_memory, in a process of its own"]
fn follower() {
    let Ok(url) = std::env::var(FOLLOW) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = connect(target_of(&url)).await.unwrap();
        let handle = backend.list(&JobFilter::all()).await.unwrap().remove(0).handle;
        let mut batches = backend.logs(&handle, LogOptions::follow());
        let mut lines = 0;
        while lines < PODS * LINES {
            lines += batches.try_next().await.unwrap().unwrap().lines.len();
        }
    });
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\nmost {}", most.trim().trim_end_matches(" kB"));
}
