//! Rules about what an error says, of which the line that raised it is rarely the one to change: messages of PyTorch, CUDA,
//! HIP, Python's `os` and `urllib3`, read 2026-11-26.

use crate::nodes::Fault;
use weftrun_nccl::Signature;

use super::{Blame, CUDA_FAILURE, CauseClass, Rule, cause, nccl_issue};
use crate::rule_input::RuleInput;

/// The lines of NCCL and its tests that pass on an error of CUDA.
pub(super) const CUDA_LINES: &[Signature] = &[Signature::CudaFailure, Signature::TestCudaFailed];
/// The classes of an error of a GPU.
const OF_GPU: &[CauseClass] = &[CauseClass::CudaError, CauseClass::CudaOutOfMemory];
const CUDA: &str = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html";
const DDP: &str =
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html";
const XID: &str = "https://docs.nvidia.com/deploy/xid-errors/";
pub(super) const OS_ERRORS: &str = "https://man7.org/linux/man-pages/man3/errno.3.html";

pub(crate) const NCCL_NO_REASON: Rule = cause("C23", "NCCL-NO-REASON",
    "a call of NCCL failed, and the log has its result without the reason",
    "set NCCL_DEBUG=INFO for all ranks and run again: NCCL prints the reason as a warning before the exception",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
    .says(&[&["unhandled cuda error"], &["unhandled system error"], &["NCCL failure"], &["NCCL_DEBUG=INFO"], &["unhandled"], &["internal error", "NCCL version"]])
    .explaining(&["PROCESS-EXITED"])
    .only(&[CauseClass::CudaError, CauseClass::Nccl, CauseClass::Unexplained])
    .signatures(&[Signature::TestNcclFailed])
    .when(|seen| seen.has(Signature::TestNcclFailed) && !seen.has(Signature::Warning))
    .advice(other_ranks);

/// Returns what to do where the functions of libibverbs are missing: an NCCL that was built with RDMA_CORE=1 does not load it by itself.
fn of_verbs(text: &str) -> Option<String> {
    text.contains("undefined symbol: ibv_").then(|| {
        "install libibverbs (rdma-core) and link or preload it (LD_PRELOAD=libibverbs.so.1), or use an NCCL that was built without RDMA_CORE=1, which loads it by itself".to_owned()
    })
}

/// Says where the reason may stand if NCCL's own lines were on and do not have it.
fn other_ranks(seen: &RuleInput<'_>) -> Option<String> {
    let advice = "NCCL_DEBUG=INFO was on, and these logs do not have the reason: read the first warning of NCCL in the logs of all ranks";
    seen.map.has_info().then(|| advice.to_owned())
}

/// In the order of precedence.
pub(super) const RULES: &[Rule] = &[
    cause("C01", "DDP-PARAMETERS-UNUSED",
        "the backward pass used not all parameters of the model",
        "use every parameter in the loss, or construct DistributedDataParallel with find_unused_parameters=True; TORCH_DISTRIBUTED_DEBUG=DETAIL names the unused ones",
        DDP)
        .says(&[&["Expected to have finished reduction in the prior iteration"]]),
    cause("C02", "DDP-NO-ANSWER",
        "a rank did not answer when the ranks compared their models",
        "find the first error of the rank that sent 0 parameters: it did not answer",
        DDP)
        .says(&[&["DDP expects same model across all ranks", "inconsistent 0 params"]]),
    cause("C03", "DDP-MODELS-DIFFER",
        "the ranks built different models",
        "build the same model on every rank: compare its configuration and the versions of the packages",
        DDP)
        .says(&[
            &["DDP expects same model across all ranks"],
            &["appears not to match sizes of the same param"],
            &["appears not to match strides of the same param"],
        ]),
    cause("C03b", "ZERO-ORDER-DIFFERS",
        "the ranks of DeepSpeed's ZeRO-3 use the parameters in different orders",
        "let all ranks run the same modules in each step: a branch by the data, or experts of which a rank uses only some (`deepspeed.utils.set_z3_leaf_modules`), and as many batches on all ranks",
        "https://deepspeed.readthedocs.io/en/latest/zero3.html")
        .says(&[&["disagreement between rank0 and rank"]]),
    cause("C03c", "PARALLELISM-DOES-NOT-FIT",
        "the number of processes or GPUs does not fit the parallelism that the program was told to use",
        "start as many processes as tensor, pipeline, context and data parallel sizes multiply to, and as many on each node as it has GPUs",
        "https://docs.nvidia.com/megatron-core/developer-guide/latest/")
        .says(&[
            &["expected local-rank to be the same as rank % device-count"],
            &["mpiSize == tp * pp"],
            &["world size", "is not divisible by"],
            &["world_size", "is not divisible by"],
        ]),
    // The words of Megatron, NeMo and vLLM.
    cause("C03ca", "MODEL-DOES-NOT-DIVIDE",
        "a size of the model is no multiple of a parallel size that the program was told to use",
        "choose a parallel size that divides the number in the line: the pipeline parallel size the layers, the tensor parallel size the attention heads and the vocabulary",
        "https://docs.nvidia.com/megatron-core/developer-guide/latest/")
        .says(&[
            &["divisible by", "pipeline_model_parallel_size"],
            &["divisible by", "tensor_model_parallel_size"],
            &["must be divisible by tensor parallel size"],
        ]),
    cause("C03d", "DEEPSPEED-BATCH",
        "the batch sizes of DeepSpeed do not multiply with the number of ranks that it sees, which is the last number",
        "if the last number is not the number of ranks of the job, start one process for each GPU with a launcher (deepspeed, torchrun, srun); else set train_batch_size to micro batch times accumulation steps times ranks, or to `auto`",
        "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters")
        .says(&[&["Check batch related parameters. train_batch_size is not equal"]]),
    cause("C04", "NCCL-ID-NOT-SENT",
        "rank 0 did not send the id of the communicator",
        "find out why rank 0 did not come: read its log, and check that all ranks begin with the same collective; if it only took long (it prepares the data first), raise the timeout of init_process_group (`ddp_timeout` of transformers)",
        nccl_issue!("708"))
        .says(&[&["setting up NCCL communicator", "ncclUniqueId"]]),
    cause("C05", "NCCL-INVALID-USAGE",
        "NCCL was called wrongly",
        "check that the world size is the number of processes and that each rank has a GPU of its own; NCCL_DEBUG=WARN says what is invalid",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclresult-t")
        .says(&[&["invalid usage", "NCCL"], &["invalid argument", "NCCL"]])
        .only(&[CauseClass::Exception, CauseClass::Nccl, CauseClass::Unexplained]),
    cause("C06", "GPU-MISSING",
        "the process sees no GPU",
        "give each rank a GPU: check the GPU request of the job, CUDA_VISIBLE_DEVICES and the driver in the container; Slurm's `--gpus-per-task` shows each task its own GPU alone, as number 0 (JAX: `local_device_ids=[0]`, or show all with `--gpus-per-node`)",
        CUDA)
        .says(&[
            &["No CUDA GPUs are available"],
            &["Found no NVIDIA driver"],
            &["no CUDA-capable device is detected"],
            &["no ROCm-capable device is detected"],
            &["No devices were found"],
            &["no supported devices found for platform CUDA"],
            &["no supported devices found for platform ROCM"],
        ])
        .lines(CUDA_LINES),
    cause("C06b", "GPU-NOT-INITIALISED",
        "CUDA could not be initialised in the process",
        "check the driver of that node (`nvidia-smi`) and the devices of the container; a process that was forked after its parent used CUDA cannot use it (start it with `spawn`)",
        CUDA)
        .says(&[&["initialization error"]])
        .lines(CUDA_LINES)
        .only(OF_GPU),
    cause("C06c", "GPU-MAPPING-FAILED",
        "a GPU's memory could not be mapped for another GPU or process",
        "set NCCL_P2P_DISABLE=1 as a test: if it helps, the GPUs do not reach each other (mixed cards, a patched driver, IOMMU, a virtual machine)",
        CUDA)
        .says(&[&["mapping of buffer object failed"], &["peer access is not supported"]])
        .lines(CUDA_LINES)
        .only(OF_GPU),
    cause("C06d", "GPU-OPERATION-UNSUPPORTED",
        "the driver or the kind of GPU (vGPU, MIG, a virtual machine) does not support what was asked of it",
        "compare the driver with the one that this CUDA and NCCL need; on a vGPU enable unified memory (UVM) for it, which memory pools need; NCCL_CUMEM_ENABLE=0 and NCCL_P2P_DISABLE=1 as a test",
        CUDA)
        .says(&[&["'operation not supported'"], &["CUDA error: operation not supported"]])
        .lines(CUDA_LINES)
        .only(OF_GPU),
    cause("C06e", "GPU-DRIVER-MISSING",
        "the driver of the GPUs is not loaded on that node, or does not answer",
        "load the driver there (`modprobe nvidia`, dmesg): after an update of the kernel build it again, or reboot the node",
        CUDA).fault(Fault::Node)
        .says(&[&["couldn't communicate with the NVIDIA driver"]])
        .kind(CauseClass::CudaError),
    cause("C07", "GPU-DRIVER-TOO-OLD",
        "the driver of the node is older than the CUDA of the program needs",
        "use a node with a newer driver, or an image with an older CUDA",
        "https://docs.nvidia.com/deploy/cuda-compatibility/")
        .says(&[&["driver version is insufficient"], &["NVIDIA driver on your system is too old"], &["unsupported toolchain"]])
        .lines(CUDA_LINES),
    cause("C07b", "GPU-DRIVER-MISMATCH",
        "the parts of the driver have different versions: the module in the kernel, and the libraries that the process loaded",
        "reboot the node or reload its driver after an update; in a container take CUDA's compat libraries off LD_LIBRARY_PATH",
        "https://docs.nvidia.com/deploy/cuda-compatibility/").fault(Fault::Node)
        .says(&[
            &["unsupported display driver"],
            &["river/library version mismatch"],
            &["forward compatibility was attempted"],
        ])
        .explaining(&["CONTAINER-NOT-STARTED"])
        .lines(CUDA_LINES),
    cause("C08", "GPU-ORDINAL",
        "the process chose a GPU of a number that it does not see",
        "set the device from the local rank, and give the container as many GPUs as it has ranks; Slurm's `--gpus-per-task` shows each task its own GPU alone, as number 0 (use that, or `--gpus-per-node`)",
        CUDA)
        // Baidu's DeepBench says nothing more of it.
        .says(&[&["invalid device ordinal"], &["Failed to set cuda device"]])
        .lines(CUDA_LINES),
    cause("C08b", "GPU-PEERS-EXHAUSTED",
        "CUDA cannot map the memory of more peers: one GPU reaches only a limited number of others directly",
        "run with fewer GPUs in a process and a node, or take the connections over PCIe off with NCCL_P2P_DISABLE=1 as a test",
        CUDA)
        .says(&[&["peer mapping resources exhausted"]])
        .lines(CUDA_LINES),
    // The words of NV_ERR_RESET_REQUIRED in open-gpu-kernel-modules' nvstatuscodes.h, and of nvidia-smi.
    cause("C08c", "GPU-RESET-REQUIRED",
        "the driver says that a GPU takes no work before it is reset",
        "drain the node and reset that GPU (`nvidia-smi -r -i N` while nothing uses it) or reboot; if the state comes back, have the GPU checked (dmesg, `nvidia-smi -q`, dcgmi diag)",
        XID).fault(Fault::Node)
        .says(&[&["NV_ERR_RESET_REQUIRED"], &["Reset required"], &["GPU requires reset"]])
        .explaining(&["GPU-BUSY", "GPU-NOT-STARTED", "GPU-NOT-INITIALISED", "GPU-STATE-UNKNOWN", CUDA_FAILURE])
        .kind(CauseClass::CudaError),
    cause("C09", "GPU-BUSY",
        "the GPU takes no further process: another one holds it in exclusive mode, or it is being reset",
        "find the process that holds the GPU (nvidia-smi) and end it, or give each rank a GPU of its own; if none holds it, read the driver's lines in the kernel log (dmesg, NVRM); `nvidia-smi -q -d COMPUTE` shows the compute mode, which your cluster administrator can set to DEFAULT",
        CUDA)
        .says(&[&["busy or unavailable"]])
        .lines(CUDA_LINES),
    cause("C10", "GPU-ARCHITECTURE",
        "the libraries have no code for this GPU",
        "use builds of NCCL and of the framework that have code for this GPU (`nvidia-smi --query-gpu=compute_cap --format=csv`; AMD: `rocminfo | grep gfx`)",
        CUDA)
        .says(&[&["invalid device function"], &["named symbol not found"], &["no kernel image is available"], &["hipErrorNoBinaryForGpu"]])
        .lines(CUDA_LINES),
    cause("C10b", "GPU-ASSERTION",
        "an assertion in a kernel on the GPU did not hold: most often an index or a label outside of its range",
        "read the line with `Assertion` above it, which names the condition; run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to find the call, and compare the indices (labels, token ids, positions) with the sizes of the tables",
        CUDA)
        .says(&[&["device-side assert"], &["Device-side assertion `"], &[": block: [", "Assertion `"]])
        .lines(CUDA_LINES),
    cause("C11", "GPU-ECC",
        "the memory of a GPU has an error that cannot be corrected",
        "drain the node and check its GPUs (dmesg, nvidia-smi -q, dcgmi diag)",
        XID).fault(Fault::Hardware)
        .says(&[&["uncorrectable ECC"], &["uncorrectable NVLink"]])
        .lines(CUDA_LINES),
    cause("C11b", "GPU-LOST",
        "the driver lost a GPU: it fell off the bus, or does not answer",
        "drain the node and check its GPUs (dmesg, nvidia-smi -q): only a reset or a reboot brings the GPU back",
        XID).fault(Fault::Hardware)
        .says(&[&["GPU is lost"], &["Unable to determine the device handle for GPU"]])
        .lines(CUDA_LINES),
    cause("C11d", "GPU-CONTAINED-ERROR",
        "a GPU met an error of NVLink or of its hardware, which was contained to the processes that use it",
        "look at the Xid errors and the NVLink counters of that node and of its peers in the NVLink domain (dmesg, `nvidia-smi nvlink -e`), and drain the node if they have any",
        CUDA).fault(Fault::Node)
        .says(&[&["CUDA_ERROR_CONTAINED"], &["Invalid access of peer GPU memory over nvlink"]])
        .lines(CUDA_LINES),
    cause("C11e", "NVSWITCH-SXID",
        "the driver reports an error of an NVSwitch",
        "look up the SXid in the line; if it is fatal or comes again, drain the node and check its NVLinks and the fabric manager (`nvidia-smi nvlink -e`)",
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/").fault(Fault::Node)
        .says(&[&["SXid ("]])
        .kind(CauseClass::CudaError),
    cause("C11c", "GPU-NOT-STARTED",
        "the driver could not start a GPU",
        "drain the node and check that GPU (dmesg, `nvidia-smi -q`): a reset or a reboot may bring it back, else it is defective or badly seated, or the driver does not fit it",
        XID).fault(Fault::Node)
        .says(&[&["RmInitAdapter failed"], &["rm_init_adapter failed"], &["Cannot attach gpu"]])
        .kind(CauseClass::CudaError),
    cause("C12", "FILES-OPEN",
        "the process has as many open files as its limit allows",
        "raise the limit of open files (`ulimit -n`), or use fewer data loader workers",
        OS_ERRORS)
        .says(&[&["Too many open files"]])
        .explaining(&["SHARED-TENSOR-NOT-OPENED"]),
    cause("C12b", "SHARED-TENSOR-NOT-OPENED",
        "a process could not open the shared memory of a tensor that another process passed to it",
        "raise the limit of open files (`ulimit -n`), or call torch.multiprocessing.set_sharing_strategy('file_system'); if the process that passed it ended before, read its error",
        "https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies")
        .says(&[&["unable to open shared memory object"]]),
    cause("C13", "HOST-OUT-OF-MEMORY",
        "the memory of the host, or that of the job's limit, is used up",
        "raise the memory request of the job, or use fewer data loader workers",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory")
        .says(&[&["DataLoader worker", "killed by signal: Killed"], &["[Errno 12] Cannot allocate memory"], &["fork: Cannot allocate memory"], &["can't allocate memory"]])
        .of(&[CauseClass::OomKilled, CauseClass::OutOfMemory]),
    cause("C14", "FILE-SYSTEM",
        "a file system does not answer as it should",
        "check the file system that the program writes to on that node: its mount, its server, its free space and its quota",
        OS_ERRORS)
        .says(&[
            &["Stale file handle"],
            // MPI and UCX say the same of a network, without a path.
            &["[Errno 5] Input/output error"],
            &["': Input/output error"],
            // PyTorch's own writer of files.
            &["): fd ", " failed with Input/output error"],
            &["Disk quota exceeded"],
            &["Read-only file system"],
            // A socket says the same, without a path behind it.
            &["Transport endpoint is not connected: '"],
        ]),
    cause("C14a", "FILE-OF-ANOTHER-RANK",
        "a file or folder that the program makes, renames or links was changed meanwhile: another rank, or an earlier run, did the same",
        "let one rank save and clean up (global rank 0, not that of each node), and give each run an output folder of its own; newer versions of the library that saves may do so",
        OS_ERRORS)
        .says(&[
            &["[Errno 39] Directory not empty"],
            &["[Errno 17] File exists"],
            &["[Errno 2] No such file or directory: ", "' -> '"],
        ]),
    cause("C14b", "FILE-MISSING",
        "a file or folder that the program uses is not there",
        "check on that node, in the container of the job, that the path exists and is mounted (a bare name is a program to install); if another rank or a clean-up removed it, do that on one rank only",
        OS_ERRORS)
        .says(&[&["[Errno 2] No such file or directory: "]]),
    cause("C14c", "FILE-DENIED",
        "the user of the job may not use a file or folder",
        "check the owner and the mode of that path for the user of the job (`ls -ld`, `id`), and whether it is mounted for writing",
        OS_ERRORS)
        .says(&[&["[Errno 13] Permission denied: "]]),
    // The kernel's ENOSPC of what is no volume.
    cause("C14d", "KERNEL-LIMIT",
        "a limit of the kernel is reached: the number of user namespaces, inotify watches, cgroups or semaphores (no volume is full)",
        "raise the limit that the line is about on that node: user.max_user_namespaces, fs.inotify.max_user_watches and max_user_instances, kernel.sem; for cgroups end what left them behind, or reboot the node",
        OS_ERRORS)
        .says(&[
            &["user namespace", "No space left on device"],
            &["inotify watch limit reached"],
            &["inotify", "No space left on device"],
            &["cgroup", "No space left on device"],
            &["cpuset", "No space left on device"],
            &["semaphore", "No space left on device"],
        ])
        .explaining(&["CONTAINER-NOT-STARTED", "IMAGE-NOT-PULLED"])
        .kind(CauseClass::NotStarted),
    cause("C14e", "IMAGE-NO-SPACE",
        "the volume on which a container's image is unpacked is full",
        "free space on that volume of the node, or set enroot's folders to a larger one (ENROOT_TEMP_PATH, ENROOT_CACHE_PATH, ENROOT_DATA_PATH) and pyxis's runtime_path",
        "https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md")
        .says(&[&["pyxis: ", "No space left on device"], &["[ERROR]", "enroot", "No space left on device"]])
        .explaining(&["CONTAINER-NOT-STARTED", "IMAGE-NOT-PULLED"])
        .kind(CauseClass::DiskFull),
    // The kernel's block layer and drivers/nvme/host/pci.c.
    cause("C14g", "DISK-FAILS",
        "the kernel reports that a disk of the node does not answer or cannot be read",
        "look at that disk (dmesg, `smartctl -a`), and drain the node",
        "https://docs.kernel.org/admin-guide/index.html").fault(Fault::Node)
        .says(&[&["I/O error, dev "], &["nvme", "timeout, aborting"]])
        .kind(CauseClass::NodeFail),
    // The kernel's kernel/hung_task.c.
    cause("C14h", "KERNEL-TASK-HUNG",
        "the kernel reports a process that waits without end, most often for a file system",
        "read the stack below that line (dmesg): it names the file system (NFS, Lustre) or the driver that does not answer; check its server and its mount on that node",
        "https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs")
        .says(&[&["blocked for more than ", " seconds"]])
        .kind(CauseClass::NodeFail),
    cause("C15", "VOLUME-FULL",
        "a volume is full",
        "free space on the volume that is written to, or write checkpoints to another one",
        OS_ERRORS)
        .says(&[&["No space left on device"]])
        .kind(CauseClass::DiskFull),
    // PyTorch's caffe2/serialize/inline_container.cc, read 2026-11-26.
    cause("C15a", "CHECKPOINT-NOT-WRITTEN",
        "PyTorch could not write a file: most often its volume or quota is full",
        "free space on the volume that is written to (`df`, the quota), or write checkpoints to another one",
        "https://github.com/pytorch/pytorch/blob/main/caffe2/serialize/inline_container.cc")
        .says(&[&["PytorchStreamWriter failed writing file"], &["unexpected pos ", " vs "]]),
    cause("C16", "LIBRARY-MISSING",
        "a shared library is not found",
        "install the missing library in the image, or add its directory to LD_LIBRARY_PATH",
        "https://man7.org/linux/man-pages/man8/ld.so.8.html")
        .says(&[&["cannot open shared object file"]]),
    cause("C16b", "LIBRARY-VERSION",
        "a library does not have a function that another one was built against: two versions are mixed",
        "install the version that the library in the line was built with (for `nccl…` the NCCL that this PyTorch asks for), and take other copies off LD_LIBRARY_PATH and LD_PRELOAD",
        "https://man7.org/linux/man-pages/man8/ld.so.8.html")
        .by_line(of_verbs)
        .says(&[&["undefined symbol: "], &["symbol lookup error"]]),
    cause("C17", "MODULE-MISSING",
        "Python does not find a module",
        "install the missing module in the image or environment of every node",
        "https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError")
        .says(&[&["No module named"]]),
    cause("C17b", "LOCAL-SERVER",
        "a server on the same host does not answer",
        "start that server first, on the port that the line names, and read its own log",
        OS_ERRORS)
        .says(&[
            &["Max retries exceeded", "host='localhost'"],
            &["Max retries exceeded", "host='127.0.0.1'"],
            &["Max retries exceeded", "host='0.0.0.0'"],
        ]),
    // The words of requests, urllib3, urllib, httpx, aiohttp and huggingface_hub, read 2026-11-26.
    cause("C17c", "HTTP-RATE-LIMIT",
        "a server refused a request, since it gets too many (HTTP 429): all ranks ask at once, or without a login",
        "fetch the data or model once before the job and set HF_HUB_OFFLINE=1 (HF_DATASETS_OFFLINE=1) in it; or let one rank fetch it while the others wait, and log in (HF_TOKEN), which raises the limit",
        "https://huggingface.co/docs/hub/rate-limits")
        .says(&[
            &["429 Client Error"],
            &["429 Too Many Requests"],
            &["HTTP Error 429"],
            &["429, message='Too Many Requests'"],
            &["too many 429 error responses"],
        ])
        .only(&[CauseClass::Exception, CauseClass::Unexplained]),
    cause("C17d", "HTTP-DENIED",
        "a server refused a request for want of a right (HTTP 401 or 403)",
        "give the job a valid token of an account that may read that address (HF_TOKEN; for a gated model accept its terms first), and check that the name in it is right: a hub answers so for names that do not exist, too",
        "https://huggingface.co/docs/hub/models-gated")
        .says(&[
            &["401 Client Error"],
            &["403 Client Error"],
            &["HTTP Error 401"],
            &["HTTP Error 403"],
            &["annot access gated repo"],
        ])
        .only(&[CauseClass::Exception, CauseClass::Unexplained]),
    cause("C17e", "HTTP-NOT-FOUND",
        "a server does not have what was asked for (HTTP 404)",
        "correct the name, the revision or the file in the address of the line",
        "https://huggingface.co/docs/huggingface_hub/package_reference/utilities")
        .says(&[&["404 Client Error"], &["HTTP Error 404"]])
        .only(&[CauseClass::Exception, CauseClass::Unexplained]),
    cause("C17f", "HTTP-SERVER-FAILED",
        "a server failed to answer a request (HTTP 500 to 504)",
        "try again later; fetch the data or model once before the job, so that it needs no server (HF_HUB_OFFLINE=1)",
        "https://huggingface.co/docs/huggingface_hub/package_reference/utilities")
        .says(&[
            &["500 Server Error"],
            &["502 Server Error"],
            &["503 Server Error"],
            &["504 Server Error"],
            &["HTTP Error 500"],
            &["HTTP Error 502"],
            &["HTTP Error 503"],
            &["HTTP Error 504"],
        ])
        .only(&[CauseClass::Exception, CauseClass::Unexplained]),
    cause("C18", "DOWNLOAD-FAILED",
        "a server could not be reached over HTTP: the node has no access to its address, or the server does not answer",
        "check the address in the line from that node (`curl -I`); where nodes have no access to the internet, put the models and data where the job can read them",
        "https://huggingface.co/docs/transformers/installation#offline-mode")
        .says(&[
            &["Max retries exceeded"],
            &["We couldn't connect to"],
            &["locate the file on the Hub"],
        ]),
    cause("C20", "HIP-OUT-OF-MEMORY",
        "the memory of an AMD GPU is full",
        "use a smaller batch or shard the model, and check that no other process uses the GPU (rocm-smi)",
        "https://rocm.docs.amd.com/")
        .says(&[&["HIP out of memory"], &["HIP error", "out of memory"], &["hipErrorOutOfMemory"]])
        .only(&[CauseClass::CudaOutOfMemory]),
    cause("C21", "HIP-ERROR",
        "a call of HIP failed",
        "run once with AMD_SERIALIZE_KERNEL=3 to find the call; look at the GPU with rocm-smi and at the kernel log (amdgpu)",
        "https://rocm.docs.amd.com/")
        .says(&[&["HIP error"], &["hipError"], &["hipIpc"], &["hipify"], &["RCCL"]])
        .only(&[CauseClass::CudaError]),
    cause("C21b", "AMD-GPU-HANG",
        "the runtime of ROCm reports that an AMD GPU hangs, and ends the process",
        "look at the kernel log (dmesg, amdgpu) of that node for the GPU's reset, and at its firmware and driver; drain the node if it comes back",
        "https://rocm.docs.amd.com/")
        .says(&[&["HW Exception by GPU"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .blame(Blame::Rank(CauseClass::CudaError)),
    cause("C21c", "AMD-MEMORY-FAULT",
        "a kernel on an AMD GPU used memory that is not mapped: an error of a program or a library, or a GPU that lost memory of another one",
        "run once with AMD_SERIALIZE_KERNEL=3 to find the kernel, and NCCL_P2P_DISABLE=1 as a test where it comes in a collective",
        "https://rocm.docs.amd.com/")
        .says(&[&["Memory access fault by GPU"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .blame(Blame::Rank(CauseClass::CudaError)),
    // ROCclr's rocdevice.cpp; the codes are those of hsa.h.
    cause("C21d", "AMD-QUEUE-FAILED",
        "the runtime of ROCm stopped a queue of an AMD GPU after an error, and ends the process",
        "read the words behind HSA_STATUS_ERROR: for OUT_OF_RESOURCES look at the GPU's free memory (rocm-smi) and the limits of the container, for others run once with AMD_SERIALIZE_KERNEL=3 to find the kernel; look at the kernel log (dmesg, amdgpu)",
        "https://rocm.docs.amd.com/projects/ROCR-Runtime/en/latest/")
        .says(&[&["borting with error : HSA_STATUS_ERROR"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .blame(Blame::Rank(CauseClass::CudaError)),
    cause("C22", "GPU-OUT-OF-MEMORY",
        "the memory of a GPU is full",
        "use a smaller batch or shard the model, and check that no other process uses the GPU (nvidia-smi)",
        "https://docs.pytorch.org/docs/stable/notes/faq.html")
        .says(&[&["out of memory"]])
        .lines(CUDA_LINES)
        .only(OF_GPU)
        .explaining(&[CUDA_FAILURE])
        .of(&[CauseClass::CudaOutOfMemory]),
    NCCL_NO_REASON,
];
