//! The annotation by which a job, or a role, opts out of EFA.

use std::collections::BTreeMap;

use super::Context;
use crate::Finding;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{Annotation, RoleView};
use crate::fabric::{Change, SkipReason};
use crate::request::{Fabric, Origin, RuleSetting};

/// The annotation by which a pod opts out of a webhook that adds EFA.
pub const OPT_OUT: &str = "disable-auto-efa";
/// The annotation that marks an opt-out as added by weftrun, for the webhook.
pub const MARKER: &str = "weftrun.dev/applied";
/// Its value for EFA.
pub const MARKER_EFA: &str = "efa/v1";
/// Its value where the job must not have EFA.
pub const MARKER_NONE: &str = "none/v1";

/// The meaning of an object's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// No opt-out.
    Silent,
    /// It opts out.
    Out,
    /// The opt-out is weftrun's.
    Ours,
}

/// Returns whether a role opts out of EFA by its own annotation.
pub(crate) fn role_is_out(ctx: &Context, role: &RoleView) -> bool {
    ctx.profile.opt_out.as_deref().is_some_and(|key| word(&role.annotations, key) == Word::Out)
}

/// Returns whether the opt-out and the marker are both on a role already.
pub(crate) fn role_is_marked(ctx: &Context, role: &RoleView) -> bool {
    ctx.profile.opt_out.as_deref().is_some_and(|key| word(&role.annotations, key) == Word::Ours)
}

/// Returns whether the job opts out of EFA. If its own metadata does, the pods get the annotation too,
/// since the server reads only theirs.
pub(crate) fn job_is_out(ctx: &Context, plan: &mut PlanBuilder) -> bool {
    let Some(key) = ctx.profile.opt_out.as_deref() else { return false };
    report_odd_values(ctx, plan, key);
    if word(&ctx.job.annotations, key) == Word::Out {
        let why = format!("the job's annotation {key} is \"true\"");
        plan.skip_fabric(Fabric::Efa, SkipReason::OptOut, why);
        copy_to_pods(ctx, plan, key);
        return true;
    }
    let (out, others): (Vec<RoleRef>, Vec<RoleRef>) = ctx.workers().partition(|role| role_is_out(ctx, role));
    let names =
        |roles: &[RoleRef]| roles.iter().map(|role| role.view.name.as_str()).collect::<Vec<_>>().join(", ");
    let out = names(&out);
    if out.is_empty() {
        return false;
    }
    if !others.is_empty() {
        plan.report(
            Finding::warning(
                "W-OPTOUT-MIXED",
                format!(
                    "{out} opts out and {} does not; NCCL hangs where only some pods have EFA, so none gets it",
                    names(&others)
                ),
            )
            .at(&out)
            .fix("put the annotation on all worker roles, or on none"),
        );
    }
    plan.skip_fabric(Fabric::Efa, SkipReason::OptOut, format!("{out} carries {key}: \"true\""));
    true
}

fn word(annotations: &BTreeMap<String, Annotation>, key: &str) -> Word {
    if annotations.get(key).and_then(Annotation::text) != Some("true") {
        return Word::Silent;
    }
    let marker = annotations.get(MARKER).and_then(Annotation::text);
    let ours = marker.is_some_and(|value| value.starts_with("efa/") || value == MARKER_NONE);
    if ours { Word::Ours } else { Word::Out }
}

fn report_odd_values(ctx: &Context, plan: &mut PlanBuilder, key: &str) {
    let of_roles = ctx.job.roles.iter().map(|role| (role.name.as_str(), &role.annotations));
    for (place, annotations) in std::iter::once(("metadata", &ctx.job.annotations)).chain(of_roles) {
        match annotations.get(key) {
            Some(Annotation::NotText(raw)) => plan.report(
                Finding::error(
                    "E-ANNOT-BOOL",
                    format!("{key}: {raw} is not a string, and the API server refuses it"),
                )
                .at(place)
                .fix(format!("quote it: {key}: \"{raw}\"")),
            ),
            Some(Annotation::Text(text)) if !matches!(text.as_str(), "true" | "false") => plan.report(
                Finding::warning(
                    "W-OPTOUT-VALUE",
                    format!("{key}: \"{text}\" does not opt out; only \"true\" does"),
                )
                .at(place)
                .fix(format!("write {key}: \"true\", or remove it")),
            ),
            _ => {}
        }
    }
}

fn copy_to_pods(ctx: &Context, plan: &mut PlanBuilder, key: &str) {
    const RULE: &str = "efa.webhook";
    let off = plan.settings.of(RULE) == RuleSetting::Off;
    if off || ctx.is_job_file() {
        return;
    }
    for role in ctx.roles().filter(|role| !role.annotations.contains_key(key)) {
        let change = Change::annotation(key, "true");
        let why = "the job opts out; the cluster's webhook sees only what the pods carry";
        plan.op(role, RULE, change, why, Origin::Job);
    }
}
