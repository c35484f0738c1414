//! Pods that were taken from a job: preempted, drained, lost with their node, or deleted. Such a pod is gone half a minute
//! later, with its status; its Events stay for an hour.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::{Cluster, ContainerState, Disruption, Pod, PodEvent, Resource};

/// How much earlier the condition of a job can be than the Event of the pod that ended it: both have whole seconds.
const SAME: SignedDuration = SignedDuration::from_secs(2);

/// Returns the role and the number in the name of a pod of a job: `worker-0` of `NAME-worker-0`, and of `NAME-node-0-1-x7k2p`
/// of a JobSet `node-0-1`, as the next pod of that place is called.
fn place<'n>(job: &Job, pod: &'n str) -> Option<&'n str> {
    let rest = pod.strip_prefix(job.name())?.strip_prefix('-')?;
    let (role, number) = rest.split_once('-').unwrap_or((rest, ""));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match role {
        "master" | "worker" => is_number(number).then_some(rest),
        "launcher" => Some("launcher").filter(|_| !number.contains('-')),
        "node" => {
            let (numbers, _) = number.rsplit_once('-')?;
            numbers.split('-').all(is_number).then(|| rest.rsplit_once('-').map_or(rest, |(place, _)| place))
        }
        _ => None,
    }
}

/// Returns whether an Event may say that a pod was taken.
pub fn may_disrupt(event: &PodEvent) -> bool {
    matches!(event.reason.as_str(), "Preempted" | "Killing" | "TaintManagerEviction")
}

/// Returns whether an Event is about a pod that the job has or had.
pub fn is_of(job: &Job, event: &PodEvent) -> bool {
    // Times have whole seconds: an Event of the second in which the job was made may be of an earlier job of its name.
    let since = event.time.is_none() || job.created().is_none() || event.time > job.created();
    event.about.0 == "Pod" && since && place(job, &event.about.1).is_some()
}

/// The labels by which [`Kind::place`] knows a pod of this place.
fn labels(job: &Job, place: &str) -> BTreeMap<String, String> {
    let (role, number) = match job.kind {
        Kind::TrainJob => {
            ("jobset.sigs.k8s.io/replicatedjob-name", "batch.kubernetes.io/job-completion-index")
        }
        _ => ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
    };
    let own = |text: Option<&str>| text.unwrap_or_default().to_owned();
    BTreeMap::from([
        (job.kind.job_label().to_owned(), job.name().to_owned()),
        (role.to_owned(), own(place.split('-').next())),
        (number.to_owned(), own(place.rsplit('-').next())),
    ])
}

/// Why a deletion needs no explanation: controllers delete the other pods of a job where one has failed.
struct Failure {
    /// Whether a pod ended with an exit code of its own program.
    is_certain: bool,
    /// When the first pod failed, by itself or by a signal.
    at: Option<Timestamp>,
}

impl Failure {
    fn of(pods: &[Pod]) -> Self {
        let failed = || pods.iter().filter_map(Pod::exit).filter(|exit| exit.code != 0);
        // A pod that is taken away ends by a signal, too.
        let own = pods.iter().filter(|pod| !pod.deleting && pod.disruption.is_none());
        Self {
            is_certain: failed().any(|exit| !matches!(exit.code, 137 | 143)),
            at: own.filter_map(|pod| pod.exit().filter(|exit| exit.code != 0)?.at).min(),
        }
    }
}

/// Returns what the Events of a pod say of who took it from the job.
fn disruption(job: &Job, events: &[&PodEvent], failure: &Failure) -> Option<Disruption> {
    let found = |reason: &str| events.iter().find(|event| event.reason == reason);
    let made = |reason: &str, message: &str, by: Option<&str>| {
        Some(Disruption { reason: reason.to_owned(), message: message.to_owned(), by: by.map(str::to_owned) })
    };
    if let Some(event) = found("Preempted") {
        let by = event.message.strip_prefix("Preempted by ").and_then(|by| by.split(" on node ").next());
        return made(Disruption::PREEMPTED, "", by);
    }
    if let Some(event) = found("TaintManagerEviction").filter(|event| !event.message.contains("Cancel")) {
        return made(Disruption::TAINTED, &event.message, None);
    }
    let killed = found("Killing").filter(|event| event.message.starts_with("Stopping container"))?;
    // An operator deletes the pod whose container failed as often as it may.
    let after_failure = failure.at.is_some() && killed.time >= failure.at;
    let quiet = failure.is_certain || after_failure || found("BackOff").is_some();
    // The job's own end deletes its pods, too.
    let after_end = |ended: Timestamp| killed.time.is_some_and(|killed| killed.duration_since(ended) > SAME);
    let expected = quiet || job.is_stopped() || job.ended().is_some_and(after_end);
    if expected { None } else { made(Disruption::DELETED, "", None) }
}

/// Completes what took pods from a job by their Events, and returns the pods that no longer exist and that something took, as
/// far as no other pod has taken their place.
pub fn complete(job: &Job, pods: &mut [Pod], events: &[&PodEvent]) -> Vec<Pod> {
    let mut by_uid: BTreeMap<&str, Vec<&PodEvent>> = BTreeMap::new();
    for event in events.iter().filter(|event| is_of(job, event)) {
        by_uid.entry(event.about.2.as_str()).or_default().push(event);
    }
    let failure = Failure::of(pods);
    for pod in pods.iter_mut() {
        let Some(events) = by_uid.remove(pod.uid.as_str()) else { continue };
        let preempted = pod.disruption.as_ref().is_some_and(|known| known.reason == Disruption::PREEMPTED);
        if preempted || pod.deleting && pod.disruption.is_none() {
            pod.disruption = disruption(job, &events, &failure).or(pod.disruption.take());
        }
    }
    let is_filled = |name: &str| {
        let same = |pod: &&Pod| place(job, &pod.name) == place(job, name);
        pods.iter().filter(same).any(|pod| pod.containers.iter().any(ContainerState::has_begun))
    };
    let gone = by_uid.into_iter().filter_map(|(uid, events)| {
        let name = events.first()?.about.1.as_str();
        let disruption = disruption(job, &events, &failure).filter(|_| !is_filled(name))?;
        let placed = events.iter().find(|event| event.reason == "Scheduled");
        let node =
            placed.and_then(|event| event.message.rsplit_once(" to ")).map(|(_, node)| node.to_owned());
        Some(Pod {
            uid: uid.to_owned(),
            name: name.to_owned(),
            node,
            phase: "Failed".to_owned(),
            labels: labels(job, place(job, name)?),
            priority: pods.first().map(|pod| pod.priority.clone()).unwrap_or_default(),
            disruption: Some(disruption),
            ..Pod::default()
        })
    });
    let mut gone: Vec<Pod> = gone.collect();
    // Controllers delete the others also where one was taken.
    let reason = |pod: &Pod| pod.disruption.as_ref().map(|disruption| disruption.reason.clone());
    let is_explained =
        pods.iter().chain(&gone).filter_map(reason).any(|reason| reason != Disruption::DELETED);
    if is_explained {
        let unexplained = |pod: &Pod| reason(pod).is_some_and(|reason| reason == Disruption::DELETED);
        gone.retain(|pod| !unexplained(pod));
        for pod in pods.iter_mut().filter(|pod| unexplained(pod)) {
            pod.disruption = None;
        }
    }
    gone
}

/// Replaces the uids of the pods that preempted others by their names and priorities, as far as the user may read them.
pub async fn name_preemptors(cluster: &Cluster, pods: &mut [Pod]) {
    for pod in pods {
        let (Some(disruption), Some(node)) = (&mut pod.disruption, &pod.node) else { continue };
        let Some(uid) = disruption.by.as_ref().and_then(|by| by.strip_prefix("pod ")) else { continue };
        let read = |object: Value| (object["metadata"]["namespace"].clone(), Pod::of_json(&object));
        let (everywhere, mut by) = (Resource::PODS.of_cluster(), None);
        // It has no node as long as the pods that it takes the place of are ending.
        for field in ["spec.nodeName", "status.nominatedNodeName"] {
            let fields = format!("{field}={node}");
            let mut found = cluster.list_as(&everywhere, "", &fields, read).await;
            if found.is_err() {
                found = cluster.list_as(&Resource::PODS, "", &fields, read).await;
            }
            by = by.or(found.unwrap_or_default().into_iter().find(|(_, pod)| pod.uid == uid));
        }
        if let Some((namespace, by)) = by {
            let namespace = namespace.as_str().unwrap_or_default();
            let priority =
                if by.priority.is_empty() { String::new() } else { format!(", priority {}", by.priority) };
            disruption.by = Some(format!("the pod {namespace}/{}{priority}", by.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(kind: Kind, status: &Value) -> Job {
        let metadata = json!({"name": "pre", "namespace": "n", "uid": "job", "creationTimestamp": "2026-11-26T11:07:33Z"});
        Job { kind, object: json!({"metadata": metadata, "spec": {}, "status": status}) }
    }

    /// As kubelets and the scheduler of 1.34 wrote them (recorded 2026-11-26).
    fn event(pod: &str, uid: &str, second: u8, reason: &str, message: &str) -> PodEvent {
        PodEvent {
            about: ("Pod".into(), pod.into(), uid.into()),
            reason: reason.into(),
            message: message.into(),
            time: format!("2026-11-26T11:07:{second}Z").parse().ok(),
            ..PodEvent::default()
        }
    }

    fn running(name: &str, uid: &str) -> Pod {
        let status =
            json!({"phase": "Running", "containerStatuses": [{"name": "pytorch", "state": {"running": {}}}]});
        let spec = json!({"priority": 10, "priorityClassName": "low", "containers": [{"name": "pytorch"}]});
        Pod::of_json(&json!({"metadata": {"name": name, "uid": uid}, "spec": spec, "status": status}))
    }

    fn reasons(job: &Job, pods: &mut [Pod], events: &[PodEvent]) -> Vec<(String, String)> {
        let gone = complete(job, pods, &events.iter().collect::<Vec<_>>());
        gone.into_iter().map(|pod| (pod.name, pod.disruption.unwrap().reason)).collect()
    }

    #[test]
    fn pods_that_are_gone_are_known_by_their_events() {
        let failed = json!({"completionTime": "2026-11-26T11:07:41Z", "conditions": [{"type": "Failed", "status": "True"}]});
        let job = job(Kind::PyTorchJob, &failed);
        let placed = event(
            "pre-worker-0",
            "a",
            34,
            "Scheduled",
            "Successfully assigned research/pre-worker-0 to node-1",
        );
        let killed = event("pre-worker-0", "a", 41, "Killing", "Stopping container pytorch");
        let preempted = event("pre-worker-0", "a", 42, "Preempted", "Preempted by pod ab9a on node node-1");
        let events = [placed, killed.clone(), preempted];
        let gone = complete(&job, &mut [running("pre-worker-1", "b")], &events.iter().collect::<Vec<_>>());
        let [pod] = gone.as_slice() else { panic!("{gone:?}") };
        let disruption = pod.disruption.as_ref().unwrap();
        assert_eq!(
            (disruption.reason.as_str(), disruption.by.as_deref()),
            (Disruption::PREEMPTED, Some("pod ab9a"))
        );
        assert_eq!((pod.node.as_deref(), pod.priority.as_str()), (Some("node-1"), "10 (low)"));
        assert_eq!(job.kind.place(pod).replica, 0);
        let deleted = |pods: &mut [Pod], events: &[PodEvent]| reasons(&job, pods, events);
        let own = vec![("pre-worker-0".to_owned(), Disruption::DELETED.to_owned())];
        assert_eq!(deleted(&mut [], std::slice::from_ref(&killed)), own);
        // The next pod of its place runs; the job had ended; another job's pod; another pod failed before.
        assert_eq!(deleted(&mut [running("pre-worker-0", "c")], std::slice::from_ref(&killed)), []);
        let cleanup = event("pre-worker-0", "a", 59, "Killing", "Stopping container pytorch");
        assert_eq!(deleted(&mut [], &[cleanup]), []);
        let again = event("pre-worker-0", "a", 38, "BackOff", "Back-off restarting failed container");
        assert_eq!(deleted(&mut [], &[killed.clone(), again]), [], "it had failed as often as it may");
        let other = event("pre-worker-worker-0", "a", 41, "Killing", "Stopping container pytorch");
        assert_eq!(deleted(&mut [], &[other]), []);
        let mut failed = running("pre-worker-1", "b");
        failed.containers[0].state =
            crate::kubernetes::State::Terminated(crate::kubernetes::Exit { code: 3, ..Default::default() });
        assert_eq!(deleted(&mut [failed], std::slice::from_ref(&killed)), []);
    }

    /// A rank that is killed from inside the job ends by the same signal as one that is taken from it (recorded 2026-11-26, an MPIJob).
    #[test]
    fn pods_that_a_controller_deletes_after_a_failure_are_not_disrupted() {
        let failed = json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-26T11:07:40Z"}]});
        let job = job(Kind::MpiJobV2, &failed);
        let killed = event("pre-worker-0", "a", 41, "Killing", "Stopping container mpi");
        let ended = |second: u8| {
            let at = format!("2026-11-26T11:07:{second}Z");
            let state = json!({"terminated": {"exitCode": 137, "finishedAt": at}});
            let status = json!({"phase": "Failed", "containerStatuses": [{"name": "mpi", "state": state}]});
            let spec = json!({"containers": [{"name": "mpi"}]});
            Pod::of_json(
                &json!({"metadata": {"name": "pre-launcher-x7k2p", "uid": "l"}, "spec": spec, "status": status}),
            )
        };
        assert_eq!(reasons(&job, &mut [ended(40)], std::slice::from_ref(&killed)), []);
        let own = vec![("pre-worker-0".to_owned(), Disruption::DELETED.to_owned())];
        assert_eq!(
            reasons(&job, &mut [ended(42)], std::slice::from_ref(&killed)),
            own,
            "it failed because of it"
        );
        // Where another pod was preempted, that is the cause.
        let preempted = event("pre-worker-1", "b", 41, "Preempted", "Preempted by pod ab9a on node node-1");
        let taken = vec![("pre-worker-1".to_owned(), Disruption::PREEMPTED.to_owned())];
        assert_eq!(reasons(&job, &mut [ended(42)], &[killed, preempted]), taken);
    }

    #[test]
    fn a_pod_that_is_being_deleted_by_nobody_known_is_disrupted_while_it_ends() {
        let job = job(Kind::TrainJob, &json!({}));
        let mut pods = [running("pre-node-0-1-x7k2p", "a")];
        pods[0].deleting = true;
        let killed = event("pre-node-0-1-x7k2p", "a", 41, "Killing", "Stopping container node");
        assert_eq!(reasons(&job, &mut pods, std::slice::from_ref(&killed)), []);
        assert_eq!(pods[0].disruption.as_ref().unwrap().reason, Disruption::DELETED);
        // A pod of a JobSet has another name when it is made again.
        assert_eq!(reasons(&job, &mut [running("pre-node-0-1-q9q9q", "b")], &[killed]), []);
    }
}
