//! An imported script beside the native one: signals reach what they reach natively.

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

/// Writes what reaches it, and goes on; `B:` reaches the script alone, a cancel all its processes.
const SCRIPT: &str = r#"#!/bin/bash
#SBATCH --nodes=1
#SBATCH --time=5
#SBATCH --requeue
#SBATCH --output=/fsx/logs/signals-%j.out
say() { echo "$1" >> "/fsx/signals-@KIND@"; }
save() { say "script $1"; if [ "$1" = USR1 ]; then say requeued; trap - TERM; scontrol requeue "$SLURM_JOB_ID"; exit 0; fi; }
for name in HUP INT USR1 USR2 TERM; do trap "save $name" "$name"; done
if [ -n "$SLURM_RESTART_COUNT" ] && [ "$SLURM_RESTART_COUNT" != 0 ]; then say resumed; exit 0; fi
perl -e '$| = 1; $SIG{$_} = sub { open F, ">>", "/fsx/signals-@KIND@"; print F "child $_[0]\n"; close F } for qw(HUP INT USR2 TERM); sleep 1 while 1' &
say begun
while :; do wait; done
"#;

fn id(text: &str) -> String {
    text.trim().rsplit('/').next().unwrap_or_default().to_owned()
}

#[test]
fn signals_reach_an_imported_script_as_they_reach_the_native_one() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let said_by = |kind: &str| {
        let text = cluster.sh(&format!("cat \"$CLUSTER/shared/fsx/signals-{kind}\" 2> /dev/null"));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let until = |kind: &str, line: &str| {
        let end = std::time::Instant::now() + std::time::Duration::from_mins(4);
        while !said_by(kind).iter().any(|said| said == line) {
            assert!(std::time::Instant::now() < end, "{kind}: no `{line}`: {:?}", said_by(kind));
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    };
    // A requeued job waits for two minutes: both at once.
    let run = |kind: &str| {
        cluster.sh(&format!("rm -f \"$CLUSTER/shared/fsx/signals-{kind}\""));
        let script = SCRIPT.replace("@KIND@", kind);
        let job = if kind == "native" {
            std::fs::write(cluster.dir.join("shared/fsx/signals.sh"), &script).expect("written");
            id(&cluster.ctl("head sbatch --parsable /fsx/signals.sh"))
        } else {
            user.file("job.sh", &script);
            let imported = user.weftrun(&["import", "sbatch", "job.sh"]);
            user.file("job.toml", &String::from_utf8_lossy(&imported.stdout));
            let submitted = user.weftrun(&["submit", "job.toml"]);
            assert_eq!(submitted.status.code(), Some(0), "{} {}", said(&imported), said(&submitted));
            id(&String::from_utf8_lossy(&submitted.stdout))
        };
        until(kind, "begun");
        std::thread::sleep(std::time::Duration::from_secs(1));
        let send = |words: &str, line: &str| {
            cluster.ctl(&format!("head scancel {words} {job}"));
            until(kind, line);
            std::thread::sleep(std::time::Duration::from_secs(2));
        };
        for name in ["HUP", "INT", "USR2", "TERM"] {
            send(&format!("--batch --signal={name}"), &format!("script {name}"));
        }
        // To all processes of the job.
        send("--full --signal=USR2", "child USR2");
        send("--batch --signal=USR1", "requeued");
        until(kind, "resumed");
        let mut seen = said_by(kind);
        // Slurm ends what is left of a requeued job, which may be nothing. Which of the two processes is faster does not matter.
        seen.truncate(seen.iter().position(|line| line == "requeued").unwrap_or(seen.len()));
        seen.sort();
        seen
    };
    let (native, imported) = std::thread::scope(|scope| {
        let native = scope.spawn(|| run("native"));
        (run("imported"), native.join().expect("it ended"))
    });
    assert_eq!(imported, native);
    assert_eq!(native.iter().filter(|line| *line == "script USR2").count(), 2, "{native:?}");
}
