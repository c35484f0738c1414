//! Cancel, delete, suspend and resume.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weftrun_core::job::{Action, JobHandle};
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, Named, PATIENCE};
use super::companions::adopt_left;
use super::kinds::Kind;
use super::status::{CANCELLED, Job};
use crate::kubernetes::{Pod, Resource};

impl Client {
    pub async fn act(&self, handle: &JobHandle, action: Action) -> Result<()> {
        let named = self.named(handle).await?;
        let job = self.job(&named).await?;
        let resource = named.kind.resource();
        let suspend = |suspend: bool| match named.kind {
            Kind::TrainJob => json!({"spec": {"suspend": suspend}}),
            _ => json!({"spec": {"runPolicy": {"suspend": suspend}}}),
        };
        let patch = match action {
            Action::Delete => {
                // Objects that the job does not own yet would not be deleted with it.
                adopt_left(&named.cluster, &job).await;
                return named.cluster.delete(&resource, &named.name, Some(job.uid())).await;
            }
            Action::Cancel => {
                let (phase, _) = job.phase(&[]);
                if phase.is_terminal() {
                    return end_leftovers(&named, &job).await;
                }
                // While the job is suspended, its pods are removed and its record stays. Kueue would start a
                // suspended job again, so a job of Kueue is deleted.
                if job.object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string() {
                    return named.cluster.delete(&resource, &named.name, Some(job.uid())).await;
                }
                let mut patch = suspend(true);
                patch["metadata"] = json!({"annotations": {CANCELLED: crate::clock::now().to_string()}});
                patch
            }
            Action::Suspend => suspend(true),
            Action::Resume => {
                self.pods_are_gone(&named).await?;
                let mut patch = suspend(false);
                patch["metadata"] = json!({"annotations": {CANCELLED: Value::Null}});
                patch
            }
            Action::Hold | Action::Release => return Err(Error::unsupported("kubeflow", "hold")),
            Action::Requeue => return Err(Error::unsupported("kubeflow", "requeue")),
            Action::Signal(_) => return Err(Error::unsupported("kubeflow", "signal")),
            _ => return Err(Error::unsupported("kubeflow", "this action")),
        };
        named.cluster.patch(&resource, &named.name, &patch).await.map(drop)
    }

    /// Waits until the pods that a suspend ends are gone: training-operator counts one that still exists as a
    /// failure of the resumed job.
    async fn pods_are_gone(&self, named: &Named) -> Result<()> {
        let began = tokio::time::Instant::now();
        loop {
            let pods = named.cluster.list(&Resource::PODS, &named.kind.selector(&named.name)).await?;
            let ending = pods.iter().map(Pod::of_json).filter(|pod| pod.deleting).count();
            if ending == 0 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let message = format!("the suspended job has {} still ending", counted(ending, "pod"));
                return Err(Error::new(ErrorKind::Refused, message)
                    .hint("try again when they are gone")
                    .retryable());
            }
            sleep(Duration::from_millis(250)).await;
        }
    }
}

/// Ends the pods of an ended job that still run. The operators clean up after an ended job whenever it
/// changes, by its policy at that time (training-operator 1.9, mpi-operator 0.6: `DeletePodsAndServices`,
/// `cleanUpWorkerPods`); pods that ended stay, and with them their logs.
async fn end_leftovers(named: &Named, job: &Job) -> Result<()> {
    let cleans = matches!(named.kind, Kind::PyTorchJob | Kind::MpiJobV1 | Kind::MpiJobV2);
    let keeps = job.object.pointer("/spec/runPolicy/cleanPodPolicy").is_none_or(|policy| policy == "None");
    if !cleans || !keeps {
        return Ok(());
    }
    let patch = json!({"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}});
    named.cluster.patch(&named.kind.resource(), &named.name, &patch).await.map(drop)
}
