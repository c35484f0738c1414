//! Rules about loading network plugins.

use weftrun_nccl::Signature;

use super::{ENV, HIGH, MEDIUM, NOTE, Rule, nccl_issue, ofi_issue, rule};

pub(super) const RULES: &[Rule] = &[
    rule("R02", "NCCL-PLUGIN-NOT-FOUND", NOTE,
        "no external network plugin was found: NCCL uses its built-in IB or Socket network",
        "right on InfiniBand, RoCE and a single node; on AWS install aws-ofi-nccl, put its lib directory on LD_LIBRARY_PATH, or set NCCL_NET_PLUGIN=ofi",
        nccl_issue!("162"))
        .signatures(&[Signature::PluginNotFound]),
    rule("R03", "NCCL-PLUGIN-ABI", HIGH,
        "the network plugin could not be loaded: it, or a library it needs, was built for a newer libc, libfabric or rdma-core than the container has",
        "build the plugin in the image, or take a base image as new as the plugin; keep one rdma-core only; match the EFA installer's version",
        "https://github.com/awslabs/awsome-distributed-training/issues/292")
        .signatures(&[Signature::PluginAbi]),
    rule("R03b", "PROC-LIBC-TOO-OLD", HIGH,
        "a program or library needs a newer C library than the image has: the loader refused to start it",
        "take a base image at least as new as the mounted or copied software (glibc 2.34 is in Ubuntu 22.04), start the image's own mpirun, or build the EFA stack into the image and keep the mounted one out of it; for `GLIBCXX_` and `CXXABI_` put the newer libstdc++ first on LD_LIBRARY_PATH (`$CONDA_PREFIX/lib`, or a module of gcc)",
        "https://docs.nvidia.com/dgx-cloud/")
        .signatures(&[Signature::LibcTooOld])
        .says(&[&["version `GLIBC", "' not found"], &["version `CXXABI", "' not found"]])
        .fails(),
    rule("R04", "NCCL-PLUGIN-DEPENDENCY", HIGH,
        "the network plugin could not be loaded: a library that it needs is missing",
        "install the library, or add its directory to LD_LIBRARY_PATH",
        ofi_issue!("244"))
        .signatures(&[Signature::PluginDependency]),
    rule("R04b", "NCCL-PLUGIN-TOO-OLD", MEDIUM,
        "a network plugin was found but is too old for this NCCL",
        "update the plugin, or take it off LD_LIBRARY_PATH",
        nccl_issue!("1292"))
        .signatures(&[Signature::PluginTooOld]),
    rule("R48", "NET-NOT-FOUND", HIGH,
        "the requested network is not available, and NCCL does not fall back",
        "set NCCL_NET to the plugin's own name (AWS Libfabric, IB, Socket) or unset it; check why the plugin was not loaded",
        ENV).patch(&[("env.NCCL_NET", None)])
        .explaining(&["NCCL-PLUGIN-NOT-FOUND", "NCCL-WARNING"])
        .signatures(&[Signature::NetworkNotFound])
        .fails(),
];
