//! Exceptions whose message says what to change, which is rarely the line that raised them.

/// One of them: a message with all the words, and what to do.
struct Known {
    words: &'static [&'static str],
    fix: &'static str,
}

const fn known(words: &'static [&'static str], fix: &'static str) -> Known {
    Known { words, fix }
}

const UNREACHABLE: &str =
    "give the node access to that address, or put the models and data where the job can read them";
const MORE_MEMORY: &str = "raise the memory request of the job, or use fewer data loader workers";
const FILE_SYSTEM: &str =
    "check the file system of that path on that node: its mount, its server and its quota";
const NO_GPU: &str = "give each rank a GPU: check the GPU request of the job, CUDA_VISIBLE_DEVICES and the driver in the container";
const OLD_DRIVER: &str = "use a node with a newer driver, or an image with an older CUDA";

/// The first that fits counts. Wordings of PyTorch, CUDA, Python's `os` and `urllib3`, read 2026-11-26.
const TABLE: &[Known] = &[
    known(
        &["Expected to have finished reduction in the prior iteration"],
        "use every parameter in the loss, or construct DistributedDataParallel with find_unused_parameters=True; TORCH_DISTRIBUTED_DEBUG=DETAIL names the unused ones",
    ),
    known(
        &["DDP expects same model across all ranks", "inconsistent 0 params"],
        "find the first error of the rank that sent 0 parameters: it did not answer",
    ),
    known(
        &["DDP expects same model across all ranks"],
        "build the same model on every rank: compare its configuration and the versions of the packages",
    ),
    known(
        &["setting up NCCL communicator", "ncclUniqueId"],
        "find out why rank 0 did not come: read its log, and check that all ranks begin with the same collective",
    ),
    known(
        &["NCCL", "invalid usage"],
        "check that the world size is the number of processes and that each rank has a GPU of its own; NCCL_DEBUG=WARN says what is invalid",
    ),
    known(
        &["NCCL", "invalid argument"],
        "check that the world size is the number of processes and that each rank has a GPU of its own; NCCL_DEBUG=WARN says what is invalid",
    ),
    known(&["No CUDA GPUs are available"], NO_GPU),
    known(&["Found no NVIDIA driver"], NO_GPU),
    known(&["no CUDA-capable device is detected"], NO_GPU),
    known(&["driver version is insufficient"], OLD_DRIVER),
    known(&["NVIDIA driver on your system is too old"], OLD_DRIVER),
    known(
        &["invalid device ordinal"],
        "set the device from the local rank, and give the container as many GPUs as it has ranks",
    ),
    known(
        &["peer access is not supported"],
        "set NCCL_P2P_DISABLE=1 in the environment of every rank (with Ray in its `runtime_env`), or show each process all GPUs of the node",
    ),
    known(
        &["Too many open files"],
        "raise the limit of open files (`ulimit -n`), or use fewer data loader workers",
    ),
    known(&["DataLoader worker", "killed by signal: Killed"], MORE_MEMORY),
    known(&["Cannot allocate memory"], MORE_MEMORY),
    known(&["can't allocate memory"], MORE_MEMORY),
    known(&["Stale file handle"], FILE_SYSTEM),
    known(&["Input/output error"], FILE_SYSTEM),
    known(&["Disk quota exceeded"], FILE_SYSTEM),
    known(&["Read-only file system"], FILE_SYSTEM),
    known(&["Transport endpoint is not connected"], FILE_SYSTEM),
    known(
        &["cannot open shared object file"],
        "install the missing library in the image, or add its directory to LD_LIBRARY_PATH",
    ),
    known(&["Max retries exceeded"], UNREACHABLE),
    known(&["We couldn't connect to"], UNREACHABLE),
];

/// Returns what to do where an exception says this.
pub(super) fn fix(message: &str) -> Option<&'static str> {
    let known = TABLE.iter().find(|known| known.words.iter().all(|words| message.contains(words)))?;
    Some(known.fix)
}
