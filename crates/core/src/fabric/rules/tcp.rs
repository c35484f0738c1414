//! Plain TCP, where it was asked for.

use super::{Context, Launch, set};
use crate::fabric::draft::Draft;
use crate::request::Origin;

/// Keeps NCCL on sockets, and says whether it does.
pub(crate) fn decide(ctx: &Context, draft: &mut Draft, launch: &mut Launch) -> bool {
    if !ctx.is_distributed_with_gpus(draft) {
        return false;
    }
    if draft.active("tcp.socket") {
        for (at, role) in ctx.workers() {
            let why = "NCCL would use any RDMA device it finds, though plain TCP was asked for";
            set::env(draft, at, role, "tcp.socket", ("NCCL_NET", "Socket"), why, Origin::Job);
        }
        launch.forward("tcp.socket", "NCCL_NET");
    }
    true
}
