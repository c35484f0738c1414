//! Rules about TCP sockets and interfaces.

use crate::nodes::Fault;
use std::collections::BTreeSet;

use weftrun_nccl::{Kind, Network, Signature};

use super::messages::OS_ERRORS;
use super::{Blame, ENV, HIGH, MEDIUM, Rule, nccl_issue, rule};
use crate::cause::CauseClass;
use crate::rule_input::RuleInput;
use weftrun_core::text::counted;

/// The code of the finding that nodes are connected over sockets.
pub const SOCKETS_BETWEEN_NODES: &str = "NCCL-NET-SOCKET-FALLBACK";
/// The code of the finding that ranks of one node are connected over sockets.
pub const SOCKETS_INSIDE_NODE: &str = "NCCL-NET-INSIDE-NODE";

pub(super) const RULES: &[Rule] = &[
    rule("R01", SOCKETS_BETWEEN_NODES, HIGH,
        "traffic between nodes goes over TCP sockets",
        "give the containers the RDMA or EFA devices and the network plugin, or set fabric = \"tcp\" where TCP is intended",
        nccl_issue!("952")).patch(&[("fabric", Some("auto"))])
        .signatures(&[Signature::SocketConnection, Signature::SocketChosen, Signature::PluginNotFound, Signature::IbNoDevice])
        .when(sockets_between_nodes)
        .detail(socket_connections),
    rule("R54", SOCKETS_INSIDE_NODE, HIGH,
        "ranks of one node are connected over TCP sockets, not over P2P or shared memory",
        "unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE, give the containers /dev/shm, and all ranks of a node one host name",
        ENV)
        .signatures(&[Signature::SocketConnection, Signature::P2pDisabled, Signature::ShmDisabled])
        .when(sockets_inside_nodes)
        .detail(socket_connections),
    rule("R16", "NCCL-FORCED-BY-ENV", MEDIUM,
        "the environment forces or disables a transport",
        "unset the variable, unless that is what you want",
        ENV)
        .signatures(&[Signature::IbDisabled, Signature::SocketsRequested, Signature::P2pDisabled, Signature::ShmDisabled])
        .when(forced_by_environment)
        .detail(forced_transports),
    rule("R36", "SOCKET-NO-INTERFACE", HIGH,
        "no network interface fits NCCL_SOCKET_IFNAME",
        "fix NCCL_SOCKET_IFNAME: a prefix, `=` for an exact name, `^` to exclude",
        nccl_issue!("1837")).patch(&[("env.NCCL_SOCKET_IFNAME", None)])
        .signatures(&[Signature::NoInterface])
        .fails(),
    rule("R36c", "SOCKET-OTHER-SUBNET", HIGH,
        "the address that the ranks were told to reach (that of rank 0, or NCCL_COMM_ID) is in no subnet of this host",
        "make that address one that this host reaches: in containers use the network of the host (`--net=host`, hostNetwork), for an address of a docker bridge leads nowhere; unset NCCL_COMM_ID if it is set",
        "https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc")
        .signatures(&[Signature::OtherSubnet])
        .fails(),
    rule("R36d", "SOCKET-NOT-MADE", HIGH,
        "the system gave NCCL no socket for an interface's address",
        "look at the words behind it: `Address family not supported` means an IPv6 address where IPv6 is off, a container without a network of its own (NCCL_SOCKET_FAMILY=AF_INET, `--net=host`), or a peer that failed before it told its address: read the first warning of the others",
        "https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc")
        .signatures(&[Signature::SocketRefused])
        .fails(),
    rule("R36b", "SOCKET-ADDRESS-EMPTY", HIGH,
        "the address of a peer was not filled in: no interface fits on its host, or it did not post its part (sends and receives in another order), or runs another build of NCCL, or P2P and SHM are off between ranks of one node",
        "check that sends and receives are posted in the same order inside one group on both ranks, and that all ranks run the same build of NCCL",
        nccl_issue!("2057"))
        .signatures(&[Signature::AddressEmpty])
        .advice(told_interface)
        .fails(),
    rule("R37b", "SOCKET-LINK-LOCAL", HIGH,
        "a rank gave its peers a link-local address (169.254.x or fe80::), which other hosts cannot reach",
        "set NCCL_SOCKET_IFNAME to the interface that has an address in the network of the nodes",
        nccl_issue!("975"))
        .signatures(&[Signature::LinkLocal])
        .explaining(&["SOCKET-SUSPICIOUS-INTERFACE", "TCP-CONNECT-FAILED"])
        .advice(reachable_interface)
        .fails(),
    rule("R60b", "GLOO-MESH", HIGH,
        "Gloo could not connect all ranks over the interface that it chose",
        "set GLOO_SOCKET_IFNAME on every host to the interface that joins the nodes, and check the firewall between them",
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/pair.cc")
        .signatures(&[Signature::GlooMesh])
        .says(&[&["tcp/pair.cc", "Connection refused"], &["tcp/pair.cc", "No route to host"], &["tcp/pair.cc", "Connection timed out"]])
        .fails(),
    rule("R60c", "GLOO-ADDRESS-FAMILY", HIGH,
        "two ranks gave Gloo addresses of different kinds: one IPv4 (2), the other IPv6 (10)",
        "set GLOO_SOCKET_IFNAME on every host to an interface that has addresses of the same kind, or make all host names resolve to that kind (`getent ahosts NAME`)",
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/address.cc")
        .says(&[&["ss1.ss_family == ss2.ss_family"]])
        .fails(),
    rule("R60d", "GLOO-DEVICE", HIGH,
        "Gloo could not set up its TCP device on this host: its interface, or the address of its host name",
        "set GLOO_SOCKET_IFNAME to the interface that joins the nodes, or make the host's own name resolve to an address of the host (`getent hosts $(hostname)`)",
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/device.cc")
        .says(&[&["gloo/transport/tcp/device.cc"]])
        .fails(),
    rule("R63", "RENDEZVOUS-PORT", HIGH,
        "the port of the rendezvous is in use on its host",
        "use another port (MASTER_PORT, `--master-port`, the port of `--rdzv-endpoint`), or end the process that holds it",
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/socket.cpp")
        .signatures(&[Signature::RendezvousPort])
        .says(&[&["ddress already in use"], &["EADDRINUSE"], &["(errno: 98 "]])
        .only(&[CauseClass::Rendezvous])
        .blame(Blame::Rank(CauseClass::Rendezvous))
        .detail(rendezvous_port),
    rule("R63b", "RENDEZVOUS-PORT-DENIED", HIGH,
        "the process may not listen on the port of the rendezvous",
        "use a port above 1023 (MASTER_PORT, `--master-port`, the port of `--rdzv-endpoint`)",
        OS_ERRORS)
        .says(&[&["failed to bind to", "errno: 13"], &["failed to listen", "errno: 13"], &["EACCES"]])
        .only(&[CauseClass::Rendezvous]),
    rule("R64", "RENDEZVOUS-TIMEOUT", HIGH,
        "a rank could not reach the rendezvous, or not in time",
        "check that the address resolves and is reachable from every node, that its port is open, and that the node of rank 0 started",
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/socket.cpp").fault(Fault::Network)
        .explaining(&["STORE-UNREACHABLE"])
        .signatures(&[Signature::RendezvousTimeout])
        .says(&[
            &["client socket has timed out after ", "while trying to connect"],
            &["client socket has failed to connect to any network address of "],
        ])
        .advice(numeric_name)
        .blame(Blame::Rank(CauseClass::Rendezvous))
        .detail(rendezvous_address),
    rule("R64b", "STORE-UNREACHABLE", HIGH,
        "a try to reach the store of the rendezvous (rank 0, or the launcher of the first node) failed; it is tried again until the time limit",
        "check that the process that holds the store runs, that its address in the line is that of its host, and that the port is open between the nodes",
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/socket.cpp").fault(Fault::Network)
        .signatures(&[Signature::StoreUnreachable])
        .advice(numeric_name),
    rule("R60", "GLOO-INTERFACE", HIGH,
        "Gloo found no local address for the name in the line: an interface of GLOO_SOCKET_IFNAME, or else the host's own name",
        "if it is this host's name, set GLOO_SOCKET_IFNAME to the interface that joins the hosts, or let the name resolve to an address of the host (/etc/hosts); if it is an interface, name one that every host has, or several with commas (`^` is not known)",
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/device.cc")
        .signatures(&[Signature::GlooInterface])
        .says(&[&["Unable to find address for: "], &["Unable to find interface for: "]])
        .fails(),
    rule("R37", "SOCKET-SUSPICIOUS-INTERFACE", MEDIUM,
        "an interface that other hosts may not reach was chosen",
        "set NCCL_SOCKET_IFNAME=^lo,docker,veth,virbr,br- or the right name",
        nccl_issue!("975")).patch(&[("env.NCCL_SOCKET_IFNAME", Some("^lo,docker,veth,virbr,br-"))])
        .signatures(&[Signature::SuspiciousInterface, Signature::LoopbackInterface])
        .when(interface_unreachable)
        .advice(without_flagged),
    rule("R38", "TCP-CONNECT-FAILED", HIGH,
        "a TCP connection between ranks failed: firewall, wrong interface, or a dead peer",
        "check the address in the message, the security group, and NCCL_SOCKET_IFNAME",
        "https://github.com/NVIDIA/nccl-tests/issues/166").fault(Fault::Network)
        .signatures(&[Signature::ConnectFailed])
        .advice(other_interface)
        .blame(Blame::Link),
    rule("R39", "TCP-STRAY-CONNECTION", MEDIUM,
        "something else connected to a port of NCCL: a port scanner, or ranks of another job",
        "give every node its own host name or NCCL_HOSTID; keep scanners off the ports",
        "https://github.com/NVIDIA/nccl-tests/issues/188")
        .signatures(&[Signature::StrayConnection]),
];

/// Returns whether sockets are a fallback: only between nodes, and only where they were not requested.
fn sockets_between_nodes(seen: &RuleInput<'_>) -> bool {
    if seen.sockets_on_purpose() {
        return false;
    }
    if seen.has(Signature::SocketConnection) {
        return seen.socket_connections() > 0 && !seen.sockets_are_inside_nodes();
    }
    let alone = seen.several_nodes() == Some(false);
    let connected_otherwise = seen.connects_by(Kind::Net);
    let sockets = seen.uses(Network::Socket, true) && !seen.uses(Network::Socket, false);
    // NCCL before 2.19 and RCCL print no number of nodes: several hosts must be in the log.
    let one_host =
        seen.several_nodes() != Some(true) && !seen.has(Signature::ErrorInSocket) && seen.hosts() <= 1;
    let chosen = seen.has(Signature::SocketChosen)
        || (seen.networks.len() == 1 && sockets && !seen.has(Signature::ErrorInSocket));
    // In a log with only P2P and SHM, the announced network may be unused.
    let local_only = !seen.transports.is_empty() && seen.several_nodes() != Some(true);
    chosen && !alone && !one_host && !connected_otherwise && !local_only && sockets
}

/// Names the address behind some words of a signature's first line.
fn address_behind(seen: &RuleInput<'_>, signature: Signature, words: &str) -> Option<String> {
    let traces = &seen.map.signatures().get(signature)?.traces;
    let address = traces.iter().find_map(|trace| {
        let rest = trace.text.split_once(words)?.1.trim_start_matches(['(', ' ']);
        rest.split([' ', ',', '(', ')']).next().filter(|address| !address.is_empty())
    })?;
    Some(format!(": {}", address.trim_end_matches('.')))
}

/// Returns what to do where the address is one of 0.0.0.0/8, which no host has: the resolver took a host's name for a number.
fn numeric_name(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::StoreUnreachable)?.traces;
    let address = traces.iter().find_map(|trace| {
        let rest = ["[::ffff:0.", "connect to 0."].iter().find_map(|words| trace.text.split_once(words))?.1;
        let rest = rest.split([']', ':', ' ', '(']).next()?;
        let is_address = rest.split('.').count() == 3 && rest != "0.0.0";
        is_address.then(|| format!("0.{rest}"))
    })?;
    Some(format!(
        "{address} is no address of a host: a name of digits alone was read as a number; give the address itself (MASTER_ADDR, `--rdzv-endpoint`; 127.0.0.1 on one host), or rename the host"
    ))
}

fn rendezvous_port(seen: &RuleInput<'_>) -> Option<String> {
    address_behind(seen, Signature::RendezvousPort, "failed to bind to ")
}

fn rendezvous_address(seen: &RuleInput<'_>) -> Option<String> {
    address_behind(seen, Signature::RendezvousTimeout, "trying to connect to ")
}

/// Says which interface the ranks were told to use, where the log shows it.
fn told_interface(seen: &RuleInput<'_>) -> Option<String> {
    let name = seen.map.env("SOCKET_IFNAME").next()?;
    Some(format!(
        "check that an interface fits NCCL_SOCKET_IFNAME={name} on every host; else that both ranks post their sends and receives in one order and run one build of NCCL"
    ))
}

/// Returns the address of a bridge that each host has for itself: docker's own, those that it makes for networks of a user, and libvirt's.
fn bridge_of(text: &str) -> Option<&str> {
    let address = text.split_once("onnect to ")?.1.split(['<', ' ', ',']).next()?;
    let second = address.strip_prefix("172.")?.split('.').next()?.parse::<u8>().ok();
    let of_user = second.is_some_and(|second| (17..=31).contains(&second)) && address.ends_with(".0.1");
    (of_user || address.starts_with("172.17.0.")).then_some(address)
}

/// Names the right interface where one was chosen that other hosts may not reach.
fn other_interface(seen: &RuleInput<'_>) -> Option<String> {
    let failed = seen.map.signatures().get(Signature::ConnectFailed)?;
    if let Some(address) = failed.traces.iter().find_map(|trace| bridge_of(&trace.text)) {
        return Some(format!(
            "{address} is an address of a bridge for containers or virtual machines, which other hosts cannot reach: set NCCL_SOCKET_IFNAME to the interface that joins the hosts (`^docker,br-,virbr,lo` excludes bridges), or run the containers in the network of their host (`--net=host`)"
        ));
    }
    if interface_unreachable(seen) { reachable_interface(seen) } else { None }
}

/// The beginnings of the names of interfaces that join nothing but the containers and virtual machines of one host.
const INSIDE_HOST: [&str; 5] = ["lo", "docker", "veth", "virbr", "br-"];

/// Returns whether other hosts cannot reach an interface, by its name or its address.
fn unreachable(name: &str, address: &str) -> bool {
    ["169.254.", "127.", "fe80:", "::1"].iter().any(|start| address.starts_with(start))
        || INSIDE_HOST.iter().chain(&["cni"]).any(|start| name.starts_with(start))
}

/// Excludes the interfaces of the log that other hosts cannot reach, those too whose names are of no usual kind.
fn without_flagged(seen: &RuleInput<'_>) -> Option<String> {
    let interfaces = seen.map.interfaces();
    let flagged: BTreeSet<&str> = interfaces
        .into_iter()
        .filter(|(name, address)| unreachable(name, address))
        .map(|(name, _)| name)
        .filter(|name| !INSIDE_HOST.iter().any(|start| name.starts_with(start)))
        .collect();
    if flagged.is_empty() {
        return None;
    }
    let names: Vec<&str> = flagged.into_iter().chain(INSIDE_HOST).collect();
    Some(format!("set NCCL_SOCKET_IFNAME=^{} or the right name", names.join(",")))
}

/// Names the interfaces in the log whose addresses other hosts may reach.
fn reachable_interface(seen: &RuleInput<'_>) -> Option<String> {
    let names: BTreeSet<&str> = seen
        .map
        .interfaces()
        .into_iter()
        .filter(|(name, address)| !unreachable(name, address))
        .map(|(name, _)| name)
        .collect();
    let first = names.first()?;
    let of = if names.len() > 1 {
        format!(" (the log lists {})", names.iter().copied().collect::<Vec<_>>().join(", "))
    } else {
        String::new()
    };
    Some(format!("set NCCL_SOCKET_IFNAME={first} for all ranks{of}"))
}

/// Returns whether the environment forces sockets. A plugin for verbs, such as HPC-X's, ignores
/// NCCL_IB_DISABLE: then it explains nothing.
fn forced_by_environment(seen: &RuleInput<'_>) -> bool {
    let heeded = !seen.uses(Network::Verbs, false);
    (seen.has(Signature::IbDisabled) && heeded)
        || seen.has(Signature::SocketsRequested)
        || seen.has(Signature::P2pDisabled)
        || seen.has(Signature::ShmDisabled)
}

fn interface_unreachable(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::SuspiciousInterface)
        || (seen.has(Signature::LoopbackInterface) && seen.several_nodes() != Some(false))
}

fn socket_connections(seen: &RuleInput<'_>) -> Option<String> {
    match usize::try_from(seen.socket_connections()).unwrap_or(usize::MAX) {
        0 if seen.has(Signature::SocketConnection) => None,
        0 => Some(": NCCL chose them, and no line shows the connections".to_owned()),
        sockets => Some(format!(": {}", counted(sockets, "connection"))),
    }
}

fn sockets_inside_nodes(seen: &RuleInput<'_>) -> bool {
    seen.sockets_are_inside_nodes()
}

fn forced_transports(seen: &RuleInput<'_>) -> Option<String> {
    let without_shm = seen.has(Signature::ShmDisabled);
    let p2p =
        if without_shm { "P2P is disabled" } else { "P2P is disabled, so that ranks of one node use SHM" };
    let forced = [
        (Signature::IbDisabled, "InfiniBand is disabled"),
        (Signature::SocketsRequested, "sockets are requested"),
        (Signature::P2pDisabled, p2p),
        (Signature::ShmDisabled, "SHM is disabled"),
    ];
    let forced: Vec<&str> =
        forced.into_iter().filter(|(signature, _)| seen.has(*signature)).map(|(_, text)| text).collect();
    Some(if forced.is_empty() { String::new() } else { format!(": {}", forced.join("; ")) })
}
