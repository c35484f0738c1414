//! weftrun's overhead over Slurm's own time, printed; the bounds are those of the issue with a margin for a
//! busy machine.

use std::time::{Duration, Instant};

use weftrun_core::job::{Action, JobFilter};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, Way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submit_and_list_add_little() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = cluster.connect(Way::Ssh);
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..6 {
        let role = Role::worker().command(["true"]);
        let spec = JobSpec::builder(format!("speed-{number}"))
            .launch(Launch::PerRank)
            .role(role)
            .build()
            .expect("valid");
        let rendered = backend.render(&planned(spec)).expect("renders");
        let began = Instant::now();
        let job = backend.submit(&rendered).await.expect("is taken");
        times.push(began.elapsed());
        let _ = backend.act(&job, Action::Cancel).await;
    }
    let own = cluster.ctl("head bash -c 'cd /fsx; for i in 1 2 3 4 5; do s=$(date +%s%N); sbatch --parsable -o /dev/null --wrap true > /dev/null; e=$(date +%s%N); echo $(( (e - s) / 1000 )); done'");
    let own: Vec<u64> = own.lines().filter_map(|line| line.parse().ok()).collect();
    let (fastest, bare) = (times.iter().skip(1).min().expect("some"), own.iter().min().copied().unwrap_or(0));
    eprintln!("submit over ssh: {} ms at best, sbatch alone {} ms", fastest.as_millis(), bare / 1000);
    let began = Instant::now();
    let jobs = cluster.connect(Way::Ssh).list(&JobFilter::all()).await.expect("a list");
    eprintln!("{} jobs listed in {} ms over ssh", jobs.len(), began.elapsed().as_millis());
}
