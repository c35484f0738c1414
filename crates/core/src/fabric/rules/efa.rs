//! AWS EFA: which jobs get it. What each role gets is in `efa_role.rs`.

use super::{Context, Launch, efa_role, opt_out, placement, rdma_present, webhook};
use crate::Finding;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::node::{Count, Node};
use crate::fabric::view::{JobKind, RoleView};
use crate::fabric::{EfaProfile, StackProfile};
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
    for (at, role) in ctx.roles() {
        report_idle_gpus(ctx, plan, at, role);
        if !role.worker && opt_out::role_is_out(ctx, role) {
            plan.warn(
                at,
                "W-OPTOUT-LAUNCHER",
                "the launcher opts out of EFA though its workers do not; it and its mpirun are left alone",
                "remove the annotation from the launcher, or put it on the workers too",
            );
            continue;
        }
        // A launcher without GPUs gets its files from weftrun even beside a webhook that injects.
        if ctx.options.inject == Inject::Client || !role.worker {
            efa_role::decide(ctx, plan, parts, at, role);
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
    let nodes: Vec<(&str, &RoleView, Node)> =
        ctx.workers().map(|(at, role)| (at.name, role, ctx.node(role))).collect();
    report_unknown_types(ctx, plan, &nodes);
    if !on_whole_nodes(ctx, plan, &nodes) {
        return false;
    }
    for (name, role, node) in &nodes {
        let type_name = node.instance.clone().unwrap_or_else(|| "the node".to_owned());
        let asked = ctx
            .profile
            .efa
            .as_ref()
            .and_then(|efa| efa.devices.as_deref())
            .and_then(|r| role.container.asks(r));
        match &node.efa {
            Count::Known(0, _) => {
                let why = format!("{name}: {type_name} has no EFA interface");
                plan.skip_fabric(Fabric::Efa, "no-efa-on-instance-type", why);
                return false;
            }
            Count::Disputed(row) if asked.is_none() => {
                let why = format!(
                    "{name}: the sources disagree whether {row} has EFA, request EFA explicitly (`fabric = \"efa\"`)"
                );
                plan.skip_fabric(Fabric::Efa, "no-efa-on-instance-type", why);
                return false;
            }
            _ => {}
        }
    }
    if !ctx.devices_reach_workers(plan) {
        return false;
    }
    report_types_that_do_not_mix(plan, &nodes);
    true
}

fn on_whole_nodes(ctx: &Context, plan: &mut PlanBuilder, nodes: &[(&str, &RoleView, Node)]) -> bool {
    let part = |(_, role, node): &&(&str, &RoleView, Node)| ctx.accelerators(role) < node.accelerators;
    let partial: Vec<_> = nodes.iter().filter(part).collect();
    let Some((name, role, node)) = partial.first() else { return true };
    if partial.len() < nodes.len() {
        let whole: Vec<&str> = nodes.iter().filter(|entry| !part(entry)).map(|(name, _, _)| *name).collect();
        plan.report(
            Finding::warning(
                "W-ROLES-MIXED",
                format!(
                    "{} asks a whole node and {name} only a part; ranks with and without EFA cannot talk, so none gets it",
                    whole.join(", ")
                ),
            )
            .at(*name)
            .fix(format!("ask {} accelerators in every worker role", node.accelerators)),
        );
    }
    let why = format!(
        "{name} asks {} of {} accelerators of {}, and EFA is for whole nodes",
        ctx.accelerators(role),
        node.accelerators,
        node.instance.as_deref().unwrap_or("a node"),
    );
    plan.skip_fabric(Fabric::Efa, "partial-node", why);
    false
}

/// Reports the assumptions made without an instance type.
fn report_unknown_types(ctx: &Context, plan: &mut PlanBuilder, nodes: &[(&str, &RoleView, Node)]) {
    for (name, _, node) in nodes {
        let fix = "name it: --instance-type, `instance_type` in the job file, or a nodeSelector on node.kubernetes.io/instance-type";
        if let Some(unknown) = &node.unknown_type {
            let near =
                ctx.catalogue.nearest(unknown).map_or_else(String::new, |near| format!(" (near: {near})"));
            plan.report(
                Finding::warning(
                    "W-INSTANCE-UNKNOWN",
                    format!("instance type {unknown} is not in the catalogue{near}"),
                )
                .at(*name)
                .fix("`weftrun instances` lists them; `[instances.NAME]` in a config file adds one"),
            );
        } else if node.types_differ {
            let types = node.instance.as_deref().unwrap_or_default();
            plan.report(
                Finding::warning(
                    "W-INSTANCE-UNKNOWN",
                    format!("{name} may stand on {types}, which differ; the least of them is taken"),
                )
                .at(*name)
                .fix(fix),
            );
        } else if node.accelerators_assumed && !plan.has_reported("W-INSTANCE-UNKNOWN") {
            plan.report(
                Finding::warning(
                    "W-INSTANCE-UNKNOWN",
                    format!(
                        "no instance type is known; {} accelerators are taken for a whole node (profile {})",
                        node.accelerators, ctx.profile.name
                    ),
                )
                .at(*name)
                .fix(fix),
            );
        }
    }
}

fn report_types_that_do_not_mix(plan: &mut PlanBuilder, nodes: &[(&str, &RoleView, Node)]) {
    let family = |node: &Node| {
        let row = node.row.as_deref()?;
        Some(KEEPS_TO_ITSELF.iter().find(|prefix| row.starts_with(**prefix)).map_or("", |prefix| *prefix))
    };
    let mut families: Vec<&str> = nodes.iter().filter_map(|(_, _, node)| family(node)).collect();
    families.sort_unstable();
    families.dedup();
    if families.len() > 1 {
        let types: Vec<&str> = nodes.iter().filter_map(|(_, _, node)| node.row.as_deref()).collect();
        plan.report(
            Finding::error(
                "E-INSTANCE-MIXED",
                format!(
                    "workers stand on {}; EFA of P4d, P4de and DL1 cannot interoperate with other instance types",
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
    let shown = match ctx.options.stack {
        Stack::Mounted => None,
        Stack::Bundled => return Parts { efa, stack: None, environment: false },
        Stack::Auto => bundled_path(ctx),
    };
    match shown {
        Some((role, path)) if stack.is_some() => {
            plan.report(
                Finding::info(
                    "I-STACK-BUNDLED",
                    format!("{path} shows that the image brings its own stack; only devices and huge pages are asked"),
                )
                .at(role)
                .fix("--stack mounted mounts the node's all the same"),
            );
            Parts { efa, stack: None, environment: false }
        }
        Some(_) => Parts { efa, stack: None, environment: false },
        None => Parts { efa, stack, environment: true },
    }
}

/// Returns the first role, and the path in it, that names a stack of the image's own.
fn bundled_path<'a>(ctx: &Context<'a>) -> Option<(&'a str, &'static str)> {
    ctx.roles().find_map(|(at, role)| {
        let values = role.container.env.iter().filter_map(|var| var.value.as_deref());
        role.container
            .argv()
            .chain(values)
            .find_map(|text| BUNDLED.iter().find(|path| text.contains(**path)))
            .map(|path| (at.name, *path))
    })
}

/// Reports GPUs of a launcher that is no worker, since mpi-operator empties its NVIDIA_VISIBLE_DEVICES.
fn report_idle_gpus(ctx: &Context, plan: &mut PlanBuilder, at: RoleRef, role: &RoleView) {
    if ctx.job.kind == JobKind::MpiJobV2 && role.launcher && !role.worker && ctx.accelerators(role) > 0 {
        plan.warn(
            at,
            "W-LAUNCHER-GPU",
            "the launcher asks GPUs, which mpi-operator hides from it; they stay idle",
            "remove them, or set runLauncherAsWorker: true",
        );
    }
}

/// Sets the wanted `mpirun` of the launcher.
fn ask_of_launcher(ctx: &Context, plan: &PlanBuilder, parts: Parts, launch: &mut Launch) {
    if ctx.job.kind == JobKind::PyTorchJob || !plan.active("efa.mpirun") {
        return;
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
