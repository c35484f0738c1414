//! Converts the status of operators and pods to phases, replicas and findings. Pure.
//!
//! Conditions are read by their status, not by their presence (a finished job keeps `Running` with status
//! False), and a TrainJob has none until it ends, so the state of the pods counts too.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId, TIME_LIMIT_REACHED};
use weftrun_core::text::counted;
use weftrun_core::{Finding, Severity};

use super::kinds::Kind;
use super::pod::{FABRIC, SUBMISSION};
use crate::kubernetes::logs::RankPosition;
use crate::kubernetes::{
    ContainerState, Exit, NODE_LOST, POD_ENDING, Pod, PodEvent, State, job_event_finding, one_line,
    pod_finding,
};

/// The annotation of a job that was cancelled: its record stays, suspended.
pub const CANCELLED: &str = "weftrun.dev/cancelled";

/// How long an operator may take until it sets the status of a new job.
const UNTAKEN: Duration = Duration::from_secs(30);
/// The code of pods that outlive their job.
pub const PODS_LEFT: &str = "K8S-PODS-LEFT";
/// Largest number of pods of a job that are checked for absence.
const MOST_PLACES: u32 = 100_000;

/// A job object with its kind.
#[derive(Clone, Debug)]
pub struct Job {
    pub kind: Kind,
    pub object: Value,
}

impl Job {
    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Returns when it was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.text("/metadata/creationTimestamp").parse().ok()
    }

    pub fn handle(&self, target: &str) -> JobHandle {
        let parts = [self.text("/metadata/namespace"), self.kind.word(), self.name()];
        JobHandle::new("kubeflow", target, parts).with_uid(self.uid())
    }

    /// Returns the submission that created it.
    pub fn submission(&self) -> Option<SubmissionId> {
        self.object["metadata"]["labels"][SUBMISSION].as_str().and_then(SubmissionId::parse)
    }

    /// Returns its labels without [`SUBMISSION`], which the summary has as a field.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.object["metadata"]["labels"].as_object().into_iter().flatten();
        labels
            .filter(|(key, _)| *key != SUBMISSION)
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    }

    /// Returns the condition of a type, if its status is True.
    fn condition(&self, kind: &str) -> Option<&Value> {
        let conditions = self.object.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
    }

    /// Returns when it ended, as far as its operator says so.
    pub fn ended(&self) -> Option<Timestamp> {
        let kinds = ["Succeeded", "Complete", "Failed"];
        let condition = || kinds.iter().find_map(|kind| self.condition(kind));
        let time = || condition()?["lastTransitionTime"].as_str()?.parse().ok();
        self.text("/status/completionTime").parse().ok().or_else(time)
    }

    /// Returns what is left of a time after the end of the job, within which its ranks end. None for an MPIJob, whose workers
    /// only serve its launcher.
    pub fn ranks_end_within(&self, limit: Duration) -> Option<Duration> {
        let since = Duration::try_from(crate::clock::now().duration_since(self.ended()?)).unwrap_or_default();
        limit.checked_sub(since).filter(|_| !self.kind.is_mpi())
    }

    /// Returns whether somebody stops it or has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.suspended() || self.cancelled() || self.is_deleted()
    }

    /// Returns whether it is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }

    fn suspended(&self) -> bool {
        let at = |pointer: &str| self.object.pointer(pointer) == Some(&Value::Bool(true));
        at("/spec/suspend") || at("/spec/runPolicy/suspend")
    }

    fn cancelled(&self) -> bool {
        self.object["metadata"]["annotations"][CANCELLED].is_string()
    }

    /// Returns the number of requested nodes, without launchers.
    pub fn nodes(&self) -> u32 {
        let number = |pointer: &str| self.object.pointer(pointer).and_then(Value::as_u64);
        let count = |key: &str| {
            let spec = self.object.pointer("/spec")?.get(key)?.as_object()?;
            let workers = spec.iter().filter(|(role, _)| role.as_str() != "Launcher");
            Some(workers.map(|(_, spec)| spec["replicas"].as_u64().unwrap_or(1)).sum())
        };
        let nodes: Option<u64> = match self.kind {
            Kind::TrainJob => number("/spec/trainer/numNodes"),
            Kind::PyTorchJob => count("pytorchReplicaSpecs"),
            Kind::MpiJobV1 | Kind::MpiJobV2 => count("mpiReplicaSpecs"),
        };
        u32::try_from(nodes.unwrap_or(1)).unwrap_or(u32::MAX)
    }

    /// Returns the phase and its reason.
    pub fn phase(&self, pods: &[&Pod]) -> (JobPhase, String) {
        let said = |condition: &Value| one_line(condition["message"].as_str().unwrap_or_default());
        let done = ["Succeeded", "Complete"].iter().find_map(|kind| self.condition(kind));
        if done.is_some() {
            return (JobPhase::Succeeded, String::new());
        }
        if let Some(failed) = self.condition("Failed") {
            let message = said(failed);
            let late = message.contains("deadline")
                || failed["reason"] == "DeadlineExceeded"
                || pods.iter().any(|pod| pod.reason == "DeadlineExceeded");
            return (
                JobPhase::Failed,
                if late { format!("{TIME_LIMIT_REACHED}: {message}") } else { message },
            );
        }
        if self.is_deleted() {
            return (JobPhase::Stopping, "it is being deleted".into());
        }
        // A pod that has ended and is being deleted counts: a job that is resumed while it exists fails
        // because of it.
        let alive = pods.iter().filter(|pod| !pod.ended() || pod.deleting).count();
        if self.cancelled() && self.suspended() {
            return if alive == 0 {
                (JobPhase::Cancelled, "cancelled".into())
            } else {
                (JobPhase::Stopping, format!("cancelled; {} still ending", counted(alive, "pod")))
            };
        }
        if self.suspended() {
            return if alive == 0 {
                (JobPhase::Suspended, self.condition("Suspended").map(said).unwrap_or_default())
            } else {
                (JobPhase::Stopping, format!("suspended; {} still ending", counted(alive, "pod")))
            };
        }
        if let Some(restarting) = self.condition("Restarting") {
            return (JobPhase::Restarting, said(restarting));
        }
        self.alive(pods)
    }

    /// Returns the phase of a job that is neither ended nor suspended.
    fn alive(&self, pods: &[&Pod]) -> (JobPhase, String) {
        let running = |pod: &&&Pod| pod.containers.iter().any(|c| !c.init && c.state == State::Running);
        let up = pods.iter().filter(running).count();
        let why = || {
            pods.iter().find_map(|pod| pod_finding(pod)).map(|finding| finding.message).unwrap_or_default()
        };
        let crashing = pods.iter().any(|pod| {
            pod.containers.iter().any(|c| !c.init && c.last.is_some() && !matches!(c.state, State::Running))
        });
        let all = pods.len() >= self.nodes() as usize && up > 0;
        if crashing {
            return (JobPhase::Restarting, why());
        }
        // A job that lacks a pod which could not be created is not running, however many of the others run
        // and wait for it.
        let runs = self.condition("Running").is_some()
            || (all && up == pods.iter().filter(|pod| !pod.ended()).count());
        // The operators call a job running as soon as one of its pods does.
        let waits = pods.iter().any(|pod| pod.unschedulable.is_some() && pod.node.is_none());
        if runs && !waits && !self.lacks_pods(pods) {
            return (JobPhase::Running, String::new());
        }
        if pods.is_empty() {
            return (JobPhase::Submitted, "no pod has been made yet".into());
        }
        // A TrainJob has no condition between its pods' end and its own.
        if pods.len() >= self.nodes() as usize && pods.iter().all(|pod| pod.ended()) {
            return (
                JobPhase::Running,
                "all pods have ended; the operator has not said how the job ended".into(),
            );
        }
        if waits || pods.iter().all(|pod| pod.node.is_none()) {
            return (JobPhase::Pending, why());
        }
        let reason = why();
        let needed = self.nodes() as usize + usize::from(self.kind.is_mpi());
        let waiting = format!("{up} of {} pods run", pods.len().max(needed));
        (JobPhase::Starting, if reason.is_empty() { waiting } else { reason })
    }

    /// Returns how long no operator has set a status of the job, and how long that is not yet worth a
    /// warning. None for a job that an operator has taken up, or should not.
    pub fn untaken_for(&self, pods: &[&Pod]) -> Option<(Duration, Duration)> {
        let empty = |value: Option<&Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => false,
        };
        let managed = ["/spec/runPolicy/managedBy", "/spec/managedBy"];
        let elsewhere = managed.iter().any(|pointer| self.text(pointer).contains("multikueue"));
        let stopped = self.suspended() || self.is_deleted();
        if !pods.is_empty() || !empty(self.object.get("status")) || elsewhere || stopped {
            return None;
        }
        let age = crate::clock::now().duration_since(self.created()?);
        let age = Duration::try_from(age).unwrap_or_default();
        Some((age, UNTAKEN.saturating_sub(age)))
    }

    /// Returns a finding for a job that no operator has taken up.
    pub fn untaken(&self) -> Finding {
        let age = self.untaken_for(&[]).map_or(0, |(age, _)| age.as_secs());
        let message = format!("no operator has taken the job up for {age} s: it has no status and no pods");
        Finding::warning("K8S-NO-OPERATOR", message).at(self.name()).fix(format!(
            "ask your cluster administrator whether the operator runs: {}",
            self.kind.operator()
        ))
    }

    fn is_launcher(&self, pod: &Pod) -> bool {
        self.kind.place(pod).role == "launcher"
    }

    /// Returns whether a pod is missing that the job needs: one of its nodes, or its launcher.
    fn lacks_pods(&self, pods: &[&Pod]) -> bool {
        let launchers = pods.iter().filter(|pod| self.is_launcher(pod)).count();
        (self.kind.is_mpi() && launchers == 0) || pods.len() - launchers < self.nodes() as usize
    }

    /// Returns the job's exit code: of the pod that decides, else of the first that failed. An MPIJob's
    /// workers only serve its launcher, and their exit codes mean nothing.
    fn exit_code(&self, pods: &[&Pod]) -> Option<i32> {
        let decides = |pod: &&&Pod| matches!(self.kind.place(pod).role.as_str(), "master" | "launcher");
        let code = |pod: &&Pod| pod.exit().map(|exit| exit.code).filter(|code| *code != 0);
        let first = pods.iter().filter(decides).find_map(code);
        if self.kind.is_mpi() {
            return first;
        }
        // Workers that are ended because the job failed have 137 or 143; a pod that failed by itself is the
        // cause.
        let own = || pods.iter().filter_map(code).find(|code| !matches!(code, 137 | 143));
        first
            .filter(|code| !matches!(code, 137 | 143))
            .or_else(own)
            .or(first)
            .or_else(|| pods.iter().find_map(code))
    }

    /// Returns its summary for a list.
    pub fn summary(&self, target: &str, pods: &[&Pod]) -> JobSummary {
        self.summary_with(target, pods, pods)
    }

    /// Returns its summary; `all` are its pods and those that are gone, which may show how it failed.
    pub fn summary_with(&self, target: &str, pods: &[&Pod], all: &[&Pod]) -> JobSummary {
        let (phase, reason) = self.phase(pods);
        let mut summary = self.line(target, phase);
        summary.reason = reason;
        let ready = pods.iter().filter(|pod| pod.ready && !self.is_launcher(pod)).count();
        summary.ready.0 = u32::try_from(ready).unwrap_or(u32::MAX);
        if phase == JobPhase::Failed {
            self.failed(&mut summary, all);
        }
        if phase == JobPhase::Succeeded
            && let Some(doubt) = self.doubts(pods, all)
        {
            summary.exit_code = self.failed_rank(all).map_or(summary.exit_code, |(_, code)| Some(code));
            summary.reason = doubt.message;
        }
        summary
    }

    /// Returns its summary if its own status shows that all its pods run: then none of possibly thousands of
    /// pods must be read.
    pub fn summary_without_pods(&self, target: &str) -> Option<JobSummary> {
        self.all_run().then(|| {
            let mut summary = self.line(target, JobPhase::Running);
            summary.ready.0 = summary.ready.1;
            summary
        })
    }

    /// Returns whether its status shows that each of its pods runs, and none can be restarting unseen: a
    /// container that the kubelet restarts leaves its pod `Running`.
    fn all_run(&self) -> bool {
        let ended = ["Succeeded", "Complete", "Failed", "Restarting"]
            .iter()
            .any(|kind| self.condition(kind).is_some());
        if ended || self.suspended() || self.is_deleted() {
            return false;
        }
        let specs = match self.kind {
            // Counts Jobs; one is ready when all its pods are.
            Kind::TrainJob => {
                let jobs = self.object["status"]["jobsStatus"].as_array();
                let nodes = jobs.into_iter().flatten().find(|job| job["name"] == "node");
                return nodes
                    .is_some_and(|nodes| nodes["ready"] == 1 && nodes["failed"].as_u64().unwrap_or(0) == 0);
            }
            Kind::PyTorchJob => &self.object["spec"]["pytorchReplicaSpecs"],
            Kind::MpiJobV1 | Kind::MpiJobV2 => &self.object["spec"]["mpiReplicaSpecs"],
        };
        let runs = |(role, spec): (&String, &Value)| {
            let counts = &self.object["status"]["replicaStatuses"][role];
            let wanted = spec["replicas"].as_u64().unwrap_or(1);
            let stays = spec["restartPolicy"] == "Never" || spec["restartPolicy"] == "ExitCode";
            stays && counts["active"] == wanted && counts["failed"].as_u64().unwrap_or(0) == 0
        };
        self.condition("Running").is_some() && specs.as_object().is_some_and(|specs| specs.iter().all(runs))
    }

    /// Returns its summary without the pods.
    fn line(&self, target: &str, phase: JobPhase) -> JobSummary {
        let mut summary = JobSummary::new(self.handle(target), phase);
        summary.kind = self.kind.resource().kind.to_owned();
        summary.ready = (0, self.nodes());
        summary.created = self.created();
        summary.started = self.text("/status/startTime").parse().ok();
        summary.ended = self.ended();
        if phase == JobPhase::Succeeded {
            summary.exit_code = Some(0);
        }
        summary.submission = self.submission();
        let label = self.object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as_str();
        let queue =
            label.or(self.object.pointer("/spec/runPolicy/schedulingPolicy/queue").and_then(Value::as_str));
        summary.queue = queue.map(str::to_owned);
        let fabric = &self.object["metadata"]["annotations"][FABRIC];
        summary.fabric = serde_json::from_value::<Fabric>(fabric.clone()).ok();
        summary.labels = self.labels();
        summary
    }

    /// Returns the pod of a rank that failed, and its exit code. The operators let a master or a success policy decide; pods
    /// that are ended because the job has ended have 137 or 143.
    fn failed_rank<'p>(&self, pods: &[&'p Pod]) -> Option<(&'p str, i32)> {
        let own = |exit: &Exit| !matches!(exit.code, 0 | 137 | 143) || exit.reason == "OOMKilled";
        let failed = |pod: &&'p Pod| pod.exit().filter(|exit| own(exit)).map(|exit| exit.code);
        let mut ranks = pods.iter().filter(|pod| pod.ended() && !self.kind.is_mpi());
        ranks.find_map(|pod| Some((pod.name.as_str(), failed(pod)?)))
    }

    /// Returns what contradicts the success that the operator reports; `all` are the pods and those that are gone.
    fn doubts(&self, pods: &[&Pod], all: &[&Pod]) -> Option<Finding> {
        let success = "the operator reports success";
        if let Some((pod, code)) = self.failed_rank(all) {
            let message = format!("{success}, but a rank failed: {pod} ended with exit code {code}");
            let fix = format!(
                "read its log, and do not rely on the job's result: `weftrun logs` prints it, its pod is {pod}"
            );
            return Some(Finding::error("K8S-RANK-FAILED", message).at(pod).fix(fix));
        }
        let begun = |pod: &Pod| pod.ended() || pod.containers.iter().any(ContainerState::has_begun);
        let idle = pods.iter().find(|pod| !self.kind.is_mpi() && !begun(pod))?;
        let count = pods.iter().filter(|pod| !begun(pod)).count();
        let message = format!(
            "{success}, but {count} of its {} pods never started",
            pods.len().max(self.nodes() as usize)
        );
        let fix = "check that the program waits for all ranks (`init_process_group`), and what keeps the pod from starting (`weftrun describe`)";
        Some(Finding::error("K8S-RANKS-MISSING", message).at(&idle.name).fix(fix))
    }

    /// Adds how it failed: the operators only report that something did, its pods show which one and how.
    fn failed(&self, summary: &mut JobSummary, pods: &[&Pod]) {
        summary.exit_code = self.exit_code(pods);
        let disrupted = pods.iter().filter(|pod| pod.disruption.is_some()).find_map(|pod| pod_finding(pod));
        let ended = |pod: &&&Pod| pod.exit().is_some_and(|exit| Some(exit.code) == summary.exit_code);
        let how = if let Some(finding) = disrupted {
            finding.message
        } else if let Some((pod, exit)) = pods.iter().find(ended).and_then(|pod| Some((pod, pod.exit()?))) {
            // The container's own reason would only be that its end was not observed.
            let reason = if pod.reason == "Evicted" { pod.reason.as_str() } else { exit.reason.as_str() };
            let why = if matches!(reason, "" | "Error") { String::new() } else { format!(" ({reason})") };
            format!("{} ended with exit code {}{why}", pod.name, exit.code)
        } else if let Some(pod) = pods.iter().find(|pod| pod.reason == "Evicted") {
            // It happened before any of its containers started.
            format!("{} was taken away by its node (Evicted)", pod.name)
        } else {
            return;
        };
        let said = summary.reason.trim_end_matches([':', '.', ' ']).to_owned();
        let stop = if said.is_empty() { "" } else { ": " };
        summary.reason = format!("{said}{stop}{how}");
    }

    /// Returns the largest number of restarts of a container. The restart that reaches the operator's limit
    /// is ended as it begins.
    pub fn most_restarts(&self) -> Option<u32> {
        let limit = self.object.pointer("/spec/runPolicy/backoffLimit")?.as_u64()?;
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        Some(if self.kind == Kind::PyTorchJob { limit.saturating_sub(1) } else { limit })
    }

    /// Returns the pods that still run after the job has ended.
    fn left<'p>(&self, pods: &[&'p Pod]) -> Vec<&'p Pod> {
        let is_left = |pod: &&&Pod| !pod.ended() && pod.node.is_some();
        if self.phase(pods).0.is_terminal() {
            pods.iter().filter(is_left).copied().collect()
        } else {
            Vec::new()
        }
    }

    /// Returns whether the job has ended and pods of it still hold GPUs.
    pub fn holds_gpus_after_end(&self, pods: &[&Pod]) -> bool {
        self.left(pods).iter().any(|pod| pod.gpus > 0)
    }

    /// Returns a finding for pods that still run after the job has ended, and hold their GPUs.
    pub fn left_over(&self, pods: &[&Pod]) -> Option<Finding> {
        let left = self.left(pods);
        let first = left.first()?;
        let gpus: u64 = left.iter().map(|pod| pod.gpus).sum();
        let (pods, hold) =
            if left.len() == 1 { ("pod still runs", "holds") } else { ("pods still run", "hold") };
        let held = if gpus == 0 { String::new() } else { format!(" and {hold} {gpus} GPUs") };
        let message = format!("the job has ended, but {} {pods}{held}", left.len());
        let finding = Finding::warning(PODS_LEFT, message).at(&first.name);
        Some(finding.fix(
            "wait until they end, or run `weftrun cancel HANDLE`: it removes the pods that still run, and the others keep their logs",
        ))
    }

    /// Returns the role and number of a pod, with its rank if each pod runs one process: the operators number
    /// the pods by it.
    pub fn place(&self, pod: &Pod) -> RankPosition {
        let mut place = self.kind.place(pod);
        let single = match self.kind {
            Kind::PyTorchJob => &self.object["spec"]["nprocPerNode"],
            Kind::TrainJob => &self.object["spec"]["trainer"]["numProcPerNode"],
            Kind::MpiJobV1 | Kind::MpiJobV2 => return place,
        };
        if single != "1" && *single != 1 {
            return place;
        }
        let master = self.object.pointer("/spec/pytorchReplicaSpecs/Master").is_some();
        place.rank = match place.role.as_str() {
            "master" => Some(0),
            "worker" => place.replica.checked_add(u32::from(master)),
            "node" => Some(place.replica),
            _ => None,
        };
        place
    }

    /// Returns the pods that the job had while it ran, by role and number, as far as their logs are those of
    /// ranks.
    pub fn expected_places(&self) -> Vec<(String, u32)> {
        let numbered = |role: &str, count: u64| {
            let count = u32::try_from(count).unwrap_or(u32::MAX).min(MOST_PLACES);
            (0..count).map(|number| (role.to_owned(), number)).collect::<Vec<_>>()
        };
        match self.kind {
            Kind::PyTorchJob => {
                let specs = self.object.pointer("/spec/pytorchReplicaSpecs").and_then(Value::as_object);
                specs
                    .into_iter()
                    .flatten()
                    .flat_map(|(role, spec)| {
                        numbered(&role.to_lowercase(), spec["replicas"].as_u64().unwrap_or(1))
                    })
                    .take(MOST_PLACES as usize)
                    .collect()
            }
            // The launcher's log has the output of the ranks; the workers run sshd.
            Kind::MpiJobV1 | Kind::MpiJobV2 => numbered("launcher", 1),
            // If the job does not set the number, the runtime does.
            Kind::TrainJob => {
                let nodes = self.object.pointer("/spec/trainer/numNodes").and_then(Value::as_u64);
                numbered("node", nodes.unwrap_or(0))
            }
        }
    }

    pub fn replicas(&self, pods: &[&Pod]) -> Vec<ReplicaStatus> {
        let most = self.most_restarts().unwrap_or(u32::MAX);
        let one = |pod: &&Pod| {
            let mut status = replica(self.kind, pod);
            status.restarts = status.restarts.min(most);
            status.failed_rank = pod.disruption.as_ref().and_then(|_| self.place(pod).rank);
            status
        };
        pods.iter().map(one).collect()
    }

    /// Returns why it is stuck or failed: the findings of its pods, of those that are `gone`, and of events, each kind once.
    pub fn findings(&self, pods: &[&Pod], gone: &[Pod], events: &[&PodEvent]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let (phase, reason) = self.phase(pods);
        let mut add = |finding: Finding| {
            if !findings.iter().any(|known| known.code == finding.code) {
                findings.push(finding);
            }
        };
        let (taken, others): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().copied().chain(gone).partition(|pod| pod.disruption.is_some());
        taken.into_iter().chain(others).filter_map(pod_finding).for_each(&mut add);
        // An event about a pod is obsolete once that pod has run, and one about the job once all its pods
        // exist, except a lost node.
        let begun = pods.iter().filter(|pod| pod.containers.iter().any(ContainerState::has_begun));
        let begun: HashSet<&str> = begun.map(|pod| pod.uid.as_str()).collect();
        let over = phase == JobPhase::Succeeded || (phase == JobPhase::Running && !self.lacks_pods(pods));
        let is_here =
            |event: &&&PodEvent| event.about.0 != "Pod" || pods.iter().any(|pod| pod.uid == event.about.2);
        events
            .iter()
            .filter(is_here)
            .filter_map(|event| Some((job_event_finding(event)?, begun.contains(event.about.2.as_str()))))
            .filter(|(finding, begun)| match finding.code.as_str() {
                NODE_LOST => phase != JobPhase::Succeeded,
                POD_ENDING => !over && !begun && !phase.is_terminal(),
                _ => !over && !begun,
            })
            .map(|(finding, _)| finding)
            .map(|finding| on_node(finding, pods))
            .for_each(&mut add);
        if findings.is_empty() && self.untaken_for(pods).is_some_and(|(_, left)| left.is_zero()) {
            findings.push(self.untaken());
        }
        if phase == JobPhase::Failed && findings.is_empty() {
            findings.push(Finding::error("K8S-FAILED", reason).at(self.name()));
        }
        if phase.is_terminal() && phase != JobPhase::Failed {
            findings.retain(|finding| finding.severity != Severity::Warning && finding.code != "K8S-EXIT");
        }
        if phase == JobPhase::Succeeded {
            findings.extend(self.doubts(pods, pods));
        }
        findings.extend(self.left_over(pods));
        findings
    }
}

/// Names the node of the pod in a finding: users whose node is lost may have no right to list nodes.
fn on_node(mut finding: Finding, pods: &[&Pod]) -> Finding {
    if finding.code == NODE_LOST
        && let Some(pod) = pods.iter().find(|pod| finding.subject.as_ref() == Some(&pod.name))
        && let Some(node) = &pod.node
    {
        finding.message = finding.message.replace("the pod's node", &format!("the node {node}"));
    }
    finding
}

/// Converts a pod to a replica.
fn replica(kind: Kind, pod: &Pod) -> ReplicaStatus {
    let place = kind.place(pod);
    let finding = pod_finding(pod);
    let running = pod.containers.iter().any(|c| !c.init && c.state == State::Running);
    let crashing = pod
        .containers
        .iter()
        .any(|c| !c.init && c.last.is_some() && matches!(c.state, State::Waiting { .. }));
    let phase = match pod.phase.as_str() {
        "Succeeded" => JobPhase::Succeeded,
        "Failed" => JobPhase::Failed,
        _ if pod.deleting => JobPhase::Stopping,
        _ if crashing => JobPhase::Restarting,
        _ if running => JobPhase::Running,
        _ if pod.containers.iter().any(|c| !c.init && matches!(c.state, State::Terminated(_))) => {
            JobPhase::Stopping
        }
        _ if pod.node.is_some() => JobPhase::Starting,
        _ => JobPhase::Pending,
    };
    let mut status = ReplicaStatus::new(&pod.name, place.role, place.replica, phase);
    status.reason = finding.map(|finding| finding.message).unwrap_or_default();
    status.node.clone_from(&pod.node);
    status.restarts = pod.restarts();
    status.exit_code = pod.exit().filter(|_| pod.ended() || crashing).map(|exit| exit.code);
    status
}
