//! `--strict`: NCCL fails where it would silently fall back to another network.

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::request::{Fabric, Origin, RuleSetting};

const RULE: &str = "strict.net";

/// Pins the network of the fabric the job got.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    let asked = ctx.options.strict || plan.settings.of(RULE) == RuleSetting::On;
    if !asked || !plan.active(RULE) {
        return;
    }
    // aws-ofi-nccl names itself "Libfabric" since 1.13, and "AWS Libfabric" whenever NCCL_NET has that
    // name, as all versions before do (aws/aws-ofi-nccl, src/nccl_ofi_api.cpp, 2026-08).
    let net = match ctx.fabric {
        Fabric::Efa => "AWS Libfabric",
        Fabric::Roce | Fabric::InfiniBand => "IB",
        Fabric::Tcp => "Socket",
        Fabric::Auto | Fabric::Off => return,
    };
    let plugin = plugin(ctx, launch);
    let pins = [Some(("NCCL_NET", net)), plugin.map(|path| ("NCCL_NET_PLUGIN", path))];
    let by_name = if ctx.fabric == Fabric::Efa && plugin.is_none() {
        "; the profile names no file of the plugin, so it is pinned by its name"
    } else {
        ""
    };
    let why = format!("--strict: NCCL fails if this network is not there, instead of using another{by_name}");
    for pin in pins.into_iter().flatten() {
        set::env_of_workers(ctx, plan, launch, RULE, pin, &why, &Origin::Job);
    }
}

/// Returns the plugin's file, if the profile has it: that of the mounted stack, else that of the image or
/// node.
fn plugin<'p>(ctx: &Context<'p>, launch: &Launch) -> Option<&'p str> {
    let (stack, efa) = (ctx.profile.stack.as_ref(), ctx.profile.efa.as_ref());
    let path = match ctx.fabric {
        Fabric::Efa if launch.from_stack => &stack?.net_plugin,
        Fabric::Efa => &efa?.net_plugin,
        _ => return None,
    };
    path.as_deref()
}
