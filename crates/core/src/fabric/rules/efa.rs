//! AWS EFA: which jobs get it. What each role gets is in `efa_role.rs`.

use std::collections::BTreeSet;

use super::{Context, Launch, efa_role, opt_out, placement, rdma_present, webhook};
use crate::Finding;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::node::{Count, Node};
use crate::fabric::view::{JobKind, RoleView};
use crate::fabric::{EfaProfile, SkipReason, StackProfile};
use crate::request::{Fabric, Inject, Stack};

/// Paths that show that the job's image has the stack: AWS's installer, and a plugin built by hand.
const BUNDLED: [&str; 5] = [
    "/opt/amazon/efa",
    "/opt/amazon/openmpi", // and openmpi5
    "/opt/amazon/ofi-nccl",
    "/opt/aws-ofi-nccl",
    "/opt/amazon/aws-ofi-nccl",
];

/// Types whose EFA only communicates with the same type (EC2 User Guide, "Elastic Fabric Adapter",
/// limitations).
const KEEPS_TO_ITSELF: [&str; 3] = ["p4d.", "p4de.", "dl1."];

/// The parts of the profile that apply to this job.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) efa: &'a EfaProfile,
    /// None where the image has the stack.
    pub(crate) stack: Option<&'a StackProfile>,
    /// Whether the stack's environment is set: not where the job has its own.
    pub(crate) environment: bool,
}

/// Decides for a job, and returns whether it gets EFA.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) -> bool {
    let Some(efa) = ctx.profile.efa.as_ref() else { return false };
    if opt_out::job_is_out(ctx, plan) || !ctx.is_distributed_with_gpus(plan) || !eligible(ctx, plan) {
        return false;
    }
    rdma_present::report_beside_efa(ctx, plan);
    let parts = parts(ctx, plan, efa);
    launch.from_stack = parts.stack.is_some() && plan.active("efa.stack");
    for role in ctx.roles() {
        report_idle_gpus(ctx, plan, role);
        if !role.worker && opt_out::role_is_out(ctx, &role) {
            plan.warn(
                role,
                "W-OPTOUT-LAUNCHER",
                "the launcher opts out of EFA though its workers do not; it and its mpirun are left alone",
                "remove the annotation from the launcher, or put it on the workers too",
            );
            continue;
        }
        // A launcher without GPUs gets its files from weftrun even beside a webhook that injects.
        if ctx.options.inject == Inject::Client || !role.worker {
            efa_role::decide(ctx, plan, parts, role);
        }
    }
    webhook::decide(ctx, plan);
    if ctx.options.inject == Inject::Client {
        placement::decide(ctx, plan);
    }
    ask_of_launcher(ctx, plan, parts, launch);
    true
}

/// Returns whether every worker uses a whole node of a type that has EFA.
fn eligible(ctx: &Context, plan: &mut PlanBuilder) -> bool {
    let nodes: Vec<(RoleRef, Node)> = ctx.workers().map(|role| (role, ctx.node(&role))).collect();
    report_unknown_types(ctx, plan, &nodes);
    if !on_whole_nodes(ctx, plan, &nodes) {
        return false;
    }
    let efa = ctx.profile.efa.as_ref();
    let resource = efa.and_then(|efa| efa.devices.as_deref());
    let assumed = efa.is_some_and(|efa| efa.count > 0);
    for (role, node) in &nodes {
        let asks_none = |name: &str| role.container.asks(name).is_none();
        let (reason, why) = match &node.efa {
            Count::Known(0, _) => {
                let node = node.instance.as_deref().unwrap_or("the node");
                (SkipReason::NoEfaOnInstanceType, format!("{node} has no EFA interface"))
            }
            Count::Disputed(row) if resource.is_none_or(asks_none) => {
                let why = format!(
                    "the sources disagree whether {row} has EFA, request EFA explicitly (`fabric = \"efa\"`)"
                );
                (SkipReason::NoEfaOnInstanceType, why)
            }
            Count::Unknown if !assumed && resource.is_some_and(asks_none) => {
                let why = "the instance type is not known, and so not how many EFA interfaces a node has; a pod that requests \
                           more stays Pending. Name it: --instance-type, or a nodeSelector on node.kubernetes.io/instance-type";
                (SkipReason::InstanceUnknown, why.to_owned())
            }
            _ => continue,
        };
        plan.skip_fabric(Fabric::Efa, reason, format!("{}: {why}", role.name));
        return false;
    }
    if !ctx.devices_reach_workers(plan) {
        return false;
    }
    report_types_that_do_not_mix(plan, &nodes);
    true
}

impl Context<'_> {
    /// Returns whether a role requests fewer accelerators than a node is only assumed to have, and EFA itself: that may be
    /// all of a smaller node.
    pub(super) fn asks_for_efa_of_unknown_nodes(&self, role: &RoleView, node: &Node) -> bool {
        let resource = self.profile.efa.as_ref().and_then(|efa| efa.devices.as_deref());
        let asked = resource.and_then(|name| role.container.asks(name));
        node.accelerators_assumed
            && self.accelerators(role) < node.accelerators
            && asked.is_some_and(|amount| amount != "0")
    }
}

fn on_whole_nodes(ctx: &Context, plan: &mut PlanBuilder, nodes: &[(RoleRef, Node)]) -> bool {
    let (partial, whole): (Vec<_>, Vec<_>) = nodes.iter().partition(|(role, node)| {
        ctx.accelerators(role) < node.accelerators && !ctx.asks_for_efa_of_unknown_nodes(role, node)
    });
    let Some((role, node)) = partial.first() else { return true };
    let name = &role.name;
    if !whole.is_empty() {
        let whole: Vec<&str> = whole.iter().map(|(role, _)| role.name.as_str()).collect();
        let text = format!(
            "{} requests a whole node and {name} only a part; ranks with and without EFA cannot communicate, so EFA is not applied to any role",
            whole.join(", ")
        );
        let fix = format!("request {} accelerators in every worker role", node.accelerators);
        plan.warn(*role, "W-ROLES-MIXED", text, fix);
    }
    let (asked, all) = (ctx.accelerators(role), node.accelerators);
    let why = match &node.instance {
        _ if node.accelerators_assumed => format!(
            "{name} requests {asked} accelerators, and no instance type says how many its nodes have: without one, {all} are taken for a \
             whole node (profile {}), and EFA is for whole nodes",
            ctx.profile.name
        ),
        instance => {
            let of = instance.as_deref().unwrap_or("a node");
            format!("{name} requests {asked} of {all} accelerators of {of}, and EFA is for whole nodes")
        }
    };
    plan.skip_fabric(Fabric::Efa, SkipReason::PartialNode, why);
    false
}

/// Reports the assumptions made without an instance type.
fn report_unknown_types(ctx: &Context, plan: &mut PlanBuilder, nodes: &[(RoleRef, Node)]) {
    const CODE: &str = "W-INSTANCE-UNKNOWN";
    let fix = "name it: --instance-type, `instance_type` in the job file, or a nodeSelector on node.kubernetes.io/instance-type";
    for (role, node) in nodes {
        if let Some(unknown) = &node.unknown_type {
            let near = ctx.catalogue.nearest(unknown).map(|near| format!(" (near: {near})"));
            let text = format!("instance type {unknown} is not in the catalogue{}", near.unwrap_or_default());
            let fix = "`weftrun instances` lists them; `[instances.NAME]` in a config file adds one";
            plan.warn(*role, CODE, text, fix);
        } else if node.types_differ {
            let types = node.instance.as_deref().unwrap_or_default();
            let text = format!("{} may run on {types}, which differ; the lowest figure is used", role.name);
            plan.warn(*role, CODE, text, fix);
        } else if node.accelerators_assumed && !plan.has_reported(CODE) {
            let text = if ctx.asks_for_efa_of_unknown_nodes(role, node) {
                format!(
                    "no instance type is known, so neither whether {} accelerators and the requested EFA interfaces are all that a node \
                     has, nor whether it has RDMA read: nothing is added to them",
                    ctx.accelerators(role)
                )
            } else {
                format!(
                    "no instance type is known; {} accelerators are taken for a whole node (profile {})",
                    node.accelerators, ctx.profile.name
                )
            };
            plan.warn(*role, CODE, text, fix);
        }
    }
}

fn report_types_that_do_not_mix(plan: &mut PlanBuilder, nodes: &[(RoleRef, Node)]) {
    let family = |node: &Node| {
        let row = node.row.as_deref()?;
        Some(KEEPS_TO_ITSELF.iter().find(|prefix| row.starts_with(**prefix)).map_or("", |prefix| *prefix))
    };
    let families: BTreeSet<&str> = nodes.iter().filter_map(|(_, node)| family(node)).collect();
    if families.len() > 1 {
        let types: Vec<&str> = nodes.iter().filter_map(|(_, node)| node.row.as_deref()).collect();
        plan.report(
            Finding::error(
                "E-INSTANCE-MIXED",
                format!(
                    "workers run on {}; EFA of P4d, P4de and DL1 cannot interoperate with other instance types",
                    types.join(" and ")
                ),
            )
            .fix("put all worker roles on one instance type")
            .cite("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"),
        );
    }
}

fn parts<'a>(ctx: &Context<'a>, plan: &mut PlanBuilder, efa: &'a EfaProfile) -> Parts<'a> {
    let stack = ctx.profile.stack.as_ref();
    let shown = if ctx.options.stack == Stack::Auto { bundled_path(ctx) } else { None };
    if ctx.options.stack == Stack::Mounted || (ctx.options.stack == Stack::Auto && shown.is_none()) {
        return Parts { efa, stack, environment: true };
    }
    if let (Some((role, path)), Some(_)) = (shown, stack) {
        let text = format!(
            "{path} shows that the image brings its own stack; only devices and huge pages are added"
        );
        let fix = "--stack mounted mounts the node's all the same";
        plan.report(Finding::info("I-STACK-BUNDLED", text).at(&role.name).fix(fix));
    }
    Parts { efa, stack: None, environment: false }
}

/// Returns the first role, and the path in it, that names a stack of the image's own.
fn bundled_path<'a>(ctx: &Context<'a>) -> Option<(RoleRef<'a>, &'static str)> {
    ctx.roles().find_map(|role| {
        let values = role.container.env.iter().filter_map(|var| var.value.as_deref());
        let mut texts = role.container.argv().chain(values);
        let path = texts.find_map(|text| BUNDLED.into_iter().find(|path| text.contains(path)))?;
        Some((role, path))
    })
}

/// Reports GPUs of a launcher that is no worker, since mpi-operator empties its NVIDIA_VISIBLE_DEVICES.
fn report_idle_gpus(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    if ctx.job.kind == JobKind::MpiJobV2 && role.launcher && !role.worker && ctx.accelerators(&role) > 0 {
        plan.warn(
            role,
            "W-LAUNCHER-GPU",
            "the launcher requests GPUs, which mpi-operator hides from it; they stay idle",
            "remove them, or set runLauncherAsWorker: true",
        );
    }
}

/// Sets the wanted `mpirun` of the launcher.
fn ask_of_launcher(ctx: &Context, plan: &PlanBuilder, parts: Parts, launch: &mut Launch) {
    if ctx.job.kind == JobKind::PyTorchJob || !plan.active("efa.mpirun") {
        return;
    }
    if plan.active("efa.neuron") {
        efa_role::neuron_env(ctx, parts).for_each(|(name, _)| launch.forward("efa.neuron", name));
    }
    let Some(stack) = parts.stack else { return };
    launch.mpirun.bin.clone_from(&stack.mpirun_dir);
    launch.mpirun.library_dirs.clone_from(&stack.library_dirs);
    if plan.active("efa.library-path") {
        launch.forward("efa.mpirun", "LD_LIBRARY_PATH");
    }
    if plan.active("efa.opal-prefix") && stack.opal_prefix.is_some() {
        launch.forward("efa.mpirun", "OPAL_PREFIX");
    }
    if efa_role::device_rdma_applies(ctx, plan, parts) {
        launch.forward("efa.mpirun", "FI_EFA_USE_DEVICE_RDMA");
    }
}
