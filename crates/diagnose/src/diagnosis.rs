//! The one answer to what is wrong with a job.

use weftrun_core::catalogue::Expected;
use weftrun_core::request::Fabric;
use weftrun_core::{Error, ErrorKind, Finding};
use weftrun_nccl::{FabricSeen, Verdict};

use crate::cause::Why;
use crate::{Judge, Measured, fabric};

/// What is wrong with a job, and what to change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What the pairs prove.
    pub verdict: Verdict,
    /// Whether that is what was planned; none where nothing proves it, or nothing was planned.
    pub ok: Option<bool>,
    /// What was planned.
    pub planned: Option<Fabric>,
    /// What is wrong with its transports, the worst first.
    pub findings: Vec<Finding>,
    /// The bus bandwidth of a large all-reduce on the planned instance type and as many nodes, where it was published.
    pub expected: Option<Expected>,
    /// What weftrun's library measured of NCCL's collectives, where the job has it.
    pub measured: Option<Box<Measured>>,
    /// Its state, and the first cause of a failure or a hang.
    pub why: Why,
    /// Whether all ranks are on one node.
    pub(crate) one_node: bool,
    /// Whether a line of a log was read.
    pub read_lines: bool,
}

impl Diagnosis {
    /// Returns the judge of single connections.
    pub fn judge(&self) -> Judge {
        Judge::new(self.planned, &self.findings).on_one_node(self.one_node)
    }

    /// Returns whether the pairs prove the planned fabric; none where nothing was planned, or nothing is proved.
    pub fn is_met(&self) -> Option<bool> {
        fabric::is_met(self.planned?, self.verdict.fabric, &self.findings)
    }

    /// Returns an error if the pairs prove another fabric than planned; the diagnosis itself otherwise.
    pub fn into_result(self) -> weftrun_core::Result<Self> {
        if self.is_met() != Some(false) {
            return Ok(self);
        }
        let message = format!(
            "the ranks use {}, planned was {}",
            self.verdict.fabric.label(),
            self.planned.map_or("another fabric", Fabric::as_str)
        );
        Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings))
    }

    /// Returns the same with `unknown` counted as a failure, as for `--strict`.
    pub fn into_strict_result(self) -> weftrun_core::Result<Self> {
        if let Some(asked) = self.planned.and_then(Fabric::named)
            && self.ok.is_none()
            && self.verdict.fabric == FabricSeen::Unknown
        {
            let message = format!("nothing proves that the ranks use {}", asked.as_str());
            return Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings));
        }
        self.into_result()
    }
}
