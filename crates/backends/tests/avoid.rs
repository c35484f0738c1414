//! The nodes that a job leaves out, in what each backend sends.
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use weftrun_core::backend::{Backend, Registry, Rendered, TargetConfig};
use weftrun_core::fabric::Fabric;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_core::{ErrorKind, Result};

fn spec(avoid: &[&str]) -> JobSpec {
    let role = Role::worker().nodes(2).gpus_per_node(8).command(["./train"]);
    let builder = JobSpec::builder("train").image("example.test/a:1").launch(Launch::PerNode).role(role);
    let builder = builder.fabric(Fabric::Off);
    avoid.iter().fold(builder, |builder, node| builder.avoid(*node)).build().unwrap()
}

async fn connect(backend: &str, settings: Value) -> (Arc<dyn Backend>, tempfile::TempDir) {
    weftrun_backends::link();
    let state = tempfile::tempdir().unwrap();
    let mut target = TargetConfig::new(backend, backend, state.path());
    for (key, value) in settings.as_object().unwrap() {
        target = target.with(key, value.clone());
    }
    target.project = Some("nlp".to_owned());
    ((Registry::linked().get(backend).unwrap().connect)(target).await.unwrap(), state)
}

async fn render(backend: &str, settings: Value, spec: JobSpec) -> Result<Rendered> {
    let (backend, _state) = connect(backend, settings).await;
    let mut planned = weftrun_testkit::planned(spec);
    planned.facts.online = true;
    planned.facts.version = Some("2.24.1".to_owned());
    planned.facts.serves = vec!["PyTorchJob.kubeflow.org/v1".to_owned()];
    let ids = [("project-id", "1"), ("cluster-id", "2"), ("hostname/gpu-3", "serial-3")];
    planned.facts.ids =
        ids.iter().map(|(key, id)| ((*key).to_owned(), (*id).to_owned())).collect::<BTreeMap<_, _>>();
    backend.render(&planned)
}

fn own(mut spec: JobSpec, backend: &str, key: &str, value: Value) -> JobSpec {
    spec.set_backend(backend, key, value);
    spec
}

#[tokio::test]
async fn slurm_excludes_them_beside_its_own() {
    let line = |text: &str| text.lines().find(|line| line.contains("--exclude")).map(str::to_owned);
    let of = async |spec| line(&render("slurm", json!({}), spec).await.unwrap().documents[0].text);
    assert_eq!(of(spec(&[])).await, None);
    assert_eq!(of(spec(&["gpu-17", "gpu-3"])).await.unwrap(), "#SBATCH --exclude=gpu-17,gpu-3");
    let both = own(spec(&["gpu-17"]), "slurm", "exclude", json!("a[1-2]"));
    assert_eq!(of(both.clone()).await.unwrap(), "#SBATCH --exclude=a[1-2],gpu-17");
    let three = own(both, "slurm", "sbatch", json!(["--exclude=b1"]));
    assert_eq!(of(three).await.unwrap(), "#SBATCH --exclude=a[1-2],gpu-17,b1");
    let pinned = own(spec(&["gpu-17"]), "slurm", "nodelist", json!("gpu-[16-17]"));
    let refused = render("slurm", json!({}), pinned).await.unwrap_err();
    assert_eq!(refused.message(), "`nodelist` names the node gpu-17, which `avoid` leaves out");
}

#[tokio::test]
async fn kubernetes_keeps_them_out_by_their_host_names() {
    let required = async |spec| {
        let rendered = render("kubeflow", json!({"kind": "pytorchjob"}), spec).await.unwrap();
        let documents = weftrun_core::span::yaml_documents(&rendered.documents[0].text).unwrap();
        let objects = documents.iter().map(|document| document.root.to_json());
        let object = objects.into_iter().find(|object| object["kind"] == "PyTorchJob").unwrap();
        let roles = object["spec"]["pytorchReplicaSpecs"].clone();
        let affinity = roles["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"].clone();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
    };
    assert_eq!(required(spec(&[])).await, Value::Null);
    let not =
        json!([{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-17", "serial-3"]}]);
    assert_eq!(required(spec(&["gpu-17", "gpu-3"])).await, json!([{"matchExpressions": not}]));
    let named = own(spec(&["gpu-17", "gpu-3"]), "kubeflow", "node-names", json!(["a", "b"]));
    let terms = required(named).await;
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(terms[at]["matchFields"][0]["values"], json!([name]));
        assert_eq!(terms[at]["matchExpressions"], not, "{terms}");
    }
}

#[tokio::test]
async fn runai_has_a_field_for_them() {
    let settings = json!({"url": "https://runai.example.test"});
    let rendered = render("runai", settings, spec(&["gpu-17"])).await.unwrap();
    let text = &rendered.documents[0].text;
    let body: Value = serde_json::from_str(text).unwrap();
    let not = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-17"]});
    let terms = &body["spec"]["nodeAffinityRequired"]["nodeSelectorTerms"];
    assert_eq!(terms, &json!([{"matchExpressions": [not]}]), "{text}");
}

#[tokio::test]
async fn plain_hosts_warn_of_one_that_they_do_not_have() {
    let hosts = json!({"hosts": ["a", "b", "c"]});
    let named = |avoid: &[&str]| own(spec(avoid), "hosts", "container", json!("none"));
    let rendered = render("hosts", hosts.clone(), named(&["c", "gpu-17"])).await.unwrap();
    let said: Vec<&str> = rendered.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(said.contains(&"`avoid` names gpu-17, which is not a host of the target"), "{said:?}");
    let pinned = own(named(&["b"]), "hosts", "nodelist", json!("a,b"));
    assert_eq!(render("hosts", hosts, pinned).await.unwrap_err().kind(), ErrorKind::InvalidSpec);
}

#[tokio::test]
async fn this_machine_refuses_them() {
    for avoid in ["gpu-17", "suspects"] {
        let refused = render("local", json!({}), spec(&[avoid])).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(refused.message().contains("leaving out nodes"), "{refused}");
    }
}
