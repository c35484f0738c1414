//! Which fabric a network device of a node is evidence of.

use serde::{Deserialize, Serialize};

use crate::request::Fabric;

word_enum! {
    /// The kind of a network device, by what the kernel reports of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum DeviceKind {
        /// AWS Elastic Fabric Adapter.
        Efa = "EFA",
        /// InfiniBand.
        InfiniBand = "InfiniBand",
        /// RDMA over Converged Ethernet.
        Roce = "RoCE",
        /// HPE Slingshot.
        Slingshot = "Slingshot",
        /// Omni-Path.
        OmniPath = "Omni-Path",
        /// RDMA over TCP in the adapter, which NCCL does not use.
        Iwarp = "iWARP",
        /// RDMA emulated by the kernel (`rxe`, `siw`).
        Software = "software RDMA",
        /// Anything else.
        Unknown = "unknown",
    }
}

impl DeviceKind {
    /// Returns the kind of a device of `/sys/class/infiniband` or `/sys/class/cxi`: the name of the class and of the
    /// device, the driver, and the files `link_layer` and `node_type`
    /// (<https://docs.kernel.org/admin-guide/abi-stable.html>, `sysfs-class-infiniband`, read 2026-11-23). EFA
    /// reports no link layer of its own and is known by its driver.
    pub fn of(class: &str, device: &str, driver: &str, link_layer: &str, node_type: &str) -> Self {
        let named = |prefix: &str| device.starts_with(prefix);
        match (class, driver, link_layer) {
            ("cxi", _, _) => Self::Slingshot,
            (_, "efa", _) => Self::Efa,
            (_, "hfi1" | "opa_vnic", _) => Self::OmniPath,
            (_, "", _) if named("rxe") || named("siw") => Self::Software,
            _ if node_type.contains("RNIC") => Self::Iwarp,
            (_, _, "InfiniBand") => Self::InfiniBand,
            (_, _, "Ethernet") => Self::Roce,
            // The driver cannot be read in some containers.
            (_, "", "Unspecified") if named("efa") || named("rdmap") => Self::Efa,
            _ => Self::Unknown,
        }
    }

    /// Returns the fabric that the device is evidence of; none if weftrun has no rules for it.
    pub fn fabric(self) -> Option<Fabric> {
        match self {
            Self::Efa => Some(Fabric::Efa),
            Self::InfiniBand => Some(Fabric::InfiniBand),
            Self::Roce => Some(Fabric::Roce),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_kind_of_a_device() {
        for (class, device, driver, link, node, kind) in [
            ("infiniband", "mlx5_0:1", "mlx5_core", "InfiniBand", "1: CA", DeviceKind::InfiniBand),
            ("infiniband", "mlx5_0:1", "", "InfiniBand", "1: CA", DeviceKind::InfiniBand),
            ("infiniband", "mlx5_bond_0:1", "mlx5_core", "Ethernet", "1: CA", DeviceKind::Roce),
            ("infiniband", "bnxt_re0:1", "bnxt_en", "Ethernet", "1: CA", DeviceKind::Roce),
            ("infiniband", "rdmap79s0:1", "efa", "Unspecified", "7: unspecified", DeviceKind::Efa),
            ("infiniband", "rdmap79s0:1", "", "Unspecified", "", DeviceKind::Efa),
            ("infiniband", "hfi1_0:1", "hfi1", "InfiniBand", "1: CA", DeviceKind::OmniPath),
            ("infiniband", "cxgb4_0:1", "cxgb4", "Ethernet", "4: RNIC", DeviceKind::Iwarp),
            ("infiniband", "rxe0:1", "", "Ethernet", "1: CA", DeviceKind::Software),
            ("cxi", "cxi0", "cxi_ss1", "", "", DeviceKind::Slingshot),
            ("infiniband", "x:1", "", "", "", DeviceKind::Unknown),
        ] {
            assert_eq!(DeviceKind::of(class, device, driver, link, node), kind, "{device}");
        }
        assert_eq!(DeviceKind::Efa.fabric(), Some(Fabric::Efa));
        assert_eq!(DeviceKind::Software.fabric(), None);
    }
}
