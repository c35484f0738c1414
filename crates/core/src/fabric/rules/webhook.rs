//! The cluster's own webhook, which would add EFA a second time.

use super::Context;
use super::opt_out::{self, MARKER, MARKER_EFA, MARKER_NONE};
use crate::Finding;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{Annotation, JobKind};
use crate::fabric::{Change, NodeGroup, SkipReason};
use crate::request::{Fabric, Inject, Origin, Webhook};

const RULE: &str = "efa.webhook";

/// Adds the opt-out for a webhook to what weftrun has changed, where there is a webhook or may be one.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder) {
    let Some(key) = ctx.profile.opt_out.as_deref().filter(|_| plan.active(RULE)) else { return };
    if ctx.job.kind == JobKind::Sbatch {
        plan.skip_rule(RULE, SkipReason::NoWebhook, "no webhook changes a Slurm script");
        return;
    }
    let server = ctx.options.inject == Inject::Server;
    let (why, origin) = match known(ctx) {
        _ if server => (
            "the webhook would give a launcher devices and huge pages, which the API server refuses without cpu or memory",
            Origin::Default,
        ),
        Some((false, origin)) => {
            let why = match origin {
                Origin::Profile(name) => {
                    format!("profile `{name}` says that no webhook of its clusters adds EFA")
                }
                _ => "no webhook of this cluster adds EFA".to_owned(),
            };
            plan.skip_rule(RULE, SkipReason::NoWebhook, why);
            return;
        }
        Some((true, origin)) => (
            "the cluster's webhook would add the same again; the marker shows that weftrun added this opt-out",
            origin,
        ),
        None if ctx.facts.online => (
            "whether a webhook adds the same could not be found out; this keeps one out and is harmless",
            Origin::Assumed,
        ),
        None => {
            report_unknown(ctx, plan, key);
            return;
        }
    };
    for role in ctx.roles().filter(|role| role.worker || role.launcher) {
        let out = !role.worker && opt_out::role_is_out(ctx, &role);
        if out || (server && role.worker) {
            continue;
        }
        annotate(plan, role, [(key, "true"), (MARKER, MARKER_EFA)], why, &origin);
    }
}

/// Keeps a webhook away from a job that must not have EFA: it looks at each pod alone, and gives EFA to
/// launchers of partial nodes too.
pub(crate) fn keep_out(ctx: &Context, plan: &mut PlanBuilder) {
    let Some(key) = ctx.profile.opt_out.as_deref().filter(|_| plan.active(RULE)) else { return };
    // Of a template it is not known yet whether it may have EFA.
    if ctx.placeholder().is_some() {
        return;
    }
    // The webhook changes pods of MPIJobs and PyTorchJobs only.
    if matches!(ctx.job.kind, JobKind::Sbatch | JobKind::TrainJob) {
        return;
    }
    let origin = match known(ctx) {
        Some((false, _)) => return,
        Some((true, origin)) => origin,
        None if ctx.facts.online && may_have_efa(ctx) => Origin::Assumed,
        None => return,
    };
    let why = "the job is to have no EFA, and the cluster's webhook sees only what each pod carries";
    for role in ctx.roles().filter(|role| role.worker || role.launcher) {
        let users = role.annotations.contains_key(key) && !opt_out::role_is_marked(ctx, &role);
        let of_job = ctx.is_job_file() && ctx.job.annotations.contains_key(key);
        let copied = plan.changes().any(|(name, change)| {
            name == role.name && matches!(change, Change::Annotation { key: set, .. } if set == key)
        });
        if !(users || of_job || copied) {
            annotate(plan, role, [(key, "true"), (MARKER, MARKER_NONE)], why, &origin);
        }
    }
}

fn annotate(plan: &mut PlanBuilder, role: RoleRef, pairs: [(&str, &str); 2], why: &str, origin: &Origin) {
    for (key, value) in pairs {
        let there = role.annotations.get(key).and_then(Annotation::text) == Some(value);
        let there = there.then_some("already there");
        plan.ensure(role, RULE, Change::annotation(key, value), there, why, origin.clone());
    }
}

/// Returns whether an unknown cluster may add EFA to a job without it: the profile or the nodes have EFA,
/// or the user requested `off` or `tcp`.
fn may_have_efa(ctx: &Context) -> bool {
    let offers = |group: &NodeGroup| group.allocatable.contains_key("vpc.amazonaws.com/efa");
    ctx.profile.efa.is_some()
        || matches!(ctx.options.kind, Fabric::Off | Fabric::Tcp)
        || ctx.facts.nodes.iter().any(offers)
}

/// Returns whether a webhook adds EFA, and the origin of that.
fn known(ctx: &Context) -> Option<(bool, Origin)> {
    let said = |webhook: Webhook| match webhook {
        Webhook::Auto => None,
        Webhook::Yes => Some(true),
        Webhook::No => Some(false),
    };
    let asked = said(ctx.options.webhook).map(|known| (known, Origin::Job));
    let seen = ctx.facts.efa_webhook.map(|known| (known, Origin::Cluster));
    let profile = said(ctx.profile.webhook);
    asked.or(seen).or_else(|| profile.map(|known| (known, ctx.of_profile())))
}

fn report_unknown(ctx: &Context, plan: &mut PlanBuilder, key: &str) {
    let marked = ctx.workers().all(|role| opt_out::role_is_marked(ctx, &role));
    if !marked {
        let text =
            format!("offline it is not known whether a webhook of the cluster adds {} too", Fabric::Efa);
        let fix =
            format!("--webhook yes adds {key}: \"true\" and our marker; --webhook no says there is none");
        plan.report(Finding::info("I-WEBHOOK-UNKNOWN", text).fix(fix));
    }
}
