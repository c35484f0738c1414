//! Validates a job as a whole: reports early what a cluster would refuse later, or do in an unintended way.
//!
//! Each finding's subject is the path of the value in a job file (`roles.worker.memory`), from which the
//! reader of the file finds its line. There is one file per concern; each is a list of pure rules.

mod env;
mod fabric;
mod names;
mod nul;
mod parts;
mod roles;
mod sizes;
mod tasks;

pub use nul::nul_paths;
pub use sizes::SHM_OVER_MEMORY;

use crate::catalogue::Catalogue;
use crate::finding::Fix;
use crate::spec::JobSpec;
use crate::spec::file::shown;
use crate::{Error, ErrorKind, Finding, Result};

impl JobSpec {
    /// Checks everything that needs no cluster, against the instance types that are in the tree.
    pub fn validate(&self) -> Vec<Finding> {
        self.validate_with(&Catalogue::builtin())
    }

    /// Checks everything that needs no cluster.
    pub fn validate_with(&self, catalogue: &Catalogue) -> Vec<Finding> {
        let mut out = Findings::default();
        names::check(self, &mut out);
        roles::check(self, &mut out);
        sizes::check(self, catalogue, &mut out);
        env::check(self, &mut out);
        parts::check(self, &mut out);
        tasks::check(self, &mut out);
        fabric::check(self, &mut out);
        super::avoid::check(self, &mut out);
        nul::check(self, &mut out);
        out.0
    }

    /// Refuses a job in which [`JobSpec::validate_with`] finds an error. Its fields are public, so each step
    /// that relies on them calls this again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each mistake.
    pub fn refuse_invalid(&self, catalogue: &Catalogue) -> Result<()> {
        let findings = self.validate_with(catalogue);
        if findings.iter().any(Finding::is_error) {
            let message = format!("job `{}` is invalid", shown(&self.name));
            return Err(Error::from_findings(ErrorKind::InvalidSpec, message, findings));
        }
        Ok(())
    }
}

/// The findings so far.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn error(&mut self, code: &str, path: &str, message: impl Into<String>) -> Last<'_> {
        self.push(Finding::error(code, message).at(path))
    }

    fn warning(&mut self, code: &str, path: &str, message: impl Into<String>) -> Last<'_> {
        self.push(Finding::warning(code, message).at(path))
    }

    fn info(&mut self, code: &str, path: &str, message: impl Into<String>) -> Last<'_> {
        self.push(Finding::info(code, message).at(path))
    }

    fn push(&mut self, finding: Finding) -> Last<'_> {
        self.0.push(finding);
        Last(self.0.last_mut())
    }
}

/// The finding just made, to which a fix can be added.
pub(super) struct Last<'f>(Option<&'f mut Finding>);

impl Last<'_> {
    pub(super) fn fix(self, text: impl Into<String>) {
        if let Some(finding) = self.0 {
            finding.fix = Some(Fix { text: text.into(), patch: Vec::new() });
        }
    }
}
