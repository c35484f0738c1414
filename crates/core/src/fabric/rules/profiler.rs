//! weftrun's library for NCCL's profiler interface, which each backend brings with the job.

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::fabric::op::PROFILER_PATH;
use crate::fabric::{Change, SkipReason};
use crate::request::{Origin, RuleSetting};

/// The id of the rule that brings weftrun's library for NCCL.
pub const RULE: &str = "observe.profiler";
const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";
const LINES: &str =
    "the library writes a few lines to the rank's log each time, which `weftrun logs` leaves out";
/// What is set beside the library, and why. Every 5 s the log of a rank grows by about 1 MB an hour: nodes of Kubernetes keep 50 MB
/// of a container's log by default. Of broadcasts: <https://github.com/NVIDIA/nccl/pull/2369>, open on 2026-11-26.
const OPTIONS: [(&str, &str, &str); 3] = [
    ("WEFTRUN_NCCL_OUT", "stderr", LINES),
    ("WEFTRUN_NCCL_MS", "5000", LINES),
    (
        "NCCL_ALLGATHERV_ENABLE",
        "0",
        "after a broadcast, NCCL 2.29.2 to 2.32 gives a profiler the times of other operations unless this is 0; \
         broadcasts that a program groups run one by one then",
    ),
];

/// Names the library where it was asked for. NCCL loads one profiler: that of the user or the profile stays.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    let asked = ctx.options.bandwidth || plan.settings.of(RULE) == RuleSetting::On;
    if !asked || !plan.active(RULE) {
        return;
    }
    if !ctx.is_job_file() {
        let why = "the library is brought by a backend, which makes the objects of a job file only";
        return plan.skip_rule(RULE, SkipReason::NotExpressible, why);
    }
    if ctx.skips_without_gpus(plan, RULE) {
        return;
    }
    for role in ctx.workers() {
        let in_profile = |wanted: &str| {
            plan.changes().find_map(|(of, change)| match change {
                Change::Env { name, value } if *of == role.name && name == wanted => Some(value.clone()),
                _ => None,
            })
        };
        let options: Vec<_> = OPTIONS.iter().filter(|(name, ..)| in_profile(name).is_none()).collect();
        if let Some(value) = in_profile(PLUGIN) {
            let text =
                format!("{PLUGIN} is `{value}`, set by the profile, and stays: NCCL loads one profiler");
            plan.warn(
                role,
                "W-ENV-KEPT",
                text,
                format!("remove it from the profile, or switch `{RULE}` off"),
            );
            plan.kept(role, RULE, Change::env(PLUGIN, &value), "set by the profile, kept");
            continue;
        }
        let why = "NCCL loads the library and tells it when each collective begins and ends";
        set::env(plan, role, RULE, (PLUGIN, PROFILER_PATH), why, Origin::Default);
        if role.container.env(PLUGIN).is_some() {
            continue;
        }
        for (name, value, why) in options {
            // The user's own value of a setting of the library is meant; another one of NCCL's spoils the times, and is reported.
            let is_free = name.starts_with("NCCL_") || role.container.env(name).is_none();
            if is_free {
                set::env(plan, role, RULE, (name, value), why, Origin::Default);
            }
        }
    }
    launch.forward(RULE, PLUGIN);
    OPTIONS.iter().for_each(|(name, _, _)| launch.forward(RULE, name));
}
