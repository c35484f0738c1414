//! The report of `weftrun report -o json`: everything known of a job.

use serde::Serialize;
use weftrun_diagnose::Measured;

use super::{DescribeReport, SchemaName, TransportReport, WhyReport};

/// `weftrun report -o json`: everything known of a job, or of the logs of one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// What the cluster reports; null for logs without a job.
    pub job: Option<DescribeReport<'a>>,
    /// The job file as it was submitted, as TOML; null for a job that was submitted elsewhere.
    pub spec: Option<String>,
    /// Which transport each pair of ranks uses.
    pub transport: &'a TransportReport,
    /// Why it failed or hangs.
    pub why: WhyReport,
    /// How fast its collectives are and which rank reaches them last; null for a job that does not measure them.
    pub bandwidth: Option<&'a Measured>,
}

impl<'a> JobReport<'a> {
    /// Makes a report of logs; the job and its file start unknown.
    pub fn new(transport: &'a TransportReport, why: WhyReport) -> Self {
        Self { schema: SchemaName, job: None, spec: None, transport, why, bandwidth: None }
    }
}
