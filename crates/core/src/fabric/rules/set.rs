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
            if !same(&own, quantity) {
                plan.warn(
                    role,
                    "W-RES-KEPT",
                    format!("{resource}: the requested {own} is kept; {rule} would request {quantity}"),
                    format!("remove {resource} to get {quantity}"),
                );
            }
            let ContainerView { limits, requests, .. } = &role.container;
            let both = limits.contains_key(resource) && requests.contains_key(resource);
            let why = "the user sets only one of limits and requests; both must be set";
            let kept = both.then_some("requested by the user, kept");
            plan.ensure(role, rule, change(&own), kept, why, Origin::Job);
        }
    }
}

/// Returns whether two quantities are equal; texts that are no quantities are compared as they are.
pub(crate) fn same(left: &str, right: &str) -> bool {
    match (Quantity::parse(left), Quantity::parse(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}
