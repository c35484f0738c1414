//! Findings about a job that is not changed: misspelt names, outdated settings, shapes that the fabric does
//! not support. Facts and sources: docs/reference/codes.md.

mod commands;
pub(crate) mod names;
pub(crate) mod script;
pub(crate) mod settings;
mod shapes;

use settings::{Programs, Surroundings};
use weftrun_core::Finding;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::explain;
use weftrun_core::fabric::view::{JobView, RoleView};
use weftrun_core::fabric::{Profile, too_many_roles};
use weftrun_core::finding::Severity;
use weftrun_core::request::Fabric;
use weftrun_core::spec::{EnvVar, JobSpec, Launch};

/// A finding and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// The finding.
    pub finding: Finding,
    /// JSON pointer of the place in the object it came from, empty if there is none.
    pub at: String,
    /// The word in the text at that place, empty if it is about all of it.
    pub word: String,
}

/// Checks a job, for the fabric that is requested; with [`Fabric::Auto`] for the one that it shows. The order
/// is that of the roles and their environment.
pub fn job(job: &JobView, requested: Fabric, profile: &Profile, catalogue: &Catalogue) -> Vec<Lint> {
    if let Some(finding) = too_many_roles(job.roles.len()) {
        return vec![Lint { finding, at: String::new(), word: String::new() }];
    }
    let mut lints = Vec::new();
    let fabric = settings::fabric_of(job, requested, profile);
    for role in &job.roles {
        settings::environment(job, role, (profile, catalogue), fabric, &mut lints);
        shapes::role(job, role, profile, catalogue, &mut lints);
    }
    lints
}

/// Returns a job's settings that keep its ranks from the fabric that a plan gives it, as warnings: they are
/// the user's own, and stay.
pub(crate) fn against(job: &JobView, fabric: Fabric, profile: &Profile, catalogue: &Catalogue) -> Vec<Lint> {
    let mut lints = Vec::new();
    for role in &job.roles {
        settings::environment(job, role, (profile, catalogue), fabric, &mut lints);
    }
    lints.retain(|lint| {
        lint.finding.severity != Severity::Info
            && [settings::PLUGIN_NONE, settings::IB_DISABLED, settings::ON_SOCKETS]
                .contains(&lint.finding.code.as_str())
    });
    lints.iter_mut().for_each(|lint| lint.finding.severity = Severity::Warning);
    lints
}

/// Checks the memory of a batch script's role, whose other resources Slurm has no form of.
pub(crate) fn job_shapes(role: &RoleView, profile: &Profile, catalogue: &Catalogue) -> Option<Finding> {
    let node = settings::node(role, profile, catalogue);
    shapes::memory(&role.container, &node, role.accelerators(&profile.accelerator))
}

/// Checks the environment of a job file, for the fabric that it requests or implies.
pub fn job_file(spec: &JobSpec, fabric: Fabric) -> Vec<Finding> {
    let image = spec.image.as_deref();
    let commands = spec.roles.iter().flat_map(|role| &role.command).map(String::as_str);
    let names =
        spec.env.iter().chain(spec.roles.iter().flat_map(|role| &role.env)).map(|var| var.name.as_str());
    let programs = Programs::of(commands.chain(names), spec.launch == Launch::Torchrun);
    let around =
        Surroundings { fabric, several_nodes: spec.nodes() > 1, programs, ..Surroundings::default() };
    let common = spec.env.iter().map(|var| (var, image));
    let of_roles = spec
        .roles
        .iter()
        .flat_map(|role| role.env.iter().map(move |var| (var, role.image.as_deref().or(image))));
    let of_variable = |(var, image): (&EnvVar, _)| {
        let found = settings::of_variable(&var.name, &var.value, Surroundings { image, ..around });
        let at = format!("env {}", var.name);
        found.into_iter().map(move |finding| explain::with_source(finding).at(at.clone()))
    };
    common.chain(of_roles).flat_map(of_variable).collect()
}
