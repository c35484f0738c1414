//! `--strict`: NCCL fails where it would fall back to another network without a word.

use super::{Context, Launch, set};
use crate::fabric::{Fabric, Origin, RuleSetting};
use crate::mutation::draft::Draft;

const RULE: &str = "strict.net";

/// Pins the network of the fabric the job got.
pub(crate) fn decide(ctx: &Context, draft: &mut Draft, launch: &mut Launch) {
    let asked = ctx.options.strict || draft.settings.of(RULE) == RuleSetting::On;
    if !asked || !draft.active(RULE) {
        return;
    }
    // aws-ofi-nccl calls itself "Libfabric" since 1.13, and "AWS Libfabric" whenever NCCL_NET asks for that name, as
    // all versions before do (aws/aws-ofi-nccl, src/nccl_ofi_api.cpp, 2026-08).
    let net = match ctx.fabric {
        Fabric::Efa => "AWS Libfabric",
        Fabric::Roce | Fabric::InfiniBand => "IB",
        Fabric::Tcp => "Socket",
        Fabric::Auto | Fabric::Off => return,
    };
    let plugin = ctx.profile.stack.as_ref().and_then(|stack| stack.net_plugin.as_deref());
    let plugin = plugin.filter(|_| ctx.fabric == Fabric::Efa && draft.active("efa.stack"));
    let pins = [Some(("NCCL_NET", net)), plugin.map(|path| ("NCCL_NET_PLUGIN", path))];
    for (name, value) in pins.into_iter().flatten() {
        for (at, role) in ctx.workers() {
            let why = "--strict: NCCL fails if this network is not there, instead of using another";
            set::env(draft, at, role, RULE, (name, value), why, Origin::Job);
        }
        launch.forward(RULE, name);
    }
}
