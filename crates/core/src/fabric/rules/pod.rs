//! What a profile adds to the pods of workers with any fabric: volumes, sidecars, claims, annotations, a
//! script before the command; and what it removes.

use serde_json::{Value as Json, json};

use super::{Context, Launch, networks, set};
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::node::Count;
use crate::fabric::op::TOPOLOGY_PATH;
use crate::fabric::view::Annotation;
use crate::fabric::{AddProfile, Change, PodList, Removed, SkipReason, merge};

/// `$0` of the shell that reads a script before the command.
const SHELL_NAME: &str = "fabric-env";
const TOPOLOGY_FILE: &str = "NCCL_TOPO_FILE";
/// The name of the volume with the topology file, by which the Kubeflow backend finds it.
const TOPOLOGY_VOLUME: &str = "nccl-topology";
const NO_FILE: &str = "W-TOPOLOGY-FILE";

/// Decides for all workers with accelerators.
pub(crate) fn decide(ctx: &Context, plan: &mut PlanBuilder, launch: &mut Launch) {
    let pod = &ctx.profile.pod;
    if pod.is_empty() {
        return;
    }
    for role in ctx.workers().filter(|role| ctx.accelerators(role) > 0) {
        let worker = Worker { ctx, role };
        worker.remove(plan);
        for (name, add) in &pod.add {
            worker.add(plan, name, add);
        }
        worker.topology_file(plan, launch);
        worker.resources(plan);
        worker.annotations(plan);
        worker.host_network(plan);
        worker.nodes(plan);
        worker.library_path(plan, launch);
        if let Some(script) = pod.script.as_deref().filter(|_| plan.active("pod.script")) {
            worker.script(plan, script);
        }
    }
}

/// A role whose pods are changed.
#[derive(Clone, Copy)]
struct Worker<'a> {
    ctx: &'a Context<'a>,
    role: RoleRef<'a>,
}

impl Worker<'_> {
    fn op(&self, plan: &mut PlanBuilder, rule: &'static str, change: Change, why: impl Into<String>) {
        plan.op(self.role, rule, change, why, self.ctx.of_profile());
    }

    /// Makes a change, or records that its result is already there.
    fn change(&self, plan: &mut PlanBuilder, rule: &'static str, there: bool, change: Change, why: &str) {
        let there = there.then_some("already there");
        plan.ensure(self.role, rule, change, there, why, self.ctx.of_profile());
    }

    fn remove(&self, plan: &mut PlanBuilder) {
        const RULE: &str = "pod.remove";
        if !plan.active(RULE) {
            return;
        }
        let (remove, container) = (&self.ctx.profile.pod.remove, &self.role.container);
        let is_named = |wanted: &String, name: &str| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == wanted,
        };
        let variables = container.env.iter().map(|var| (Removed::Env, &var.name));
        let mounts = container.mounts.iter().map(|mount| (Removed::Mount, &mount.path));
        let resources = container.limits.keys().chain(container.requests.keys());
        let resources = resources.map(|name| (Removed::Resource, name));
        let of_other = |(what, name): &(Removed, &String)| match what {
            Removed::Env => remove.env.iter().any(|wanted| is_named(wanted, name)),
            Removed::Mount => remove.mounts.contains(name),
            Removed::Resource => remove.resources.contains(name),
        };
        let mut found: Vec<_> = variables.chain(mounts).chain(resources).filter(of_other).collect();
        found.sort_by_key(|(what, name)| (*what as u8, *name));
        found.dedup();
        for (what, name) in found {
            let change = Change::Remove { what, name: name.clone() };
            self.op(plan, RULE, change, "it belongs to another fabric than this cluster has");
        }
    }

    fn add(&self, plan: &mut PlanBuilder, name: &str, add: &AddProfile) {
        if let Some(volume) = &add.volume {
            self.volume(plan, name, add, volume);
        }
        if let Some(sidecar) = &add.sidecar {
            self.sidecar(plan, name, sidecar);
        }
        if let Some(claim) = &add.claim {
            let count = if add.each_accelerator { self.ctx.accelerators(&self.role) } else { 1 };
            for index in 0..count.min(64) {
                let name = if add.each_accelerator { format!("{name}-{index}") } else { name.to_owned() };
                self.claim(plan, &name, add, claim, index);
            }
        }
    }

    fn volume(&self, plan: &mut PlanBuilder, name: &str, add: &AddProfile, volume: &Json) {
        const RULE: &str = "pod.volumes";
        if !plan.active(RULE) {
            return;
        }
        let mount = add.mount.as_deref().map(|path| {
            let mut mount = json!({ "name": name, "mountPath": path });
            if add.read_only {
                mount["readOnly"] = json!(true);
            }
            Change::member(PodList::VolumeMounts, path, mount)
        });
        let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
        let mounted =
            |path: &str| self.role.container.mounts.iter().any(|mount| trimmed(&mount.path) == trimmed(path));
        // A volume of the user's at the same path serves the same purpose.
        if let (Some(path), Some(change)) = (&add.mount, &mount)
            && mounted(path)
        {
            plan.kept(self.role, RULE, change.clone(), "something is mounted there already");
            return;
        }
        let value = self.member(name, volume, 0);
        let there = self.role.volumes.iter().any(|volume| volume.name == name);
        if !there {
            self.companion(plan, RULE, add);
        }
        let change = Change::member(PodList::Volumes, name, value);
        self.change(plan, RULE, there, change, "the fabric's files are in this volume");
        if let Some(change) = mount {
            self.change(plan, RULE, false, change, "the fabric's library looks for its files there");
        }
    }

    /// Mounts the profile's topology file from a ConfigMap of the job, or reports that there is none.
    fn topology_file(&self, plan: &mut PlanBuilder, launch: &mut Launch) {
        const RULE: &str = "pod.topology-file";
        let profile = self.ctx.profile;
        let file = &profile.pod.topology_file;
        let own = self.role.container.env.iter().any(|var| var.name == TOPOLOGY_FILE);
        let of_profile = std::iter::once(&profile.env).chain(profile.instance_env.values());
        let named = own || of_profile.into_iter().any(|env| env.contains_key(TOPOLOGY_FILE));
        if named || !plan.active(RULE) {
            return;
        }
        let Some(content) = &file.content else {
            if file.needed && !plan.has_reported(NO_FILE) {
                let text = format!(
                    "NCCL reads the PCIe topology of these nodes from a file, and neither the job nor the profile {} names one",
                    profile.name
                );
                let fix = "set NCCL_TOPO_FILE if the image has the file (/etc/topology/ndv5-topo.xml in Azure's images), or copy \
                           /opt/microsoft/ndv5-topo.xml from a virtual machine of that size into `content` under \
                           [profile.NAME.pod.topology-file]";
                plan.warn(self.role, NO_FILE, text, fix);
            }
            return;
        };
        if self.ctx.job.name.is_empty() {
            if !plan.has_reported(NO_FILE) {
                let text = "the topology file needs an object beside the job, whose name follows the job's, and the job has none";
                plan.warn(self.role, NO_FILE, text, "set metadata.name instead of generateName");
            }
            return;
        }
        let map = format!("{}-nccl-topology", self.ctx.job.name);
        let mut metadata = json!({ "name": map });
        if let Some(namespace) = &self.ctx.job.namespace {
            metadata["namespace"] = json!(namespace);
        }
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "topo.xml": content } });
        let companion = Change::Companion { object };
        if plan.changes().all(|(_, other)| *other != companion) {
            self.op(plan, RULE, companion, "the pods read the topology file from this object");
        }
        let volume = json!({ "name": TOPOLOGY_VOLUME, "configMap": { "name": map } });
        let mount = json!({ "name": TOPOLOGY_VOLUME, "mountPath": "/etc/nccl", "readOnly": true });
        let why = "NCCL sees the PCIe topology of a virtual machine only in a file";
        self.op(plan, RULE, Change::member(PodList::Volumes, TOPOLOGY_VOLUME, volume), why);
        self.op(plan, RULE, Change::member(PodList::VolumeMounts, "/etc/nccl", mount), why);
        set::env(plan, self.role, RULE, (TOPOLOGY_FILE, TOPOLOGY_PATH), why, self.ctx.of_profile());
        launch.forward(RULE, TOPOLOGY_FILE);
    }

    fn sidecar(&self, plan: &mut PlanBuilder, name: &str, sidecar: &Json) {
        const RULE: &str = "pod.sidecars";
        if !plan.active(RULE) {
            return;
        }
        let mut value = self.member(name, sidecar, 0);
        value["restartPolicy"] = json!("Always");
        let there = self.role.init_containers.iter().any(|other| other == name)
            || self.role.sidecars.iter().any(|other| other.name == name);
        let change = Change::member(PodList::InitContainers, name, value);
        let why = "the fabric's daemon runs beside the ranks and ends with them";
        self.change(plan, RULE, there, change, why);
    }

    fn claim(&self, plan: &mut PlanBuilder, name: &str, add: &AddProfile, claim: &Json, index: u64) {
        const RULE: &str = "pod.claims";
        if !plan.active(RULE) {
            return;
        }
        let there = self.role.resource_claims.iter().any(|other| other == name);
        if !there && index == 0 {
            self.companion(plan, RULE, add);
        }
        let value = self.member(name, claim, index);
        let change = Change::member(PodList::ResourceClaims, name, value);
        self.change(plan, RULE, there, change, "the devices are given out by resource claims");
        let there = self.role.container.claims.iter().any(|other| other == name);
        let asks = |resource: &&String| self.role.container.asks(resource).is_some();
        if let Some(resource) = add.replaces.as_ref().filter(asks).filter(|_| index == 0) {
            let change = Change::Remove { what: Removed::Resource, name: resource.clone() };
            self.op(plan, RULE, change, "the claims replace it");
        }
        let change = Change::member(PodList::ContainerClaims, name, json!({ "name": name }));
        let why = "a container gets a claim's devices only if it names the claim";
        self.change(plan, RULE, there, change, why);
    }

    /// Adds the object that a volume or claim refers to. Several roles share one.
    fn companion(&self, plan: &mut PlanBuilder, rule: &'static str, add: &AddProfile) {
        let Some(object) = &add.companion else { return };
        let mut object = self.filled(object, 0);
        if let Some(namespace) = &self.ctx.job.namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let change = Change::Companion { object };
        let there = plan.changes().any(|(_, other)| *other == change);
        if !there {
            self.op(plan, rule, change, "the pods refer to this object by name");
        }
    }

    fn member(&self, name: &str, value: &Json, index: u64) -> Json {
        let mut member = json!({ "name": name });
        if let (Some(member), Json::Object(value)) = (member.as_object_mut(), self.filled(value, index)) {
            member.extend(value);
        }
        member
    }

    /// Returns the EFA interfaces for each accelerator according to the catalogue.
    fn interfaces(&self) -> u64 {
        let node = self.ctx.node(&self.role);
        match node.efa {
            Count::Known(count, _) => (u64::from(count) / node.accelerators.max(1)).max(1),
            _ => 1,
        }
    }

    /// Fills the job's own name and numbers into a value of the profile.
    fn filled(&self, value: &Json, index: u64) -> Json {
        let numbers = [
            ("{nodes}", self.ctx.job.worker_pods()),
            ("{accelerators}", self.ctx.accelerators(&self.role)),
            ("{index}", index),
            ("{efa}", self.interfaces()),
        ];
        match value {
            Json::String(text) => {
                if let Some((_, number)) = numbers.iter().find(|(name, _)| name == text) {
                    return json!(number);
                }
                let text = text.replace("{job}", self.ctx.job.name.trim_end_matches('-'));
                let filled =
                    |text: String, (name, number): &(&str, u64)| text.replace(name, &number.to_string());
                json!(numbers.iter().fold(text, filled))
            }
            Json::Array(items) => items.iter().map(|item| self.filled(item, index)).collect(),
            Json::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), self.filled(value, index))).collect()
            }
            other => other.clone(),
        }
    }

    fn resources(&self, plan: &mut PlanBuilder) {
        const RULE: &str = "pod.resources";
        let pod = &self.ctx.profile.pod;
        if plan.active(RULE) {
            for (name, quantity) in &pod.resources {
                let why = "the network or device is given only to pods that request it";
                set::resource(plan, self.role, RULE, (name, quantity), why, self.ctx.of_profile());
            }
        }
        let capabilities: &[String] = if plan.active("pod.capabilities") { &pod.capabilities } else { &[] };
        for name in capabilities {
            let container = &self.role.container;
            let has = |own: &String| own == name || own == "ALL";
            let there = container.privileged || container.capabilities.iter().any(has);
            let change = Change::Capability { name: name.clone() };
            self.change(plan, "pod.capabilities", there, change, "the fabric's library needs it");
        }
    }

    fn annotations(&self, plan: &mut PlanBuilder) {
        const RULE: &str = "pod.annotations";
        if !plan.active(RULE) {
            return;
        }
        for (key, wanted) in &self.ctx.profile.pod.annotations {
            let existing = self.role.annotations.get(key).and_then(Annotation::text);
            let change = |value: &str| Change::annotation(key, value);
            let why = "the cluster gives the pod its interfaces and devices by this annotation";
            match (self.filled(wanted, 0), existing) {
                (Json::Array(list), existing) => {
                    let interfaces = networks::interfaces(self.ctx, self.role, list);
                    match merge::list(existing, &interfaces.list) {
                        Ok(Some(value)) => {
                            plan.op(self.role, RULE, change(&value), why, interfaces.origin);
                            interfaces.finding.into_iter().for_each(|finding| plan.report(finding));
                        }
                        Ok(None) => {
                            plan.kept(self.role, RULE, change(existing.unwrap_or_default()), "already there");
                        }
                        Err(error) => plan.refuse(
                            self.role,
                            "E-POD-ANNOTATION",
                            format!("the annotation {key} cannot be completed: {error}"),
                            "write it as a JSON or YAML list, or switch `pod.annotations` off",
                        ),
                    }
                }
                (value, None) => {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    self.op(plan, RULE, change(&text), why);
                }
                (_, Some(own)) => plan.kept(self.role, RULE, change(own), "set by the user, kept"),
            }
        }
    }

    fn host_network(&self, plan: &mut PlanBuilder) {
        const RULE: &str = "pod.host-network";
        if !self.ctx.profile.pod.host_network || !plan.active(RULE) {
            return;
        }
        let field = |key: &str, value: Json| Change::PodField { key: key.to_owned(), value };
        let why = "the fabric's interfaces are those of the node";
        self.change(plan, RULE, self.role.host_network, field("hostNetwork", json!(true)), why);
        let policy = field("dnsPolicy", json!("ClusterFirstWithHostNet"));
        let why = "pods on the host's network find the other pods by name only with this policy";
        self.change(plan, RULE, self.role.dns_policy.is_some(), policy, why);
    }

    fn nodes(&self, plan: &mut PlanBuilder) {
        const RULE: &str = "pod.nodes";
        let pod = &self.ctx.profile.pod;
        if !plan.active(RULE) {
            return;
        }
        for (key, value) in &pod.node_selector {
            let there = self.role.node_selector.contains_key(key);
            let change = Change::node_selector(key, value);
            self.change(plan, RULE, there, change, "only nodes with this label have the fabric");
        }
        for taint in &pod.tolerations {
            let there = self.role.tolerates.contains(&taint.key);
            let why = "the nodes of the profile carry this taint";
            self.change(plan, RULE, there, Change::toleration(taint), why);
        }
        if let Some(key) = pod.colocate.as_ref().filter(|_| self.ctx.job.worker_pods() <= pod.colocate_nodes)
        {
            let there = self.role.colocated_by.contains(key) || self.role.node_selector.contains_key(key);
            let change = Change::Colocate { topology_key: key.clone() };
            self.change(plan, RULE, there, change, "nodes with the same label reach each other over NVLink");
        }
    }

    fn library_path(&self, plan: &mut PlanBuilder, launch: &mut Launch) {
        const RULE: &str = "pod.library-path";
        const NAME: &str = "LD_LIBRARY_PATH";
        let dirs = &self.ctx.profile.pod.library_dirs;
        if dirs.is_empty() || !plan.active(RULE) {
            return;
        }
        let own = self.role.container.env(NAME).map(|own| own.value.as_deref());
        if own == Some(None) {
            let why = format!("{}: {NAME} is taken from elsewhere (valueFrom)", self.role.name);
            return plan.skip_rule(RULE, SkipReason::SetByUser, why);
        }
        let own = own.flatten();
        let value = merge::library_path(dirs, &[], own);
        let there = own == Some(value.as_str());
        let change = Change::env(NAME, &value);
        self.change(plan, RULE, there, change, "the loader finds the fabric's libraries in these folders");
        launch.forward(RULE, NAME);
    }

    fn script(&self, plan: &mut PlanBuilder, script: &str) {
        const RULE: &str = "pod.script";
        let why = format!("{script} sets what the fabric's library needs");
        let text = format!(". '{}' && exec \"$@\"", script.replace('\'', "'\\''"));
        let wrapper = ["/bin/bash", "-c", &text, SHELL_NAME].map(str::to_owned);
        let container = &self.role.container;
        let (before, words) = plan.command_of(self.role);
        if self.ctx.is_job_file() {
            self.op(plan, RULE, Change::Wrap { argv: wrapper.to_vec() }, why);
        } else if before.iter().any(|word| word.contains(script)) {
            let change = Change::Command { before: before.clone(), after: before, command_words: words };
            plan.kept(self.role, RULE, change, "the command reads it already");
        } else if self.ctx.job.mpi.is_some() || container.command.is_empty() {
            let what = if self.ctx.job.mpi.is_some() {
                "the ranks are started through mpirun, not by this container's command"
            } else {
                "the command of the image is not known here"
            };
            plan.warn(
                self.role,
                "W-POD-SCRIPT",
                format!("{script} must be read before the ranks start: {what}"),
                format!("write `command` out, or put `. {script}` before the program"),
            );
            plan.skip_rule(RULE, SkipReason::NoCommand, format!("{}: {what}", self.role.name));
        } else {
            let after: Vec<String> = wrapper.iter().cloned().chain(before.iter().cloned()).collect();
            let change = Change::Command { before, after, command_words: wrapper.len() + words };
            self.op(plan, RULE, change, why);
        }
    }
}
