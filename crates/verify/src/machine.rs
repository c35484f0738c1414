//! The machine that a benchmark ran on, from what its log shows: what joins its GPUs and its nodes, where nobody names its type.

use weftrun_core::catalogue::{Catalogue, InstanceType};
use weftrun_core::request::Fabric;

use crate::device::Device;
use crate::probe::Probes;
use crate::table::Run;

/// GPUs of a node that a switch of NVLink joins in every machine of the catalogue; boards of four join each pair by a part of
/// the links.
const WITH_SWITCH: u32 = 8;
/// Largest rate of an interface or a link that is believed.
const MOST_GBPS: f64 = 10_000.0;
/// What the sources of a machine are, where its log shows it.
const SEEN: &str = "the log";

/// Returns the machine that the reports of its nodes or the list of ranks show, as a row of the catalogue whose other values
/// are unknown. None where neither shows what joins its GPUs or its nodes.
pub(crate) fn machine(probes: &Probes, run: &Run) -> Option<InstanceType> {
    let reported = probes.same("gpus").and_then(|gpus| groups(&gpus));
    let (gpus, model) = match reported.as_deref() {
        Some([(count, model)]) => (*count, model.clone()),
        Some(_) => return None,
        None => (run.ranks.filter(|_| run.nodes == Some(1))?, run.gpu.clone()?),
    };
    let mut row = InstanceType::new(format!("node with {gpus} {model}"));
    row.accelerators = gpus;
    row.sources = vec![SEEN.to_owned()];
    let nvlink = nvlink(probes, gpus);
    let usual =
        || usual_nvlink(gpus, &model).filter(|_| probes.same("nvlinks").is_none_or(|links| links != "0"));
    row.intra_node = nvlink.map(|gbps| format!("NVSwitch/NVLink {gbps}GB/s")).or_else(usual);
    // A container with a part of the GPUs may see all adapters of its host, and storage has adapters too: only a whole node whose
    // adapters are shared out evenly shows its rate.
    let is_even = |count: u32| gpus >= WITH_SWITCH && count > 0 && gpus.is_multiple_of(count);
    if let Some((count, gbps)) = network(probes).filter(|(count, _)| is_even(*count)) {
        (row.nics, row.nic_gbps) = (Some(count), Some(gbps));
    } else if let Some(efa) = efa(probes, gpus, &model) {
        (row.nics, row.nic_gbps, row.network_gbps) = (efa.nics, efa.nic_gbps, efa.network_gbps);
    }
    (row.intra_node.is_some() || row.nics.is_some()).then_some(row)
}

/// Reads `8 NVIDIA H100 80GB HBM3;`: how often each value stands there.
fn groups(counted: &str) -> Option<Vec<(u32, String)>> {
    let parts = counted.split(';').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            part.split_once(' ').and_then(|(count, value)| Some((count.parse().ok()?, value.to_owned())))
        })
        .collect()
}

/// Returns both directions of the NVLink of each GPU, GB/s, where all links of each lead to a switch: all pairs have as many as
/// a GPU has.
fn nvlink(probes: &Probes, gpus: u32) -> Option<f64> {
    let links = probes.same("nvlinks")?.parse::<u32>().ok()?;
    let each = links.checked_div(gpus).filter(|each| *each > 0 && each * gpus == links)?;
    let pairs = groups(&probes.same("nvlink_pairs")?)?;
    let [(count, kind)] = pairs.as_slice() else { return None };
    let all = gpus.checked_mul(gpus.checked_sub(1)?)?;
    if *count != all || kind.strip_prefix("NV")?.parse() != Ok(each) {
        return None;
    }
    let rates = groups(&probes.same("nvlink_rates")?)?;
    let [(_, rate)] = rates.as_slice() else { return None };
    let rate = rate.strip_suffix(" GB/s")?.parse().ok().filter(|rate| (1.0..=MOST_GBPS).contains(rate))?;
    Some(2.0 * f64::from(each) * data_rate(rate))
}

/// Returns one direction of a link without its coding: `nvidia-smi nvlink --status` of driver 580 prints 26.562 GB/s for links of
/// 25 GB/s (H100, H200: 18 links, 900 GB/s both ways) and 53.125 for those of 50 (B200).
fn data_rate(printed: f64) -> f64 {
    [50.0, 25.0, 20.0].into_iter().find(|rate| (*rate..rate * 1.07).contains(&printed)).unwrap_or(printed)
}

/// Returns what joins the GPUs of a whole node of this model, as in all machines of the catalogue that have it.
fn usual_nvlink(gpus: u32, model: &str) -> Option<String> {
    let of = |row: &&InstanceType| row.accelerators == gpus && is_model(&row.accelerator, model);
    let rows = Catalogue::builtin();
    let mut joined = rows.rows().iter().filter(of).filter_map(|row| row.intra_node.clone());
    // `~900` is not checked.
    let known = joined.find(|links| links.starts_with("NVSwitch/") && !links.contains('~'))?;
    (gpus >= WITH_SWITCH).then_some(known)
}

/// Returns whether a name that the driver gives is that of an accelerator of the catalogue: `NVIDIA A100-SXM4-80GB` is `a100`.
/// Cards for PCIe have other links than the module of the same number.
fn is_model(accelerator: &str, name: &str) -> bool {
    let mut words = name.split([' ', '-']).map(str::to_ascii_lowercase);
    let number = accelerator.split('-').next().unwrap_or_default();
    let is_card = name.contains("PCI") || name.contains("NVL");
    !is_card && words.any(|word| word == number)
}

/// Returns the number and the rate of the interfaces of each node that can carry a collective: the active ones of the rate that
/// gives most. Of EFA the kernel shows no rate that is true.
fn network(probes: &Probes) -> Option<(u32, f64)> {
    let mut all = probes.hosts().map(|host| {
        let mut rates: Vec<f64> = carrying(probes, host).filter_map(|device| rate(&device.rate)).collect();
        rates.sort_by(f64::total_cmp);
        let total = |of: &&[f64]| of.iter().sum::<f64>();
        let most = rates
            .chunk_by(|one, two| one.total_cmp(two).is_eq())
            .max_by(|one, two| total(one).total_cmp(&total(two)))?;
        Some((u32::try_from(most.len()).ok()?, *most.first()?))
    });
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

fn carrying(probes: &Probes, host: &str) -> impl Iterator<Item = Device> {
    let carries = |device: &Device| matches!(device.fabric, Some(Fabric::InfiniBand | Fabric::Roce));
    probes.devices(host).into_iter().filter(move |device| device.is_active() && carries(device))
}

/// Reads `400 Gb/sec (4X NDR)`.
fn rate(text: &str) -> Option<f64> {
    let (gbps, _) = text.split_once(" Gb/sec")?;
    gbps.trim().parse().ok().filter(|gbps| (1.0..=MOST_GBPS).contains(gbps))
}

/// Returns the only network that machines of the catalogue with these GPUs and this number of EFA devices have.
fn efa(probes: &Probes, gpus: u32, model: &str) -> Option<InstanceType> {
    let mut counts = probes.hosts().map(|host| {
        let devices = probes.devices(host);
        devices.iter().filter(|device| device.fabric == Some(Fabric::Efa) && device.is_active()).count()
    });
    let count = counts.next().filter(|count| *count > 0).and_then(|count| u32::try_from(count).ok())?;
    if counts.any(|other| u32::try_from(other) != Ok(count)) {
        return None;
    }
    let of = |row: &&InstanceType| {
        row.efa_max == Some(count) && row.accelerators == gpus && is_model(&row.accelerator, model)
    };
    let rows = Catalogue::builtin();
    let mut fitting = rows.rows().iter().filter(of);
    let first = fitting.next()?;
    let network = |row: &InstanceType| (row.nics, row.nic_gbps, row.network_gbps);
    fitting.all(|row| network(row) == network(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(facts: &str, interfaces: &[String]) -> Probes {
        let mut probes = Probes::default();
        let interfaces = interfaces.join(",");
        probes.read(
            format!("weftrun-probe {{\"host\":\"a\",{facts},\"interfaces\":[{interfaces}]}}\n").as_bytes(),
        );
        probes
    }

    fn interface(device: &str, rate: &str, driver: &str) -> String {
        format!(
            "{{\"class\":\"infiniband\",\"device\":\"{device}:1\",\"state\":\"4: ACTIVE\",\"rate\":\"{rate}\",\
             \"link\":\"InfiniBand\",\"driver\":\"{driver}\"}}"
        )
    }

    const SWITCHED: &str = "\"gpus\":\"2 NVIDIA H200;\",\"nvlinks\":36,\"nvlink_pairs\":\"2 NV18;\",\"nvlink_rates\":\"36 26.562 GB/s;\"";

    #[test]
    fn links_that_all_lead_to_a_switch_give_their_rate() {
        let row = machine(&node(SWITCHED, &[]), &Run::default()).unwrap();
        assert_eq!((row.intra_node.as_deref(), row.accelerators), (Some("NVSwitch/NVLink 900GB/s"), 2));
        // A board of four joins each pair by a part of its links; without the pairs nothing is known.
        for facts in [
            SWITCHED.replace("NV18", "NV6"),
            SWITCHED.replace("\"nvlink_pairs\":\"2 NV18;\",", ""),
            SWITCHED.replace("2 NV18;", "1 NV18;1 NV12;"),
        ] {
            assert_eq!(machine(&node(&facts, &[]), &Run::default()), None, "{facts}");
        }
    }

    #[test]
    fn a_whole_node_of_a_known_module_has_its_switch() {
        let of = |gpu: &str, ranks: u32| {
            let run = Run { gpu: Some(gpu.to_owned()), ranks: Some(ranks), nodes: Some(1), ..Run::default() };
            machine(&Probes::default(), &run).and_then(|row| row.intra_node)
        };
        assert_eq!(of("NVIDIA H100 80GB HBM3", 8).as_deref(), Some("NVSwitch/NVLink4 900GB/s"));
        assert_eq!(of("NVIDIA A100-SXM4-80GB", 8).as_deref(), Some("NVSwitch/NVLink3 600GB/s"));
        for (gpu, ranks) in
            [("NVIDIA H100 PCIe", 8), ("NVIDIA H100 NVL", 8), ("NVIDIA H20", 8), ("NVIDIA H100 80GB HBM3", 4)]
        {
            assert_eq!(of(gpu, ranks), None, "{gpu} {ranks}");
        }
    }

    #[test]
    fn the_interfaces_that_carry_most_are_the_network() {
        let mut interfaces: Vec<String> =
            (0..8).map(|at| interface(&format!("mlx5_{at}"), "400 Gb/sec (4X NDR)", "mlx5_core")).collect();
        interfaces.push(interface("mlx5_8", "100 Gb/sec (4X EDR)", "mlx5_core"));
        let row = machine(&node("\"gpus\":\"8 NVIDIA B200;\"", &interfaces), &Run::default()).unwrap();
        assert_eq!((row.nics, row.nic_gbps), (Some(8), Some(400.0)));
        // EFA by the number of its devices.
        let efa: Vec<String> =
            (0..32).map(|at| interface(&format!("rdmap{at}s0"), "100 Gb/sec (4X EDR)", "efa")).collect();
        let row = machine(&node("\"gpus\":\"8 NVIDIA H100 80GB HBM3;\"", &efa), &Run::default()).unwrap();
        assert_eq!((row.nics, row.nic_gbps), (Some(32), Some(100.0)));
        let row =
            machine(&node("\"gpus\":\"8 NVIDIA H100 80GB HBM3;\"", &efa[..7]), &Run::default()).unwrap();
        assert_eq!(row.nics, None, "no type has seven");
    }

    #[test]
    fn gpus_of_two_kinds_are_no_machine() {
        let mixed = node("\"gpus\":\"4 NVIDIA H100 80GB HBM3;4 NVIDIA A100-SXM4-80GB;\"", &[]);
        assert_eq!(machine(&mixed, &Run::default()), None);
    }
}
