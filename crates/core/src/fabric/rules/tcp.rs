//! Plain TCP, where it was requested.

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::request::Origin;

/// Restricts NCCL to sockets, and returns whether it applies.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) -> bool {
    if !ctx.is_distributed_with_gpus(plan) {
        return false;
    }
    if plan.active("tcp.socket") {
        for (at, role) in ctx.workers() {
            let why = "NCCL would use any RDMA device it finds, although plain TCP was requested";
            set::env(plan, at, role, "tcp.socket", ("NCCL_NET", "Socket"), why, Origin::Job);
        }
        launch.forward("tcp.socket", "NCCL_NET");
    }
    true
}
