//! A webhook that adds EFA to pods, as DGX Cloud has one: `test-cluster/kubernetes/efa_webhook.py`, in a namespace of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::cluster::{TestCluster, cluster, name, poll};
use crate::shell::{Shell, whole_cluster};
use weftrun_testkit::child;

/// Starts the webhook's server, and gives its port and the authority of its certificate.
pub fn serve(cluster: &TestCluster) -> (Child, u16, String) {
    let pki = cluster.state.join("pki");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-cluster/kubernetes/efa_webhook.py");
    let mut child = child::command("python3")
        .arg(script)
        .args([pki.join("apiserver.crt"), pki.join("apiserver.key")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let authority =
        base64::engine::general_purpose::STANDARD.encode(std::fs::read(pki.join("ca.crt")).unwrap());
    (child, port.trim().parse().unwrap(), authority)
}

/// A namespace that the researcher may use, beside a webhook or without.
struct Space {
    cluster: TestCluster,
    name: String,
    server: Option<Child>,
}

impl Space {
    fn start(cluster: &TestCluster, webhook: bool) -> Self {
        let name = name(if webhook { "dgxc" } else { "plain" });
        let role = include_str!("../../../../docs/backends/rbac.yaml");
        let role = serde_saphyr::from_multiple::<Value>(role).unwrap();
        let mut role = role.into_iter().find(|object| object["kind"] == "Role").unwrap();
        role["metadata"]["namespace"] = json!(name);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "researchers", "namespace": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "User", "name": "researcher"}],
        });
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"space": name}}});
        let mut made = Self { cluster: cluster.clone(), name, server: None };
        for object in [space, role, binding] {
            made.apply(&object);
        }
        if webhook {
            made.add_webhook();
        }
        made
    }

    fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        self.cluster.kubectl(&["apply", "-n", &self.name, "-f", file.path().to_str().unwrap()]);
    }

    fn add_webhook(&mut self) {
        let (child, port, authority) = serve(&self.cluster);
        self.server = Some(child);
        let webhook = json!({
            "name": "efa.weftrun.test", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority},
            "namespaceSelector": {"matchLabels": {"space": self.name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        });
        self.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self.name}, "webhooks": [webhook],
        }));
        // The API server loads it after a moment.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {
                "training.kubeflow.org/job-name": "probe", "training.kubeflow.org/job-role": "launcher"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}]},
        });
        poll("the webhook's effect", || {
            let (made, text) = self.create(&pod);
            (made && text.contains("vpc.amazonaws.com/efa")).then_some(())
        });
    }

    /// What the API server would store of an object, or why it refuses it.
    fn create(&self, object: &Value) -> (bool, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        self.cluster.kubectl_says(&["create", "-n", &self.name, "--dry-run=server", "-o", "json", "-f", path])
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let (there, text) = self.cluster.kubectl_says(&["get", "-n", &self.name, "-o", "json", kind, name]);
        there.then(|| serde_json::from_str(&text).unwrap())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            self.cluster.kubectl_says(&["delete", "mutatingwebhookconfiguration", &self.name]);
            let _ = server.kill();
            let _ = server.wait();
        }
        self.cluster.kubectl_says(&["delete", "--wait=false", "namespace", &self.name]);
    }
}

const STACK: &str = "/opt/amazon-efa-ofi";
const LIBRARIES: &str =
    "/opt/amazon-efa-ofi/ofi/lib:/opt/amazon-efa-ofi/efa/lib:/opt/amazon-efa-ofi/openmpi/lib";

/// What a pod is to have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// The whole of the document's list.
    Efa,
    /// The stack and what its `mpirun` needs, and no devices.
    Stack,
    Nothing,
}

#[track_caller]
fn holds(what: &str, pod: &Value, gets: Gets) {
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    let none = Vec::new();
    let mounts = container["volumeMounts"].as_array().unwrap_or(&none);
    let mounted = mounts.iter().filter(|mount| mount["mountPath"] == STACK).count();
    assert_eq!(mounted, usize::from(gets != Gets::Nothing), "{what}: {container:#}");
    if gets == Gets::Nothing {
        let text = spec.to_string();
        assert!(!text.contains("amazon") && !text.contains("hugepages"), "{what}: {spec:#}");
        return;
    }
    let env = |name: &str| {
        let entries = container["env"].as_array().unwrap();
        let found: Vec<_> = entries.iter().filter(|entry| entry["name"] == name).collect();
        assert!(found.len() < 2, "{what}: {name} twice");
        found.first().map(|entry| entry["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(env("LD_LIBRARY_PATH").as_deref(), Some(format!("{LIBRARIES}:/own").as_str()), "{what}");
    assert_eq!(env("OPAL_PREFIX").as_deref(), Some("/opt/amazon-efa-ofi/openmpi"), "{what}");
    assert_eq!(env("FI_EFA_USE_DEVICE_RDMA").as_deref(), Some("1"), "{what}");
    if gets == Gets::Efa {
        assert_eq!(env("NVIDIA_GDRCOPY").as_deref(), Some("enabled"), "{what}");
    }
    for side in ["limits", "requests"] {
        for (resource, amount) in [("vpc.amazonaws.com/efa", "32"), ("hugepages-2Mi", "5Gi")] {
            let asked = container["resources"][side][resource].as_str();
            assert_eq!(asked, (gets == Gets::Efa).then_some(amount), "{what}: {side} {resource}");
        }
    }
}

/// Each row of the DGX Cloud document, from the objects that the API server stores.
fn table(webhook: bool) {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let space = Space::start(&cluster, webhook);
    let shell = Shell::of(cluster, "researcher");
    let rows: [(&str, u32, &[&str], Gets); 6] = [
        ("whole nodes", 8, &["--fabric", "efa"], Gets::Efa),
        ("part of a node", 4, &[], Gets::Nothing),
        ("off", 8, &["--fabric", "off"], Gets::Nothing),
        ("tcp", 8, &["--fabric", "tcp"], Gets::Nothing),
        ("opt-out", 8, &["--fabric", "efa", "--annotation", "disable-auto-efa=true"], Gets::Nothing),
        ("the webhook's own", 8, &["--fabric", "efa", "--inject", "server"], Gets::Efa),
    ];
    let rows = rows.iter().filter(|row| webhook || row.0 != "the webhook's own");
    for ((row, gpus, flags, gets), launch) in rows.flat_map(|row| ["", "mpi"].map(|launch| (row, launch))) {
        let what = format!("{row}, launch `{launch}`, webhook {webhook}");
        let name = name("row");
        let launch_line = if launch.is_empty() { String::new() } else { format!("launch = \"{launch}\"\n") };
        shell.write(
            "job.toml",
            &format!(
                "name = \"{name}\"\nimage = \"busybox:1.36\"\nnodes = 2\ngpus_per_node = {gpus}\nmemory = \"8Gi\"\n\
                 instance_type = \"p5.48xlarge\"\nprofile = \"dgxc\"\ncommand = [\"sleep\", \"20\"]\n{launch_line}\
                 [env]\nLD_LIBRARY_PATH = \"/own\"\n"
            ),
        );
        let ran =
            shell.weftrun(&[&["submit", "-b", "kubeflow", "-n", &space.name, "job.toml"], *flags].concat());
        assert_eq!(ran.code, 0, "{what}: {}", ran.stderr);
        let pod = poll("the worker", || space.get("pod", &format!("{name}-worker-0")));
        holds(&what, &pod, *gets);
        if !launch.is_empty() {
            // The operator makes the launcher when its workers are ready, which these never are.
            let job = space.get("mpijob", &name).unwrap();
            let template = &job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"];
            let mut launcher = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
            launcher["metadata"]["name"] = json!("launcher");
            launcher["metadata"]["labels"]["training.kubeflow.org/job-name"] = json!(name);
            launcher["metadata"]["labels"]["training.kubeflow.org/job-role"] = json!("launcher");
            launcher["spec"]["restartPolicy"] = json!("Never");
            let (made, text) = space.create(&launcher);
            assert!(made, "{what}: the launcher is refused: {text}");
            let launcher: Value = serde_json::from_str(&text).unwrap();
            holds(
                &format!("{what}, launcher"),
                &launcher,
                if *gets == Gets::Efa { Gets::Stack } else { *gets },
            );
            if *gets == Gets::Efa {
                let command = launcher["spec"]["containers"][0]["command"].to_string();
                assert!(command.contains("/opt/amazon-efa-ofi/openmpi/bin/mpirun"), "{what}: {command}");
                for name in ["LD_LIBRARY_PATH", "OPAL_PREFIX", "FI_EFA_USE_DEVICE_RDMA"] {
                    assert!(command.contains(&format!("\"-x\",\"{name}\"")), "{what}: {command}");
                }
            }
        }
        shell.weftrun(&["delete", "--yes", ran.stdout.trim()]);
    }
    // A manifest that was mutated for the profile, without a word about a webhook.
    let name = name("raw");
    let asked = json!({"nvidia.com/gpu": "8", "memory": "8Gi"});
    let container = json!({
        "name": "pytorch", "image": "busybox:1.36", "command": ["sleep", "20"],
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/own"}], "resources": {"limits": asked, "requests": asked},
    });
    let raw = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": space.name},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}},
    });
    shell.write("raw.json", &raw.to_string());
    let mutated = shell.weftrun(&["mutate", "--profile", "dgxc", "raw.json"]);
    assert_eq!(mutated.code, 0, "{}", mutated.stderr);
    space.apply(&serde_saphyr::from_str(&mutated.stdout).unwrap());
    let pod = poll("the worker", || space.get("pod", &format!("{name}-worker-0")));
    holds(&format!("mutate, webhook {webhook}"), &pod, Gets::Efa);
}

#[test]
fn every_row_of_the_dgx_cloud_document_beside_the_webhook() {
    table(true);
}

#[test]
fn every_row_of_the_dgx_cloud_document_without_a_webhook() {
    table(false);
}
