//! The launcher's `mpirun`: which one is used, and what it forwards.

use super::{Context, Launch, opt_out};
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::Mpi;
use crate::fabric::{Change, SkipReason};
use crate::request::{Fabric, Origin};
use crate::shell;
use crate::shell::{Mpirun, MpirunNote};

/// Rewrites the command of each launcher, or sets the `mpirun` that its backend must write.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &Launch) {
    let mpirun = &launch.mpirun;
    if mpirun.bin.is_none() && mpirun.forward.is_empty() {
        return;
    }
    let rule = if mpirun.bin.is_some() {
        "efa.mpirun"
    } else {
        launch.rules.first().copied().unwrap_or("efa.mpirun")
    };
    for role in ctx.roles().filter(|role| role.launcher) {
        if ctx.fabric == Fabric::Efa && !role.worker && opt_out::role_is_out(ctx, &role) {
            continue;
        }
        match ctx.job.mpi {
            None => {}
            Some(Mpi::Intel | Mpi::Mpich) => report_other_mpi(plan, role),
            Some(Mpi::OpenMpi) if ctx.is_job_file() && role.container.command.is_empty() => {
                for_backend(ctx, plan, role, rule, mpirun);
            }
            Some(Mpi::OpenMpi) => rewrite(plan, role, rule, mpirun),
        }
    }
}

/// Sets the `mpirun` for `launch = "mpi"`, which the backend writes; ssh passes no environment, so the
/// user's is forwarded too.
fn for_backend(ctx: &Context, plan: &mut PlanBuilder, role: RoleRef, rule: &'static str, mpirun: &Mpirun) {
    let mut forward = mpirun.forward.clone();
    for var in ctx.workers().flat_map(|role| &role.view.container.env) {
        if !forward.contains(&var.name) {
            forward.push(var.name.clone());
        }
    }
    // A command that calls mpirun itself is completed: what it forwards already is not written again.
    let with = |forward: &[String]| {
        let wanted = Mpirun { bin: mpirun.bin.clone(), forward: forward.to_vec(), ..Mpirun::default() };
        shell::rewrite(&ctx.job.program, &[], &wanted)
    };
    let without = with(&[]);
    let calls_mpirun = !without.notes.iter().any(|note| matches!(note, MpirunNote::Opaque { .. }));
    if calls_mpirun {
        forward.retain(|name| with(std::slice::from_ref(name)).command != without.command);
    }
    if calls_mpirun && forward.is_empty() && mpirun.bin.is_none() {
        let why = format!("{}: the command calls mpirun itself, and forwards all of it", role.name);
        return plan.skip_rule(rule, SkipReason::AlreadyThere, why);
    }
    let change = Change::Mpirun { path: path(mpirun), forward };
    plan.op(role, rule, change, "ranks started by ssh get only what mpirun forwards", Origin::Default);
}

fn rewrite(plan: &mut PlanBuilder, role: RoleRef, rule: &'static str, mpirun: &Mpirun) {
    let container = &role.container;
    let env_list = container.env("OMPI_MCA_mca_base_env_list").and_then(|var| var.value.clone());
    let mpirun = &Mpirun { env_list, ..mpirun.clone() };
    let rewritten = shell::rewrite(&container.command, &container.args, mpirun);
    for note in &rewritten.notes {
        report(plan, role, mpirun, note);
    }
    let before: Vec<String> = container.argv().map(ToOwned::to_owned).collect();
    let command_words = rewritten.command.len();
    let after: Vec<String> = rewritten.command.into_iter().chain(rewritten.args).collect();
    let change = Change::Command { before: before.clone(), after: after.clone(), command_words };
    if before != after {
        let why = match mpirun.bin {
            Some(_) => {
                "an image's mpirun does not fit the mounted libraries, and ranks started by ssh get only what is forwarded"
            }
            None => "ranks started by ssh get only what mpirun forwards",
        };
        plan.op(role, rule, change, why, Origin::Default);
    } else if rewritten.notes.is_empty() {
        plan.kept(role, rule, change, "already there");
    }
}

fn report_other_mpi(plan: &mut PlanBuilder, role: RoleRef) {
    plan.warn(
        role,
        "W-MPI-IMPL",
        "only Open MPI's command line is rewritten; this job's mpirun is left alone",
        "forward the fabric's variables yourself (Intel MPI: -genv NAME VALUE; MPICH: -env NAME VALUE)",
    );
}

/// Returns the path of the wanted `mpirun`.
fn path(mpirun: &Mpirun) -> String {
    mpirun.bin.as_ref().map_or_else(|| "mpirun".to_owned(), |bin| format!("{bin}/mpirun"))
}

fn report(plan: &mut PlanBuilder, role: RoleRef, mpirun: &Mpirun, note: &MpirunNote) {
    let line = mpirun.forward.iter().fold(path(mpirun), |line, name| format!("{line} -x {name}"));
    let write = format!("where it calls mpirun, write: {line}");
    let (code, text, fix) = match note {
        MpirunNote::OtherPath(path) => (
            "W-MPIRUN-OTHER",
            format!("{path} is another Open MPI than the mounted one, and is left as it is"),
            format!("call `{line}` instead, or say --stack bundled if the image brings its own stack"),
        ),
        MpirunNote::Opaque { script: None } => {
            ("W-MPIRUN-OPAQUE", "no mpirun can be seen in the launcher's command".to_owned(), write)
        }
        MpirunNote::Opaque { script: Some(script) } => {
            ("W-MPIRUN-OPAQUE", format!("the launcher runs {script}, into which weftrun cannot look"), write)
        }
        MpirunNote::Document => (
            "W-MPIRUN-OPAQUE",
            "a here-document of the launcher's command calls mpirun; its text is left as it is".to_owned(),
            format!("if that text is run, write there: {line}"),
        ),
        MpirunNote::Unreadable(why) => {
            ("W-MPIRUN-OPAQUE", format!("the launcher's shell text cannot be read: {why}"), write)
        }
        MpirunNote::EnvList(missing) => (
            "W-MPIRUN-ENV-LIST",
            format!(
                "mca_base_env_list is used, which excludes -x; it lacks {}, so the ranks do not get it",
                missing.join(", ")
            ),
            format!("add {} to mca_base_env_list", missing.join(";")),
        ),
        MpirunNote::LibraryPath(own) => (
            "W-MPIRUN-LDPATH",
            format!("-x LD_LIBRARY_PATH={own} wins over the container's, and lacks the mounted libraries"),
            "forward it without a value: -x LD_LIBRARY_PATH".to_owned(),
        ),
    };
    plan.warn(role, code, text, fix);
}
