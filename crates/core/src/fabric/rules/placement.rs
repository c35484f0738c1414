//! Placement of the workers: one zone, one instance type, the reserved capacity.

use super::Context;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::JobKind;
use crate::fabric::{Change, SkipReason};
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
    for role in ctx.workers() {
        if unlabelled {
            let why = "no label marks the pods of this object, so they cannot be kept together by one";
            plan.skip_rule(RULE, SkipReason::NoLabel, why);
        } else {
            zone(plan, role);
        }
        instance_type(ctx, plan, role);
        reservation(ctx, plan, role);
    }
}

fn zone(plan: &mut PlanBuilder, role: RoleRef) {
    let change = Change::Colocate { topology_key: ZONE.to_owned() };
    let chosen = role.node_selector.contains_key(ZONE) || role.colocated_by.iter().any(|key| key == ZONE);
    let chosen = chosen.then_some("the user chose the zone");
    let why = "EFA traffic does not cross an availability zone";
    plan.ensure(role, RULE, change, chosen, why, Origin::Default);
}

fn instance_type(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    let [name] = role.instance_types.as_slice() else { return };
    let change = Change::node_selector(INSTANCE_TYPE, name);
    if role.node_selector.contains_key(INSTANCE_TYPE) {
        plan.kept(role, RULE, change, "the user chose the instance type");
    } else if ctx.is_job_file() {
        plan.op(role, RULE, change, "the number of EFA interfaces is that of this type", Origin::Job);
    }
}

fn reservation(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    for (key, value) in &ctx.profile.placement.node_selector {
        let chosen = role.node_selector.contains_key(key).then_some("the user chose the nodes");
        let why = "the profile's capacity block or reservation";
        plan.ensure(role, RULE, Change::node_selector(key, value), chosen, why, ctx.of_profile());
    }
    for taint in &ctx.profile.placement.tolerations {
        let tolerated = role.tolerates.contains(&taint.key).then_some("tolerated already");
        let why = "the nodes of the profile's reservation carry this taint";
        plan.ensure(role, RULE, Change::toleration(taint), tolerated, why, ctx.of_profile());
    }
}
