//! What plain hosts say.

use super::Code;
use super::clusters::{code, from};

pub(super) const HOSTS: &[Code] = &[
    from(
        code(
            "HOSTS-ACS",
            "PCIe ACS redirects traffic between GPU and NIC",
            "With source validation on, a switch sends peer-to-peer traffic through the root complex: GPUDirect RDMA is slow or hangs.",
            "Turn ACS off in the BIOS or with `setpci`; on VMware set `pciPassthru.RelaxACSforP2P=true` and use ATS.",
        ),
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    code(
        "HOSTS-ATS",
        "address translation services are off on a NIC",
        "In a virtual machine, GPUDirect RDMA without ATS goes through the IOMMU.",
        "Run `mlxconfig -d DEVICE set ATS_ENABLED=true` on the NIC, enable `atsSupport` on ESXi, and reboot.",
    ),
    code(
        "HOSTS-BUSY",
        "a host runs a job",
        "A host runs one job of weftrun at a time; another one takes other hosts, waits, or is refused.",
        "Set `wait-for-hosts = \"1h\"` in `[backend.hosts]`, or cancel the other job.",
    ),
    code(
        "HOSTS-DIFFER",
        "the hosts have different network devices",
        "NCCL uses one list of devices and one GID index on all ranks of a job.",
        "Set `NCCL_IB_HCA` to devices that all hosts have, and `fabric.gid = \"compute\"` for NCCL before 2.21.",
    ),
    code(
        "HOSTS-DISK-FULL",
        "the disk of a host was full while a job ran",
        "What the ranks wrote to their logs then may be lost.",
        "Free space there, or set `folder` of the target to another file system.",
    ),
    code(
        "HOSTS-ENGINE",
        "a host's container engine does not work",
        "The command is there, but `docker info` or `podman info` fails: the daemon is not running, or your user may not use it.",
        "Run `systemctl start docker` there, add your user to the group `docker`, or set `container = \"podman\"` or `\"apptainer\"`.",
    ),
    from(
        code(
            "HOSTS-LINGER",
            "a host ends the processes of a user who has logged out",
            "systemd-logind does so with `KillUserProcesses=yes`, and a job would end with the connection that submitted it.",
            "Run `loginctl enable-linger` on the host.",
        ),
        "https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html",
    ),
    code(
        "HOSTS-MEMLOCK",
        "locked memory is limited on a host",
        "RDMA registers memory by locking it: `ibv_reg_mr` fails above the limit.",
        "Set `memlock` to `unlimited` in `/etc/security/limits.d` on the host, and start sshd again.",
    ),
    code(
        "HOSTS-MPI-CONTAINER",
        "mpirun of the host starts ranks in containers",
        "The ranks speak to the host's Open MPI: another release in the image may refuse to start.",
        "Use an image with the host's Open MPI, or `launch = \"torchrun\"`.",
    ),
    code(
        "HOSTS-NAME",
        "a job of this name still runs",
        "Two of one name could not be told apart.",
        "Choose another name, or `--name-suffix`.",
    ),
    code(
        "HOSTS-ORPHANS",
        "processes run without their supervisor",
        "It was killed; its ranks go on, and write their logs.",
        "`weftrun cancel` ends them.",
    ),
    from(
        code(
            "HOSTS-PEERMEM",
            "no module lets the NIC read GPU memory",
            "Without `nvidia_peermem` (or `nv_peer_mem`), GPUDirect RDMA needs DMA-BUF; otherwise data is copied through the host's memory.",
            "Run `modprobe nvidia_peermem` on the host.",
        ),
        "https://docs.nvidia.com/cuda/gpudirect-rdma/",
    ),
    code(
        "HOSTS-PROGRAM",
        "a host lacks a program that the job needs",
        "The shell that `ssh` starts is no login shell, and its PATH is short.",
        "Install the program, or add its folder with `setup = [\"PATH=/opt/x/bin:$PATH\"]` in the target.",
    ),
    code(
        "HOSTS-SAME",
        "one machine has two names in a target",
        "Its name and boot id are the same over both. A job runs on a machine once.",
        "Leave one of the names in `hosts` of the target.",
    ),
    code(
        "HOSTS-SILENT",
        "a host does not answer",
        "The state of its ranks is not known. Other hosts go on.",
        "Check `ssh HOST true` from this machine.",
    ),
    code(
        "HOSTS-SSH-KEYS",
        "the first host of an MPI job may not log in to another",
        "mpirun starts the ranks of other hosts over ssh, with the keys that the hosts have for each other (`ssh-keys = \"own\"`).",
        "Set `ssh-keys = \"job\"` in `[backend.hosts]`, or add the first host's public key to `~/.ssh/authorized_keys` of the others.",
    ),
    code(
        "HOSTS-TOO-FEW",
        "too few hosts are free",
        "A job may use all of each host, and there is no queue.",
        "Set fewer `nodes`, `wait-for-hosts`, or add hosts to the target.",
    ),
    code(
        "HOSTS-UNUSED",
        "a setting of the job has no meaning here",
        "Plain hosts have no queue and limit nothing, and their jobs have neither labels nor annotations.",
        "Nothing.",
    ),
    code(
        "HOSTS-VERBS",
        "the RDMA devices cannot be opened",
        "`/dev/infiniband/uverbs*` is not writable for this user: NCCL would fall back to sockets.",
        "Add the user to the group of the device, or set the rights with a udev rule.",
    ),
];
