//! The flags of the official `runai`, as documented: of 2.13 (`submit`, `submit-dist`) and of 2.18 to 2.25
//! (`training … submit`, `workspace submit`). Read 2026-11-21.

/// How a flag is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    Name,
    NamePrefix,
    Project,
    Image,
    Workers,
    NoMaster,
    Gpus,
    Cpus,
    Memory,
    Workdir,
    Queue,
    Priority,
    Backoff,
    Interactive,
    Command,
    Env,
    EnvSecret,
    EnvField,
    Annotation,
    Label,
    Resource,
    MasterResource,
    Claim,
    OldClaim,
    HostPath,
    OldVolume,
    /// An entry of a list of the API, with `key=value` parts.
    Entry(&'static str, &'static [Part]),
    NewClaim,
    ExcludedNode,
    Topology(&'static str),
    Framework,
    Args,
    RunAsUser,
    Preemptible,
    OldPort,
    /// A field of the API's `spec`, by its path.
    Field(&'static str, Shape),
    /// A field of the API's `masterSpec`.
    Master(&'static str),
    Template,
    /// No equivalent in a job file; the text is what to do instead.
    Lost(&'static str),
    /// An action of the client that is not part of a job; the text is what to do instead.
    Client(&'static str),
}

/// The JSON type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Number,
    Switch,
    List,
    /// A duration, in seconds.
    Seconds,
    /// An amount of memory, which older command lines write as `8GB`.
    Memory,
}

/// A part of an entry: its key on the command line, the API's field, and the type of its value.
pub(super) type Part = (&'static str, &'static str, Shape);

pub(super) struct Flag {
    pub names: &'static [&'static str],
    pub means: Means,
}

const fn flag(names: &'static [&'static str], means: Means) -> Flag {
    Flag { names, means }
}

use Means::{Client, Entry, Field, Lost, Master, Topology};
use Shape::{List, Memory, Number, Seconds, Switch, Text};

/// `--nfs path=…,server=…,mountpath=…[,readwrite]`.
const NFS: &[Part] = &[
    ("path", "path", Text),
    ("server", "server", Text),
    ("mountpath", "mountPath", Text),
    ("readwrite", "!readOnly", Switch),
    ("name", "name", Text),
];
/// `--git-sync name=…,repository=…,path=…,secret=…,rev=…`; 2.13 wrote `source`, `target`, `branch`.
const GIT: &[Part] = &[
    ("name", "name", Text),
    ("repository", "repository", Text),
    ("source", "repository", Text),
    ("path", "path", Text),
    ("target", "path", Text),
    ("secret", "passwordSecret", Text),
    ("rev", "revision", Text),
    ("revision", "revision", Text),
    ("branch", "branch", Text),
];
const S3: &[Part] = &[
    ("name", "name", Text),
    ("bucket", "bucket", Text),
    ("path", "path", Text),
    ("url", "url", Text),
    ("accesskey", "accessKeySecret", Text),
];
const CONFIG_MAP: &[Part] = &[
    ("name", "configMap", Text),
    ("path", "mountPath", Text),
    ("subpath", "subPath", Text),
    ("default-mode", "defaultMode", Text),
];
const SECRET: &[Part] =
    &[("name", "secret", Text), ("path", "mountPath", Text), ("default-mode", "defaultMode", Text)];
const EMPTY_DIR: &[Part] = &[
    ("name", "name", Text),
    ("path", "path", Text),
    ("medium", "medium", Text),
    ("size-limit", "sizeLimit", Memory),
];
const TOLERATION: &[Part] = &[
    ("operator", "operator", Text),
    ("key", "key", Text),
    ("value", "value", Text),
    ("effect", "effect", Text),
    ("name", "name", Text),
    ("seconds", "seconds", Seconds),
];
pub(super) const PORT: &[Part] = &[
    ("container", "container", Number),
    ("service-type", "serviceType", Text),
    ("external", "external", Number),
    ("name", "name", Text),
];
const URL: &[Part] = &[
    ("container", "container", Number),
    ("url", "url", Text),
    ("authusers", "authorizedUsers", List),
    ("authgroups", "authorizedGroups", List),
    ("name", "name", Text),
];

pub(super) const FLAGS: &[Flag] = &[
    flag(&["name"], Means::Name),
    flag(&["name-prefix", "job-name-prefix"], Means::NamePrefix),
    flag(&["project", "p"], Means::Project),
    flag(&["image", "i"], Means::Image),
    flag(&["workers"], Means::Workers),
    flag(&["framework", "f"], Means::Framework),
    flag(&["no-master"], Means::NoMaster),
    flag(&["gpu-devices-request", "gpu", "g"], Means::Gpus),
    flag(&["cpu-core-request", "cpu-request", "cpu", "c"], Means::Cpus),
    flag(&["cpu-memory-request", "memory-request", "memory"], Means::Memory),
    flag(&["working-dir"], Means::Workdir),
    flag(&["node-pools", "node-pool"], Means::Queue),
    flag(&["priority"], Means::Priority),
    flag(&["backoff-limit", "backoffLimit"], Means::Backoff),
    flag(&["interactive"], Means::Interactive),
    flag(&["command"], Means::Command),
    flag(&["arguments", "args"], Means::Args),
    flag(&["environment-variable", "environment", "e"], Means::Env),
    flag(&["env-secret"], Means::EnvSecret),
    flag(&["env-pod-field-ref"], Means::EnvField),
    flag(&["annotation", "a"], Means::Annotation),
    flag(&["label", "l"], Means::Label),
    flag(&["extended-resource"], Means::Resource),
    flag(&["master-extended-resource"], Means::MasterResource),
    flag(&["existing-pvc"], Means::Claim),
    flag(&["pvc", "pvc-exists"], Means::OldClaim),
    flag(&["host-path"], Means::HostPath),
    flag(&["volume", "v"], Means::OldVolume),
    flag(&["new-pvc"], Means::NewClaim),
    flag(&["nfs"], Entry("storage.nfs", NFS)),
    flag(&["git-sync"], Entry("storage.git", GIT)),
    flag(&["s3"], Entry("storage.s3", S3)),
    flag(&["configmap-map-volume", "configmap-volume"], Entry("storage.configMapVolume", CONFIG_MAP)),
    flag(&["secret-volume"], Entry("storage.secretVolume", SECRET)),
    flag(&["empty-dir-volume"], Entry("storage.emptyDirVolume", EMPTY_DIR)),
    flag(&["toleration"], Entry("tolerations", TOLERATION)),
    flag(&["port"], Means::OldPort),
    flag(&["external-url"], Entry("exposedUrls", URL)),
    flag(&["exclude-node"], Means::ExcludedNode),
    flag(&["required-pod-topology-key"], Topology("Required")),
    flag(&["preferred-pod-topology-key"], Topology("Preferred")),
    flag(&["run-as-user"], Means::RunAsUser),
    flag(&["preemptible"], Means::Preemptible),
    flag(&["parallelism"], Field("parallelism", Number)),
    flag(&["completions"], Field("completions", Number)),
    flag(&["image-pull-secret"], Entry("imagePullSecrets", &[("name", "name", Text)])),
    flag(&["datavolume"], Lost("set `storage.dataVolume` with the volume's id in `[backend.runai.spec]`")),
    flag(&["datasource"], Lost("set the fields of the asset in `[backend.runai.spec.storage]`")),
    flag(&["compute"], Lost("set `gpus_per_node`, `cpus` and `memory` as the compute asset has them")),
    flag(&["privileged"], Lost("no field of the API is known for it (control planes up to 2.24)")),
    flag(&["mnnvl"], Lost("no field of the API is known for it (control planes up to 2.24)")),
    flag(&["env-my-credentials"], Lost("name a secret of the project in `secrets`")),
    flag(&["image-pull-my-credentials"], Lost("set `imagePullSecrets` in `[backend.runai.spec]`")),
    flag(&["service-type"], Lost("set `ports` in `[backend.runai.spec]`")),
    flag(&["template"], Means::Template),
    flag(&["master-command"], Master("command")),
    flag(&["master-args"], Master("args")),
    flag(&["image-pull-policy"], Field("imagePullPolicy", Text)),
    flag(&["create-home-dir"], Field("createHomeDir", Switch)),
    flag(&["tty", "t"], Field("tty", Switch)),
    flag(&["stdin"], Field("stdin", Switch)),
    flag(&["min-replicas"], Field("minReplicas", Number)),
    flag(&["max-replicas"], Field("maxReplicas", Number)),
    flag(&["slots-per-worker"], Field("slotsPerWorker", Number)),
    flag(&["ssh-auth-mount-path"], Field("sshAuthMountPath", Text)),
    flag(&["launcher-creation-policy"], Field("mpiLauncherCreationPolicy", Text)),
    flag(&["clean-pod-policy"], Field("cleanPodPolicy", Text)),
    flag(&["restart-policy"], Field("restartPolicy", Text)),
    flag(&["termination-grace-period"], Field("terminationGracePeriodSeconds", Seconds)),
    flag(
        &["auto-deletion-time-after-completion", "ttl-after-finish"],
        Field("autoDeletionTimeAfterCompletionSeconds", Seconds),
    ),
    flag(&["preemptibility"], Field("preemptibility", Text)),
    flag(&["category"], Field("category", Text)),
    flag(&["node-type"], Field("nodeType", Text)),
    flag(&["gpu-request-type"], Field("compute.gpuRequestType", Text)),
    flag(&["gpu-portion-request"], Field("compute.gpuPortionRequest", Number)),
    flag(&["gpu-portion-limit"], Field("compute.gpuPortionLimit", Number)),
    flag(&["gpu-memory-request", "gpu-memory"], Field("compute.gpuMemoryRequest", Memory)),
    flag(&["gpu-memory-limit"], Field("compute.gpuMemoryLimit", Memory)),
    flag(&["cpu-core-limit", "cpu-limit"], Field("compute.cpuCoreLimit", Number)),
    flag(&["cpu-memory-limit", "memory-limit"], Field("compute.cpuMemoryLimit", Memory)),
    flag(&["large-shm"], Field("compute.largeShmRequest", Switch)),
    flag(&["capability"], Field("security.capabilities", List)),
    flag(&["host-ipc"], Field("security.hostIpc", Switch)),
    flag(&["host-network"], Field("security.hostNetwork", Switch)),
    flag(&["run-as-uid"], Field("security.runAsUid", Number)),
    flag(&["run-as-gid"], Field("security.runAsGid", Number)),
    flag(&["run-as-non-root"], Field("security.runAsNonRoot", Switch)),
    flag(&["user-group-source"], Field("security.uidGidSource", Text)),
    flag(&["supplemental-groups"], Field("security.supplementalGroups", Text)),
    flag(&["seccomp-profile"], Field("security.seccompProfileType", Text)),
    flag(&["allow-privilege-escalation"], Field("security.allowPrivilegeEscalation", Switch)),
    flag(&["wait-for-submit", "pod-running-timeout"], Client("`weftrun wait` waits")),
    flag(&["attach"], Client("`weftrun submit --follow` shows the logs")),
    flag(&["dry-run"], Client("`weftrun render` prints what would be sent")),
];

/// Returns whether a flag has no value.
pub(super) fn is_switch(means: Means) -> bool {
    matches!(
        means,
        Means::NoMaster
            | Means::Interactive
            | Means::Command
            | Means::Preemptible
            | Means::RunAsUser
            | Field(_, Switch)
    ) || matches!(means, Lost(text) if text.starts_with("no field"))
        || matches!(means, Client(text) if !text.contains("wait"))
}
