//! The fabric in the objects as the server stores them, and in the pods that the operators make of those.

use serde_json::{Value, json};

use crate::cluster::{cluster, name, poll};
use crate::shell::{Shell, whole_cluster};

fn file(name: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nimage = \"busybox:1.36\"\nnodes = 2\nmemory = \"8Gi\"\ninstance_type = \"p5.48xlarge\"\n\
         command = [\"sleep\", \"20\"]\n{more}"
    )
}

/// Submits with these flags; gives the worker template of the stored object, its first pod, and the handle.
fn submitted(shell: &Shell, name: &str, text: &str, flags: &[&str]) -> (Value, Value, String) {
    shell.write("job.toml", text);
    let ran = shell.weftrun(&[&["submit", "-b", "kubeflow", "job.toml"][..], flags].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let object = shell.cluster.get(&["pytorchjob", name]);
    let pod = poll("the pod", || {
        let (there, text) =
            shell.cluster.kubectl_says(&["get", "-o", "json", "pod", &format!("{name}-worker-0")]);
        there.then(|| serde_json::from_str::<Value>(&text).unwrap())
    });
    let template = object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone();
    (template, pod, ran.stdout.trim().to_owned())
}

/// RoCE: the network by its annotation, the device by its resource, and the capability to pin memory.
#[test]
fn roce_is_a_network_a_device_and_a_capability() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("roce"));
    let text = file(&name, "gpus_per_node = 8\nfabric = \"roce\"\nprofile = \"roce\"\n");
    let (template, pod, handle) = submitted(&shell, &name, &text, &["--network", "fabric/rail-0"]);
    for pod in [&template, &pod] {
        let networks = &pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"];
        assert_eq!(networks, "fabric/rail-0", "{:#}", pod["metadata"]);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["securityContext"], json!({"capabilities": {"add": ["IPC_LOCK"]}}));
        for which in ["limits", "requests"] {
            assert_eq!(container["resources"][which]["rdma/rdma"], "1", "{container:#}");
        }
        let spec = pod["spec"].to_string();
        assert!(!spec.contains("amazon") && !spec.contains("hugepages"), "{spec}");
        assert!(!spec.contains("privileged") && !spec.contains("/dev/infiniband"), "{spec}");
    }
    shell.delete(&handle);
}

/// A rule that is switched off leaves nothing of its own in the object, and everything else stays.
#[test]
fn a_rule_that_is_switched_off_leaves_nothing() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let shell = Shell::of(cluster, "researcher");
    let traces =
        ["hugepages", "vpc.amazonaws.com/efa", "topology.kubernetes.io/zone", "NCCL_DEBUG", "hostPath"];
    // What is of no use without the rule goes with it: huge pages are EFA's.
    let cases: [(&str, &[&str]); 6] = [
        ("", &[]),
        ("efa.hugepages", &["hugepages"]),
        ("efa.devices", &["vpc.amazonaws.com/efa", "hugepages"]),
        ("efa.colocate", &["topology.kubernetes.io/zone"]),
        ("detect.nccl-debug", &["NCCL_DEBUG"]),
        ("efa.stack", &["hostPath"]),
    ];
    for (rule, without) in cases {
        let flags: &[&str] = if rule.is_empty() { &[] } else { &["--no-fabric-rule", rule] };
        let name = name("optout");
        let text = file(&name, "gpus_per_node = 8\nfabric = \"efa\"\nprofile = \"dgxc\"\n");
        let (template, pod, handle) = submitted(&shell, &name, &text, flags);
        for spec in [template["spec"].to_string(), pod["spec"].to_string()] {
            for trace in traces {
                assert_eq!(spec.contains(trace), !without.contains(&trace), "{rule}, {trace}: {spec}");
            }
        }
        shell.delete(&handle);
    }
}

/// Part of a node gets no EFA, even if some is free there: pods with and without would wait for each other
/// forever.
#[test]
fn part_of_a_node_gets_no_efa() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("part"));
    let text = file(&name, "gpus_per_node = 4\nprofile = \"dgxc\"\n");
    shell.write("efa.toml", &format!("{text}fabric = \"efa\"\n"));
    let refused = shell.weftrun(&["submit", "-b", "kubeflow", "efa.toml"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("4 of 8") && refused.stderr.contains("auto"), "{}", refused.stderr);
    let (template, pod, handle) = submitted(&shell, &name, &text, &[]);
    for pod in [&template, &pod] {
        let spec = pod["spec"].to_string();
        assert!(!spec.contains("amazon") && !spec.contains("hugepages"), "{spec}");
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "4");
    }
    shell.delete(&handle);
}
