//! The lines that name the transport of a connection:
//! `Channel 00/0 : 3[3] -> 0[0] [receive] via NET/Socket/0/GDRDMA`, in every form from NCCL 2.3 to 2.31.

use super::text::{Cursor, text};

/// Which kind of path a transport is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// GPU to GPU: NVLink or PCIe, inside a node or a multi-node NVLink domain.
    P2p,
    /// Through shared memory of one host.
    Shm,
    /// Through a network plugin.
    Net,
    /// Through a collective network (SHARP).
    Collnet,
    /// NVLink SHARP.
    Nvls,
    /// A rank to itself.
    #[serde(rename = "self")]
    Own,
    /// A transport that this version of weftrun does not support; its text is kept.
    Unknown,
}

impl Kind {
    /// Returns the network in the name of a transport, for `NET` and `COLLNET`.
    pub(crate) fn network_in(self, name: &str) -> Option<&str> {
        match self {
            Self::Net => name.strip_prefix("NET/"),
            Self::Collnet => name.strip_prefix("COLLNET/"),
            _ => None,
        }
    }
}

/// Which end of a connection printed a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The sender.
    Send,
    /// The receiver.
    Receive,
}

/// The path a connection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transport<'a> {
    /// What kind of path.
    pub kind: Kind,
    /// Its name without device and modifiers: `P2P/IPC/read`, `NET/AWS Libfabric`.
    pub name: &'a str,
    /// Network device (NIC) number.
    pub device: Option<u32>,
    /// Rank whose proxy does the sending (PXN).
    pub proxy: Option<u32>,
    /// GPUDirect RDMA.
    pub gdr: bool,
    /// Buffers shared among connections (send/recv).
    pub shared: bool,
}

impl<'a> Transport<'a> {
    /// Returns the name of the network, for `NET` and `COLLNET`.
    pub fn network(&self) -> Option<&'a str> {
        self.kind.network_in(self.name)
    }
}

/// One connection of one channel, as one of its ends printed it. Rank numbers are those of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelLine<'a> {
    /// Channel number.
    pub channel: u32,
    /// Connection index: 0 for collectives, 1 for send/recv.
    pub index: u32,
    /// Sending rank.
    pub from: u32,
    /// Receiving rank; the same as `from` in CollNet lines.
    pub to: u32,
    /// The value in brackets after the sender: PCI bus id (before 2.18.3) or device number, both read as
    /// hexadecimal.
    pub from_device: Option<u64>,
    /// The same after the receiver.
    pub to_device: Option<u64>,
    /// Which end printed it, where the line shows it.
    pub side: Option<Side>,
    /// The path.
    pub transport: Transport<'a>,
    /// Communicator pointer at the end of the line (RCCL).
    pub comm: Option<u64>,
}

/// The kind of a line that begins like a channel line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    Connection(ChannelLine<'a>),
    /// Ring order (`Channel 00/02 : 0 1 2`): a plan, not a connection.
    Order,
    /// A truncated connection: nothing may be concluded from it.
    Torn,
    /// Something else.
    Other,
}

/// Reads a message that begins with `Channel`, `Ring`, `Coll` or `CollNet`.
pub fn parse(message: &[u8]) -> Parsed<'_> {
    let mut at = Cursor::new(message);
    let collective = !at.eat(b"Channel ")
        && match at.word() {
            b"Channel" | b"Ring" => false,
            b"Coll" | b"CollNet" => true,
            _ => return Parsed::Other,
        };
    at.blanks();
    let Some(channel) = at.number() else { return torn_if_end(&at) };
    let index = if at.eat(b"/") { at.number() } else { None };
    at.blanks();
    if !at.eat(b":") {
        return torn_if_end(&at);
    }
    at.blanks();
    let Some(from) = at.number() else { return torn_if_end(&at) };
    let from_device = at.bracketed_hex();
    at.blanks();
    let (to, to_device) = if collective {
        (from, from_device)
    } else {
        if !at.eat(b"->") {
            return match at.rest() {
                // `Ring 06 : 2[2] -` is a torn connection, `Channel 00/32 :    0` the ring of a single rank.
                b"" | b"-" if from_device.is_some() => Parsed::Torn,
                b"" | b"-" | [b'0'..=b'9', ..] => Parsed::Order,
                _ => Parsed::Other,
            };
        }
        at.blanks();
        let Some(to) = at.number() else { return torn_if_end(&at) };
        let to_device = at.bracketed_hex();
        if at.rest().first() == Some(&b'[') && !at.rest().contains(&b']') {
            return Parsed::Torn;
        }
        at.blanks();
        if at.eat(b"->") {
            // `Ring 00 : 1 -> 0 -> 1` of the GRAPH subsystem.
            return Parsed::Order;
        }
        (to, to_device)
    };
    let side = if at.eat(b"[send]") {
        Some(Side::Send)
    } else if at.eat(b"[receive]") {
        Some(Side::Receive)
    } else {
        None
    };
    at.blanks();
    if !at.eat(b"via ") {
        return if at.rest().len() < 12 { Parsed::Torn } else { Parsed::Other };
    }
    at.blanks();
    let Some(transport) = transport(&mut at) else { return Parsed::Torn };
    let comm = super::text::behind(at.rest(), "comm 0x").and_then(|rest| Cursor::new(rest).hex());
    // CollNet's sender and receiver are the same rank; a printed `via P2P` without a side is the sender's.
    Parsed::Connection(ChannelLine {
        channel,
        index: index.unwrap_or(0),
        from,
        to,
        from_device,
        to_device,
        side,
        transport,
        comm,
    })
}

fn torn_if_end<'a>(at: &Cursor<'_>) -> Parsed<'a> {
    if at.rest().is_empty() { Parsed::Torn } else { Parsed::Other }
}

/// Reads the text after `via`; none if it is truncated.
fn transport<'a>(at: &mut Cursor<'a>) -> Option<Transport<'a>> {
    let rest = at.rest();
    if rest.starts_with(b"NET/") {
        network(at, Kind::Net, 4)
    } else if rest.starts_with(b"COLLNET/") {
        network(at, Kind::Collnet, 8)
    } else {
        local(at)
    }
}

/// Reads `NET/<name>/<device>[(<proxy rank>)][/GDRDMA[(PCI)]][/GDCopy][/Shared][/flush=…]`. Names contain
/// spaces.
fn network<'a>(at: &mut Cursor<'a>, kind: Kind, prefix: usize) -> Option<Transport<'a>> {
    let rest = at.rest();
    let end = device_slash(rest, prefix)?;
    let name = text(&rest[..end]);
    if name.len() > 96 || name.len() == prefix {
        return None;
    }
    at.skip(end + 1);
    let device = at.number();
    let proxy = if at.eat(b"(") {
        let proxy = at.number();
        at.eat(b")");
        proxy
    } else {
        None
    };
    let mut transport = Transport { kind, name, device, proxy, gdr: false, shared: false };
    while at.eat(b"/") {
        let modifier = at.token();
        match modifier {
            // The text of another rank that wrote at the same moment may follow the word directly.
            whole if whole.starts_with(b"GDRDMA") => transport.gdr = true,
            whole if whole.starts_with(b"Shared") => transport.shared = true,
            // Truncated in the middle of a modifier: whether there was GPUDirect is unknown.
            cut if at.rest().is_empty()
                && is_cut(cut, &[b"GDRDMA(PCI)", b"Shared", b"GDCopy", b"flush="]) =>
            {
                return None;
            }
            other if other.starts_with(b"GDCopy") || other.starts_with(b"flush=") => {}
            // Truncated inside a modifier, followed by the text of another rank: `/GDSetting affinity`.
            cut if matches!(cut.first(), Some(b'G' | b'S' | b'f')) => return None,
            _ => {}
        }
    }
    Some(transport)
}

/// Returns the place of the slash before the device number.
fn device_slash(rest: &[u8], from: usize) -> Option<usize> {
    let line = &rest[..rest.len().min(160)];
    let slash = line[from..].windows(2).position(|pair| pair[0] == b'/' && pair[1].is_ascii_digit());
    slash.map(|at| from + at)
}

const LOCAL: &[(&str, Kind)] = &[
    ("P2P/direct pointer/read", Kind::P2p),
    ("P2P/direct pointer", Kind::P2p),
    ("P2P/common device", Kind::P2p),
    ("direct shared memory", Kind::Shm),
];

/// Reads P2P, SHM, or an unknown transport.
fn local<'a>(at: &mut Cursor<'a>) -> Option<Transport<'a>> {
    let rest = at.rest();
    let plain = |kind, name| Transport { kind, name, device: None, proxy: None, gdr: false, shared: false };
    for (name, kind) in LOCAL {
        if rest.starts_with(name.as_bytes()) {
            at.skip(name.len());
            return Some(plain(*kind, name));
        }
    }
    let cut =
        |name: &str| rest.len() < name.len() && rest.contains(&b' ') && name.as_bytes().starts_with(rest);
    if LOCAL.iter().any(|(name, _)| cut(name)) {
        return None;
    }
    let token = without_glue(at.token_with_slashes());
    let ended = at.rest().is_empty();
    let cut_names: &[&[u8]] = &[
        b"P2P/direct pointer",
        b"P2P/IPC",
        b"P2P/IPC/read",
        b"P2P/CUMEM",
        b"P2P/CUMEM/read",
        b"P2P/MNNVL",
        b"P2P/indirect/",
        b"SHM/direct",
        b"SHM/direct/direct",
        b"SHM/direct/CE",
        b"SHM/CE/",
        b"NET/",
        b"COLLNET/",
    ];
    if token.is_empty() || (ended && (token.ends_with(b"/") || is_cut(token, cut_names))) {
        return None;
    }
    if let Some(end) = crate::text::find(token, b"/indirect/") {
        return Some(plain(Kind::P2p, text(&token[..end + 9])));
    }
    let kind = if token.starts_with(b"P2P/") {
        Kind::P2p
    } else if token.starts_with(b"SHM/") || token == b"SHM" {
        Kind::Shm
    } else if token.starts_with(b"NVLS") {
        Kind::Nvls
    } else {
        Kind::Unknown
    };
    Some(plain(kind, text(&token[..token.len().min(96)])))
}

/// Removes the text of a rank that wrote at the same moment, which may follow the name directly:
/// `P2P/CUMEMstep 3`.
fn without_glue(token: &[u8]) -> &[u8] {
    const NAMES: &[&[u8]] = &[
        b"P2P/CUMEM/read",
        b"P2P/CUMEM/CE",
        b"P2P/CUMEM",
        b"P2P/IPC/read",
        b"P2P/IPC/CE",
        b"P2P/IPC",
        b"P2P/MNNVL",
        b"SHM/direct/direct",
        b"SHM/direct/CE",
        b"SHM/CE/direct",
        b"SHM/CE/CE",
        b"SHM/direct",
        b"SHM/CE",
    ];
    let known = NAMES.iter().find(|name| token.starts_with(name));
    known.filter(|name| token.get(name.len()) != Some(&b'/')).map_or(token, |name| &token[..name.len()])
}

/// Returns whether a text is a proper prefix of one of the names.
fn is_cut(text: &[u8], names: &[&[u8]]) -> bool {
    text != b"GDRDMA"
        && !names.contains(&text)
        && names.iter().any(|name| name.len() > text.len() && name.starts_with(text))
}
