"""The keys of a job file as types: an unknown or misspelt key of a ``dict`` is an error of mypy and pyright.

They follow ``docs/reference/job.schema.json``, which a test compares. All keys but ``name`` and ``command`` may be left out.
"""

from __future__ import annotations

from typing import Any, Literal, Mapping, Sequence, TypedDict, Union

__all__ = ["JobSpec", "RoleSpec", "VolumeSpec", "SecretSpec", "FabricSpec", "CodeSpec", "RestartSpec", "RetrySpec"]


class RestartSpec(TypedDict, total=False):
    """All ranks start again when one fails."""

    #: Maximum number of restarts
    max: int


class RetrySpec(TypedDict, total=False):
    """The job is submitted again after a failure of its nodes or of the cluster, while `wait` watches it."""

    #: Most submissions after the first
    max: int
    #: Which nodes a retry leaves out
    avoid: Literal["proven", "suspects"]


class CodeSpec(TypedDict, total=False):
    """Code sent with the job."""

    #: Script to send with the job; a path relative to the job file
    script: str
    #: Text of the script, if it is not to be read from a file
    text: str
    #: Folder to send with the job; a path relative to the job file
    dir: str
    #: Git repository to clone before the start
    git: str
    #: Branch, tag or commit of the repository
    ref: str


class FabricSpec(TypedDict, total=False):
    """Which fabric to use, and which of its rules."""

    #: Fabric of the job
    kind: Literal["auto", "efa", "roce", "infiniband", "ib", "tcp", "off", "none", False]
    #: How the RoCE GID index is found: `auto`, `compute`, or a number
    gid: Union[Literal["auto", "compute"], int, str]
    #: Network attachments (`namespace/name`) instead of the profile's
    network: Union[str, Sequence[str]]
    #: Where the fabric's libraries come from
    stack: Literal["auto", "mounted", "bundled"]
    #: Who adds the fabric's libraries to the pods
    inject: Literal["client", "server"]
    #: Whether the cluster has a webhook that adds EFA
    webhook: Literal["auto", "yes", "no", False, True]
    #: Pin the network plugin, so that a fallback fails; exit 7 if the transport is unknown
    strict: bool
    #: Set NCCL_DEBUG=INFO if it is unset, so that the transport can be detected
    detect: bool
    #: Rules by id (`weftrun explain` lists them)
    rules: Mapping[str, Union[Literal["auto", "on", "off", False, True], Mapping[str, Any]]]
    #: Version of Kubeflow Trainer to write TrainJobs for
    trainer_version: Literal["2.0", "2.1", "2.2", "2.3"]
    #: File with the training runtime of a TrainJob, if it cannot be read from the cluster
    runtime: str


class SecretSpec(TypedDict, total=False):
    """An environment variable whose value is in the cluster's secret store."""

    #: Name of the secret
    secret: str
    #: Key inside the secret
    key: str


class VolumeSpec(TypedDict, total=False):
    """Something mounted into every role, from exactly one of `host_path`, `claim` and `memory`."""

    #: Mount path in the container
    mount: str
    #: Folder of the node, or of the shared file system on Slurm
    host_path: str
    #: PersistentVolumeClaim
    claim: str
    #: Memory: `true`, or its upper limit
    memory: Union[bool, Union[str, float]]
    #: Mount it read-only
    read_only: bool


class _NodesSpec(TypedDict, total=False):
    """What a role and a job of one role have in common."""

    #: Number of GPU nodes in total (pods, hosts)
    nodes: int
    #: Number of GPU nodes in total (pods, hosts)
    replicas: int
    #: GPUs of each node
    gpus_per_node: int
    #: Ranks of each node, if not one per GPU
    ranks_per_node: int
    #: Instance type of the worker nodes (`weftrun instances` lists them): sizes EFA, checks GPUs, selects nodes
    instance_type: str
    #: The program and its arguments: a list, or a string that is split into words as a shell would, without a shell.
    #: For `launch = "torchrun"` the Python script and its arguments
    command: Union[str, Sequence[Union[str, float, bool]]]
    #: CPUs of each node
    cpus: Union[str, float]
    #: Memory of each node
    memory: Union[str, float]
    #: Size of /dev/shm
    shm: Union[str, float]
    #: Additional resources of each node by name; the fabric's rules keep what is set here
    resources: Mapping[str, Union[str, float]]
    #: Container image; none for `local`, and for Slurm without containers
    image: str
    #: Environment variables, taken literally: nothing is expanded
    env: Mapping[str, Union[str, int, bool]]


class RoleSpec(_NodesSpec, total=False):
    """A group of equal nodes."""

    #: Whether its processes are ranks
    kind: Literal["worker", "launcher"]


class JobSpec(_NodesSpec, total=False):
    """A job: the keys of a job file."""

    #: Name of the job; a DNS label, since clusters derive host names from it
    name: str
    #: Who starts the processes of a node
    launch: Literal["per-node", "per-rank", "torchrun", "once", "mpi"]
    #: Working directory in the container
    workdir: str
    #: Profile of the site (`dgxc`, `eks-image`, …) instead of the target's
    profile: str
    #: Queue, partition or node pool
    queue: str
    #: Priority class, or qos on Slurm
    priority: str
    #: What happens when a rank fails
    restart: Union[Literal["never", "on-failure"], "RestartSpec"]
    #: How often the job is submitted again after a failure of its nodes or of the cluster
    retry: Union[int, "RetrySpec"]
    #: Nodes that the job does not run on, by name; `suspects` stands for those that the history suspects
    avoid: Union[str, Sequence[str]]
    #: Time limit of the job
    time_limit: Union[str, int]
    #: Jobs after whose success it starts: handles or names; `afterany:HANDLE` for after its end. Slurm and `local`
    after: Union[str, Sequence[str]]
    #: Makes it a job of many tasks with these numbers, as `sbatch --array` reads them (`0-19`, `1,3,5-7`, `0-19%4`). Each task
    #: has its number in `WEFTRUN_TASK` and for `{task}` in its command. Slurm, `local` and `kubeflow`
    array: str
    #: Makes it a job of many tasks, one for each combination of these values, at most 1,000. Each task has the value of `lr` in
    #: `WEFTRUN_SWEEP_LR` and for `{lr}` in its command
    sweep: Mapping[str, Sequence[Union[str, int, float, bool]]]
    #: Largest number of tasks that run at once. Slurm and `local`
    parallel: int
    #: Code sent with the job
    code: "CodeSpec"
    #: Which fabric to use, and which of its rules
    fabric: Union[Literal["auto", "efa", "roce", "infiniband", "ib", "tcp", "off", "none", False], "FabricSpec"]
    #: Measure NCCL's collectives with weftrun's library, which is brought with the job (`weftrun bandwidth JOB`)
    bandwidth: bool
    #: Environment variables from the cluster's secret store: `VARIABLE = "secret/key"`
    secrets: Mapping[str, Union[str, "SecretSpec"]]
    #: Volumes by name
    volumes: Mapping[str, "VolumeSpec"]
    #: Labels of the submitted job
    labels: Mapping[str, str]
    #: Annotations of every pod
    annotations: Mapping[str, str]
    #: Settings of one backend, by its name; passed on unchanged
    backend: Mapping[str, Any]
    #: Groups of nodes by name, in order, if the job has more than one; each has the keys of a role
    roles: Mapping[str, "RoleSpec"]
