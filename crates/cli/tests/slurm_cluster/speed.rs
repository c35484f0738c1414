//! What a submission costs the cluster.

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

/// Slurm's commands that a verb may call.
const COMMANDS: [&str; 9] =
    ["sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "srun", "scancel", "sprio"];

#[test]
fn a_submission_to_a_known_cluster_calls_three_commands_at_most() {
    let Some(cluster) = TestCluster::find() else { return };
    let log = cluster.dir.join(format!("calls-{}", std::process::id()));
    let script = format!("echo \"${{0##*/}} $*\" >> {}; exec \"/usr/bin/${{0##*/}}\" \"$@\"", log.display());
    let dir = cluster.wrapper(Way::Ssh, COMMANDS[0], &script);
    for name in &COMMANDS[1..] {
        std::fs::copy(dir.join(COMMANDS[0]), dir.join(name)).expect("copied");
    }
    cluster.sh(&format!("touch {0}; chmod 666 {0}", log.display()));
    let bin_dir = dir.display().to_string();
    let user = User::new(&cluster, Way::Ssh, &[("bin-dir", &bin_dir)]);
    user.file("job.toml", "name = \"counted\"\ncommand = [\"true\"]\n");
    let submit = || {
        std::fs::write(&log, "").expect("written");
        let output = user.weftrun(&["submit", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let calls = std::fs::read_to_string(&log).expect("read");
        calls.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = submit();
    assert!(first.len() > 3, "the cluster is asked once: {first:?}");
    let second = submit();
    assert!(second.len() <= 3, "{second:?}");
    assert!(second.iter().any(|call| call.starts_with("sbatch --parsable")), "{second:?}");

    // Before a job is refused because of cached facts, the cluster is queried again; what it refuses now is
    // refused.
    user.file("large.toml", "name = \"large\"\nnodes = 1000\ncommand = [\"true\"]\n");
    let output = user.weftrun(&["submit", "large.toml"]);
    let text = said(&output);
    assert!(output.status.code() == Some(4) && text.contains("requested 1000 nodes"), "{text}");
    let planned = user.weftrun(&["plan", "--online", "large.toml"]);
    let dry = user.weftrun(&["submit", "--dry-run=server", "large.toml"]);
    for output in [planned, dry] {
        let text = said(&output);
        assert!(output.status.code() == Some(3) && text.contains("requested 1000 nodes"), "{text}");
    }
    user.file("qos.toml", "name = \"qos\"\npriority = \"nope\"\ncommand = [\"true\"]\n");
    let text = said(&user.weftrun(&["plan", "--online", "qos.toml"]));
    assert!(text.contains("QOS `nope`"), "{text}");
    cluster.ctl("head scancel -n counted");
}

#[test]
fn the_flags_of_slurm_set_its_options() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file("job.toml", "name = \"flagged\"\ncommand = [\"sleep\", \"60\"]\n");
    let submit = |words: &[&str]| {
        let output = user.weftrun(&[&["submit", "job.toml"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let first = submit(&[]);
    let second = submit(&["--after", &first, "--array", "1-2", "--sbatch=--nice=77"]);
    let number = second.rsplit('/').next().expect("a number").to_owned();
    let shown = cluster.ctl(&format!("head scontrol show job {number}"));
    let id = first.rsplit('/').next().expect("a number");
    assert!(shown.contains(&format!("afterok:{id}")), "{shown}");
    assert!(shown.contains("ArrayTaskId=1-2") && shown.contains("Nice=77"), "{shown}");
    let listed = said(&user.weftrun(&["list"]));
    assert!(listed.contains("NAME") && listed.contains("flagged"), "{listed}");
    cluster.ctl("head scancel -n flagged");
}
