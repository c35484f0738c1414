//! Settings that are out of date, that have no effect, or that break the fabric they were meant for.

use super::{Lint, commands, names};
use crate::Finding;
use crate::catalogue::{Catalogue, InstanceType, NodeFabric};
use crate::fabric::Profile;
use crate::fabric::view::{JobView, RoleView};
use crate::mask;
use crate::request::Fabric;
use crate::shell::unexpanded;

const EFA_VARS: &str = "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md";
const PLATFORM: &str = "https://github.com/aws/aws-ofi-nccl/blob/master/src/platform-aws.cpp";
const FI_EFA: &str = "https://github.com/ofiwg/libfabric/blob/main/man/fi_efa.7.md";
const NCCL_ENV: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";

/// NCCL is to load no network plugin.
pub(super) const PLUGIN_NONE: &str = "L-PLUGIN-NONE";
/// NCCL's IB network is switched off.
pub(super) const IB_DISABLED: &str = "L-IB-DISABLED";
/// NCCL is to use sockets.
pub(super) const ON_SOCKETS: &str = "L-ON-SOCKETS";

/// Variables of rdma-core, which are not for EFA.
const RDMAV: &str = "L-RDMAV";

/// Known properties of the place of a setting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// The fabric that the job's requests show; [`Fabric::Auto`] if they show none.
    pub(super) fabric: Fabric,
    /// Whether the EFA device has RDMA read; none if unknown.
    pub(super) rdma_read: Option<bool>,
    /// Whether Multus gives the pods additional interfaces.
    pub(super) multus: bool,
    /// Whether the job has ranks on several nodes.
    pub(super) several_nodes: bool,
    /// What the nodes of the instance type that the job selects have.
    pub(super) nodes: NodeFabric,
}

impl Setting {
    fn has_fabric(self) -> bool {
        self.several_nodes
            && (matches!(self.fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand)
                || self.nodes != NodeFabric::None)
    }

    fn has_efa(self) -> bool {
        self.several_nodes && (self.fabric == Fabric::Efa || self.nodes == NodeFabric::Efa)
    }
}

/// Variables that aws-ofi-nccl sets for each platform, where the user did not.
const SET_BY_THE_PLUGIN: [&str; 7] = [
    "NCCL_BUFFSIZE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NETDEVS_POLICY",
    "NCCL_NET_FORCE_FLUSH",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
];

/// Checks the environment of a role's containers.
pub(super) fn environment(
    job: &JobView,
    role: &RoleView,
    catalogue: &Catalogue,
    fabric: Fabric,
    lints: &mut Vec<Lint>,
) {
    let multus = has_networks(role);
    let setting = Setting {
        fabric,
        rdma_read: rdma_read(role, catalogue),
        multus,
        several_nodes: job.worker_pods() > 1,
        nodes: instance_type(role, catalogue).map(|row| row.fabric).unwrap_or_default(),
    };
    for container in std::iter::once(&role.container).chain(&role.sidecars) {
        let image = container.image.as_deref();
        for var in &container.env {
            let value = var.value.as_deref().unwrap_or_default();
            let mut findings = of_variable(&var.name, value, image, setting);
            findings.extend(dollar(&var.name, value));
            findings.extend(secret(&var.name, value));
            let at = if var.at.is_empty() { String::new() } else { format!("{}/name", var.at) };
            add(findings, role, &at, lints);
        }
        for found in commands::settings(container) {
            add(of_variable(found.name, found.value, image, setting), role, &found.at, lints);
        }
        for (list, words) in [("command", &container.command), ("args", &container.args)] {
            if let Some(place) = mask::secret_in_words(words) {
                let found = secret_in(&format!("the command ({place})"), OF_CLUSTER);
                add(vec![found], role, &format!("{}/{list}", container.at), lints);
            }
        }
    }
}

fn secret(name: &str, value: &str) -> Option<Finding> {
    let text = format!("{name}={value}");
    mask::holds_secret(&text).then(|| secret_in(&format!("`{name}`"), OF_CLUSTER))
}

/// What to do about a secret in a manifest.
const OF_CLUSTER: &str = "name a secret of the cluster instead (`valueFrom.secretKeyRef`)";
/// What to do about a secret in a script.
pub(super) const OF_SCRIPT: &str =
    "read it in the script from a file that only you can read, or export it before `sbatch`";

/// Returns the finding of a secret that stands in a manifest or script.
pub(super) fn secret_in(what: &str, fix: &str) -> Finding {
    let message = format!("{what} holds a secret: everyone who can read the file or the job sees it");
    Finding::warning("SPEC-SECRET", message).fix(fix)
}

/// Returns the findings about a variable: its name, and its value in this place.
pub(super) fn of_variable(name: &str, value: &str, image: Option<&str>, setting: Setting) -> Vec<Finding> {
    let outdated = outdated(name, value, setting);
    // A name that is to be removed need not be renamed first.
    let removed = outdated.as_ref().is_some_and(|finding| finding.code == RDMAV);
    let of_name =
        names::check(name, value, image).filter(|finding| !removed || finding.code != names::MISSPELT);
    of_name.into_iter().chain(outdated).collect()
}

fn add(findings: Vec<Finding>, role: &RoleView, at: &str, lints: &mut Vec<Lint>) {
    lints.extend(
        findings.into_iter().map(|finding| Lint { finding: finding.at(&role.name), at: at.to_owned() }),
    );
}

/// Returns the fabric that is requested, else the one that a job shows.
pub(super) fn fabric_of(job: &JobView, requested: Fabric, profile: &Profile) -> Fabric {
    requested.named().unwrap_or_else(|| shown_fabric(job, profile))
}

/// Returns the fabric that a job's requested devices show.
fn shown_fabric(job: &JobView, profile: &Profile) -> Fabric {
    let asks = |prefix: &str| {
        let mut containers = job.roles.iter().map(|role| &role.container);
        containers
            .any(|one| one.limits.keys().chain(one.requests.keys()).any(|name| name.starts_with(prefix)))
    };
    let multus = job.roles.iter().any(has_networks);
    if asks("vpc.amazonaws.com/efa") {
        Fabric::Efa
    } else if asks("rdma/") || asks("nvidia.com/rdma") || asks("nvidia.com/mlnxnics") || multus {
        Fabric::Roce
    } else if profile.covers(profile.fabric) {
        profile.fabric
    } else {
        Fabric::Auto
    }
}

fn has_networks(role: &RoleView) -> bool {
    role.annotations.contains_key("k8s.v1.cni.cncf.io/networks")
}

fn instance_type<'a>(role: &RoleView, catalogue: &'a Catalogue) -> Option<&'a InstanceType> {
    role.instance_types.iter().find_map(|name| catalogue.get(name))
}

fn rdma_read(role: &RoleView, catalogue: &Catalogue) -> Option<bool> {
    role.instance_types.iter().find_map(|name| catalogue.get(name)?.rdma_read)
}

/// Reports a `$NAME` in a list of folders, which Kubernetes does not expand.
fn dollar(name: &str, value: &str) -> Option<Finding> {
    let found = unexpanded(value).filter(|_| name.ends_with("PATH"))?;
    Some(
        Finding::warning("W-ENV-DOLLAR", format!("{name} holds {found}, which Kubernetes does not expand"))
            .fix("write the folders out; only $(NAME) of an earlier entry of the same list is expanded")
            .cite("https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/"),
    )
}

/// Returns the finding about a setting by its name and value.
fn outdated(name: &str, value: &str, setting: Setting) -> Option<Finding> {
    let efa = setting.fabric == Fabric::Efa;
    let ib = matches!(setting.fabric, Fabric::Roce | Fabric::InfiniBand);
    let finding = match (name, value) {
        ("FI_EFA_USE_DEVICE_RDMA", "1") if setting.rdma_read == Some(false) => Finding::error(
            "E-RDMA-UNSUPPORTED",
            "FI_EFA_USE_DEVICE_RDMA=1 aborts the program on this instance type, whose EFA device has no RDMA read",
        )
        .fix("remove FI_EFA_USE_DEVICE_RDMA")
        .cite(FI_EFA),
        ("FI_EFA_USE_DEVICE_RDMA", "0") if efa && setting.rdma_read != Some(false) => {
            warn("L-EFA-RDMA-OFF", "FI_EFA_USE_DEVICE_RDMA=0 turns GPUDirect RDMA off on p4d and later", name, FI_EFA)
        }
        ("FI_EFA_USE_DEVICE_RDMA", "1") => {
            info("L-EFA-RDMA-DEFAULT", "FI_EFA_USE_DEVICE_RDMA=1 is the default since libfabric 1.18 with aws-ofi-nccl 1.7; it does no harm", name, EFA_VARS)
        }
        ("NCCL_NET", net) if setting.has_fabric() && net.eq_ignore_ascii_case("socket") => {
            on_sockets(name, value)
        }
        ("FI_PROVIDER", list) if setting.has_efa() && has_tcp_provider(list) => on_sockets(name, value),
        ("FI_PROVIDER", "efa") => {
            info("L-FI-PROVIDER", "FI_PROVIDER=efa is for aws-ofi-nccl up to 1.5 (2023-01); later ones choose by themselves", name, EFA_VARS)
        }
        ("NCCL_PROTO", proto) if efa && proto.eq_ignore_ascii_case("simple") => {
            warn("L-PROTO-SIMPLE", "NCCL_PROTO=simple was for aws-ofi-nccl up to 1.5; it now forbids the faster LL and LL128", name, PLATFORM)
        }
        ("FI_EFA_FORK_SAFE", _) => {
            info("L-FORK-SAFE", "the plugin sets FI_EFA_FORK_SAFE where it is needed; on old kernels it turns huge pages off", name, EFA_VARS)
        }
        (name, _) if efa && name.starts_with("RDMAV_") => {
            warn(RDMAV, "RDMAV_* variables can break newer kernels and are not for EFA", name, EFA_VARS)
        }
        ("FI_EFA_ENABLE_SHM_TRANSFER", _) => {
            info("L-SHM-TRANSFER", "FI_EFA_ENABLE_SHM_TRANSFER has no effect here: it is the default, and off with CUDA", name, EFA_VARS)
        }
        ("FI_EFA_USE_HUGE_PAGE", "0") => {
            info("L-HUGE-PAGE-OFF", "FI_EFA_USE_HUGE_PAGE=0 avoids `Cannot allocate memory` in fork(); the requested huge pages are then unused", name, FI_EFA)
                .fix("pass --no-fabric-rule efa.hugepages, or remove FI_EFA_USE_HUGE_PAGE")
        }
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0") => {
            info("L-SYNC-MEMOPS", "FI_EFA_SET_CUDA_SYNC_MEMOPS=0 is only for EFA installers before 1.29.1 with NCCL 2.19 and later", name, EFA_VARS)
        }
        ("FI_EFA_TX_MIN_CREDITS" | "FI_LOG_LEVEL", _) if efa => {
            info("L-EFA-TUNING", &format!("the plugin sets {name} itself where it is not set"), name, EFA_VARS)
        }
        ("NCCL_SOCKET_NTHREADS" | "NCCL_NSOCKS_PERTHREAD", _) if efa => {
            info("L-SOCKET-TUNING", &format!("sockets are not used over EFA, so {name} has no effect there"), name, EFA_VARS)
        }
        (name, _) if efa && SET_BY_THE_PLUGIN.contains(&name) => {
            warn("L-EFA-TUNING", &format!("aws-ofi-nccl sets {name} for each platform; your value replaces it"), name, PLATFORM)
        }
        ("NCCL_TUNER_PLUGIN", path) if efa && path.contains('/') => {
            warn("L-TUNER-PATH", "NCCL 2.27 requires the plugin's base name here; with a path it uses the default tuner", name, PLATFORM)
                .fix("write the base name (`ofi`), or remove it")
        }
        ("NCCL_NET_PLUGIN", "none") if efa => Finding::error(
            PLUGIN_NONE,
            "NCCL_NET_PLUGIN=none keeps NCCL from EFA altogether: it will run on TCP sockets",
        )
        .fix("remove NCCL_NET_PLUGIN, or set it to ofi"),
        ("NCCL_NVLS_ENABLE", "0") if efa => {
            warn("L-NVLS-OFF", "NCCL_NVLS_ENABLE=0 was for NCCL up to 2.18.3 with EFA; today it costs NVSwitch speed on H100 and later", name, PLATFORM)
        }
        ("NCCL_IB_DISABLE", "1") if ib => {
            Finding::error(IB_DISABLED, "NCCL_IB_DISABLE=1 turns RoCE and InfiniBand off: NCCL will run on TCP sockets")
                .fix("remove NCCL_IB_DISABLE")
        }
        ("NCCL_IB_DISABLE", "1") if efa => {
            info(IB_DISABLED, "NCCL_IB_DISABLE=1 has no effect on EFA", name, NCCL_ENV)
        }
        ("NCCL_IB_GID_INDEX", _) => {
            info("L-GID-INDEX", "NCCL finds the GID index itself since 2.21; a wrong one makes ibv_modify_qp fail", name, NCCL_ENV)
        }
        ("NCCL_SOCKET_IFNAME", list) if excludes_ethernet(list) => {
            warn("L-SOCKET-IFNAME", "this list excludes every eth* interface, so NCCL may find none to start on", name, NCCL_ENV)
        }
        ("GLOO_SOCKET_IFNAME" | "NCCL_SOCKET_IFNAME" | "TP_SOCKET_IFNAME", "lo" | "=lo") if setting.several_nodes => {
            warn("L-SOCKET-IFNAME", "lo reaches no other node, so the ranks cannot find each other", name, NCCL_ENV)
        }
        ("NCCL_SOCKET_IFNAME", "^lo") if setting.multus => {
            warn("L-SOCKET-IFNAME", "^lo leaves every other interface to choose from, the fabric's own of Multus too, which may have no route", name, NCCL_ENV)
        }
        ("NCCL_ASYNC_ERROR_HANDLING" | "NCCL_BLOCKING_WAIT", _) => {
            Finding::info("L-TORCH-RENAMED", format!("PyTorch calls {name} TORCH_{name} since 2.2"))
                .rename(name, format!("TORCH_{name}"))
        }
        ("LD_LIBRARY_PATH", list) if relative_folder(list).is_some() => warn(
            "L-LIBRARY-RELATIVE",
            &format!(
                "`{}` in LD_LIBRARY_PATH is relative: it is looked up in the folder that each process runs in",
                relative_folder(list).unwrap_or_default()
            ),
            "the entry, or write it out from the root",
            "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        ),
        ("NCCL_TOPO_FILE", _) if efa => {
            info("L-EFA-TUNING", "the plugin sets the topology file of p4d, p4de and g5.48xlarge itself", name, PLATFORM)
        }
        _ => return None,
    };
    Some(finding)
}

fn on_sockets(name: &str, value: &str) -> Finding {
    Finding::warning(
        ON_SOCKETS,
        format!("{name}={value} runs NCCL on TCP sockets between the nodes, which have a faster fabric"),
    )
    .fix(format!("remove {name}, or keep it if the job is meant to compare"))
}

/// Returns whether a list of libfabric's providers, as `tcp;ofi_rxm`, names one over sockets.
fn has_tcp_provider(list: &str) -> bool {
    list.split(';').any(|provider| matches!(provider.trim(), "tcp" | "sockets" | "udp"))
}

fn warn(code: &str, message: &str, name: &str, source: &str) -> Finding {
    Finding::warning(code, message).fix(format!("remove {name}")).cite(source)
}

fn info(code: &str, message: &str, name: &str, source: &str) -> Finding {
    Finding::info(code, message).fix(format!("remove {name}")).cite(source)
}

/// Returns the first relative path in a list of folders. The value of a variable or a command is unknown.
fn relative_folder(list: &str) -> Option<&str> {
    let is_path = |entry: &str| {
        entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte))
            && !entry.starts_with('/')
    };
    // `${A:+:}`, `$(…)`: the colon does not separate entries.
    if list.contains("${") || list.contains("$(") || list.contains('`') {
        return None;
    }
    list.split(':').find(|entry| !entry.is_empty() && is_path(entry))
}

fn excludes_ethernet(list: &str) -> bool {
    list.strip_prefix('^')
        .is_some_and(|names| names.split(',').any(|name| matches!(name.trim(), "eth" | "e" | "en")))
}
