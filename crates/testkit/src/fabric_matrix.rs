//! A job for every row of the catalogue under every built-in profile: a backend's results for all of them are
//! its fabric matrix.

use weftrun_core::backend::{ClusterFacts, PlannedJob};
use weftrun_core::catalogue::{Catalogue, InstanceType};
use weftrun_core::fabric::{FabricPlan, Gid, Profiles, Webhook};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::{JobSpec, Launch, Role};

/// One cell: a job of whole nodes of one type, planned with one profile.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the profile.
    pub profile: String,
    /// Name of the catalogue's row.
    pub instance: String,
    /// The planned job, which requests everything that a rule can do.
    pub planned: PlannedJob,
}

/// Returns all cells of a launch mode, profile by profile, in the order of the catalogue.
pub fn cells(launch: Launch) -> Vec<Cell> {
    let (profiles, catalogue) = (Profiles::builtin(), Catalogue::builtin());
    let names: Vec<&str> = profiles.names().collect();
    let rows = |name: &str| -> Vec<Cell> {
        catalogue.rows().iter().filter_map(|row| cell(launch, &profiles, name, &catalogue, row)).collect()
    };
    names.into_iter().flat_map(rows).collect()
}

fn cell(
    launch: Launch,
    profiles: &Profiles,
    profile: &str,
    catalogue: &Catalogue,
    row: &InstanceType,
) -> Option<Cell> {
    let profile = profiles.get(profile).ok()?;
    let mut role =
        Role::worker().nodes(2).memory("1Gi").instance_type(row.name.as_str()).command(["train.py"]);
    if profile.accelerator == "nvidia.com/gpu" {
        role = role.gpus_per_node(row.accelerators);
    } else {
        role.resources.insert(profile.accelerator.clone(), row.accelerators.to_string());
    }
    let mut spec = JobSpec::builder("matrix").image("image:1").launch(launch).role(role).build().ok()?;
    spec.fabric.webhook = Webhook::Yes;
    spec.fabric.strict = true;
    // With mpirun the ranks have no command of their own that could be wrapped.
    spec.fabric.gid = Some(if launch == Launch::Mpi { Gid::Index(3) } else { Gid::Compute });
    let facts = ClusterFacts::default();
    let plan = FabricPlan::new(&spec, catalogue, &facts, &profile);
    Some(Cell {
        profile: profile.name.clone(),
        instance: row.name.clone(),
        planned: PlannedJob::new(spec, plan, profile, facts, SubmissionId::from_random(1)),
    })
}
