//! The cost of submitting and listing beyond Slurm itself, compared with submitit, in one run on a real
//! cluster: `just bench-slurm`. `WEFTRUN_TEST_SLURM` names the running test cluster, `WEFTRUN_SUBMITIT` a
//! Python with submitit.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::print_stderr, reason = "a benchmark")]

use std::process::Command;
use std::time::{Duration, Instant};

use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::Backend;
use weftrun_core::job::JobFilter;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

#[path = "../tests/slurm_cluster/cluster.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
mod cluster;
use cluster::{TestCluster, Way};

/// Submissions of each kind.
const ROUNDS: usize = 25;
/// Jobs that are listed.
const JOBS: usize = 1000;

fn main() {
    let Some(cluster) = TestCluster::find() else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bare = on_the_head(&cluster, "sbatch --parsable -H -J bench-bare -o /dev/null --wrap true");
    let over_ssh = runtime.block_on(submissions(&cluster, Way::Ssh));
    let here = runtime.block_on(submissions(&cluster, Way::Here));
    let shim = repeated(|| {
        drop(
            cluster
                .sh("PATH=$CLUSTER/shims:$PATH sbatch --parsable -H -J bench-shim -o /dev/null --wrap true"),
        );
    });
    println!("sbatch alone, on the head node     {}", ms(bare));
    println!(
        "weftrun submit, shared ssh         {}  {} beyond sbatch (wanted: 50 ms)",
        ms(over_ssh),
        ms(over_ssh.saturating_sub(bare))
    );
    println!("sbatch alone, local command        {}", ms(shim));
    println!(
        "weftrun submit, local commands     {}  {} beyond sbatch",
        ms(here),
        ms(here.saturating_sub(shim))
    );
    let peer = submitit(&cluster);
    if let Some((submit, _)) = peer {
        println!(
            "submitit submit, local commands    {}  weftrun takes {:.2} of it",
            ms(submit),
            ratio(here, submit)
        );
    }
    cluster.ctl(&format!(
        "head bash -c 'cd /fsx; seq {JOBS} | xargs -P 4 -I N sbatch --parsable -H -J bench-list --comment=weftrun:0a1b2c3d000000000000000000000000:off -o /dev/null --wrap true > /dev/null'"
    ));
    let squeue = on_the_head(&cluster, "squeue --me -h -o %i%j%T > /dev/null");
    let list = runtime.block_on(async {
        let mut times = Vec::new();
        for _ in 0..5 {
            let backend = Slurm::new(&cluster.target(Way::Ssh)).expect("the target is good");
            backend.find(&weftrun_testkit::random_submission()).await.expect("the connection is warm");
            tokio::time::sleep(Duration::from_millis(2100)).await;
            let began = Instant::now();
            let jobs = backend.list(&JobFilter::all()).await.expect("a list");
            times.push(began.elapsed());
            assert!(jobs.len() >= JOBS, "{} jobs", jobs.len());
        }
        median(times)
    });
    println!("squeue alone, {JOBS} jobs           {}", ms(squeue));
    println!("weftrun list, {JOBS} jobs, ssh      {}  (wanted: 300 ms)", ms(list));
    if let Some((_, states)) = peer {
        println!(
            "submitit's states of {JOBS} jobs    {}  weftrun takes {:.2} of it",
            ms(states),
            ratio(list, states)
        );
    }
    cluster.ctl("head scancel --me");
}

async fn submissions(cluster: &TestCluster, way: Way) -> Duration {
    let backend = cluster.connect(way);
    let mut times = Vec::new();
    for number in 0..=ROUNDS {
        let role = Role::worker().command(["true"]);
        let spec = JobSpec::builder(format!("bench-{number}")).launch(Launch::PerNode).role(role);
        let mut spec = spec.build().expect("valid");
        spec.backend.insert("slurm".to_owned(), serde_json::json!({"sbatch": ["--hold"]}));
        let rendered = backend.render(&planned(spec)).expect("renders");
        let began = Instant::now();
        backend.submit(&rendered).await.expect("is taken");
        // The first opens the connection.
        times.extend((number > 0).then(|| began.elapsed()));
    }
    median(times)
}

/// A command's time on the head node itself, measured there.
fn on_the_head(cluster: &TestCluster, command: &str) -> Duration {
    let loops = format!(
        "cd /fsx; for i in $(seq {ROUNDS}); do s=$(date +%s%N); {command} > /dev/null; e=$(date +%s%N); echo $((e - s)); done"
    );
    let text = cluster.ctl(&format!("head bash -c '{loops}'"));
    median(text.lines().filter_map(|line| line.parse().ok()).map(Duration::from_nanos).collect())
}

fn repeated(mut work: impl FnMut()) -> Duration {
    let one = |work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        began.elapsed()
    };
    median((0..ROUNDS).map(|_| one(&mut work)).collect())
}

/// The medians of submitit's own submit and of its look at the states, through the same local commands.
fn submitit(cluster: &TestCluster) -> Option<(Duration, Duration)> {
    let python = std::env::var_os("WEFTRUN_SUBMITIT")?;
    let script = format!(
        "import time, statistics, submitit\n\
         e = submitit.SlurmExecutor(folder='{dir}/submitit')\n\
         e.update_parameters(time=5, additional_parameters={{'hold': True}})\n\
         times, jobs = [], []\n\
         for i in range({ROUNDS} + 1):\n\
         \x20   s = time.monotonic(); jobs.append(e.submit(time.sleep, 1)); times.append(time.monotonic() - s)\n\
         print(int(statistics.median(times[1:]) * 1e9))\n\
         w = jobs[0].watcher\n\
         for i in range({JOBS}): w.register_job(str(i + 1))\n\
         times = []\n\
         for i in range(5):\n\
         \x20   s = time.monotonic(); w.update(); times.append(time.monotonic() - s)\n\
         print(int(statistics.median(times) * 1e9))\n",
        dir = cluster.dir.join("shared/fsx").display()
    );
    let output = Command::new(python)
        .args(["-c", &script])
        .envs(cluster.env(Way::Here))
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.lines().filter_map(|line| line.parse().ok()).map(Duration::from_nanos);
    let both = numbers.next().zip(numbers.next());
    if both.is_none() {
        eprintln!("submitit: {}", String::from_utf8_lossy(&output.stderr));
    }
    both
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> String {
    format!("{:7.1} ms", time.as_secs_f64() * 1000.0)
}

fn ratio(ours: Duration, theirs: Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64().max(f64::EPSILON)
}
