//! The flags of the official `runai`, as its documents list them: of 2.13 (`submit`, `submit-dist`) and of 2.18 to 2.25
//! (`training … submit`, `workspace submit`). Read 2026-11-21.

/// What a flag means to a job file.
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
    Nfs,
    Git,
    Toleration,
    /// A field of the API's `spec`, by its path.
    Field(&'static str, Shape),
    /// A field of the API's `masterSpec`.
    Master(&'static str),
    Template,
    /// What the client does and no job carries; the text says what to do instead.
    Client(&'static str),
}

/// The JSON a flag's value becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Number,
    Switch,
    List,
}

pub(super) struct Flag {
    pub names: &'static [&'static str],
    pub means: Means,
}

const fn flag(names: &'static [&'static str], means: Means) -> Flag {
    Flag { names, means }
}

use Means::{Client, Field, Master};
use Shape::{List, Number, Switch, Text};

pub(super) const FLAGS: &[Flag] = &[
    flag(&["name"], Means::Name),
    flag(&["name-prefix", "job-name-prefix"], Means::NamePrefix),
    flag(&["project", "p"], Means::Project),
    flag(&["image", "i"], Means::Image),
    flag(&["workers"], Means::Workers),
    flag(&["no-master"], Means::NoMaster),
    flag(&["gpu-devices-request", "gpu", "g"], Means::Gpus),
    flag(&["cpu-core-request", "cpu", "c"], Means::Cpus),
    flag(&["cpu-memory-request", "memory"], Means::Memory),
    flag(&["working-dir"], Means::Workdir),
    flag(&["node-pools", "node-pool"], Means::Queue),
    flag(&["priority"], Means::Priority),
    flag(&["backoff-limit", "backoffLimit"], Means::Backoff),
    flag(&["interactive"], Means::Interactive),
    flag(&["command"], Means::Command),
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
    flag(&["nfs"], Means::Nfs),
    flag(&["git-sync"], Means::Git),
    flag(&["toleration"], Means::Toleration),
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
    flag(&["termination-grace-period"], Field("terminationGracePeriodSeconds", Number)),
    flag(
        &["auto-deletion-time-after-completion", "ttl-after-finish"],
        Field("autoDeletionTimeAfterCompletionSeconds", Number),
    ),
    flag(&["preemptibility"], Field("preemptibility", Text)),
    flag(&["category"], Field("category", Text)),
    flag(&["node-type"], Field("nodeType", Text)),
    flag(&["gpu-request-type"], Field("compute.gpuRequestType", Text)),
    flag(&["gpu-portion-request"], Field("compute.gpuPortionRequest", Number)),
    flag(&["gpu-portion-limit"], Field("compute.gpuPortionLimit", Number)),
    flag(&["gpu-memory-request", "gpu-memory"], Field("compute.gpuMemoryRequest", Text)),
    flag(&["gpu-memory-limit"], Field("compute.gpuMemoryLimit", Text)),
    flag(&["cpu-core-limit", "cpu-limit"], Field("compute.cpuCoreLimit", Number)),
    flag(&["cpu-memory-limit", "memory-limit"], Field("compute.cpuMemoryLimit", Text)),
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

/// Flags without a value behind them.
pub(super) fn is_switch(means: Means) -> bool {
    matches!(means, Means::NoMaster | Means::Interactive | Means::Command | Field(_, Switch))
        || matches!(means, Client(text) if !text.contains("wait"))
}
