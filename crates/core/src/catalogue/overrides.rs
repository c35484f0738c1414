//! The user's own rows: `[instances.NAME]` in the config file.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Catalogue, InstanceType, NodeFabric};
use crate::{Error, ErrorKind, Finding, Result};

/// A row of the user's, or a change of a known one; what is not set stays as in the row it starts from.
///
/// ```toml
/// [instances."p5.48xlarge"]        # changes the known row
/// efa_max = 16
///
/// [instances.our-h100]             # a class of our own nodes
/// extends = "DGX-H100"
/// fabric = "ib"
/// fabric_resource = "rdma/hca_shared_devices_a"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct InstanceOverride {
    /// The row it starts from; the known one of its own name otherwise.
    pub extends: Option<String>,
    /// Cloud or vendor.
    pub provider: Option<String>,
    /// Accelerator.
    pub accelerator: Option<String>,
    /// Accelerators of an instance.
    pub accelerators: Option<u32>,
    /// Memory of one accelerator, MiB.
    pub accelerator_memory_mib: Option<u64>,
    /// The fabric.
    pub fabric: Option<NodeFabric>,
    /// Most EFA interfaces a node can give.
    pub efa_max: Option<u32>,
    /// Network cards or fabric NICs.
    pub nics: Option<u32>,
    /// Resource a container requests for the fabric's devices.
    pub fabric_resource: Option<String>,
    /// How many of it a whole-node worker requests.
    pub fabric_resource_count: Option<u32>,
    /// Network bandwidth of a node, Gb/s.
    pub network_gbps: Option<f64>,
    /// Bandwidth of one NIC, Gb/s.
    pub nic_gbps: Option<f64>,
    /// RDMA read over the fabric.
    pub rdma_read: Option<bool>,
    /// RDMA write over the fabric.
    pub rdma_write: Option<bool>,
    /// Whether the NIC reaches GPU memory.
    pub gpudirect_rdma: Option<bool>,
    /// Huge pages of 2 MiB a whole-node worker requests, a Kubernetes quantity.
    pub hugepages_2mi: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// CPU architecture.
    pub arch: Option<String>,
}

/// Applies the overrides to the rows.
pub(super) fn apply(
    known: &Catalogue,
    overrides: &BTreeMap<String, InstanceOverride>,
) -> Result<Vec<InstanceType>> {
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for name in overrides.keys() {
        match resolve(name, known, overrides, &mut Vec::new()) {
            Ok(row) if row.accelerators == 0 => findings.push(
                problem(name, format!("instance type `{name}` does not say how many accelerators it has"))
                    .fix("set `accelerators`, or start from a known row with `extends`"),
            ),
            Ok(row) => rows.push(row),
            Err(finding) => findings.push(*finding),
        }
    }
    if findings.is_empty() {
        return Ok(rows);
    }
    Err(Error::from_findings(ErrorKind::InvalidConfig, "the config's instance types are wrong", findings))
}

fn problem(name: &str, message: String) -> Finding {
    Finding::error("CONFIG-INSTANCE", message).at(format!("instances.{name}"))
}

fn resolve<'a>(
    name: &'a str,
    known: &Catalogue,
    overrides: &'a BTreeMap<String, InstanceOverride>,
    path: &mut Vec<&'a str>,
) -> std::result::Result<InstanceType, Box<Finding>> {
    if path.contains(&name) {
        return Err(Box::new(problem(
            name,
            format!("instance type `{name}` extends itself: {}", path.join(" → ")),
        )));
    }
    path.push(name);
    let own = overrides.get(name);
    let base = match own.and_then(|row| row.extends.as_deref()) {
        // A row may change the shipped one of its own name, and name it in `extends`.
        Some(base) if base != name => {
            let row = resolve(base, known, overrides, path)?;
            InstanceType { name: name.to_owned(), ..row }
        }
        _ => match known.get(name) {
            Some(row) => row.clone(),
            None if own.is_some() => InstanceType::new(name),
            None => {
                let message = format!("there is no instance type `{name}` to extend");
                let finding = problem(path.first().unwrap_or(&name), message);
                return Err(Box::new(finding.fix(known.suggestion(name))));
            }
        },
    };
    Ok(own.map_or(base.clone(), |own| changed(base, own)))
}

/// Sets the user's values and marks them as checked.
fn changed(mut row: InstanceType, own: &InstanceOverride) -> InstanceType {
    macro_rules! set {
        ($($field:ident),*; $($optional:ident),*) => {
            $(if let Some(value) = &own.$field {
                row.$field = value.clone();
                settle(&mut row, stringify!($field));
            })*
            $(if own.$optional.is_some() {
                row.$optional.clone_from(&own.$optional);
                settle(&mut row, stringify!($optional));
            })*
        };
    }
    set!(provider, accelerator, accelerators, fabric;
         accelerator_memory_mib, efa_max, nics, fabric_resource, fabric_resource_count, network_gbps, nic_gbps,
         rdma_read, rdma_write, gpudirect_rdma, hugepages_2mi, vcpus, memory_mib, arch);
    row.from_config = true;
    row
}

fn settle(row: &mut InstanceType, column: &str) {
    row.unsure.retain(|name| name != column);
    row.notes.remove(column);
}
