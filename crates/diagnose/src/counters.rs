//! What the counters of network interfaces show beside the log: second evidence of which fabric carries a job's traffic.

use std::collections::BTreeMap;

use serde::Serialize;
use weftrun_nccl::{FabricSeen, Network};

use weftrun_core::Finding;
use weftrun_core::request::Fabric;

/// Bytes a second that management traffic of an interface stays below.
const TRAFFIC: f64 = 1e6;

/// The traffic of the RDMA interfaces of a running job's nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters {
    /// Time between the two samples, seconds.
    pub seconds: f64,
    /// Nodes that were sampled.
    pub nodes: Vec<String>,
    /// Their interfaces. The counters include other jobs on the same node.
    pub interfaces: Vec<Interface>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Node or pod.
    pub host: String,
    /// Interface and port: `mlx5_0:1`.
    pub interface: String,
    /// Link and rate: `InfiniBand 400 Gb/sec (4X NDR)`.
    pub link: String,
    /// Whether its port is active.
    pub active: bool,
    /// Bytes sent a second.
    pub sent: f64,
    /// Bytes received a second.
    pub received: f64,
    /// Counters of errors that grew, and by how much.
    pub errors: BTreeMap<String, u64>,
}

impl Counters {
    /// Returns the interfaces that carry traffic.
    fn busy(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|one| one.sent.max(one.received) > TRAFFIC)
    }

    /// Returns a line for each interface, the busiest first.
    pub fn lines(&self) -> Vec<String> {
        let mut sorted: Vec<&Interface> = self.interfaces.iter().collect();
        sorted.sort_by(|one, other| other.sent.total_cmp(&one.sent));
        let line = |one: &&Interface| {
            let state = if one.active { "" } else { ", not active" };
            let errors: Vec<String> =
                one.errors.iter().map(|(name, grown)| format!(", {name} +{grown}")).collect();
            format!(
                "{} {}: sent {:.2} GB/s, received {:.2} GB/s ({}{state}){}",
                one.host,
                one.interface,
                one.sent / 1e9,
                one.received / 1e9,
                one.link.trim(),
                errors.concat()
            )
        };
        sorted.iter().map(line).collect()
    }

    /// Compares the traffic with the fabric that the log proves; where it proves none, with the planned one.
    pub fn findings(&self, seen: FabricSeen, planned: Option<Fabric>) -> Vec<Finding> {
        let nodes = match self.nodes.len() {
            1 => "1 node".to_owned(),
            count => format!("{count} nodes"),
        };
        let sent: f64 = self.busy().map(|one| one.sent).sum();
        let busy = self.busy().count();
        let carried = format!(
            "{busy} of {} RDMA interfaces of {nodes} carried traffic, {:.2} GB/s sent in all over {:.1} s",
            self.interfaces.len(),
            sent / 1e9,
            self.seconds
        );
        let planned = planned.and_then(Fabric::named).filter(|_| rdma(seen).is_none());
        let (told, whose, is_rdma) = match planned {
            Some(planned) => {
                let is_rdma = matches!(planned, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand);
                (format!("{planned} was planned"), format!("the planned {planned}"), Some(is_rdma))
            }
            None => {
                let fabric = seen.label();
                (format!("the log proves {fabric}"), format!("the log's {fabric}"), rdma(seen))
            }
        };
        let differs = |fix: &str| {
            let message = format!("{told}, and {carried}");
            Finding::warning("NIC-TRAFFIC-DIFFERS", message).fix(fix)
        };
        let finding = match (is_rdma, busy) {
            _ if self.interfaces.is_empty() => Finding::info(
                "NIC-TRAFFIC",
                format!(
                    "{nodes} show no RDMA interface in /sys/class/infiniband: what a TCP network carries is not counted there"
                ),
            ),
            (Some(true), 0) => differs(
                "sample again while the job trains: a job that loads data, evaluates or hangs sends nothing",
            ),
            (Some(false), 1..) => differs(
                "find out what else uses these interfaces: another job on the node, storage, or a second communicator",
            ),
            (Some(true), _) => Finding::info("NIC-TRAFFIC", format!("{carried}, as {whose} requires")),
            (Some(false), _) => Finding::info("NIC-TRAFFIC", format!("{carried}, as {whose} implies")),
            (None, _) => Finding::info("NIC-TRAFFIC", format!("{carried}; the log does not prove a fabric")),
        };
        vec![finding]
    }
}

/// Returns whether a fabric's traffic is counted by RDMA interfaces; none where that is unknown.
fn rdma(seen: FabricSeen) -> Option<bool> {
    match seen {
        FabricSeen::IntraNode => Some(false),
        FabricSeen::Network(network) => match network {
            Network::Efa | Network::Roce | Network::InfiniBand | Network::Verbs | Network::OmniPath => {
                Some(true)
            }
            Network::Socket | Network::LibfabricTcp | Network::Fastrak => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(sent: f64) -> Counters {
        let interface = |interface: &str, sent: f64| Interface {
            host: "a".to_owned(),
            interface: interface.to_owned(),
            link: "InfiniBand 400 Gb/sec (4X NDR)".to_owned(),
            active: true,
            sent,
            received: sent,
            errors: BTreeMap::new(),
        };
        let interfaces = vec![interface("mlx5_0:1", 1000.0), interface("mlx5_1:1", sent)];
        Counters { seconds: 5.0, nodes: vec!["a".to_owned()], interfaces }
    }

    #[test]
    fn traffic_confirms_or_contradicts_the_log() {
        let code = |sent: f64, seen: Network| {
            let findings = counters(sent).findings(seen.into(), None);
            assert_eq!(findings.len(), 1);
            findings[0].code.clone()
        };
        assert_eq!(code(4e10, Network::InfiniBand), "NIC-TRAFFIC");
        assert_eq!(code(0.0, Network::InfiniBand), "NIC-TRAFFIC-DIFFERS");
        assert_eq!(code(4e10, Network::Socket), "NIC-TRAFFIC-DIFFERS");
        assert_eq!(code(0.0, Network::Socket), "NIC-TRAFFIC");
        assert_eq!(code(4e10, Network::Unknown), "NIC-TRAFFIC");
        // A log that proves nothing is compared with the plan.
        let planned = |sent: f64, planned: Fabric| {
            let finding = counters(sent).findings(FabricSeen::Unknown, Some(planned)).remove(0);
            (finding.code, finding.message)
        };
        let (code, message) = planned(4e10, Fabric::Efa);
        assert_eq!(code, "NIC-TRAFFIC");
        assert!(message.ends_with("as the planned efa requires"), "{message}");
        let (code, message) = planned(0.0, Fabric::Roce);
        assert_eq!(code, "NIC-TRAFFIC-DIFFERS");
        assert!(message.starts_with("roce was planned, and 0 of 2 RDMA interfaces"), "{message}");
        assert_eq!(planned(4e10, Fabric::Tcp).0, "NIC-TRAFFIC-DIFFERS");
        assert_eq!(planned(0.0, Fabric::Auto).0, "NIC-TRAFFIC");
        let said = &counters(4e10).findings(Network::Efa.into(), None)[0].message;
        assert!(
            said.starts_with("1 of 2 RDMA interfaces of 1 node carried traffic, 40.00 GB/s sent"),
            "{said}"
        );
        assert!(
            Counters::default().findings(Network::Efa.into(), None)[0].message.contains("no RDMA interface")
        );
        assert!(counters(4e10).lines()[0].starts_with("a mlx5_1:1: sent 40.00 GB/s"));
    }
}
