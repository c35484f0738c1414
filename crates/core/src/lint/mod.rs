//! Findings about a job that is not changed: misspelt names, outdated settings, shapes that the fabric does
//! not support. Facts and sources: docs/reference/codes.md.

mod commands;
mod names;
pub(crate) mod script;
mod settings;
mod shapes;

use crate::Finding;
use crate::catalogue::Catalogue;
use crate::explain;
use crate::fabric::view::JobView;
use crate::fabric::{Profile, too_many_roles};
use crate::finding::Severity;
use crate::request::Fabric;

/// A finding and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// The finding.
    pub finding: Finding,
    /// JSON pointer of the place in the object it came from, empty if there is none.
    pub at: String,
}

/// Checks a job, for the fabric that is requested; with [`Fabric::Auto`] for the one that it shows. The order
/// is that of the roles and their environment.
pub fn job(job: &JobView, requested: Fabric, profile: &Profile, catalogue: &Catalogue) -> Vec<Lint> {
    if let Some(finding) = too_many_roles(job.roles.len()) {
        return vec![Lint { finding, at: String::new() }];
    }
    let mut lints = Vec::new();
    let fabric = settings::fabric_of(job, requested, profile);
    for role in &job.roles {
        settings::environment(job, role, catalogue, fabric, &mut lints);
        shapes::role(role, profile, catalogue, &mut lints);
    }
    lints
}

/// Returns a job's settings that keep its ranks from the fabric that a plan gives it, as warnings: they are
/// the user's own, and stay.
pub(crate) fn against(job: &JobView, fabric: Fabric, catalogue: &Catalogue) -> Vec<Lint> {
    let mut lints = Vec::new();
    for role in &job.roles {
        settings::environment(job, role, catalogue, fabric, &mut lints);
    }
    lints.retain(|lint| {
        lint.finding.severity != Severity::Info
            && [settings::PLUGIN_NONE, settings::IB_DISABLED, settings::ON_SOCKETS]
                .contains(&lint.finding.code.as_str())
    });
    lints.iter_mut().for_each(|lint| lint.finding.severity = Severity::Warning);
    lints
}

/// Checks one environment variable on its own: a job file's, an sbatch script's. `fabric` is the job's if
/// it is known, else [`Fabric::Auto`]; `image` is the container image, if it is known.
pub fn variable(
    name: &str,
    value: &str,
    fabric: Fabric,
    several_nodes: bool,
    image: Option<&str>,
) -> Vec<Finding> {
    let setting = settings::Setting { fabric, several_nodes, ..settings::Setting::default() };
    settings::of_variable(name, value, image, setting).into_iter().map(explain::with_source).collect()
}
