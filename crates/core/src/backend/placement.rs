//! What to do about a pod that Kubernetes' scheduler places on no node, by the words of its message (kube-scheduler's plugins of
//! 1.18 to 1.34, read 2026-11-26).

/// Network devices of EFA.
const EFA: &str = "vpc.amazonaws.com/efa";

/// Returns what to do about a message of the scheduler; none where it names no reason that is known.
pub fn fix_of_placement(why: &str) -> Option<String> {
    let says = |words: &[&str]| words.iter().any(|words| why.contains(words));
    let fixed = |fix: &str| Some(fix.to_owned());
    if says(&["unbound immediate PersistentVolumeClaims"]) {
        return fixed(
            "a volume claim of the pod is not bound: check its storage class and its events (`kubectl describe pvc`)",
        );
    }
    if says(&["persistentvolumeclaim"]) {
        return fixed(
            "create the claim that it names in this namespace, or correct its name in the job's volumes",
        );
    }
    let is_tainted = says(&["untolerated taint", "didn't tolerate"]);
    match scarcest(why) {
        Some(name) if is_gpu(name) => Some(format!(
            "no node has so many {name} free: wait, request fewer GPUs a node, or check with `weftrun doctor` that nodes have GPUs and their device plugin runs"
        )),
        Some(name) if name.starts_with(EFA) => fixed(
            "no node has so many EFA interfaces free: wait, request fewer nodes, or check with `weftrun doctor` that the EFA device plugin runs",
        ),
        Some(name) if name.starts_with("hugepages-") => fixed(
            "no node has so many huge pages free: switch off `efa.hugepages`, or have the nodes reserve them",
        ),
        Some(name) => Some(format!("no node has so much {name} free: wait, or request less")),
        // Each node has its own reason, and the message does not name the nodes.
        None if is_tainted && has_other_labels(why) => fixed(
            "some nodes are tainted and the others lack the requested labels: check the instance type and node selector, or add a toleration",
        ),
        None if is_tainted && says(&["node-role.kubernetes.io/"]) => fixed(
            "only nodes of the control plane are left, whose taint keeps jobs off: add worker nodes, or a toleration, or remove the taint (`kubectl taint nodes NODE TAINT-`); waiting does not help",
        ),
        None if is_tainted
            && says(&["taint {node.kubernetes.io/", "taint {node.cloudprovider.kubernetes.io/"]) =>
        {
            fixed(
                "the nodes are not ready or under pressure, as their taints say: `kubectl describe node` shows why; a toleration does not help",
            )
        }
        None if is_tainted => fixed(
            "the nodes are tainted: add a toleration, or a profile or node selector for the right nodes; waiting does not help",
        ),
        None if has_other_labels(why) => {
            fixed("no node has the requested labels: check the instance type and node selector")
        }
        None if says(&[
            "volume node affinity",
            "available persistent volumes to bind",
            "max volume count",
        ]) =>
        {
            fixed(
                "the volume of the pod cannot be used on the nodes that are left: it belongs to another node or zone, or they have as many volumes as they may (`kubectl describe pv`)",
            )
        }
        None if says(&["free ports"]) => fixed(
            "another pod holds the host port on each node: wait until it ends, use another port, or do without host ports and the host's network",
        ),
        None if says(&["pod affinity"]) => fixed(
            "all pods must be in one zone, and no zone has enough free nodes, or the nodes have no `topology.kubernetes.io/zone`: wait, or switch `efa.colocate` off",
        ),
        None if says(&["anti-affinity", "topology spread"]) => fixed(
            "the pod must not share a node or zone with others of its kind, and no other one is free: add nodes, or relax its anti-affinity or topology spread constraints",
        ),
        None if says(&["Too many pods"]) => {
            fixed("the nodes run as many pods as they may: wait, or add nodes")
        }
        None if says(&["were unschedulable"]) => fixed(
            "the nodes are cordoned: ask your cluster administrator to uncordon them (`kubectl uncordon NODE`), or wait for other nodes",
        ),
        None if says(&["resource claim", "resourceclaim", "allocate all claims"]) => fixed(
            "the devices of a resource claim cannot be allocated on any node: check the claim and its device class (`kubectl describe resourceclaim`)",
        ),
        None => None,
    }
}

fn is_gpu(resource: &str) -> bool {
    ["nvidia.com/", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/"]
        .iter()
        .any(|own| resource.starts_with(own))
}

/// Returns the resource that decides which nodes can take the pod at all: GPUs before network devices, and
/// both before what depends on them. The scheduler names every resource that any node lacks.
fn scarcest(why: &str) -> Option<&str> {
    let names = why.split("Insufficient ").skip(1).filter_map(|rest| rest.split([',', ' ']).next());
    // Resource names contain dots, which also end the sentence.
    names.map(|name| name.trim_end_matches('.')).min_by_key(|name| match *name {
        name if is_gpu(name) => 0,
        name if name.starts_with(EFA) => 1,
        name if name.starts_with("hugepages-") => 3,
        _ => 2,
    })
}

fn has_other_labels(why: &str) -> bool {
    ["node affinity", "node selector"].iter().any(|words| {
        // `volume node affinity conflict` is about a volume.
        why.match_indices(words)
            .any(|(at, _)| !why.get(..at).is_some_and(|before| before.ends_with("volume ")))
    })
}

#[cfg(test)]
mod tests {
    use super::fix_of_placement;

    #[test]
    fn the_reason_of_the_scheduler_decides_what_to_do() {
        for (why, wanted) in [
            (
                "0/1 nodes are available: 1 node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate.",
                "waiting does not help",
            ),
            (
                "0/3 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}.",
                "toleration",
            ),
            (
                "0/3 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
                "not ready",
            ),
            (
                "0/3 nodes are available: 1 node(s) had untolerated taint {a: }, 2 Insufficient nvidia.com/gpu.",
                "nvidia.com/gpu free",
            ),
            ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "labels"),
            ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "volume"),
            (
                "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.",
                "host port",
            ),
            ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "not bound"),
            ("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", "anti-affinity"),
            ("0/3 nodes are available: 3 node(s) were unschedulable.", "cordoned"),
            ("0/3 nodes are available: 3 Too many pods.", "as many pods"),
        ] {
            let fix = fix_of_placement(why).unwrap_or_default();
            assert!(fix.contains(wanted), "{why}: {fix}");
        }
        assert_eq!(fix_of_placement("0/3 nodes are available: something new."), None);
    }
}
