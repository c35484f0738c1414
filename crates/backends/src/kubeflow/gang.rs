//! Jobs that each hold a part of the nodes that they need: none of them starts, and none gives its part back. Pure.

use std::collections::{BTreeMap, HashSet};

use weftrun_core::Finding;
use weftrun_core::text::listed;

use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::Pod;

/// The code of such jobs.
const CODE: &str = "K8S-GANG";
/// Largest number of jobs named in one message.
const MOST_NAMED: usize = 4;

/// The pods of one job.
#[derive(Default)]
struct Share {
    placed: usize,
    waiting: usize,
    gpus: u64,
}

impl Share {
    fn of<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> Self {
        let mut share = Self::default();
        for pod in pods.into_iter().filter(|pod| !pod.ended() && !pod.deleting) {
            share.add(pod);
        }
        share
    }

    fn add(&mut self, pod: &Pod) {
        match (&pod.node, &pod.unschedulable) {
            (Some(_), _) => {
                self.placed += 1;
                self.gpus += pod.gpus;
            }
            (None, Some(why)) if why.contains("Insufficient") && pod.gpus > 0 => self.waiting += 1,
            _ => {}
        }
    }

    /// Returns whether it holds GPUs of a job that cannot start.
    fn is_partial(&self) -> bool {
        self.gpus > 0 && self.waiting > 0
    }
}

/// Returns whether a job holds a part of what it needs, so that the pods of the others matter.
pub fn is_partial(pods: &[&Pod]) -> bool {
    Share::of(pods.iter().copied()).is_partial()
}

/// Returns a finding where a job and others of its namespace hold each a part of what they need; `all` are the pods of the
/// namespace.
pub fn finding<'p>(job: &Job, pods: &[&Pod], all: impl IntoIterator<Item = &'p Pod>) -> Option<Finding> {
    let own = Share::of(pods.iter().copied());
    if !own.is_partial() {
        return None;
    }
    let mine: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
    let mut others: BTreeMap<&str, Share> = BTreeMap::new();
    for pod in all.into_iter().filter(|pod| !pod.ended() && !pod.deleting) {
        let name = Kind::ALL.into_iter().find_map(|kind| pod.labels.get(kind.job_label()));
        if let Some(name) = name.filter(|_| !mine.contains(pod.uid.as_str())) {
            others.entry(name).or_default().add(pod);
        }
    }
    others.retain(|_, share| share.is_partial());
    let others: Vec<String> = others
        .iter()
        .map(|(name, share)| {
            format!(
                "`{name}` ({} GPUs, {} of {} pods)",
                share.gpus,
                share.placed,
                share.placed + share.waiting
            )
        })
        .collect();
    if others.is_empty() {
        return None;
    }
    let names: Vec<&str> = others.iter().map(String::as_str).collect();
    let text = format!(
        "the job holds {} GPUs with {} of its {} pods and waits for nodes that others hold, which wait, too: {}; each starts as a whole only when GPUs become free",
        own.gpus,
        own.placed,
        own.placed + own.waiting,
        listed(&names, MOST_NAMED)
    );
    let fix = "cancel one of them; a queue that starts all pods of a job or none prevents it: a Kueue queue (`queue`), or Volcano (`gang = \"volcano\"` under [backend.kubeflow])";
    Some(Finding::warning(CODE, text).at(job.name()).fix(fix))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(job: &str, number: u32, gpus: u32, node: Option<&str>, why: &str) -> Pod {
        let name = format!("{job}-worker-{number}");
        let container =
            json!({"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
        let scheduled = json!({"type": "PodScheduled", "status": "False", "message": why});
        Pod::of_json(&json!({
            "metadata": {"name": name, "uid": name, "labels": {"training.kubeflow.org/job-name": job}},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Pending", "conditions": if node.is_none() { json!([scheduled]) } else { Value::Null }},
        }))
    }

    #[test]
    fn jobs_that_hold_parts_of_what_they_need_are_named() {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}});
        let job = Job { kind: Kind::PyTorchJob, object };
        let none = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.";
        let half = |job: &str| [pod(job, 0, 8, Some("node-0"), ""), pod(job, 1, 8, None, none)];
        let own = half("a");
        let own: Vec<&Pod> = own.iter().collect();
        let found = |others: &[Pod]| finding(&job, &own, own.iter().copied().chain(others));
        let said = found(&half("b")).unwrap();
        assert!(said.message.contains("holds 8 GPUs with 1 of its 2 pods"), "{}", said.message);
        assert!(said.message.contains("`b` (8 GPUs, 1 of 2 pods)"), "{}", said.message);
        assert!(said.fix.unwrap().text.contains("Kueue"));
        // The others run, wait for all they need, hold no GPUs, or wait for something else.
        assert_eq!(found(&[pod("b", 0, 8, Some("node-1"), "")]), None);
        assert_eq!(found(&[pod("b", 0, 8, None, none), pod("b", 1, 8, None, none)]), None);
        assert_eq!(found(&[pod("b", 0, 0, Some("node-1"), ""), pod("b", 1, 0, None, none)]), None);
        let label = "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.";
        assert_eq!(found(&[pod("b", 0, 8, Some("node-1"), ""), pod("b", 1, 8, None, label)]), None);
        assert_eq!(finding(&job, &own[..1], &half("b")), None, "the job has all it needs");
    }
}
