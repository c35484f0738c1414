//! The RoCE GID index: left to NCCL, a number, or determined inside the pod.

use super::{Context, Launch, set};
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::{Change, RoceProfile, SkipReason};
use crate::request::{Gid, Origin};
use crate::shell::gid;

const RULE: &str = "roce.gid";
const NAME: &str = "NCCL_IB_GID_INDEX";

/// Decides for one worker role.
pub(crate) fn decide(
    ctx: &Context,
    plan: &mut PlanBuilder,
    roce: &RoceProfile,
    role: RoleRef,
    launch: &mut Launch,
) {
    if !plan.active(RULE) {
        return;
    }
    match ctx.options.gid.unwrap_or(roce.gid) {
        Gid::Auto => {
            plan.skip_rule(
                RULE,
                SkipReason::Auto,
                "NCCL finds the GID index itself since 2.21; nothing is written",
            );
        }
        Gid::Index(index) => {
            let why = "the requested index; a wrong one makes NCCL fail with a message that names it";
            let value = index.to_string();
            set::env(plan, role, RULE, (NAME, &value), why, Origin::Job);
            launch.forward(RULE, NAME);
        }
        Gid::Compute => wrap(ctx, plan, role),
    }
}

fn wrap(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    const WHY: &str =
        "NCCL before 2.21 takes index 0; the wrapper finds the RoCE v2 one in the pod, then runs the command";
    let wrapper = gid::prefix();
    let container = &role.container;
    let before: Vec<String> = container.argv().map(ToOwned::to_owned).collect();
    if container.env(NAME).is_some() {
        plan.skip_rule(RULE, SkipReason::SetByUser, format!("{}: {NAME} is set already", role.name));
    } else if ctx.is_job_file() {
        plan.op(role, RULE, Change::Wrap { argv: wrapper }, WHY, Origin::Job);
    } else if gid::wrapped_from(&container.argv().collect::<Vec<_>>()).is_some() {
        let change =
            Change::Command { after: before.clone(), before, command_words: container.command.len() };
        plan.kept(role, RULE, change, "wrapped already");
    } else if ctx.job.mpi.is_some() || container.command.is_empty() {
        let why = if ctx.job.mpi.is_some() {
            "the ranks are started through mpirun, not by this container's command, so it cannot be wrapped"
        } else {
            "the command of the image is not known here, so it cannot be wrapped"
        };
        let fix = "write `command` out, or use --gid auto (NCCL ≥ 2.21) or a number";
        plan.refuse(role, "E-ROCE-NOCMD", format!("--gid compute: {why}"), fix);
    } else {
        let command_words = wrapper.len() + container.command.len();
        let after = wrapper.into_iter().chain(before.iter().cloned()).collect();
        plan.op(role, RULE, Change::Command { before, after, command_words }, WHY, Origin::Job);
    }
}
