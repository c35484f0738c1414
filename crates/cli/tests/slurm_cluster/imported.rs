//! An existing script becomes a job file, and the job has the same effect as the script.

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

const SCRIPT: &str = r#"#!/bin/bash
#SBATCH --job-name=imported
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --time=5
export GREETING='it is $HOME; "x"'
srun sh -c 'echo "$SLURM_PROCID says $GREETING"'
"#;

#[test]
fn an_imported_script_does_what_it_did() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file("train.sbatch", SCRIPT);
    let imported = user.weftrun(&["import", "sbatch", "train.sbatch"]);
    assert_eq!(imported.status.code(), Some(0), "{}", said(&imported));
    user.file("job.toml", &String::from_utf8_lossy(&imported.stdout));
    let output = user.weftrun(&["submit", "--follow", "job.toml"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for rank in 0..4 {
        let wanted = format!("{rank} says it is $HOME; \"x\"");
        assert_eq!(text.lines().filter(|line| line.ends_with(&wanted)).count(), 1, "{wanted}: {text}");
    }
}
