//! The transports of connections, counted as they are read, so that a query over all of them is free.

use typed_index_collections::TiVec;

use super::ids::NameId;
use super::link::Devices;
use super::process::Process;
use crate::channel::{ChannelLine, Kind};

/// How one transport is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// Kind; none while the name is not that of a transport.
    pub kind: Option<Kind>,
    /// Connections, counted at each end that printed them.
    pub connections: u64,
    pub with_gdr: bool,
    pub without_gdr: bool,
    /// Network devices.
    pub devices: Devices,
}

impl Use {
    fn join(&mut self, other: Self) {
        self.kind = self.kind.or(other.kind);
        self.connections += other.connections;
        self.with_gdr |= other.with_gdr;
        self.without_gdr |= other.without_gdr;
        self.devices.union(other.devices);
    }
}

/// The use of every transport, by the number of its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    by_name: TiVec<NameId, Use>,
}

impl Usage {
    /// Counts a connection line; `fresh` where the connection was not seen before.
    pub fn line(&mut self, name: NameId, line: &ChannelLine<'_>, fresh: bool) {
        let known = self.entry(name);
        known.kind = known.kind.or(Some(line.transport.kind));
        known.connections += u64::from(fresh);
        if matches!(line.transport.kind, Kind::Net | Kind::Collnet) {
            known.with_gdr |= line.transport.gdr;
            known.without_gdr |= !line.transport.gdr;
            if let Some(device) = line.transport.device {
                known.devices.add(device);
            }
        }
    }

    /// Uncounts a connection that turned out to be counted already.
    pub fn merged(&mut self, name: NameId) {
        let known = self.entry(name);
        known.connections = known.connections.saturating_sub(1);
    }

    /// Counts the connections of some processes.
    pub fn of<'a>(processes: impl Iterator<Item = &'a Process>) -> Self {
        let mut uses = Self::default();
        for link in processes.flat_map(|process| &process.links).filter(|link| link.live) {
            uses.entry(link.key.transport).join(Use {
                kind: Some(if link.kind == Kind::Own { Kind::P2p } else { link.kind }),
                connections: 1,
                with_gdr: link.with_gdr,
                without_gdr: link.without_gdr,
                devices: link.devices,
            });
        }
        uses
    }

    /// Returns whether no connection was seen.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns every transport in use, with the number of its name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, Kind, &Use)> {
        self.by_name.iter_enumerated().filter_map(|(name, used)| {
            used.kind.filter(|_| used.connections > 0).map(|kind| (name, kind, used))
        })
    }

    fn entry(&mut self, name: NameId) -> &mut Use {
        let at = usize::from(name);
        if self.by_name.len() <= at {
            self.by_name.resize(at + 1, Use::default());
        }
        &mut self.by_name[name]
    }
}
