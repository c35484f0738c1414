//! Shapes of a pod that the fabric does not support.

use super::Lint;
use super::settings::node;
use weftrun_core::Finding;
use weftrun_core::catalogue::{Catalogue, InstanceType};
use weftrun_core::fabric::Profile;
use weftrun_core::fabric::node::Node;
use weftrun_core::fabric::rules::efa_role;
use weftrun_core::fabric::view::{ContainerView, JobView, RoleView};
use weftrun_core::spec::SHM_OVER_MEMORY;
use weftrun_core::text::Quantity;

const EFA: &str = "vpc.amazonaws.com/efa";

/// Checks one role.
pub(super) fn role(
    job: &JobView,
    role: &RoleView,
    profile: &Profile,
    catalogue: &Catalogue,
    lints: &mut Vec<Lint>,
) {
    let container = &role.container;
    let mut say = |finding: Finding, at: &str| {
        lints.push(Lint { finding: finding.at(&role.name), at: at.to_owned(), word: String::new() });
    };
    let node = node(role, profile, catalogue);
    let accelerators = role.accelerators(&profile.accelerator);
    // `mutate` adds huge pages to whole nodes of several only: what passes inside a node takes NVLink.
    let is_whole = accelerators > 0 && accelerators >= node.accelerators;
    let several = job.worker_pods() > 1 || role.replicas_unknown;
    huge_pages(container, is_whole && several, &mut say);
    reserved_pages(role, catalogue, &mut say);
    shared_memory(role, &mut say);
    devices(role, profile, &mut say);
    processors(role, catalogue, &mut say);
    sockets_product(container, &mut say);
    interfaces(container, &node, accelerators, &mut say);
    capabilities(container, &mut say);
    if let Some(finding) = memory(container, &node, accelerators) {
        say(finding, &container.at);
    }
}

/// Compares the EFA interfaces of a whole node's worker with those that the node has, as `mutate` does.
fn interfaces(
    container: &ContainerView,
    node: &Node,
    accelerators: u64,
    say: &mut impl FnMut(Finding, &str),
) {
    let asked = container.asks(EFA).and_then(Quantity::parse).map(Quantity::whole);
    if let Some(asked) = asked.filter(|_| node.row.is_some() && accelerators >= node.accelerators)
        && let Some(finding) = node.judge_interfaces(EFA, asked)
    {
        say(finding, &container.at);
    }
}

fn capabilities(container: &ContainerView, say: &mut impl FnMut(Finding, &str)) {
    let prefixed = container.capabilities.iter().find_map(|name| Some((name, name.strip_prefix("CAP_")?)));
    if let Some((name, bare)) = prefixed {
        let message =
            format!("`{name}`: Kubernetes adds CAP_ itself, so the container does not get this capability");
        say(Finding::warning("L-CAPABILITY", message).fix(format!("write {bare}")), &container.at);
    }
}

/// Reports a limit of memory in which the processes of so many GPUs cannot start.
pub(crate) fn memory(container: &ContainerView, node: &Node, accelerators: u64) -> Option<Finding> {
    const GIB: u64 = 1 << 30;
    let text = container.limits.get("memory")?;
    let limit = Quantity::parse(text).map(Quantity::whole).filter(|limit| *limit > 0)?;
    let of_node = node.memory_mib.filter(|_| accelerators > 1 && accelerators >= node.accelerators);
    let is_small = accelerators > 1 && limit < accelerators.checked_mul(GIB)?
        || of_node.is_some_and(|mib| limit < mib.saturating_mul(1 << 20) / 100);
    is_small.then(|| {
        let message = format!(
            "a limit of {text} of memory for {accelerators} GPUs: the kernel can kill the processes (exit code 137) while they start"
        );
        Finding::warning("L-MEMORY-SMALL", message).fix("request most of the node's memory, or leave the limit out")
    })
}

fn huge_pages(container: &ContainerView, can_use: bool, say: &mut impl FnMut(Finding, &str)) {
    let asks_efa = can_use && container.asks(EFA).is_some_and(|amount| amount != "0");
    if asks_efa && container.asks("hugepages-2Mi").is_none() && !efa_role::turned_off(container) {
        let message = "EFA is requested without huge pages; libfabric falls back to normal ones";
        let memory = if container.asks_cpu_or_memory() { "" } else { ", together with memory" };
        let finding = Finding::info("L-HUGEPAGES-MISSING", message)
            .fix(format!("request hugepages-2Mi: 5120Mi, in limits and requests{memory}"));
        say(finding, &container.at);
    }
    let asks_pages = container.asks("hugepages-2Mi").is_some_and(|amount| amount != "0");
    if asks_pages && !container.asks_cpu_or_memory() {
        let message =
            "hugepages-2Mi is refused by the API server in a container that requests neither cpu nor memory";
        let finding = Finding::error("E-HP-NEEDS-MEMORY", message)
            .fix("set resources.limits.memory")
            .cite("https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/");
        say(finding, &container.at);
    }
}

/// Compares huge pages with what the role's instance types were seen to reserve.
fn reserved_pages(role: &RoleView, catalogue: &Catalogue, say: &mut impl FnMut(Finding, &str)) {
    const MIB: u64 = 1024 * 1024;
    let Some(text) = role.container.asks("hugepages-2Mi") else { return };
    let Some(asked) = Quantity::parse(text).map(Quantity::whole) else { return };
    let rows = role.instance_types.iter().filter_map(|name| catalogue.get(name));
    let most =
        rows.filter_map(|row| Some((row.hugepages_2mi_allocatable_mib?, row))).max_by_key(|(mib, _)| *mib);
    let Some((mib, row)) = most.filter(|(mib, _)| asked > mib.saturating_mul(MIB)) else { return };
    let message = format!(
        "{text} of huge pages are requested, and {} reserves {mib}Mi by default: the pods would stay Pending",
        row.name
    );
    let finding = Finding::warning("W-HP-ALLOCATABLE", message)
        .fix(format!("request {} or less", row.hugepages_2mi.as_deref().unwrap_or("5120Mi")));
    say(finding, &role.container.at);
}

fn shared_memory(role: &RoleView, say: &mut impl FnMut(Finding, &str)) {
    let shm = role.container.mounts.iter().find(|mount| mount.path.trim_end_matches('/') == "/dev/shm");
    let volume = shm.and_then(|mount| role.volumes.iter().find(|volume| volume.name == mount.volume));
    if let Some(volume) = volume.filter(|volume| volume.host_path.is_some()) {
        let message = "/dev/shm is the node's own, shared with everything else on it";
        let finding = Finding::warning("L-SHM-HOSTPATH", message).fix("use an emptyDir with medium: Memory");
        say(finding, &volume.at);
    }
    let bytes = |text: &str| Quantity::parse(text).map(Quantity::whole);
    let size = volume.and_then(|volume| volume.memory.as_deref());
    let limit = role.container.limits.get("memory").and_then(|text| bytes(text));
    if let (Some(volume), Some(size), Some(limit)) = (volume, size.and_then(bytes), limit)
        && size > limit
    {
        say(
            Finding::warning(SHM_OVER_MEMORY.0, SHM_OVER_MEMORY.1)
                .fix("raise the limit of memory, or lower `sizeLimit`"),
            &volume.at,
        );
    }
}

/// Reports `/dev/infiniband` as a folder of the node, or `privileged`, beside a device plugin.
fn devices(role: &RoleView, profile: &Profile, say: &mut impl FnMut(Finding, &str)) {
    let container = &role.container;
    let resources = container.limits.keys().chain(container.requests.keys());
    let plugin = resources.filter(|name| **name != profile.accelerator).find(|name| {
        name.starts_with("rdma/") || name.as_str() == EFA || name.starts_with("nvidia.com/rdma")
    });
    let Some(plugin) = plugin else { return };
    if let Some(volume) =
        role.volumes.iter().find(|volume| volume.host_path.as_deref() == Some("/dev/infiniband"))
    {
        let message = format!("/dev/infiniband is a hostPath though {plugin} brings the device");
        let finding = Finding::warning("L-DEV-INFINIBAND", message)
            .fix("remove the volume; the device plugin shows the devices");
        say(finding, &volume.at);
    }
    // Other capabilities and the node's own devices are more than the device plugin gives.
    let asks_more = container.capabilities.iter().any(|name| name != "IPC_LOCK")
        || role.volumes.iter().any(|volume| volume.host_path.as_deref() == Some("/dev"));
    if container.privileged && !asks_more && !needs_privileges(container) {
        let message = format!("the container is privileged though {plugin} brings the device");
        let finding = Finding::info("L-PRIVILEGED", message).fix("remove `privileged`; IPC_LOCK is enough");
        say(finding, &container.at);
    }
}

/// Returns whether the command calls a program that fails without more than IPC_LOCK.
fn needs_privileges(container: &ContainerView) -> bool {
    const PROGRAMS: [&str; 3] = ["sysctl", "mount", "nsenter"];
    let words =
        container.argv().flat_map(|text| text.split(|c: char| c.is_whitespace() || ";&|()\"'`".contains(c)));
    words.into_iter().any(|word| PROGRAMS.contains(&word.rsplit('/').next().unwrap_or(word)))
}

/// Reports a request of all CPUs of a type: the node keeps some for itself. The scheduler counts requests, which are the
/// limits where there are none.
fn processors(role: &RoleView, catalogue: &Catalogue, say: &mut impl FnMut(Finding, &str)) {
    let container = &role.container;
    let asked = container.requests.get("cpu").or_else(|| container.limits.get("cpu"));
    let Some(asked) = asked.and_then(|text| Quantity::parse(text)).map(Quantity::whole) else { return };
    let has = |row: &&InstanceType| row.vcpus.is_some_and(|vcpus| u64::from(vcpus) <= asked);
    let Some(row) = role.instance_types.iter().filter_map(|name| catalogue.get(name)).find(has) else {
        return;
    };
    let (name, has) = (&row.name, row.vcpus.unwrap_or(0));
    let message = format!("{asked} CPUs are requested; {name} has {has}, and pods can use a few fewer");
    let finding =
        Finding::warning("L-CPU-ALL", message).fix(format!("request {} or fewer", has.saturating_sub(4)));
    say(finding, &container.at);
}

fn sockets_product(container: &ContainerView, say: &mut impl FnMut(Finding, &str)) {
    let number = |name: &str| container.env(name)?.value.as_deref()?.trim().parse::<u64>().ok();
    let (Some(threads), Some(sockets)) = (number("NCCL_SOCKET_NTHREADS"), number("NCCL_NSOCKS_PERTHREAD"))
    else {
        return;
    };
    // NCCL takes at most 16 threads and 64 sockets, and lowers the second number (net_socket.cc, 2.30).
    let product = threads.min(16).saturating_mul(sockets);
    if product > 64 {
        let message = format!(
            "NCCL_SOCKET_NTHREADS × NCCL_NSOCKS_PERTHREAD is {product}; NCCL allows 64, and lowers the second"
        );
        let finding = Finding::warning("L-SOCKET-PRODUCT", message).fix("set them to 4 and 8");
        say(finding, &container.at);
    }
}
