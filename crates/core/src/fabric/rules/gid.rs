//! The RoCE GID index: left to NCCL, a number, or found inside the pod.

use super::{Context, Launch, set};
use crate::Finding;
use crate::fabric::Change;
use crate::fabric::RoceProfile;
use crate::fabric::draft::{At, Draft};
use crate::fabric::view::RoleView;
use crate::request::{Gid, Origin};
use crate::shell::gid;

const RULE: &str = "roce.gid";
const NAME: &str = "NCCL_IB_GID_INDEX";

/// Decides for one worker role.
pub(crate) fn decide(
    ctx: &Context,
    draft: &mut Draft,
    roce: &RoceProfile,
    at: At,
    role: &RoleView,
    launch: &mut Launch,
) {
    if !draft.active(RULE) {
        return;
    }
    match ctx.options.gid.unwrap_or(roce.gid) {
        Gid::Auto => {
            draft.skip_rule(RULE, "auto", "NCCL finds the GID index itself since 2.21; nothing is written");
        }
        Gid::Index(index) => {
            let why = "the index that was asked for; a wrong one makes NCCL fail with a hint that says so";
            let value = index.to_string();
            set::env(draft, at, role, RULE, (NAME, &value), why, Origin::Job);
            launch.forward(RULE, NAME);
        }
        Gid::Compute => wrap(ctx, draft, at, role),
    }
}

fn wrap(ctx: &Context, draft: &mut Draft, at: At, role: &RoleView) {
    const WHY: &str =
        "NCCL before 2.21 takes index 0; the wrapper finds the RoCE v2 one in the pod, then runs the command";
    let wrapper = gid::prefix();
    let container = &role.container;
    if role.container.env(NAME).is_some() {
        draft.skip_rule(RULE, "set-by-user", format!("{}: {NAME} is set already", at.name));
    } else if ctx.is_job_file() {
        draft.op(at, RULE, Change::Wrap { argv: wrapper }, WHY, Origin::Job);
    } else if gid::wrapped_from(&container.argv().collect::<Vec<_>>()).is_some() {
        let argv: Vec<String> = container.argv().map(ToOwned::to_owned).collect();
        let change =
            Change::Command { before: argv.clone(), after: argv, command_words: container.command.len() };
        draft.kept(at, RULE, &change, "wrapped already");
    } else if ctx.job.mpi.is_some() || container.command.is_empty() {
        draft.say(no_command(ctx, at));
    } else {
        let before: Vec<String> = container.argv().map(ToOwned::to_owned).collect();
        let command_words = wrapper.len() + container.command.len();
        let after = wrapper.into_iter().chain(before.iter().cloned()).collect();
        draft.op(at, RULE, Change::Command { before, after, command_words }, WHY, Origin::Job);
    }
}

fn no_command(ctx: &Context, at: At) -> Finding {
    let why = if ctx.job.mpi.is_some() {
        "the ranks are started through mpirun, not by this container's command, so it cannot be wrapped"
    } else {
        "the command of the image is not known here, so it cannot be wrapped"
    };
    Finding::error("E-ROCE-NOCMD", format!("--gid compute: {why}"))
        .at(at.name)
        .fix("write `command` out, or use --gid auto (NCCL ≥ 2.21) or a number")
}
