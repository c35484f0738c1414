//! Checks the fabric request for contradictions.

use super::{Findings, shown};
use crate::request::{Fabric, Gid};
use crate::spec::JobSpec;

/// The table of GIDs of a port has at most 256 entries (`ibv_port_attr.gid_tbl_len` of mlx5: 255).
const MAX_GID: u32 = 255;

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    let request = &job.fabric;
    if request.strict && request.kind == Fabric::Off {
        out.error("SPEC-FABRIC", "fabric.strict", "`strict` pins a fabric, and the fabric is off")
            .fix("remove one of them");
    }
    if let Some(Gid::Index(index)) = request.gid
        && index > MAX_GID
    {
        let message = format!("{index} is not a GID index; the largest is {MAX_GID}");
        out.error("SPEC-FABRIC", "fabric.gid", message);
    }
    let rdma = matches!(request.kind, Fabric::Auto | Fabric::Roce | Fabric::InfiniBand);
    if request.gid.is_some() && !rdma {
        let message = format!("{} has no GID index; `gid` does nothing", word(request.kind));
        out.warning("SPEC-FABRIC", "fabric.gid", message);
    }
    if !request.networks.is_empty() && !rdma {
        let message = format!("{} attaches no networks; `network` does nothing", word(request.kind));
        out.warning("SPEC-FABRIC", "fabric.network", message);
    }
    for network in &request.networks {
        let parts: Vec<&str> = network.split('/').collect();
        let good = parts.len() <= 2 && parts.iter().all(|part| super::names::is_subdomain(part));
        if !good {
            let message = format!("`{}` is not a network attachment", shown(network));
            out.error("SPEC-FABRIC", "fabric.network", message)
                .fix("write `namespace/name`, and several as a list");
        }
    }
}

fn word(kind: Fabric) -> &'static str {
    match kind {
        Fabric::Auto => "auto",
        Fabric::Efa => "EFA",
        Fabric::Roce => "RoCE",
        Fabric::InfiniBand => "InfiniBand",
        Fabric::Tcp => "TCP",
        Fabric::Off => "a fabric that is off",
    }
}
