//! NCCL's own diagnostics, printed when a communicator starts.

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::request::{Origin, RuleSetting};

pub(crate) const RULE: &str = "observe.diagnostics";

/// What prints them (NCCL 2.31 and later; earlier releases ignore both). Neither ends a job, and the second takes seconds at the start of
/// each communicator: it writes to the other GPUs' memory, and between nodes it runs `ib_write_bw` where the image has it
/// (`docs/userguide/source/troubleshooting/diagnostics.rst` of NCCL 2.32.3, read 2026-11-25).
const VARIABLES: [(&str, &str, &str); 2] = [
    (
        "NCCL_RUN_RAS_DIAGNOSTICS",
        "1",
        "NCCL then compares drivers, NVLinks, memory errors and variables of all ranks, and prints what differs",
    ),
    (
        "NCCL_RUN_DIAGNOSTICS",
        "1",
        "NCCL then tests the traffic between GPUs and the bandwidth of each NIC, and prints which rank is slow",
    ),
];

/// Sets the variables where the rule is switched on, and never otherwise.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    if plan.settings.of(RULE) != RuleSetting::On || !plan.active(RULE) {
        return;
    }
    if ctx.skips_without_gpus(plan, RULE) {
        return;
    }
    for (name, value, why) in VARIABLES {
        set::env_of_workers(ctx, plan, launch, RULE, (name, value), why, &Origin::Default);
    }
}
