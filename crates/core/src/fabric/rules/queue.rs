//! The queue of a job, and how close together Kueue places its pods.

use serde_json::json;

use super::{Context, set};
use crate::fabric::Change;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{Annotation, JobKind, Workload};

const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const VOLCANO_QUEUE: &str = "scheduling.volcano.sh/queue-name";

/// Decides for the job and for its workers. The backend writes a job file's own `queue`.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder) {
    let queue = &ctx.profile.queue;
    let first = ctx.roles().next();
    if let (Some(name), Some(role), None) = (&queue.kueue, first, &ctx.job.queue) {
        kueue_queue(ctx, plan, role, name);
    }
    for role in ctx.workers() {
        topology(ctx, plan, role);
        if let (Some(name), None) = (&queue.volcano, &ctx.job.queue) {
            volcano(ctx, plan, role, name);
        }
    }
    let at_a_level = queue.topology_required.is_some() || queue.topology_preferred.is_some();
    for role in ctx.roles().filter(|role| at_a_level && !role.worker) {
        launcher_request(ctx, plan, role);
    }
}

/// Requests one core for a launcher that requests nothing. Kueue 0.19 assigns a flavor only to pods with a request, and
/// a queue with a topology admits a job only if all its pods have a flavor.
fn launcher_request(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    const RULE: &str = "queue.topology";
    if plan.active(RULE) && role.container.limits.is_empty() && role.container.requests.is_empty() {
        let why = "Kueue admits no job at a topology level while one of its pods requests nothing";
        set::resource(plan, role, RULE, ("cpu", "1"), why, ctx.of_profile());
    }
}

fn kueue_queue(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef, name: &str) {
    const RULE: &str = "queue.kueue";
    if !plan.active(RULE) {
        return;
    }
    let change = |value: &str| {
        let pointer = format!("/metadata/labels/{}", KUEUE_QUEUE.replace('/', "~1"));
        Change::JobField { pointer, value: value.to_owned() }
    };
    match ctx.job.labels.get(KUEUE_QUEUE) {
        Some(own) => plan.kept(role, RULE, change(own), "set by the user, kept"),
        None => {
            let why = "Kueue admits only jobs that name a queue where the cluster manages quota";
            plan.op(role, RULE, change(name), why, ctx.of_profile());
        }
    }
}

fn topology(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
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
    match own {
        Some((key, value)) => {
            let own = value.text().unwrap_or_default();
            plan.kept(role, RULE, Change::annotation(key, own), "set by the user, kept");
        }
        None => {
            let why = "Kueue then gives the pods nodes of one topology domain";
            plan.op(role, RULE, Change::annotation(wanted.0, wanted.1), why, ctx.of_profile());
        }
    }
}

/// Sets Volcano's queue at the place of the kind of object: in the job itself, or on its pods.
fn volcano(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef, name: &str) {
    const RULE: &str = "queue.volcano";
    if !plan.active(RULE) || ctx.is_job_file() {
        return;
    }
    let why = "Volcano starts all pods of the job together, from this queue";
    let of_job = match ctx.job.kind {
        JobKind::Workload(Workload::VolcanoJob) => Some("/spec/queue"),
        JobKind::PyTorchJob | JobKind::MpiJobV1 | JobKind::MpiJobV2 => {
            Some("/spec/runPolicy/schedulingPolicy/queue")
        }
        _ => None,
    };
    if let Some(pointer) = of_job {
        let change = Change::JobField { pointer: pointer.to_owned(), value: name.to_owned() };
        if plan.changes().all(|(_, other)| *other != change) {
            plan.op(role, RULE, change, why, ctx.of_profile());
        }
        return;
    }
    match role.annotations.get(VOLCANO_QUEUE).and_then(Annotation::text) {
        Some(own) => {
            plan.kept(role, RULE, Change::annotation(VOLCANO_QUEUE, own), "set by the user, kept");
        }
        None => {
            plan.op(role, RULE, Change::annotation(VOLCANO_QUEUE, name), why, ctx.of_profile());
            let scheduler = Change::PodField { key: "schedulerName".to_owned(), value: json!("volcano") };
            plan.op(role, RULE, scheduler, "only Volcano's own scheduler reads its queues", ctx.of_profile());
        }
    }
}
