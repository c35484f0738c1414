//! RoCE: a Multus network, an RDMA device, the right to pin memory, and NCCL's IB transport.

use super::rdma_present::{self, NETWORKS};
use super::{Context, Launch, efa_role, gid, networks, set};
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::{Change, RoceProfile, SkipReason, merge};
use crate::request::Origin;
use crate::text::Quantity;

const THREADS: &str = "roce.socket-threads";
/// Most sockets NCCL opens between two ranks: the product of the two settings (NCCL user guide, NCCL_NSOCKS_PERTHREAD).
const MOST_SOCKETS: u64 = 64;

/// Decides for a job, and returns whether it gets RoCE. Parts of nodes are supported, whole ones are
/// better.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) -> bool {
    let Some(roce) = ctx.profile.roce.as_ref() else { return false };
    if !ctx.is_distributed_with_gpus(plan) || !ctx.devices_reach_workers(plan) {
        return false;
    }
    for role in ctx.workers().filter(|role| ctx.accelerators(role) > 0) {
        let own = (roce.devices.as_deref(), own_networks(ctx, roce));
        let asks = own.0.is_some() || !own.1.is_empty();
        if asks && !rdma_present::report(plan, role, own, &["roce.network", "roce.devices"]) {
            network(ctx, plan, roce, role);
            devices(ctx, plan, roce, role);
        }
        if roce.memlock && plan.active("roce.memlock") {
            efa_role::memlock(plan, role, "roce.memlock", ctx.of_profile());
        }
        environment(ctx, plan, roce, role, launch);
        gid::decide(ctx, plan, roce, role, launch);
    }
    true
}

/// Returns the requested networks, else the profile's.
fn own_networks<'c>(ctx: &Context<'c>, roce: &'c RoceProfile) -> &'c [String] {
    if ctx.options.networks.is_empty() { &roce.networks } else { &ctx.options.networks }
}

fn network(ctx: &Context, plan: &mut PlanBuilder, roce: &RoceProfile, role: RoleRef) {
    const RULE: &str = "roce.network";
    let names = own_networks(ctx, roce);
    let origin = if ctx.options.networks.is_empty() { ctx.of_profile() } else { Origin::Job };
    if names.is_empty() || !plan.active(RULE) {
        return;
    }
    if roce.network_per_device && !plan.active("roce.devices") {
        plan.skip_rule(
            RULE,
            SkipReason::DependsOn,
            "each device has its network here, and `roce.devices` is switched off",
        );
        return;
    }
    networks::check_attachments(ctx, plan, role, names);
    let times = if roce.network_per_device { device_count(ctx, roce, role) } else { 1 };
    let times = usize::try_from(times).unwrap_or(usize::MAX).min(64);
    let wanted: Vec<(String, usize)> = names.iter().map(|name| (name.clone(), times)).collect();
    let existing = role.annotations.get(NETWORKS).and_then(|value| value.text());
    let change = |value: &str| Change::annotation(NETWORKS, value);
    match merge::networks(existing, &wanted, ctx.job.namespace.as_deref()) {
        Ok(None) => plan.kept(role, RULE, change(existing.unwrap_or_default()), "already there"),
        Ok(Some(value)) => {
            plan.op(
                role,
                RULE,
                change(&value),
                "the pod gets the RDMA interface through this network",
                origin,
            );
        }
        Err(why) => plan.refuse(
            role,
            "E-ROCE-NETWORKS",
            format!("the annotation {NETWORKS} cannot be read: {why}"),
            "write `namespace/name,namespace/name`, or a JSON list of {\"name\", \"namespace\"}",
        ),
    }
}

/// Returns how many devices a pod requests: the user's number, the catalogue's where its resource is this
/// one, or the profile's.
fn device_count(ctx: &Context, roce: &RoceProfile, role: RoleRef) -> u64 {
    let Some(resource) = roce.devices.as_deref() else { return u64::from(roce.count) };
    match role.container.asks(resource).and_then(Quantity::parse) {
        Some(own) => own.whole(),
        None => u64::from(wanted_count(ctx, roce, role).0),
    }
}

fn wanted_count(ctx: &Context, roce: &RoceProfile, role: RoleRef) -> (u32, Origin) {
    let row = ctx.node(&role).row.and_then(|name| ctx.catalogue.get(&name));
    let row = row.filter(|row| row.fabric_resource.is_some() && row.fabric_resource == roce.devices);
    match row.and_then(|row| Some((row.fabric_resource_count?, &row.name))) {
        Some((count, name)) => (count, Origin::Catalogue(name.clone())),
        None => (roce.count, ctx.of_profile()),
    }
}

fn devices(ctx: &Context, plan: &mut PlanBuilder, roce: &RoceProfile, role: RoleRef) {
    let Some(resource) = roce.devices.as_deref().filter(|_| plan.active("roce.devices")) else { return };
    let (count, origin) = wanted_count(ctx, roce, role);
    let why = "the device plugin exposes /dev/infiniband only to a pod that requests its resource";
    set::resource(plan, role, "roce.devices", (resource, &count.to_string()), why, origin);
}

/// Returns whether the user's one number and the profile's other one make more sockets than NCCL allows;
/// then only the user's is set.
fn too_many_sockets(plan: &mut PlanBuilder, roce: &RoceProfile, role: RoleRef) -> bool {
    let number = |name: &str, ours: &Option<String>| {
        let own = role.container.env(name).and_then(|var| var.value.clone());
        own.or_else(|| ours.clone())?.trim().parse::<u64>().ok()
    };
    let threads = number("NCCL_SOCKET_NTHREADS", &roce.socket_threads);
    let sockets = number("NCCL_NSOCKS_PERTHREAD", &roce.sockets_per_thread);
    let many =
        threads.zip(sockets).is_some_and(|(threads, sockets)| threads.saturating_mul(sockets) > MOST_SOCKETS);
    if many {
        let why = format!(
            "{}: with the value the user set, NCCL would have more than {MOST_SOCKETS} sockets",
            role.name
        );
        plan.skip_rule(THREADS, SkipReason::SetByUser, why);
    }
    many
}

fn environment(
    ctx: &Context,
    plan: &mut PlanBuilder,
    roce: &RoceProfile,
    role: RoleRef,
    launch: &mut Launch,
) {
    let threads = "what still goes over sockets uses more of them";
    let settings = [
        ("roce.hca", "NCCL_IB_HCA", &roce.hca, "NCCL then uses the fabric's adapters and no other"),
        (THREADS, "NCCL_SOCKET_NTHREADS", &roce.socket_threads, threads),
        (THREADS, "NCCL_NSOCKS_PERTHREAD", &roce.sockets_per_thread, threads),
    ];
    for (rule, name, value, why) in settings {
        if rule == THREADS && too_many_sockets(plan, roce, role) {
            continue;
        }
        if let Some(value) = value.as_deref().filter(|_| plan.active(rule)) {
            set::env(plan, role, rule, (name, value), why, ctx.of_profile());
            launch.forward(rule, name);
        }
    }
}
