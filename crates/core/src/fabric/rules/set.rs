//! The two operations of all rules: set a variable the user has not set, and request a resource the user
//! has not requested.

use super::{Context, Launch};
use crate::fabric::Change;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::ContainerView;
use crate::request::Origin;
use crate::text::Quantity;

/// Sets a variable, unless the user did: then the user's value stays, and is reported where it differs.
pub(crate) fn env(
    plan: &mut PlanBuilder,
    role: RoleRef,
    rule: &'static str,
    (name, value): (&str, &str),
    why: &str,
    origin: Origin,
) {
    match role.container.env(name).map(|var| var.value.as_deref()) {
        None => plan.op(role, rule, Change::env(name, value), why, origin),
        Some(Some(own)) if own == value => plan.kept(role, rule, Change::env(name, value), "already there"),
        Some(own) => {
            let shown = own.map_or_else(|| "a value from elsewhere".to_owned(), |own| format!("`{own}`"));
            plan.kept(
                role,
                rule,
                Change::env(name, own.unwrap_or("a value from elsewhere")),
                "set by the user, kept",
            );
            plan.warn(
                role,
                "W-ENV-KEPT",
                format!("{name} is {shown}, set by the user, and stays; {rule} would set `{value}`"),
                format!("remove {name}, or switch `{rule}` off to silence this"),
            );
        }
    }
}

/// Sets a variable on all workers, and forwards it.
pub(crate) fn env_of_workers(
    ctx: &Context,
    plan: &mut PlanBuilder,
    launch: &mut Launch,
    rule: &'static str,
    (name, value): (&str, &str),
    why: &str,
    origin: &Origin,
) {
    for role in ctx.workers() {
        env(plan, role, rule, (name, value), why, origin.clone());
    }
    launch.forward(rule, name);
}

/// The user's request of a resource.
pub(crate) enum Asked {
    /// It is not requested.
    No,
    /// This much, as written.
    Yes(String),
    /// Limits and requests contradict each other; reported.
    Unequal,
}

/// Returns the user's request of a resource. Extended resources and huge pages need limits and requests to
/// be equal.
pub(crate) fn asked(plan: &mut PlanBuilder, role: RoleRef, resource: &str) -> Asked {
    let container = &role.container;
    match (container.limits.get(resource), container.requests.get(resource)) {
        (None, None) => Asked::No,
        (Some(limit), Some(request)) if !same(limit, request) => {
            plan.refuse(
                role,
                "E-RES-UNEQUAL",
                format!("{resource}: limits say {limit}, requests say {request}; they must be equal"),
                "make them equal, or leave one out",
            );
            Asked::Unequal
        }
        (Some(amount), _) | (None, Some(amount)) => Asked::Yes(amount.clone()),
    }
}

/// Requests a resource, unless the user did: then the user's quantity stays, and is copied to the missing
/// side of limits and requests.
pub(crate) fn resource(
    plan: &mut PlanBuilder,
    role: RoleRef,
    rule: &'static str,
    (resource, quantity): (&str, &str),
    why: &str,
    origin: Origin,
) {
    let change =
        |quantity: &str| Change::Resource { name: resource.to_owned(), quantity: quantity.to_owned() };
    match asked(plan, role, resource) {
        Asked::Unequal => {}
        Asked::No => plan.op(role, rule, change(quantity), why, origin),
        Asked::Yes(own) => {
            let told = rule == "efa.devices" && plan.has_reported("W-EFA-PARTIAL");
            if !told && is_other(plan, &own, quantity) {
                plan.warn(
                    role,
                    "W-RES-KEPT",
                    format!("{resource}: the requested {own} is kept; {rule} would request {quantity}"),
                    format!("remove {resource} to get {quantity}"),
                );
            }
            let ContainerView { limits, requests, .. } = &role.container;
            match (limits.contains_key(resource), requests.contains_key(resource)) {
                (true, true) => plan.kept(role, rule, change(&own), "requested by the user, kept"),
                (true, false) => {
                    let why = "requested by the user; the API server copies the limit to the missing request";
                    plan.write_out(role, rule, change(&own), why);
                }
                (false, _) if matches!(resource, "cpu" | "memory") => {
                    plan.kept(role, rule, change(&own), "requested by the user, kept");
                }
                (false, _) => {
                    let why = "a device and huge pages are refused without a limit";
                    plan.op(role, rule, change(&own), why, Origin::Job);
                }
            }
        }
    }
}

/// Returns whether the user's quantity is to be told: where it is less than the rule's, or where the profile knows the
/// site's nodes. Elsewhere more takes nothing from the job.
fn is_other(plan: &PlanBuilder, own: &str, wanted: &str) -> bool {
    match (Quantity::parse(own), Quantity::parse(wanted)) {
        (Some(own), Some(wanted)) if !plan.profile.mounts_host_path() => own < wanted,
        _ => !same(own, wanted),
    }
}

/// Returns whether two quantities are equal; texts that are no quantities are compared as they are.
pub(crate) fn same(left: &str, right: &str) -> bool {
    match (Quantity::parse(left), Quantity::parse(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}
