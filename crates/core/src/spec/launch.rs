//! The main process of a node, the same for every backend that starts nodes.

use super::{JobSpec, Launch, Role};

/// A backend's spelling, in an argument, of the values that exist only on the node: `$(RANK)` on
/// Kubernetes, `$SLURM_NODEID` in a script, a plain number where they are known before.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// Number of this node, from 0.
    pub node_rank: &'a str,
    /// Host name of node 0.
    pub master_addr: &'a str,
    /// Port on node 0.
    pub master_port: &'a str,
}

/// Starts a command once per rank of a node; the first rank that fails ends the others, and its code is
/// passed on. Arguments are the number of ranks, the node's number, the number of nodes, the command. POSIX
/// sh, so that it runs in busybox too: each rank writes its code into a file, since `wait` cannot wait for
/// whichever child ends first. It ends the ranks by its process group, of which it must be the leader, as
/// the first process of a container or task is. The files are in a folder that `mktemp` makes for this user
/// alone: the temporary folder may be shared with others.
const PER_RANK: &str = r#"n=$1 node=$2 nodes=$3; shift 3
codes=$(mktemp -d "${TMPDIR:-/tmp}/weftrun-ranks.XXXXXX") || exit 1
trap 'rm -rf "$codes"' EXIT
trap 'trap "" TERM; kill -TERM 0; exit 143' TERM INT HUP
i=0
while [ "$i" -lt "$n" ]; do
  (
    export RANK=$((node * n + i)) LOCAL_RANK=$i WORLD_SIZE=$((nodes * n)) LOCAL_WORLD_SIZE=$n NODE_RANK=$node GROUP_RANK=$node
    "$@"
    echo $? > "$codes/$i.part" && mv "$codes/$i.part" "$codes/$i"
  ) &
  i=$((i + 1))
done
left=$n
while [ "$left" -gt 0 ]; do
  sleep 0.2 2>/dev/null || sleep 1
  left=0; i=0
  while [ "$i" -lt "$n" ]; do
    code=
    [ ! -e "$codes/$i" ] || read -r code < "$codes/$i"
    case $code in
      '') left=$((left + 1)) ;;
      0) ;;
      *) trap '' TERM; kill -TERM 0; exit "$code" ;;
    esac
    i=$((i + 1))
  done
done"#;

/// Returns the argv of a node's main process. For `launch = "mpi"`, `"per-node"` and `"once"` it is the
/// role's own command.
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
        Launch::Mpi | Launch::PerNode | Launch::Once => Vec::new(),
    };
    argv.extend(role.command.iter().cloned());
    argv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    fn per_rank(script: &str) -> Vec<String> {
        let role = Role::worker().nodes(2).ranks_per_node(2).command(["/bin/sh", "-c", script]);
        let spec = JobSpec::builder("ranks").launch(Launch::PerRank).role(role).build().unwrap();
        node_command(&spec, &spec.roles[0], &Rendezvous { node_rank: "1", master_addr: "", master_port: "" })
    }

    #[test]
    fn per_rank_gives_each_rank_its_numbers() {
        let argv = per_rank("echo $RANK $LOCAL_RANK $WORLD_SIZE $NODE_RANK");
        let output = child::command(&argv[0]).args(&argv[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["2 0 4 1", "3 1 4 1"]);
        assert!(output.status.success());
    }

    /// Point A4 of issue 14: symbolic links in a shared temporary folder.
    #[test]
    fn per_rank_follows_no_link_in_a_shared_temporary_folder() {
        for shell in ["dash", "bash"] {
            let (shared, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            // For any process number of the shell: a link exists under the formerly predictable name.
            let plant = format!(
                "for i in $(seq 1 9); do ln -s {0} {1}/weftrun-ranks.$i.1; done; ln -s {0} {1}/weftrun-ranks.$$.1; exec \"$@\"",
                victim.path().display(),
                shared.path().display()
            );
            let argv = per_rank(
                "for d in \"$TMPDIR\"/weftrun-ranks.*; do [ -L \"$d\" ] || stat -c %a \"$d\"; done; sleep 0.5",
            );
            let mut command = child::command(shell);
            command
                .args(["-c", plant.as_str(), "plant", shell])
                .args(&argv[1..])
                .env("TMPDIR", shared.path());
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text, "700\n700\n", "{shell}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0, "{shell} followed a link");
            let left = std::fs::read_dir(shared.path()).unwrap().map(Result::unwrap);
            assert!(
                left.into_iter().all(|entry| entry.file_type().unwrap().is_symlink()),
                "{shell} left its folder"
            );
        }
    }

    #[test]
    fn per_rank_passes_on_a_failure_and_ends_the_others() {
        for failing in [2, 3] {
            let argv = per_rank(&format!("[ $RANK = {failing} ] && exit 9; exec sleep 60"));
            let began = std::time::Instant::now();
            let mut command = child::command(&argv[0]);
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let status = command.args(&argv[1..]).status().unwrap();
            assert_eq!(status.code(), Some(9), "rank {failing}");
            assert!(began.elapsed().as_secs() < 30);
        }
    }
}
