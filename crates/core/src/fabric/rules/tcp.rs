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
        let why = "NCCL would use any RDMA device it finds, although plain TCP was requested";
        let value = ("NCCL_NET", "Socket");
        set::env_of_workers(ctx, plan, launch, "tcp.socket", value, why, &Origin::Job);
    }
    true
}
