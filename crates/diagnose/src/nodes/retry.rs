//! Decides whether a job that has ended is submitted again, and without which nodes.

use weftrun_core::Confidence;
use weftrun_core::job::JobPhase;
use weftrun_core::spec::{LeftOut, RetryAvoid};
use weftrun_core::text::counted;

use super::{CauseRecord, Fault};

/// Most nodes that retries leave out of a job: more are no accident, and would take a cluster apart.
pub const MOST_LEFT_OUT: usize = 2;

/// What the decision depends on.
#[derive(Clone, Debug)]
pub struct RetryInput<'a> {
    /// The phase that the cluster reports now.
    pub phase: JobPhase,
    /// Whether the cluster itself says that it ended the job ([`ended_by_cluster`](crate::ended_by_cluster)), which some report as
    /// cancelled.
    pub by_cluster: bool,
    /// Why it failed, where that is known.
    pub cause: Option<&'a CauseRecord>,
    /// Retries that were made.
    pub made: u32,
    /// Most retries.
    pub max: u32,
    /// Retries that were made for a failure of the network or of a link without a node to leave out.
    pub for_network: u32,
    /// The nodes that retries have left out.
    pub left_out: &'a [LeftOut],
    /// The nodes that the history suspects.
    pub suspects: &'a [LeftOut],
    /// Whether those are left out, too.
    pub avoid: RetryAvoid,
}

/// Whether a job is submitted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is.
    Retry {
        /// The nodes that failed, which are left out from now on, beside those before.
        proven: Vec<LeftOut>,
        /// Further nodes that are left out, since the history suspects them.
        suspects: Vec<LeftOut>,
        /// Whether it is for the network, for which there is one retry.
        for_network: bool,
        /// The evidence, in one line.
        why: String,
    },
    /// It is not.
    Stop {
        /// The reason, in one line.
        why: String,
    },
}

/// Decides whether a job that has ended is submitted again. The table of whose failure a cause is: [`Fault`].
pub fn decide(input: &RetryInput<'_>) -> Decision {
    let stop = |why: String| Decision::Stop { why };
    match input.phase {
        JobPhase::Failed => {}
        JobPhase::Succeeded => return stop("the job succeeded".to_owned()),
        JobPhase::Cancelled if input.by_cluster => {}
        JobPhase::Cancelled => return stop("the job was cancelled".to_owned()),
        phase => {
            return stop(format!("the job is {phase}: the cluster has it still, or starts it again itself"));
        }
    }
    let Some(cause) = input.cause else {
        return stop("the cause of the failure is not known, so a retry may fail the same way".to_owned());
    };
    let what = format!("{}: {}", cause.code, cause.what);
    let Some(fault) = cause.fault else {
        return stop(format!(
            "the failure is not of a node or of the cluster, so a retry would fail the same way: {what}"
        ));
    };
    if cause.confidence == Confidence::Low {
        return stop(format!("the cause is too uncertain for a retry: {what}"));
    }
    if input.made >= input.max {
        return stop(format!("all retries are made ({} of {}): {what}", input.made, input.max));
    }
    let proven = proven(fault, cause, input.suspects);
    let known = |node: &str| input.left_out.iter().any(|left| left.node == node);
    if let Some(again) = proven.iter().find(|node| known(node)) {
        return stop(format!("{again} was left out already, and failed again: {what}"));
    }
    if input.left_out.len() + proven.len() > MOST_LEFT_OUT {
        return stop(format!("a retry would leave out more than {}: {what}", counted(MOST_LEFT_OUT, "node")));
    }
    let for_network = fault != Fault::Cluster && proven.is_empty();
    if for_network && input.for_network > 0 {
        return stop(format!("one retry was made for a failure that names no node to leave out: {what}"));
    }
    let is_new = |suspect: &&LeftOut| !known(&suspect.node) && !proven.contains(&suspect.node.as_str());
    let suspects = match input.avoid {
        RetryAvoid::Proven => Vec::new(),
        RetryAvoid::Suspects => input.suspects.iter().filter(is_new).cloned().collect(),
    };
    let left = |node: &str| LeftOut { node: node.to_owned(), why: what.clone() };
    let proven = proven.into_iter().map(left).collect();
    Decision::Retry { proven, suspects, for_network, why: what }
}

/// Returns the nodes that a cause proves to have failed. Of the ends of a link it is the one that is suspected already, or the
/// only one that is named.
fn proven<'c>(fault: Fault, cause: &'c CauseRecord, suspects: &[LeftOut]) -> Vec<&'c str> {
    let nodes = cause.nodes.iter().map(String::as_str);
    match fault {
        Fault::Hardware | Fault::Node => nodes.collect(),
        Fault::Link if cause.nodes.len() == 1 => nodes.collect(),
        Fault::Link => {
            let known: Vec<&str> =
                nodes.filter(|node| suspects.iter().any(|suspect| suspect.node == *node)).collect();
            if known.len() == 1 { known } else { Vec::new() }
        }
        Fault::Network | Fault::Cluster => Vec::new(),
    }
}
