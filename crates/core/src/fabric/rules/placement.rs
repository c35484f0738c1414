//! Placement of the workers: one zone, one instance type, the reserved capacity.

use super::Context;
use crate::fabric::Change;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{JobKind, RoleView};
use crate::request::{Origin, RuleSetting};

const RULE: &str = "efa.colocate";
const ZONE: &str = "topology.kubernetes.io/zone";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Keeps the workers together: in job files, and in raw manifests where the rule is `on`.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder) {
    let wanted = match plan.settings.of(RULE) {
        RuleSetting::Off => false,
        RuleSetting::On => true,
        RuleSetting::Auto => ctx.is_job_file(),
    };
    if !wanted {
        return;
    }
    let unlabelled = matches!(ctx.job.kind, JobKind::Workload(workload) if workload.pods_label().is_none());
    for (at, role) in ctx.workers() {
        if unlabelled {
            let why = "no label marks the pods of this object, so they cannot be kept together by one";
            plan.skip_rule(RULE, "no-label", why);
        } else {
            zone(plan, at, role);
        }
        instance_type(ctx, plan, at, role);
        reservation(ctx, plan, at, role);
    }
}

fn zone(plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    let change = Change::Colocate { topology_key: ZONE.to_owned() };
    if role.node_selector.contains_key(ZONE) || role.colocated_by.iter().any(|key| key == ZONE) {
        plan.kept(at, RULE, &change, "the user chose the zone");
    } else {
        plan.op(at, RULE, change, "EFA traffic does not cross an availability zone", Origin::Default);
    }
}

fn instance_type(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    let [name] = role.instance_types.as_slice() else { return };
    let change = Change::NodeSelector { key: INSTANCE_TYPE.to_owned(), value: name.clone() };
    if role.node_selector.contains_key(INSTANCE_TYPE) {
        plan.kept(at, RULE, &change, "the user chose the instance type");
    } else if ctx.is_job_file() {
        plan.op(at, RULE, change, "the number of EFA interfaces is that of this type", Origin::Job);
    }
}

fn reservation(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    let origin = || Origin::Profile(ctx.profile.name.clone());
    for (key, value) in &ctx.profile.placement.node_selector {
        let change = Change::NodeSelector { key: key.clone(), value: value.clone() };
        if role.node_selector.contains_key(key) {
            plan.kept(at, RULE, &change, "the user chose the nodes");
        } else {
            plan.op(at, RULE, change, "the profile's capacity block or reservation", origin());
        }
    }
    for taint in &ctx.profile.placement.tolerations {
        let change = Change::Toleration {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: taint.effect.clone(),
        };
        if role.tolerates.contains(&taint.key) {
            plan.kept(at, RULE, &change, "tolerated already");
        } else {
            plan.op(at, RULE, change, "the nodes of the profile's reservation carry this taint", origin());
        }
    }
}
