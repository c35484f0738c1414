//! InfiniBand: a device, the right to pin memory, and NCCL's IB transport.

use super::{Context, Launch, efa_role, rdma_present, set};
use crate::fabric::builder::PlanBuilder;

/// Decides for a job, and returns whether it gets InfiniBand.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) -> bool {
    let Some(infiniband) = ctx.profile.infiniband.as_ref() else { return false };
    if !ctx.is_distributed_with_gpus(plan) || !ctx.devices_reach_workers(plan) {
        return false;
    }
    for role in ctx.workers().filter(|role| ctx.accelerators(role) > 0) {
        if plan.active("ib.devices") {
            let own = (infiniband.devices.as_deref(), &[][..]);
            if let Some(resource) = infiniband.devices.as_deref()
                && !rdma_present::report(plan, role, own, &[])
            {
                let count = infiniband.count.to_string();
                let why =
                    "the device plugin exposes /dev/infiniband only to a pod that requests its resource";
                set::resource(plan, role, "ib.devices", (resource, &count), why, ctx.of_profile());
            }
            if infiniband.memlock {
                efa_role::memlock(plan, role, "ib.devices", ctx.of_profile());
            }
        }
        if let Some(hca) = infiniband.hca.as_deref().filter(|_| plan.active("ib.hca")) {
            let why = "NCCL then uses the fabric's adapters and no other";
            set::env(plan, role, "ib.hca", ("NCCL_IB_HCA", hca), why, ctx.of_profile());
            launch.forward("ib.hca", "NCCL_IB_HCA");
        }
    }
    true
}
