//! The cluster's own webhook, which would add EFA a second time.

use super::Context;
use super::efa::Parts;
use super::opt_out::{self, MARKER, MARKER_EFA};
use crate::Finding;
use crate::fabric::Change;
use crate::fabric::builder::PlanBuilder;
use crate::fabric::view::JobKind;
use crate::request::{Fabric, Origin, Webhook};

/// Tells a webhook to keep out, where there is one or may be one.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, _parts: Parts) {
    const RULE: &str = "efa.webhook";
    let Some(key) = ctx.profile.opt_out.as_deref().filter(|_| plan.active(RULE)) else { return };
    if ctx.job.kind == JobKind::Sbatch {
        plan.skip_rule(RULE, "no-webhook", "webhooks are of Kubernetes, and this is a script for Slurm");
        return;
    }
    let (why, origin) = match known(ctx) {
        Some(false) => {
            plan.skip_rule(RULE, "no-webhook", "no webhook of this cluster adds EFA");
            return;
        }
        Some(true) => (
            "the cluster's webhook would add the same again; the marker says that this opt-out is ours",
            Origin::Cluster,
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
    for (at, role) in ctx.roles().filter(|(_, role)| role.worker || role.launcher) {
        if !role.worker && opt_out::role_is_out(ctx, role) {
            continue;
        }
        for (key, value) in [(key, "true"), (MARKER, MARKER_EFA)] {
            let change = Change::Annotation { key: key.to_owned(), value: value.to_owned() };
            if opt_out::role_is_marked(ctx, role) {
                plan.kept(at, RULE, &change, "already there");
            } else {
                plan.op(at, RULE, change, why, origin.clone());
            }
        }
    }
}

fn known(ctx: &Context) -> Option<bool> {
    let said = |webhook: Webhook| match webhook {
        Webhook::Auto => None,
        Webhook::Yes => Some(true),
        Webhook::No => Some(false),
    };
    said(ctx.options.webhook).or(ctx.facts.efa_webhook).or_else(|| said(ctx.profile.webhook))
}

fn report_unknown(ctx: &Context, plan: &mut PlanBuilder, key: &str) {
    let marked = ctx.workers().all(|(_, role)| opt_out::role_is_marked(ctx, role));
    if !marked {
        plan.report(
            Finding::info(
                "I-WEBHOOK-UNKNOWN",
                format!("offline it is not known whether a webhook of the cluster adds {} too", Fabric::Efa),
            )
            .fix(format!(
                "--webhook yes adds {key}: \"true\" and our marker; --webhook no says there is none"
            )),
        );
    }
}
