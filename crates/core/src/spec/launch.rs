//! What the main process of a node runs, the same for every backend that starts nodes.

use super::{JobSpec, Launch, Role};

/// How a backend names, in an argument, the values that exist on the node only: `$(RANK)` on Kubernetes,
/// `$SLURM_NODEID` in a script, a plain number where they are known before.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// Number of this node, from 0.
    pub node_rank: &'a str,
    /// Host name of node 0.
    pub master_addr: &'a str,
    /// Port on node 0.
    pub master_port: &'a str,
}

/// Starts a command once per rank of a node and passes on the first failure: arguments are the number of ranks, the
/// node's number, the number of nodes, the command. POSIX sh, so that it runs in busybox too.
const PER_RANK: &str = r#"n=$1 node=$2 nodes=$3; shift 3
pids=; i=0
while [ "$i" -lt "$n" ]; do
  RANK=$((node * n + i)) LOCAL_RANK=$i WORLD_SIZE=$((nodes * n)) LOCAL_WORLD_SIZE=$n NODE_RANK=$node GROUP_RANK=$node "$@" &
  pids="$pids $!"; i=$((i + 1))
done
trap 'kill $pids 2>/dev/null' TERM INT
code=0
for pid in $pids; do
  wait "$pid" || { got=$?; [ "$code" -ne 0 ] || { code=$got; kill $pids 2>/dev/null; }; }
done
exit "$code""#;

/// The argv of a node's main process. For `launch = "mpi"` and `"per-node"` it is the role's own command.
///
/// ```
/// use weftrun_core::spec::{JobSpec, Launch, Rendezvous, Role, node_command};
/// let role = Role::worker().nodes(2).gpus_per_node(8).command(["train.py"]);
/// let spec = JobSpec::builder("demo").launch(Launch::Torchrun).role(role).build()?;
/// let at = Rendezvous { node_rank: "$(RANK)", master_addr: "$(MASTER_ADDR)", master_port: "$(MASTER_PORT)" };
/// assert_eq!(node_command(&spec, &spec.roles[0], &at)[..3], ["torchrun", "--nnodes=2", "--nproc-per-node=8"]);
/// # Ok::<(), weftrun_core::Error>(())
/// ```
pub fn node_command(spec: &JobSpec, role: &Role, at: &Rendezvous<'_>) -> Vec<String> {
    let (nodes, ranks) = (spec.nodes().max(1), role.procs_per_node());
    let mut argv = match spec.launch {
        Launch::Torchrun if nodes == 1 => {
            vec!["torchrun".to_owned(), "--standalone".to_owned(), format!("--nproc-per-node={ranks}")]
        }
        Launch::Torchrun => vec![
            "torchrun".to_owned(),
            format!("--nnodes={nodes}"),
            format!("--nproc-per-node={ranks}"),
            format!("--node-rank={}", at.node_rank),
            format!("--master-addr={}", at.master_addr),
            format!("--master-port={}", at.master_port),
        ],
        Launch::PerRank => {
            let numbers = [ranks.to_string(), at.node_rank.to_owned(), nodes.to_string()];
            let shell = ["/bin/sh", "-c", PER_RANK, "weftrun-ranks"].map(str::to_owned);
            shell.into_iter().chain(numbers).collect()
        }
        Launch::Mpi | Launch::PerNode => Vec::new(),
    };
    argv.extend(role.command.iter().cloned());
    argv
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn per_rank(script: &str) -> Vec<String> {
        let role = Role::worker().nodes(2).ranks_per_node(2).command(["/bin/sh", "-c", script]);
        let spec = JobSpec::builder("ranks").launch(Launch::PerRank).role(role).build().unwrap();
        node_command(&spec, &spec.roles[0], &Rendezvous { node_rank: "1", master_addr: "", master_port: "" })
    }

    #[test]
    fn per_rank_gives_each_rank_its_numbers() {
        let argv = per_rank("echo $RANK $LOCAL_RANK $WORLD_SIZE $NODE_RANK");
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["2 0 4 1", "3 1 4 1"]);
        assert!(output.status.success());
    }

    #[test]
    fn per_rank_passes_on_a_failure_and_ends_the_others() {
        let argv = per_rank("[ $RANK = 2 ] && exit 9; exec sleep 60");
        let began = std::time::Instant::now();
        let status = Command::new(&argv[0]).args(&argv[1..]).status().unwrap();
        assert_eq!(status.code(), Some(9));
        assert!(began.elapsed().as_secs() < 30);
    }
}
