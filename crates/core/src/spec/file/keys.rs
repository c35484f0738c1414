//! Every key of a job file, defined once: name, shape, documentation, the field it sets and the flags that set it.
//! Reading, writing, checking, flags, the reference page and the JSON schema follow from this table.

use super::shape::{FieldAccess, Flag, Group, Key, Shape, Table, Word, key, word};

const LAUNCH: &[Word] = &[
    word("per-node", "run the command once per node; it starts the ranks of the node itself (default)"),
    word("per-rank", "run the command once per GPU"),
    word("torchrun", "run `torchrun` once per node; the command is a Python script with its arguments"),
    word(
        "once",
        "run the command once, on the first node; it starts the ranks itself, as a batch script does (Slurm)",
    ),
    word("mpi", "run the command on all nodes with `mpirun`, from one launcher"),
];

const FABRIC: &[Word] = &[
    word("auto", "what the nodes have; a job that cannot use it runs without (default)"),
    word("efa", "AWS Elastic Fabric Adapter; an error if the job cannot use it"),
    word("roce", "RDMA over Converged Ethernet"),
    Word { word: "infiniband", doc: "InfiniBand", alias: Some("ib") },
    word("tcp", "plain TCP sockets"),
    Word { word: "off", doc: "change nothing", alias: Some("none") },
];

const RULE: &[Word] = &[
    word("auto", "apply the rule if it fits, else skip it with a reason"),
    word("on", "require the rule; an error if it cannot be applied"),
    word("off", "disable the rule and those that depend on it"),
];

const STACK: &[Word] = &[
    word("auto", "mounted, unless the job names paths of a bundled stack (default)"),
    word("mounted", "mounted from the node"),
    word("bundled", "in the image"),
];

const INJECT: &[Word] = &[
    word("client", "weftrun adds the stack (default)"),
    word("server", "the cluster's webhook adds it; weftrun only rewrites mpirun"),
];

const WEBHOOK: &[Word] = &[
    word("auto", "read it from the cluster; offline, assume none (default)"),
    word("yes", "the cluster has a webhook that adds EFA"),
    word("no", "the cluster has none"),
];

const ROLE_KIND: &[Word] = &[
    word("worker", "its processes are ranks (default)"),
    word("launcher", "it starts the ranks and has none itself (default for a role named `launcher`)"),
];

const RESTART: &[Word] = &[
    word("never", "a failed rank fails the job (default)"),
    word("on-failure", "all ranks start again, at most 3 times; `{ max = N }` sets another limit"),
];

const RETRY_AVOID: &[Word] = &[
    word("proven", "the nodes that the evidence of the failure names (default)"),
    word("suspects", "those, and all nodes that the history suspects (`weftrun nodes`)"),
];

const TRAINER: &[Word] = &[
    word("2.0", "overrides in `podSpecOverrides`"),
    word("2.1", "overrides in `podTemplateOverrides`"),
    word("2.2", "overrides in `runtimePatches`"),
    word("2.3", "overrides in `runtimePatches`"),
];

const NODES: Key = key("nodes", Shape::Count { min: 1 }, "Number of GPU nodes in total (pods, hosts)")
    .role(|role| &mut role.nodes)
    .flags(&[Flag::new("--nodes", "N").short('N')])
    .example("4")
    .alias(&["replicas"])
    .synonyms(&["num_nodes", "nnodes", "workers", "num_workers", "instance_count", "node_count"]);
const GPUS: Key = key("gpus_per_node", Shape::Count { min: 0 }, "GPUs of each node")
    .role(|role| &mut role.gpus_per_node)
    .flags(&[Flag::new("--gpus-per-node", "N").short('g')])
    .example("8")
    .synonyms(&["gpus", "gpu", "num_gpus", "accelerators", "gpu_count", "gres"]);
const RANKS: Key = key("ranks_per_node", Shape::Count { min: 1 }, "Ranks of each node, if not one per GPU")
    .role(|role| &mut role.ranks_per_node)
    .flags(&[Flag::new("--ranks-per-node", "N")])
    .example("8")
    .synonyms(&["nproc_per_node", "procs_per_node", "ntasks_per_node", "tasks_per_node", "slots_per_worker"]);
const INSTANCE: Key = key(
    "instance_type",
    Shape::Text,
    "Instance type of the worker nodes (`weftrun instances` lists them): sizes EFA, checks GPUs, selects nodes",
)
.role(|role| &mut role.instance_type)
.flags(&[Flag::new("--instance-type", "TYPE").group(Group::Fabric).help("Instance type of the worker nodes")])
.example("\"p5.48xlarge\"")
.config()
.synonyms(&["instance", "node_type", "device_type", "machine_type"]);
const COMMAND: Key = key(
    "command",
    Shape::Command,
    "The program and its arguments: a list, or a string that is split into words as a shell would, without a shell. \
     For `launch = \"torchrun\"` the Python script and its arguments",
)
.role(|role| &mut role.command)
.flags(&[Flag::new("--", "CMD")])
.example("[\"train.py\", \"--epochs\", \"3\"]")
.synonyms(&["run", "args", "cmd", "entrypoint", "script"]);
const CPUS: Key = key("cpus", Shape::Quantity, "CPUs of each node")
    .role(|role| &mut role.cpus)
    .flags(&[Flag::new("--cpus", "QTY")])
    .example("180")
    .synonyms(&["cpu", "vcpus", "cpus_per_node"]);
const MEMORY: Key = key("memory", Shape::Quantity, "Memory of each node")
    .role(|role| &mut role.memory)
    .flags(&[Flag::new("--memory", "QTY")
        .group(Group::Fabric)
        .help("Memory of each node; in `mutate` only for workers that request neither CPU nor memory")])
    .example("\"1800Gi\"")
    .synonyms(&["mem", "ram"]);
const SHM: Key = key("shm", Shape::Quantity, "Size of /dev/shm")
    .role(|role| &mut role.shm)
    .flags(&[Flag::new("--shm", "QTY")])
    .example("\"64Gi\"")
    .synonyms(&["shm_size", "shared_memory"]);
const RESOURCES: Key = key(
    "resources",
    Shape::Map(&Shape::Quantity),
    "Additional resources of each node by name; the fabric's rules keep what is set here",
)
.role(|role| &mut role.resources)
.flags(&[Flag::new("--resource", "NAME=QTY").help("Additional resource of each node")])
.example("{ \"vpc.amazonaws.com/efa\" = 32 }")
.synonyms(&["limits", "requests", "extended_resources"]);
const IMAGE: Key =
    key("image", Shape::Text, "Container image; none for `local`, and for Slurm without containers")
        .example("\"nvcr.io/nvidia/pytorch:25.09-py3\"")
        .config()
        .synonyms(&["container_image", "container", "docker_image", "image_id"]);
const ENV: Key =
    key("env", Shape::Map(&Shape::Scalar), "Environment variables, taken literally: nothing is expanded")
        .example("{ NCCL_DEBUG = \"INFO\" }")
        .config()
        .synonyms(&["envs", "environment", "environment_variables", "env_vars"]);

/// `[roles.NAME]`.
pub static ROLE: Table = Table {
    name: "roles.NAME",
    doc: "A group of equal nodes. A job with one role has these keys at the top instead.",
    keys: &[
        key("kind", Shape::Word(ROLE_KIND), "Whether its processes are ranks")
            .role(|role| &mut role.kind)
            .example("\"worker\""),
        NODES,
        GPUS,
        RANKS,
        INSTANCE,
        COMMAND,
        CPUS,
        MEMORY,
        SHM,
        RESOURCES,
        IMAGE.role(|role| &mut role.image),
        ENV.role(|role| &mut role.env),
    ],
};

/// `[volumes.NAME]`.
pub static VOLUME: Table = Table {
    name: "volumes.NAME",
    doc: "Something mounted into every role, from exactly one of `host_path`, `claim` and `memory`.",
    keys: &[
        key("mount", Shape::Text, "Mount path in the container").example("\"/data\"").required().synonyms(&[
            "mount_path",
            "path",
            "target",
            "container_path",
        ]),
        key("host_path", Shape::Text, "Folder of the node, or of the shared file system on Slurm")
            .example("\"/fsx/data\"")
            .synonyms(&["source", "host", "hostpath"]),
        key("claim", Shape::Text, "PersistentVolumeClaim").example("\"datasets\"").synonyms(&[
            "pvc",
            "claim_name",
            "existing_claim",
        ]),
        key("memory", Shape::OneOf(&[Shape::Bool, Shape::Quantity]), "Memory: `true`, or its upper limit")
            .example("\"64Gi\"")
            .synonyms(&["size", "tmpfs"]),
        key("read_only", Shape::Bool, "Mount it read-only").example("true").synonyms(&["ro", "readonly"]),
    ],
};

pub static CODE: Table = Table {
    name: "code",
    doc: "Code sent with the job, in addition to what the image has: `script`, `git` or `dir`.",
    keys: &[
        key("script", Shape::Text, "Script to send with the job; a path relative to the job file")
            .flags(&[Flag::new("--script", "FILE").help("Script to send with the job")])
            .example("\"train.py\"")
            .synonyms(&["file", "path"]),
        key("text", Shape::Text, "Text of the script, if it is not to be read from a file"),
        key("git", Shape::Text, "Git repository to clone before the start")
            .flags(&[Flag::new("--git", "URL")])
            .example("\"https://git.example.com/team/train.git\"")
            .synonyms(&["url", "repo", "repository"]),
        key("ref", Shape::Text, "Branch, tag or commit of the repository")
            .flags(&[Flag::new("--git-ref", "REF")])
            .example("\"main\"")
            .synonyms(&["rev", "branch", "tag", "commit"]),
        key(
            "dir",
            Shape::Text,
            "Folder to send with the job, relative to the job file: the files that git does not ignore, tracked or not, at most \
             20,000 files and 100 MiB. The command runs in a copy of it, and a relative `workdir` is in that copy",
        )
        .flags(&[Flag::new("--code", "DIR").help("Folder to send with the job: the files that git does not ignore")])
        .example("\".\"")
        .synonyms(&["folder", "directory", "workspace", "working_dir"]),
    ],
};

/// `secrets.NAME`.
pub static SECRET: Table = Table {
    name: "secrets.NAME",
    doc: "An environment variable whose value is in the cluster's secret store.",
    keys: &[
        key("secret", Shape::Text, "Name of the secret").example("\"wandb\"").required().synonyms(&["name"]),
        key("key", Shape::Text, "Key inside the secret").example("\"api-key\"").required(),
    ],
};

pub static RESTART_TABLE: Table = Table {
    name: "restart",
    doc: "All ranks start again when one fails.",
    keys: &[key("max", Shape::Count { min: 1 }, "Maximum number of restarts")
        .example("3")
        .required()
        .synonyms(&["on_failure", "retries", "limit"])],
};

pub static RETRY_TABLE: Table = Table {
    name: "retry",
    doc: "The job is submitted again after a failure of its nodes or of the cluster, while `submit --follow`, `submit --wait` or `wait` watches it.",
    keys: &[
        key("max", Shape::Count { min: 1 }, "Most submissions after the first")
            .example("3")
            .required()
            .synonyms(&["attempts", "retries", "limit"]),
        key("avoid", Shape::Word(RETRY_AVOID), "Which nodes a retry leaves out").example("\"suspects\""),
    ],
};

pub static FABRIC_TABLE: Table = Table {
    name: "fabric",
    doc: "Which fabric to use, and which of its rules. `fabric = \"efa\"` is short for `fabric.kind = \"efa\"`.",
    keys: &[
        key("kind", Shape::Word(FABRIC), "Fabric of the job")
            .fabric(|request| &mut request.kind)
            .flags(&[Flag::new("--fabric", "FABRIC").group(Group::Fabric)])
            .example("\"efa\"")
            .config()
            .synonyms(&["type", "name"]),
        key("gid", Shape::Gid, "How the RoCE GID index is found: `auto`, `compute`, or a number")
            .fabric(|request| &mut request.gid)
            .flags(&[Flag::new("--gid", "GID").group(Group::Fabric)])
            .example("\"auto\"")
            .config()
            .synonyms(&["gid_index"]),
        key("network", Shape::Texts, "Network attachments (`namespace/name`) instead of the profile's")
            .fabric(|request| &mut request.networks)
            .flags(&[Flag::new("--network", "NS/NAME")
                .group(Group::Fabric)
                .help("Network attachment (NAMESPACE/NAME) instead of the profile's")])
            .example("\"kube-system/roce\"")
            .config()
            .synonyms(&["networks"]),
        key("stack", Shape::Word(STACK), "Where the fabric's libraries come from")
            .fabric(|request| &mut request.stack)
            .flags(&[Flag::new("--stack", "WHERE").group(Group::Fabric)])
            .example("\"auto\"")
            .config(),
        key("inject", Shape::Word(INJECT), "Who adds the fabric's libraries to the pods")
            .fabric(|request| &mut request.inject)
            .flags(&[Flag::new("--inject", "WHO").group(Group::Fabric)])
            .example("\"client\"")
            .config(),
        key("webhook", Shape::Word(WEBHOOK), "Whether the cluster has a webhook that adds EFA")
            .fabric(|request| &mut request.webhook)
            .flags(&[Flag::new("--webhook", "YES|NO").group(Group::Fabric)])
            .example("\"auto\"")
            .config(),
        key(
            "strict",
            Shape::Bool,
            "Pin the network plugin, so that a fallback fails; exit 7 if the transport is unknown",
        )
        .fabric(|request| &mut request.strict)
        .flags(&[Flag::new("--strict", "").group(Group::Fabric)])
        .example("true")
        .config(),
        key(
            "detect",
            Shape::Bool,
            "Set NCCL_DEBUG=INFO if it is unset, so that the transport can be detected",
        )
        .fabric(|request| &mut request.detect)
        .flags(&[Flag::new("--detect", "").group(Group::Fabric)])
        .example("true")
        .config(),
        key("rules", Shape::Rules(RULE), "Rules by id (`weftrun explain` lists them)")
            .fabric(|request| &mut request.rules)
            .flags(&[
                Flag::new("--fabric-rule", "ID")
                    .group(Group::Fabric)
                    .sets("on")
                    .help("Require a rule; an error if it cannot be applied"),
                Flag::new("--no-fabric-rule", "ID")
                    .group(Group::Fabric)
                    .sets("off")
                    .help("Disable a rule and those that depend on it (`weftrun explain ID` describes it)"),
            ])
            .example("{ \"efa.hugepages\" = \"off\" }")
            .config()
            .synonyms(&["rule", "disable"]),
        key("trainer_version", Shape::Word(TRAINER), "Version of Kubeflow Trainer to write TrainJobs for")
            .at(FieldAccess::Setting { backend: "kubeflow", key: "trainer-version" })
            .flags(&[Flag::new("--trainer-version", "VERSION").group(Group::Fabric)])
            .example("\"2.3\"")
            .config(),
        key(
            "runtime",
            Shape::Text,
            "File with the training runtime of a TrainJob, if it cannot be read from the cluster",
        )
        .at(FieldAccess::Setting { backend: "kubeflow", key: "runtime-file" })
        .flags(&[Flag::new("--runtime", "FILE").group(Group::Fabric).repeated().help(
            "Training runtime of a TrainJob (a YAML file with a ClusterTrainingRuntime or TrainingRuntime)",
        )])
        .example("\"runtime.yaml\""),
    ],
};

/// The whole file. A job is written in this order.
pub static JOB: Table = Table {
    name: "",
    doc: "A distributed job, described once for every backend.",
    keys: &[
        key("name", Shape::Text, "Name of the job; a DNS label, since clusters derive host names from it")
            .job(|job| &mut job.name)
            .flags(&[Flag::new("--name", "NAME").help("Name of the job")])
            .example("\"llama-8b\"")
            .required()
            .synonyms(&["job_name", "title", "id"]),
        IMAGE
            .job(|job| &mut job.image)
            .flags(&[Flag::new("--image", "IMAGE").short('i').help("Container image")]),
        key("launch", Shape::Word(LAUNCH), "Who starts the processes of a node")
            .job(|job| &mut job.launch)
            .flags(&[Flag::new("--launch", "WHO")])
            .example("\"torchrun\"")
            .synonyms(&["launcher", "framework", "mode"]),
        NODES,
        GPUS,
        RANKS,
        INSTANCE,
        COMMAND,
        CPUS,
        MEMORY,
        SHM,
        RESOURCES,
        key("workdir", Shape::Text, "Working directory in the container")
            .job(|job| &mut job.workdir)
            .flags(&[Flag::new("--workdir", "DIR")])
            .example("\"/workspace\"")
            .synonyms(&["working_dir", "cwd", "chdir"]),
        key("profile", Shape::Text, "Profile of the site (`dgxc`, `eks-image`, …) instead of the target's")
            .job(|job| &mut job.profile)
            .flags(&[Flag::new("--profile", "NAME").group(Group::Global)])
            .example("\"dgxc\"")
            .config(),
        key("queue", Shape::Text, "Queue, partition or node pool")
            .job(|job| &mut job.queue)
            .flags(&[Flag::new("--queue", "NAME")])
            .example("\"gpu\"")
            .config()
            .synonyms(&["partition", "node_pool", "queue_name"]),
        key("priority", Shape::Text, "Priority class, or qos on Slurm")
            .job(|job| &mut job.priority)
            .flags(&[Flag::new("--priority", "NAME")])
            .example("\"high\"")
            .config()
            .synonyms(&["qos", "priority_class", "priority_class_name"]),
        key(
            "restart",
            Shape::OneOf(&[Shape::Word(RESTART), Shape::Table(&RESTART_TABLE)]),
            "What happens when a rank fails",
        )
        .job(|job| &mut job.restart)
        .flags(&[Flag::new("--restart", "N")
            .help("What happens when a rank fails: never, on-failure, or the maximum number of restarts")])
        .example("{ max = 3 }")
        .config()
        .synonyms(&["restart_policy", "max_restarts", "backoff_limit"]),
        key(
            "retry",
            Shape::OneOf(&[Shape::Count { min: 1 }, Shape::Table(&RETRY_TABLE)]),
            "How often the job is submitted again after a failure of its nodes or of the cluster",
        )
        .job(|job| &mut job.retry)
        .flags(&[Flag::new("--retry", "N").help(
            "Submit the job again, at most N times, after a failure of its nodes or of the cluster, without the node that failed; with --follow or --wait",
        )])
        .example("{ max = 3 }")
        .synonyms(&["retries", "retry_policy", "resubmit"]),
        key(
            "avoid",
            Shape::Texts,
            "Nodes that the job does not run on, by name; `suspects` stands for those that the history suspects (`weftrun nodes`)",
        )
        .job(|job| &mut job.avoid)
        .flags(&[Flag::new("--avoid", "NODE").help(
            "Node that the job does not run on (repeatable, or NODE,NODE); `suspects` for those that the history suspects",
        )])
        .example("[\"gpu-17\"]")
        .synonyms(&["exclude", "exclude_nodes", "excluded_nodes", "anti_affinity", "blocklist"]),
        key("time_limit", Shape::Duration, "Time limit of the job")
            .job(|job| &mut job.time_limit)
            .flags(&[Flag::new("--time-limit", "TIME").help("Time limit of the job (90s, 15m, 4h, 1d12h)")])
            .example("\"12h\"")
            .config()
            .synonyms(&["time", "timeout", "max_duration", "walltime", "active_deadline_seconds"]),
        key(
            "after",
            Shape::Texts,
            "Jobs after whose success it starts: handles or names; `afterany:HANDLE` for after its end. Slurm and `local`",
        )
        .job(|job| &mut job.after)
        .flags(&[Flag::new("--after", "HANDLE").help(
            "Start after this job has succeeded: a handle or a name; `afterany:HANDLE` after its end (Slurm and local)",
        )])
        .example("\"slurm://prod/184223\"")
        .synonyms(&["depends_on", "dependency", "needs"]),
        key(
            "array",
            Shape::Text,
            "Makes it a job of many tasks with these numbers, as `sbatch --array` reads them (`0-19`, `1,3,5-7`, `0-19%4`). Each task has \
             its number in `WEFTRUN_TASK` and for `{task}` in its command. Slurm, `local` and `kubeflow`",
        )
        .job(|job| &mut job.array)
        .flags(&[Flag::new("--array", "TASKS").help(
            "Submit a job of many tasks with these numbers: 0-19, 1,3,5-7, 0-19%4 (Slurm, local and kubeflow)",
        )])
        .example("\"0-19\""),
        key(
            "sweep",
            Shape::Map(&Shape::Values),
            "Makes it a job of many tasks, one for each combination of these values, at most 1,000. Each task has the value of `lr` in \
             `WEFTRUN_SWEEP_LR` and for `{lr}` in its command",
        )
        .job(|job| &mut job.sweep)
        .flags(&[Flag::new("--sweep", "NAME=VALUES").help(
            "Submit a task for each of these values (lr=1e-3,1e-4), in the command as {lr}; of several, for each combination",
        )])
        .example("{ lr = [1e-3, 1e-4], seed = [1, 2] }")
        .synonyms(&["grid", "matrix", "params", "parameters", "hyperparameters"]),
        key("parallel", Shape::Count { min: 1 }, "Largest number of tasks that run at once. Slurm and `local`")
            .job(|job| &mut job.parallel)
            .flags(&[Flag::new("--parallel", "N").help("Largest number of tasks that run at once (Slurm and local)")])
            .example("4")
            .synonyms(&["max_parallel", "parallelism", "concurrency", "throttle"]),
        key("code", Shape::Table(&CODE), "Code sent with the job")
            .job(|job| &mut job.code)
            .example("{ script = \"train.py\" }")
            .synonyms(&["workspace", "source", "sync"]),
        key(
            "fabric",
            Shape::OneOf(&[Shape::Word(FABRIC), Shape::Table(&FABRIC_TABLE)]),
            "Which fabric to use, and which of its rules",
        )
        .at(FieldAccess::Request)
        .example("\"efa\"")
        .config()
        .synonyms(&["network", "interconnect", "network_tier"]),
        key(
            "bandwidth",
            Shape::Bool,
            "Measure NCCL's collectives with weftrun's library, which is brought with the job (`weftrun bandwidth JOB`)",
        )
        .fabric(|request| &mut request.bandwidth)
        .flags(&[Flag::new("--bandwidth", "")])
        .example("true")
        .config()
        .synonyms(&["profile_nccl", "nccl_profiler"]),
        ENV.job(|job| &mut job.env)
            .flags(&[Flag::new("--env", "NAME=VALUE").short('e').help("Environment variable")]),
        key(
            "secrets",
            Shape::Map(&Shape::OneOf(&[Shape::Text, Shape::Table(&SECRET)])),
            "Environment variables from the cluster's secret store: `VARIABLE = \"secret/key\"`",
        )
        .job(|job| &mut job.secrets)
        .flags(&[Flag::new("--secret", "NAME=SECRET/KEY")
            .help("Environment variable from the cluster's secret store")])
        .example("{ WANDB_API_KEY = \"wandb/api-key\" }")
        .config()
        .synonyms(&["secret", "secret_env"]),
        key("volumes", Shape::Named(&VOLUME), "Volumes by name")
            .job(|job| &mut job.volumes)
            .flags(&[Flag::new("--volume", "VOLUME").help(
                "Volume: NAME:/MOUNT=claim:CLAIM, =host:/PATH or =memory:SIZE; append `,ro` for read-only",
            )])
            .synonyms(&["volume", "mounts", "file_mounts", "storage"]),
        key("labels", Shape::Map(&Shape::Text), "Labels of the submitted job")
            .job(|job| &mut job.labels)
            .flags(&[Flag::new("--label", "KEY=VALUE").help("Label of the submitted job")])
            .example("{ team = \"nlp\" }")
            .config()
            .synonyms(&["tags"]),
        key("annotations", Shape::Map(&Shape::Text), "Annotations of every pod")
            .job(|job| &mut job.annotations)
            .flags(&[Flag::new("--annotation", "KEY=VALUE").help("Annotation of every pod")])
            .example("{ \"example.com/owner\" = \"me\" }")
            .config(),
        key("backend", Shape::Map(&Shape::Any), "Settings of one backend, by its name; passed on unchanged")
            .job(|job| &mut job.backend)
            .synonyms(&["backends"]),
        key(
            "roles",
            Shape::Named(&ROLE),
            "Groups of nodes by name, in order, if the job has more than one; each has the keys of a role",
        )
        .at(FieldAccess::Roles)
        .synonyms(&["replica_specs", "tasks", "groups"]),
    ],
};

/// All tables, in the order of the reference page.
pub static TABLES: [&Table; 8] =
    [&JOB, &ROLE, &FABRIC_TABLE, &VOLUME, &SECRET, &CODE, &RESTART_TABLE, &RETRY_TABLE];

/// Returns whether this is a key of a role that is at the top of the file where there is one role.
pub fn is_shorthand(name: &str) -> bool {
    JOB.key(name).is_some_and(|key| matches!(key.place, FieldAccess::Role(_)))
}
