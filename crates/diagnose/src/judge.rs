//! Whether a connection is a problem: what `!` means in every map.

use super::rules;
use weftrun_core::Finding;
use weftrun_core::request::Fabric;
use weftrun_nccl::Network;

/// Judges single connections as the findings judge the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    planned: Option<Fabric>,
    sockets_between: bool,
    sockets_inside: bool,
    other_provider: bool,
    one_node: bool,
}

impl Judge {
    /// Creates a judge from what was planned and what was found.
    pub fn new(planned: Option<Fabric>, findings: &[Finding]) -> Self {
        let found = |code: &str| findings.iter().any(|finding| finding.code == code);
        Self {
            planned,
            sockets_between: found(rules::SOCKETS_BETWEEN_NODES),
            sockets_inside: found(rules::SOCKETS_INSIDE_NODE),
            other_provider: found(rules::WRONG_PROVIDER),
            one_node: false,
        }
    }

    /// Judges the connections of a job on one node, whose verdict is about these connections: there are no others.
    #[must_use]
    pub fn on_one_node(self, one_node: bool) -> Self {
        Self { one_node, ..self }
    }

    /// Returns whether a connection is a problem: it is not what was planned, a finding is about it, or it is
    /// libfabric over TCP, for which a plugin was loaded without its fabric. A plan of `auto` is met by every
    /// network.
    pub fn is_wrong(self, network: Network, inside_node: bool) -> bool {
        match network {
            Network::LibfabricTcp => true,
            Network::Socket if inside_node && self.sockets_inside => true,
            _ if inside_node && !self.one_node => false,
            Network::Socket if self.sockets_between => true,
            Network::LibfabricOther if self.planned == Some(Fabric::Efa) => self.other_provider,
            network => self.planned.is_some_and(|planned| planned.is_met_by(network.into()) == Some(false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_wrong_by_plan_by_finding_or_as_libfabric_over_tcp() {
        let fallback =
            Finding::error("NCCL-NET-SOCKET-FALLBACK", "traffic between nodes goes over TCP sockets");
        let wrong = |planned, findings: &[Finding], seen| Judge::new(planned, findings).is_wrong(seen, false);
        let found = std::slice::from_ref(&fallback);
        for planned in [None, Some(Fabric::Auto), Some(Fabric::Tcp), Some(Fabric::Efa)] {
            assert!(wrong(planned, &[], Network::LibfabricTcp), "{planned:?}");
        }
        for (planned, findings, seen, is_wrong) in [
            (Some(Fabric::Auto), &[][..], Network::Socket, false),
            (Some(Fabric::Auto), found, Network::Socket, true),
            (Some(Fabric::Tcp), &[], Network::Socket, false),
            (Some(Fabric::Efa), &[], Network::Socket, true),
            (Some(Fabric::Efa), &[], Network::Efa, false),
            (Some(Fabric::Auto), &[], Network::Efa, false),
            (Some(Fabric::Roce), &[], Network::Verbs, false),
        ] {
            assert_eq!(wrong(planned, findings, seen), is_wrong, "{planned:?} {seen:?}");
        }
        let inside = Judge::new(Some(Fabric::Efa), found);
        assert!(!inside.is_wrong(Network::Socket, true));
        assert!(inside.on_one_node(true).is_wrong(Network::Socket, true), "there are no other connections");
        assert!(!Judge::new(None, &[]).on_one_node(true).is_wrong(Network::Socket, true));
    }
}
