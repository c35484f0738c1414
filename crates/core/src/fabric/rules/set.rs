//! The two operations of all rules: set a variable the user has not set, and request a resource the user
//! has not requested.

use crate::fabric::Change;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::RoleView;
use crate::request::Origin;
use crate::text::Quantity;

/// Sets a variable, unless the user did: then the user's value stays, and is reported where it differs.
pub(crate) fn env(
    plan: &mut PlanBuilder,
    at: RoleRef,
    role: &RoleView,
    rule: &'static str,
    (name, value): (&str, &str),
    why: &str,
    origin: Origin,
) {
    let change = |value: &str| Change::Env { name: name.to_owned(), value: value.to_owned() };
    match role.container.env(name).map(|var| var.value.as_deref()) {
        None => plan.op(at, rule, change(value), why, origin),
        Some(Some(own)) if own == value => plan.kept(at, rule, &change(value), "already there"),
        Some(own) => {
            let shown =
                own.map_or_else(|| "a value from elsewhere (valueFrom)".to_owned(), |own| format!("`{own}`"));
            plan.kept(at, rule, &change(own.unwrap_or("valueFrom")), "set by the user, kept");
            plan.warn(
                at,
                "W-ENV-KEPT",
                format!("{name} is {shown}, set by the user, and stays; {rule} would set `{value}`"),
                format!("remove {name}, or switch `{rule}` off to silence this"),
            );
        }
    }
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
pub(crate) fn asked(plan: &mut PlanBuilder, at: RoleRef, role: &RoleView, resource: &str) -> Asked {
    let container = &role.container;
    match (container.limits.get(resource), container.requests.get(resource)) {
        (None, None) => Asked::No,
        (Some(limit), Some(request)) if !same(limit, request) => {
            plan.refuse(
                at,
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
/// side of limits and requests. Returns whether the resource is requested now, and whether the user
/// requested it.
pub(crate) fn resource(
    plan: &mut PlanBuilder,
    at: RoleRef,
    role: &RoleView,
    rule: &'static str,
    (resource, quantity): (&str, &str),
    why: &str,
    origin: Origin,
) {
    let change =
        |quantity: &str| Change::Resource { name: resource.to_owned(), quantity: quantity.to_owned() };
    match asked(plan, at, role, resource) {
        Asked::Unequal => {}
        Asked::No => plan.op(at, rule, change(quantity), why, origin),
        Asked::Yes(own) => {
            if !same(&own, quantity) {
                plan.warn(
                    at,
                    "W-RES-KEPT",
                    format!("{resource}: the user asks {own}, which stays; {rule} would ask {quantity}"),
                    format!("remove {resource} to get {quantity}"),
                );
            }
            keep_resource(plan, at, role, rule, resource, &own);
        }
    }
}

/// Keeps the user's quantity, and copies it to the missing side of limits and requests.
pub(crate) fn keep_resource(
    plan: &mut PlanBuilder,
    at: RoleRef,
    role: &RoleView,
    rule: &'static str,
    resource: &str,
    own: &str,
) {
    let change = Change::Resource { name: resource.to_owned(), quantity: own.to_owned() };
    let container = &role.container;
    if container.limits.contains_key(resource) && container.requests.contains_key(resource) {
        plan.kept(at, rule, &change, "asked by the user, kept");
    } else {
        let why = "asked by the user on one side of limits and requests; both must say it";
        plan.op(at, rule, change, why, Origin::Job);
    }
}

/// Returns whether two quantities are equal; texts that are no quantities are compared as they are.
pub(crate) fn same(left: &str, right: &str) -> bool {
    match (Quantity::parse(left), Quantity::parse(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}
