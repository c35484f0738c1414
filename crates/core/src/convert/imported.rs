//! A job that stood in another program's form.

use crate::Finding;
use crate::spec::JobSpec;

/// A job that stood in another program's form: a manifest, a script, a command line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// The job.
    pub spec: JobSpec,
    /// What of the other form a job file has no words for, and what was taken for granted. No errors.
    pub findings: Vec<Finding>,
}

impl Imported {
    /// Puts a job and what is to be said of it together.
    pub fn new(spec: JobSpec, findings: Vec<Finding>) -> Self {
        Self { spec, findings }
    }
}
