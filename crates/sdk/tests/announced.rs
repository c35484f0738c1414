//! What a plan announces is in what is rendered: for every instance type, on every backend that renders it.
#![cfg(all(
    feature = "slurm",
    feature = "kubeflow",
    feature = "hosts",
    feature = "local",
    feature = "runai"
))]
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use weftrun::core::backend::TargetConfig;
use weftrun::core::catalogue::Catalogue;
use weftrun::core::fabric::{Change, Op};
use weftrun::prelude::*;
use weftrun_testkit::child;

fn spec(instance: &str, accelerators: u32, image: bool) -> JobSpec {
    let role = Role::worker()
        .nodes(2)
        .gpus_per_node(accelerators)
        .instance_type(instance)
        .memory("8Gi")
        .command(["/train.py"]);
    let job = JobSpec::builder("announced").launch(Launch::Torchrun).role(role);
    if image { job.image("registry.example/image:1") } else { job }.build().unwrap()
}

fn targets() -> Vec<TargetConfig> {
    let target = |backend: &str| TargetConfig::new(backend, backend, "/state");
    vec![
        target("slurm"),
        target("kubeflow"),
        target("hosts").with("hosts", serde_json::json!(["a1", "a2"])),
        target("local"),
        target("runai").with("url", "https://runai.example").with("project-id", "4").with("cluster-id", "5"),
    ]
}

/// Returns what of an operation must stand in the documents: one word of each list.
fn written(op: &Op, backend: &str) -> Vec<Vec<String>> {
    let one = |word: &str| vec![word.to_owned()];
    let scheduled = matches!(backend, "kubeflow" | "runai");
    match &op.change {
        Change::Env { name, value } => {
            let last = value.rsplit([':', ' ', '\n']).next().unwrap_or_default();
            vec![one(name), one(last)]
        }
        Change::Mount { host_path, .. } => vec![one(host_path)],
        Change::Resource { name, quantity } if scheduled => vec![one(name), one(quantity)],
        Change::Resource { .. } => vec![vec!["--exclusive".to_owned(), "/dev/infiniband".to_owned()]],
        Change::NodeSelector { value, .. } => vec![one(value)],
        Change::Colocate { topology_key } => vec![vec![topology_key.clone(), "--switches".to_owned()]],
        Change::Capability { name } => {
            vec![[name, "ulimit -l", "memlock"].iter().map(|word| (*word).to_owned()).collect()]
        }
        Change::Annotation { key, .. } => vec![one(key)],
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn each_announced_change_stands_in_the_documents() {
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::empty(state.path());
    config.env = child::environment();
    let client = Client::builder().config(config).build().unwrap();
    let (mut rendered_on, mut checked) = (std::collections::BTreeSet::new(), 0);
    for row in Catalogue::builtin().rows() {
        for (target, image) in
            targets().into_iter().flat_map(|target| [(target.clone(), false), (target, true)])
        {
            let backend = target.backend.clone();
            let spec = spec(&row.name, row.accelerators.max(1), image);
            let plan = client.plan_offline_for(target, &spec).unwrap();
            let Ok(rendered) = plan.render().await else { continue };
            rendered_on.insert(backend.clone());
            let text: String = rendered.documents.iter().map(|document| document.text.as_str()).collect();
            let text = text.replace("\\/", "/");
            let fabric = plan.announced(&rendered);
            for op in &fabric.ops {
                for words in written(op, &backend) {
                    let is_there = words.iter().any(|word| text.contains(word.as_str()));
                    assert!(
                        is_there,
                        "{} on {backend} (image: {image}): {op:?}: none of {words:?} in\n{text}",
                        row.name
                    );
                    checked += 1;
                }
                let target = format!("{}: {}", op.role, op.change.target());
                let is_told = fabric.decisions.iter().any(|one| one.rule == op.rule && one.target == target);
                assert!(is_told, "{} on {backend}: {target} is changed and not announced", row.name);
            }
            for lost in &rendered.inexpressible {
                assert!(!fabric.ops.contains(&lost.op), "{} on {backend}: {lost:?} is announced", row.name);
            }
        }
    }
    assert!(rendered_on.len() >= 4 && checked > 1000, "{rendered_on:?}, {checked}");
}
