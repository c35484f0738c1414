//! Cluster facts: partitions, features, GPUs, limits, versions, plugins. One program in one round trip, at
//! most once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use weftrun_core::backend::{ClusterFacts, NodeGroup, NodeState, Queue, Scope};
use weftrun_core::text::{counted, listed};
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::cluster::{Cluster, Gres, Node, Partition};
use super::{error, quote};

/// How long the facts are valid: a plan and the check before its submission query the cluster once.
pub const FRESH: Duration = Duration::from_mins(1);

/// Largest age of facts that a job is refused for.
pub const JUST_NOW: Duration = Duration::from_secs(5);

/// Queries the cluster.
pub async fn discover(client: &Client, scope: &Scope) -> Result<ClusterFacts> {
    if !scope.fresh {
        let kept = facts(&*client.described(false).await?, scope);
        // A job is refused only because of fresh facts.
        if !kept.notes.iter().any(Finding::is_error) {
            return Ok(kept);
        }
    }
    Ok(facts(&*client.described(true).await?, scope))
}

/// Runs all commands in parallel, since `sacctmgr` and srun's plugin list are slow, and returns the outputs
/// in order.
pub async fn ask(client: &Client) -> Result<String> {
    let cluster = client.cluster()?;
    let folder = match &client.folder {
        Some(folder) => {
            let folder = quote::word(folder)?;
            format!("[ ! -d {folder} ] || [ ! -x {folder} ] || printf '%s\\n' {folder}")
        }
        None => ":".to_owned(),
    };
    let questions = [
        format!("scontrol{cluster} show partition -o 2> \"$t/error\"; echo $? > \"$t/code\""),
        format!(
            "SLURM_TIME_FORMAT=%s sinfo{cluster} -h -N -o '%P\u{1f}%c\u{1f}%m\u{1f}%G\u{1f}%f\u{1f}%N\u{1f}%H\u{1f}%T\u{1f}%E'"
        ),
        format!("scontrol{cluster} show config"),
        "srun --mpi=list 2>&1".to_owned(),
        "srun --help 2>&1 | grep -c -e --container-image".to_owned(),
        "$limit sacctmgr -n -P show assoc user=\"$(id -un)\" format=account,qos 2> /dev/null".to_owned(),
        "printf '%s\\n' \"$HOME\"".to_owned(),
        folder,
    ];
    let mut program = "t=$(mktemp -d) || exit 1\ntrap 'rm -rf -- \"$t\"' EXIT\n".to_owned();
    // sacctmgr waits 45 s for a slurmdbd that does not answer; without it the user's QOS are unknown.
    program.push_str(&quote::limit(10));
    for (number, question) in questions.iter().enumerate() {
        program.push_str(&format!("{{ {question}; }} > \"$t/{number}\" &\n"));
    }
    program.push_str("wait\nif [ \"$(cat \"$t/code\")\" != 0 ]; then cat \"$t/error\" >&2; exit 1; fi\n");
    for number in 0..questions.len() {
        program.push_str(&format!("cat \"$t/{number}\"; printf '\\035'\n"));
    }
    let answer = client.transport.read(&program).await?;
    if answer.code != 0 {
        return Err(error::of_command("scontrol", &answer.stderr, answer.code));
    }
    Ok(answer.text())
}

/// Converts the cluster into the facts that all backends share. Pure.
fn facts(cluster: &Cluster, scope: &Scope) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    facts.online = true;
    facts.efa_webhook = Some(false);
    facts.queues = cluster.partitions.iter().map(queue).collect();
    facts.nodes = groups(&cluster.nodes);
    facts.node_queues =
        cluster.nodes.iter().map(|node| (node.name.clone(), node.partitions.clone())).collect();
    let out = |node: &Node| {
        Some((node.name.clone(), vec![NodeState { what: node.out.clone()?, since: node.out_since }]))
    };
    facts.node_states = cluster.nodes.iter().filter_map(out).collect();
    facts.version = cluster.config.get("SLURM_VERSION").cloned();
    facts.serves = cluster.mpi.iter().map(|name| format!("mpi/{name}")).collect();
    if cluster.pyxis {
        facts.serves.push("pyxis".to_owned());
    }
    facts.priorities.clone_from(&cluster.qos);
    let ids = [
        ("cluster", cluster.config.get("ClusterName")),
        ("home", cluster.home.as_ref()),
        ("folder", cluster.folder.as_ref()),
    ];
    facts.ids.extend(ids.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.clone()))));
    for key in [
        "TopologyPlugin",
        "TaskPlugin",
        "EnforcePartLimits",
        "JobRequeue",
        "AccountingStorageType",
        "MaxArraySize",
        "MpiDefault",
        "MinJobAge",
        "SlurmdTimeout",
    ] {
        if let Some(value) = cluster.config.get(key) {
            facts.extra.insert(key.to_owned(), json!(value));
        }
    }
    // What identifies the cloud or the fabric: `data/evidence.tsv` of core.
    for key in ["SwitchType", "ResumeProgram", "SuspendProgram"] {
        if let Some(value) = cluster.config.get(key).filter(|value| *value != "(null)") {
            facts.settings.insert(key.to_owned(), value.clone());
        }
    }
    facts.notes = notes(&facts, scope);
    facts.notes.extend(nodes_out(&cluster.nodes).filter(|_| scope.thorough));
    facts
}

fn queue(partition: &Partition) -> Queue {
    let mut queue = Queue::default();
    queue.name.clone_from(&partition.name);
    (queue.default, queue.up) = (partition.default, partition.up);
    queue.max_nodes = partition.max_nodes.into_iter().chain(partition.total_nodes).min();
    queue.max_seconds = partition.max_time.map(|limit| limit.as_secs());
    queue
}

/// Groups nodes with the same partitions, GPUs, features, CPUs and memory.
fn groups(nodes: &[Node]) -> Vec<NodeGroup> {
    let mut groups = BTreeMap::<_, u32>::new();
    for node in nodes {
        let alike = (&node.partitions[..], &node.features[..], &node.gres[..], node.cpus, node.memory);
        *groups.entry(alike).or_default() += 1;
    }
    groups.into_iter().map(|(alike, count)| group(alike, count)).collect()
}

fn group(
    (partitions, features, gres, cpus, memory): (&[String], &[String], &[Gres], u64, u64),
    count: u32,
) -> NodeGroup {
    let mut group = NodeGroup::default();
    group.count = count;
    group.queues = partitions.to_vec();
    group.instance_type = features.iter().find(|feature| is_instance_type(feature)).cloned();
    group.labels = features.iter().map(|feature| (feature.clone(), "true".to_owned())).collect();
    if let Some(name) = &group.instance_type {
        group.labels.insert("node.kubernetes.io/instance-type".to_owned(), name.clone());
    }
    group.allocatable.insert("cpu".to_owned(), cpus.to_string());
    group.allocatable.insert("memory".to_owned(), format!("{memory}Mi"));
    for item in gres {
        let name =
            if item.name == "gpu" { "nvidia.com/gpu".to_owned() } else { format!("gres/{}", item.name) };
        if item.name == "gpu" {
            group.gpu_product.clone_from(&item.model);
        }
        group.allocatable.insert(name, item.count.to_string());
    }
    group
}

/// Returns whether a feature is an instance type: ParallelCluster adds the type to the features
/// (`p5.48xlarge`).
fn is_instance_type(feature: &str) -> bool {
    let size = |size: &str| {
        size == "metal"
            || size.starts_with("metal-")
            || size.ends_with("xlarge")
            || matches!(size, "large" | "medium" | "small")
    };
    let family = |family: &str| {
        family.starts_with(|c: char| c.is_ascii_lowercase()) && family.contains(|c: char| c.is_ascii_digit())
    };
    feature.split_once('.').is_some_and(|(name, rest)| family(name) && size(rest))
}

/// Returns the nodes that take no jobs, with the reasons.
fn nodes_out(nodes: &[Node]) -> Option<Finding> {
    const SHOWN: usize = 16;
    let out: Vec<String> =
        nodes.iter().filter_map(|node| Some(format!("{} is {}", node.name, node.out.as_ref()?))).collect();
    let message = format!(
        "{} of {} take no jobs: {}",
        out.len(),
        counted(nodes.len(), "node"),
        error::clean(&listed(&out, SHOWN))
    );
    let fix = "nothing, if the rest suffices; `scontrol show node NAME` has more, and an administrator resumes a node";
    (!out.is_empty()).then(|| Finding::info("SLURM-NODES-OUT", message).fix(fix))
}

/// Returns what the cluster lacks of the job's request.
fn notes(facts: &ClusterFacts, scope: &Scope) -> Vec<Finding> {
    let mut notes = Vec::new();
    if let Some(queue) =
        scope.queue.as_ref().filter(|queue| !facts.queues.iter().any(|known| known.name == **queue))
    {
        let names: Vec<&str> = facts.queues.iter().map(|queue| queue.name.as_str()).collect();
        notes.push(
            Finding::error("SLURM-NO-PARTITION", format!("there is no partition `{}`", error::clean(queue)))
                .at("queue")
                .fix(format!("use one of {}", names.join(", "))),
        );
    }
    for wanted in &scope.instance_types {
        let with: Vec<&NodeGroup> = facts
            .nodes
            .iter()
            .filter(|group| group.instance_type.as_ref() == Some(wanted) || group.labels.contains_key(wanted))
            .collect();
        let known: Vec<&str> =
            facts.nodes.iter().filter_map(|group| group.instance_type.as_deref()).collect();
        if with.is_empty() {
            let there = if known.is_empty() {
                "its nodes carry no instance types as features".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            notes.push(
                Finding::error("SLURM-NO-INSTANCE-TYPE", format!("no partition has {wanted}; {there}"))
                    .at("instance_type"),
            );
        } else if with.iter().all(|group| lacks_efa(group)) {
            // An error only if the job needs EFA: check/limits.rs.
            notes.push(
                Finding::warning(
                    "SLURM-NO-EFA-FEATURE",
                    format!("no partition has {wanted} with efa: its nodes lack that feature"),
                )
                .at("instance_type")
                .fix("`fabric = \"tcp\"` if that is meant; else switch EFA on for these nodes (ParallelCluster: Efa.Enabled)"),
            );
        } else if let Some(queue) = &scope.queue
            && !with.iter().any(|group| group.queues.contains(queue))
        {
            let has: Vec<&str> =
                with.iter().flat_map(|group| group.queues.iter().map(String::as_str)).collect();
            notes.push(
                Finding::error(
                    "SLURM-NO-INSTANCE-TYPE",
                    format!("partition `{queue}` has no {wanted}; {} has", has.join(", ")),
                )
                .at("queue"),
            );
        }
    }
    notes
}

/// Recorded clusters, shared with the tests of other modules.
/// Returns whether the nodes are known to lack EFA. ParallelCluster marks its nodes `static` or `dynamic`,
/// and those with EFA `efa`; other clusters have no such marker.
pub fn lacks_efa(group: &NodeGroup) -> bool {
    let has = |feature: &str| group.labels.contains_key(feature);
    (has("static") || has("dynamic")) && group.instance_type.is_some() && !has("efa")
}

#[cfg(test)]
pub mod tests_of_other_modules {
    use super::*;
    use crate::slurm::cluster::{COLUMN, SECTION};

    /// Returns the recorded outputs of a release: `tests/cases/slurm/README.md`.
    pub fn recorded(release: &str, scope: &Scope) -> ClusterFacts {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/slurm");
        let file = |name: &str| {
            std::fs::read_to_string(format!("{cases}/{release}/{name}.txt")).expect("the case is in the tree")
        };
        // The recording has the state of each node in the second column.
        let nodes: String = file("nodes")
            .lines()
            .map(|line| {
                let columns: Vec<&str> = line.split(COLUMN).collect();
                [&columns[..1], &columns[2..], &columns[1..2]].concat().join(&COLUMN.to_string()) + "\n"
            })
            .collect();
        let sections = [
            &file("partitions"),
            &nodes,
            &file("config"),
            &file("mpi"),
            "2\n",
            "ml-research|high,normal\n",
            "/home/researcher\n",
        ];
        facts(&Cluster::read(&sections.map(|text| format!("{text}{SECTION}")).concat()), scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_every_release() {
        for release in ["22.05", "24.11", "26.05"] {
            let facts = super::tests_of_other_modules::recorded(release, &Scope::default());
            let read: Vec<_> = facts
                .queues
                .iter()
                .map(|queue| {
                    (queue.name.as_str(), queue.default, queue.up, queue.max_nodes, queue.max_seconds)
                })
                .collect();
            assert_eq!(
                read,
                [
                    ("compute-gpu", true, true, Some(4), Some(172_800)),
                    ("inference-gpu", false, true, Some(1), Some(43_200))
                ],
                "{release}"
            );
        }
    }

    /// The outputs of each release, joined as the program prints them.
    #[test]
    fn facts_of_every_release() {
        for release in ["22.05", "24.11", "26.05"] {
            let facts = super::tests_of_other_modules::recorded(release, &Scope::default());
            let groups: Vec<_> = facts
                .nodes
                .iter()
                .map(|group| {
                    let gpus = group.allocatable.get("nvidia.com/gpu").map_or("0", String::as_str);
                    (
                        group.instance_type.as_deref().unwrap_or_default(),
                        group.count,
                        gpus,
                        group.queues.join(","),
                    )
                })
                .collect();
            let wanted = [
                ("p4de.24xlarge", 4, "8", "compute-gpu"),
                ("trn1.32xlarge", 1, "0", "compute-gpu"),
                ("p5.48xlarge", 2, "8", "compute-p5"),
                ("g5.12xlarge", 1, "4", "inference-gpu"),
            ];
            for (name, count, gpus, queue) in wanted {
                assert!(groups.contains(&(name, count, gpus, queue.to_owned())), "{release}: {groups:?}");
            }
            // 26.05 found no libpmix that it could load.
            let serves = |name: &str| facts.serves.iter().any(|known| known == name);
            assert_eq!((serves("mpi/pmi2"), serves("mpi/pmix")), (true, release != "26.05"), "{release}");
            assert!(
                facts.version.as_deref().is_some_and(|version| version.starts_with(release)),
                "{release}"
            );
        }
    }

    #[test]
    fn nodes_that_take_no_jobs_are_said_to_a_doctor() {
        let node = |name: &str, state: &str, reason: &str| {
            ["gpu*", "96", "1", "gpu:8", "p5.48xlarge", name, "1790000000", state, reason].join("\u{1f}")
        };
        let text = [
            node("n1", "idle", "none"),
            node("n2", "drained", "Xid 79: GPU lost"),
            node("n3", "idle*", "Not responding"),
            node("n4", "mixed", "none"),
        ];
        let said = |thorough: bool| {
            let mut scope = Scope::default();
            scope.thorough = thorough;
            let found = facts(&Cluster::read(&format!("\u{1d}{}\n\u{1d}", text.join("\n"))), &scope);
            found.notes.into_iter().map(|note| note.message).collect::<Vec<_>>()
        };
        let all = "2 of 4 nodes take no jobs: n2 is drained (Xid 79: GPU lost), n3 is idle* (Not responding)";
        assert_eq!(said(true), [all]);
        assert!(said(false).is_empty());
    }

    #[test]
    fn what_no_partition_has_is_said() {
        let node = |partition: &str, gres: &str, features: &str, name: &str| {
            [partition, "96", "1152000", gres, features, name].join("\u{1f}")
        };
        let nodes = [
            node("compute-gpu*", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a1"),
            node("compute-gpu*", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a2"),
            node("all", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a2"),
        ];
        let mut scope = Scope::default();
        scope.instance_types = vec!["p5.48xlarge".to_owned()];
        let text = format!("\u{1d}{}\n\u{1d}", nodes.join("\n"));
        let facts = facts(&Cluster::read(&text), &scope);
        assert_eq!(facts.nodes.iter().map(|group| group.count).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(facts.nodes[0].allocatable.get("nvidia.com/gpu").map(String::as_str), Some("8"));
        assert!(facts.notes[0].message.starts_with("no partition has p5.48xlarge"), "{:?}", facts.notes);
        assert_eq!(facts.node_queues["a2"], ["compute-gpu", "all"]);
    }
}
