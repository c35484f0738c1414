//! Detection: NCCL logs its transports only with `NCCL_DEBUG=INFO`.

use super::{Context, Launch, set};
use crate::fabric::Change;
use crate::fabric::builder::PlanBuilder;
use crate::request::{Origin, RuleSetting};

pub(crate) const RULE: &str = "detect.nccl-debug";
const NAME: &str = "NCCL_DEBUG";

/// Enables NCCL's own log where the user set nothing: in job files, and in raw manifests where it is
/// requested.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    let asked = ctx.options.detect.unwrap_or(ctx.is_job_file()) || plan.settings.of(RULE) == RuleSetting::On;
    if !asked || !plan.active(RULE) {
        return;
    }
    if ctx.skips_without_gpus(plan, RULE) {
        return;
    }
    for role in ctx.workers() {
        match role.container.env(NAME) {
            None => {
                let why = "NCCL logs its transport only with NCCL_DEBUG=INFO";
                set::env(plan, role, RULE, (NAME, "INFO"), why, Origin::Default);
            }
            Some(var) => {
                let own = var.value.as_deref().unwrap_or("a value from elsewhere");
                let shown = if var.value.is_some() { format!("`{own}`") } else { own.to_owned() };
                plan.kept(role, RULE, Change::env(NAME, own), "set by the user, kept");
                if !speaks_of_transports(own) {
                    plan.warn(
                        role,
                        "W-ENV-KEPT",
                        format!("NCCL_DEBUG is {shown}, set by the user, and stays; the transports will be unknown"),
                        "set NCCL_DEBUG=INFO, or remove it",
                    );
                }
            }
        }
    }
    launch.forward(RULE, NAME);
}

fn speaks_of_transports(level: &str) -> bool {
    ["INFO", "TRACE"].iter().any(|known| level.eq_ignore_ascii_case(known))
}
