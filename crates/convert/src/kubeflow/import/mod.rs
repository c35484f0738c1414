//! Converts a Kubeflow object to a job file. Everything a job file can express is removed from the object;
//! what remains at the end could not be converted, and is reported place by place.

mod command;
mod container;
mod pod;
mod policy;
mod rest;

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::document::{Pointers, Syntax, unreadable};
use super::object_kind::{ObjectKind, kind_of_json};
use crate::Imported;
use crate::{Start, TrainerVersion};
use weftrun_core::fabric::too_many_roles;
use weftrun_core::fabric::view::{JobKind, Workload};
use weftrun_core::span::SpanTree;
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role, RoleKind, Volume, VolumeSource};
use weftrun_core::{Error, ErrorKind, Finding};

pub(crate) use command::{OURS, torchrun, torchrun_is_ours};
pub(crate) use container::unescape;
use container::{Container, SHM};
use rest::Rest;

/// Returns the refusal of a text whose objects are of these kinds, none of which was imported.
pub fn no_job(kinds: &[String]) -> Option<Error> {
    let message = "the input has no object that `import` reads as a job, with pods that request accelerators";
    let hint =
        "write a job file (`weftrun init`); `weftrun lint` and `mutate` read pod templates of any kind";
    let refusal = || Error::new(ErrorKind::InvalidSpec, message).with("kinds", kinds.join(", ")).hint(hint);
    (!kinds.is_empty()).then(refusal)
}

/// Returns the kinds of a text's objects, each once.
pub fn kinds(text: &str) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for document in Syntax::of(text).read(text).unwrap_or_default() {
        let object = document.root.to_json();
        let items = object.get("items").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for kind in items.iter().chain([&object]).filter_map(|object| object.get("kind")?.as_str()) {
            if !kinds.iter().any(|known| known == kind) {
                kinds.push(kind.to_owned());
            }
        }
    }
    kinds
}

/// Reads the jobs of a text as job files.
///
/// ```
/// use weftrun_convert::{Start, import};
/// let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: demo}\nspec:\n  pytorchReplicaSpecs:\n    \
///     Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            \
///     image: pytorch:25.09\n            command: [torchrun, --nproc-per-node=8, train.py]\n";
/// let jobs = import(text, Start::of("job.yaml")).map_err(|finding| finding.message)?;
/// assert_eq!(jobs[0].spec.nodes(), 2);
/// assert_eq!(jobs[0].spec.roles[0].command, ["train.py"]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A finding: `E-YAML-SYNTAX` where the text cannot be read, `E-IMPORT-JOB` where a job in it has no usable
/// pods,
/// `E-ROLES` where it has too many roles.
pub fn import(text: &str, start: Start<'_>) -> Result<Vec<Imported>, Finding> {
    let documents = Syntax::of(text).read(text).map_err(|error| unreadable(&error, text, start))?;
    let text = &start.of_text(text);
    let mut jobs = Vec::new();
    for document in &documents {
        let root = &document.root;
        let items: Vec<&SpanTree<'_>> = match kind_of_json(&root.to_json()) {
            ObjectKind::List => {
                root.get("items").map(|items| items.items().iter().collect()).unwrap_or_default()
            }
            _ => vec![root],
        };
        for node in items {
            let object = node.to_json();
            let pointers = Pointers::default();
            let place = |finding: Finding| {
                let at =
                    finding.subject.as_deref().and_then(|pointer| pointers.at(node, pointer)).unwrap_or(node);
                finding.span(text.span(&at.span))
            };
            let kind = match kind_of_json(&object) {
                ObjectKind::Job(kind) => kind,
                ObjectKind::OtherVersion => return Err(place(other_version(&object))),
                ObjectKind::List | ObjectKind::Other => continue,
            };
            if let Some((pointer, word)) = unfilled(&object, "") {
                let message = format!("`{word}` is where a number is required");
                let fix = "fill the template in first: envsubst < FILE, helm template, kustomize build";
                return Err(place(Finding::error("E-IMPORT-JOB", message).at(pointer).fix(fix)));
            }
            // A Service's Deployment, an init Job: an object that requests no accelerator is no job to
            // import.
            if let JobKind::Workload(kind) = kind
                && !workload_asks_accelerators(&object, kind)
            {
                continue;
            }
            let mut job = one(&object, kind).map_err(place)?;
            job.findings = job.findings.into_iter().map(place).collect();
            jobs.push(job);
        }
    }
    Ok(jobs)
}

fn other_version(object: &Json) -> Finding {
    let text = |key: &str| object.get(key).and_then(Json::as_str).unwrap_or_default();
    let (kind, served) = match text("kind") {
        "MPIJob" => ("MPIJob", "kubeflow.org/v2beta1"),
        "PyTorchJob" => ("PyTorchJob", "kubeflow.org/v1"),
        kind => (kind, "trainer.kubeflow.org/v1alpha1"),
    };
    Finding::error("E-IMPORT-JOB", format!("{kind} of {} is not served by any operator", text("apiVersion")))
        .at("/apiVersion")
        .fix(format!("write it as {served}, whose fields may differ"))
}

/// Returns the first place where a template variable replaces a number of pods or GPUs.
fn unfilled(value: &Json, at: &str) -> Option<(String, String)> {
    const NUMBERS: [&str; 7] =
        ["replicas", "numNodes", "parallelism", "completions", "size", "slotsPerWorker", "nvidia.com/gpu"];
    let is_variable = |text: &str| text.starts_with(['$', '{']);
    match value {
        Json::Object(map) => map.iter().find_map(|(key, value)| {
            let below = format!("{at}/{}", rest::step(key));
            match value.as_str().filter(|text| NUMBERS.contains(&key.as_str()) && is_variable(text)) {
                Some(text) => Some((below, text.to_owned())),
                None => unfilled(value, &below),
            }
        }),
        Json::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| unfilled(item, &format!("{at}/{index}")))
        }
        _ => None,
    }
}

fn workload_asks_accelerators(object: &Json, kind: Workload) -> bool {
    super::workload::asks_accelerators(&super::workload::view(object, kind), "nvidia.com/gpu")
}

/// A job while it is read.
struct Reading {
    rest: Rest,
    spec: JobSpec,
    /// Settings of `[backend.kubeflow]`.
    own: serde_json::Map<String, Json>,
    findings: Vec<Finding>,
}

fn one(object: &Json, kind: JobKind) -> Result<Imported, Finding> {
    for replicas in ["/spec/pytorchReplicaSpecs", "/spec/mpiReplicaSpecs"] {
        let count = object.pointer(replicas).and_then(Json::as_object).map_or(0, serde_json::Map::len);
        if let Some(finding) = too_many_roles(count) {
            return Err(finding.at(replicas));
        }
    }
    let mut job = Reading {
        rest: Rest::new(object),
        spec: JobSpec::default(),
        own: serde_json::Map::new(),
        findings: Vec::new(),
    };
    job.rest.drop_all(&["/apiVersion", "/kind", "/status", "/metadata/creationTimestamp"]);
    job.metadata();
    match kind {
        JobKind::Workload(kind) => workload(&mut job, object, kind)?,
        JobKind::PyTorchJob => pytorch(&mut job)?,
        JobKind::MpiJobV1 | JobKind::MpiJobV2 => mpi(&mut job, kind)?,
        JobKind::TrainJob => train(&mut job),
        JobKind::JobFile | JobKind::Sbatch => {}
    }
    policy::gang(&mut job);
    one_shared_memory(&mut job);
    common_image(&mut job.spec);
    common_env(&mut job.spec);
    for pointer in job.rest.left() {
        let fix = "check whether the job needs it; profiles and `[backend.kubeflow]` may set it for the site";
        job.lost(format!("a job file has no key for {}", rest::shown(&pointer)), &pointer, fix);
    }
    if !job.own.is_empty() {
        job.spec.backend.insert("kubeflow".to_owned(), Json::Object(job.own));
    }
    Ok(Imported::new(job.spec, job.findings))
}

/// Leaves a /dev/shm without a size to the roles' own, where another role names one: a job's volumes are mounted in
/// all roles.
fn one_shared_memory(job: &mut Reading) {
    if job.spec.roles.iter().all(|role| role.shm.is_none()) {
        return;
    }
    let before = job.spec.volumes.len();
    let is_shm = |volume: &Volume| {
        volume.mount.trim_end_matches('/') == SHM
            && matches!(volume.source, VolumeSource::Memory { size: None })
    };
    job.spec.volumes.retain(|volume| !is_shm(volume));
    if job.spec.volumes.len() < before {
        let message = "one role names a size of /dev/shm and another does not; that one gets the default";
        job.lost(message, "", "set `shm` of the role");
    }
}

impl Reading {
    fn metadata(&mut self) {
        let name = self.rest.text("/metadata/name").or_else(|| {
            self.rest.text("/metadata/generateName").map(|stem| stem.trim_end_matches('-').to_owned())
        });
        self.spec.name = name.unwrap_or_else(|| "job".to_owned());
        if let Some(namespace) = self.rest.text("/metadata/namespace") {
            let message = format!("the namespace `{namespace}` is the target's, not the job's");
            let fix = format!("submit with -n {namespace}, or set `namespace` of the target");
            let finding = Finding::info("I-IMPORT-NAMESPACE", message).at("/metadata/namespace").fix(fix);
            self.findings.push(finding);
        }
        for (key, value) in self.rest.texts("/metadata/labels") {
            if key == "kueue.x-k8s.io/queue-name" {
                self.spec.queue = Some(value);
                self.own.insert("gang".to_owned(), json!("kueue"));
            } else {
                self.spec.labels.insert(key, value);
            }
        }
        let annotations = self.rest.texts("/metadata/annotations");
        self.spec.annotations.extend(annotations.into_iter().filter(|(key, _)| !key.starts_with("kubectl.")));
    }

    fn set(&mut self, key: &str, value: Option<Json>) {
        self.own.extend(value.map(|value| (key.to_owned(), value)));
    }

    /// Reports something of the object that the job file does not have.
    fn lost(&mut self, message: impl Into<String>, at: &str, fix: impl Into<String>) {
        self.findings.push(Finding::warning("W-IMPORT-LOST", message).at(at).fix(fix));
    }

    /// Reads the pod template of a role, and returns the role.
    fn role(&mut self, name: &str, at: &str, wanted: Option<&str>) -> Result<(Role, Vec<String>), Finding> {
        let replicas = self.rest.number(&format!("{at}/replicas")).unwrap_or(1);
        let mut role = Role::new(name).nodes(replicas);
        policy::restart(self, &format!("{at}/restartPolicy"));
        let argv = self.template(&mut role, &format!("{at}/template"), wanted)?;
        Ok((role, argv))
    }

    /// Reads a pod template into a role, and returns the command.
    fn template(
        &mut self,
        role: &mut Role,
        template: &str,
        wanted: Option<&str>,
    ) -> Result<Vec<String>, Finding> {
        let index = self.rest.container(template, wanted).ok_or_else(|| {
            Finding::error("E-IMPORT-JOB", "there is no container to run")
                .at(template)
                .fix("give the role a pod template with a container")
        })?;
        pod::read(self, template, role);
        let container =
            Container { at: format!("{template}/spec/containers/{index}"), pod: format!("{template}/spec") };
        Ok(container.read(self, role, "resources"))
    }
}

fn pytorch(job: &mut Reading) -> Result<(), Finding> {
    const SPECS: &str = "/spec/pytorchReplicaSpecs";
    job.own.insert("kind".to_owned(), json!("pytorchjob"));
    policy::run(job, "/spec/runPolicy");
    let per_node = job.rest.take("/spec/nprocPerNode").and_then(|value| rest::whole(&value));
    // All nodes are as the Worker says, so what only one role can decide is the Worker's.
    let mut read = Vec::new();
    for at in ["Worker", "Master"].map(|name| format!("{SPECS}/{name}")) {
        if job.rest.has(&at) {
            let role = job.role("worker", &at, Some("pytorch"))?;
            read.push((at, role));
        }
    }
    let mut read = read.into_iter();
    let Some((at, (mut role, argv))) = read.next() else {
        return Err(Finding::error("E-IMPORT-JOB", "the PyTorchJob has neither a Master nor a Worker")
            .at(SPECS)
            .fix("add a Worker with a pod template"));
    };
    if let Some((master, (first, first_argv))) = read.next() {
        let nodes = role.nodes.saturating_add(first.nodes);
        if (first.nodes(nodes), &first_argv) != (role.clone().nodes(nodes), &argv) {
            let message = "the Master differs from the Worker; all nodes are as the Worker says";
            let fix = format!("compare it with {}; a job file has one kind of worker here", rest::shown(&at));
            job.lost(message, &master, fix);
        }
        role.nodes = nodes;
    }
    role.ranks_per_node = per_node.filter(|ranks| *ranks != role.gpus_per_node);
    command::start(job, &mut role, &argv);
    job.spec.roles.push(role);
    Ok(())
}

fn mpi(job: &mut Reading, kind: JobKind) -> Result<(), Finding> {
    const SPECS: &str = "/spec/mpiReplicaSpecs";
    let v1 = kind == JobKind::MpiJobV1;
    job.own.insert("kind".to_owned(), json!(if v1 { "mpijob.v1" } else { "mpijob" }));
    job.spec.launch = Launch::Mpi;
    policy::run(job, "/spec/runPolicy");
    // Training-operator's older manifests have the policy at the top.
    policy::run(job, "/spec");
    job.rest.take_if("/spec/mpiImplementation", &json!("OpenMPI"));
    job.rest.take_if("/spec/sshAuthMountPath", &json!("/root/.ssh"));
    job.rest.take_if("/spec/launcherCreationPolicy", &json!("WaitForWorkersReady"));
    let main = job.rest.text("/spec/mainContainer").filter(|_| v1);
    // An operator gives a worker one slot by default.
    let slots = job.rest.number("/spec/slotsPerWorker").unwrap_or(1);
    let (mut worker, argv) = job.role("worker", &format!("{SPECS}/Worker"), main.as_deref())?;
    workers_own(job, &worker, &argv, &format!("{SPECS}/Worker"), main.as_deref());
    worker.ranks_per_node = Some(slots).filter(|slots| *slots != worker.gpus_per_node);
    let (mut launcher, argv) = job.role("launcher", &format!("{SPECS}/Launcher"), main.as_deref())?;
    launcher.kind = RoleKind::Launcher;
    mounts_of_launcher(job, &format!("{SPECS}/Launcher/template"), main.as_deref());
    command::literal(job, &launcher, &argv, &format!("{SPECS}/Launcher"));
    launcher.command = command::unescaped(&argv);
    job.spec.roles.extend([launcher, worker]);
    Ok(())
}

/// Keeps the command of the workers, where it does more than the operator's own.
fn workers_own(job: &mut Reading, worker: &Role, argv: &[String], at: &str, wanted: Option<&str>) {
    if command::only_waits(argv) {
        return;
    }
    let template = format!("{at}/template");
    let index = job.rest.container(&template, wanted).unwrap_or(0);
    let program = format!("{template}/spec/containers/{index}/command");
    let has_program = job.rest.before().pointer(&program).is_some_and(Json::is_array);
    if has_program {
        command::literal(job, worker, argv, at);
        job.own.insert("worker-command".to_owned(), json!(command::unescaped(argv)));
    } else {
        let message = "the workers' arguments are left out, since the image's own command is not known here";
        job.lost(message, at, "set `worker-command` of `[backend.kubeflow]` to the whole command");
    }
}

/// Reports paths of the workers' nodes that the launcher gets too, and has not in the manifest: its pod
/// cannot start on a node without them. Devices are never mounted into a launcher.
fn mounts_of_launcher(job: &mut Reading, template: &str, wanted: Option<&str>) {
    let index = job.rest.container(template, wanted).unwrap_or(0);
    let mounts = format!("{template}/spec/containers/{index}/volumeMounts");
    let own = job.rest.before().pointer(&mounts).and_then(Json::as_array);
    let own: HashSet<&str> = own.into_iter().flatten().filter_map(|one| one["mountPath"].as_str()).collect();
    for volume in &job.spec.volumes {
        if let VolumeSource::HostPath(path) = &volume.source
            && !own.contains(volume.mount.as_str())
            && !volume.is_device()
        {
            let message =
                format!("the launcher gets the workers' `{path}` too, and needs a node that has it");
            let finding = Finding::warning("W-IMPORT-LOST", message).at(template);
            job.findings.push(finding.fix("`host-path-type = \"\"` starts it without"));
        }
    }
}

/// Where objects that are no Kubeflow jobs hold their pod counts, and fields that a job file expresses or
/// does not need.
const COUNTS: [&str; 9] = [
    "/spec/parallelism",
    "/spec/completions",
    "/spec/completionMode",
    "/spec/replicas",
    "/spec/selector",
    "/spec/serviceName",
    "/spec/leaderWorkerTemplate/size",
    "/spec/leaderWorkerTemplate/restartPolicy",
    "/spec/network",
];

/// Reads any other object with pod templates: those that request GPUs are the workers, one that calls
/// `mpirun` is the launcher.
fn workload(job: &mut Reading, object: &Json, kind: Workload) -> Result<(), Finding> {
    let view = super::workload::view(object, kind);
    policy::run(job, "/spec");
    job.rest.drop_all(&COUNTS);
    if let Some(max) = job.rest.number("/spec/failurePolicy/maxRestarts").filter(|max| *max > 0) {
        job.spec.restart = RestartPolicy::OnFailure { max };
    }
    let queue = job.rest.text("/spec/queue");
    job.spec.queue = queue.or(job.spec.queue.take());
    for (template, seen) in super::workload::templates(object, kind).iter().zip(&view.roles) {
        if !seen.worker && !seen.launcher {
            let message = format!("the pods of `{}` request no GPU and are left out", template.name);
            let fix = "run them beside the job; a job file describes the ranks and their launcher";
            job.lost(message, &template.at, fix);
            job.rest.take(&template.at);
            continue;
        }
        let launcher = seen.launcher && !seen.worker;
        let mut role =
            if launcher { Role::launcher() } else { Role::new(&template.name).nodes(template.pods) };
        let argv = job.template(&mut role, &template.at, None)?;
        if launcher {
            job.spec.launch = Launch::Mpi;
            command::literal(job, &role, &argv, &template.at);
            role.command = command::unescaped(&argv);
        } else if view.roles.iter().any(|role| role.launcher && !role.worker) {
            role.command = Vec::new();
        } else {
            command::start(job, &mut role, &argv);
        }
        job.spec.roles.push(role);
    }
    for list in [
        "/spec/replicatedJobs",
        "/spec/tasks",
        "/spec/workerGroupSpecs",
        "/spec/rayClusterSpec/workerGroupSpecs",
    ] {
        for index in 0..job.rest.len(list) {
            for key in ["name", "groupName", "replicas", "numOfHosts", "minReplicas", "maxReplicas"] {
                job.rest.take(&format!("{list}/{index}/{key}"));
            }
            for key in ["parallelism", "completions", "backoffLimit", "completionMode"] {
                job.rest.take(&format!("{list}/{index}/template/spec/{key}"));
            }
        }
    }
    if job.spec.roles.is_empty() {
        let message = format!("the {} has no pods with a container", kind.as_str());
        let finding = Finding::error("E-IMPORT-JOB", message).at("/spec");
        return Err(finding.fix("give it a pod template with a container"));
    }
    Ok(())
}

fn train(job: &mut Reading) {
    const TRAINER: &str = "/spec/trainer";
    job.own.insert("kind".to_owned(), json!("trainjob"));
    for (from, to) in [("/spec/runtimeRef/name", "runtime"), ("/spec/runtimeRef/kind", "runtime-kind")] {
        let value = job.rest.take(from);
        job.set(to, value);
    }
    job.rest.take_if("/spec/runtimeRef/apiGroup", &json!("trainer.kubeflow.org"));
    if let Some(version) = TrainerVersion::of(job.rest.before()) {
        job.own.insert("trainer-version".to_owned(), json!(version.as_str()));
    }
    let suspend = job.rest.take("/spec/suspend").filter(|value| *value == json!(true));
    job.set("suspend", suspend);
    job.spec.time_limit =
        job.rest.number("/spec/activeDeadlineSeconds").map(|s| std::time::Duration::from_secs(s.into()));
    job.spec.labels.extend(job.rest.texts("/spec/labels"));
    job.spec.annotations.extend(job.rest.texts("/spec/annotations"));
    let mut role = Role::worker().nodes(job.rest.number(&format!("{TRAINER}/numNodes")).unwrap_or(1));
    let container = Container { at: TRAINER.to_owned(), pod: String::new() };
    let argv = container.read(job, &mut role, "resourcesPerNode");
    let ranks = job.rest.take(&format!("{TRAINER}/numProcPerNode")).and_then(|value| rest::whole(&value));
    role.ranks_per_node = ranks.filter(|ranks| *ranks != role.gpus_per_node);
    command::start(job, &mut role, &argv);
    job.spec.roles.push(role);
}

/// Moves an image that all roles have to the job.
fn common_image(spec: &mut JobSpec) {
    let first = spec.roles.first().and_then(|role| role.image.clone());
    if first.is_some() && spec.roles.iter().all(|role| role.image == first) {
        spec.image = first;
        spec.roles.iter_mut().for_each(|role| role.image = None);
    }
}

fn pair(var: &weftrun_core::spec::EnvVar) -> (&str, &str) {
    (&var.name, &var.value)
}

/// Moves variables that are equal in all roles to the job.
fn common_env(spec: &mut JobSpec) {
    let Some(first) = spec.roles.first() else { return };
    let mut common = first.env.clone();
    for role in &spec.roles {
        let own: HashSet<(&str, &str)> = role.env.iter().map(pair).collect();
        common.retain(|var| own.contains(&pair(var)));
    }
    let shared: HashSet<(&str, &str)> = common.iter().map(pair).collect();
    for role in &mut spec.roles {
        role.env.retain(|var| !shared.contains(&pair(var)));
    }
    spec.env = common;
}

#[cfg(test)]
mod tests;
