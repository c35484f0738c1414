//! The nodes that a job leaves out, and how often it is submitted again after a failure of its nodes.

use serde::{Deserialize, Serialize};

use super::JobSpec;
use super::validate::Findings;
use crate::spec::file::shown;
use crate::text::counted;

/// The word in `avoid` that stands for the nodes which the history of the target suspects.
pub const SUSPECTS: &str = "suspects";

/// Most nodes that a job leaves out: more are a partition or a label of their own.
const MOST_AVOIDED: usize = 256;
/// Longest name of a node (RFC 1123).
const LONGEST_NODE: usize = 253;
/// Most submissions after the first.
const MOST_RETRIES: u32 = 16;

/// How often a job is submitted again, and which nodes are left out then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Most submissions after the first.
    pub max: u32,
    /// Which nodes a retry leaves out.
    #[serde(default)]
    pub avoid: RetryAvoid,
}

impl RetryPolicy {
    /// That of a person who asks for each attempt.
    pub const BY_HAND: Self = Self { max: u32::MAX, avoid: RetryAvoid::Proven };

    /// Makes a policy that leaves out the nodes that are proven to have failed.
    pub fn new(max: u32) -> Self {
        Self { max, avoid: RetryAvoid::default() }
    }
}

word_enum! {
    /// Which nodes a retry leaves out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum RetryAvoid: ALL {
        /// The nodes that the evidence of the failure names.
        #[default]
        Proven = "proven",
        /// Those, and all that the history suspects.
        Suspects = "suspects",
    }
}

/// A node that a job leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Its name, as the cluster calls it.
    pub node: String,
    /// Why: `asked for`, or the evidence against it.
    pub why: String,
}

/// Returns whether a text can be the name of a node.
pub fn is_node_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= LONGEST_NODE
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

impl JobSpec {
    /// Returns the nodes that the job names itself, each once.
    pub fn named_nodes_to_avoid(&self) -> Vec<LeftOut> {
        let mut named: Vec<LeftOut> = Vec::new();
        for node in self.avoid.iter().filter(|node| *node != SUSPECTS) {
            if !named.iter().any(|known| known.node == *node) {
                named.push(LeftOut { node: node.clone(), why: "asked for".to_owned() });
            }
        }
        named
    }

    /// Returns whether the nodes that the history suspects are left out.
    pub fn avoids_suspects(&self) -> bool {
        self.avoid.iter().any(|node| node == SUSPECTS)
    }
}

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    if job.avoid.len() > MOST_AVOIDED {
        let message =
            format!("{} are left out, and a job can name {MOST_AVOIDED}", counted(job.avoid.len(), "node"));
        out.error("SPEC-AVOID", "avoid", message)
            .fix("request a partition, a queue or a label of the nodes that are good");
    }
    if let Some(odd) = job.avoid.iter().find(|node| !is_node_name(node)) {
        let message = format!("`{}` is not the name of a node", shown(odd));
        out.error("SPEC-AVOID", "avoid", message)
            .fix("name each node as the cluster does: letters, digits, `-`, `_` and `.`; a list such as `gpu-[1-4]` is not expanded");
    }
    if let Some(retry) = job.retry.filter(|retry| !(1..=MOST_RETRIES).contains(&retry.max)) {
        let message = format!("a job is submitted again 1 to {MOST_RETRIES} times, not {}", retry.max);
        out.error("SPEC-RETRY", "retry.max", message).fix("set `retry = { max = 3 }`");
    }
}
