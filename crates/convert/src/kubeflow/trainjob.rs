//! TrainJob as the rules see it: the runtime's values, overlaid by the job's trainer and its patches.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::job::implementation;
use super::object::{list, number, placeholder, text_at};
use super::{job, pod};
use weftrun_core::fabric::view::{ContainerView, JobKind, JobView, RoleView};

word_enum! {
    /// The field of a TrainJob that carries overrides of the pods: it differs between versions of Kubeflow
    /// Trainer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TrainerVersion: ALL {
        /// 2.0: `podSpecOverrides`.
        V2_0 = "2.0",
        /// 2.1: `podTemplateOverrides`.
        V2_1 = "2.1",
        /// 2.2: `runtimePatches`; `resourcesPerNode` replaces the runtime's.
        V2_2 = "2.2",
        /// 2.3: `runtimePatches`; `resourcesPerNode` is merged into the runtime's.
        #[default]
        V2_3 = "2.3",
    }
}

impl TrainerVersion {
    /// Reads `2.0` … `2.3`, with or without a `v` or a patch number.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let is_of = |version: &Self| {
            text.strip_prefix(version.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        Self::ALL.into_iter().find(is_of)
    }

    /// Returns a finding that this version was assumed: none was named, and neither the cluster nor the
    /// TrainJob shows one.
    pub fn assumed(self) -> weftrun_core::Finding {
        let text = format!(
            "assumed Kubeflow Trainer {}, whose TrainJobs have the field `{}`; other versions refuse it",
            self.as_str(),
            self.override_field()
        );
        weftrun_core::Finding::info("I-TRAINER-ASSUMED", text)
            .at("trainer")
            .fix("name the cluster's version with --trainer-version or `trainer-version` of its target (2.0, 2.1, 2.2 or 2.3; `weftrun doctor` says it), or plan with a connection to the cluster")
    }

    /// Returns the field of a TrainJob that carries overrides of its pods.
    pub(super) fn override_field(self) -> &'static str {
        match self {
            Self::V2_0 => "podSpecOverrides",
            Self::V2_1 => "podTemplateOverrides",
            Self::V2_2 | Self::V2_3 => "runtimePatches",
        }
    }

    /// Returns the version whose override field a TrainJob already uses.
    pub(super) fn of(object: &Json) -> Option<Self> {
        let spec = object.get("spec")?;
        let used = |key: &str| !list(spec, key).is_empty();
        match () {
            () if used("runtimePatches") => Some(Self::V2_3),
            () if used("podTemplateOverrides") => Some(Self::V2_1),
            () if used("podSpecOverrides") => Some(Self::V2_0),
            () => None,
        }
    }
}

/// The label by which a runtime selects the job that the trainer's settings go to.
pub(super) const STEP: &str = "/template/metadata/labels/trainer.kubeflow.org~1trainjob-ancestor-step";

/// A TrainJob's runtime, or the assumptions for one that is missing.
#[derive(Clone, Debug)]
pub(super) struct Runtime<'j> {
    object: Option<&'j Json>,
}

impl<'j> Runtime<'j> {
    /// Returns the runtime that a TrainJob refers to, among the given ones.
    pub fn find(job: &Json, given: &'j [Json]) -> Self {
        let name = text_at(job, "/spec/runtimeRef/name");
        let kind = text_at(job, "/spec/runtimeRef/kind").unwrap_or("ClusterTrainingRuntime");
        let fits = |object: &&Json| {
            text_at(object, "/metadata/name") == name
                && object.get("kind").and_then(Json::as_str) == Some(kind)
        };
        Self { object: given.iter().find(fits) }
    }

    pub fn object(&self) -> Option<&'j Json> {
        self.object
    }

    pub fn is_known(&self) -> bool {
        self.object.is_some()
    }

    fn at(&self, pointer: &str) -> Option<&'j Json> {
        self.object?.pointer(pointer)
    }

    fn jobs(&self) -> &'j [Json] {
        self.at("/spec/template/spec/replicatedJobs").and_then(Json::as_array).map_or(&[], Vec::as_slice)
    }

    fn is_mpi(&self) -> bool {
        self.at("/spec/mlPolicy/mpi").is_some_and(|mpi| !mpi.is_null())
    }

    fn launcher_is_node(&self) -> bool {
        self.at("/spec/mlPolicy/mpi/runLauncherAsNode").and_then(Json::as_bool).unwrap_or(false)
    }

    /// Returns the runtime, if it is an MPI one whose launcher is no node.
    pub fn launcher_apart(&self) -> Option<&'j Json> {
        self.object.filter(|_| self.is_mpi() && !self.launcher_is_node())
    }

    /// Returns the replicated job that gets the trainer's settings.
    fn trainer_job(&self) -> Option<&'j Json> {
        let jobs = self.jobs();
        let is_trainer = |job: &&Json| text_at(job, STEP) == Some("trainer");
        jobs.iter().find(is_trainer).or_else(|| jobs.iter().find(|job| job["name"] == "node"))
    }

    /// Returns the names of the replicated jobs whose pods have ranks, and of the container in each.
    pub fn patched(&self) -> Vec<(String, String)> {
        let name = |job: &Json| job.get("name").and_then(Json::as_str).unwrap_or("node").to_owned();
        let mut found: Vec<(String, String)> =
            self.trainer_job().into_iter().map(|job| (name(job), container_name(job))).collect();
        if self.is_mpi() && self.launcher_is_node() {
            let rest = self.jobs().iter().filter(|job| job["name"] == "node");
            found.extend(rest.map(|job| (name(job), container_name(job))));
            found.dedup();
        }
        if found.is_empty() {
            found.push(("node".to_owned(), "node".to_owned()));
        }
        found
    }

    /// Returns the resources that its trainer container requests.
    pub fn resources(&self) -> Option<&'j Json> {
        ranks_container(self.trainer_job()?)?.get("resources")
    }
}

/// Returns the container of a replicated job that has the ranks.
fn ranks_container(job: &Json) -> Option<&Json> {
    let all = job.pointer("/template/spec/template/spec/containers")?.as_array()?;
    all.iter().find(|container| container["name"] == "node").or_else(|| all.first())
}

fn container_name(job: &Json) -> String {
    ranks_container(job).and_then(|container| container["name"].as_str()).unwrap_or("node").to_owned()
}

/// Reads a TrainJob with its runtime.
pub(super) fn view(object: &Json, runtime: &Runtime<'_>, version: TrainerVersion) -> JobView {
    let none = Json::Null;
    let trainer = object.pointer("/spec/trainer").unwrap_or(&none);
    let mut role = base_role(runtime);
    "trainer".clone_into(&mut role.name);
    role.worker = true;
    role.launcher = runtime.is_mpi();
    role.replicas = number(trainer, "numNodes")
        .or_else(|| runtime.at("/spec/mlPolicy").and_then(|policy| number(policy, "numNodes")))
        .unwrap_or(1);
    role.replicas_text = placeholder(trainer, "numNodes");
    overlay(&mut role.container, trainer, version);
    for (job, container) in runtime.patched() {
        patches(object, &job, &container, &mut role);
    }
    let apart = runtime.is_mpi() && !runtime.launcher_is_node();
    let mpi = runtime
        .is_mpi()
        .then(|| implementation(runtime.at("/spec/mlPolicy/mpi/mpiImplementation").and_then(Json::as_str)));
    JobView {
        roles: vec![role],
        mpi,
        devices_go_to_launcher: apart,
        ..job::metadata(object, JobKind::TrainJob)
    }
}

fn base_role(runtime: &Runtime<'_>) -> RoleView {
    let none = Json::Null;
    let template =
        runtime.trainer_job().and_then(|job| job.pointer("/template/spec/template")).unwrap_or(&none);
    let is_node = |c: &Json| c["name"] == "node";
    pod::role(template, "", |containers| containers.iter().position(is_node).unwrap_or(0))
}

/// Overlays the job's `trainer` on the runtime's container, as Kubeflow Trainer does.
fn overlay(container: &mut ContainerView, trainer: &Json, version: TrainerVersion) {
    let mut own = pod::container(
        &json!({
            "image": trainer["image"], "command": trainer["command"], "args": trainer["args"], "env": trainer["env"],
            "resources": trainer["resourcesPerNode"],
        }),
        "/spec/trainer",
    );
    container.at = "/spec/trainer".to_owned();
    container.env.iter_mut().for_each(|var| var.at.clear());
    overlay_program(container, &mut own);
    container.claims.extend(own.claims);
    let merges = version >= TrainerVersion::V2_3 || trainer["resourcesPerNode"].is_null();
    for (mine, whole) in [(own.limits, &mut container.limits), (own.requests, &mut container.requests)] {
        if !merges {
            whole.clear();
        }
        whole.extend(mine);
    }
}

/// Moves what the trainer sets of image, command and environment to the container.
pub(super) fn overlay_program(container: &mut ContainerView, own: &mut ContainerView) {
    container.image = own.image.take().or(container.image.take());
    if !own.command.is_empty() {
        container.command = std::mem::take(&mut own.command);
    }
    if !own.args.is_empty() {
        container.args = std::mem::take(&mut own.args);
    }
    let mine: HashSet<&str> = own.env.iter().map(|var| var.name.as_str()).collect();
    container.env.retain(|var| !mine.contains(var.name.as_str()));
    container.env.append(&mut own.env);
}

/// Adds the job's overrides of one replicated job.
fn patches(object: &Json, job: &str, container: &str, role: &mut RoleView) {
    let none = Json::Null;
    let spec = object.get("spec").unwrap_or(&none);
    for patch in list(spec, "runtimePatches") {
        let jobs = patch.pointer("/trainingRuntimeSpec/template/spec/replicatedJobs").unwrap_or(&none);
        for one in jobs.as_array().into_iter().flatten().filter(|one| one["name"] == job) {
            let template = one.pointer("/template/spec/template").unwrap_or(&none);
            add_template(template.get("metadata"), template.get("spec").unwrap_or(&none), container, role);
        }
    }
    let targets = |one: &&Json| {
        let targets = list(one, "targetJobs");
        targets.is_empty() || targets.iter().any(|target| target["name"] == job)
    };
    for one in list(spec, "podTemplateOverrides").iter().filter(targets) {
        add_template(one.get("metadata"), one.get("spec").unwrap_or(&none), container, role);
    }
    for one in list(spec, "podSpecOverrides").iter().filter(targets) {
        add_template(None, one, container, role);
    }
}

fn add_template(metadata: Option<&Json>, spec: &Json, container: &str, role: &mut RoleView) {
    role.annotations.extend(pod::annotations(metadata.and_then(|m| m.get("annotations"))));
    role.node_selector.extend(pod::texts(spec.get("nodeSelector")));
    let types = pod::instance_types(spec);
    if !types.is_empty() {
        role.instance_types = types;
    }
    role.colocated_by.extend(pod::colocated_by(spec));
    let tolerations = list(spec, "tolerations").iter().filter_map(|t| t["key"].as_str());
    role.tolerates.extend(tolerations.map(str::to_owned));
    role.volumes.extend(pod::volumes(spec, ""));
    for one in list(spec, "containers").iter().filter(|c| c["name"] == container) {
        let patch = pod::container(one, "");
        role.container.mounts.extend(patch.mounts);
        role.container.capabilities.extend(patch.capabilities);
        role.container.env.extend(patch.env);
    }
}
