//! AWS EFA: what one role gets.

use super::efa::Parts;
use super::{Context, set};
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::node::{Count, Node};
use crate::fabric::view::{ContainerView, JobKind, RoleView};
use crate::fabric::{Change, SkipReason, StackProfile, merge};
use crate::request::{Origin, RuleSetting};
use crate::text::{Quantity, counted};
use crate::{Confidence, Finding};

const DEVICE_RDMA: &str = "FI_EFA_USE_DEVICE_RDMA";
const HUGEPAGES: &str = "hugepages-2Mi";
/// Huge pages that a worker would get are left out.
const NO_PAGES: &str = "I-HUGEPAGES-OMITTED";

/// Decides for one role: files, environment, devices.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef) {
    if !role.worker && !role.launcher {
        return;
    }
    if let Some(stack) = parts.stack {
        if plan.active("efa.stack") {
            mount(ctx, plan, stack, role);
        }
        if plan.active("efa.library-path") {
            library_path(ctx, plan, stack, role);
        }
        if plan.active("efa.opal-prefix") {
            opal_prefix(ctx, plan, stack, role);
        }
    } else if parts.environment && role.container.image.is_none() {
        match ctx.job.kind {
            JobKind::JobFile => node_library_path(ctx, plan, role),
            JobKind::Sbatch if !ctx.profile.node.library_dirs.is_empty() => {
                let why =
                    "a script keeps the libraries of its own environment; its import switches the rule off";
                plan.skip_rule("efa.library-path", SkipReason::SetByUser, why);
            }
            _ => {}
        }
    }
    if parts.environment
        && role.worker
        && plan.active("efa.gdrcopy")
        && let Some(value) = &parts.efa.gdrcopy
    {
        let why = "the container toolkit then adds /dev/gdrdrv, for small messages between GPU and NIC";
        set::env(plan, role, "efa.gdrcopy", ("NVIDIA_GDRCOPY", value), why, ctx.of_profile());
    }
    device_rdma(ctx, plan, parts, role);
    if plan.active("efa.neuron") && (role.worker || ctx.job.mpi.is_some()) {
        neuron(ctx, plan, parts, role);
    }
    if role.worker {
        devices(ctx, plan, parts, role);
        if parts.efa.memlock && plan.active("efa.memlock") {
            memlock(plan, role, "efa.memlock", ctx.of_profile());
        }
    }
}

/// Adds the capability that pinning memory needs.
pub(crate) fn memlock(plan: &mut PlanBuilder, role: RoleRef, rule: &'static str, origin: Origin) {
    let has = |name: &String| matches!(name.as_str(), "IPC_LOCK" | "ALL");
    let there = role.container.privileged || role.container.capabilities.iter().any(has);
    let change = Change::Capability { name: "IPC_LOCK".to_owned() };
    let why = "RDMA pins the memory it sends from";
    plan.ensure(role, rule, change, there.then_some("already there"), why, origin);
}

fn mount(ctx: &Context, plan: &mut PlanBuilder, stack: &StackProfile, role: RoleRef) {
    let change = Change::Mount {
        name: stack.volume.clone(),
        host_path: stack.host_path.clone(),
        mount_path: stack.mount_path.clone(),
        read_only: true,
    };
    let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
    if role.container.mounts.iter().any(|mount| trimmed(&mount.path) == trimmed(&stack.mount_path)) {
        plan.kept(role, "efa.stack", change, "something is mounted there already");
    } else if let Some(volume) = role.volumes.iter().find(|volume| volume.name == stack.volume)
        && volume.host_path.as_deref().map(trimmed) != Some(trimmed(&stack.host_path))
    {
        plan.refuse(
            role,
            "E-VOLUME-NAME",
            format!(
                "a volume named {} is there already, and is not the node's {}",
                stack.volume, stack.host_path
            ),
            "rename that volume",
        );
    } else {
        let why = format!("NCCL reaches EFA through the libraries in {} of the node", stack.host_path);
        plan.op(role, "efa.stack", change, why, ctx.of_profile());
    }
    if !role.worker {
        launcher_node(ctx, plan, stack, role);
    }
}

/// Keeps a launcher without GPUs off nodes without the stack.
fn launcher_node(ctx: &Context, plan: &mut PlanBuilder, stack: &StackProfile, role: RoleRef) {
    let labels = &ctx.profile.launcher.node_selector;
    for (key, value) in labels {
        let chosen = role.node_selector.contains_key(key).then_some("the user chose the node");
        let why = format!("only nodes with this label have {}", stack.host_path);
        plan.ensure(role, "efa.stack", Change::node_selector(key, value), chosen, why, ctx.of_profile());
    }
    if labels.is_empty() {
        plan.warn(
            role,
            "W-LAUNCHER-HOSTPATH",
            format!("the launcher requests no GPU, but its node must have {}", stack.host_path),
            "give it a nodeSelector of the GPU nodes, or the profile a [launcher.node-selector]",
        );
    }
}

/// Sets the library path of a job without a container, which uses the node's libraries; the profile has
/// their folders.
fn node_library_path(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    let dirs = &ctx.profile.node.library_dirs;
    if dirs.is_empty() || !role.worker || !plan.active("efa.library-path") {
        return;
    }
    if role.container.starts_containers {
        let why = "the job starts its containers itself, and the folders of their libfabric are not known";
        return plan.skip_rule("efa.library-path", SkipReason::NotExpressible, why);
    }
    let own = role.container.env("LD_LIBRARY_PATH").map(|var| var.value.as_deref());
    let value = merge::library_path(dirs, &[], own.flatten());
    let there = own == Some(Some(value.as_str())) || own == Some(None);
    let there = there.then_some("already there");
    let change = Change::env("LD_LIBRARY_PATH", &value);
    let why = "the job has no container: libfabric and the NCCL plugin are those of the node's image";
    plan.ensure(role, "efa.library-path", change, there, why, ctx.of_profile());
}

fn library_path(ctx: &Context, plan: &mut PlanBuilder, stack: &StackProfile, role: RoleRef) {
    const NAME: &str = "LD_LIBRARY_PATH";
    match role.container.env(NAME).map(|var| var.value.as_deref()) {
        None => {
            // The backend of a job file may not be Kubernetes.
            let why = if ctx.is_job_file() { "" } else { ": Kubernetes cannot refer to it" };
            plan.warn(
                role,
                "W-LDPATH-SHADOW",
                format!("setting LD_LIBRARY_PATH hides the one of the image, if it has one{why}"),
                "name the image's own folders in LD_LIBRARY_PATH yourself; ours are put before them",
            );
            let value = merge::library_path(&stack.library_dirs, &stack.library_tail, None);
            let why = "the mounted libraries must be found first";
            plan.op(role, "efa.library-path", Change::env(NAME, &value), why, ctx.of_profile());
        }
        Some(None) => plan.refuse(
            role,
            "E-LDPATH-VALUEFROM",
            "LD_LIBRARY_PATH is taken valueFrom somewhere, so our folders cannot be put before it",
            "write its value out",
        ),
        Some(Some(own)) => {
            // In a job file it is a finding of the file.
            if !ctx.is_job_file() {
                report_dollar(plan, role, NAME, own);
            }
            let value = merge::library_path(&stack.library_dirs, &stack.library_tail, Some(own));
            let there = (value == own).then_some("already there");
            let why = "the mounted libraries must be found first; the user's folders follow";
            plan.ensure(role, "efa.library-path", Change::env(NAME, &value), there, why, ctx.of_profile());
        }
    }
}

/// Reports a `$NAME` in a value, which stays as it is written: Kubernetes expands only `$(NAME)`.
fn report_dollar(plan: &mut PlanBuilder, role: RoleRef, name: &str, value: &str) {
    if let Some(found) = crate::shell::unexpanded(value) {
        plan.warn(
            role,
            "W-ENV-DOLLAR",
            format!("{name} holds {found}, which Kubernetes does not expand; the value is passed through literally"),
            "write the folders out; only $(NAME) of an earlier entry of the same list is expanded",
        );
    }
}

fn opal_prefix(ctx: &Context, plan: &mut PlanBuilder, stack: &StackProfile, role: RoleRef) {
    const NAME: &str = "OPAL_PREFIX";
    let Some(ours) = &stack.opal_prefix else { return };
    let own = role.container.env(NAME).map(|var| var.value.as_deref());
    let differs = own.is_some_and(|value| value.map(|value| value.trim_end_matches('/')) != Some(ours));
    if ctx.job.mpi.is_some() && differs && role.launcher | role.worker {
        plan.refuse(
            role,
            "E-OPAL-CONFLICT",
            format!(
                "OPAL_PREFIX points elsewhere than {ours}; the mounted mpirun fails at its start with it"
            ),
            "remove OPAL_PREFIX, or use --stack bundled if the image's own Open MPI is meant",
        );
        return;
    }
    let why = "Open MPI looks for its own files below this folder";
    set::env(plan, role, "efa.opal-prefix", (NAME, ours), why, ctx.of_profile());
}

/// Returns whether any worker gets `FI_EFA_USE_DEVICE_RDMA`, so that the launcher forwards it.
pub(crate) fn device_rdma_applies(ctx: &Context, plan: &PlanBuilder, parts: Parts) -> bool {
    parts.environment
        && parts.efa.device_rdma.is_some()
        && plan.active("efa.device-rdma")
        && ctx.workers().all(|role| ctx.node(&role).rdma_read == Some(true))
}

fn device_rdma(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef) {
    refuse_rdma_where_it_aborts(ctx, plan, role);
    let Some(ours) = parts.efa.device_rdma.as_deref().filter(|_| parts.environment) else { return };
    if !plan.active("efa.device-rdma") {
        return;
    }
    if !device_rdma_applies(ctx, plan, parts) {
        plan.skip_rule(
            "efa.device-rdma",
            SkipReason::NoRdmaRead,
            "no instance type is known to have RDMA read here, and without it the value 1 aborts the program",
        );
        return;
    }
    let (value, origin) = match ranks_own_value(ctx, role, DEVICE_RDMA) {
        Some(own) => (own, Origin::Job),
        None => (ours.to_owned(), ctx.of_profile()),
    };
    let why = "older plugins use GPUDirect RDMA only if FI_EFA_USE_DEVICE_RDMA=1";
    set::env(plan, role, "efa.device-rdma", (DEVICE_RDMA, &value), why, origin);
}

/// Returns the user's value for the ranks, which a launcher must forward instead of weftrun's.
pub(crate) fn ranks_own_value(ctx: &Context, role: RoleRef, name: &str) -> Option<String> {
    if role.worker {
        return None;
    }
    ctx.workers().find_map(|worker| worker.container.env(name)?.value.clone())
}

fn refuse_rdma_where_it_aborts(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef) {
    let set = role.container.env(DEVICE_RDMA).and_then(|var| var.value.as_deref());
    if role.worker && set == Some("1") && ctx.node(&role).rdma_read == Some(false) {
        plan.report(
            Finding::error(
                "E-RDMA-UNSUPPORTED",
                format!(
                    "{DEVICE_RDMA}=1 aborts the program on {}, whose EFA device has no RDMA read",
                    ctx.node(&role).instance.as_deref().unwrap_or("this instance type")
                ),
            )
            .at(&role.name)
            .fix(format!("remove {DEVICE_RDMA}"))
            .cite("https://github.com/ofiwg/libfabric/blob/main/man/fi_efa.7.md"),
        );
    }
}

fn neuron(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef) {
    for (name, ours) in neuron_env(ctx, parts) {
        let (value, origin) = match ranks_own_value(ctx, role, name) {
            Some(own) => (own, Origin::Job),
            None => (ours.clone(), ctx.of_profile()),
        };
        let why = "aws-ofi-nccl does not set it on Neuron";
        set::env(plan, role, "efa.neuron", (name, &value), why, origin);
    }
}

/// Returns what Neuron needs on the nodes of all workers.
pub(crate) fn neuron_env<'a>(
    ctx: &Context,
    parts: Parts<'a>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let aborts = ctx.workers().any(|role| ctx.node(&role).rdma_read == Some(false));
    parts.efa.neuron_env.iter().filter(move |(name, _)| !aborts || *name != DEVICE_RDMA)
}

fn devices(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef) {
    let Some(resource) = parts.efa.devices.as_deref() else { return };
    if !plan.active("efa.devices") {
        return;
    }
    let node = ctx.node(&role);
    let own = match set::asked(plan, role, resource) {
        set::Asked::Unequal => return,
        set::Asked::No => None,
        set::Asked::Yes(own) => Some(own),
    };
    let asked = own.as_deref().and_then(Quantity::parse).map(Quantity::whole);
    let judged = asked.and_then(|asked| node.judge_interfaces(resource, asked));
    judged.into_iter().for_each(|finding| plan.report(finding.at(&role.name)));
    let assumed = matches!(node.efa, Count::Disputed(_) | Count::Unknown);
    if let Some(own) = own.as_deref().filter(|_| assumed) {
        let why = "requested by the user, kept";
        set::resource(plan, role, "efa.devices", (resource, own), why, Origin::Job);
        // Several of the pods may share a node, and so its huge pages.
        if ctx.asks_for_efa_of_unknown_nodes(&role, &node) {
            return;
        }
        return pages(ctx, plan, parts, role, &node, own);
    }
    let (count, origin) = match &node.efa {
        Count::Known(count, origin) => (*count, origin.clone()),
        Count::Disputed(_) | Count::Unknown => (parts.efa.count, Origin::Assumed),
    };
    let why = if origin == Origin::Assumed {
        format!("assumed: profile {} says {count} for a whole node", ctx.profile.name)
    } else {
        let has = node.instance.as_deref().unwrap_or("the node");
        let interfaces = counted(usize::try_from(count).unwrap_or(usize::MAX), "EFA interface");
        format!("{has} has {interfaces}, and workers that use a whole node get all of them")
    };
    if own.is_none() && origin == Origin::Assumed {
        report_assumed_count(ctx, plan, role, count, node.unknown_type.as_deref());
    }
    let row = node.row.as_deref().and_then(|row| ctx.catalogue.get(row));
    if own.is_none()
        && let Some(row) = row.filter(|row| row.confidence == Some(Confidence::Low))
    {
        plan.warn(
            role,
            "W-EFA-ASSUMED",
            format!("assumed {count} EFA interfaces on {}: the sources disagree", row.name),
            "check the node's allocatable vpc.amazonaws.com/efa, and request that number",
        );
    }
    set::resource(plan, role, "efa.devices", (resource, &count.to_string()), &why, origin);
    let count = own.unwrap_or_else(|| count.to_string());
    pages(ctx, plan, parts, role, &node, &count);
}

/// Requests huge pages beside interfaces: with none of these they have no use.
fn pages(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef, node: &Node, interfaces: &str) {
    let resource = parts.efa.devices.as_deref().unwrap_or_default();
    if Quantity::parse(interfaces).is_some_and(Quantity::is_zero) {
        plan.skip_rule(
            "efa.hugepages",
            SkipReason::DependsOn,
            format!("{}: the user requests 0 {resource}", role.name),
        );
    } else {
        hugepages(ctx, plan, parts, role, node);
    }
}

fn report_assumed_count(
    ctx: &Context,
    plan: &mut PlanBuilder,
    role: RoleRef,
    count: u32,
    unknown_type: Option<&str>,
) {
    if plan.has_reported("W-EFA-ASSUMED") {
        return;
    }
    let reason = unknown_type.map_or_else(
        || "no instance type is known".to_owned(),
        |name| format!("instance type {name} is not in the catalogue"),
    );
    plan.warn(
        role,
        "W-EFA-ASSUMED",
        format!(
            "assumed {count} EFA interfaces a node (profile {}), since {reason}; where a node has fewer, the pods \
             stay Pending",
            ctx.profile.name
        ),
        "name the instance type (--instance-type p5en.48xlarge), or plan with a connection to the cluster (--online)",
    );
}

fn hugepages(ctx: &Context, plan: &mut PlanBuilder, parts: Parts, role: RoleRef, node: &Node) {
    let wanted = parts.efa.hugepages.as_deref().filter(|amount| *amount != "omit");
    let own = role.container.asks(HUGEPAGES).map(str::to_owned);
    if !plan.active("efa.hugepages") || (wanted.is_none() && own.is_none()) {
        return;
    }
    let (amount, origin) = match (wanted, node.hugepages.as_deref(), node.row.as_deref()) {
        (Some(wanted), Some(row), Some(name)) if !set::same(wanted, row) => {
            (row.to_owned(), Origin::Catalogue(name.to_owned()))
        }
        (Some(wanted), _, _) => (wanted.to_owned(), ctx.of_profile()),
        (None, _, _) => (own.clone().unwrap_or_default(), Origin::Job),
    };
    // What weftrun itself adds never keeps a job from running: on request it is an error instead.
    let demanded = ctx.options.rules.get("efa.hugepages") == Some(&RuleSetting::On);
    let left_out = if own.is_some() || demanded { None } else { no_pages(ctx, &role, node, &amount) };
    if let Some((reason, why, fix)) = left_out {
        if !plan.has_reported(NO_PAGES) {
            let text = format!("no huge pages are requested: {why}; libfabric uses normal pages");
            plan.report(Finding::info(NO_PAGES, text).at(&role.name).fix(fix));
        }
        return plan.skip_rule("efa.hugepages", reason, format!("{}: {why}", role.name));
    }
    report_more_than_nodes_have(plan, role, node, own.as_deref());
    memory(ctx, plan, role, node);
    let why = "libfabric keeps its bounce buffers in huge pages";
    set::resource(plan, role, "efa.hugepages", (HUGEPAGES, &amount), why, origin);
}

/// Warns of huge pages that the nodes do not have: the pods stay Pending.
fn report_more_than_nodes_have(plan: &mut PlanBuilder, role: RoleRef, node: &Node, own: Option<&str>) {
    let asked = own.and_then(|own| Some((own, Quantity::parse(own)?.whole())));
    let Some(((own, asked), most)) = asked.zip(node.hugepages_most) else { return };
    if asked > most {
        let nodes = node.instance.as_deref().unwrap_or("the node");
        let text = format!(
            "{HUGEPAGES}: the requested {own} is kept; {nodes} has {}Mi to give unless more is reserved there, and pods that request more \
             stay Pending",
            most >> 20
        );
        plan.warn(role, "W-RES-KEPT", text, "reserve more on the nodes (vm.nr_hugepages), or request less");
    }
}

/// Returns why a worker gets no huge pages, and what to do about it.
fn no_pages(
    ctx: &Context,
    role: &RoleView,
    node: &Node,
    amount: &str,
) -> Option<(SkipReason, String, String)> {
    if turned_off(&role.container) {
        let why = "FI_EFA_USE_HUGE_PAGE switches them off".to_owned();
        return Some((SkipReason::SetByUser, why, "remove FI_EFA_USE_HUGE_PAGE to get them".to_owned()));
    }
    let default = ctx.profile.memory_default.as_deref();
    if !role.container.asks_cpu_or_memory()
        && ctx.options.memory.is_none()
        && default.and_then(|text| memory_by_profile(text, node.memory_mib)).is_none()
    {
        let why = "they require `memory`, and none is requested".to_owned();
        let fix = format!("{}, and the huge pages are added", memory_hint(ctx.job.kind));
        return Some((SkipReason::NoMemory, why, fix));
    }
    let wanted = Quantity::parse(amount).map(Quantity::whole)?;
    let most = node.hugepages_most.filter(|most| wanted > *most)?;
    let nodes = node.instance.as_deref().unwrap_or("the node");
    let why = format!("{nodes} has {}Mi to give, fewer than the {amount} that libfabric wants", most >> 20);
    let fix = "reserve more on the nodes (vm.nr_hugepages), then pass --fabric-rule efa.hugepages".to_owned();
    Some((SkipReason::NoMemory, why, fix))
}

/// Returns whether a container tells libfabric to use no huge pages.
pub fn turned_off(container: &ContainerView) -> bool {
    let value = container.env("FI_EFA_USE_HUGE_PAGE").and_then(|var| var.value.as_deref());
    value.is_some_and(is_off)
}

/// Returns whether libfabric takes a value for false.
pub fn is_off(value: &str) -> bool {
    matches!(value.trim(), "0" | "false" | "no" | "off")
}

/// Returns how a job requests memory.
fn memory_hint(kind: JobKind) -> &'static str {
    match kind {
        JobKind::JobFile => "set `memory` of the role",
        _ => "set resources.limits.memory, or pass --memory 900Gi",
    }
}

/// Requests memory, since the API server refuses huge pages in a container that requests neither CPU nor
/// memory.
fn memory(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef, node: &Node) {
    if role.container.asks_cpu_or_memory() {
        return;
    }
    let by_profile = || memory_by_profile(ctx.profile.memory_default.as_deref()?, node.memory_mib);
    let (amount, origin) = match (&ctx.options.memory, by_profile()) {
        (Some(asked), _) => (asked.clone(), Origin::Job),
        (None, Some(default)) => (default, ctx.of_profile()),
        (None, None) => {
            let hint = memory_hint(ctx.job.kind);
            plan.report(
                Finding::error(
                    "E-HP-NEEDS-MEMORY",
                    "hugepages-2Mi is refused by the API server in a container that requests neither cpu nor memory",
                )
                .at(&role.name)
                .fix(format!("{hint}; or leave the huge pages out: --no-fabric-rule efa.hugepages"))
                .cite("https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/"),
            );
            return;
        }
    };
    let change = Change::Resource { name: "memory".to_owned(), quantity: amount };
    let why = "huge pages are refused where neither cpu nor memory is requested";
    plan.op(role, "efa.hugepages", change, why, origin);
}

/// Returns a quantity unchanged, or `90%` of the instance type's memory in whole MiB.
fn memory_by_profile(text: &str, memory_mib: Option<u64>) -> Option<String> {
    match text.strip_suffix('%') {
        None => Some(text.to_owned()),
        Some(percent) => {
            let percent: u64 = percent.trim().parse().ok().filter(|percent| *percent <= 100)?;
            Some(format!("{}Mi", memory_mib?.checked_mul(percent)? / 100))
        }
    }
}
