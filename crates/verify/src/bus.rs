//! What the node's PCIe bus and its kernel say of the GPUs: errors, the way to the network cards, and settings that lengthen it.

use weftrun_core::{Finding, text};
use weftrun_nccl::failure::HARDWARE_XIDS;

/// The facts of a node that have findings here.
pub(crate) const XIDS: &str = "xids";
const PATHS: &str = "gpu_nic_paths";
const IOMMU: &str = "gpu_iommu";
const ACS: &str = "acs_bridges";
const TRAFFIC: &str = "nic_traffic";
/// Ways from a GPU to a network card over which NCCL uses no GPUDirect RDMA by default: `NCCL_NET_GDR_LEVEL` is PXB, and PHB on some
/// processors (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, read 2026-11-27).
const FAR: [&str; 2] = ["NODE", "SYS"];

/// Returns what the facts of a node say. `fact` returns one by its name, empty where the node does not report it.
pub(crate) fn findings(host: &str, fact: impl Fn(&str) -> String) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut add = |code: &str, message: String, fix: &str| {
        all.push(Finding::warning(code, message).fix(fix.to_owned()));
    };
    let xids = fact(XIDS);
    let broken: Vec<String> = counted(&xids).filter_map(|(times, what)| hardware(times, what)).collect();
    if !broken.is_empty() {
        let message = format!(
            "{host}: the kernel's log has errors of GPUs that are the hardware's: {}",
            broken.join("; ")
        );
        add(
            "VERIFY-GPU-XID",
            message,
            "look the numbers up in NVIDIA's catalogue of Xids; keep jobs off the node until the GPU was reset or examined",
        );
    }
    let paths = fact(PATHS);
    let far: Vec<String> = counted(&paths)
        .filter(|(_, way)| FAR.contains(way))
        .map(|(count, way)| format!("{count} by {way}"))
        .collect();
    if !far.is_empty() {
        let message = format!("{host}: GPUs have no network card near them: {}", far.join(", "));
        add(
            "VERIFY-GPU-NIC-FAR",
            message,
            "give the job the cards beside its GPUs (`nvidia-smi topo -m`); in a virtual machine name the topology to NCCL (NCCL_TOPO_FILE)",
        );
    }
    let traffic = fact(TRAFFIC);
    if let [cards, megabytes, name] = traffic.split(' ').collect::<Vec<_>>().as_slice()
        && let (Ok(cards), Ok(megabytes)) = (cards.parse::<usize>(), megabytes.parse::<u64>())
    {
        let message = format!(
            "{host}: {} carried {megabytes} MB in the second before the benchmark ({name}{}): another job's traffic, or that of storage",
            text::counted(cards, "network card"),
            if cards > 1 { " and others" } else { "" },
        );
        add(
            "VERIFY-NIC-IN-USE",
            message,
            "measure again when the cards are idle, or on nodes that no other job uses",
        );
    }
    let iommu = fact(IOMMU);
    if let Some((count, _)) = counted(&iommu).find(|(_, mode)| mode.starts_with("DMA")) {
        let message = format!(
            "{host}: the IOMMU translates the addresses of {count} GPUs, so that direct traffic goes by way of the processor"
        );
        add("VERIFY-GPU-IOMMU", message, "on bare metal boot with `iommu=pt`, or without the IOMMU");
    }
    let bridges = fact(ACS);
    if !bridges.is_empty() {
        let message = format!(
            "{host}: ACS is on in {bridges} PCIe bridges, which may send direct traffic by way of the processor"
        );
        add(
            "VERIFY-ACS",
            message,
            "on bare metal switch it off (`setpci`, or in the BIOS); a virtual machine needs it, with ATS on its cards",
        );
    }
    all
}

/// Reads `2 79 on 0000:1b:00;1 13 on 0000:1c:00;`: how often each value stands there.
fn counted(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|part| part.trim().split_once(' '))
}

/// Describes an error that is none of a program's.
fn hardware(times: &str, what: &str) -> Option<String> {
    let (number, place) = what.split_once(" on ")?;
    let number: u32 = number.parse().ok().filter(|number| HARDWARE_XIDS.contains(number))?;
    let times = if times == "1" { String::new() } else { format!(", {times} times") };
    Some(format!("Xid {number} on {place}{times}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(facts: &[(&str, &str)]) -> Vec<(String, String)> {
        let fact = |name: &str| {
            facts.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value).to_owned()
        };
        findings("a", fact).into_iter().map(|finding| (finding.code, finding.message)).collect()
    }

    #[test]
    fn a_healthy_bus_says_nothing() {
        assert_eq!(told(&[]), []);
        // A program's own errors, near cards, and an IOMMU that passes addresses through.
        let well = [
            (XIDS, "3 13 on 0000:1b:00;1 31 on 0000:1c:00;"),
            (PATHS, "6 PIX;2 PXB;"),
            (IOMMU, "8 identity;"),
            (TRAFFIC, "damaged"),
        ];
        assert_eq!(told(&well), []);
        assert_eq!(
            told(&[(XIDS, ";;x 79; 79 on"), (PATHS, "SYS"), (IOMMU, "DMA")]),
            [],
            "damaged values prove nothing"
        );
    }

    #[test]
    fn what_lengthens_the_way_and_what_failed_is_told() {
        let bad = [
            (XIDS, "2 79 on 0000:1b:00;1 13 on 0000:1c:00;"),
            (PATHS, "6 PIX;2 SYS;"),
            (TRAFFIC, "8 12400 mlx5_7"),
            (IOMMU, "8 DMA-FQ;"),
            (ACS, "12"),
        ];
        let told = told(&bad);
        let messages: Vec<&str> = told.iter().map(|(_, message)| message.as_str()).collect();
        assert_eq!(
            messages[0],
            "a: the kernel's log has errors of GPUs that are the hardware's: Xid 79 on 0000:1b:00, 2 times"
        );
        assert_eq!(messages[1], "a: GPUs have no network card near them: 2 by SYS");
        assert_eq!(
            messages[2],
            "a: 8 network cards carried 12400 MB in the second before the benchmark (mlx5_7 and others): another job's traffic, or that of storage"
        );
        let codes: Vec<&str> = told.iter().map(|(code, _)| code.as_str()).collect();
        let all =
            ["VERIFY-GPU-XID", "VERIFY-GPU-NIC-FAR", "VERIFY-NIC-IN-USE", "VERIFY-GPU-IOMMU", "VERIFY-ACS"];
        assert_eq!(codes, all);
    }
}
