//! Settings that are out of date, that have no effect, or that break the fabric they were meant for.

use std::collections::HashSet;

use super::{Lint, commands, names};
use weftrun_core::Finding;
use weftrun_core::catalogue::{Catalogue, InstanceType, NodeFabric};
use weftrun_core::fabric::node::Node;
use weftrun_core::fabric::rules::{efa_role, rdma_present};
use weftrun_core::fabric::view::{ContainerView, JobKind, JobView, RoleView, Workload};
use weftrun_core::fabric::{ClusterFacts, Gid, Profile};
use weftrun_core::image::NcclVersion;
use weftrun_core::mask;
use weftrun_core::request::{Fabric, FabricRequest};
use weftrun_core::shell::{is_evaluated, taken_literally, unexpanded};

const FI_EFA: &str = "https://github.com/ofiwg/libfabric/blob/main/man/fi_efa.7.md";

/// NCCL is to load no network plugin.
pub(super) const PLUGIN_NONE: &str = "L-PLUGIN-NONE";
/// NCCL's IB network is switched off.
pub(super) const IB_DISABLED: &str = "L-IB-DISABLED";
/// NCCL is to use sockets.
pub(super) const ON_SOCKETS: &str = "L-ON-SOCKETS";

/// Variables of rdma-core, which are not for EFA.
const RDMAV: &str = "L-RDMAV";

/// What surrounds a setting, by which it is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surroundings<'a> {
    /// The fabric that the job's requests show; [`Fabric::Auto`] if they show none.
    pub(crate) fabric: Fabric,
    /// Whether the EFA device has RDMA read; none if unknown.
    pub(crate) rdma_read: Option<bool>,
    /// Whether the job has ranks on several nodes.
    pub(crate) several_nodes: bool,
    /// The instance type that the job selects.
    pub(crate) instance: Option<&'a InstanceType>,
    /// Whether it selects one, be it unknown.
    pub(crate) type_is_named: bool,
    /// The container image.
    pub(crate) image: Option<&'a str>,
    /// The environment module with NCCL.
    pub(crate) module: Option<&'a str>,
    /// What the job runs.
    pub(crate) programs: Programs,
    /// Whether the container requests huge pages.
    pub(crate) has_pages: bool,
    /// Whether each node has one GPU, which NVLink connects with no other.
    pub(crate) one_gpu: bool,
    /// The profile, whose own settings are not reported.
    pub(crate) profile: Option<&'a Profile>,
}

/// The libraries that a job's commands and variables show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Programs {
    /// PyTorch.
    torch: bool,
    /// NVSHMEM, Neuron, UCCL and others that use EFA without aws-ofi-nccl, or not as NCCL does.
    libfabric: bool,
    /// RCCL on GPUs of AMD, whose releases are not NCCL's.
    rccl: bool,
}

impl Programs {
    /// Reads texts: commands, images, names of variables.
    pub(crate) fn of<'t>(texts: impl IntoIterator<Item = &'t str>, is_torch: bool) -> Self {
        const TORCH: [&str; 5] = ["torch", "accelerate", "deepspeed", "python", ".py"];
        const RCCL: [&str; 3] = ["rccl", "rocm", "amd.com/gpu"];
        const LIBFABRIC: [&str; 7] = ["nvshmem", "neuron", "nixl", "mooncake", "deepep", "deep_ep", "uccl"];
        let mut programs = Self { torch: is_torch, ..Self::default() };
        let mut tests = false;
        for text in texts {
            let text = text.to_ascii_lowercase();
            programs.torch |= TORCH.iter().any(|word| text.contains(word));
            programs.rccl |= RCCL.iter().any(|word| text.contains(word));
            programs.libfabric |= LIBFABRIC.iter().any(|word| text.contains(word));
            // nccl-tests
            tests |= text.contains("_perf");
        }
        programs.torch &= !tests;
        programs
    }

    fn of_container(container: &ContainerView, is_torch: bool) -> Self {
        let names = container.env.iter().map(|var| var.name.as_str());
        let resources = container.limits.keys().map(String::as_str);
        Self::of(container.argv().chain(container.image.as_deref()).chain(names).chain(resources), is_torch)
    }
}

impl<'a> Surroundings<'a> {
    /// Returns what a role's nodes show.
    pub(crate) fn of_role(role: &RoleView, profile: &'a Profile, catalogue: &'a Catalogue) -> Self {
        Self {
            rdma_read: node(role, profile, catalogue).rdma_read,
            instance: instance_type(role, catalogue),
            type_is_named: !role.instance_types.is_empty(),
            one_gpu: role.accelerators(&profile.accelerator) == 1,
            profile: Some(profile),
            ..Self::default()
        }
    }

    fn nodes(self) -> NodeFabric {
        self.instance.map(|row| row.fabric).unwrap_or_default()
    }

    fn has_fabric(self) -> bool {
        self.several_nodes
            && (matches!(self.fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand)
                || self.nodes() != NodeFabric::None)
    }

    fn has_efa(self) -> bool {
        self.several_nodes && (self.fabric == Fabric::Efa || self.nodes() == NodeFabric::Efa)
    }

    /// Returns whether NCCL with aws-ofi-nccl uses EFA between nodes, and nothing else does.
    fn is_nccl_on_efa(self) -> bool {
        self.several_nodes && self.has_efa_plugin()
    }

    /// Returns whether NCCL has aws-ofi-nccl, and nothing else uses EFA.
    fn has_efa_plugin(self) -> bool {
        self.fabric == Fabric::Efa && !self.programs.libfabric
    }

    /// Returns whether the profile sets a variable to this value itself.
    fn is_of_profile(self, name: &str, value: &str) -> bool {
        let Some(profile) = self.profile else { return false };
        let is_same = |env: &std::collections::BTreeMap<String, String>| {
            env.get(name).map(String::as_str) == Some(value)
        };
        is_same(&profile.env)
            || profile.instance_env.values().any(is_same)
            || name == "NCCL_IB_GID_INDEX" && profile.roce.as_ref().is_some_and(|roce| roce.gid != Gid::Auto)
    }

    /// Returns whether the instance type is one of these families, or unknown.
    fn may_be(self, families: &[&str]) -> bool {
        self.instance.is_none_or(|row| families.iter().any(|family| row.name.starts_with(family)))
    }

    /// Returns whether the instance type is known, and of one of these families.
    fn is_one_of(self, families: &[&str]) -> bool {
        self.instance.is_some() && self.may_be(families)
    }

    /// Returns the NCCL that the image, or else the loaded module, has.
    fn nccl(self) -> Option<NcclVersion> {
        self.image.into_iter().chain(self.module).find_map(NcclVersion::of_image)
    }
}

/// Variables that aws-ofi-nccl sets on some instance types where the user did not, with its values
/// (`platform_data_map` in src/platform-aws.cpp, 2026-08).
const SET_BY_THE_PLUGIN: [(&str, &str, &[&str]); 6] = [
    ("NCCL_BUFFSIZE", "8388608", P4_ON),
    ("NCCL_NETDEVS_POLICY", "max:1", &["p5en.", "p6-b200."]),
    ("NCCL_NET_FORCE_FLUSH", "0", P5_ON),
    ("NCCL_NVLSTREE_MAX_CHUNKSIZE", "524288", P5_ON),
    ("NCCL_NVLS_CHUNKSIZE", "524288", P5_ON),
    ("NCCL_P2P_NET_CHUNKSIZE", "524288", P4_ON),
];
const P4_ON: &[&str] = &["p4d", "p5.48", "p5e", "p6", "g7e"];
const P5_ON: &[&str] = &["p5.48", "p5e", "p6"];

/// Checks the environment of a role's containers.
pub(super) fn environment(
    job: &JobView,
    role: &RoleView,
    (profile, catalogue): (&Profile, &Catalogue),
    fabric: Fabric,
    lints: &mut Vec<Lint>,
) {
    // What a launcher forwards (`mpirun -x`) is set on the nodes of the workers.
    let of_ranks = if role.worker { None } else { job.workers().next() }.unwrap_or(role);
    for container in std::iter::once(&role.container).chain(&role.sidecars) {
        let around = Surroundings {
            fabric,
            several_nodes: on_several_nodes(job, role),
            image: container.image.as_deref(),
            programs: Programs::of_container(container, job.kind == JobKind::PyTorchJob),
            has_pages: container.asks("hugepages-2Mi").is_some_and(|amount| amount != "0"),
            ..Surroundings::of_role(of_ranks, profile, catalogue)
        };
        let expanded: HashSet<&str> = container.argv().flat_map(names::expanded).collect();
        for var in &container.env {
            let value = var.value.as_deref().unwrap_or_default();
            let mut findings = of_variable(&var.name, value, around);
            if expanded.contains(var.name.as_str()) {
                findings.retain(|finding| finding.code != names::UNKNOWN);
            }
            findings.extend(dollar(&var.name, value, container));
            findings.extend(secret(&var.name, value));
            let at = if var.at.is_empty() { String::new() } else { format!("{}/name", var.at) };
            add(findings, role, &at, "", lints);
        }
        for found in commands::settings(container) {
            let mut findings = of_variable(found.name, found.value, around);
            if expanded.contains(found.name) {
                findings.retain(|finding| finding.code != names::UNKNOWN);
            }
            add(findings, role, &found.at, found.word, lints);
        }
        let env = container.env.iter().filter_map(|var| Some((var.name.as_str(), var.value.as_deref()?)));
        let ranks = role.accelerators(&profile.accelerator);
        add(shared_debug_file(env, ranks > 1, false).into_iter().collect(), role, &container.at, "", lints);
        for (list, words) in [("command", &container.command), ("args", &container.args)] {
            if let Some(place) = mask::secret_in_words(words) {
                let found = secret_in(&format!("the command ({place})"), OF_CLUSTER);
                add(vec![found], role, &format!("{}/{list}", container.at), "", lints);
            }
        }
    }
}

/// Returns whether ranks are on several nodes, or can be: one pod that requests EFA may be one of several.
fn on_several_nodes(job: &JobView, role: &RoleView) -> bool {
    let is_pod = job.kind == JobKind::Workload(Workload::Pod);
    let is_template = job.workers().any(|role| role.replicas_text.is_some());
    job.worker_pods() > 1
        || role.replicas_unknown
        || is_template
        || is_pod && role.container.asks("vpc.amazonaws.com/efa").is_some()
}

/// Returns what is known of a role's nodes, as the rules of `mutate` know it.
pub(super) fn node(role: &RoleView, profile: &Profile, catalogue: &Catalogue) -> Node {
    Node::of(role, None, profile, &FabricRequest::default(), catalogue, &ClusterFacts::default())
}

/// Reports a log file of NCCL that several ranks open under one name: each truncates it (`fopen(…, "w")`).
/// `ranks` of one node, and those of several `nodes` with one file system.
pub(crate) fn shared_debug_file<'v>(
    env: impl Iterator<Item = (&'v str, &'v str)>,
    ranks: bool,
    nodes: bool,
) -> Option<Finding> {
    const OF_A_RANK: [&str; 6] = ["PROCID", "LOCALID", "RANK", "NODEID", "HOSTNAME", "$$"];
    let (mut file, mut is_open) = (None, false);
    for (name, value) in env {
        match name {
            "NCCL_DEBUG_FILE" => file = Some(value),
            // NCCL opens the file for levels above VERSION only.
            "NCCL_DEBUG" => {
                is_open = !value.is_empty() && !value.eq_ignore_ascii_case("version") && !is_no_level(value);
            }
            _ => {}
        }
    }
    let file = file.filter(|file| is_open && !file.is_empty() && !file.starts_with("/dev/"))?;
    let is_shared = ranks && !file.contains("%p") || nodes && !file.contains("%h") && !file.contains("%p");
    (is_shared && !OF_A_RANK.iter().any(|name| file.contains(name))).then(|| {
        let text = format!("all ranks open `{file}` (NCCL_DEBUG_FILE), and each of them empties it first");
        Finding::warning("L-DEBUG-FILE", text).fix("write %h (host) and %p (process) into the name")
    })
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
pub(crate) fn of_variable(name: &str, value: &str, around: Surroundings<'_>) -> Vec<Finding> {
    if around.is_of_profile(name, value) {
        return Vec::new();
    }
    let outdated = outdated(name, value, around);
    // A name that is to be removed need not be renamed first.
    let removed = outdated.as_ref().is_some_and(|finding| finding.code == RDMAV);
    let of_name =
        names::check(name, value, around.image).filter(|finding| !removed || finding.code != names::MISSPELT);
    of_name.into_iter().chain(outdated).collect()
}

fn add(findings: Vec<Finding>, role: &RoleView, at: &str, word: &str, lints: &mut Vec<Lint>) {
    lints.extend(findings.into_iter().map(|finding| Lint {
        finding: finding.at(&role.name),
        at: at.to_owned(),
        word: word.to_owned(),
    }));
}

/// Returns the fabric that is requested, else the one that a job shows.
pub(super) fn fabric_of(job: &JobView, requested: Fabric, profile: &Profile) -> Fabric {
    requested.named().unwrap_or_else(|| shown_fabric(job, profile))
}

/// Returns the fabric that a job's requested devices show.
fn shown_fabric(job: &JobView, profile: &Profile) -> Fabric {
    let asks = |prefix: &str| {
        let containers = job.roles.iter().map(|role| &role.container);
        let mut amounts = containers.flat_map(|one| one.limits.iter().chain(&one.requests));
        amounts.any(|(name, amount)| name.starts_with(prefix) && amount != "0")
    };
    let multus = || job.roles.iter().any(rdma_present::on_network);
    if asks("vpc.amazonaws.com/efa") {
        Fabric::Efa
    } else if asks("rdma/") || asks("nvidia.com/rdma") || asks("nvidia.com/mlnxnics") || multus() {
        Fabric::Roce
    } else if profile.covers(profile.fabric) {
        profile.fabric
    } else {
        Fabric::Auto
    }
}

fn instance_type<'a>(role: &RoleView, catalogue: &'a Catalogue) -> Option<&'a InstanceType> {
    role.instance_types.iter().find_map(|name| catalogue.get(name))
}

/// Reports a `$NAME` in a value, which Kubernetes does not expand. Whether an image's own command evaluates a variable is
/// unknown; a library's settings and lists of folders are never evaluated.
fn dollar(name: &str, value: &str, container: &ContainerView) -> Option<Finding> {
    const OF_LIBRARIES: [&str; 7] = ["NCCL_", "FI_", "UCX_", "OMPI_", "CUDA_", "MASTER_", "NVIDIA_"];
    let found = if name.ends_with("PATH") {
        unexpanded(value)?
    } else {
        let by_library = OF_LIBRARIES.iter().any(|start| name.starts_with(start));
        let is_known = by_library || container.argv().next().is_some();
        let is_evaluated = is_evaluated(container.argv(), name);
        taken_literally(name, value).filter(|_| is_known && !is_evaluated && !is_template(container))?
    };
    Some(
        Finding::warning("W-ENV-DOLLAR", format!("{name} holds {found}, which Kubernetes does not expand"))
            .fix("write the value out; only $(NAME) of an earlier entry of the same list is expanded")
            .cite("https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/"),
    )
}

/// Returns whether a container's image or amounts are still to be filled in, as its values may be.
fn is_template(container: &ContainerView) -> bool {
    let amounts = container.limits.values().chain(container.requests.values());
    container.image.iter().chain(amounts).any(|text| text.contains(['$', '{']))
}

/// Returns the finding about a setting by its name and value.
fn outdated(name: &str, value: &str, around: Surroundings<'_>) -> Option<Finding> {
    let efa = around.fabric == Fabric::Efa;
    let ib = around.several_nodes && matches!(around.fabric, Fabric::Roce | Fabric::InfiniBand);
    let finding = match (name, value) {
        ("FI_EFA_USE_DEVICE_RDMA", "1") if around.rdma_read == Some(false) => Finding::error(
            "E-RDMA-UNSUPPORTED",
            "FI_EFA_USE_DEVICE_RDMA=1 aborts the program on this instance type, whose EFA device has no RDMA read",
        )
        .fix("remove FI_EFA_USE_DEVICE_RDMA")
        .cite(FI_EFA),
        ("FI_EFA_USE_DEVICE_RDMA", "0") if around.is_nccl_on_efa() && around.rdma_read != Some(false) => {
            warn("L-EFA-RDMA-OFF", "FI_EFA_USE_DEVICE_RDMA=0 turns GPUDirect RDMA off on p4d and later", name)
        }
        ("FI_EFA_USE_DEVICE_RDMA", "1")
            if around.is_nccl_on_efa() && around.rdma_read.is_none() && !around.type_is_named =>
        {
            let text = "FI_EFA_USE_DEVICE_RDMA=1 is the default since libfabric 1.18 with aws-ofi-nccl 1.7, and aborts the \
                        program on instance types without RDMA read (g5)";
            info("L-EFA-RDMA-DEFAULT", text, name)
        }
        ("NCCL_NET", net) if around.has_fabric() && net.eq_ignore_ascii_case("socket") => {
            on_sockets(name, value)
        }
        ("FI_PROVIDER", list) if around.has_efa() && has_tcp_provider(list) => on_sockets(name, value),
        ("NCCL_PROTO", proto) if around.is_nccl_on_efa() && proto.eq_ignore_ascii_case("simple") => {
            warn("L-PROTO-SIMPLE", "NCCL_PROTO=simple was for aws-ofi-nccl up to 1.5; it now forbids the faster LL and LL128", name)
        }
        ("FI_EFA_FORK_SAFE", "1") if around.is_nccl_on_efa() => {
            info("L-FORK-SAFE", "FI_EFA_FORK_SAFE=1 is not needed: aws-ofi-nccl sets it itself", name)
        }
        (name, _) if around.is_nccl_on_efa() && name.starts_with("RDMAV_") => {
            warn(RDMAV, "RDMAV_* variables can break newer kernels and are not for EFA", name)
        }
        ("FI_EFA_ENABLE_SHM_TRANSFER", "1") if around.is_nccl_on_efa() => {
            info("L-SHM-TRANSFER", "FI_EFA_ENABLE_SHM_TRANSFER=1 has no effect: aws-ofi-nccl makes libfabric disable it", name)
        }
        ("FI_EFA_USE_HUGE_PAGE", _) if around.has_pages && efa_role::is_off(value) => {
            info("L-HUGE-PAGE-OFF", "the container requests huge pages, and FI_EFA_USE_HUGE_PAGE=0 leaves them unused", name)
                .fix("remove hugepages-2Mi, or FI_EFA_USE_HUGE_PAGE (0 avoids `Cannot allocate memory` in fork())")
        }
        ("NCCL_SOCKET_NTHREADS" | "NCCL_NSOCKS_PERTHREAD", _) if around.is_nccl_on_efa() => {
            info("L-SOCKET-TUNING", &format!("sockets are not used over EFA, so {name} has no effect there"), name)
        }
        (name, _) if around.is_nccl_on_efa() && differs_from_plugin(name, value, around).is_some() => {
            let (own, families) = differs_from_plugin(name, value, around)?;
            let on = if families.len() == P4_ON.len() { "p4d and later" } else { "p5 and later" };
            let text = format!("aws-ofi-nccl sets {name}={own} on {on}; `{value}` replaces it");
            info("L-EFA-TUNING", &text, name)
        }
        ("NCCL_NET_PLUGIN", "none") if efa && around.several_nodes => Finding::error(
            PLUGIN_NONE,
            "NCCL_NET_PLUGIN=none keeps NCCL from EFA altogether: it will run on TCP sockets",
        )
        .fix("remove NCCL_NET_PLUGIN, or set it to ofi"),
        ("NCCL_NVLS_ENABLE", "0") if around.has_efa_plugin() && around.is_one_of(P5_ON) && !around.one_gpu => {
            info("L-NVLS-OFF", "NCCL_NVLS_ENABLE=0 was for NCCL up to 2.18.3 with EFA; newer ones lose NVLink SHARP by it", name)
        }
        ("NCCL_IB_DISABLE", "1") if ib => {
            Finding::error(IB_DISABLED, "NCCL_IB_DISABLE=1 turns RoCE and InfiniBand off: NCCL will run on TCP sockets")
                .fix("remove NCCL_IB_DISABLE")
        }
        ("NCCL_IB_GID_INDEX", index) if !efa && is_plain(index) && index != "-1" && !around.programs.rccl => {
            gid_index(around)?
        }
        ("NCCL_DEBUG", level) if is_no_level(level) => {
            let text = format!("NCCL has no level `{level}`: it then prints nothing, not even its warnings");
            let wanted = if level.to_ascii_lowercase().starts_with("warn") { "WARN" } else { "INFO" };
            Finding::warning("L-DEBUG-LEVEL", text)
                .fix(format!("write NCCL_DEBUG={wanted} (the levels are VERSION, WARN, INFO and TRACE)"))
        }
        ("GLOO_SOCKET_IFNAME", list) if list.contains('^') => Finding::warning(
            "L-GLOO-IFNAME",
            format!("`GLOO_SOCKET_IFNAME={list}`: Gloo knows no `^`; it looks for an interface of that name and fails"),
        )
        .fix("name the interface (eth0), or remove GLOO_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNAME", list) if excluded_ethernet(list).is_some() => {
            let start = excluded_ethernet(list)?;
            let text = format!("`^{start}` excludes every interface that begins with `{start}`, so NCCL may find none to start on");
            warn("L-SOCKET-IFNAME", &text, name).fix("write ^lo,docker,veth, or the interface's name")
        }
        ("GLOO_SOCKET_IFNAME" | "NCCL_SOCKET_IFNAME" | "TP_SOCKET_IFNAME", "lo" | "=lo") if around.several_nodes => {
            warn("L-SOCKET-IFNAME", "lo reaches no other node, so the ranks cannot find each other", name)
        }
        ("NCCL_ASYNC_ERROR_HANDLING" | "NCCL_BLOCKING_WAIT", _) if around.programs.torch => {
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
        ),
        ("NCCL_TOPO_FILE", _)
            if around.is_nccl_on_efa() && around.instance.is_some() && around.may_be(&["p4d", "g5.48"]) =>
        {
            info("L-EFA-TUNING", "aws-ofi-nccl brings a topology file for p4d, p4de and g5.48xlarge; yours replaces it", name)
        }
        _ => return None,
    };
    Some(finding)
}

/// Reports a fixed GID index where the NCCL that is shown chooses one itself, or where none is shown.
fn gid_index(around: Surroundings<'_>) -> Option<Finding> {
    let nccl = around.nccl();
    let (since, remove) = match &nccl {
        Some(nccl) if nccl.is_before("2.21") => return None,
        Some(nccl) if !nccl.at_most => {
            ("NCCL finds the GID index itself since 2.21", "remove NCCL_IB_GID_INDEX")
        }
        _ => (
            "NCCL 2.21 and later find the GID index themselves",
            "remove NCCL_IB_GID_INDEX if NCCL is 2.21 or later",
        ),
    };
    Some(Finding::info("L-GID-INDEX", format!("{since}; a wrong one makes ibv_modify_qp fail")).fix(remove))
}

/// Returns whether NCCL knows no such level of logging. What is to switch the log off does so.
fn is_no_level(value: &str) -> bool {
    const LEVELS: [&str; 5] = ["VERSION", "WARN", "INFO", "ABORT", "TRACE"];
    const NONE: [&str; 5] = ["0", "NONE", "OFF", "FALSE", "NO"];
    let is_word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word && !LEVELS.iter().chain(&NONE).any(|known| value.eq_ignore_ascii_case(known))
}

/// Returns whether a value is known: `mpirun -x NAME` forwards one that stands elsewhere, `$NAME` is expanded later.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.contains(['$', '`'])
}

/// Returns the plugin's own value of a variable, and where it applies, if the user's is another.
fn differs_from_plugin(
    name: &str,
    value: &str,
    around: Surroundings<'_>,
) -> Option<(&'static str, &'static [&'static str])> {
    let (_, own, families) = SET_BY_THE_PLUGIN.iter().find(|(known, ..)| *known == name)?;
    (is_plain(value) && value != *own && around.may_be(families)).then_some((*own, *families))
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

fn warn(code: &str, message: &str, name: &str) -> Finding {
    Finding::warning(code, message).fix(format!("remove {name}"))
}

fn info(code: &str, message: &str, name: &str) -> Finding {
    Finding::info(code, message).fix(format!("remove {name}"))
}

/// Returns the first relative path in a list of folders. The value of a variable or a command is unknown.
fn relative_folder(list: &str) -> Option<&str> {
    let is_path = |entry: &str| {
        entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte))
            && !entry.starts_with('/')
    };
    // `${A:+:}`, `$(…)`: the colon does not separate entries.
    let has_colon = |part: &str| part.split('}').next().is_some_and(|inside| inside.contains(':'));
    if list.split("${").skip(1).any(has_colon) || list.contains("$(") || list.contains('`') {
        return None;
    }
    list.split(':').find(|entry| !entry.is_empty() && is_path(entry))
}

/// Returns the name in an exclusion that the names of Ethernet interfaces begin with.
fn excluded_ethernet(list: &str) -> Option<&str> {
    let names = list.strip_prefix('^').filter(|names| !names.starts_with('='))?;
    names.split(',').map(str::trim).find(|name| matches!(*name, "eth" | "e" | "en"))
}
