//! Rules about how processes are started and find each other: Slurm, ssh, Open MPI, PyTorch and JAX; words read 2026-11-26.

use super::{Blame, CauseClass, Rule, cause};
use crate::nodes::Fault;

const TORCH: &str = "https://docs.pytorch.org/docs/stable/distributed.html";
const MPI_TCP: &str = "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html";
const JAX: &str = "https://docs.jax.dev/en/latest/multi_process.html";

/// More processes came to the barrier of a process group than it has ranks.
pub(crate) const STORE_BARRIER_CROWDED: Rule = cause(
    "C49l",
    "STORE-BARRIER-CROWDED",
    "more processes came to the barrier that begins the process group than the group has ranks",
    "start exactly one process for each rank: one task for each GPU, or one task on a node that spawns the others (not both), and give each run a store of its own (a new port, or no file that an earlier run left)",
    TORCH,
);

/// Returns how many processes came to the barrier of a store, and how many its group has: `(world_size=4, worker_count=1, `.
pub(crate) fn barrier_counts(text: &str) -> Option<(u64, u64)> {
    let number = |key: &str| -> Option<u64> {
        let digits = text.split_once(key)?.1.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    number("worker_count=").zip(number("world_size="))
}

pub(super) const RULES: &[Rule] = &[
    STORE_BARRIER_CROWDED,
    cause("C49j", "ADDRESS-NOT-OF-HOST",
        "a process was to listen on an address that its host does not have: an interface without an address of its own, or the address of another host",
        "set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface that has an address which the other hosts reach; MASTER_ADDR must be an address of the host of rank 0",
        "https://man7.org/linux/man-pages/man2/bind.2.html")
        .says(&[
            &["bind", "annot assign requested address"],
            &["listen on", "annot assign requested address"],
        ])
        .kind(CauseClass::Rendezvous),
    cause("C49k", "NCCL-NOT-BUILT",
        "this PyTorch was built without NCCL",
        "install a build of PyTorch with CUDA (NCCL exists on Linux only), or choose another backend (`gloo`)",
        TORCH)
        .says(&[&["doesn't have NCCL built in"]])
        .blame(Blame::Rank(CauseClass::Exception)),
    cause("C48f", "SSH-LAUNCHER",
        "the launcher could not log in to a host with ssh",
        "log in from the launcher's host by hand, also to that host itself: `ssh -o PasswordAuthentication=no HOST hostname` must print a name (`--ssh_port` names another port); on one host start without a hostfile",
        "https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node")
        .says(&[&["not reachable via ssh"]])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    cause("C48g", "HOROVOD-UNREACHABLE",
        "a process that horovodrun started on a host cannot reach horovodrun's own on any of its addresses",
        "name the interface that joins the hosts (`--network-interface`, or `--gloo` and `--mpi` with theirs), and check the firewall between them",
        "https://horovod.readthedocs.io/en/stable/troubleshooting_include.html")
        .says(&[&["Horovodrun was unable to connect to"], &["horovodrun was unable to connect to"]])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    cause("C46k", "MPI-INTERFACE-MISSING",
        "a host has no interface in a network that Open MPI was told to use",
        "name a network that all hosts are in (`oob_tcp_if_include`, `btl_tcp_if_include`), or leave the choice to Open MPI",
        MPI_TCP)
        .says(&[&["Did not find interface"]])
        .kind(CauseClass::Rendezvous),
    cause("C46l", "MPI-ADDRESS-UNEXPECTED",
        "Open MPI dropped a connection that came from an address which its peer had not published",
        "name the network that joins the hosts on all of them (`--mca btl_tcp_if_include 10.0.0.0/16`, or OMPI_MCA_btl_tcp_if_include); the job may go on with another connection",
        MPI_TCP)
        .says(&[&["inbound MPI TCP connection"]])
        .kind(CauseClass::Rendezvous),
    cause("C49v", "SLURM-NODE-ADDRESS",
        "Slurm does not know the address of a node",
        "let the name of that node resolve on the host of srun and on all nodes, to its present address (`scontrol show node NAME`, NodeAddr; slurm.conf alike everywhere); a node that was replaced needs its new address there",
        "https://slurm.schedmd.com/slurm.conf.html#OPT_NodeAddr")
        .says(&[&["Can't find an address, check slurm.conf"], &["can't find address for host"]])
        .explaining(&["SLURM-LAUNCH-FAILED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C49u", "SLURMD-NOT-CONFIGURED",
        "slurmd or a command of Slurm finds no configuration: no slurm.conf on the host, and no record in DNS that names the controller",
        "put slurm.conf on that host, or name the controller (`slurmd --conf-server HOST`, SLURM_CONF_SERVER, the DNS record _slurmctld._tcp)",
        "https://slurm.schedmd.com/configless_slurm.html")
        .says(&[&["resolve_ctls_from_dns_srv"], &["DNS SRV lookup failed"]])
        .kind(CauseClass::NotStarted),
    // xla/service/rendezvous.cc.
    cause("C43b", "XLA-THREADS-WAIT",
        "threads of JAX wait for others to begin the same computation",
        "check that all processes run the same program on the same devices, and read the logs of the others: one that ended, compiles longer or does something else keeps the rest waiting",
        JAX)
        .says(&[&["rendezvous.cc", "may be stuck"]])
        .kind(CauseClass::Rendezvous),
    cause("C46m", "MPI-NO-PROVIDER",
        "libfabric offers MPI no network on that node that fits",
        "look at `fi_info` there, choose a provider with FI_PROVIDER (`tcp`, `verbs`, `efa`, `cxi`), and start the program on compute nodes",
        "https://github.com/pmodels/mpich/blob/main/doc/mpich/build/mpich_ofi.md")
        .says(&[&["OFI addrinfo() failed"]])
        .blame(Blame::Rank(CauseClass::Nccl)),
    cause("C46n", "MPI-NETWORK-FAILED",
        "libfabric reported an error of the network or its NIC to MPI",
        "look at the NIC, the switch and the kernel log (dmesg) of that host; the name of the error stands at the end of the line, and the provider's manual (`man fi_cxi`, `fi_efa`) has the settings of its queues",
        "https://github.com/pmodels/mpich/blob/main/doc/mpich/build/mpich_ofi.md").fault(Fault::Network)
        .says(&[&["OFI poll failed"]])
        .blame(Blame::Rank(CauseClass::Nccl)),
    cause("C50ca", "IMAGE-NOT-MOUNTED",
        "the file of the container's image could not be mounted: it is damaged or incomplete, or its file system fails",
        "fetch or build the image again and compare its size; if it is whole, check the file system that holds it on that node, and whether its kernel reads the image's compression",
        "https://apptainer.org/docs/user/main/troubleshooting.html")
        .says(&[&["while mounting image"], &["failed to mount squashfs"], &["trying to read the squashfs image"]])
        .explaining(&["CONTAINER-NOT-STARTED", "PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C53g", "POD-REFUSED",
        "a webhook of the cluster refused the pods of the job",
        "change in the job what the webhook asks for in the line, or ask your cluster administrator for an exception",
        "https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/")
        .says(&[&["admission webhook", "denied the request"]])
        .kind(CauseClass::Refused),
    cause("C06g", "GPU-STATE-UNKNOWN",
        "CUDA reports an unknown error as it starts: the driver of that node is in a bad state, or not all of its devices are there",
        "run `nvidia-smi` there and a small program of CUDA: if it fails too, load nvidia_uvm again or reboot the node; in a container give /dev/nvidia-uvm as well",
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html").fault(Fault::Node)
        .says(&[
            &["CUDA unknown error"],
            &["failed call to cuInit: CUDA_ERROR_UNKNOWN"],
            &["cudaSuccess (30 vs. 0)"],
            &["cudaSuccess (999 vs. 0)"],
            &["cuda runtime error (999)"],
            &["cuda runtime error (30)"],
        ])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED"])
        .kind(CauseClass::CudaError),
    cause("C06f", "GPU-OF-PEER-NOT-VISIBLE",
        "NCCL does not find the GPU of another rank of the node: each process is shown its own GPU alone",
        "let each process of a node see all of its GPUs (in Slurm `--gpus-per-node` or `--gpu-bind=none` in place of `--gpus-per-task`, in containers NVIDIA_VISIBLE_DEVICES=all), and choose by the local rank",
        "https://slurm.schedmd.com/gres.html")
        .says(&[&["nvmlDeviceGetHandleByPciBusId", "Not Found"]])
        .kind(CauseClass::CudaError),
    cause("C21ba", "AMD-GPU-HARDWARE",
        "the kernel reports an error of the hardware of an AMD GPU that could not be corrected",
        "drain that node and have the GPU in the line checked (`amd-smi`, its firmware): what programs report after it follows from it",
        "https://rocm.docs.amd.com/").fault(Fault::Hardware)
        .says(&[&["amdgpu ", "uncorrectable hardware error"]])
        .explaining(&["AMD-GPU-HANG"])
        .kind(CauseClass::CudaError),
];
