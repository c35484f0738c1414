//! Every key a job file may have: the one table behind the checks, the reference page and the JSON schema.

use super::shape::{Key, Shape, Table, Word, key};

const fn word(word: &'static str, doc: &'static str) -> Word {
    Word { word, doc }
}

const LAUNCH: &[Word] = &[
    word("per-node", "the command is started once per node and does the rest itself (default)"),
    word("per-rank", "the command is started once per GPU"),
    word("torchrun", "the command is a Python script with its arguments; torchrun is started once per node"),
    word(
        "once",
        "the command is started once, on the first node, and starts the ranks itself, as a batch script does (Slurm)",
    ),
    word("mpi", "one launcher starts the program on all nodes with mpirun"),
];

const FABRIC: &[Word] = &[
    word("auto", "whatever the nodes have; a job that cannot have it runs without (default)"),
    word("efa", "AWS Elastic Fabric Adapter; an error where the job cannot have it"),
    word("roce", "RDMA over Converged Ethernet"),
    word("infiniband", "InfiniBand"),
    word("tcp", "plain TCP sockets"),
    word("off", "leave the job alone"),
];

const RULE: &[Word] = &[
    word("auto", "applies when it fits, else is skipped with a reason"),
    word("on", "must apply; an error where it cannot"),
    word("off", "does not apply, nor does what depends on it"),
];

const STACK: &[Word] = &[
    word("auto", "mounted, unless the job names paths of a bundled one (default)"),
    word("mounted", "the fabric's libraries are mounted from the node"),
    word("bundled", "the image has them"),
];

const INJECT: &[Word] = &[
    word("client", "weftrun adds the stack (default)"),
    word("server", "the cluster's webhook does; weftrun only rewrites mpirun"),
];

const WEBHOOK: &[Word] = &[
    word("auto", "ask the cluster; offline, assume none (default)"),
    word("yes", "a webhook of the cluster adds EFA on its own"),
    word("no", "there is none"),
];

const ROLE_KIND: &[Word] = &[
    word("worker", "its processes are ranks (default)"),
    word("launcher", "it starts the ranks and has none itself (default for a role named `launcher`)"),
];

const RESTART: &[Word] = &[
    word("never", "a failed rank fails the job (default)"),
    word("on-failure", "all ranks start again, at most 3 times; `{ max = N }` says how often"),
];

/// Keys of a role; a job with one role has them at the top.
const NODES: Key = key("nodes", Shape::Count { min: 1 }, "Number of GPU nodes in total (pods, hosts)")
    .example("4")
    .alias(&["replicas"])
    .synonyms(&["num_nodes", "nnodes", "workers", "num_workers", "instance_count", "node_count"]);
const GPUS: Key = key("gpus_per_node", Shape::Count { min: 0 }, "GPUs asked on each node")
    .example("8")
    .synonyms(&["gpus", "gpu", "num_gpus", "accelerators", "gpu_count", "gres"]);
const RANKS: Key = key("ranks_per_node", Shape::Count { min: 1 }, "Ranks on each node, if not one per GPU")
    .example("8")
    .synonyms(&["nproc_per_node", "procs_per_node", "ntasks_per_node", "tasks_per_node", "slots_per_worker"]);
const INSTANCE: Key = key(
    "instance_type",
    Shape::Text,
    "Instance type of the nodes (`weftrun instances` lists them): sizes EFA, checks GPUs, selects nodes",
)
.example("\"p5.48xlarge\"")
.config()
.synonyms(&["instance", "node_type", "device_type", "machine_type"]);
const COMMAND: Key = key(
    "command",
    Shape::Command,
    "The program and its arguments: a list, or a string that is split into words as a shell would, without a shell. \
     For `launch = \"torchrun\"` the Python script and its arguments",
)
.example("[\"train.py\", \"--epochs\", \"3\"]")
.synonyms(&["run", "args", "cmd", "entrypoint", "script"]);
const CPUS: Key = key("cpus", Shape::Quantity, "CPUs of each node").example("180").synonyms(&[
    "cpu",
    "vcpus",
    "cpus_per_node",
]);
const MEMORY: Key =
    key("memory", Shape::Quantity, "Memory of each node").example("\"1800Gi\"").synonyms(&["mem", "ram"]);
const SHM: Key = key("shm", Shape::Quantity, "Size of /dev/shm, in memory")
    .example("\"64Gi\"")
    .synonyms(&["shm_size", "shared_memory"]);
const RESOURCES: Key = key(
    "resources",
    Shape::Map(&Shape::Quantity),
    "Further resources of each node by name; what is set here is kept by the fabric's rules",
)
.example("{ \"vpc.amazonaws.com/efa\" = 32 }")
.synonyms(&["limits", "requests", "extended_resources"]);
const IMAGE: Key =
    key("image", Shape::Text, "Container image; none for `local`, and for Slurm without containers")
        .example("\"nvcr.io/nvidia/pytorch:25.09-py3\"")
        .config()
        .synonyms(&["container_image", "container", "docker_image", "image_id"]);
const ENV: Key = key("env", Shape::Map(&Shape::Scalar), "Environment, taken literally: nothing is expanded")
    .example("{ NCCL_DEBUG = \"INFO\" }")
    .config()
    .synonyms(&["envs", "environment", "environment_variables", "env_vars"]);

/// `[roles.NAME]`.
pub static ROLE: Table = Table {
    name: "roles.NAME",
    doc: "A group of equal nodes. A job with one role has these keys at the top instead.",
    keys: &[
        key("kind", Shape::Word(ROLE_KIND), "What its processes are to NCCL").example("\"worker\""),
        NODES,
        GPUS,
        RANKS,
        INSTANCE,
        COMMAND,
        CPUS,
        MEMORY,
        SHM,
        RESOURCES,
        IMAGE,
        ENV,
    ],
};

/// `[volumes.NAME]`.
pub static VOLUME: Table = Table {
    name: "volumes.NAME",
    doc: "Something mounted into every role: exactly one of `host_path`, `claim` and `memory` says what.",
    keys: &[
        key("mount", Shape::Text, "Where it appears in the container")
            .example("\"/data\"")
            .required()
            .synonyms(&["mount_path", "path", "target", "container_path"]),
        key("host_path", Shape::Text, "A folder of the node, or of the shared file system on Slurm")
            .example("\"/fsx/data\"")
            .synonyms(&["source", "host", "hostpath"]),
        key("claim", Shape::Text, "A PersistentVolumeClaim").example("\"datasets\"").synonyms(&[
            "pvc",
            "claim_name",
            "existing_claim",
        ]),
        key("memory", Shape::OneOf(&[Shape::Bool, Shape::Quantity]), "Memory: `true`, or its upper limit")
            .example("\"64Gi\"")
            .synonyms(&["size", "tmpfs"]),
        key("read_only", Shape::Bool, "Whether writing is refused")
            .example("true")
            .synonyms(&["ro", "readonly"]),
    ],
};

/// `code`.
pub static CODE: Table = Table {
    name: "code",
    doc: "Code brought along, beside what the image has: `script`, or `git`.",
    keys: &[
        key("script", Shape::Text, "One file, carried inside the job; a path beside the job file")
            .example("\"train.py\"")
            .synonyms(&["file", "path"]),
        key("text", Shape::Text, "The script's text, where it is not to be read from a file"),
        key("git", Shape::Text, "A Git repository, cloned before the start")
            .example("\"https://git.example.com/team/train.git\"")
            .synonyms(&["url", "repo", "repository"]),
        key("ref", Shape::Text, "Branch, tag or commit")
            .example("\"main\"")
            .synonyms(&["rev", "branch", "tag", "commit"]),
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

/// `restart`.
pub static RESTART_TABLE: Table = Table {
    name: "restart",
    doc: "All ranks start again when one fails.",
    keys: &[key("max", Shape::Count { min: 1 }, "Most restarts").example("3").required().synonyms(&[
        "on_failure",
        "retries",
        "limit",
    ])],
};

/// `fabric`.
pub static FABRIC_TABLE: Table = Table {
    name: "fabric",
    doc: "Which fabric, and which of its rules. `fabric = \"efa\"` is short for `fabric.kind = \"efa\"`.",
    keys: &[
        key("kind", Shape::Word(FABRIC), "The fabric")
            .example("\"efa\"")
            .config()
            .synonyms(&["type", "name"]),
        key("rules", Shape::Rules(RULE), "Rules by id (`weftrun explain` lists them)")
            .example("{ \"efa.hugepages\" = \"off\" }")
            .config()
            .synonyms(&["rule", "disable"]),
        key("gid", Shape::Gid, "How the RoCE GID index is found: `auto`, `compute`, or a number")
            .example("\"auto\"")
            .config()
            .synonyms(&["gid_index"]),
        key(
            "network",
            Shape::Texts,
            "Network attachments (`namespace/name`) instead of the profile's: one, or a list",
        )
        .example("\"kube-system/roce\"")
        .config()
        .synonyms(&["networks"]),
        key("stack", Shape::Word(STACK), "Where the fabric's libraries come from")
            .example("\"auto\"")
            .config(),
        key("strict", Shape::Bool, "Pin the network plugin, so that a silent fallback is a failure")
            .example("true")
            .config(),
        key("inject", Shape::Word(INJECT), "Who adds the stack to the pods").example("\"client\"").config(),
        key("webhook", Shape::Word(WEBHOOK), "Whether a webhook of the cluster adds EFA on its own")
            .example("\"auto\"")
            .config(),
        key(
            "detect",
            Shape::Bool,
            "Set NCCL_DEBUG=INFO where it is unset, without which no transport can be seen",
        )
        .example("true")
        .config(),
        key(
            "trainer_version",
            Shape::Text,
            "Version of Kubeflow Trainer a TrainJob is written for (`2.0` to `2.3`)",
        )
        .example("\"2.3\"")
        .config(),
        key(
            "runtime",
            Shape::Text,
            "File with the TrainJob's runtime, where it cannot be read from the cluster",
        )
        .example("\"runtime.yaml\""),
    ],
};

/// The whole file.
pub static JOB: Table = Table {
    name: "",
    doc: "A distributed job, described once for every backend.",
    keys: &[
        key("name", Shape::Text, "Name of the job; a DNS label, since clusters make host names of it")
            .example("\"llama-8b\"")
            .required()
            .synonyms(&["job_name", "title", "id"]),
        IMAGE,
        key("launch", Shape::Word(LAUNCH), "Who starts the processes of a node")
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
        key(
            "roles",
            Shape::Named(&ROLE),
            "Groups of nodes by name, in order, where the job has more than one; the keys of a role then stand there",
        )
        .synonyms(&["replica_specs", "tasks", "groups"]),
        key("code", Shape::Table(&CODE), "Code brought along")
            .example("{ script = \"train.py\" }")
            .synonyms(&["workspace", "source", "sync"]),
        ENV,
        key(
            "secrets",
            Shape::Map(&Shape::OneOf(&[Shape::Text, Shape::Table(&SECRET)])),
            "Environment from the cluster's secret store: `VARIABLE = \"secret/key\"`",
        )
        .example("{ WANDB_API_KEY = \"wandb/api-key\" }")
        .config()
        .synonyms(&["secret", "secret_env"]),
        key("volumes", Shape::Named(&VOLUME), "Volumes by name")
            .synonyms(&["volume", "mounts", "file_mounts", "storage"]),
        key("workdir", Shape::Text, "Working directory in the container")
            .example("\"/workspace\"")
            .synonyms(&["working_dir", "cwd", "chdir"]),
        key(
            "fabric",
            Shape::OneOf(&[Shape::Word(FABRIC), Shape::Table(&FABRIC_TABLE)]),
            "Which fabric, and which of its rules",
        )
        .example("\"efa\"")
        .config()
        .synonyms(&["network", "interconnect", "network_tier"]),
        key("profile", Shape::Text, "Profile of the site (`dgxc`, `eks-image`, …); the target's otherwise")
            .example("\"dgxc\"")
            .config(),
        key("queue", Shape::Text, "Queue, partition or node pool")
            .example("\"gpu\"")
            .config()
            .synonyms(&["partition", "node_pool", "queue_name"]),
        key("priority", Shape::Text, "Priority class, or qos on Slurm")
            .example("\"high\"")
            .config()
            .synonyms(&["qos", "priority_class", "priority_class_name"]),
        key(
            "restart",
            Shape::OneOf(&[Shape::Word(RESTART), Shape::Table(&RESTART_TABLE)]),
            "What happens when a rank fails",
        )
        .example("{ max = 3 }")
        .config()
        .synonyms(&["restart_policy", "retry", "retries", "max_restarts", "backoff_limit"]),
        key("time_limit", Shape::Duration, "How long the job may run")
            .example("\"12h\"")
            .config()
            .synonyms(&["time", "timeout", "max_duration", "walltime", "active_deadline_seconds"]),
        key("labels", Shape::Map(&Shape::Text), "Labels on what is submitted")
            .example("{ team = \"nlp\" }")
            .config()
            .synonyms(&["tags"]),
        key("annotations", Shape::Map(&Shape::Text), "Annotations on every pod")
            .example("{ \"example.com/owner\" = \"me\" }")
            .config(),
        key("backend", Shape::Map(&Shape::Any), "Settings only one backend knows, by its name; passed on as they are")
            .synonyms(&["backends"]),
    ],
};

/// All tables, in the order of the reference page.
pub static TABLES: [&Table; 7] = [&JOB, &ROLE, &FABRIC_TABLE, &VOLUME, &SECRET, &CODE, &RESTART_TABLE];

/// Keys of a role that may stand at the top when there is one role. `image` and `env` are the job's there.
pub fn is_shorthand(name: &str) -> bool {
    !matches!(name, "kind" | "image" | "env") && ROLE.key(name).is_some()
}
