//! Whose failure the cause of a job's end is: the table from which nodes are judged and jobs are submitted again.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::rules::{Rule, rule_of_error, rules};

word_enum! {
    /// Whose failure a cause is, where it is not the program's. Each rule has its own ([`Rule::fault`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Fault: ALL {
        /// The hardware of the node: one event proves it.
        Hardware = "hardware",
        /// The node, its driver or its daemons: two events in different jobs make it a suspect.
        Node = "node",
        /// The link between two nodes: either end, or what is between them.
        Link = "link",
        /// The network, or how the processes find each other; no node is to blame.
        Network = "network",
        /// The cluster: it took the nodes away, or did not answer.
        Cluster = "cluster",
    }
}

impl Fault {
    /// Returns whether it counts against a node that the cause names.
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::Hardware | Self::Node | Self::Link)
    }

    /// Returns whose failure it is and what a retry does, as sentences.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Hardware => {
                "The failure of a node's hardware: one event makes the node a suspect (`weftrun nodes`), and `--retry` submits the job again without it."
            }
            Self::Node => {
                "A failure of a node: two events in different jobs make the node a suspect (`weftrun nodes`), and `--retry` submits the job again without it."
            }
            Self::Link => {
                "A failure of the link between two nodes: events of two jobs in which one node is the common end make it a suspect (`weftrun nodes`). `--retry` leaves out the node where one alone is named, else it submits the job again once and leaves out none."
            }
            Self::Network => {
                "A failure of the network, or of how the processes find each other: `--retry` submits the job again once, and leaves out no node."
            }
            Self::Cluster => {
                "Of the cluster's making: `--retry` submits the job again, unless the cluster itself starts it again, and leaves out no node."
            }
        }
    }

    /// Returns the fault of a cause; none where it is the program's, or nobody's that a retry could help. What the cluster itself
    /// reports has codes of its own, and the fault of its class.
    pub fn of(cause: &Cause) -> Option<Self> {
        // A node may evict a pod for what the program uses; a drain is never for that.
        if matches!(cause.code.as_str(), "K8S-DRAINED" | "K8S-DISRUPTED") {
            return Some(Self::Cluster);
        }
        let by_code = rules().find(|rule| rule.code == cause.code);
        let rule = by_code.unwrap_or_else(|| rule_of_error(cause.class, &[]));
        let lines = cause.evidence.iter().map(|evidence| evidence.text.as_str());
        let proved = |proof: fn(&str) -> bool| lines.chain([cause.what.as_str()]).any(proof);
        if rule.proof.is_some_and(proved) { Some(Self::Hardware) } else { rule.fault }
    }
}

/// Returns the rules that have a fault, by fault: what `weftrun explain faults` prints.
pub fn faults() -> impl Iterator<Item = (Fault, Vec<&'static Rule>)> {
    Fault::ALL.into_iter().map(|fault| {
        let mut of: Vec<&Rule> = rules().filter(|rule| rule.fault == Some(fault)).collect();
        of.sort_by_key(|rule| rule.code);
        of.dedup_by_key(|rule| rule.code);
        (fault, of)
    })
}

/// Returns whether a line reports an error of the driver that means a fault of the GPU, its memory or its links.
pub(crate) fn is_hardware_xid(line: &str) -> bool {
    let numbers = line.match_indices("Xid").filter_map(|(at, word)| {
        let rest = line.get(at + word.len()..)?;
        // `Xid 79`, `Xid (PCI:0000:b3:00): 79, …`.
        let rest = rest.split_once("): ").map_or(rest, |(_, number)| number);
        let digits = rest.trim_start_matches([' ', ':', '=']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits.get(..end)?.parse().ok()
    });
    numbers.into_iter().any(|number| crate::cause::HARDWARE_XIDS.contains(&number))
        || line.contains("fell off the bus")
}

/// Returns whether a line reports that a port of an HCA went down, or that the HCA is dead.
pub(crate) fn is_dead_nic(line: &str) -> bool {
    ["port error", "port_err", "PORT_ERR", "local catastrophic error", "DEVICE_FATAL"]
        .iter()
        .any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::class_of;

    #[test]
    fn hardware_is_told_by_the_number_of_the_driver_and_the_words_of_the_nic() {
        for (line, proves) in [
            ("NVRM: Xid (PCI:0000:b3:00): 79, pid=1, GPU has fallen off the bus.", true),
            ("the driver reports Xid 48 of GPU 0000:b3:00: uncorrectable ECC error", true),
            ("NVRM: Xid (PCI:0000:b3:00): 119, pid=1, Timeout waiting for RPC from GSP", false),
            ("the driver reports Xid 43: a kernel stopped the GPU's processing", false),
            ("Xid", false),
            ("Xid 99999999999999999999", false),
        ] {
            assert_eq!(is_hardware_xid(line), proves, "{line}");
        }
        assert!(is_dead_nic("NET/IB : Got async event : port error"));
        assert!(!is_dead_nic("NET/IB : Got async event : GID table change"));
    }

    /// What the cluster reports has codes that are no rules.
    #[test]
    fn a_cause_that_the_cluster_reports_has_the_fault_of_its_class() {
        for (code, fault) in [
            ("K8S-NODE-LOST", Some(Fault::Node)),
            ("SLURM-NODE-FAILED", Some(Fault::Node)),
            ("K8S-PREEMPTED", Some(Fault::Cluster)),
            ("SLURM-PREEMPTED", Some(Fault::Cluster)),
            ("K8S-DRAINED", Some(Fault::Cluster)),
            ("K8S-DISRUPTED", Some(Fault::Cluster)),
            // What the program uses, or what somebody did: a retry may fail the same way.
            ("K8S-EVICTED", None),
            ("K8S-DELETED", None),
            ("K8S-NAMESPACE-DELETED", None),
            ("K8S-OOM", None),
            ("SLURM-OUT-OF-MEMORY", None),
            ("SLURM-TIME-LIMIT", None),
            ("K8S-IMAGE-PULL", None),
            ("K8S-UNSCHEDULABLE", None),
            ("K8S-QUOTA", None),
            ("SLURM-NEVER-STARTS", None),
            ("K8S-START", None),
            ("K8S-EXIT", None),
        ] {
            let class = class_of(code).unwrap();
            let mut cause = Cause::new(class, rule_of_error(class, &[]), "words".to_owned());
            code.clone_into(&mut cause.code);
            assert_eq!(Fault::of(&cause), fault, "{code}");
        }
    }

    /// What a program does wrong counts against no node.
    #[test]
    fn no_rule_of_the_program_has_a_fault() {
        for code in [
            "PROGRAM-EXCEPTION",
            "GPU-OUT-OF-MEMORY",
            "COLLECTIVE-MISMATCH",
            "ARGUMENTS-UNKNOWN",
            "HOST-OUT-OF-MEMORY",
            "GPU-XID-OF-PROGRAM",
            "PROCESS-KILLED",
            "PROCESS-CRASHED",
            "TIME-LIMIT",
            "JOB-CANCELLED",
            "PROCESS-EXITED",
        ] {
            assert!(rules().filter(|rule| rule.code == code).all(|rule| rule.fault.is_none()), "{code}");
        }
        for (fault, of) in faults() {
            assert!(!of.is_empty(), "{}", fault.as_str());
        }
    }
}
