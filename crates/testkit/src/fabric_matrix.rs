//! Which changes a backend can express: every shipped profile on every instance type, rendered offline.

use std::collections::BTreeMap;

use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob};
use weftrun_core::catalogue::{Catalogue, InstanceType};
use weftrun_core::fabric::{FabricPlan, Gid, Profile, Profiles, Webhook};
use weftrun_core::mutation::{Change, Op};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_core::{Error, ErrorKind, Result};

/// Whether a backend expresses a kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expressed {
    /// On every instance type.
    Always,
    /// On none.
    Never,
    /// On some, which a table cannot say.
    Sometimes,
}

/// For each rule and kind of change that comes up: whether the backend expresses it.
///
/// # Errors
/// What `render` failed with, naming instance type, profile and launch; or that an op is neither applied nor said to
/// be inexpressible.
pub fn fabric_matrix(backend: &dyn Backend) -> Result<BTreeMap<String, Expressed>> {
    let mut table = BTreeMap::new();
    let (catalogue, profiles) = (Catalogue::builtin(), Profiles::builtin());
    let capability = backend.capability();
    for row in catalogue.rows().iter().filter(|row| row.accelerators > 0) {
        for name in profiles.names() {
            let profile = profiles.get(name)?;
            for launch in [Launch::Torchrun, Launch::PerNode, Launch::Mpi] {
                if launch == Launch::Mpi && !capability.mpi {
                    continue;
                }
                let job = planned(row, &profile, launch, &catalogue)?;
                let place = format!("{} with profile {name}, launch {launch:?}", row.name);
                add(&mut table, backend, &job, &place)?;
            }
        }
    }
    Ok(table)
}

/// The matrix as the lines of a checked-in table.
pub fn fabric_table(backend: &dyn Backend) -> Result<String> {
    let lines = fabric_matrix(backend)?.into_iter().map(|(change, expressed)| {
        let word = match expressed {
            Expressed::Always => "yes",
            Expressed::Never => "no",
            Expressed::Sometimes => "SOMETIMES",
        };
        format!("{change:<40} {word}\n")
    });
    Ok(lines.collect())
}

fn planned(
    row: &InstanceType,
    profile: &Profile,
    launch: Launch,
    catalogue: &Catalogue,
) -> Result<PlannedJob> {
    let argv: &[&str] = if launch == Launch::Torchrun { &["train.py"] } else { &["python3", "train.py"] };
    let mut worker =
        Role::worker().nodes(2).memory("64Gi").instance_type(&row.name).command(argv.iter().copied());
    if profile.accelerator == "nvidia.com/gpu" {
        worker.gpus_per_node = row.accelerators;
    } else {
        worker.resources.insert(profile.accelerator.clone(), row.accelerators.to_string());
    }
    let mut spec =
        JobSpec::builder("matrix").image("registry.example/train:1").launch(launch).role(worker).build()?;
    spec.fabric.webhook = Webhook::Yes;
    spec.fabric.gid = Some(Gid::Compute);
    spec.fabric.strict = true;
    let facts = ClusterFacts::default();
    let plan = FabricPlan::new(&spec, catalogue, &facts, profile);
    Ok(PlannedJob::new(spec, plan, profile.clone(), facts, crate::random_submission()))
}

fn add(
    table: &mut BTreeMap<String, Expressed>,
    backend: &dyn Backend,
    job: &PlannedJob,
    place: &str,
) -> Result<()> {
    let rendered = backend
        .render(job)
        .map_err(|error| Error::new(error.kind(), format!("{place}: {}", error.message())).source(error))?;
    for op in &job.plan.ops {
        let lost = rendered.inexpressible.iter().any(|lost| lost.op == *op);
        if lost == rendered.applied.contains(op) {
            let message = format!(
                "{place}: {} is {} applied and inexpressible",
                key(op),
                if lost { "both" } else { "neither" }
            );
            return Err(Error::new(ErrorKind::Unexpected, message));
        }
        let now = if lost { Expressed::Never } else { Expressed::Always };
        table
            .entry(key(op))
            .and_modify(|before| {
                if *before != now {
                    *before = Expressed::Sometimes;
                }
            })
            .or_insert(now);
    }
    Ok(())
}

fn key(op: &Op) -> String {
    let kind = match &op.change {
        Change::Env { .. } => "env",
        Change::Mount { .. } => "mount",
        Change::Resource { .. } => "resource",
        Change::Annotation { .. } => "annotation",
        Change::Capability { .. } => "capability",
        Change::NodeSelector { .. } => "node-selector",
        Change::Colocate { .. } => "colocate",
        Change::Toleration { .. } => "toleration",
        Change::Command { .. } => "command",
        Change::Wrap { .. } => "wrap",
        Change::Mpirun { .. } => "mpirun",
        _ => "other",
    };
    format!("{} {kind}", op.rule)
}
