//! The engine: fabric, rules, launcher, in this order.

use super::JobView;
use super::builder::PlanBuilder;
use crate::Finding;
use crate::catalogue::Catalogue;
use crate::fabric::node::Node;
use crate::fabric::rules::{self, Context, Launch};
use crate::fabric::{ClusterFacts, FabricPlan, Profile, SkipReason};
use crate::request::rules::{FabricRule, RuleSwitches};
use crate::request::{Fabric, FabricRequest, Origin};

/// What to do about a job whose fabric is unknown.
pub(super) const HOW_TO_SAY: &str =
    "name it with --profile NAME or --instance-type TYPE, or as `profile` of the target in a config file";

/// The code of a requested fabric that cannot be applied.
pub const FABRIC_UNMET: &str = "E-FABRIC-UNMET";

/// Decides what a job gets. Pure: the result depends only on the arguments.
///
/// `fabric = "auto"` uses the profile's, and skips with a reason where the job cannot have it; an explicit
/// fabric that the job cannot have is an error. `off` leaves the job unchanged.
pub fn decide(
    job: &JobView,
    profile: &Profile,
    options: &FabricRequest,
    catalogue: &Catalogue,
    facts: &ClusterFacts,
) -> FabricPlan {
    let mut plan = rules_applied(job, profile, options, catalogue, facts);
    let of = |role| Node::of(role, job.queue.as_deref(), profile, options, catalogue, facts).row;
    let mut types = job.workers().map(of);
    plan.instance_type =
        types.next().flatten().filter(|first| types.all(|other| other.as_ref() == Some(first)));
    plan
}

fn rules_applied(
    job: &JobView,
    profile: &Profile,
    options: &FabricRequest,
    catalogue: &Catalogue,
    facts: &ClusterFacts,
) -> FabricPlan {
    let mut findings = Vec::new();
    let settings = RuleSwitches::new(&options.rules, &mut findings);
    let mut plan = PlanBuilder::new(&settings, profile, findings);
    if let Some(finding) = too_many_roles(job.roles.len()) {
        plan.report(finding);
        return plan.finish(options.kind);
    }
    if options.kind == Fabric::Off {
        plan.skip_fabric(Fabric::Off, SkipReason::Off, "fabric = \"off\"");
        let ctx = Context { job, profile, options, catalogue, facts, fabric: Fabric::Off };
        rules::webhook::keep_out(&ctx, &mut plan);
        return plan.finish(Fabric::Off);
    }
    let fabric = if options.kind == Fabric::Auto { profile.fabric } else { options.kind };
    let ctx = Context { job, profile, options, catalogue, facts, fabric };
    let mut launch = Launch::default();
    let applies = apply_fabric(&ctx, &mut plan, &mut launch);
    if applies {
        rules::pod::decide(&ctx, &mut plan, &mut launch);
        profile_env(&ctx, &mut plan, &mut launch);
        rules::strict::decide(&ctx, &mut plan, &mut launch);
    }
    if !applies || fabric != Fabric::Efa {
        rules::webhook::keep_out(&ctx, &mut plan);
    }
    rules::queue::decide(&ctx, &mut plan);
    rules::detect::decide(&ctx, &mut plan, &mut launch);
    rules::ras::decide(&ctx, &mut plan, &mut launch);
    rules::recorder::decide(&ctx, &mut plan, &mut launch);
    rules::diagnostics::decide(&ctx, &mut plan, &mut launch);
    rules::profiler::decide(&ctx, &mut plan, &mut launch);
    give_launchers_values(&ctx, &mut plan, &launch);
    rules::launch::decide(&ctx, &mut plan, &launch);
    rules::preflight::decide(&ctx, &mut plan);
    if applies && profile.untried {
        let name = &profile.name;
        let text = format!("the profile `{name}` was made from documents and never ran on the real cloud");
        let fix = format!("`weftrun profiles {name}` shows its values and their sources");
        plan.report(Finding::info("I-PROFILE-UNTRIED", text).fix(fix));
    }
    let expected = expected_fabric(&ctx, &plan, applies);
    let mut plan = plan.finish(expected);
    plan.profile = Some(profile.name.clone()).filter(|name| !name.is_empty());
    plan
}

/// Most roles of a job that are read. The operators have two; each rule compares each role with the others.
const MAX_ROLES: usize = 100;

/// Returns an error where a job has too many roles.
pub fn too_many_roles(count: usize) -> Option<Finding> {
    (count > MAX_ROLES).then(|| {
        Finding::error("E-ROLES", format!("the job has {count} roles; at most {MAX_ROLES} are read"))
            .fix("give nodes that do the same work one role")
    })
}

/// Applies the rules of the fabric, and returns whether the job gets it.
fn apply_fabric(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) -> bool {
    if !ctx.profile.covers(ctx.fabric) {
        let text = format!("profile `{}` has no table for {}", ctx.profile.name, ctx.fabric);
        let fix = format!("choose another with --profile, or give it an [{}] table", ctx.fabric);
        plan.report(Finding::error("E-PROFILE-FABRIC", text).fix(fix));
        return false;
    }
    let applies = match ctx.fabric {
        Fabric::Efa => rules::efa::decide(ctx, plan, launch),
        Fabric::Roce => rules::roce::decide(ctx, plan, launch),
        Fabric::InfiniBand => rules::infiniband::decide(ctx, plan, launch),
        Fabric::Tcp => rules::tcp::decide(ctx, plan, launch),
        // The site's fabric has no rules of its own: only its environment and its pod settings are applied.
        Fabric::Auto if !ctx.profile.env.is_empty() || !ctx.profile.pod.is_empty() => {
            !rules::opt_out::job_is_out(ctx, plan) && ctx.is_distributed_with_gpus(plan)
        }
        Fabric::Auto | Fabric::Off => {
            if ctx.is_distributed_with_gpus(plan) {
                plan.skip_fabric(Fabric::Auto, SkipReason::FabricUnknown, looked_for());
            }
            false
        }
    };
    // `auto` accepts an unmet fabric.
    let asked = ctx.options.kind == ctx.fabric && ctx.fabric != Fabric::Auto;
    if let (false, true, Some(skip)) = (applies, asked, plan.skipped_fabric())
        // The user's own opt-out takes precedence.
        && skip.reason != SkipReason::OptOut
    {
        let text = format!("fabric {} was requested but cannot be applied: {}", ctx.fabric, skip.why);
        let change = match skip.reason {
            SkipReason::NotDistributed | SkipReason::NodesUnknown => "set `nodes` to at least 2",
            SkipReason::NoGpu => "request the accelerators of the nodes",
            SkipReason::PartialNode => "request all accelerators of each node",
            SkipReason::NoEfaOnInstanceType => "choose an instance type with EFA",
            SkipReason::InstanceUnknown => "name the instance type (`instance_type`), or plan with --online",
            SkipReason::Template => "fill the template in",
            SkipReason::ResourceClaims => "request the devices without resource claims",
            _ => "remove the cause",
        };
        let fix = format!("set `fabric = \"auto\"` to run without it where it is not available, or {change}");
        plan.report(Finding::error(FABRIC_UNMET, text).fix(fix));
    }
    applies
}

/// Sets the profile's additional environment of its fabric.
fn profile_env(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    const RULE: &str = "profile.env";
    if !plan.active(RULE) {
        return;
    }
    for role in ctx.workers() {
        let named = ctx.named_type(role);
        let of_type = named.and_then(|name| ctx.profile.instance_env.get(name));
        for (name, value) in &ctx.profile.env {
            if of_type.is_none_or(|of_type| !of_type.contains_key(name)) {
                let why = "the profile sets it in every job of its fabric";
                rules::set::env(plan, role, RULE, (name, value), why, ctx.of_profile());
            }
        }
        for (name, value) in of_type.into_iter().flatten() {
            let why = format!("the profile sets it on {}", named.unwrap_or_default());
            rules::set::env(plan, role, RULE, (name, value), &why, ctx.of_profile());
            launch.forward(RULE, name);
        }
    }
    ctx.profile.env.keys().for_each(|name| launch.forward(RULE, name));
}

/// Sets the ranks' values on the launchers, since `mpirun -x NAME` forwards the launcher's own value.
fn give_launchers_values(ctx: &Context, plan: &mut PlanBuilder, launch: &Launch) {
    if ctx.job.mpi != Some(super::view::Mpi::OpenMpi) {
        return;
    }
    let pairs: Vec<(&'static str, String)> =
        launch.rules.iter().copied().zip(launch.mpirun.forward.iter().cloned()).collect();
    for role in ctx.roles().filter(|role| role.launcher && !role.worker) {
        if ctx.fabric == Fabric::Efa && rules::opt_out::role_is_out(ctx, &role) {
            continue;
        }
        for (rule, name) in pairs.iter().filter(|(rule, _)| FabricRule::fabric_of(rule) != Fabric::Efa) {
            let Some(value) = plan.value_for_ranks(ctx.job, name) else { continue };
            let why = "mpirun -x forwards the value that the launcher itself has";
            rules::set::env(plan, role, rule, (name, &value), why, Origin::Default);
        }
    }
}

/// Returns the fabric that the ranks are expected to use between nodes: the map is compared with it.
fn expected_fabric(ctx: &Context, plan: &PlanBuilder, applies: bool) -> Fabric {
    match plan.skipped_fabric().map(|skip| skip.reason) {
        _ if applies => ctx.fabric,
        Some(SkipReason::PartialNode | SkipReason::NoEfaOnInstanceType) => Fabric::Tcp,
        Some(SkipReason::OptOut) => Fabric::Off,
        _ => Fabric::Auto,
    }
}

/// Returns what a job is searched for, to report that it was not found.
pub(super) fn looked_for() -> String {
    format!(
        "nothing shows the fabric of this job: no known resource, device class, annotation, label, instance type, image, \
         environment variable, path, partition, account or module; {HOW_TO_SAY}"
    )
}
