//! What answers for the kinds of jobs, for `doctor`: the operators' webhooks, and the operators themselves.

use futures_util::future::join_all;
use serde_json::{Value, json};
use weftrun_core::Finding;

use super::client::Client;
use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::{Cluster, Resource, Write, is_webhook_down};

/// Number of jobs of each kind whose status is looked at.
const JOBS: u32 = 100;

impl Client {
    /// Returns a finding for each webhook that does not answer where a job or a pod is created, and for each operator that has
    /// not taken up a job. What is created is checked and never stored.
    pub async fn unanswered(&self, cluster: &Cluster, served: &[Kind]) -> Vec<Finding> {
        let mut created: Vec<(Resource, Value)> =
            served.iter().map(|kind| (kind.resource(), smallest(*kind))).collect();
        created.push((Resource::PODS, pod()));
        let create = |(resource, object): (Resource, Value)| async move {
            let error = cluster.create(&resource, &object, Write::DryRun).await.err()?;
            Some(error.findings().to_vec()).filter(|_| is_webhook_down(&error))
        };
        let (down, idle) = tokio::join!(
            join_all(created.into_iter().map(create)),
            join_all(served.iter().map(|kind| untaken(cluster, *kind)))
        );
        // One webhook answers for several kinds.
        let mut findings: Vec<Finding> = Vec::new();
        for finding in down.into_iter().flatten().flatten() {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        findings.extend(idle.into_iter().flatten());
        findings
    }
}

/// Returns a finding if no operator has taken up jobs of a kind.
async fn untaken(cluster: &Cluster, kind: Kind) -> Option<Finding> {
    let jobs = cluster.some(&kind.resource(), JOBS).await.ok()?;
    let jobs = jobs.into_iter().map(|object| Job { kind, object });
    let late: Vec<Job> =
        jobs.filter(|job| job.untaken_for(&[]).is_some_and(|(_, left)| left.is_zero())).collect();
    let first = late.iter().min_by_key(|job| job.created())?;
    Some(first.untaken())
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "weftrun-probe-"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "pytorch", "image": "weftrun-probe"}]},
    })
}

/// Returns a job that the kind's schema takes.
fn smallest(kind: Kind) -> Value {
    let template = json!({"spec": {"containers": [{"name": kind.container(), "image": "weftrun-probe"}]}});
    let role = json!({"replicas": 1, "restartPolicy": "Never", "template": template});
    let spec = match kind {
        Kind::PyTorchJob => json!({"pytorchReplicaSpecs": {"Worker": role}}),
        Kind::MpiJobV1 | Kind::MpiJobV2 => json!({"mpiReplicaSpecs": {"Launcher": role, "Worker": role}}),
        Kind::TrainJob => json!({"runtimeRef": {"name": "torch-distributed"}}),
    };
    let resource = kind.resource();
    json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"name": "weftrun-probe"}, "spec": spec,
    })
}
