//! One row of the catalogue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Confidence;

word_enum! {
    /// The fabric an instance type has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum NodeFabric: ALL {
        /// None but TCP.
        #[default]
        None = "none",
        /// AWS EFA.
        Efa = "efa",
        /// InfiniBand.
        Ib = "ib",
        /// RoCE.
        Roce = "roce",
        /// GPUDirect-TCPX.
        Tcpx = "tcpx",
        /// GPUDirect-TCPXO.
        Tcpxo = "tcpxo",
        /// EFA or RoCE: the sources disagree, so nothing is decided on it.
        EfaOrRoce = "efa-or-roce",
        /// InfiniBand or RoCE, as the site cabled it.
        IbOrRoce = "ib-or-roce",
    }
}

/// One row: an instance type of a cloud, or a class of nodes. `None` is "not known", never "none".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct InstanceType {
    /// Name, as in the node label `node.kubernetes.io/instance-type`.
    pub name: String,
    /// Cloud or vendor.
    pub provider: String,
    /// Accelerator (`h100`).
    pub accelerator: String,
    /// Accelerators of an instance.
    pub accelerators: u32,
    /// Memory of one accelerator, MiB.
    pub accelerator_memory_mib: Option<u64>,
    /// The fabric.
    pub fabric: NodeFabric,
    /// Most `vpc.amazonaws.com/efa` a node can give to pods; `Some(0)` is no EFA at all.
    pub efa_max: Option<u32>,
    /// Network cards (AWS) or fabric NICs (others).
    pub nics: Option<u32>,
    /// Resource a container requests for the fabric's devices, where it has one name everywhere.
    pub fabric_resource: Option<String>,
    /// How many of it a whole-node worker requests, where that is not `efa_max`.
    pub fabric_resource_count: Option<u32>,
    /// Network bandwidth of a node, Gb/s; on GCP the front-end NIC included.
    pub network_gbps: Option<f64>,
    /// Bandwidth of one NIC, Gb/s.
    pub nic_gbps: Option<f64>,
    /// Generation of the fabric (`EFAv2`, `NDR CX7`).
    pub fabric_generation: Option<String>,
    /// Nitro version, by which AWS distinguishes EFA generations.
    pub nitro: Option<String>,
    /// RDMA read over the fabric. Where it is `Some(false)`, `FI_EFA_USE_DEVICE_RDMA=1` aborts.
    pub rdma_read: Option<bool>,
    /// RDMA write over the fabric.
    pub rdma_write: Option<bool>,
    /// Whether the NIC reaches GPU memory.
    pub gpudirect_rdma: Option<bool>,
    /// Huge pages of 2 MiB a whole-node worker requests, a Kubernetes quantity.
    pub hugepages_2mi: Option<String>,
    /// Huge pages of 2 MiB seen allocatable on a real node, MiB.
    pub hugepages_2mi_allocatable_mib: Option<u64>,
    /// What joins the accelerators of a node.
    pub intra_node: Option<String>,
    /// Virtual CPUs of the instance; Kubernetes can give less.
    pub vcpus: Option<u32>,
    /// Memory of the instance, MiB; Kubernetes can give less.
    pub memory_mib: Option<u64>,
    /// CPU architecture (`amd64`, `arm64`).
    pub arch: Option<String>,
    /// How sure the row is: high is two sources that agree, medium is one, low is sources that disagree.
    pub confidence: Option<Confidence>,
    /// Keys of the sources (`data/instances.md`).
    pub sources: Vec<String>,
    /// Columns whose value is from general knowledge or marked unsure: a decision that rests on one reports
    /// it.
    pub unsure: Vec<String>,
    /// Remarks in the data, by column.
    pub notes: BTreeMap<String, String>,
    /// Whether the user's configuration made or changed it.
    pub from_config: bool,
}

impl InstanceType {
    /// Makes a row with a name; all other values are unknown.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns whether ranks, one for each accelerator, fill a number of nodes.
    pub fn is_filled(&self, nodes: u32, ranks: u32) -> bool {
        nodes.checked_mul(self.accelerators) == Some(ranks)
    }

    /// Returns whether a column's value is not checked against a source.
    pub fn is_unsure(&self, column: &str) -> bool {
        self.unsure.iter().any(|name| name == column)
    }
}
