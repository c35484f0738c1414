//! What the kinds of jobs are rendered from, and what they share.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weftrun_convert::TrainerVersion;
use weftrun_core::backend::PlannedJob;
use weftrun_core::spec::{JobSpec, Rendezvous, RestartPolicy, Role, node_command};
use weftrun_core::{Error, ErrorKind, Result};

use super::config::{Gang, JobSettings};
use super::kinds::Kind;
use super::pod::Template;
use crate::kubernetes::code::Delivery;
use crate::kubernetes::mpirun::wrap_of;
use crate::kubernetes::{escape, hostname_id};

/// A job that is being rendered.
pub struct RenderInput<'a> {
    pub job: &'a PlannedJob,
    pub spec: &'a JobSpec,
    pub settings: JobSettings,
    pub kind: Kind,
    pub delivery: Delivery,
    pub labels: BTreeMap<String, String>,
    pub trainer: TrainerVersion,
    /// The TrainJob's runtimes on the cluster.
    pub runtimes: Vec<Value>,
}

impl RenderInput<'_> {
    /// Returns the template of a role.
    pub fn template(&self) -> Template<'_> {
        let label = "node.kubernetes.io/instance-type";
        let nodes = &self.job.facts.nodes;
        Template {
            spec: self.spec,
            settings: &self.settings,
            delivery: &self.delivery,
            labels: &self.labels,
            avoided: self.avoided(),
            select_instance: nodes.is_empty() || nodes.iter().any(|group| group.labels.contains_key(label)),
        }
    }

    /// Returns the label `kubernetes.io/hostname` of the nodes that the job leaves out: the name of the node, unless the cluster
    /// says otherwise.
    fn avoided(&self) -> Vec<String> {
        let label = |node: &str| self.job.facts.ids.get(&hostname_id(node)).cloned();
        self.job.avoided().map(|node| label(node).unwrap_or_else(|| node.to_owned())).collect()
    }

    /// Returns the worker role, whose nodes each kind divides as it needs.
    pub fn worker(&self) -> Result<&Role> {
        let mut workers = self.spec.workers();
        let Some(first) = workers.next() else {
            return Err(Error::new(ErrorKind::InvalidSpec, "the job has no role with ranks")
                .with("job", &self.spec.name));
        };
        if let Some(second) = workers.next() {
            return Err(Error::new(ErrorKind::Unsupported, "a Kubeflow job has one kind of worker")
                .with("roles", format!("{}, {}", first.name, second.name))
                .hint("give all nodes one role, or submit two jobs"));
        }
        Ok(first)
    }

    /// Returns the command that starts the ranks of a node, with the rendezvous values of the operator's
    /// environment.
    pub fn command(&self, role: &Role, at: &Rendezvous<'_>) -> Vec<String> {
        if self.spec.starts_entrypoint(role) {
            return Vec::new();
        }
        escape::words(at, |at| {
            let command = self.delivery.command(self.spec, node_command(self.spec, role, at));
            wrap_of(self.job, role).into_iter().chain(command).collect()
        })
    }

    /// Returns the `runPolicy` that training-operator and mpi-operator share.
    pub fn run_policy(&self) -> Value {
        // The log of a rank is deleted with its pod, so the pods of a PyTorchJob stay: with `Running` the
        // operator deletes every worker that still runs when the master ends, before its last lines. Workers
        // of an MPIJob only run sshd and never end by themselves; they would keep their GPUs.
        // (docs/decisions/pods-of-ended-jobs-stay.md)
        let default = if self.kind == Kind::PyTorchJob { "None" } else { "Running" };
        let clean = self.settings.clean_pod_policy.as_deref().unwrap_or(default);
        let mut policy = json!({"cleanPodPolicy": clean});
        match self.spec.restart {
            // training-operator ends a job when its containers' restarts reach the limit, that is, when the
            // last allowed one begins; one more lets it run. The launcher's Job counts pods that failed, and
            // needs no such margin.
            RestartPolicy::OnFailure { max } => {
                let room = u32::from(self.kind == Kind::PyTorchJob);
                policy["backoffLimit"] = json!(max.saturating_add(room));
            }
            // The launcher is a Job, which tries six times by default. A PyTorchJob whose pods are never
            // restarted fails at once; with a limit of 0 it also failed when it was resumed after a suspend.
            RestartPolicy::Never if self.kind == Kind::MpiJobV2 => policy["backoffLimit"] = json!(0),
            RestartPolicy::Never => {}
        }
        if let Some(limit) = self.spec.time_limit {
            policy["activeDeadlineSeconds"] = json!(limit.as_secs().max(1));
        }
        if let Some(ttl) = self.settings.ttl_seconds {
            policy["ttlSecondsAfterFinished"] = json!(ttl);
        }
        if let Some(suspend) = self.settings.suspend {
            policy["suspend"] = json!(suspend);
        }
        if self.settings.gang == Some(Gang::Volcano) {
            let mut group = json!({"minAvailable": self.spec.nodes()});
            if let Some(queue) = &self.spec.queue {
                group["queue"] = json!(queue);
            }
            if let Some(priority) = &self.spec.priority {
                group["priorityClass"] = json!(priority);
            }
            policy["schedulingPolicy"] = group;
        }
        policy
    }

    /// Returns the replicas' restart policy.
    pub fn restart_policy(&self) -> &'static str {
        match self.spec.restart {
            RestartPolicy::Never => "Never",
            // The launcher's Job then creates a new pod for each attempt, and counts them exactly.
            RestartPolicy::OnFailure { .. } if self.kind == Kind::MpiJobV2 => "Never",
            RestartPolicy::OnFailure { .. } => "OnFailure",
        }
    }
}
