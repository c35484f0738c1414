//! The fabric's operations of each role, as the script expresses them.

use weftrun_convert::{NoCounterpart, ScriptContext, script_change};
use weftrun_core::backend::{ClusterFacts, Inexpressible, PlannedJob};
use weftrun_core::fabric::Op;
use weftrun_core::spec::Role;

use crate::remote::ops::{self, Translated};
use crate::slurm::config::{Container, JobSettings};

/// Returns whether the cluster has a switch topology; otherwise the most that can be requested is one
/// partition.
fn has_topology(facts: &ClusterFacts) -> bool {
    let plugin = facts.extra.get("TopologyPlugin").and_then(|name| name.as_str());
    plugin.is_some_and(|name| name.ends_with("tree") || name.ends_with("block"))
}

/// Translates all operations: returns those of each worker, then the ones that are in the script and the ones
/// that are not.
pub fn translate(
    job: &PlannedJob,
    own: &JobSettings,
    workers: &[&Role],
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    let topology = has_topology(&job.facts);
    ops::translate(job, workers, |change, role, _| {
        let has_image = role.image.is_some() || job.spec.image.is_some();
        let container = own.container != Some(Container::None) && has_image;
        script_change(change, ScriptContext { container, topology }).map_err(NoCounterpart::why)
    })
}
