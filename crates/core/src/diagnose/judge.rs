//! Whether a connection is a problem: what `!` means in every map.

use crate::Finding;
use crate::request::Fabric;
use weftrun_nccl::FabricSeen;

/// Codes of the findings that say that connections over sockets are a problem: between nodes, and inside them.
const SOCKETS: [&str; 2] = ["NCCL-NET-SOCKET-FALLBACK", "NCCL-NET-INSIDE-NODE"];

/// Judges single connections as the findings judge the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    planned: Option<Fabric>,
    sockets_between: bool,
    sockets_inside: bool,
    other_provider: bool,
}

impl Judge {
    /// Creates a judge from what was planned and what was found.
    pub fn new(planned: Option<Fabric>, findings: &[Finding]) -> Self {
        let found = |code: &str| findings.iter().any(|finding| finding.code == code);
        let [between, inside] = SOCKETS.map(found);
        let other_provider = found(super::WRONG_PROVIDER);
        Self { planned, sockets_between: between, sockets_inside: inside, other_provider }
    }

    /// Returns whether a connection is a problem: it is not what was planned, a finding is about it, or it is
    /// libfabric over TCP, for which a plugin was loaded without its fabric. A plan of `auto` is met by every
    /// network.
    pub fn is_wrong(self, seen: FabricSeen, inside_node: bool) -> bool {
        match seen {
            FabricSeen::LibfabricTcp => true,
            FabricSeen::Socket if inside_node => self.sockets_inside,
            _ if inside_node => false,
            FabricSeen::Socket if self.sockets_between => true,
            FabricSeen::LibfabricOther if self.planned == Some(Fabric::Efa) => self.other_provider,
            seen => self.planned.is_some_and(|planned| planned.is_met_by(seen) == Some(false)),
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
            assert!(wrong(planned, &[], FabricSeen::LibfabricTcp), "{planned:?}");
        }
        for (planned, findings, seen, is_wrong) in [
            (Some(Fabric::Auto), &[][..], FabricSeen::Socket, false),
            (Some(Fabric::Auto), found, FabricSeen::Socket, true),
            (Some(Fabric::Tcp), &[], FabricSeen::Socket, false),
            (Some(Fabric::Efa), &[], FabricSeen::Socket, true),
            (Some(Fabric::Efa), &[], FabricSeen::Efa, false),
            (Some(Fabric::Auto), &[], FabricSeen::Efa, false),
            (Some(Fabric::Roce), &[], FabricSeen::Verbs, false),
        ] {
            assert_eq!(wrong(planned, findings, seen), is_wrong, "{planned:?} {seen:?}");
        }
        assert!(!Judge::new(Some(Fabric::Efa), found).is_wrong(FabricSeen::Socket, true));
    }
}
