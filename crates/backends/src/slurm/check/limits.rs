//! Requests that this cluster can never satisfy. Slurm accepts such jobs where `EnforcePartLimits` is off,
//! and they wait forever (seen on 22.05 and 26.05).

use weftrun_convert::{Directives, slurm_duration};
use weftrun_core::Finding;
use weftrun_core::backend::{ClusterFacts, NodeGroup, Queue};
use weftrun_core::fabric::Fabric;

use crate::slurm::discover::lacks_efa;
use crate::slurm::error;
use crate::slurm::render::Script;

/// Returns one finding for each request that can never be satisfied. Pure.
pub fn findings(script: &Script, facts: &ClusterFacts) -> Vec<Finding> {
    let wants_efa = script.marker.as_ref().is_some_and(|marker| marker.fabric == Some(Fabric::Efa));
    let mut findings: Vec<Finding> = plugins(script, facts);
    if let Some(qos) = script.value("qos") {
        findings.extend(no_qos(qos, facts));
    }
    for options in &script.components {
        let component = Component(options);
        let Some(queue) = component.queue(facts) else { continue };
        if !queue.up {
            findings
                .push(never(format!("partition `{}` is down", queue.name), "use another partition, or wait"));
        }
        findings.extend(component.too_long(queue));
        findings.extend(component.too_many(queue));
        findings.extend(component.no_such_nodes(queue, facts, wants_efa));
    }
    findings
}

fn never(message: String, fix: impl Into<String>) -> Finding {
    Finding::error("SLURM-NEVER-STARTS", message).fix(fix)
}

/// The options of a job, or of one component of a heterogeneous job.
struct Component<'s>(&'s Directives);

impl Component<'_> {
    /// Returns the job's partition; none if the job names one that does not exist, which Slurm itself
    /// refuses.
    fn queue<'f>(&self, facts: &'f ClusterFacts) -> Option<&'f Queue> {
        let wanted = self.0.value("partition");
        facts.queues.iter().find(|queue| wanted.map_or(queue.default, |name| name == queue.name))
    }

    fn too_long(&self, queue: &Queue) -> Option<Finding> {
        let (seconds, most) = (self.0.value("time").and_then(slurm_duration)?.as_secs(), queue.max_seconds?);
        (seconds > most).then(|| {
            let (asked, allowed, name) = (hours(seconds), hours(most), &queue.name);
            never(
                format!("requested {asked}, but partition `{name}` allows at most {allowed}; the job would never start"),
                "set a shorter `time_limit`",
            )
        })
    }

    fn too_many(&self, queue: &Queue) -> Option<Finding> {
        let (nodes, most) = (self.0.number("nodes")?, queue.max_nodes?);
        (nodes > most).then(|| {
            let name = &queue.name;
            never(
                format!("requested {nodes} nodes, but partition `{name}` allows at most {most} per job; the job would never start"),
                "request fewer nodes, or another partition",
            )
        })
    }

    /// Returns a finding if the partition has too few nodes with the feature, the GPUs and EFA.
    fn no_such_nodes(&self, queue: &Queue, facts: &ClusterFacts, wants_efa: bool) -> Option<Finding> {
        let feature =
            self.0.value("constraint").filter(|text| !text.contains(['&', '|', '[', '*', '!', '(']));
        let gpus = self.0.number("gpus-per-node").unwrap_or(0);
        let here: Vec<&NodeGroup> =
            facts.nodes.iter().filter(|group| group.queues.contains(&queue.name)).collect();
        let with_feature: Vec<&NodeGroup> = here
            .into_iter()
            .filter(|group| feature.is_none_or(|name| group.labels.contains_key(name)))
            .collect();
        let (name, what) = (&queue.name, feature.map_or(String::new(), |name| format!(" with `{name}`")));
        let list = "`weftrun doctor` lists what each partition has";
        if with_feature.is_empty() {
            return feature
                .map(|feature| never(format!("partition `{name}` has no nodes with `{feature}`"), list));
        }
        let fitting: Vec<&NodeGroup> =
            with_feature.into_iter().filter(|group| gpus == 0 || gpus_of(group) >= gpus).collect();
        if fitting.is_empty() {
            return Some(never(format!("partition `{name}` has no nodes{what} with {gpus} GPUs"), list));
        }
        if wants_efa && fitting.iter().all(|group| lacks_efa(group)) {
            let message = match feature {
                Some(feature) => format!("partition `{name}` has no {feature} with efa"),
                None => format!("partition `{name}` has no nodes with efa"),
            };
            return Some(
                Finding::error("SLURM-NO-EFA-FEATURE", message)
                    .fix("choose a partition whose nodes have EFA, or set `fabric = \"tcp\"`"),
            );
        }
        let (nodes, count) = (self.0.number("nodes")?, fitting.iter().map(|group| group.count).sum::<u32>());
        (nodes > count && queue.max_nodes.is_none_or(|most| nodes <= most)).then(|| {
            let what = if gpus > 0 { format!("{what} and {gpus} GPUs") } else { what };
            never(
                format!(
                    "requested {nodes} nodes{what}, but partition `{name}` has {count}; the job would never start"
                ),
                "request fewer nodes, or another partition",
            )
        })
    }
}

fn gpus_of(group: &NodeGroup) -> u32 {
    group.allocatable.get("nvidia.com/gpu").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns a finding for each srun plugin that the script uses and the cluster lacks; nothing where srun
/// listed no plugins at all.
fn plugins(script: &Script, facts: &ClusterFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if script.pyxis && !facts.serves.iter().any(|name| name == "pyxis") {
        findings.push(
            Finding::error("SLURM-NO-PLUGIN", "this cluster's srun has no --container-image: pyxis is not installed")
                .fix("set `container` in `[backend.slurm]` to enroot, docker or apptainer, or to none for programs on the nodes"),
        );
    }
    let mpi: Vec<&str> = facts.serves.iter().filter_map(|name| name.strip_prefix("mpi/")).collect();
    if let Some(wanted) = script.mpi.as_deref().filter(|wanted| !mpi.is_empty() && !mpi.contains(wanted)) {
        findings.push(
            Finding::error("SLURM-NO-PLUGIN", format!("this cluster's srun has no --mpi={wanted}"))
                .fix(format!("set `mpi` in `[backend.slurm]` to one of {}", mpi.join(", "))),
        );
    }
    findings
}

fn no_qos(qos: &str, facts: &ClusterFacts) -> Option<Finding> {
    let known = facts.priorities.is_empty() || facts.priorities.iter().any(|name| name == qos);
    (!known).then(|| {
        let message = format!("you may not use the QOS `{}`", error::clean(qos));
        Finding::error("SLURM-NO-QOS", message)
            .at("priority")
            .fix(format!("use one of {}", facts.priorities.join(", ")))
    })
}

fn hours(seconds: u64) -> String {
    if seconds.is_multiple_of(3600) {
        format!("{} h", seconds / 3600)
    } else {
        format!("{} min", seconds.div_ceil(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::records::Marker;

    fn facts() -> ClusterFacts {
        let mut queue = Queue::default();
        queue.name = "gpu".to_owned();
        (queue.default, queue.up) = (true, true);
        (queue.max_nodes, queue.max_seconds) = (Some(4), Some(3600));
        let mut group = NodeGroup::default();
        (group.count, group.queues) = (3, vec!["gpu".to_owned()]);
        group.instance_type = Some("p5.48xlarge".to_owned());
        group.labels = ["static", "p5.48xlarge"].map(|name| (name.to_owned(), "true".to_owned())).into();
        group.allocatable.insert("nvidia.com/gpu".to_owned(), "8".to_owned());
        let mut facts = ClusterFacts::default();
        (facts.queues, facts.nodes) = (vec![queue], vec![group]);
        facts.serves = vec!["mpi/pmi2".to_owned()];
        facts.priorities = vec!["normal".to_owned()];
        facts
    }

    fn script(head: &str) -> Script {
        let mut script = Script { components: vec![Directives::default()], ..Script::default() };
        for line in head.lines() {
            match line.strip_prefix("#SBATCH ") {
                Some("hetjob") => script.components.push(Directives::default()),
                Some(options) => script.components.last_mut().unwrap().read_line(options),
                None => {}
            }
        }
        script.marker = script.value("comment").and_then(Marker::find);
        script
    }

    fn said(script: &Script) -> Vec<String> {
        findings(script, &facts()).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn requests_that_would_wait_for_ever_are_errors() {
        let cases = [
            (
                "#SBATCH --nodes=9",
                "requested 9 nodes, but partition `gpu` allows at most 4 per job; the job would never start",
            ),
            (
                "#SBATCH --time=0-02:00:00",
                "requested 2 h, but partition `gpu` allows at most 1 h; the job would never start",
            ),
            (
                "#SBATCH --time=0-01:30:00",
                "requested 90 min, but partition `gpu` allows at most 1 h; the job would never start",
            ),
            ("#SBATCH --constraint=p4de.24xlarge", "partition `gpu` has no nodes with `p4de.24xlarge`"),
            (
                "#SBATCH --nodes=4\n#SBATCH --constraint=p5.48xlarge",
                "requested 4 nodes with `p5.48xlarge`, but partition `gpu` has 3; the job would never start",
            ),
            ("#SBATCH --gpus-per-node=16", "partition `gpu` has no nodes with 16 GPUs"),
            (
                "#SBATCH --comment=weftrun:0a1b:efa\n#SBATCH --constraint=p5.48xlarge",
                "partition `gpu` has no p5.48xlarge with efa",
            ),
            ("#SBATCH --qos=\"very \\\"high\\\"\"", "you may not use the QOS `very \"high\"`"),
            (
                "#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --nodes=9",
                "requested 9 nodes, but partition `gpu` allows at most 4 per job; the job would never start",
            ),
        ];
        for (head, wanted) in cases {
            assert_eq!(said(&script(head)), [wanted], "{head}");
        }
        assert!(said(&script("#SBATCH --nodes=3\n#SBATCH --comment=weftrun:0a1b:tcp")).is_empty());
        assert!(
            said(&script("#SBATCH --partition=other\n#SBATCH --nodes=9")).is_empty(),
            "Slurm refuses it itself"
        );
    }

    #[test]
    fn plugins_the_cluster_lacks_are_errors() {
        let mpi = |name: &str| Script { mpi: Some(name.to_owned()), ..Script::default() };
        assert_eq!(said(&mpi("pmix")), ["this cluster's srun has no --mpi=pmix"]);
        assert!(said(&mpi("pmi2")).is_empty());
        assert!(said(&Script { pyxis: true, ..Script::default() })[0].contains("pyxis is not installed"));
    }
}
