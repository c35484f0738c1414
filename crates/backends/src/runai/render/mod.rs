//! Renders a planned job as the body of one create request. It contains only what the user or a rule set.

mod command;
mod own;
mod pod;

use serde_json::{Map, Value, json};
use weftrun_core::backend::{Document, Inexpressible, Language, Placeholder, PlannedJob, Prepared, Rendered};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role};
use weftrun_core::text::duration;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::version::{self, Version};
use crate::kubernetes::mpirun;
use crate::kubernetes::pod_name::too_long;
pub use command::CARRIER;
pub use own::JobSettings;
pub use pod::{MARKER, ROLE};

/// The endpoint that a body is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Several nodes.
    Distributed,
    /// One node.
    Trainings,
    /// An interactive workspace, if the job file sets `[backend.runai] workspace = true`.
    Workspaces,
}

impl Kind {
    /// Returns the word in the path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Distributed => "distributed",
            Self::Trainings => "trainings",
            Self::Workspaces => "workspaces",
        }
    }
}

/// Fields that weftrun adds, and omits if the server is too old; any other missing field was requested by the
/// user.
const OPTIONAL: [&str; 2] = ["mpiLauncherCreationPolicy", "restartPolicy"];

pub fn render(job: &PlannedJob, project: &str, version: Option<Version>) -> Result<Rendered> {
    job.spec.refuse_nul()?;
    job.spec.refuse_once("runai")?;
    let settings = JobSettings::of(&job.spec)?;
    let kind = kind(job, &settings)?;
    require_image(&job.spec, &settings)?;
    // The training operator makes the pods of a distributed workload.
    let longest = format!("{}-worker-{}", job.spec.name, job.spec.nodes().saturating_sub(1));
    if let Some(finding) = too_long(&job.spec.name, &longest).filter(|_| kind == Kind::Distributed) {
        let message = finding.message.clone();
        return Err(Error::from_findings(ErrorKind::InvalidSpec, message, vec![finding.at("name")]));
    }
    let mut inexpressible = Vec::new();
    let mut body = body(job, kind, &settings, &mut inexpressible)?;
    let unknown_ids = ServerId::of(job, &settings);
    let placeholders: Vec<_> = unknown_ids.iter().map(|id| id.placeholder(project)).collect();
    for (id, placeholder) in unknown_ids.iter().zip(&placeholders) {
        body[id.field()] = json!(format!("<{}>", placeholder.name));
    }
    let unknown = version::unknown(kind.path(), &body);
    if !unknown.is_empty() {
        return Err(own::no_such_field(kind, &unknown));
    }
    let mut findings = unexpressed(&job.spec, &settings);
    if version.is_none() {
        findings.extend(assumed_version(kind, &body));
    }
    let lost = version.map_or_else(Vec::new, |version| version::strip(kind.path(), version, &mut body));
    if lost.iter().any(|(field, _)| field == "spec.restartPolicy")
        && body["spec"].get("backoffLimit").is_none()
    {
        body["spec"]["backoffLimit"] = json!(0);
    }
    let mut applied: Vec<Op> = Vec::new();
    for op in &job.plan.ops {
        let stripped =
            lost.iter().find(|(field, _)| field_of(&op.change).is_some_and(|f| field.ends_with(f)));
        match stripped {
            _ if inexpressible.iter().any(|lost| &lost.op == op) => {}
            Some((field, first)) => inexpressible.push(Inexpressible {
                op: op.clone(),
                reason: format!("`{field}` is a field of {first}, and this control plane is older"),
            }),
            None => applied.push(op.clone()),
        }
    }
    refuse_lost_user_fields(&lost, &inexpressible)?;
    let text = serde_json::to_string_pretty(&body).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "a body cannot be written as JSON").with_source(error)
    })?;
    let title = format!("POST /api/v1/workloads/{}", kind.path());
    let document = Document { title, language: Language::Json, text };
    let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    rendered.placeholders = placeholders;
    rendered.findings = findings;
    rendered.prepared = Prepared::new(CreateRequest { kind, body, unknown_ids });
    Ok(rendered)
}

/// Refuses a job in which no part names an image: the control plane answers it with a 400 that does not
/// mention the image.
fn require_image(spec: &JobSpec, settings: &JobSettings) -> Result<()> {
    if settings.template.is_some() || settings.spec.contains_key("image") {
        return Ok(());
    }
    match spec.workers().find(|role| role.image.is_none() && spec.image.is_none()) {
        None => Ok(()),
        Some(role) => Err(Error::new(ErrorKind::InvalidSpec, "the job names no container image")
            .with("role", &role.name)
            .hint("set `image`, or name a template of the project with `template` in `[backend.runai]`")),
    }
}

/// Reports settings of the job file for which the API has no field.
fn unexpressed(spec: &JobSpec, settings: &JobSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(limit) = spec.time_limit {
        let shown = duration::format(limit);
        let message =
            format!("Run:ai has no time limit for workloads; `time_limit = \"{shown}\"` is not applied");
        let fix = format!(
            "start the command with `timeout {}s`, or stop it with `weftrun cancel`",
            limit.as_secs()
        );
        findings.push(Finding::warning("RUNAI-NOT-EXPRESSED", message).at("time_limit").fix(fix));
    }
    let own = settings.spec.get("storage").and_then(|storage| storage.get("emptyDirVolume"));
    let own =
        own.and_then(Value::as_array).into_iter().flatten().filter_map(|volume| volume["path"].as_str());
    let mounts_shm = spec.volumes.iter().map(|volume| volume.mount.as_str()).chain(own).any(pod::is_shm);
    for role in spec.roles.iter().filter(|_| !mounts_shm) {
        let Some(size) = &role.shm else { continue };
        let message = format!(
            "Run:ai only has a switch for a large `/dev/shm`; the size {size} of role `{}` is not applied",
            role.name
        );
        findings.push(Finding::warning("RUNAI-NOT-EXPRESSED", message).at("shm").fix(format!(
            "for an exact size (control plane 2.22 or newer) mount a volume: `--volume shm:/dev/shm=memory:{size}`"
        )));
    }
    findings
}

/// Names the fields that an older control plane would not get, if its version is unknown.
fn assumed_version(kind: Kind, body: &Value) -> Option<Finding> {
    let lost = version::strip(kind.path(), version::FIRST, &mut body.clone());
    if lost.is_empty() {
        return None;
    }
    let shown: Vec<String> = lost.iter().map(|(field, first)| format!("`{field}` ({first})")).collect();
    let message = format!(
        "the version of the control plane is not known here and {} is assumed; an older one is sent the body without \
         the fields it lacks: {}",
        version::NEWEST,
        shown.join(", ")
    );
    Some(
        Finding::info("RUNAI-VERSION-ASSUMED", message)
            .fix("set `version` in the target's table, or use `submit --dry-run=server`"),
    )
}

/// Returns the kind of workload for a job.
fn kind(job: &PlannedJob, settings: &JobSettings) -> Result<Kind> {
    let several = job.spec.nodes() > 1 || job.spec.launch == Launch::Mpi;
    match (settings.workspace, several) {
        (true, true) => {
            Err(Error::new(ErrorKind::Unsupported, "a Run:ai workspace is one node without mpirun")
                .with("nodes", job.spec.nodes())
                .hint("take `workspace` out of `[backend.runai]`, or set `nodes = 1`"))
        }
        (true, false) => Ok(Kind::Workspaces),
        (false, true) => Ok(Kind::Distributed),
        (false, false) => Ok(Kind::Trainings),
    }
}

/// Refuses to drop fields that the user set by name; weftrun's defaults and ops, which are reported, may be
/// dropped.
fn refuse_lost_user_fields(lost: &[(String, Version)], reported: &[Inexpressible]) -> Result<()> {
    let known = |field: &str| {
        OPTIONAL.iter().any(|ours| field.ends_with(ours))
            || reported.iter().any(|lost| field_of(&lost.op.change).is_some_and(|name| field.contains(name)))
    };
    match lost.iter().find(|(field, _)| !known(field)) {
        None => Ok(()),
        Some((field, first)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("`{field}` needs control plane {first} or newer"),
        )
        .hint("take the setting out of the job, or set `version` in the target's table if the version was read wrong")),
    }
}

fn field_of(change: &Change) -> Option<&'static str> {
    match change {
        Change::NodeSelector { .. } => Some("nodeAffinityRequired"),
        Change::Toleration { .. } => Some("tolerations"),
        _ => None,
    }
}

/// An id that only the server knows. A rendered body has a placeholder for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerId {
    Project,
    Cluster,
    /// The template with this name.
    Template(String),
}

impl ServerId {
    /// Returns the ids that are looked up when the job is submitted.
    fn of(job: &PlannedJob, settings: &JobSettings) -> Vec<Self> {
        let unknown = |name: &str| !job.facts.ids.contains_key(name);
        let project = unknown("project-id").then_some(Self::Project);
        let cluster = unknown("cluster-id").then_some(Self::Cluster);
        let template = settings.template.clone().map(Self::Template);
        project.into_iter().chain(cluster).chain(template).collect()
    }

    /// Returns the body's field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Project => "projectId",
            Self::Cluster => "clusterId",
            Self::Template(_) => "templateId",
        }
    }

    fn placeholder(&self, project: &str) -> Placeholder {
        let (name, what) = match self {
            Self::Project => (
                format!("project-id:{project}"),
                "the project's id, looked up by name when the job is submitted",
            ),
            Self::Cluster => (
                format!("cluster-id:{project}"),
                "the id of the project's cluster, looked up when the job is submitted",
            ),
            Self::Template(template) => (
                format!("template-id:{template}"),
                "the id of the template, looked up by name when the job is submitted",
            ),
        };
        Placeholder { name, what: what.to_owned() }
    }
}

/// The request that creates a workload.
pub struct CreateRequest {
    pub kind: Kind,
    /// The body as it is shown, with placeholders for the ids that only the server knows.
    pub body: Value,
    /// These ids.
    pub unknown_ids: Vec<ServerId>,
}

fn body(
    job: &PlannedJob,
    kind: Kind,
    settings: &JobSettings,
    lost: &mut Vec<Inexpressible>,
) -> Result<Value> {
    let mut body = Map::new();
    body.insert("name".into(), json!(job.spec.name));
    body.insert("projectId".into(), json!(job.facts.ids.get("project-id")));
    body.insert("clusterId".into(), json!(job.facts.ids.get("cluster-id")));
    if settings.template.is_some() {
        body.insert("templateId".into(), Value::Null);
    }
    let (master, worker) = split(job)?;
    let mpi = job.spec.launch == Launch::Mpi;
    let mut spec = pod::pod(job, worker, &command::node(job, worker, mpi)?, lost)?;
    if kind == Kind::Distributed {
        let workers = if master.is_some() || mpi { worker.nodes } else { worker.nodes.saturating_sub(1) };
        spec.insert("distributedFramework".into(), json!(if mpi { "MPI" } else { "PyTorch" }));
        spec.insert("numWorkers".into(), json!(workers.max(1)));
    }
    if mpi {
        spec.insert("slotsPerWorker".into(), json!(worker.procs_per_node()));
        // The launcher must not start before the workers are reachable: with AtStartup half of the runs
        // failed on the mpi-operator that this platform uses (seen 2026-11-21 on our own test cluster).
        spec.insert("mpiLauncherCreationPolicy".into(), json!("WaitForWorkersReady"));
    }
    restart(&mut spec, job.spec.restart, kind == Kind::Distributed && !mpi);
    own::merge(&mut spec, &settings.spec);
    if kind == Kind::Distributed {
        let mut master = match master {
            Some(role) => Some(pod::pod(job, role, &command::node(job, role, false)?, lost)?),
            None if mpi => Some(launcher(job, worker, settings, lost)?),
            // It is built from the workers' fields, since it inherits none of them.
            None if !settings.master.is_empty() => Some(own::of_the_pod(&spec)),
            None => None,
        };
        if let Some(master) = &mut master {
            own::merge(master, &settings.master);
        }
        match master {
            Some(master) => body.insert("masterSpec".into(), Value::Object(master)),
            None => body.insert("masterSpecSameAsWorker".into(), json!(true)),
        };
    }
    body.insert("spec".into(), Value::Object(spec));
    Ok(Value::Object(body))
}

/// Returns the role of the master, if it has its own, and that of the workers.
fn split(job: &PlannedJob) -> Result<(Option<&Role>, &Role)> {
    let workers: Vec<&Role> = job.spec.workers().collect();
    match workers.as_slice() {
        [worker] => Ok((None, worker)),
        [master, worker] if master.nodes == 1 && job.spec.launch != Launch::Mpi => Ok((Some(master), worker)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "Run:ai has one master and one kind of worker, and this job has other roles",
        )
        .with("roles", workers.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(", "))
        .hint("give all nodes one role, or one role of one node and one of all others")),
    }
}

/// Returns the launcher of an MPI job: it inherits nothing, and requests no devices of the fabric.
fn launcher(
    job: &PlannedJob,
    worker: &Role,
    settings: &JobSettings,
    lost: &mut Vec<Inexpressible>,
) -> Result<Map<String, Value>> {
    let mut launcher = mpirun::launcher(&job.spec, worker);
    let words = command::launcher(job, worker, &launcher, &settings.mpirun_args)?;
    // By default the launcher is small.
    launcher.cpus.get_or_insert_with(|| "1".into());
    launcher.memory.get_or_insert_with(|| "2Gi".into());
    pod::pod(job, &launcher, &words, lost)
}

/// Sets what happens when a rank fails. A PyTorchJob whose pods are never restarted fails at once; with a
/// limit of 0 it also failed when it was resumed after a suspend (seen 2026-11-21 on our own test cluster). A
/// Job tries six times.
fn restart(spec: &mut Map<String, Value>, policy: RestartPolicy, pods_restart: bool) {
    match policy {
        RestartPolicy::OnFailure { max } => spec.insert("backoffLimit".into(), json!(max)),
        RestartPolicy::Never if pods_restart => spec.insert("restartPolicy".into(), json!("Never")),
        RestartPolicy::Never => spec.insert("backoffLimit".into(), json!(0)),
    };
}
