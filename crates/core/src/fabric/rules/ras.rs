//! A separate port for NCCL's RAS service, where another job may run on the same nodes: both services would
//! listen on the same port, and only the first one gets it.

use weftrun_nccl::ras::ADDRESS_VARIABLE;

use super::{Context, Launch, set};
use crate::fabric::builder::PlanBuilder;
use crate::fabric::view::RoleView;
use crate::request::{Origin, RuleSetting};
use crate::text::fnv1a_32;

pub(crate) const RULE: &str = "observe.ras-addr";

/// Ports below the range that Linux gives to outgoing connections (32768 and above, `ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 28_100..32_700;

/// Gives a job its own port where the rule is switched on, and where a job file's pods are on the host's
/// network and use a part of their nodes' GPUs. Pods with their own network need none, and on Slurm it is
/// unknown whether jobs share nodes.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    let is_on = plan.settings.of(RULE) == RuleSetting::On;
    if !(ctx.is_job_file() || is_on) || !plan.active(RULE) {
        return;
    }
    let shares = |role: &RoleView| {
        let node = ctx.node(role);
        let own = ctx.accelerators(role);
        let on_host = role.host_network || ctx.profile.pod.host_network;
        own > 0 && (is_on || (on_host && !node.accelerators_assumed && own < node.accelerators))
    };
    let address = format!("localhost:{}", port(&ctx.job.name));
    let mut any = false;
    for role in ctx.workers().filter(|role| shares(role)) {
        let why = "another job may use the other GPUs of the node, and `weftrun health` must reach this one";
        set::env(plan, role, RULE, (ADDRESS_VARIABLE, &address), why, Origin::Default);
        any = true;
    }
    if any {
        launch.forward(RULE, ADDRESS_VARIABLE);
    }
}

/// Returns a port derived from the job's name. The hash is the same in every version, so every plan of a job gets the
/// same port. Jobs with the same name share it.
fn port(name: &str) -> u16 {
    let span = u32::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(fnv1a_32(name.as_bytes()) % span).unwrap_or(0)
}
