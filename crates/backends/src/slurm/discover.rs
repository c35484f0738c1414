//! What a cluster has: partitions, features, GPUs, limits, versions, plugins. One program, one round trip, asked
//! at most once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use weftrun_core::backend::{ClusterFacts, NodeGroup, Queue, Scope};
use weftrun_core::convert::slurm_duration;
use weftrun_core::{Finding, Result};

use super::client::Client;
use super::error;

/// Between two answers.
pub const SECTION: char = '\u{1d}';

/// How long an answer stands: a plan and the check before its submission ask the cluster once.
pub const FRESH: Duration = Duration::from_mins(1);

/// Asks.
pub async fn discover(client: &Client, scope: &Scope) -> Result<ClusterFacts> {
    Ok(facts(&client.described().await?, scope))
}

/// Each question beside the others, since `sacctmgr` and srun's plugins take their time; the answers in order.
pub async fn ask(client: &Client) -> Result<String> {
    let cluster = client.cluster()?;
    let questions = [
        format!("scontrol{cluster} show partition -o 2> \"$t/error\"; echo $? > \"$t/code\""),
        format!("sinfo{cluster} -h -N -o '%P\u{1f}%T\u{1f}%c\u{1f}%m\u{1f}%G\u{1f}%f\u{1f}%N'"),
        format!("scontrol{cluster} show config"),
        "srun --mpi=list 2>&1".to_owned(),
        "srun --help 2>&1 | grep -c -e --container-image".to_owned(),
        "sacctmgr -n -P show assoc user=\"$(id -un)\" format=account,qos 2> /dev/null".to_owned(),
        "printf '%s\\n' \"$HOME\"".to_owned(),
    ];
    let mut program = "t=$(mktemp -d) || exit 1\ntrap 'rm -rf -- \"$t\"' EXIT\n".to_owned();
    for (number, question) in questions.iter().enumerate() {
        program.push_str(&format!("{{ {question}; }} > \"$t/{number}\" &\n"));
    }
    program.push_str("wait\nif [ \"$(cat \"$t/code\")\" != 0 ]; then cat \"$t/error\" >&2; exit 1; fi\n");
    for number in 0..questions.len() {
        program.push_str(&format!("cat \"$t/{number}\"; printf '\\035'\n"));
    }
    let answer = client.read(&program).await?;
    if answer.code != 0 {
        return Err(error::of_command("scontrol", &answer.stderr, answer.code));
    }
    Ok(answer.text())
}

/// Reads the sections. Pure.
fn facts(text: &str, scope: &Scope) -> ClusterFacts {
    let mut sections = text.split(SECTION);
    let mut next = || sections.next().unwrap_or_default();
    let (partitions, nodes, config, mpi, pyxis, associations, home) =
        (next(), next(), next(), next(), next(), next(), next());
    let mut facts = ClusterFacts::default();
    facts.online = true;
    facts.efa_webhook = Some(false);
    facts.queues = queues(partitions);
    facts.nodes = groups(nodes);
    let config = settings(config);
    facts.version = config.get("SLURM_VERSION").cloned();
    facts.serves = mpi_plugins(mpi).into_iter().map(|name| format!("mpi/{name}")).collect();
    if pyxis.trim().parse::<u32>().is_ok_and(|found| found > 0) {
        facts.serves.push("pyxis".to_owned());
    }
    facts.priorities = qos(associations);
    if let Some(name) = config.get("ClusterName") {
        facts.ids.insert("cluster".to_owned(), name.clone());
    }
    facts.ids.insert("home".to_owned(), home.trim().to_owned());
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
        if let Some(value) = config.get(key) {
            facts.extra.insert(key.to_owned(), json!(value));
        }
    }
    facts.notes = notes(&facts, scope);
    facts
}

/// `Key=Value` words of `scontrol show partition -o`.
fn queues(text: &str) -> Vec<Queue> {
    let read = |line: &str| {
        let words: BTreeMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let mut queue = Queue::default();
        (*words.get("PartitionName")?).clone_into(&mut queue.name);
        queue.default = words.get("Default") == Some(&"YES");
        queue.up = words.get("State") == Some(&"UP");
        let limit = words.get("MaxNodes").and_then(|limit| limit.parse::<u32>().ok());
        let total = words.get("TotalNodes").and_then(|total| total.parse::<u32>().ok());
        queue.max_nodes = limit.into_iter().chain(total).min();
        queue.max_seconds =
            words.get("MaxTime").and_then(|limit| slurm_duration(limit)).map(|limit| limit.as_secs());
        Some(queue)
    };
    text.lines().filter_map(read).collect()
}

/// Nodes that are alike: same GPUs, features, CPUs, memory. One line of `sinfo -N` a node and partition.
fn groups(text: &str) -> Vec<NodeGroup> {
    let mut nodes: BTreeMap<&str, (Vec<String>, [&str; 5])> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\u{1f}').collect();
        let [partition, state, cpus, memory, gres, features, name] = fields[..] else { continue };
        let entry = nodes.entry(name).or_insert_with(|| (Vec::new(), [state, cpus, memory, gres, features]));
        let partition = partition.trim_end_matches('*').to_owned();
        if !entry.0.contains(&partition) {
            entry.0.push(partition);
        }
    }
    let mut groups: BTreeMap<(Vec<String>, [&str; 4]), u32> = BTreeMap::new();
    for (partitions, [_, cpus, memory, gres, features]) in nodes.into_values() {
        *groups.entry((partitions, [cpus, memory, gres, features])).or_default() += 1;
    }
    groups
        .into_iter()
        .map(|((partitions, [cpus, memory, gres, features]), count)| {
            group(partitions, cpus, memory, gres, features, count)
        })
        .collect()
}

fn group(
    partitions: Vec<String>,
    cpus: &str,
    memory: &str,
    gres: &str,
    features: &str,
    count: u32,
) -> NodeGroup {
    let mut group = NodeGroup::default();
    group.count = count;
    group.queues = partitions;
    let features: Vec<&str> =
        features.split(',').filter(|feature| !matches!(*feature, "" | "(null)")).collect();
    group.instance_type =
        features.iter().find(|feature| is_instance_type(feature)).map(|name| (*name).to_owned());
    group.labels = features.iter().map(|feature| ((*feature).to_owned(), "true".to_owned())).collect();
    if let Some(name) = &group.instance_type {
        group.labels.insert("node.kubernetes.io/instance-type".to_owned(), name.clone());
    }
    group.allocatable.insert("cpu".to_owned(), cpus.trim_end_matches('+').to_owned());
    group.allocatable.insert("memory".to_owned(), format!("{}Mi", memory.trim_end_matches('+')));
    for item in gres.split(',').filter(|item| *item != "(null)") {
        // `gpu:h100:8(S:0-1)`, `gpu:8`, `neuron:16`.
        let item = item.split('(').next().unwrap_or_default();
        let parts: Vec<&str> = item.split(':').collect();
        let (name, model, amount) = match parts[..] {
            [name, model, amount] => (name, Some(model), amount),
            [name, amount] => (name, None, amount),
            _ => continue,
        };
        if name == "gpu" {
            group.gpu_product = model.map(str::to_owned);
            group.allocatable.insert("nvidia.com/gpu".to_owned(), amount.to_owned());
        } else {
            group.allocatable.insert(format!("gres/{name}"), amount.to_owned());
        }
    }
    group
}

/// ParallelCluster puts the instance type among the features: `p5.48xlarge`.
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

fn settings(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// `srun --mpi=list`: names one a line, or in one line behind a colon.
fn mpi_plugins(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let mut names: Vec<String> =
        words.filter(|word| word.starts_with("pmix") || *word == "pmi2").map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn qos(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once('|'))
        .flat_map(|(_, qos)| qos.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// What the job's own words do not fit.
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
        } else if with.iter().all(|group| super::never::lacks_efa(group)) {
            // An error once it is known that the job wants EFA: never.rs.
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

/// Recorded clusters, for the tests of other modules too.
#[cfg(test)]
pub mod tests_of_other_modules {
    use super::*;

    /// A release's recorded answers: `tests/cases/slurm/README.md`.
    pub fn recorded(release: &str, scope: &Scope) -> ClusterFacts {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/slurm");
        let file = |name: &str| {
            std::fs::read_to_string(format!("{cases}/{release}/{name}.txt")).expect("the case is in the tree")
        };
        let sections = [
            &file("partitions"),
            &file("nodes"),
            &file("config"),
            &file("mpi"),
            "2\n",
            "ml-research|high,normal\n",
            "/home/researcher\n",
        ];
        facts(&sections.map(|text| format!("{text}{SECTION}")).concat(), scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_every_release() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/slurm");
        for release in ["22.05", "24.11", "26.05"] {
            let queues = queues(
                &std::fs::read_to_string(format!("{cases}/{release}/partitions.txt"))
                    .expect("the case is in the tree"),
            );
            let read: Vec<_> = queues
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
            let config = settings(
                &std::fs::read_to_string(format!("{cases}/{release}/config.txt"))
                    .expect("the case is in the tree"),
            );
            assert!(
                config.get("SLURM_VERSION").is_some_and(|version| version.starts_with(release)),
                "{release}"
            );
        }
    }

    /// The answers of each release, put together as the program prints them.
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
            // 26.05 found no libpmix it could load.
            let serves = |name: &str| facts.serves.iter().any(|known| known == name);
            assert_eq!((serves("mpi/pmi2"), serves("mpi/pmix")), (true, release != "26.05"), "{release}");
            assert!(
                facts.version.as_deref().is_some_and(|version| version.starts_with(release)),
                "{release}"
            );
        }
    }

    #[test]
    fn what_no_partition_has_is_said() {
        let node = |partition: &str, gres: &str, features: &str, name: &str| {
            [partition, "idle", "96", "1152000", gres, features, name].join("\u{1f}")
        };
        let nodes = [
            node("compute-gpu*", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a1"),
            node("compute-gpu*", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a2"),
            node("all", "gpu:a100:8(S:0-1)", "static,p4de.24xlarge,efa,gpu", "a2"),
        ];
        let mut scope = Scope::default();
        scope.instance_types = vec!["p5.48xlarge".to_owned()];
        let text = format!("\u{1d}{}\n\u{1d}", nodes.join("\n"));
        let facts = facts(&text, &scope);
        assert_eq!(facts.nodes.iter().map(|group| group.count).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(facts.nodes[0].allocatable.get("nvidia.com/gpu").map(String::as_str), Some("8"));
        assert!(facts.notes[0].message.starts_with("no partition has p5.48xlarge"), "{:?}", facts.notes);
    }
}
