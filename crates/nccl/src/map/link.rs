//! The lines of one process about one connection, aggregated over its channels.

use serde::{Serialize, Serializer};

use super::ids::{BurstId, NameId};
use crate::channel::{ChannelLine, Kind, Side};

/// A missing device bracket.
pub(super) const NO_DEVICE: u64 = u64::MAX;

/// Distinct (connection index, channel) numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Channels 0 to 63 of connection index 0 and 1.
    low: [u64; 2],
    /// All others; there are none in any version of NCCL so far.
    rest: Vec<(u32, u32)>,
}

impl Channels {
    /// Most numbers kept outside of the usual range: there may be millions of connections.
    const MOST: usize = 32;

    /// Adds a channel.
    pub fn add(&mut self, index: u32, channel: u32) {
        if channel < 64 && index < 2 {
            self.low[index as usize] |= 1 << channel;
        } else if self.rest.len() < Self::MOST && !self.rest.contains(&(index, channel)) {
            self.rest.push((index, channel));
        }
    }

    /// Adds all of another.
    pub fn union(&mut self, other: &Self) {
        self.low[0] |= other.low[0];
        self.low[1] |= other.low[1];
        for (index, channel) in &other.rest {
            self.add(*index, *channel);
        }
    }

    /// Returns the number of channels.
    pub fn count(&self) -> u32 {
        self.low[0].count_ones()
            + self.low[1].count_ones()
            + u32::try_from(self.rest.len()).unwrap_or(u32::MAX)
    }

    /// Returns the highest channel of connection index 0.
    pub fn highest_collective(&self) -> Option<u32> {
        let low = (self.low[0] != 0).then(|| self.low[0].ilog2());
        self.rest.iter().filter(|(index, _)| *index == 0).map(|(_, channel)| *channel).max().or(low)
    }
}

/// A small set of device numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices(u64);

impl Devices {
    /// Adds a device; numbers beyond 63 count as 63.
    pub fn add(&mut self, device: u32) {
        self.0 |= 1 << device.min(63);
    }

    /// Adds all of another.
    pub fn union(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns whether a device is in the set.
    pub fn contains(self, device: u32) -> bool {
        self.0 & (1 << device.min(63)) != 0
    }

    /// Returns the numbers, in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |device| self.0 & (1 << device) != 0)
    }

    /// Returns the number of devices.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl Serialize for Devices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// Distinguishes the connections of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkKey {
    pub burst: BurstId,
    pub from: u32,
    pub to: u32,
    pub from_device: u64,
    pub to_device: u64,
    pub transport: NameId,
    pub side: Option<Side>,
}

impl LinkKey {
    pub fn new(burst: BurstId, transport: NameId, line: &ChannelLine<'_>) -> Self {
        Self {
            burst,
            from: line.from,
            to: line.to,
            from_device: line.from_device.unwrap_or(NO_DEVICE),
            to_device: line.to_device.unwrap_or(NO_DEVICE),
            transport,
            side: line.side,
        }
    }
}

/// A connection as seen by one process.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub key: LinkKey,
    pub kind: Kind,
    pub channels: Channels,
    pub devices: Devices,
    pub with_gdr: bool,
    pub without_gdr: bool,
    pub pxn: bool,
    pub shared: bool,
    /// First and last line of the source that printed it.
    pub first_line: u64,
    pub last_line: u64,
    /// Whether the slot is in use.
    pub live: bool,
}

impl Link {
    pub fn new(key: LinkKey, line: &ChannelLine<'_>, number: u64) -> Self {
        let mut link = Self {
            key,
            kind: if line.from == line.to && line.transport.kind == Kind::P2p {
                Kind::Own
            } else {
                line.transport.kind
            },
            channels: Channels::default(),
            devices: Devices::default(),
            with_gdr: false,
            without_gdr: false,
            pxn: false,
            shared: false,
            first_line: number,
            last_line: number,
            live: true,
        };
        link.add(line, number);
        link
    }

    pub fn add(&mut self, line: &ChannelLine<'_>, number: u64) {
        self.channels.add(line.index, line.channel);
        if let Some(device) = line.transport.device {
            self.devices.add(device);
        }
        let networked = matches!(self.kind, Kind::Net | Kind::Collnet);
        self.with_gdr |= networked && line.transport.gdr;
        self.without_gdr |= networked && !line.transport.gdr;
        self.pxn |= line.transport.proxy.is_some();
        self.shared |= line.transport.shared;
        self.last_line = number;
    }

    pub fn merge(&mut self, other: &Self) {
        self.channels.union(&other.channels);
        self.devices.union(other.devices);
        self.with_gdr |= other.with_gdr;
        self.without_gdr |= other.without_gdr;
        self.pxn |= other.pxn;
        self.shared |= other.shared;
        self.first_line = self.first_line.min(other.first_line);
        self.last_line = self.last_line.max(other.last_line);
    }

    /// Returns the rank (in the communicator) that printed it. The sender prints P2P and SHM.
    pub fn own_rank(&self) -> u32 {
        if self.key.side == Some(Side::Receive) { self.key.to } else { self.key.from }
    }
}
