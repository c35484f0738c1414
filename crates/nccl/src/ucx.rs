//! The lanes that UCX prints of its connections: which transport and device carries data. NIXL moves a KV cache with them.

/// One lane: a transport on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane<'a> {
    /// `rc_mlx5`, `srd`, `tcp`.
    pub transport: &'a str,
    /// `mlx5_0:1`, `eth0`.
    pub device: &'a str,
}

/// Most lanes that are read of a line. UCX has at most 16 of a connection, in up to six groups.
const LANES: usize = 96;

impl<'a> Lane<'a> {
    fn read(word: &'a str) -> Option<Self> {
        let (transport, device) = word.split_once('/')?;
        let device = device.split_once('/').map_or(device, |(device, _path)| device);
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:+".contains(&byte))
        };
        (is_name(transport) && is_name(device)).then_some(Self { transport, device })
    }
}

/// Returns the lanes of a connection between nodes: `ucp_context_0 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1) rma(rc_mlx5/mlx5_0:1)`
/// (`UCX_LOG_LEVEL=info`; `ucp_worker_print_used_tls` in UCX 1.13 to 1.20).
pub fn lanes_between_nodes(line: &str) -> Vec<Lane<'_>> {
    let Some((_, behind)) = line.split_once("inter-node cfg#") else { return Vec::new() };
    let groups = behind.split('(').skip(1).filter_map(|group| Some(group.split_once(')')?.0));
    distinct(groups.flat_map(str::split_ascii_whitespace))
}

/// Returns the lanes of a row of UCX's table of protocols that emulates access to remote memory in software:
/// `| 0..inf | software emulation | tcp/eth0 |` (`UCX_PROTO_INFO=y`; <https://github.com/openucx/ucx/issues/10950>).
pub fn emulated_lanes(line: &str) -> Vec<Lane<'_>> {
    let Some((_, behind)) = line.split_once("software emulation") else { return Vec::new() };
    let cell = behind.split('|').map(str::trim).find(|cell| !cell.is_empty());
    distinct(cell.unwrap_or_default().split_ascii_whitespace())
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Lane<'a>> {
    let mut lanes: Vec<Lane<'a>> = words.filter_map(Lane::read).take(LANES).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lanes: &[Lane<'_>]) -> Vec<String> {
        lanes.iter().map(|lane| format!("{} {}", lane.transport, lane.device)).collect()
    }

    /// The lines are those that people posted, without their hosts.
    #[test]
    fn the_lanes_of_posted_lines_are_read() {
        for (line, lanes) in [
            (
                "[1701292112.829711] [n1:162239:0] ucp_worker.c:1855 UCX  INFO    0x100b240 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1)",
                &["rc_mlx5 mlx5_0:1", "rc_mlx5 mlx5_1:1"][..],
            ),
            (
                "ucp_worker.c:1903 UCX INFO perftest inter-node cfg#0 tag(rc_verbs/erdma_0:1)",
                &["rc_verbs erdma_0:1"],
            ),
            ("ucp_context_0 inter-node cfg#2 rma(tcp/eth0) am(tcp/eth0)", &["tcp eth0"]),
            ("ucp_context_0 intra-node cfg#2 tag(sysv/memory)", &[]),
            (
                "UCX ERROR cannot find remote protocol for: ucp_context_0 inter-node cfg#2 | put(multi) from cuda/GPU0 to rocm",
                &[],
            ),
            ("inter-node cfg#1 tag(", &[]),
            ("inter-node cfg#1 tag(/ a/ /b \u{1b}[1m/x)", &[]),
        ] {
            assert_eq!(shown(&lanes_between_nodes(line)), lanes, "{line}");
        }
        for (line, lanes) in [
            (
                "|                         0..inf | software emulation                       | srd/rdmap135s0:1 |",
                &["srd rdmap135s0:1"][..],
            ),
            (
                "[1737023435.700863] [n:1:0]   | 0..inf | software emulation | 50% on tcp/eth0/path0 and 50% on tcp/eth1/path0 |",
                &["tcp eth0", "tcp eth1"],
            ),
            ("| 0..inf | zero-copy | srd/rdmap85s0:1 |", &[]),
            ("software emulation", &[]),
        ] {
            assert_eq!(shown(&emulated_lanes(line)), lanes, "{line}");
        }
    }
}
