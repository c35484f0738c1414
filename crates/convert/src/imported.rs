//! A job converted from another program's format.

use weftrun_core::Finding;
use weftrun_core::spec::JobSpec;

/// A job converted from another program's format: a manifest, a script, a command line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// The job.
    pub spec: JobSpec,
    /// Parts that a job file cannot express, and assumptions that were made. No errors.
    pub findings: Vec<Finding>,
}

impl Imported {
    /// Combines a job with its findings.
    pub fn new(spec: JobSpec, findings: Vec<Finding>) -> Self {
        Self { spec, findings }
    }
}
