//! Names of pods, which the operators derive from the name of the job.

use weftrun_core::Finding;

/// Longest DNS label (RFC 1035 §2.3.4): host names of pods are labels.
const LABEL: usize = 63;

/// Returns the finding of a job's name whose longest pod name is no label.
pub fn too_long(name: &str, longest: &str) -> Option<Finding> {
    let over = longest.len().checked_sub(LABEL).filter(|over| *over > 0)?;
    let message = format!("the name has {} characters; the pod `{longest}` must fit {LABEL}", name.len());
    let fix = format!("use at most {} characters", name.len().saturating_sub(over));
    Some(Finding::error("K8S-NAME-LENGTH", message).fix(fix))
}
