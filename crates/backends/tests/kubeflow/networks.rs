//! Networks of the cluster in facts and plans.

use serde_json::Value;

use crate::cluster::{cluster, name};
use crate::shell::Shell;

/// A kind with the fields that its vendor documents; the schema keeps any others.
fn kind(group: &str, plural: &str, kind: &str, scope: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{group}}}\n\
         spec:\n  group: {group}\n  scope: {scope}\n  names: {{plural: {plural}, singular: {0}, kind: {kind}}}\n  versions:\n  \
         - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}\n---\n",
        kind.to_lowercase()
    )
}

fn network(number: usize, mode: &str) -> String {
    format!(
        "apiVersion: networking.gke.io/v1\nkind: GKENetworkParamSet\nmetadata: {{name: gpu-{number}}}\n\
         spec: {{vpc: v, vpcSubnet: s, deviceMode: {mode}}}\n---\n\
         apiVersion: networking.gke.io/v1\nkind: Network\nmetadata: {{name: net-{number}}}\n\
         spec: {{type: Device, parametersRef: {{group: networking.gke.io, kind: GKENetworkParamSet, name: gpu-{number}}}}}\n---\n"
    )
}

/// All tests share the cluster, and networks change what its plans say.
#[test]
fn alone_networks_of_gke_are_evidence_and_give_their_names() {
    let Some(cluster) = cluster() else { return };
    let kinds = kind("networking.gke.io", "networks", "Network", "Cluster")
        + &kind("networking.gke.io", "gkenetworkparamsets", "GKENetworkParamSet", "Cluster");
    cluster.apply(&kinds);
    let (shell, name) = (Shell::of(cluster, "admin"), name("gke"));
    for crd in ["networks", "gkenetworkparamsets"] {
        shell.cluster.kubectl(&[
            "wait",
            "--for=condition=Established",
            &format!("crd/{crd}.networking.gke.io"),
        ]);
    }
    shell.cluster.apply(&(0..8).map(|number| network(number, "RDMA")).collect::<String>());
    shell.write(
        "job.toml",
        &format!("name = \"{name}\"\nimage = \"a\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"true\"]\n"),
    );
    let plan = |more: &[&str]| -> Value {
        let ran = shell
            .weftrun(&[&["plan", "-b", "kubeflow", "--online", "-o", "json", "job.toml"][..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let seen = plan(&[]).to_string();
    assert!(seen.contains("Google RDMA") && seen.contains("deviceMode=RDMA"), "{seen}");
    let attached = plan(&["--profile", "gke-gib"]).to_string();
    for number in 0..8 {
        assert!(attached.contains(&format!("net-{number}")), "{attached}");
    }
    assert!(!attached.contains("rdma-0"), "{attached}");
    for crd in ["networks", "gkenetworkparamsets"] {
        shell.cluster.kubectl(&["delete", "crd", &format!("{crd}.networking.gke.io")]);
    }
}
