//! The verbs of a job's life, each confirmed by the state afterwards.

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

#[test]
fn hold_release_signal_requeue_cancel() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let submit = |job: &str| {
        user.file("job.toml", job);
        let output = user.weftrun(&["submit", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let phase = |handle: &str| {
        let output = user.weftrun(&["describe", handle, "-o", "json"]);
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        value["phase"].as_str().unwrap_or_default().to_owned()
    };
    let act = |words: &[&str]| {
        let output = user.weftrun(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    };
    let waits = submit("name = \"verbs-held\"\ncommand = [\"true\"]\nbackend.slurm.begin = \"now+1hour\"\n");
    act(&["hold", &waits]);
    assert_eq!(phase(&waits), "suspended");
    act(&["release", &waits]);
    assert_eq!(phase(&waits), "pending");
    act(&["cancel", &waits]);
    assert_eq!(phase(&waits), "cancelled");

    let runs = submit(
        "name = \"verbs-runs\"\ncommand = [\"sh\", \"-c\", \"trap 'echo checkpoint' USR1; echo up; while :; do sleep 0.2; done\"]\n",
    );
    let says = |text: &str| {
        // Generous: the machine may be busy with the other tests.
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            let output = user.weftrun(&["logs", &runs]);
            if String::from_utf8_lossy(&output.stdout).contains(text) {
                return;
            }
            assert!(std::time::Instant::now() < until, "`{text}` never came: {}", said(&output));
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    };
    says("up");
    act(&["cancel", "--signal", "10", &runs]);
    says("checkpoint");
    let held = user.weftrun(&["hold", &runs]);
    assert_eq!(held.status.code(), Some(4), "a running job is not held: {}", said(&held));
    act(&["requeue", &runs]);
    // Slurm ends the attempt before it queues the job again, and says so meanwhile.
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while phase(&runs) == "stopping" && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert_eq!(phase(&runs), "pending");
    act(&["cancel", &runs]);
    let unknown = user.weftrun(&["cancel", "slurm://cluster/999999"]);
    assert_eq!(unknown.status.code(), Some(6), "{}", said(&unknown));
}
