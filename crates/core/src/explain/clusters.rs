//! Codes of backends: a cluster's refusals, and why a job does not start or has ended.

use super::Code;

pub(super) const fn code(
    code: &'static str,
    title: &'static str,
    meaning: &'static str,
    fix: &'static str,
) -> Code {
    Code { code, title, meaning, fix, source: "" }
}

pub(super) const fn from(base: Code, source: &'static str) -> Code {
    Code { source, ..base }
}

pub(super) const CLUSTERS: &[Code] = &[
    from(
        code(
            "K8S-ADMISSION",
            "an admission webhook or policy refuses the job",
            "The API server asked another program, which said no; its words are shown.",
            "Correct what it names, or ask your cluster administrator.",
        ),
        "https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/",
    ),
    code(
        "K8S-CONFIG",
        "a pod waits for a Secret or ConfigMap",
        "The container names one that is missing in the namespace, or a key it does not have.",
        "Create it, or correct the name; the pod then starts by itself.",
    ),
    code(
        "K8S-CRASH-LOOP",
        "a container fails again and again",
        "The kubelet starts it anew after longer and longer waits.",
        "`weftrun logs --previous HANDLE` shows the last words of the attempt before.",
    ),
    from(
        code(
            "K8S-DEVICES",
            "a node cannot give the devices it offered",
            "The pod was placed, and the device plugin then had none left or failed (`UnexpectedAdmissionError`).",
            "Submit again; if the same node refuses again, tell your cluster administrator.",
        ),
        "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
    ),
    from(
        code(
            "K8S-DRA-EFA",
            "EFA interfaces are given out by resource claims here",
            "With AWS's DRA driver nodes list no `vpc.amazonaws.com/efa`, so a pod that asks it stays Pending.",
            "Switch `efa.devices` off and give the job a resource claim template.",
        ),
        "https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html",
    ),
    from(
        code(
            "K8S-EVICTED",
            "a node evicted a pod",
            "The node ran out of memory or of disk, and pods that use more than they asked go first.",
            "Ask for the memory and ephemeral storage the job needs.",
        ),
        "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
    ),
    code(
        "K8S-EXIT",
        "a container ended with an exit code",
        "128 and more mean a signal: 137 is KILL (often memory), 139 a segmentation fault, 143 TERM.",
        "Its log says why.",
    ),
    code(
        "K8S-FAILED",
        "the operator calls the job failed",
        "Its condition `Failed` gives the reason that is shown.",
        "Look at the rank that failed first.",
    ),
    code(
        "K8S-FIELD",
        "the API server refuses a field",
        "The object does not fit what the cluster serves; the field and the reason are shown.",
        "Correct the field; `weftrun doctor` shows which versions are served.",
    ),
    code(
        "K8S-HIDDEN",
        "something could not be read for want of rights",
        "What depends on it was assumed, and the decisions that rest on it say so.",
        "Nothing, if the assumption is right; else say it in the target's settings.",
    ),
    from(
        code(
            "K8S-HUGEPAGES",
            "huge pages are asked without cpu or memory",
            "The API server refuses every such pod.",
            "Set `memory` of the role.",
        ),
        "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
    ),
    from(
        code(
            "K8S-IMAGE-PULL",
            "the image cannot be pulled",
            "The name is wrong, the tag is gone, the registry cannot be reached, or it wants credentials.",
            "Check the name with `docker pull`; for a private registry set `image-pull-secrets`.",
        ),
        "https://kubernetes.io/docs/concepts/containers/images/",
    ),
    code(
        "K8S-MOUNT",
        "a volume cannot be mounted",
        "`hostPath type check failed` means that the node has no such folder: it lacks the fabric's files. `not found` means that the claim does not exist.",
        "Use a profile with the stack in the image (`eks-image`), other nodes, or the right claim.",
    ),
    from(
        code(
            "K8S-NAME",
            "the name makes no host name",
            "Operators make a Service of it, which wants a DNS-1035 label.",
            "Use lower-case letters, digits and `-`, a letter first.",
        ),
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/",
    ),
    from(
        code(
            "K8S-NAME-LENGTH",
            "the name is too long for its pods",
            "Operators put the role and a number behind it, and the whole must fit 63 characters.",
            "Use a shorter name.",
        ),
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/",
    ),
    code(
        "K8S-NO-IMAGE",
        "a role names no container image",
        "The API server takes such a job, and the operator fails at every pod of it.",
        "Set `image` in the job file, or give `--image`.",
    ),
    code(
        "K8S-NO-KIND",
        "the cluster serves no kind of training job",
        "None of Kubeflow's operators that weftrun makes jobs for is installed, or none of a version it knows.",
        "Have an administrator install the Training Operator (PyTorchJob), the MPI Operator (MPIJob) or Kubeflow Trainer (TrainJob).",
    ),
    code(
        "K8S-NO-OPERATOR",
        "no operator has taken the job up",
        "The kind is installed, but for 30 seconds nothing has given the job a status or a pod: its operator does not run, or does not watch this namespace.",
        "Ask your cluster administrator whether the operator runs.",
    ),
    from(
        code(
            "K8S-NO-RIGHT",
            "a right is missing in this namespace",
            "The cluster would refuse what the verb needs.",
            "Ask for a Role in the namespace that allows it; `weftrun doctor` lists what is needed.",
        ),
        "https://kubernetes.io/docs/reference/access-authn-authz/rbac/",
    ),
    code(
        "K8S-OOM",
        "the kernel killed a container for its memory",
        "It used more than its limit; `/dev/shm` counts as memory.",
        "Raise `memory` of the role.",
    ),
    from(
        code(
            "K8S-POD-REFUSED",
            "the cluster refuses the job's pods",
            "The job was taken, and each of its pods is refused for the reason that is shown.",
            "Correct what it names.",
        ),
        "https://kubernetes.io/docs/concepts/policy/",
    ),
    from(
        code(
            "K8S-POD-SECURITY",
            "the namespace's Pod Security level forbids the pods",
            "`baseline` and `restricted` forbid hostPath volumes and most capabilities, which a mounted stack and RDMA need.",
            "Use a profile whose stack is in the image, or another namespace.",
        ),
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
    ),
    code(
        "K8S-PRIORITY",
        "there is no such priority class",
        "A pod that names one which is not there is refused.",
        "`kubectl get priorityclasses` lists them.",
    ),
    from(
        code(
            "K8S-QUEUE",
            "nobody keeps the queue the job names",
            "Kueue has no such local queue in the namespace (Volcano: in the cluster), and the job would wait for ever; or it is not installed at all.",
            "`weftrun doctor` lists the queues; `gang` under `[backend.kubeflow]` says who keeps them.",
        ),
        "https://kueue.sigs.k8s.io/docs/concepts/local_queue/",
    ),
    from(
        code(
            "K8S-QUOTA",
            "the namespace's quota is used up",
            "Pods are refused until something of it is free.",
            "Ask for less, wait for other jobs of the namespace, or ask for a larger ResourceQuota.",
        ),
        "https://kubernetes.io/docs/concepts/policy/resource-quotas/",
    ),
    code("K8S-REFUSED", "the cluster refuses the job", "Its own words are shown.", "Correct what they name."),
    code(
        "K8S-SANDBOX",
        "a pod's network cannot be made",
        "Often the network attachment that Multus is told to use does not exist.",
        "Check the name that `roce.network` adds against `kubectl get network-attachment-definitions -A`.",
    ),
    code(
        "K8S-START",
        "a container does not start",
        "Its command is not in the image, or cannot be run.",
        "Check the command, and that the image has it.",
    ),
    code(
        "K8S-TRAINJOB-RESTARTS",
        "a TrainJob restarts as its runtime says",
        "A TrainJob has no field for restarts: the `backoffLimit` of the Job and the `maxRestarts` of the JobSet in its runtime count, and they are not what the job file says.",
        "Name a runtime with the limits you want, or use a PyTorchJob.",
    ),
    from(
        code(
            "K8S-UNSCHEDULABLE",
            "no node fits",
            "The scheduler's words say what lacks: GPUs, EFA interfaces, huge pages, a toleration, a node selector nobody has.",
            "Ask what `weftrun doctor` says the nodes offer.",
        ),
        "https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/",
    ),
    code(
        "K8S-VALIDATION",
        "the operator refuses the job",
        "The API server took it; the operator's own checks did not.",
        "Correct the field it names.",
    ),
    code(
        "LOCAL-ATTACHED",
        "the job ends with this program",
        "No weftrun binary was found that could supervise it on its own.",
        "Install `weftrun`, or keep the program running.",
    ),
    code(
        "LOCAL-DISK-FULL",
        "the disk was full while a rank wrote",
        "What could not be written to a log is lost.",
        "Free some space, and submit the job again.",
    ),
    code(
        "LOCAL-FAILED",
        "a process of the job failed",
        "A rank ended with an exit code or by a signal; the others were then ended.",
        "`weftrun why JOB` shows the cause, and `weftrun logs JOB` the output.",
    ),
    code(
        "LOCAL-KILLED",
        "processes were killed when the job was stopped",
        "They did not end within the grace period after SIGTERM.",
        "Let the program end on SIGTERM, or set a longer `grace_period`.",
    ),
    code(
        "LOCAL-LEFT-BEHIND",
        "processes outlived their rank, and were ended",
        "A rank started processes that left its process group and ran on after it.",
        "Wait for child processes in the program.",
    ),
    code(
        "LOCAL-NAME",
        "a job of this name is here already",
        "Two of one name could not be told apart.",
        "Choose another name, or `--name-suffix`.",
    ),
    code(
        "LOCAL-NOTE",
        "something of the job is different on one machine",
        "Nodes are simulated: what only a cluster has is left out, and the note says what.",
        "Nothing.",
    ),
    code(
        "LOCAL-ORPHANS",
        "processes run without their supervisor",
        "It was killed; its ranks go on, and write their logs.",
        "`weftrun cancel` ends them.",
    ),
    code(
        "LOCAL-RESTARTED",
        "the job was started again",
        "An attempt failed, and `restart` allows another.",
        "`weftrun logs JOB --previous` shows the attempt before.",
    ),
    code(
        "LOCAL-SECRET",
        "a secret is not in the environment",
        "Local jobs take secrets from the environment they are submitted in.",
        "Export the variable before you submit.",
    ),
    code(
        "SLURM-NEVER-STARTS",
        "the job will never start as it is",
        "Slurm's reason is one that time does not cure: a limit, a node count, a partition that is down.",
        "Change what the reason names, and submit again.",
    ),
    from(
        code(
            "SLURM-NODE-FAILED",
            "a node of the job failed",
            "Slurm ends the job, and queues it again only if the job allows it.",
            "Set `restart` in the job.",
        ),
        "https://slurm.schedmd.com/job_state_codes.html",
    ),
    code(
        "SLURM-NO-EFA-FEATURE",
        "nodes of this type lack the feature of EFA",
        "ParallelCluster marks nodes with EFA by the feature `efa`; those of this type have none.",
        "Enable EFA for the queue in the cluster's configuration, or choose another type.",
    ),
    code(
        "SLURM-NO-INSTANCE-TYPE",
        "no partition has nodes of this type",
        "Nodes say their type as a feature; none of the partition's does.",
        "Choose the partition that has it, or another type.",
    ),
    code(
        "SLURM-NO-PARTITION",
        "there is no such partition",
        "`sbatch` would refuse the job.",
        "`sinfo` lists them.",
    ),
    from(
        code(
            "SLURM-OUTPUT-UNUSABLE",
            "the job's output file cannot be written",
            "The first node has no such folder, or may not write it; the job then ends before its first line.",
            "Set `log-dir` of the target to a folder that every node can write.",
        ),
        "https://slurm.schedmd.com/sbatch.html",
    ),
    code(
        "SLURM-OUT-OF-MEMORY",
        "the job used more memory than it asked for",
        "Slurm kills the step.",
        "Raise `memory` of the role.",
    ),
    code(
        "SLURM-REFUSED",
        "Slurm would refuse the job",
        "`sbatch --test-only` said so; its words are shown.",
        "Change what they name.",
    ),
    code(
        "SLURM-STEP-FAILED",
        "a step failed in a job that succeeded",
        "The job's exit code is that of the script's last command.",
        "Put `set -e` into the script, or let its last command be srun.",
    ),
    code(
        "SLURM-TIME-LIMIT",
        "the job ran into its time limit",
        "Slurm ends it with TERM, and with KILL a little later.",
        "Raise `time_limit`. With `signal = \"USR1@300\"` in `[backend.slurm]` the ranks get USR1 five minutes before the end, for a last checkpoint: install a handler in the program. torchrun itself ignores USR1 and USR2.",
    ),
    code(
        "K8S-NODE-LOST",
        "a node of the job is gone",
        "The cluster lost its node: it was taken back, failed, or no longer answers; what ran on it is lost.",
        "Set `restart` in the job, so that it goes on elsewhere.",
    ),
    code(
        "K8S-PODS-LEFT",
        "pods of an ended job still run",
        "A PyTorchJob ends with its master, and keeps its pods so that their logs can be read. Workers that do not end by themselves hold their GPUs.",
        "Wait until they end, or run `weftrun cancel HANDLE`: it removes the pods that still run, and the others keep their logs. With `clean-pod-policy = \"Running\"` the operator removes them at once, and their logs.",
    ),
    code(
        "SLURM-CPUS",
        "which CPUs the job gets",
        "`cpus` in the job file is the number of a node, and srun gets each task's part of it (`--cpus-per-task`). Without it Slurm's own rule holds: DefCpuPerGPU of the partition, or one CPU for each task; on whole nodes the tasks share all CPUs. A job gets whole nodes where the fabric's devices belong to them, or where it requests all GPUs of its nodes; a single GPU on a single node is shared.",
        "Set `cpus` in the job file; `exclusive` in `[backend.slurm]` requests or refuses whole nodes.",
    ),
    code(
        "SLURM-DISK-FULL",
        "the log folder's file system is full",
        "The end of the log may be missing.",
        "Free some space, or set `log-dir` of the target to another shared folder.",
    ),
    code(
        "SLURM-NO-ACCOUNTING",
        "slurmdbd, Slurm's accounting daemon, does not answer",
        "What is shown comes from slurmctld and from the exit files and logs of the jobs; jobs of others and of other hosts that slurmctld has forgotten are missing.",
        "Tell your cluster administrator; `systemctl status slurmdbd` on its host says more.",
    ),
    code(
        "SLURM-NO-PLUGIN",
        "this cluster's srun has no such option",
        "Containers need a plugin (pyxis), and so does each kind of `--mpi`.",
        "Set `container` or `mpi` in `[backend.slurm]` to what the cluster has.",
    ),
    code(
        "SLURM-NO-QOS",
        "there is no such qos",
        "`sbatch` would refuse the job.",
        "Use one of those that are named.",
    ),
    code(
        "SLURM-NOT-NOW",
        "no nodes that are up now fit the job",
        "`sbatch --test-only` says so while a node is down, also of jobs that it takes and starts once the node is back.",
        "Submit it and let it wait, or ask for nodes that `sinfo` shows up.",
    ),
    code(
        "SLURM-NO-WORKDIR",
        "the working directory does not exist on the cluster",
        "The job names a folder in `workdir` that the host of `sbatch` does not have, or that you may not enter. Slurm would start the job and fail.",
        "Make the folder on the cluster, or name one that every node has.",
    ),
    code(
        "SLURM-REQUEUE",
        "what happens to the job when a node fails",
        "`requeue` in `[backend.slurm]` or `restart` in the job file decides; without either the cluster's own default (`JobRequeue` in slurm.conf).",
        "Set `requeue = true` or `requeue = false` in `[backend.slurm]`.",
    ),
    code(
        "SLURM-UNUSED",
        "a setting of the job has no meaning here",
        "Jobs of Slurm have neither labels nor annotations.",
        "Nothing; `wckey` in `[backend.slurm]` is what Slurm has for it.",
    ),
    code(
        "SLURM-WORKDIR",
        "the folder in which the job runs",
        "A job runs where `submit` is called, if the cluster has that folder, as with sbatch; else in your home directory. `workdir` names another one.",
        "Set `workdir` in the job file.",
    ),
];
