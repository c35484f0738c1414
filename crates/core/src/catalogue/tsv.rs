//! Reads the table.

use super::cell::Cell;
use super::{InstanceType, NodeFabric};
use crate::{Confidence, Error, ErrorKind, Result};

/// Returns the rows of the table, in order.
pub(super) fn rows(table: &str) -> impl Iterator<Item = Result<InstanceType>> + '_ {
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split('\t').collect();
    lines.filter(|line| !line.is_empty()).map(move |line| row(&header, line))
}

fn row(header: &[&str], line: &str) -> Result<InstanceType> {
    let cells: Vec<&str> = line.split('\t').collect();
    let name = cells.first().copied().unwrap_or("");
    if cells.len() != header.len() || name.is_empty() {
        let message = format!("row has {} columns instead of {}", cells.len(), header.len());
        return Err(Error::new(ErrorKind::InvalidConfig, message).with("row", name));
    }
    let mut row = InstanceType::new(name);
    for (column, raw) in header.iter().zip(cells) {
        set(&mut row, column, Cell::new(raw)).ok_or_else(|| bad(name, column, raw))?;
    }
    Ok(row)
}

fn bad(name: &str, column: &str, raw: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("`{raw}` cannot be read"))
        .with("row", name)
        .with("column", column)
}

/// Sets one column. None if it cannot be read.
fn set(row: &mut InstanceType, column: &str, mut cell: Cell<'_>) -> Option<()> {
    let text = cell.value.map(str::to_owned);
    match column {
        // The caller has read the name.
        "name" => return Some(()),
        "provider" => row.provider = text?,
        "accelerator" => row.accelerator = text?,
        "accelerators" => row.accelerators = cell.number()?,
        "accelerator_memory_mib" => row.accelerator_memory_mib = cell.number(),
        "fabric" => row.fabric = NodeFabric::ALL.into_iter().find(|f| f.as_str() == cell.raw)?,
        "efa_max" => row.efa_max = cell.number(),
        "nics" => row.nics = cell.number(),
        "fabric_resource" => {
            (row.fabric_resource, row.fabric_resource_count) = resource(cell.raw);
            cell.remark = row.fabric_resource.as_deref().unwrap_or("") != cell.raw;
        }
        "network_gbps" => row.network_gbps = cell.number(),
        "nic_gbps" => row.nic_gbps = cell.number(),
        "fabric_generation" => row.fabric_generation = text,
        "nitro" => row.nitro = text,
        "rdma_read" => row.rdma_read = cell.answer(),
        "rdma_write" => row.rdma_write = cell.answer(),
        "gpudirect_rdma" => row.gpudirect_rdma = cell.answer(),
        "hugepages_2mi" => row.hugepages_2mi = text,
        "hugepages_2mi_allocatable_mib" => row.hugepages_2mi_allocatable_mib = cell.number(),
        // `none` here is a value: "no link between them"; the text is shown as it is, including marks.
        "intra_node" => {
            row.intra_node = (!matches!(cell.raw, "" | "?")).then(|| cell.raw.to_owned());
            return Some(());
        }
        "vcpus" => row.vcpus = cell.number(),
        "memory_mib" => row.memory_mib = cell.number(),
        "arch" => row.arch = text,
        "confidence" => {
            let (word, why) = cell.raw.split_once(':').unwrap_or((cell.raw, ""));
            row.confidence = Some(Confidence::ALL.into_iter().find(|level| level.as_str() == word)?);
            cell.remark = !why.is_empty();
        }
        "sources" => row.sources = cell.raw.split(',').map(str::to_owned).collect(),
        _ => return None,
    }
    if cell.unsure {
        row.unsure.push(column.to_owned());
    }
    if cell.remark {
        row.notes.insert(column.to_owned(), cell.raw.to_owned());
    }
    Some(())
}

/// Returns the resource's name and count, where there is exactly one: `rdma/ib: 1`, `nvidia.com/rdma-vf
/// (16) or …`. A list of alternatives, a pattern, or "as the cluster set it" has none.
fn resource(text: &str) -> (Option<String>, Option<u32>) {
    if text.contains(['|', '*']) || text.contains("cluster-set") {
        return (None, None);
    }
    let end = text.find([' ', ':', '(']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    // `networking.gke.io/interfaces` is an annotation.
    if !name.contains('/') || name.starts_with("networking.gke.io/") {
        return (None, None);
    }
    let digits = rest.trim_start_matches([' ', ':', '(']);
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
    (Some(name.to_owned()), digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_only_where_there_is_one() {
        assert_eq!(resource("vpc.amazonaws.com/efa"), (Some("vpc.amazonaws.com/efa".into()), None));
        assert_eq!(resource("rdma/ib: 1"), (Some("rdma/ib".into()), Some(1)));
        assert_eq!(resource("rdma/ib: 1 + 16 Multus nets"), (Some("rdma/ib".into()), Some(1)));
        assert_eq!(
            resource("nvidia.com/rdma-vf (16) or hostNetwork"),
            (Some("nvidia.com/rdma-vf".into()), Some(16))
        );
        for none in [
            "",
            "rdma/hca_shared_devices_a | rdma/ib (cluster-set)",
            "rdma/* (cluster-set)",
            "networking.gke.io/interfaces rdma-0..7",
            "none (docker --device=/dev/infiniband)",
        ] {
            assert_eq!(resource(none), (None, None), "{none}");
        }
    }

    #[test]
    fn a_torn_row_is_an_error_that_names_it() {
        let error = rows("name\tefa_max\nx\t1\t2\n").next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "row has 3 columns instead of 2 (row: x)");
        let error = rows("name\tfabric\nx\tfoo\n").next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`foo` cannot be read (row: x, column: fabric)");
    }
}
