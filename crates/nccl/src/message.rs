//! Turns a message into an event. The first word selects the few forms that are tried, so that a line costs
//! little.

use super::channel::{self, Parsed};
use super::comm;
use super::event::{Connected, NcclEvent};
use super::text::{Cursor, behind, contains, text};

pub fn parse(message: &[u8]) -> NcclEvent<'_> {
    match message.first() {
        Some(b'C') => connection_or_phase(message),
        Some(b'R') => connection(message),
        Some(b'T') if message.starts_with(b"Trees [") || message.starts_with(b"Tree ") => NcclEvent::Plan,
        Some(b'c' | b'n' | b'[') => match comm::parse(message) {
            Some(line) if line.is_possible() => NcclEvent::Comm(line),
            Some(_) => NcclEvent::Impossible,
            None => other(message),
        },
        Some(b'r') if message.starts_with(b"rank ") && contains(message, "Connected CollNet") => {
            NcclEvent::Connected(Connected::CollNet)
        }
        Some(_) => other(message),
        None => NcclEvent::Other,
    }
}

fn connection(message: &[u8]) -> NcclEvent<'_> {
    match channel::parse(message) {
        Parsed::Connection(line) => NcclEvent::Connection(line),
        Parsed::Order => NcclEvent::Plan,
        Parsed::Torn => NcclEvent::Torn,
        Parsed::Other => other(message),
    }
}

fn connection_or_phase(message: &[u8]) -> NcclEvent<'_> {
    let Some(rest) = message.strip_prefix(b"Connected ") else {
        if let Some(rest) = message.strip_prefix(b"CUDA Dev ") {
            // 2.4 and 2.5: `CUDA Dev 0[0], AWS Libfabric NIC distance :  SYS` names the network that was chosen.
            return nic_distance(rest);
        }
        return connection(message);
    };
    if let Some(flags) = rest.strip_prefix(b"all rings") {
        let flag =
            |name| behind(flags, name).and_then(|rest| Cursor::new(rest).number()).map(|value| value != 0);
        NcclEvent::Connected(Connected::Rings { pxn: flag("PXN "), gdr: flag("GDR ") })
    } else if rest.starts_with(b"all trees") || rest.starts_with(b"binomial") {
        NcclEvent::Connected(Connected::Trees)
    } else if rest.starts_with(b"NVLS") {
        NcclEvent::Connected(Connected::NvlsTree)
    } else if rest.starts_with(b"Coll") {
        NcclEvent::Connected(Connected::CollNet)
    } else {
        NcclEvent::Other
    }
}

fn nic_distance(rest: &[u8]) -> NcclEvent<'_> {
    let name = behind(rest, "], ")
        .and_then(|names| crate::text::find(names, b" NIC distance").map(|end| text(&names[..end])));
    name.filter(|name| is_name(name)).map_or(NcclEvent::Other, NcclEvent::Announced)
}

/// What reads the rest of a message after its prefix.
type ReadRest = fn(&[u8]) -> Option<NcclEvent<'_>>;

/// Reads the rarer messages.
fn other(message: &[u8]) -> NcclEvent<'_> {
    const PREFIXES: &[(&str, ReadRest)] = &[
        ("Using network ", announced),
        ("Using internal Network ", announced),
        ("Using internal network ", announced),
        ("Assigned NET plugin ", assigned),
        ("Initialized NET plugin ", |rest| name(rest).map(NcclEvent::Initialised)),
        ("NET/OFI ", ofi),
        ("NET/IB : Using ", |rest| listed("IB", rest)),
        ("NET/IB: Using ", |rest| listed("IB", rest)),
        // Plugins for verbs print the same list under their own names.
        ("NET/SPCX : Using ", |rest| listed("IB", rest)),
        ("NET/IBext", |rest| {
            let at = crate::text::find(rest.get(..16.min(rest.len()))?, b" : Using ")?;
            listed("IB", &rest[at + 9..])
        }),
        ("NET/Socket : Using ", |rest| listed("Socket", rest)),
        ("NET/FastSocket : Using ", |rest| listed("FastSocket", rest)),
        ("NCCL version ", version),
        ("RCCL version : ", version),
        ("RCCL version ", version),
        ("NET/Plugin: Loaded net plugin ", plugin),
        ("NET/Plugin : Loaded net plugin ", plugin),
        ("P2P plugin ", plugin),
        ("NCCL_", environment),
        ("RAS client listening socket at ", ras_port),
    ];
    for (prefix, parse) in PREFIXES {
        if let Some(rest) = message.strip_prefix(prefix.as_bytes()) {
            return parse(rest).unwrap_or(NcclEvent::Other);
        }
    }
    if message.first().is_some_and(u8::is_ascii_digit) {
        return channels(message).unwrap_or(NcclEvent::Other);
    }
    if let Some(rest) = behind(message, "NCCL version ").or_else(|| behind(message, "RCCL version : ")) {
        return version(rest).unwrap_or(NcclEvent::Other);
    }
    NcclEvent::Other
}

fn announced(rest: &[u8]) -> Option<NcclEvent<'_>> {
    name(rest).map(NcclEvent::Announced)
}

/// Reads `Assigned NET plugin Socket to comm` (2.27.3 and later).
fn assigned(rest: &[u8]) -> Option<NcclEvent<'_>> {
    let end = crate::text::find(rest, b" to comm").unwrap_or(rest.len());
    announced(&rest[..end])
}

fn plugin(rest: &[u8]) -> Option<NcclEvent<'_>> {
    let end = crate::text::find(rest, b" (v").unwrap_or(rest.len());
    name(&rest[..end]).map(NcclEvent::Plugin)
}

/// Reads a name at the end of a message. Names have blanks (`NCCL RDMA Plugin v6`); text added by loggers
/// has brackets.
fn name(rest: &[u8]) -> Option<&str> {
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'[' | b'(' | b'\x1b' | b',' | b':' | b'"' | b'\\' | b'|'));
    let name = text(&rest[..end.unwrap_or(rest.len())]).trim().trim_end_matches('.');
    is_name(name).then_some(name)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b'/')
}

fn listed<'a>(network: &'a str, rest: &'a [u8]) -> Option<NcclEvent<'a>> {
    const OUT_OF_BAND: &[u8] = b"OOB ";
    let found = crate::text::find(rest, OUT_OF_BAND);
    let out_of_band = found.map(|at| text(&rest[at + OUT_OF_BAND.len()..]));
    Some(NcclEvent::Listed { network, devices: text(&rest[..found.unwrap_or(rest.len())]), out_of_band })
}

fn version(rest: &[u8]) -> Option<NcclEvent<'_>> {
    let end =
        rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')));
    let version = text(&rest[..end.unwrap_or(rest.len())]);
    // Two ranks that write at once leave `2.7.8+cuda10.2NCCL version …`.
    let version = version.split("NCCL").next().unwrap_or(version).trim_end_matches(['.', '-']);
    let numbers = version.split('+').next().unwrap_or("");
    let plausible = version.len() <= 40
        && numbers.split('.').count() >= 2
        && numbers
            .split('.')
            .take(2)
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    plausible.then_some(NcclEvent::Version(version))
}

fn ofi(rest: &[u8]) -> Option<NcclEvent<'_>> {
    if let Some(chosen) =
        rest.strip_prefix(b"Selected provider is ").or(rest.strip_prefix(b"Selected Provider is "))
    {
        let end = chosen.iter().position(|byte| matches!(byte, b' ' | b','));
        let name = text(&chosen[..end.unwrap_or(chosen.len())]);
        let nics = behind(chosen, "(found ").and_then(|rest| Cursor::new(rest).number());
        return (!name.is_empty()).then_some(NcclEvent::Provider { name, nics });
    }
    let version =
        rest.strip_prefix(b"Initializing aws-ofi-nccl ").or(rest.strip_prefix(b"Using aws-ofi-nccl "))?;
    let end = version.iter().position(u8::is_ascii_whitespace).unwrap_or(version.len());
    Some(NcclEvent::OfiVersion(text(&version[..end])))
}

/// Reads `127.0.0.1<28028>`, `::1<28028>`.
fn ras_port(rest: &[u8]) -> Option<NcclEvent<'_>> {
    let port = Cursor::new(behind(rest, "<")?).number()?;
    u16::try_from(port).ok().map(NcclEvent::RasPort)
}

/// Reads `NCCL_IB_DISABLE set by environment to 1.`, `NCCL_IB_HCA set to mlx5_4`.
fn environment(rest: &[u8]) -> Option<NcclEvent<'_>> {
    let mut at = Cursor::new(rest);
    let name = at.take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let value = at.rest().strip_prefix(b" set by environment to ").or(at.rest().strip_prefix(b" set to "))?;
    let value = text(value.trim_ascii());
    Some(NcclEvent::Env { name: text(name), value: value.strip_suffix('.').unwrap_or(value) })
}

/// Reads `2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer`.
fn channels(message: &[u8]) -> Option<NcclEvent<'_>> {
    let mut at = Cursor::new(message);
    let coll = at.number()?;
    if !at.eat(b" coll channels") {
        return None;
    }
    let mut p2p = None;
    while at.eat(b", ") {
        let count = at.number()?;
        if at.eat(b" p2p channels per peer") {
            break;
        } else if at.eat(b" p2p channels") {
            p2p = Some(count);
        } else if !at.eat(b" collnet channels") && !at.eat(b" nvls channels") {
            break;
        }
    }
    Some(NcclEvent::Channels { coll, p2p })
}
