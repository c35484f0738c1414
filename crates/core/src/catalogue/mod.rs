//! What an instance type has. The rows are data in the tree (`data/instances.tsv`).

use serde::{Deserialize, Serialize};

/// The fabric an instance type has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeFabric {
    /// None but TCP.
    #[default]
    None,
    /// AWS EFA.
    Efa,
    /// InfiniBand.
    Ib,
    /// RoCE.
    Roce,
    /// GPUDirect-TCPX.
    Tcpx,
    /// GPUDirect-TCPXO.
    Tcpxo,
}

/// One row: an instance type of a cloud, or a class of nodes.
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
    /// The fabric.
    pub fabric: NodeFabric,
    /// Most EFA interfaces a node can give to pods; 0 for none at all.
    pub efa_max: u32,
    /// Resource a container asks for the fabric's devices.
    pub fabric_resource: Option<String>,
    /// RDMA read over the fabric; none if unknown. Where it is `Some(false)`, `FI_EFA_USE_DEVICE_RDMA=1` aborts.
    pub rdma_read: Option<bool>,
    /// Huge pages of 2 MiB a whole-node worker asks for, a Kubernetes quantity.
    pub hugepages_2mi: Option<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual CPUs.
    pub vcpus: u32,
}

/// The instance types that are known: those in the tree, and the user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    rows: Vec<InstanceType>,
}

impl Catalogue {
    /// The rows that are in the tree.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// All rows, sorted by name.
    pub fn rows(&self) -> &[InstanceType] {
        &self.rows
    }

    /// The row of a name.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.rows.iter().find(|row| row.name == name)
    }
}
