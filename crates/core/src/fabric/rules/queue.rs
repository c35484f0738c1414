//! The queue of a job, and how close together Kueue places its pods.

use serde_json::json;

use super::{Context, set};
use crate::fabric::Change;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{Annotation, JobKind, RoleView, Workload};
use crate::request::Origin;

const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const VOLCANO_QUEUE: &str = "scheduling.volcano.sh/queue-name";

/// Decides for the job and for its workers. The backend writes a job file's own `queue`.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder) {
    let queue = &ctx.profile.queue;
    let first = ctx.roles().next();
    if let (Some(name), Some((at, _)), None) = (&queue.kueue, first, &ctx.job.queue) {
        kueue_queue(ctx, plan, at, name);
    }
    for (at, role) in ctx.workers() {
        topology(ctx, plan, at, role);
        if let (Some(name), None) = (&queue.volcano, &ctx.job.queue) {
            volcano(ctx, plan, at, role, name);
        }
    }
    let at_a_level = queue.topology_required.is_some() || queue.topology_preferred.is_some();
    for (at, role) in ctx.roles().filter(|(_, role)| at_a_level && !role.worker) {
        launcher_request(ctx, plan, at, role);
    }
}

/// Requests one core for a launcher that requests nothing. Kueue 0.19 assigns a flavor only to pods with a request, and
/// a queue with a topology admits a job only if all its pods have a flavor.
fn launcher_request(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    const RULE: &str = "queue.topology";
    if plan.active(RULE) && role.container.limits.is_empty() && role.container.requests.is_empty() {
        let why = "Kueue admits no job at a topology level while one of its pods requests nothing";
        set::resource(plan, at, role, RULE, ("cpu", "1"), why, origin(ctx));
    }
}

fn origin(ctx: &Context) -> Origin {
    Origin::Profile(ctx.profile.name.clone())
}

fn kueue_queue(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, name: &str) {
    const RULE: &str = "queue.kueue";
    if !plan.active(RULE) {
        return;
    }
    let change = |value: &str| {
        let pointer = format!("/metadata/labels/{}", KUEUE_QUEUE.replace('/', "~1"));
        Change::JobField { pointer, value: value.to_owned() }
    };
    match ctx.job.labels.get(KUEUE_QUEUE) {
        Some(own) => plan.kept(at, RULE, &change(own), "set by the user, kept"),
        None => {
            let why = "Kueue admits only jobs that name a queue where the cluster manages quota";
            plan.op(at, RULE, change(name), why, origin(ctx));
        }
    }
}

fn topology(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    const RULE: &str = "queue.topology";
    if !plan.active(RULE) {
        return;
    }
    let queue = &ctx.profile.queue;
    // Kueue refuses pods that have both.
    let wanted = match (&queue.topology_required, &queue.topology_preferred) {
        (Some(level), _) => (REQUIRED, level),
        (None, Some(level)) => (PREFERRED, level),
        (None, None) => return,
    };
    let own = role.annotations.iter().find(|(key, _)| key.starts_with("kueue.x-k8s.io/podset-"));
    let change = |key: &str, value: &str| Change::Annotation { key: key.to_owned(), value: value.to_owned() };
    match own {
        Some((key, value)) => {
            let own = value.text().unwrap_or_default();
            plan.kept(at, RULE, &change(key, own), "set by the user, kept");
        }
        None => {
            let why = "Kueue then gives the pods nodes of one topology domain";
            plan.op(at, RULE, change(wanted.0, wanted.1), why, origin(ctx));
        }
    }
}

/// Sets Volcano's queue at the place of the kind of object: in the job itself, or on its pods.
fn volcano(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView, name: &str) {
    const RULE: &str = "queue.volcano";
    if !plan.active(RULE) || ctx.is_job_file() {
        return;
    }
    let why = "Volcano starts all pods of the job together, from this queue";
    let field = |pointer: &str, value: &str| Change::JobField {
        pointer: pointer.to_owned(),
        value: value.to_owned(),
    };
    let of_job = match ctx.job.kind {
        JobKind::Workload(Workload::VolcanoJob) => Some("/spec/queue"),
        JobKind::PyTorchJob | JobKind::MpiJobV1 | JobKind::MpiJobV2 => {
            Some("/spec/runPolicy/schedulingPolicy/queue")
        }
        _ => None,
    };
    if let Some(pointer) = of_job {
        let change = field(pointer, name);
        if plan.changes().all(|(_, other)| *other != change) {
            plan.op(at, RULE, change, why, origin(ctx));
        }
        return;
    }
    match role.annotations.get(VOLCANO_QUEUE).and_then(Annotation::text) {
        Some(own) => {
            let change = Change::Annotation { key: VOLCANO_QUEUE.to_owned(), value: own.to_owned() };
            plan.kept(at, RULE, &change, "set by the user, kept");
        }
        None => {
            let change = Change::Annotation { key: VOLCANO_QUEUE.to_owned(), value: name.to_owned() };
            plan.op(at, RULE, change, why, origin(ctx));
            let scheduler = Change::PodField { key: "schedulerName".to_owned(), value: json!("volcano") };
            plan.op(at, RULE, scheduler, "only Volcano's own scheduler reads its queues", origin(ctx));
        }
    }
}
