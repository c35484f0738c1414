//! Why pods do not start, and what to do. The operators do not report it: a job that cannot be scheduled
//! stays "Created" forever.

use weftrun_core::Finding;
use weftrun_core::backend::fix_of_placement;

use super::error::{WEBHOOK_DOWN, webhook_down};
use super::pod::{Disruption, Exit, Pod, PodEvent, State};

/// The code of a namespace that is deleted with its jobs.
pub const NAMESPACE_DELETED: &str = "K8S-NAMESPACE-DELETED";
/// What to do then.
pub const NAMESPACE_FIX: &str =
    "ask your cluster administrator who deleted it; submit the job again in a namespace that exists (`-n`)";

/// The code of a pod whose node is gone.
pub const NODE_LOST: &str = "K8S-NODE-LOST";

/// The code of a deleted pod that keeps the next one of its name from being created: no cause of a failure, since pods end so, too.
pub const POD_ENDING: &str = "K8S-POD-ENDING";

/// What the API server says of a name whose object was deleted and has not ended.
const BEING_DELETED: &str = "object is being deleted";

/// How often an event must have occurred if its cause may be temporary.
const REPEATED: u64 = 5;

/// Returns what keeps a pod from running, or made it fail, according to its own status.
pub fn pod_finding(pod: &Pod) -> Option<Finding> {
    if pod.reason != "Evicted"
        && let Some(disruption) = &pod.disruption
    {
        return Some(disrupted(pod, disruption));
    }
    if pod.deleting {
        return None;
    }
    if pod.phase == "Failed" || pod.reason == "Evicted" {
        return failed(pod);
    }
    if let Some(why) = pod.unschedulable.as_ref().filter(|_| pod.node.is_none()) {
        return Some(unschedulable(pod, why));
    }
    pod.containers.iter().find_map(|container| match &container.state {
        State::Waiting { reason, message } => {
            waiting(pod, &container.name, reason, message, container.last.as_ref())
        }
        _ => None,
    })
}

/// Returns what took a pod from its job (reasons: k8s.io/api core/v1 and pkg/apis/core of 1.34, seen on a real cluster
/// 2026-11-26).
fn disrupted(pod: &Pod, disruption: &Disruption) -> Finding {
    let Disruption { reason, message, by } = disruption;
    let node = pod.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"));
    let who = format!("the pod {}{node}", pod.name);
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    let (code, text, fix) = match reason.as_str() {
        Disruption::PREEMPTED => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let own = if pod.priority.is_empty() {
                String::new()
            } else {
                format!("; its own priority is {}", pod.priority)
            };
            (
                "K8S-PREEMPTED",
                format!("{who} was preempted{by}{own}"),
                "submit the job again when nodes are free, or with a higher priority (`priority`; `kubectl get priorityclasses` lists them)",
            )
        }
        "EvictionByEvictionAPI" => (
            "K8S-DRAINED",
            format!(
                "{who} was evicted through the Eviction API, as `kubectl drain` and cluster autoscalers do{said}"
            ),
            "submit the job again on other nodes; ask your cluster administrator why the node was drained",
        ),
        Disruption::TAINTED | "DeletionByPodGC" => (
            NODE_LOST,
            format!(
                "{who} is lost: the node does not answer, or has a taint that the pod does not tolerate{said}"
            ),
            "submit the job again on other nodes; `kubectl describe node` of that node shows its conditions and taints",
        ),
        "TerminationByKubelet" => (
            "K8S-EVICTED",
            format!("{who} was ended by its node{said}"),
            "request the memory and ephemeral storage that the job needs; after a shutdown of the node, submit the job again",
        ),
        Disruption::DELETED => (
            "K8S-DELETED",
            format!("{who} was deleted while it ran{said}"),
            "find out who deletes pods of this namespace (a drain of the node, a person, a controller), and submit the job again",
        ),
        other => {
            ("K8S-DISRUPTED", format!("{who} was taken from the job ({other}){said}"), "submit the job again")
        }
    };
    Finding::error(code, text).at(&pod.name).fix(fix)
}

fn unschedulable(pod: &Pod, why: &str) -> Finding {
    let finding =
        Finding::warning("K8S-UNSCHEDULABLE", format!("stuck because no node fits: {why}")).at(&pod.name);
    let fix =
        fix_of_placement(why).unwrap_or_else(|| "`weftrun doctor` shows what the nodes offer".to_owned());
    finding.fix(fix)
}

fn waiting(pod: &Pod, container: &str, reason: &str, message: &str, last: Option<&Exit>) -> Option<Finding> {
    let at = format!("{}/{container}", pod.name);
    let finding = |code: &str, text: String| Finding::warning(code, text).at(&at);
    Some(match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let text = format!("stuck because the image cannot be pulled: {message}");
            let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
            let fix = if says(&["no such host", "server misbehaving", "name resolution"]) {
                "the nodes cannot resolve the registry's name: correct it, or have the cluster's DNS know it"
            } else if says(&["i/o timeout", "connection refused", "no route to host"]) {
                "the nodes do not reach the registry: check its address and port, and the cluster's way out"
            } else if says(&["401", "403", "denied"]) {
                "the registry requires credentials: name an image pull secret or a service account that has one"
            } else {
                "check the image's name and tag"
            };
            finding("K8S-IMAGE-PULL", text).fix(fix)
        }
        "CreateContainerConfigError" => {
            finding("K8S-CONFIG", format!("stuck because the container's settings are wrong: {message}"))
                .fix("a Secret or ConfigMap it names is missing in this namespace, or has no such key")
        }
        "CreateContainerError" | "RunContainerError" => {
            finding("K8S-START", format!("stuck because the container does not start: {message}"))
                .fix(start_fix(message))
        }
        "CrashLoopBackOff" => {
            let code =
                last.map_or_else(String::new, |exit| format!(", the last time with exit code {}", exit.code));
            finding("K8S-CRASH-LOOP", format!("the container fails again and again{code}"))
                .fix("`weftrun logs --previous HANDLE` prints its last lines")
        }
        _ => return None,
    })
}

/// Returns the fix for a container that cannot be started.
fn start_fix(message: &str) -> String {
    let absent =
        message.contains("executable file not found") || message.contains("no such file or directory");
    match message.split("exec: \"").nth(1).and_then(|rest| rest.split('"').next()).filter(|_| absent) {
        Some(program) if program.ends_with("sshd") => {
            "the workers of an MPIJob run sshd, which the image lacks: install openssh-server, or take an image that has it"
                .to_owned()
        }
        Some(program) => {
            format!("the image has no `{program}`: correct the command, give the whole path, or take an image that has it")
        }
        None => "check the command, and that the image has it".to_owned(),
    }
}

fn failed(pod: &Pod) -> Option<Finding> {
    let exit = pod.exit();
    if pod.reason == "Evicted" {
        return Some(
            Finding::error("K8S-EVICTED", format!("the node evicted the pod: {}", pod.message))
                .at(&pod.name)
                .fix("request the memory and ephemeral storage that the job needs"),
        );
    }
    let exit = exit?;
    if exit.reason == "OOMKilled" {
        return Some(
            Finding::error("K8S-OOM", "the kernel killed the container: it used more memory than its limit")
                .at(&pod.name)
                .fix("raise `memory` of the role (and `shm`, which counts towards it)"),
        );
    }
    if exit.code == 0 {
        return None;
    }
    // The runtime's own message for a program that the image lacks; the exit code is 127 or 128.
    if exit.reason == "StartError" {
        let text = format!("the container does not start: {}", exit.message);
        return Some(Finding::error("K8S-START", text).at(&pod.name).fix(start_fix(&exit.message)));
    }
    let said = if exit.message.is_empty() { String::new() } else { format!(": {}", exit.message) };
    Some(Finding::error("K8S-EXIT", format!("ended with exit code {}{said}", exit.code)).at(&pod.name))
}

/// Returns the finding of an Event that no status contains.
pub fn job_event_finding(event: &PodEvent) -> Option<Finding> {
    let text = event.message.as_str();
    let finding = |code: &str, message: String| Finding::warning(code, message).at(&event.about.1);
    Some(match event.reason.as_str() {
        // The pod before has not ended yet, or the cache of an operator that has just started lacks pods that it created: it
        // creates the next one later. If that continues, the name stays taken.
        "FailedCreatePod" | "FailedCreate" | "FailedCreateJob"
            if (text.contains(BEING_DELETED) || text.contains("already exists"))
                && event.count < REPEATED =>
        {
            return None;
        }
        "FailedCreatePod" | "FailedCreate" | "FailedCreateJob" => refused_pod(event),
        // mpi-operator 0.6 reports this of a worker, and of a launcher whose Job, that the API server refuses; the MPIJob
        // itself does not fail.
        "MPIJobFailed" if text.contains("pod created failed") => refused_pod(event),
        // JobSet, of the Jobs and the Service of a TrainJob.
        "JobCreationFailed" | "HeadlessServiceCreationFailed" => refused_pod(event),
        // A kubelet that has not yet received the pod's ConfigMaps retries at once.
        "FailedMount" if text.contains("failed to sync") && text.contains("cache") => return None,
        "FailedMount" | "FailedAttachVolume" => {
            let base = finding("K8S-MOUNT", format!("stuck because a volume cannot be mounted: {text}"));
            if text.contains("hostPath type check failed") {
                base.fix("the node has no such folder. A `host_path` of the job: have the file system mounted on these nodes, or set `host-path-type` under [backend.kubeflow]. The fabric's files: use a profile with the stack in the image (`eks-image`), or other nodes")
            } else if text.contains("not found") {
                base.fix("create the Secret, ConfigMap or claim it names in this namespace")
            } else {
                base.fix("check the volume")
            }
        }
        "MPIJobFailedValidation" | "ValidationError" | "TrainJobFailedValidation" => {
            Finding::error("K8S-VALIDATION", format!("the operator refuses the job: {text}"))
                .at(&event.about.1)
                .fix("correct the field it names")
        }
        "FailedCreatePodSandBox" => {
            finding("K8S-SANDBOX", format!("stuck because the pod's network is not made: {text}")).fix(
                "check that the network attachment that the fabric requests (Multus) exists in the cluster",
            )
        }
        // The pod stays `Running` for minutes, until its toleration of the node's taint expires.
        "NodeNotReady" => Finding::warning(
            NODE_LOST,
            "the pod's node does not answer; its ranks are lost, and the others wait for them".to_owned(),
        )
        .at(&event.about.1)
        .fix("wait if the node comes back soon; else cancel the job and submit it again on other nodes"),
        "UnexpectedAdmissionError" => {
            finding("K8S-DEVICES", format!("the node cannot give the devices: {text}"))
                .fix("the device plugin of the node is broken or busy; another node may do")
        }
        _ => return None,
    })
}

fn refused_pod(event: &PodEvent) -> Finding {
    let text = event.message.as_str();
    let base = |code: &str, what: &str| {
        Finding::warning(code, format!("stuck because {what}: {text}")).at(&event.about.1)
    };
    if let Some(down) = webhook_down(text) {
        return base(WEBHOOK_DOWN, &format!("{}, so no pod is created", down.who()))
            .fix(format!("{}; the operator creates the pods by itself once it answers", down.fix()));
    }
    if text.contains(BEING_DELETED) {
        return base(POD_ENDING, "the pod before it was deleted and has not ended").fix(
            "wait for its grace period; if it stays, `kubectl get pod NAME -o yaml` shows the finalizer that holds it, and `kubectl get node` whether its node answers",
        );
    }
    if text.contains("because it is being terminated") {
        return Finding::error(NAMESPACE_DELETED, format!("the job's namespace is being deleted: {text}"))
            .at(&event.about.1)
            .fix(NAMESPACE_FIX);
    }
    if text.contains("exceeded quota") {
        base("K8S-QUOTA", "the namespace's quota is used up")
            .fix("request less, wait for other jobs of the namespace, or ask your cluster administrator for a larger ResourceQuota")
    } else if let Some(who) = refuser(text) {
        base("K8S-ADMISSION", &format!("the cluster's {who} refuses its pods")).fix(
            "change the job as its message says; your cluster administrator knows the rules of the webhook or policy",
        )
    } else if text.contains("PodSecurity") {
        base("K8S-POD-SECURITY", "the namespace's Pod Security level forbids its pods")
            .fix("use a profile without hostPath volumes and capabilities, or another namespace")
    } else if text.contains("HugePages require cpu or memory") {
        base("K8S-HUGEPAGES", "huge pages need cpu or memory beside them").fix("set `memory` of the role")
    } else if text.contains("priority class") || text.contains("PriorityClass") {
        base("K8S-PRIORITY", "there is no such priority class")
            .fix("`kubectl get priorityclasses` lists them")
    } else {
        base("K8S-POD-REFUSED", "the cluster refuses its pods").fix("correct what it names")
    }
}

/// Returns the webhook or policy that refused an object, by a message of the API server.
fn refuser(text: &str) -> Option<String> {
    [("webhook", "admission webhook \"", '"'), ("policy", "ValidatingAdmissionPolicy '", '\'')]
        .into_iter()
        .find_map(|(what, before, after)| {
            let (name, _) = text.split_once(before)?.1.split_once(after)?;
            Some(format!("{what} {name}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, message: &str) -> PodEvent {
        PodEvent {
            reason: reason.into(),
            message: message.into(),
            about: ("PyTorchJob".into(), "quota".into(), "u".into()),
            ..PodEvent::default()
        }
    }

    #[test]
    fn events_the_operators_never_turn_into_conditions() {
        let cases = [
            (
                "FailedCreatePod",
                "Error creating: pods \"quota-master-0\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8",
                "K8S-QUOTA",
            ),
            (
                "FailedCreatePod",
                "Error creating: pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": hostPath volumes (volume \"efa\")",
                "K8S-POD-SECURITY",
            ),
            (
                "FailedCreatePod",
                "Error creating: Pod \"a\" is invalid: spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
                "K8S-HUGEPAGES",
            ),
            (
                "FailedMount",
                "MountVolume.SetUp failed for volume \"efa\" : hostPath type check failed: /opt/amazon-efa-ofi is not a directory",
                "K8S-MOUNT",
            ),
            (
                "MPIJobFailed",
                "worker pod created failed: pods \"a-worker-0\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8",
                "K8S-QUOTA",
            ),
            (
                "MPIJobFailed",
                "worker pod created failed: pods \"a-worker-0\" is forbidden: ValidatingAdmissionPolicy 'own' with binding 'own' denied request: name a runtime class",
                "K8S-ADMISSION",
            ),
            (
                "FailedCreatePod",
                "Error creating: admission webhook \"guard.example.test\" denied the request: set a priority class",
                "K8S-ADMISSION",
            ),
            (
                "FailedCreate",
                "Error creating: Internal error occurred: failed calling webhook \"guard.example.test\": failed to call webhook: Post \"https://127.0.0.1:9/?timeout=2s\": EOF",
                "K8S-WEBHOOK",
            ),
            (
                "FailedCreatePod",
                "Error creating: pods \"a\" is forbidden: unable to create new content in namespace team because it is being terminated",
                "K8S-NAMESPACE-DELETED",
            ),
            (
                "MPIJobFailedValidation",
                "spec.mpiReplicaSpecs[Launcher].replicas: must be 1",
                "K8S-VALIDATION",
            ),
        ];
        for (reason, message, code) in cases {
            let finding = job_event_finding(&event(reason, message)).unwrap();
            assert_eq!(finding.code, code);
            assert!(finding.fix.is_some());
        }
        let passing = "MountVolume.SetUp failed for volume \"kube-api-access-tqrpl\" : failed to sync configmap cache: timed out waiting for the condition";
        assert_eq!(job_event_finding(&event("FailedMount", passing)), None);
        let mut again = event("FailedCreatePod", "Error creating: pods \"quota-worker-0\" already exists");
        assert_eq!(job_event_finding(&again), None, "the operator has just started");
        again.count = 20;
        assert_eq!(job_event_finding(&again).unwrap().code, "K8S-POD-REFUSED");
        again.message =
            "Error creating: object is being deleted: pods \"pt-worker-0\" already exists".to_owned();
        again.count = 4;
        assert_eq!(job_event_finding(&again), None, "a pod that was deleted by hand has not ended yet");
        again.count = 20;
        let held = job_event_finding(&again).unwrap();
        assert_eq!(held.code, "K8S-POD-ENDING");
        assert!(held.message.contains("has not ended") && held.fix.unwrap().text.contains("finalizer"));
        assert_eq!(job_event_finding(&event("Pulled", "Container image present")), None);
    }

    #[test]
    fn unschedulable_names_the_resource() {
        let pod = |message: &str| Pod {
            name: "a-worker-8".into(),
            phase: "Pending".into(),
            unschedulable: Some(message.into()),
            ..Pod::default()
        };
        let fix = |message: &str| pod_finding(&pod(message)).unwrap().fix.unwrap().text;
        assert!(
            fix("0/4 nodes are available: 4 Insufficient nvidia.com/gpu. no new claims to deallocate")
                .contains("nvidia.com/gpu free")
        );
        assert!(fix("0/4 nodes are available: 4 Insufficient vpc.amazonaws.com/efa.").contains("EFA"));
        assert!(
            fix("0/4 nodes are available: 4 node(s) had untolerated taint {nvidia.com/gpu: }")
                .contains("toleration")
        );
        let both = fix(
            "0/20 nodes are available: 16 node(s) had untolerated taint(s), 4 node(s) didn't match Pod's node affinity/selector.",
        );
        assert!(both.contains("labels") && both.contains("toleration"), "{both}");
    }

    #[test]
    fn the_resource_that_decides_is_named_whatever_else_is_short() {
        let fix = |message: &str| {
            let pod = Pod { unschedulable: Some(message.into()), ..Pod::default() };
            pod_finding(&pod).unwrap().fix.unwrap().text
        };
        let short = "0/3 nodes are available: 3 Insufficient hugepages-2Mi, 3 Insufficient nvidia.com/gpu, 3 Insufficient vpc.amazonaws.com/efa.";
        assert!(fix(short).contains("nvidia.com/gpu") && !fix(short).contains("huge"), "{}", fix(short));
        let pages = "0/3 nodes are available: 3 Insufficient hugepages-2Mi.";
        assert!(fix(pages).contains("efa.hugepages"), "{}", fix(pages));
        let claim = "0/3 nodes are available: persistentvolumeclaim \"data\" not found. not found";
        assert!(fix(claim).contains("create the claim"), "{}", fix(claim));
    }

    #[test]
    fn a_registry_without_a_name_and_a_program_that_is_not_there_have_their_own_words() {
        let waits = |reason: &str, message: &str| {
            let container = crate::kubernetes::ContainerState {
                state: State::Waiting { reason: reason.into(), message: message.into() },
                ..Default::default()
            };
            let pod = Pod { node: Some("n".into()), containers: vec![container], ..Pod::default() };
            pod_finding(&pod).unwrap().fix.unwrap().text
        };
        let name = "failed to pull: dial tcp: lookup registry.exmaple on 10.0.0.10:53: no such host";
        assert!(waits("ErrImagePull", name).contains("resolve"));
        assert!(waits("ImagePullBackOff", "unexpected status 401 Unauthorized").contains("credentials"));
        let program = "runc create failed: exec: \"torchrn\": executable file not found in $PATH: unknown";
        assert!(waits("RunContainerError", program).contains("`torchrn`"));
        let sshd = "exec: \"/usr/sbin/sshd\": stat /usr/sbin/sshd: no such file or directory: unknown";
        assert!(waits("CreateContainerError", sshd).contains("openssh-server"));
        let exit =
            Exit { code: 128, reason: "StartError".into(), message: program.into(), ..Exit::default() };
        let container =
            crate::kubernetes::ContainerState { state: State::Terminated(exit), ..Default::default() };
        let pod = Pod { phase: "Failed".into(), containers: vec![container], ..Pod::default() };
        let finding = pod_finding(&pod).unwrap();
        assert_eq!(finding.code, "K8S-START");
        assert!(finding.fix.unwrap().text.contains("`torchrn`"));
    }
}
