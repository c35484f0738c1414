//! What is worth saying about a job though nothing is changed: misspelt names, settings that are out of date, shapes
//! that the fabric does not like. Facts and sources: docs/reference/codes.md.

mod commands;
mod names;
mod settings;
mod shapes;

use super::codes;
use super::view::JobView;
use crate::Finding;
use crate::catalogue::Catalogue;
use crate::fabric::Profile;

/// A finding and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// What there is to say.
    pub finding: Finding,
    /// JSON pointer of the place in the object it came from, empty if there is none.
    pub at: String,
}

/// Looks at a job. The order is that of the roles and their environment.
pub fn job(job: &JobView, profile: &Profile, catalogue: &Catalogue) -> Vec<Lint> {
    let mut lints = Vec::new();
    for role in &job.roles {
        settings::environment(job, role, catalogue, profile, &mut lints);
        shapes::role(role, profile, catalogue, &mut lints);
    }
    lints
}

/// Looks at one environment variable on its own: a job file's, an sbatch script's.
pub fn variable(name: &str, value: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = names::check(name, value).into_iter().collect();
    findings.extend(settings::outdated(name, value, settings::Setting::default()));
    findings.into_iter().map(codes::with_source).collect()
}

/// The first `$NAME` or `${NAME}` in a value, which Kubernetes leaves as it is. `$(NAME)` and `$$` are its own.
pub fn unexpanded(value: &str) -> Option<&str> {
    let mut rest = value;
    let mut offset = 0;
    while let Some(found) = rest.find('$') {
        let start = offset + found;
        let after = value.get(start + 1..)?;
        let brace = usize::from(after.starts_with('{'));
        let name = after.get(brace..)?;
        let length = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts_well && length > 0 && (brace == 0 || name.get(length..)?.starts_with('}')) {
            return value.get(start..start + 1 + brace + length + brace);
        }
        // Behind `$$` and `$(` nothing of ours begins.
        let skip = if after.starts_with('$') { 2 } else { 1 };
        offset = start + skip;
        rest = value.get(offset..)?;
    }
    None
}
