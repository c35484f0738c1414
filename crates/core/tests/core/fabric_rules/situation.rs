//! Jobs and clusters to start from, and the result of a decision as lines.

use std::collections::BTreeMap;

use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::view::{Annotation, ContainerView, EnvView, JobKind, JobView, Mpi, RoleView};
use weftrun_core::fabric::{FabricPlan, decide};
use weftrun_core::fabric::{Profile, Profiles};
use weftrun_core::request::FabricRequest;

pub const OURS: &str =
    "/opt/amazon-efa-ofi/ofi/lib:/opt/amazon-efa-ofi/efa/lib:/opt/amazon-efa-ofi/openmpi/lib";

/// Returns a role of two whole nodes with memory, which a test can change.
pub fn worker(name: &str) -> RoleView {
    let asked: BTreeMap<String, String> =
        [("nvidia.com/gpu", "8"), ("memory", "1800Gi")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    RoleView {
        name: name.to_owned(),
        worker: true,
        replicas: 2,
        container: ContainerView { limits: asked.clone(), requests: asked, ..ContainerView::default() },
        ..RoleView::default()
    }
}

pub fn launcher(command: &[&str]) -> RoleView {
    RoleView {
        name: "Launcher".to_owned(),
        launcher: true,
        replicas: 1,
        container: ContainerView { command: words(command), ..ContainerView::default() },
        ..RoleView::default()
    }
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub fn job(kind: JobKind, roles: Vec<RoleView>) -> JobView {
    let mpi = matches!(kind, JobKind::MpiJobV1 | JobKind::MpiJobV2).then_some(Mpi::OpenMpi);
    JobView { kind, name: "job".to_owned(), roles, mpi, ..JobView::default() }
}

pub fn pytorch(role: RoleView) -> JobView {
    job(JobKind::PyTorchJob, vec![role])
}

pub fn with_env(mut role: RoleView, pairs: &[(&str, &str)]) -> RoleView {
    for (name, value) in pairs {
        let value = Some((*value).to_owned());
        role.container.env.push(EnvView { name: (*name).to_owned(), value, at: String::new() });
    }
    role
}

pub fn with_resource(mut role: RoleView, name: &str, limit: Option<&str>, request: Option<&str>) -> RoleView {
    for (side, amount) in [(&mut role.container.limits, limit), (&mut role.container.requests, request)] {
        match amount {
            Some(amount) => drop(side.insert(name.to_owned(), amount.to_owned())),
            None => drop(side.remove(name)),
        }
    }
    role
}

pub fn on(mut role: RoleView, instance: &str) -> RoleView {
    role.instance_types = vec![instance.to_owned()];
    role
}

pub fn annotated(mut role: RoleView, pairs: &[(&str, &str)]) -> RoleView {
    let texts = pairs.iter().map(|(key, value)| ((*key).to_owned(), Annotation::Text((*value).to_owned())));
    role.annotations.extend(texts);
    role
}

pub fn online(tell: impl FnOnce(&mut ClusterFacts)) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    facts.online = true;
    tell(&mut facts);
    facts
}

pub fn profile(name: &str) -> Profile {
    Profiles::builtin().get(name).unwrap()
}

pub fn run(job: &JobView, name: &str, options: &FabricRequest) -> FabricPlan {
    decide(job, &profile(name), options, &Catalogue::builtin(), &ClusterFacts::default())
}

pub fn dgxc(job: &JobView) -> FabricPlan {
    run(job, "dgxc", &FabricRequest::default())
}

/// Returns the ops as lines `role: what = value`.
pub fn ops(outcome: &FabricPlan) -> Vec<String> {
    outcome
        .ops
        .iter()
        .map(|op| format!("{}: {} = {}", op.role, op.change.target(), op.change.value()))
        .collect()
}

pub fn has(outcome: &FabricPlan, line: &str) -> bool {
    ops(outcome).iter().any(|op| op == line)
}

/// Returns the codes of errors and warnings, without those that only report assumptions.
pub fn codes(outcome: &FabricPlan) -> Vec<&str> {
    let assumed = [
        "I-PROFILE-UNTRIED",
        "W-EFA-ASSUMED",
        "W-INSTANCE-UNKNOWN",
        "I-WEBHOOK-UNKNOWN",
        "W-LDPATH-SHADOW",
        "W-LAUNCHER-HOSTPATH",
    ];
    outcome
        .findings
        .iter()
        .map(|finding| finding.code.as_str())
        .filter(|code| !assumed.contains(code))
        .collect()
}

pub fn skip(outcome: &FabricPlan) -> Option<&str> {
    outcome.skip().map(|skip| skip.reason.as_str())
}

#[track_caller]
pub fn refused(outcome: &FabricPlan, code: &str) {
    assert_eq!(outcome.error().map(|error| error.code.as_str()), Some(code), "{:?}", outcome.findings);
    assert_eq!(outcome.ops, [], "an error leaves the job as it was");
}
