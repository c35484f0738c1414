//! Rules about libfabric, EFA and the aws-ofi-nccl plugin.

use crate::nodes::Fault;
use std::collections::BTreeSet;

use weftrun_nccl::{FabricSeen, Network, Signature};

use super::{Blame, HIGH, MEDIUM, Rule, ofi_issue, rule};
use crate::cause::CauseClass;
use crate::rule_input::RuleInput;

/// The code of the finding that libfabric chose another provider than efa.
pub const WRONG_PROVIDER: &str = "OFI-WRONG-PROVIDER";

pub(super) const RULES: &[Rule] = &[
    rule("R05", "OFI-NO-PROVIDER", HIGH,
        "libfabric offers no EFA provider: it sees no EFA device, or was built without EFA",
        "give the container the EFA devices (vpc.amazonaws.com/efa, or /dev/infiniband) and check `fi_info -p efa` inside it",
        ofi_issue!("1020")).patch(&[("fabric", Some("efa"))])
        .explaining(&["OFI-INIT-FAILED", "EFA-RESOURCES"])
        .signatures(&[Signature::OfiNoProvider])
        .when(no_provider),
    rule("R06", WRONG_PROVIDER, HIGH,
        "libfabric chose another provider than efa",
        "give the container the EFA devices (`fi_info -p efa` must list them inside it), set FI_PROVIDER=efa, and use a plugin built for AWS; off AWS use NCCL's own IB network instead of this plugin",
        ofi_issue!("803")).patch(&[("env.FI_PROVIDER", Some("efa"))])
        .explaining(&["OFI-INIT-FAILED"])
        .signatures(&[Signature::OfiOtherProvider, Signature::OfiOnlyEfa])
        .detail(other_providers),
    rule("R07", "OFI-INIT-FAILED", HIGH,
        "the aws-ofi-nccl plugin failed to initialise; NCCL continues with IB or Socket",
        "set NCCL_DEBUG=INFO: the first NET/OFI line of that process names the call that failed; on a host without EFA or Slingshot take the plugin off LD_LIBRARY_PATH",
        ofi_issue!("889"))
        .signatures(&[Signature::OfiInitFailed]),
    rule("R08", "OFI-GDR-DISABLED", HIGH,
        "GPUDirect RDMA is off on an instance that has it: libfabric was built without CUDA (FI_HMEM)",
        "use the EFA installer's libfabric, and efa_nv_peermem or DMA-BUF; check `fi_info -p efa -c FI_HMEM`",
        ofi_issue!("889"))
        .signatures(&[Signature::OfiGdrDisabled, Signature::OfiHmemNeedsRdma])
        .when(gdr_disabled),
    rule("R09", "EFA-WITHOUT-GDR", MEDIUM,
        "EFA works without GPUDirect RDMA: every byte is copied through host memory",
        "use a newer libfabric and plugin; old ones need FI_EFA_USE_DEVICE_RDMA=1",
        ofi_issue!("64")).patch(&[("env.FI_EFA_USE_DEVICE_RDMA", Some("1"))])
        .signatures(&[Signature::OfiConnectionWithoutGdr])
        .when(efa_without_gdr),
    rule("R10", "EFA-UNREACHABLE-PEER", HIGH,
        "EFA packets to a peer are dropped",
        "the security group must allow all traffic to and from itself; keep the nodes in one subnet",
        ofi_issue!("156")).fault(Fault::Link)
        .signatures(&[Signature::EfaUnreachablePeer])
        .blame(Blame::Link),
    rule("R11", "EFA-RESOURCES", HIGH,
        "an endpoint, address vector or domain of libfabric could not be made: a resource limit, an old driver, or (Slingshot) no VNI",
        "set memlock unlimited, give all EFA devices to the container, update the EFA driver or the AMI",
        ofi_issue!("44"))
        .signatures(&[Signature::OfiResources])
        // The driver of EFA.
        .says(&[&["infiniband efa_", "ALLOC_PD"], &["infiniband efa_", "Failed to allocate pd"]])
        .advice(of_slingshot)
        .fails(),
    rule("R11b", "OFI-REGISTRATION", HIGH,
        "the libfabric plugin could not register memory with a NIC",
        "set memlock unlimited, and for memory of a GPU (type 2) check GPUDirect RDMA: nvidia-peermem or DMA-BUF, and `FI_EFA_USE_DEVICE_RDMA`",
        ofi_issue!("44"))
        .signatures(&[Signature::OfiRegistration])
        .fails(),
    rule("R12", "EFA-FORK", HIGH,
        "a process forked while it held EFA memory",
        "set FI_EFA_USE_HUGE_PAGE=0, on kernels before 5.15 also FI_EFA_FORK_SAFE=1; start data loaders with `spawn`",
        ofi_issue!("69")).patch(&[("env.FI_EFA_USE_HUGE_PAGE", Some("0")), ("env.FI_EFA_FORK_SAFE", Some("1"))])
        .signatures(&[Signature::EfaFork, Signature::ForkOutOfMemory])
        .when(forked)
        .advice(named_variable)
        .fails(),
    rule("R13", "OFI-LIBFABRIC-TOO-OLD", HIGH,
        "libfabric is older than the plugin needs",
        "use the same EFA installer in the image and on the host",
        ofi_issue!("803"))
        .signatures(&[Signature::LibfabricTooOld])
        .when(too_old),
    rule("R14", "OFI-RAIL-MISMATCH", HIGH,
        "two nodes group their NICs differently",
        "give every node the same number of EFA devices",
        ofi_issue!("1061"))
        .signatures(&[Signature::RailMismatch])
        .fails(),
    rule("R51", "EFA-REGISTRATION-22", HIGH,
        "memory could not be registered (-22): NCCL 2.19 or later with an EFA installer before 1.29",
        "use EFA installer 1.29 or later, or FI_EFA_SET_CUDA_SYNC_MEMOPS=0",
        ofi_issue!("584")).patch(&[("env.FI_EFA_SET_CUDA_SYNC_MEMOPS", Some("0"))])
        .signatures(&[Signature::EfaRegistration])
        .fails(),
    rule("R59", "EFA-PEER-GONE", HIGH,
        "the peer's queue pair no longer exists: the process at the other end ended first, or was restarted",
        "read the log of the host that the message names as the peer, and find its first error",
        "https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_errno.h")
        .signatures(&[Signature::EfaPeerGone])
        .detail(peer_host)
        .blame(Blame::Peer),
    rule("R59b", "EFA-ABORT", HIGH,
        "libfabric's efa provider ended the process after an internal error",
        "look up the codes that the provider prints as `Libfabric error` and `EFA internal error`",
        "https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_base_ep.c")
        .signatures(&[Signature::EfaAbort])
        .fails(),
    rule("R66", "OFI-REQUEST-FAILED", HIGH,
        "a request of the libfabric plugin completed with an error",
        "read the log of the peer's host first: a process that ended there makes the requests to it fail; then look at the EFA or NIC errors of both hosts (`ethtool -S`, `rdma statistic`, dmesg)",
        "https://github.com/aws/aws-ofi-nccl/blob/master/src/nccl_ofi_rdma.cpp").fault(Fault::Network)
        .signatures(&[Signature::ErrorInOfi])
        .when(failed_without_reason)
        .detail(reason_and_peer)
        .blame(Blame::Link),
    // oneCCL's src/atl/ofi/helper/atl_ofi_helper.cpp.
    rule("R52b", "ONECCL-NO-PROVIDER", HIGH,
        "oneCCL found no provider of libfabric that it can use",
        "see what the host has (`fi_info -l`) and choose one: FI_PROVIDER=tcp as a test, verbs or psm3 for the fabric that is there; load oneCCL's environment (setvars.sh, FI_PROVIDER_PATH), or let MPI carry it (CCL_ATL_TRANSPORT=mpi)",
        "https://uxlfoundation.github.io/oneCCL/env-variables.html")
        .says(&[&["CCL_ERROR", "can not open network providers"], &["CCL_ERROR", "can't find suitable provider"]])
        .fails(),
    // libfabric's src/fabric.c and prov/efa/src/efa_user_info.c.
    rule("R52d", "EFA-NOTHING-FITS", MEDIUM,
        "libfabric's efa provider has nothing with the capabilities that the program asks for",
        "compare `Requested` with `Supported` in the lines above it (FI_LOG_LEVEL=info), and `fi_info -p efa -t FI_EP_RDM` on that host; install the libfabric of the EFA installer, or let the program ask for the endpoint type FI_EP_RDM",
        "https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_user_info.c")
        .says(&[&["provider efa returned -61"]])
        .kind(CauseClass::Nccl),
    // oneCCL's src/exec/exec.cpp and src/exec/thread/base_thread.cpp: pthread_create(3) with an affinity outside of the job's CPUs.
    rule("R52c", "ONECCL-WORKER-NOT-STARTED", HIGH,
        "oneCCL could not start its worker threads: most often they are bound to CPUs that the job may not use",
        "set CCL_WORKER_AFFINITY to CPUs of the job (`taskset -pc $$`), or unset it and I_MPI_PIN_DOMAIN, and give each rank CPUs enough for its workers (CCL_WORKER_COUNT)",
        "https://uxlfoundation.github.io/oneCCL/env-variables.html")
        .says(&[&["start_workers: EXCEPTION: failed to start worker"], &["error while creating worker thread"]])
        .fails(),
    rule("R52", "OFI-GDR-OFF-HMEM", MEDIUM,
        "EFA works without GPUDirect RDMA: libfabric's CUDA calls cannot be switched off",
        "use the EFA installer's libfabric built with CUDA",
        "https://github.com/aws/aws-ofi-nccl/blob/master/src/nccl_ofi_ofiutils.cpp")
        .signatures(&[Signature::HmemWithoutGdr]),
];

/// Returns whether some process found no provider, and no other either: a probe for one may fail before another is selected.
fn no_provider(seen: &RuleInput<'_>) -> bool {
    seen.map.without(Signature::OfiNoProvider, Signature::OfiProvider)
}

/// Returns whether libfabric is too old. Another provider than efa does not know the plugin's options either, whatever its version.
fn too_old(seen: &RuleInput<'_>) -> bool {
    let Some(found) = seen.map.signatures().get(Signature::LibfabricTooOld) else { return false };
    let required = || found.traces.iter().any(|trace| trace.text.contains("requires at least"));
    !seen.has(Signature::OfiOtherProvider) || required()
}

/// Returns what to do on Slingshot, whose provider the lines name.
fn of_slingshot(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::OfiResources)?.traces;
    if traces.iter().any(|trace| trace.text.contains("insert remote address")) {
        return Some(
            "check that the security group allows all traffic from and to itself, for the addresses are those of other nodes; then memlock and the EFA devices of the container".to_owned(),
        );
    }
    let is_cxi = traces.iter().any(|trace| trace.text.contains("cxi")) || seen.provider_is("cxi");
    is_cxi.then(|| {
        "start the ranks with srun, which gives a job its VNI, or ask your cluster administrator for one"
            .to_owned()
    })
}

/// Names the hosts of the peers that are gone, as the messages have them.
fn peer_host(seen: &RuleInput<'_>) -> Option<String> {
    peers_of(seen, Signature::EfaPeerGone)
}

fn peers_of(seen: &RuleInput<'_>, signature: Signature) -> Option<String> {
    let traces = &seen.map.signatures().get(signature)?.traces;
    let name = |text: &str| {
        let rest = text.split_once("Peer host id: ")?.1;
        let end = rest.find(|of: char| of.is_whitespace() || of == ',').unwrap_or(rest.len());
        let name = rest.get(..end)?.trim_end_matches('.');
        (!name.is_empty()).then(|| name.to_owned())
    };
    let names: BTreeSet<String> = traces.iter().filter_map(|trace| name(&trace.text)).collect();
    (!names.is_empty()).then(|| format!(" (peer {})", names.into_iter().collect::<Vec<_>>().join(", ")))
}

/// Returns whether no other rule knows what the error of a request means.
fn failed_without_reason(seen: &RuleInput<'_>) -> bool {
    let known = [Signature::EfaUnreachablePeer, Signature::EfaPeerGone, Signature::EfaAbort];
    seen.has(Signature::ErrorInOfi) && !known.into_iter().any(|signature| seen.has(signature))
}

/// Quotes the reason that the message has, and names the peer.
fn reason_and_peer(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::ErrorInOfi)?.traces;
    let reason = |text: &str| {
        let rest = text.split_once("message: ").or_else(|| text.split_once("Error: "))?.1;
        let rest = rest.split_once(" My EFA addr").map_or(rest, |(reason, _)| reason);
        let end = rest.find([',', '.', '(']).unwrap_or(rest.len());
        let reason = rest.get(..end)?.trim();
        (!reason.is_empty()).then(|| format!(": {reason}"))
    };
    let reason = traces.iter().find_map(|trace| reason(&trace.text)).unwrap_or_default();
    let peers = peers_of(seen, Signature::ErrorInOfi).unwrap_or_default();
    (!reason.is_empty() || !peers.is_empty()).then(|| format!("{reason}{peers}"))
}

/// Returns whether EFA lacks GPUDirect where the type has it: p3dn, g4dn, g5 never have it; p4d, p5 and p6
/// do.
fn efa_without_gdr(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::OfiConnectionWithoutGdr)
        && seen.has(Signature::GdrInstance)
        && !seen.has(Signature::InstanceWithoutGdr)
        && matches!(seen.verdict.fabric, FabricSeen::Network(Network::Efa | Network::LibfabricOther))
}

fn gdr_disabled(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::OfiGdrDisabled)
        || (seen.has(Signature::OfiHmemNeedsRdma) && !seen.has(Signature::InstanceWithoutGdr))
}

/// Returns whether a failed fork is EFA's. Memory may be short for many reasons; the rule needs EFA.
fn forked(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::EfaFork)
        || (seen.has(Signature::ForkOutOfMemory)
            && (seen.on_aws() || seen.uses(Network::LibfabricOther, false)))
}

/// Returns what to do where libfabric's message names a variable: older ones know only RDMAV_FORK_SAFE
/// (prov/efa/src/efa_fork_support.c).
fn named_variable(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::EfaFork)?.traces;
    traces.iter().any(|trace| trace.text.trim() == "RDMAV_FORK_SAFE").then(|| {
        "set RDMAV_FORK_SAFE=1, as the message says, or start data loaders and other processes with `spawn`".to_owned()
    })
}

fn other_providers(seen: &RuleInput<'_>) -> Option<String> {
    let providers: BTreeSet<&str> = seen
        .map
        .plugins()
        .iter()
        .flat_map(|plugin| &plugin.providers)
        .map(|name| &**name)
        .filter(|name| !name.starts_with("efa"))
        .collect();
    (!providers.is_empty()).then(|| format!(": {}", providers.into_iter().collect::<Vec<_>>().join(", ")))
}
