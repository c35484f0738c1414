//! Rules about how processes, nodes and jobs end, where nothing that was printed says more.

use super::reasons::{absent_from_barrier, hung_up, name_with_slots};
use super::{Blame, CauseClass, Rule, TROUBLESHOOTING, cause};
use crate::nodes::{Fault, is_hardware_xid};

const TORCHRUN: &str = "https://docs.pytorch.org/docs/stable/elastic/run.html";
const TORCH: &str = "https://docs.pytorch.org/docs/stable/distributed.html";
const SIGNALS: &str = "https://man7.org/linux/man-pages/man7/signal.7.html";
const SLURM: &str = "https://slurm.schedmd.com/job_state_codes.html";
const SRUN: &str = "https://slurm.schedmd.com/srun.html";
const PODS: &str = "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/";
const RAY: &str = "https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html";
const HCCL: &str =
    "https://www.hiascend.com/document/detail/en/canncommercial/850/commlib/hcclug/hcclug_000050.html";
const XID: &str = "https://docs.nvidia.com/deploy/xid-errors/";

/// The code of an error whose words no rule knows.
pub(crate) const ERROR_UNEXPLAINED: &str = "ERROR-UNEXPLAINED";

pub(crate) const PROGRAM_EXCEPTION: Rule = cause(
    "C30",
    "PROGRAM-EXCEPTION",
    "the program raised an exception",
    "read the lines above it in the log of that rank: they show where the program raised it",
    "https://docs.python.org/3/tutorial/errors.html",
)
.of(&[CauseClass::Exception]);
pub(crate) const GPU_XID: Rule = cause(
    "C31",
    "GPU-XID",
    "the driver reports an error of a GPU that the program does not cause",
    "drain the node and check its GPUs (dmesg, nvidia-smi -q, dcgmi diag), for NVLink also its links and the fabric manager (`nvidia-smi nvlink -e`)",
    XID,
).fault(Fault::Node).proof(is_hardware_xid);
pub(crate) const GPU_XID_OF_PROGRAM: Rule = cause(
    "C31b",
    "GPU-XID-OF-PROGRAM",
    "the driver reports an error of a GPU that a program causes, or that follows from an earlier one",
    "find the kernel with compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1; only if the same program fails on this GPU alone have it checked (dcgmi diag)",
    XID,
);
pub(crate) const PROCESS_KILLED: Rule = cause(
    "C32",
    "PROCESS-KILLED",
    "SIGKILL ended a process",
    "look for an out-of-memory kill in the kernel log of its node (dmesg): if there is one, raise the memory request of the job, else a person or a program killed it",
    SIGNALS,
)
.explaining(&["MPI-DAEMON-LOST"]);
pub(crate) const PROCESS_TERMINATED: Rule = cause(
    "C32b",
    "PROCESS-TERMINATED",
    "a signal from outside ended a process (SIGTERM, SIGINT or SIGHUP)",
    "find out who sent it: the cluster at its time limit or for another job, a launcher that ends all ranks after one failed, a login session that was closed, or a person",
    SIGNALS,
)
.by_line(hung_up);
pub(crate) const PROCESS_BUS_ERROR: Rule = cause(
    "C33",
    "PROCESS-BUS-ERROR",
    "SIGBUS ended a process: most often a page of shared memory that could not be had",
    "give the job more shared memory (`shm` of the role), or use fewer data loader workers",
    SIGNALS,
)
.says(&[&["killed by signal: Bus error"], &["insufficient shared memory (shm)"]]);
pub(crate) const RANKS_ABORTED: Rule = cause(
    "C34",
    "RANKS-ABORTED",
    "several ranks aborted, as watchdogs do",
    "read what stands above in the ranks' logs: a watchdog that ends its rank says which operation it waited for",
    TORCH,
);
pub(crate) const RAY_WORKER_LOST: Rule = cause(
    "C36",
    "RAY-WORKER-LOST",
    "Ray lost a worker, and does not know what ended it",
    "read that worker's own log on its node (`/tmp/ray/session_latest/logs/worker-*`), and the kernel log (dmesg) for an out-of-memory kill",
    RAY,
);
pub(crate) const STORE_LOST: Rule = cause(
    "C37",
    "STORE-LOST",
    "the store of the rendezvous is gone",
    "read the log of the process that holds the store: rank 0, or the launcher on the first node; it ended first",
    TORCH,
);
pub(crate) const PEER_ENDED: Rule = cause(
    "C38",
    "PEER-ENDED",
    "a process of another rank ended, and no log says which was the first",
    "read the last lines of every rank, and the kernel log of their nodes (dmesg)",
    TORCH,
);
pub(crate) const PEER_ENDED_UNREAD: Rule = cause(
    "C39",
    "PEER-ENDED-UNREAD",
    "a process of another rank ended, and its log was not read",
    "add the logs of the missing ranks and run `weftrun why` again",
    TORCH,
);
pub(crate) const PROGRAM_NOT_STARTED: Rule = cause("C40", "PROGRAM-NOT-STARTED",
    "the program could not be started",
    "correct the command or the working folder of the job, or install the program in the image: it could not be started",
    SRUN)
    .says(&[&["error: execve()"], &["unable to find the specified executable file"]])
    .blame(Blame::Rank(CauseClass::NotStarted));
pub(crate) const PROCESS_SILENT: Rule = cause(
    "C41",
    "PROCESS-SILENT",
    "the log of a rank ends without an error",
    "look at what ended that process: the kernel's log of its node (dmesg), the cluster's events, or a person",
    TORCHRUN,
);
pub(crate) const COLLECTIVE_TIMEOUT_UNNAMED: Rule = cause(
    "C44",
    "COLLECTIVE-TIMEOUT-UNNAMED",
    "ranks wait in a collective operation, and no log says for which rank",
    "add the logs of all ranks and run `weftrun why` again, or check the network between the nodes",
    TORCH,
);

pub(crate) const COLLECTIVES_DIVERGED: Rule = cause(
    "C44c",
    "COLLECTIVES-DIVERGED",
    "ranks wait in different collective operations",
    "find what only some of the ranks do (a save, a log, an `if rank == 0`, batches that end early): all must call the same collectives in the same order; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call. If the operations are of different process groups, add the logs of all ranks",
    TORCH,
);

pub(crate) const WATCHDOG_STUCK: Rule = cause(
    "C44b",
    "WATCHDOG-STUCK",
    "a rank's watchdog of PyTorch did not move for minutes, and its process was ended: a call of CUDA or NCCL did not return, or Python's lock was held",
    "take the stacks of that process while it hangs (`py-spy dump --native`, gdb); if the work is only slow, raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
)
.says(&[&["watchdog got stuck for "], &["eartbeat monitor timed out"]])
.explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
.blame(Blame::Rank(CauseClass::CollectiveTimeout));
pub(crate) const RANK_ENDED_EARLY: Rule = cause(
    "C44d",
    "RANK-ENDED-EARLY",
    "a rank left the job in order while others still waited for it in a collective operation",
    "give all ranks the same number of steps: look for a step that one of them skips (`continue`, an empty batch, a filter), and for uneven data (`drop_last`, DistributedSampler, DistributedDataParallel's `join`)",
    TORCH,
);

pub(super) const RULES: &[Rule] = &[
    RANK_ENDED_EARLY,
    PROGRAM_EXCEPTION,
    GPU_XID,
    GPU_XID_OF_PROGRAM,
    PROCESS_KILLED,
    PROCESS_TERMINATED,
    PROCESS_BUS_ERROR,
    RANKS_ABORTED,
    cause("C35", "PROCESS-CRASHED",
        "a signal ended a process",
        "see where it crashes: keep the core file (`ulimit -c unlimited`), or run a Python program with -X faulthandler",
        SIGNALS)
        // torch.multiprocessing's spawn.
        .says(&[&["terminated with signal SIGSEGV"], &["terminated with signal SIGABRT"], &["terminated with signal SIGFPE"], &["terminated with signal SIGILL"]])
        .of(&[CauseClass::Signal]),
    // Python's argparse, which ends the program with code 2.
    cause("C30b", "ARGUMENTS-UNKNOWN",
        "the program or its launcher was started with arguments that it does not know, or without some that it needs",
        "correct the command; `--local-rank` and `--local_rank` are given by torch.distributed.launch alone: start the program with torchrun, and read LOCAL_RANK from the environment",
        "https://docs.python.org/3/library/argparse.html")
        .says(&[&["error: unrecognized arguments: "], &["error: the following arguments are required: "]])
        .explaining(&["PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C35a", "ASSERTION-FAILED",
        "an assertion of a program or a library did not hold, and the process aborted itself",
        "read the condition and its place in the line: they say what the program requires; correct the input, the settings or the number of processes that break it",
        "https://man7.org/linux/man-pages/man3/assert.3.html")
        .says(&[&["Assertion `", "' failed"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .blame(Blame::Rank(CauseClass::Exception)),
    cause("C35b", "HEAP-DAMAGED",
        "the C library found the program's memory damaged, and aborted it",
        "find the library that writes beyond its memory: keep the core file (`ulimit -c unlimited`), and look whether two versions of one library are loaded",
        "https://man7.org/linux/man-pages/man3/mallopt.3.html")
        .says(&[
            &["double free or corruption"],
            &["free(): invalid "],
            &["malloc(): "],
            &["munmap_chunk(): invalid "],
            &["corrupted size vs. prev_size"],
            &["double free detected"],
            &["stack smashing detected"],
        ])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .blame(Blame::Rank(CauseClass::Signal)),
    RAY_WORKER_LOST,
    STORE_LOST,
    PEER_ENDED,
    PEER_ENDED_UNREAD,
    PROGRAM_NOT_STARTED,
    PROCESS_SILENT,
    cause("C42", "PROCESS-EXITED",
        "a process ended with an exit code, and its log does not show why",
        "read the last lines of that process's own log: what is here has no traceback of it",
        TORCHRUN)
        .of(&[CauseClass::ExitCode]),
    cause("C43", "COLLECTIVE-TIMEOUT",
        "a rank did not join a collective operation",
        "look at what the rank did instead: run py-spy dump on its process while it hangs",
        TORCH)
        .of(&[CauseClass::CollectiveTimeout, CauseClass::Behind]),
    COLLECTIVE_TIMEOUT_UNNAMED,
    COLLECTIVES_DIVERGED,
    // CANN's "HCCL Errors", and the runtime's EE1002.
    cause("C43h", "HCCL-TIMEOUT",
        "an NPU waited in vain: for another rank in a collective, or for a task of its stream",
        "read the logs of the other NPUs for an earlier error, or a rank that is late or ended; raise HCCL_CONNECT_TIMEOUT or HCCL_EXEC_TIMEOUT only where one is merely late",
        "https://www.hiascend.com/document/detail/en/CANNCommunityEdition/850/commlib/hcclug/hcclug_000037.html")
        .says(&[&["EI0006: "], &["EI0002: "], &["fftsplus task timeout"], &["stream sync timeout"]])
        .kind(CauseClass::Nccl),
    // NCCL's own guess (init.cc), which it prints where a rank waits long.
    cause("C04b", "COLLECTIVES-SUSPECTED",
        "NCCL suspects that ranks call different collectives",
        "compare what the rank in the line and the others call at that moment: all must call the same collectives in the same order and with the same sizes; take the stacks of the processes while they hang (py-spy dump)",
        "https://github.com/NVIDIA/nccl/blob/master/src/init.cc")
        .says(&[&["may be caused by a collective mismatch"]])
        .kind(CauseClass::CollectiveMismatch),
    cause("C39b", "SLURM-SCRIPT-NOT-STARTED",
        "slurmd could not start its copy of the batch script: it is gone from the node, or the interpreter in its first line is not there",
        "check the first line of the script (`#!/bin/bash`, without a carriage return); if it is right, ask your cluster administrator to check that node (its disk and SlurmdSpoolDir), and submit again with `--exclude`",
        "https://slurm.schedmd.com/slurm.conf.html#OPT_SlurmdSpoolDir")
        .says(&[&["execve()", "/slurm_script"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C37b", "STORE-CONNECTION",
        "the connection to the store of the rendezvous failed: it could not be reached, or its process ended",
        "read the log of the first node: if its launcher or rank 0 ended, that one failed first; if it runs, check that this node reaches the address and port of `--rdzv-endpoint`",
        TORCHRUN).fault(Fault::Network)
        .says(&[&["The connection to the C10d store has failed"]])
        .kind(CauseClass::Rendezvous),
    cause("C47", "HOST-NOT-RESOLVED",
        "the name of a host cannot be resolved",
        "start the host or pod of that name first, and check that its name resolves on the node that asks (`getent hosts NAME`)",
        "https://man7.org/linux/man-pages/man3/getaddrinfo.3.html")
        .says(&[
            &["Could not resolve hostname"],
            &["Name or service not known"],
            &["Temporary failure in name resolution"],
            &["gai error: -"],
        ])
        .by_line(name_with_slots)
        .explaining(&["MPI-DAEMON-NOT-STARTED"])
        .kind(CauseClass::Rendezvous),
    cause("C47b", "HOST-NAME-IS-LOOPBACK",
        "a rank dials an address of its own host (127.x): that of the process it looks for was given as a loopback address",
        "let the name of the first host resolve to its address in the network of the hosts (its line with 127.0.1.1 in /etc/hosts), or give the launcher that address itself",
        "https://www.debian.org/doc/manuals/debian-reference/ch05.en.html#_the_hostname_resolution")
        .says(&[&["Retry to connect to 127."]])
        .kind(CauseClass::Rendezvous),
    cause("C49", "RENDEZVOUS-FAILED",
        "the processes did not find each other",
        "check that MASTER_ADDR resolves on every node, its port is free, and all nodes started",
        TORCHRUN).fault(Fault::Network)
        .of(&[CauseClass::Rendezvous]),
    cause("C49d", "RANKS-BEGAN-TWICE",
        "several processes began with the same rank, so that their group cannot form",
        "start one task for each GPU (in Slurm `--ntasks-per-node` equal to Lightning's `devices`, `--nodes` equal to `num_nodes`, and the script with srun); without such tasks give each node its NODE_RANK",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html")
        .says(&[&["processes began as rank ", "did not form"]])
        .kind(CauseClass::Rendezvous),
    cause("C49f", "RANKS-NOT-BEGUN",
        "not all processes began, so that their group cannot form",
        "start as many tasks as the world has (in Slurm `--ntasks-per-node` equal to Lightning's `devices`, `--nodes` equal to `num_nodes`, and the script with srun), and read the logs of the ranks that are missing",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html")
        .says(&[&["processes only those of ranks ", "did not form"]])
        .kind(CauseClass::Rendezvous),
    // Huawei's CANN: the words of hccl_socket.cc.
    cause("C49g", "HCCL-PORT",
        "HCCL could not listen on its port: another process of the host holds it",
        "end the process that holds the port in the line, or set another one (HCCL_IF_BASE_PORT, HCCL_HOST_SOCKET_PORT_RANGE and HCCL_NPU_SOCKET_PORT_RANGE); the timeouts of the other ranks follow from it",
        HCCL)
        .says(&[&["[HcclSocket][Listen]", "fail"]])
        .kind(CauseClass::Rendezvous),
    cause("C49h", "HCCL-PEER-LATE",
        "a rank of HCCL waited for the connection of another rank, which did not come in time",
        "look for a rank with another error, or with none: that one ended or did not come as far; check the NPUs' network between the nodes (`hccn_tool`), and only if ranks begin far apart raise HCCL_CONNECT_TIMEOUT",
        HCCL)
        .says(&[&["wait socket establish timeout"]])
        .kind(CauseClass::Rendezvous),
    cause("C49i", "RENDEZVOUS-NOT-GIVEN",
        "a variable that PyTorch needs to find the other processes is not set",
        "start the program with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process",
        TORCH)
        .says(&[&["environment variable ", " expected, but not set"]])
        .kind(CauseClass::Rendezvous),
    cause("C49c", "RENDEZVOUS-CLOSED",
        "the rendezvous is closed: another node had ended the run before this one joined",
        "read the log of the node that ended first; what joins after the end needs a run of its own (a new `--rdzv-id`)",
        TORCHRUN)
        .says(&[&["RendezvousClosedError"]])
        .kind(CauseClass::Rendezvous),
    cause("C49e", "STORE-WAIT",
        "a rank waited for the store of the rendezvous until its time limit: another rank, most often rank 0, did not come as far",
        "read the log of rank 0; if it only takes long (it prepares the data first), raise the timeout of init_process_group (`ddp_timeout` of transformers)",
        TORCH)
        .says(&[&["[c10d] waitForInput: ", " timed out after "], &["wait timeout after ", "ms, keys: "]])
        .kind(CauseClass::Rendezvous),
    cause("C49b", "STORE-BARRIER",
        "not all processes came to the barrier that begins the process group",
        "read the logs of the ranks that do not wait there: they ended before, were not started, or do not reach MASTER_ADDR",
        TORCH)
        .says(&[
            &["Waiting in store based barrier "],
            &["initializing process group in store based barrier"],
            &["initializing process group in store-based barrier"],
        ])
        .by_line(absent_from_barrier)
        .kind(CauseClass::Rendezvous),
    // slurmd's stepd: UnkillableStepTimeout.
    cause("C57b", "SLURM-UNKILLABLE",
        "processes of a step did not end though Slurm killed them: they wait in the kernel for a file system or a driver, and Slurm drains the node",
        "ask your cluster administrator to look on that node at the processes in state D and the kernel log (file system, GPU driver), and to reboot or resume it (`scontrol show node NAME`; UnkillableStepTimeout); submit the job again with `--exclude`",
        "https://slurm.schedmd.com/slurm.conf.html#OPT_UnkillableStepTimeout").fault(Fault::Node)
        .says(&[&["DUE TO JOB NOT ENDING WITH SIGNALS"], &["Kill task failed"]])
        .explaining(&["JOB-CANCELLED"])
        .blame(Blame::Rank(CauseClass::NodeFail)),
    cause("C49a", "CODE-NOT-FETCHED",
        "the code of the job could not be fetched",
        "check the address and the revision in `code`, and that the node may read them (`git ls-remote` on that node); git's own message stands above that line",
        "https://git-scm.com/docs/git-clone")
        .says(&[&["weftrun: error: the code was not fetched"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C50c", "COMMAND-NOT-FOUND",
        "a shell did not find a program or a script",
        "correct the command, or install the program in the image and put its directory on PATH",
        "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html")
        .says(&[
            &["command not found"],
            &["sh: ", ": not found"],
            &[": line ", "No such file or directory"],
            &["execvp error on file "],
        ])
        .kind(CauseClass::NotStarted),
    cause("C50ea", "RAY-NODE-UNKNOWN",
        "Ray was asked for a certain node, by an address that none of its nodes has",
        "give the program the address by which Ray knows that node (`ray list nodes`; for vLLM in VLLM_HOST_IP, an IP address and no name): the node may have GPUs free",
        RAY)
        .says(&[&["No available node types can fulfill", "'node:"]])
        .kind(CauseClass::Unschedulable),
    cause("C50f", "RAY-NO-NODE",
        "no node of the Ray cluster has the resources that were asked for",
        "ask for fewer CPUs and GPUs, or add nodes that have them (`ray status` lists what there is)",
        RAY)
        .says(&[&["No available node types can fulfill"]])
        .kind(CauseClass::Unschedulable),
    cause("C50fa", "RAY-GPUS-NOT-RESERVED",
        "Ray does not give the program its GPUs: its nodes have fewer free ones, or it knows a node by another address than the program",
        "compare `ray status` with the GPUs that the program asks for (tensor times pipeline parallel size for vLLM), and set VLLM_HOST_IP on each node to the address by which Ray knows it (`ray list nodes`)",
        RAY)
        .says(&[
            &["number of required GPUs exceeds the total number of available GPUs in the placement group"],
            &["Waiting for creating a placement group of specs"],
        ])
        .kind(CauseClass::Unschedulable),
    cause("C50g", "RAY-NODE-LOST",
        "Ray lost the process that holds the workers of a node",
        "look at the kernel log (dmesg) of that node for an out-of-memory kill, and at Ray's log there (`/tmp/ray/session_latest/logs/raylet.err`)",
        RAY)
        .says(&[&["Raylet is terminated"]])
        .blame(Blame::Rank(CauseClass::ExitCode)),
    cause("C50j", "RAY-NODE-DEAD",
        "Ray counts a node as dead: it ended or was taken away, or was too busy or out of reach to send heartbeats",
        "look at what happened to that node (the cluster's events, its kernel log), and at Ray's log there (`/tmp/ray/session_latest/logs/raylet.err`)",
        RAY).fault(Fault::Network)
        .says(&[&["has been marked dead"], &["because its node has died"]])
        .kind(CauseClass::NodeFail),
    cause("C50s", "RAY-HEAD-UNREACHABLE",
        "a process of Ray could not connect to the head node (GCS)",
        "check that the head runs (`ray status` there) and that this host reaches the address and the port in the line (6379), also through firewalls",
        RAY)
        .says(&[&["Unable to connect to GCS"], &["Failed to connect to GCS"]])
        .kind(CauseClass::Rendezvous),
    cause("C50p", "RAY-WORKERS-NOT-STARTED",
        "the workers of Ray Train did not start in time",
        "compare `ray status` with what `ScalingConfig` asks for; if the cluster has it and only the start takes long (its runtime_env), raise RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S",
        "https://docs.ray.io/en/latest/train/user-guides/using-gpus.html")
        .says(&[&["worker group startup timed out"]])
        .kind(CauseClass::NotStarted),
    cause("C50h", "JAX-TASKS-MISSING",
        "not all processes of JAX came to its coordination service",
        "read the logs of the other processes: they ended before, were not started, or do not reach the coordinator's address",
        "https://docs.jax.dev/en/latest/multi_process.html")
        .says(&[&["Wait_for_all_tasks_to_register"], &["cluster registration failed"], &["Barrier timed out", "task"], &["did not come to the barrier of JAX"]])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    cause("C50r", "JAX-KEY-NOT-SENT",
        "a process of JAX waited for a value that another process never gave, as the id of a communicator",
        "read the logs of the other processes for their first error, and check that all run the same program with the same mesh",
        "https://docs.jax.dev/en/latest/multi_process.html")
        .says(&[&["GetKeyValue() timed out with key"]])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    cause("C50l", "SERVICE-UNREACHABLE",
        "no process answers at the address of a service of the job (gRPC), such as JAX's coordinator",
        "read the log of the process that holds that address (process 0 of JAX): it ended, or its port cannot be reached from this host",
        "https://grpc.io/docs/guides/status-codes/")
        .says(&[&["failed to connect to all addresses"]])
        .kind(CauseClass::Rendezvous),
    cause("C50m", "JAX-PEER-FAILED",
        "JAX ended this process, since another one of the job failed first",
        "read the logs of the other processes, the coordinator (process 0) first: one of them ended or was restarted",
        "https://docs.jax.dev/en/latest/multi_process.html")
        .says(&[&["JAX distributed service detected fatal errors"]])
        .blame(Blame::Rank(CauseClass::ExitCode)),
    WATCHDOG_STUCK,
    cause("C53c", "POD-VOLUME",
        "Kubernetes cannot attach or mount a volume of a pod",
        "check that the volume claim, secret or config map in the line exists in the pod's namespace and is bound (`kubectl get pvc`), and that its node can reach the storage",
        "https://kubernetes.io/docs/concepts/storage/persistent-volumes/")
        .says(&[&["FailedMount"], &["FailedAttachVolume"]])
        .kind(CauseClass::NotStarted),
    cause("C53d", "POD-SANDBOX",
        "Kubernetes could not set up the sandbox of a pod: its network, or the container runtime of the node",
        "correct what the line names on that node: the network plugin (CNI), containerd, or for `no runtime for \"nvidia\"` the NVIDIA container toolkit",
        PODS).fault(Fault::Node)
        .says(&[&["FailedCreatePodSandBox", "no runtime for"], &["FailedCreatePodSandBox"]])
        .kind(CauseClass::NotStarted),
    cause("C53f", "POD-QUOTA",
        "Kubernetes refused a pod, since the quota of its namespace is used up",
        "request less, or wait until other pods of the namespace end (`kubectl describe quota`)",
        "https://kubernetes.io/docs/concepts/policy/resource-quotas/")
        .says(&[&["forbidden: exceeded quota"]])
        .kind(CauseClass::Refused),
    cause("C53e", "CONTAINER-EXITED",
        "a container of a pod ended with an exit code",
        "read the log of that container: `kubectl logs POD` (with `--previous` if it was started again)",
        PODS)
        .says(&[&["Pod: ", " exited with code "]])
        .kind(CauseClass::ExitCode),
    cause("C53b", "CONTAINER-RESTARTS",
        "a container fails again and again, and Kubernetes waits before it starts it again",
        "read the log of that container's last end: `kubectl logs POD -c CONTAINER --previous`",
        PODS)
        .says(&[&["Back-off restarting failed container"], &["CrashLoopBackOff"]])
        .kind(CauseClass::ExitCode),
    cause("C50i", "JAX-TASK-LOST",
        "JAX's coordination service lost a process",
        "read the log of the task that the line names: it ended, or its host did",
        "https://docs.jax.dev/en/latest/multi_process.html")
        .says(&[&["in coordination service", "heartbeat timeout"]])
        .blame(Blame::Rank(CauseClass::ExitCode)),
    cause("C51", "POD-EVICTED",
        "Kubernetes evicted a pod",
        "request the resources that the pod uses, or use a node with more free disk and memory",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/")
        .says(&[&["MPIJobEvicted"], &["Warning ", " Evicted "]])
        .kind(CauseClass::Evicted)
        .of(&[CauseClass::Evicted]),
    cause("C50a", "IMAGE-NOT-PULLED",
        "the image could not be pulled",
        "check the name and the tag of the image, and the credentials for its registry (a pull secret, or enroot's and docker's own)",
        "https://kubernetes.io/docs/concepts/containers/images/")
        .says(&[
            &["Failed to pull image"],
            &["ErrImagePull"],
            &["ImagePullBackOff"],
            &["[ERROR] URL ", "returned error code"],
            &["Error response from daemon: ", "pull access denied"],
            &["Error response from daemon: ", "manifest"],
            &["initializing source docker://"],
        ])
        .explaining(&["CONTAINER-NOT-STARTED"])
        .blame(Blame::Rank(CauseClass::Image))
        .of(&[CauseClass::Image]),
    cause("C53", "POD-NOT-PLACED",
        "no node can take a pod",
        "read in the message what the nodes lack (`kubectl describe pod POD`): only resources that other pods hold come free by waiting",
        PODS)
        .by_line(weftrun_core::backend::fix_of_placement)
        .says(&[&["FailedScheduling"], &["nodes are available: "]])
        .blame(Blame::Rank(CauseClass::Unschedulable))
        .of(&[CauseClass::Unschedulable]),
    cause("C54", "NODE-FAILED",
        "a node failed",
        "submit the job again, and exclude the node if it fails again",
        SLURM).fault(Fault::Node)
        .of(&[CauseClass::NodeFail]),
    cause("C55", "TIME-LIMIT",
        "the time limit of the job was reached",
        "raise the time limit, or write checkpoints and continue from the last one",
        SLURM)
        .of(&[CauseClass::TimeLimit]),
    cause("C56", "JOB-PREEMPTED",
        "another job took the nodes",
        "submit the job again, or use a queue that is not preempted",
        SLURM).fault(Fault::Cluster)
        .of(&[CauseClass::Preempted]),
    cause("C57a", "JOB-REQUEUED",
        "the job was put back into the queue",
        "wait for its next start, which continues from the last checkpoint if the program reads one: what follows in this log is the end of the processes",
        "https://slurm.schedmd.com/scontrol.html#OPT_requeue")
        .says(&[&["the job was put back into the queue"]])
        .kind(CauseClass::Cancelled),
    cause("C57", "JOB-CANCELLED",
        "the job was cancelled",
        "submit the job again, unless it was cancelled on purpose",
        SLURM)
        .by_line(cancelled_step)
        .of(&[CauseClass::Cancelled]),
    cause("C58", ERROR_UNEXPLAINED,
        "an error that no rule explains",
        "no rule explains this line: read the lines around it in the log",
        TROUBLESHOOTING)
        .of(&[CauseClass::Unexplained]),
];

/// Returns the rule about a process that a signal ended.
pub(crate) fn rule_of_signal(signal: i32) -> &'static Rule {
    match signal {
        9 => &PROCESS_KILLED,
        1 | 2 | 15 => &PROCESS_TERMINATED,
        7 => &PROCESS_BUS_ERROR,
        _ => super::rule_of_error(CauseClass::Signal, &[]),
    }
}

/// Returns the rule about a process that ended with a code.
pub(crate) fn rule_of_exit(code: i32) -> &'static Rule {
    match code {
        126 | 127 => &PROGRAM_NOT_STARTED,
        ..0 => rule_of_signal(code.saturating_neg()),
        129..=192 => rule_of_signal(code - 128),
        _ => super::rule_of_error(CauseClass::ExitCode, &[]),
    }
}

/// Says what to do where a step was cancelled, or what a signal from a terminal means.
fn cancelled_step(line: &str) -> Option<String> {
    let of_step = line.starts_with("a step of the job was cancelled") || line.contains("*** STEP ");
    let fix = "read the last lines of the step's other tasks: srun ends a step when one of its tasks fails (`--kill-on-bad-exit`); if all of them only waited, submit the job again";
    if of_step { Some(fix.to_owned()) } else { hung_up(line) }
}
