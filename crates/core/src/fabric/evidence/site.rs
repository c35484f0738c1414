//! The fabrics that evidence can show, and the profile of each.

use crate::request::Fabric;

/// A fabric of one cloud or cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Id, as in the table of evidence.
    pub id: &'static str,
    /// Name for a person.
    pub name: &'static str,
    /// The kind of fabric; [`Fabric::Auto`] for one without rules.
    pub fabric: Fabric,
    /// Profile of Kubernetes objects, if there is one.
    pub manifests: Option<&'static str>,
    /// Profile of sbatch scripts, if there is one.
    pub scripts: Option<&'static str>,
    /// The more general fabric whose evidence counts for this one too.
    pub parent: Option<&'static str>,
}

/// Profiles that are applied only if they are named: the names of networks and resources differ from cluster to cluster.
const TO_BE_NAMED: &[(&str, &str)] = &[
    ("aws-roce", "eks-gb300"),
    ("azure-ib", "azure-nd"),
    ("coreweave", "coreweave"),
    ("crusoe", "crusoe"),
    ("efa-dra", "eks-dra"),
    ("gke-a4x", "gke-a4x"),
    ("gke-gib", "gke-gib"),
    ("gke-tcpx", "gke-tcpx"),
    ("gke-tcpxo", "gke-tcpxo"),
    ("lambda", "lambda"),
    ("nebius", "nebius"),
    ("nscale", "nscale"),
    ("oci", "oci"),
    ("slingshot", "slingshot"),
    ("together", "together"),
];

const fn site(
    id: &'static str,
    name: &'static str,
    fabric: Fabric,
    (manifests, scripts): (Option<&'static str>, Option<&'static str>),
    parent: Option<&'static str>,
) -> Site {
    Site { id, name, fabric, manifests, scripts, parent }
}

const NONE: (Option<&str>, Option<&str>) = (None, None);
const SLURM: Option<&str> = Some("parallelcluster");

/// All sites. Of two in one family with the same score the earlier wins: the one that changes less comes
/// first.
pub const SITES: &[Site] = &[
    site("efa", "AWS EFA", Fabric::Efa, (Some("eks-image"), SLURM), None),
    site("efa-image", "AWS EFA (stack in the image)", Fabric::Efa, (Some("eks-image"), SLURM), Some("efa")),
    site("efa-dra", "AWS EFA by DRA", Fabric::Efa, NONE, Some("efa")),
    site("neuron", "AWS EFA with Neuron", Fabric::Efa, (Some("neuron"), None), Some("efa-image")),
    site("dgxc", "AWS EFA of DGX Cloud", Fabric::Efa, (Some("dgxc"), SLURM), Some("efa")),
    site("aws-roce", "AWS RoCE (P6e-GB300)", Fabric::Roce, NONE, None),
    site("google", "Google Cloud", Fabric::Auto, NONE, None),
    site("gke-tcpx", "Google GPUDirect-TCPX (A3 High)", Fabric::Auto, NONE, Some("google")),
    site("gke-tcpxo", "Google GPUDirect-TCPXO (A3 Mega)", Fabric::Auto, NONE, Some("google")),
    site("gke-gib", "Google RDMA (A3 Ultra, A4)", Fabric::Roce, NONE, Some("google")),
    site("gke-a4x", "Google RDMA (A4X)", Fabric::Roce, NONE, Some("gke-gib")),
    site("verbs", "InfiniBand or RoCE", Fabric::Auto, NONE, None),
    site("infiniband", "InfiniBand", Fabric::InfiniBand, (Some("infiniband"), None), Some("verbs")),
    site("azure-ib", "InfiniBand of Azure", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("coreweave", "InfiniBand of CoreWeave", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("crusoe", "InfiniBand of Crusoe", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("lambda", "InfiniBand of Lambda", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("nebius", "InfiniBand of Nebius", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("together", "InfiniBand of Together", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("roce", "RoCE", Fabric::Roce, (Some("roce"), None), Some("verbs")),
    site("oci", "RoCE of Oracle Cloud", Fabric::Roce, NONE, Some("verbs")),
    site("nscale", "RoCE of nscale", Fabric::Roce, NONE, Some("verbs")),
    site("coreweave-roce", "RoCE of CoreWeave", Fabric::Roce, NONE, Some("coreweave")),
    site("slingshot", "HPE Slingshot", Fabric::Auto, NONE, None),
    site("omnipath", "Omni-Path", Fabric::Auto, NONE, None),
    site("jean-zay", "Jean Zay (Omni-Path, InfiniBand)", Fabric::Auto, NONE, Some("verbs")),
    site("csc", "InfiniBand of CSC", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("jsc", "InfiniBand of JSC", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("cineca", "InfiniBand of CINECA", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("bsc", "InfiniBand of BSC", Fabric::InfiniBand, NONE, Some("infiniband")),
    site("alliance", "a cluster of the Alliance of Canada", Fabric::Auto, NONE, Some("verbs")),
    site("naiss", "a cluster of NAISS", Fabric::Auto, NONE, Some("verbs")),
];

impl Site {
    /// Returns the site of an id.
    pub fn get(id: &str) -> Option<&'static Self> {
        SITES.iter().find(|site| site.id == id)
    }

    /// Returns the site of a name for a person.
    pub fn named(name: &str) -> Option<&'static Self> {
        SITES.iter().find(|site| site.name == name)
    }

    /// Returns the profile for this fabric that is applied only if it is named.
    pub fn to_be_named(&self) -> Option<&'static str> {
        TO_BE_NAMED.iter().find(|(id, _)| *id == self.id).map(|(_, profile)| *profile)
    }

    /// Returns the more general fabrics, nearest first.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = &'static Self> {
        std::iter::successors(self.parent.and_then(Self::get), |site| site.parent.and_then(Self::get))
    }

    /// Returns the most general fabric of the family.
    pub(super) fn root(&'static self) -> &'static str {
        self.ancestors().last().unwrap_or(self).id
    }
}
