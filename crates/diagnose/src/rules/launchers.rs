//! Rules about what starts the processes and refuses or fails to: MPI, ssh, containers, and Slurm's srun and sbatch.

use super::reasons::{NO_CONTROLLER, refusal};
use super::{Blame, CauseClass, Rule, cause};
use crate::nodes::Fault;

const SLURM: &str = "https://slurm.schedmd.com/job_state_codes.html";
const SRUN: &str = "https://slurm.schedmd.com/srun.html";

pub(crate) const SLURM_REFUSED: Rule = cause("C50b", "SLURM-REFUSED",
        "Slurm did not take the job or a step of it",
        "read the reason at the end of the line, and compare what the command asks for with `scontrol show partition` and, for an srun in a job, `scontrol show job`",
        SRUN)
        .by_line(refusal)
        .says(&[
            &["CPU count per node can not be satisfied"],
            &["Unable to create step for job"],
            &["invalid partition specified"],
            &["srun: error: Unable to allocate resources"],
            &["Batch job submission failed"],
            &["Job submit/allocate failed"],
            &["Unable to confirm allocation for job"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted));

pub(super) const RULES: &[Rule] = &[
    cause("C48", "SSH-UNREACHABLE",
        "the ssh server of a host cannot be reached",
        "check that the host runs, that sshd listens on that port, and the firewall between the two",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html").fault(Fault::Network)
        .says(&[&["ssh: connect to host "]])
        .explaining(&["MPI-DAEMON-NOT-STARTED", "SSH-LOGIN-FAILED"])
        .kind(CauseClass::Rendezvous),
    cause("C48c", "SSH-CLOSED",
        "the ssh server of a host closed the connection before the login",
        "start fewer logins at once or raise MaxStartups of sshd on that host, and read its log: access rules (hosts.deny, PAM, fail2ban) do the same",
        "https://man.openbsd.org/sshd_config#MaxStartups")
        .says(&[&["exchange_identification: "]])
        .explaining(&["MPI-DAEMON-NOT-STARTED", "SSH-LOGIN-FAILED"])
        .kind(CauseClass::Rendezvous),
    cause("C48d", "SSH-HOST-KEY",
        "ssh does not know the key of a host, or knows another one",
        "add the host's key on the host that logs in (`ssh-keyscan HOST >> ~/.ssh/known_hosts`; `ssh-keygen -R HOST` removes an old one), or set StrictHostKeyChecking=accept-new",
        "https://man.openbsd.org/ssh_config#StrictHostKeyChecking")
        .says(&[&["Host key verification failed"]])
        .explaining(&["MPI-DAEMON-NOT-STARTED", "SSH-LOGIN-FAILED"])
        .kind(CauseClass::NotStarted),
    cause("C48b", "SSH-LOGIN-FAILED",
        "a launcher could not log in to a host with ssh",
        "log in to that host by hand with the same user and without a password (`ssh -o PasswordAuthentication=no HOST hostname`): it needs the key, a name that resolves, and an sshd that runs",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html")
        .says(&[&["ssh not successful for host "], &["Command 'ssh ", "exit status 255"], &["Command '['ssh ", "exit status 255"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46a", "MPI-DAEMON-MISSING",
        "the shell of another host does not find the daemon of Open MPI",
        "give mpirun the folder of Open MPI on the other hosts (`--prefix`, or call mpirun by its whole path), or put its `bin` and `lib` on PATH and LD_LIBRARY_PATH for shells that ssh starts (in `~/.bashrc` before it returns for those that are not interactive)",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/prerequisites.html")
        .says(&[&["orted: command not found"], &["prted: command not found"], &["orted: not found"], &["orted: No such file"]])
        .explaining(&["MPI-DAEMON-NOT-STARTED", "COMMAND-NOT-FOUND"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46", "MPI-DAEMON-NOT-STARTED",
        "mpirun could not start its daemon on a host",
        "log in from the first host to each other one with ssh, by the names of the hostfile, and start `orted` or `prted` there",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html")
        .says(&[&["was unable to reliably start"], &["daemon has unexpectedly failed after launch"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46b", "MPI-PROXY-NOT-STARTED",
        "mpiexec (Hydra) could not start its proxy on a host",
        "log in from the first host to that one with ssh, and check that the same MPI is installed there under the same path (its `bin/hydra_pmi_proxy` or `bin/hydra_bstrap_proxy`)",
        "https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md")
        .says(&[
            &["unable to run bstrap_proxy on "],
            &["unable to run proxy on "],
            &["unable to run bstrap_proxy"],
            &["execvp error on file ", "_proxy"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46c", "MPI-DAEMON-LOST",
        "mpirun lost the connection to its daemon on a node: the node or the daemon ended, or the network between them failed",
        "look at the node of the `Remote daemon` (its kernel log and uptime), and at the TCP network between it and the first node",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html").fault(Fault::Network)
        .says(&[&["Remote daemon: [", " on node "], &["has lost communication"]])
        .blame(Blame::Rank(CauseClass::ExitCode)),
    cause("C46e", "MPI-PEER-UNREACHABLE",
        "two processes of Open MPI cannot reach each other over the networks that it chose",
        "choose the network that joins the hosts (`--mca btl_tcp_if_include 10.0.0.0/16`, or OMPI_MCA_btl_tcp_if_include), without docker0 and virbr0, and check the firewall between them",
        "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html")
        .says(&[
            &["mca_btl_tcp_", "connect() to ", " failed"],
            &["are unable to reach each other"],
            &["failed to TCP connect to a peer MPI process"],
            &["unable to complete a TCP connection"],
        ])
        .explaining(&["MPI-DAEMON-NOT-STARTED"])
        .kind(CauseClass::Rendezvous),
    // Hydra's pm/pmiserv/pmiserv_cb.c.
    cause("C46f", "MPI-PROXY-CLOSED",
        "a connection to mpiexec (Hydra) closed before a proxy had introduced itself: a proxy that ended as it started, or a port scanner",
        "start the proxy on each host by hand (`ssh HOST hydra_pmi_proxy`), read what it prints, and keep scanners off the ports of mpiexec (MPICH_PORT_RANGE)",
        "https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md")
        .says(&[&["proxy_init_cb", "assert (!closed) failed"]])
        .explaining(&["PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    // Open MPI's ompi/errhandler and MPICH's errnames.txt.
    cause("C46g", "MPI-MESSAGE-TRUNCATED",
        "a message of MPI is longer than the buffer of the process that receives it",
        "make the count and type of each receive as large as those of its send, and the arguments of a collective the same on all ranks; messages of two programs or libraries may also be mixed up (give each its own communicator)",
        "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man3/MPI_Recv.3.html")
        .says(&[&["MPI_ERR_TRUNCATE"], &["Fatal error in ", "Message truncated"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED", "PROCESS-EXITED", "MPI-CALL-FAILED"])
        .blame(Blame::Rank(CauseClass::CollectiveMismatch)),
    cause("C46h", "MPI-CALL-FAILED",
        "a call of MPI failed, and MPI ended the processes of its communicator",
        "read the lines around it: they name the call, the rank and the host",
        "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man3/MPI_Errhandler_set.3.html")
        .says(&[&["MPI_ERR_"], &["MPI_ERRORS_ARE_FATAL"]])
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED", "PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::Exception)),
    // MPICH and those that are built on it: what failed stands in the lines of the stack below.
    cause("C46z", "MPI-NOT-STARTED",
        "MPI could not be initialised in a process",
        "read the lines above and below it: they name the layer that failed (UCX, libfabric, PMI) and its reason",
        "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man3/MPI_Init.3.html")
        .says(&[
            &["Fatal error in PMPI_Init"],
            &["Fatal error in MPI_Init"],
            &["Fatal error in internal_Init"],
        ])
        .by_line(no_fitting_provider)
        .explaining(&["PROCESS-CRASHED", "RANKS-ABORTED", "PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46i", "UCX-THREADS",
        "the UCX of this host was built without support for several threads, which the program asks of MPI",
        "use a UCX that was built with `--enable-mt`, or let Open MPI use another layer (`--mca pml ob1`)",
        "https://openucx.readthedocs.io/en/master/faq.html")
        .says(&[&["UCP worker does not support MPI_THREAD_MULTIPLE"]])
        .explaining(&["MPI-NO-TRANSPORT"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46j", "MPI-NO-TRANSPORT",
        "Open MPI could not use the layer for messages (PML) that it was told to use, or has none",
        "find out why with `--mca pml_base_verbose 10`: for ucx compare UCX_NET_DEVICES and UCX_TLS with `ucx_info -d` on that host and look for its missing libraries (`ldd`); or leave the choice to Open MPI (no `--mca pml`)",
        "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ib-and-roce.html")
        .says(&[&["PML ", " cannot be selected"], &["were able to be opened in the pml framework"]])
        .explaining(&["MPI-CALL-FAILED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C46d", "MPI-PROXY-UNREACHABLE",
        "the proxy of mpiexec (Hydra) could not connect to the host on which mpiexec runs",
        "check that the second name in the line resolves on the first host, to an address that it reaches, and the firewall between the two; `-iface` selects the network",
        "https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md")
        .says(&[&["HYDU_sock_connect", "unable to connect from \""]])
        .explaining(&["PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    // The words of ESLURMD_CPU_LAYOUT_ERROR and ESLURMD_CPU_BIND_ERROR in src/common/slurm_errno.c.
    cause("C49z", "SLURM-TASKS-DO-NOT-FIT",
        "Slurm could not lay the tasks of a step out on the CPUs that the job has there",
        "make `--cpus-per-task`, `--ntasks-per-node` and `--cpu-bind` of the srun fit the CPUs of the job; an srun inside a job inherits SLURM_CPU_BIND and SLURM_CPUS_PER_TASK: unset them, or give `--cpu-bind=none`",
        SRUN)
        .says(&[
            &["Task launch for", "Unable to layout tasks"],
            &["launch failed: ", "Unable to layout tasks"],
            &["Task launch for", "Unable to satisfy cpu bind request"],
            &["launch failed: ", "Unable to satisfy cpu bind request"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    // The words of slurm_errno.c and slurm's auth/munge plugin.
    cause("C49w", "SLURM-MUNGE",
        "Slurm could not prove who the user is: munge does not answer on that host, or its key or clock differs",
        "start munged there (`systemctl status munge`, `munge -n | unmunge`), with the same key and clock on all hosts; in a container mount /run/munge",
        "https://github.com/dun/munge/wiki")
        .says(&[&["Munge encode failed"], &["Munge decode failed"]])
        .explaining(&["SLURM-NOT-AUTHENTICATED"])
        .kind(CauseClass::NotStarted),
    cause("C49wa", "SLURM-NOT-AUTHENTICATED",
        "Slurm refused the job, since it could not prove who the user is: munge does not answer on that host, or its key or clock differs",
        "start munged there (`systemctl status munge`, `munge -n | unmunge`), with the same key and clock on all hosts; in a container mount /run/munge",
        "https://github.com/dun/munge/wiki")
        .says(&[&["Batch job submission failed: Protocol authentication error"], &["Unable to allocate resources: Protocol authentication error"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C49x", "SLURM-POLICY",
        "Slurm refused the job for the account, QOS or partition that it names, or a limit of them",
        "name an account, QOS and partition that you may use together (`sacctmgr show assoc user=$USER`, `scontrol show partition`); where a limit of jobs, nodes, GPUs or time is reached, wait for other jobs or ask for less",
        SLURM)
        .says(&[
            &["violates accounting/QOS policy"],
            &["Invalid account or account/partition combination"],
            &["Invalid qos specification"],
            &["nvalid qos for"],
            &["group not permitted to use this partition"],
            &["account not permitted to use this partition"],
            &["QOS not permitted to use this partition"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C49y", "SLURM-PMIX-TIMEOUT",
        "the PMIx plugins of Slurm on the nodes of a step did not finish an exchange in time",
        "check that the nodes reach each other over TCP on any port (firewall, several interfaces: SlurmPMIxDirectConn, UCX_NET_DEVICES of slurmd), and the log of slurmd on the neighbours that the lines name; a task that ended there before is the cause",
        SRUN).fault(Fault::Network)
        .says(&[&["pmixp_coll", "collective timeout"]])
        .kind(CauseClass::Rendezvous),
    cause("C50", "SLURM-LAUNCH-FAILED",
        "Slurm could not start tasks on a node",
        "check slurmd, its plugins, munge and the clock of that node (`scontrol show node NAME`), or exclude it (`--exclude`) and submit again",
        SRUN).fault(Fault::Node)
        .says(&[&["Task launch for", "failed on node"], &["srun: error: ", " launch failed: "]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    SLURM_REFUSED,
    cause("C50bb", "SLURM-NO-CONTROLLER",
        "a command of Slurm got no answer from the controller (slurmctld)",
        NO_CONTROLLER,
        SRUN).fault(Fault::Cluster)
        .says(&[&["Unable to contact slurm controller"]])
        .kind(CauseClass::NotStarted),
    cause("C50d", "CONTAINER-NOT-STARTED",
        "a container could not be started",
        "correct what the line names: the image (pyxis takes a name without a slash for one of a registry: write `./image.sqsh` for a file), its entrypoint, or on that host the container runtime and the NVIDIA driver (`nvidia-smi`)",
        "https://github.com/NVIDIA/pyxis/wiki")
        .says(&[
            &["error: pyxis:     "],
            &["nvidia-container-cli: "],
            &["OCI runtime create failed"],
            &["CreateContainerConfigError"],
            &["CreateContainerError"],
            &["could not select device driver"],
            &["error: pyxis: failed to "],
            &["error: pyxis: "],
            &["error: spank: required plugin"],
            &["container creation failed: "],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C50e", "SLOTS-TOO-FEW",
        "the launcher was asked for more processes than its hosts have slots",
        "start no more processes (`-np`) than the hosts have slots, or raise the slots in the hostfile or of `-H`",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/scheduling.html")
        .says(&[
            &["not enough slots available"],
            &["larger than total available slots"],
            &["not enough node entries"],
            &["allocated for this job are already filled"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    // deepspeed/launcher/runner.py, read 2026-11-26.
    cause("C50eb", "HOSTFILE-MISMATCH",
        "DeepSpeed's launcher was told to use hosts or slots that its hostfile does not have, or cannot read it",
        "name in `--include`, `--exclude` and `--num_gpus` only hosts and slots of the hostfile (`HOST slots=4` has the slots 0 to 3), or correct it: one line `HOST slots=N` for each host",
        "https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node")
        .says(&[
            &["No slot ", " on host "],
            &["not found in hostfile"],
            &["ostfile is not formatted correctly"],
            &["ostfile contains a bad entry"],
            &["ostfile contains multiple entries"],
        ])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    super::rule("C50eg", "HOSTFILE-MISSING", super::NOTE,
        "DeepSpeed's launcher found no hostfile, and starts ranks on its own host alone",
        "nothing to do for a job of one host; else give `--hostfile PATH` before the name of the script, with a path that exists there (without it /job/hostfile is read)",
        "https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node")
        .says(&[&["Unable to find hostfile"]])
        .kind(CauseClass::NotStarted),
    // The help texts of orte/mca/rmaps and PRRTE's, read 2026-11-26.
    cause("C50ec", "MPI-BINDING",
        "mpirun was asked to bind more processes or CPUs than a host has CPUs",
        "give `--bind-to none`, or `--bind-to core:overload-allowed` if processes may share cores; else start fewer processes on that host, or ask the scheduler for more CPUs",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/scheduling.html")
        .says(&[
            &["would result in binding more"],
            &["requested more cpus per process"],
            &["more processes than the ppr"],
        ])
        .explaining(&["PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C50ed", "MPI-AS-ROOT",
        "mpirun does not run as root unless it is told so",
        "run it as another user; in a container give `--allow-run-as-root`, or set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/quickstart.html")
        .says(&[&["attempt to run as root"]])
        .explaining(&["PROCESS-EXITED"])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C50q", "MPI-SINGLETONS",
        "Open MPI found no PMIx server under srun, and starts every process by itself, as rank 0 of 1",
        "start the program with mpirun, or with `srun --mpi=pmix` and a Slurm that was built with PMIx (`srun --mpi=list`)",
        SRUN)
        .says(&[&["No PMIx server was reachable"]])
        .kind(CauseClass::NotStarted),
    cause("C50n", "PMIX-SECURITY",
        "PMIx could not load the component that proves who a process is (psec): most often munge, which the image does not have",
        "set PMIX_MCA_psec=native in the environment of the job, or install munge's library in the image",
        "https://github.com/NVIDIA/pyxis/issues/88")
        .says(&[&["pmix_psec_base_open failed"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
    cause("C50o", "MPI-NOT-INITIALISED",
        "the program called a function of MPI before MPI_Init or after MPI_Finalize",
        "call MPI_Init before the function in the line, and MPI_Finalize last; a library that calls MPI by itself may have to be built without it",
        "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man3/MPI_Init.3.html")
        .says(&[&["function was called before MPI_INIT"], &["function was called after MPI_FINALIZE"]])
        .blame(Blame::Rank(CauseClass::Exception)),
    cause("C50k", "MPI-WITHOUT-PMI",
        "Open MPI does not find the interface (PMI) through which srun starts its processes",
        "start the program with mpirun, or with `srun --mpi=pmix` and an Open MPI that was built with PMIx (`srun --mpi=list`)",
        SRUN)
        .says(&[&["OPAL ERROR: Unreachable in file ", "_client.c"], &["not built with SLURM's PMI support"], &["PMI2_Init failed"]])
        .blame(Blame::Rank(CauseClass::NotStarted)),
];

/// Says what to do where libfabric has no provider for MPI, as its stack of errors ends.
fn no_fitting_provider(line: &str) -> Option<String> {
    line.contains("fi_getinfo() failed").then(|| {
        "libfabric has no provider on that host that fits: unset FI_PROVIDER where it is set, or choose one that `fi_info` lists there"
            .to_owned()
    })
}
