//! Converts a role to a pod template.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};
use weftrun_core::spec::{JobSpec, Role, RoleKind, Volume, VolumeSource};

use super::config::JobSettings;
use crate::kubernetes::code::Delivery;
use crate::kubernetes::escape::literal;

/// The label that carries the submission.
pub const SUBMISSION: &str = "weftrun.dev/submission";
/// The annotation with the fabric that the job was planned for.
pub const FABRIC: &str = "weftrun.dev/fabric";
/// The annotation with the state of the folder that was sent with the job.
pub const CODE: &str = "weftrun.dev/code";

/// The inputs of a template.
pub struct Template<'a> {
    pub spec: &'a JobSpec,
    pub settings: &'a JobSettings,
    pub delivery: &'a Delivery,
    /// Labels of the pods.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether nodes carry their instance type as a label.
    pub select_instance: bool,
    /// Host names of the nodes that the job leaves out.
    pub avoided: Vec<String>,
}

impl Template<'_> {
    /// Returns the template of a role that runs a command.
    pub fn of(&self, role: &Role, container: &str, command: &[String]) -> Value {
        let mut pod = self.pod_spec(role);
        pod.insert("containers".into(), json!([self.container(role, container, command)]));
        self.wrap(&pod)
    }

    fn wrap(&self, pod: &Map<String, Value>) -> Value {
        let mut metadata = json!({"labels": self.labels});
        if !self.spec.annotations.is_empty() {
            metadata["annotations"] = json!(self.spec.annotations);
        }
        json!({"metadata": metadata, "spec": pod})
    }

    /// Returns the pod spec without its containers.
    pub fn pod_spec(&self, role: &Role) -> Map<String, Value> {
        let mut pod = Map::new();
        let mut put = |key: &str, value: Value| {
            if !matches!(&value, Value::Null) && value != json!([]) && value != json!({}) {
                pod.insert(key.to_owned(), value);
            }
        };
        let settings = self.settings;
        let mut selector = settings.node_selector.clone();
        if let Some(instance) = role.instance_type.as_ref().filter(|_| self.select_instance) {
            selector.entry("node.kubernetes.io/instance-type".into()).or_insert_with(|| instance.clone());
        }
        put("nodeSelector", json!(selector));
        let terms = self.node_terms(role);
        if !terms.is_empty() {
            let required = json!({"nodeSelectorTerms": terms});
            put(
                "affinity",
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
            );
        }
        put("tolerations", json!(settings.tolerations));
        put("priorityClassName", json!(self.spec.priority));
        put("schedulerName", json!(settings.scheduler));
        put("serviceAccountName", json!(settings.service_account));
        let secrets: Vec<_> = settings.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
        put("imagePullSecrets", json!(secrets));
        put("volumes", json!(self.volumes(role)));
        pod
    }

    /// Returns the terms of the required node affinity, any of which a node has to meet.
    fn node_terms(&self, role: &Role) -> Vec<Value> {
        let avoided = &self.avoided;
        let not = json!([{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoided}]);
        if role.kind != RoleKind::Worker || self.settings.node_names.is_empty() {
            return (!avoided.is_empty()).then(|| json!({"matchExpressions": not})).into_iter().collect();
        }
        // The field `metadata.name` takes one value, so each node gets a term.
        let term = |name: &String| {
            let mut term =
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
            if !avoided.is_empty() {
                term["matchExpressions"] = not.clone();
            }
            term
        };
        self.settings.node_names.iter().map(term).collect()
    }

    fn container(&self, role: &Role, name: &str, command: &[String]) -> Value {
        let mut container = json!({"name": name, "image": role.image.as_ref().or(self.spec.image.as_ref())});
        if let Some(policy) = &self.settings.image_pull_policy {
            container["imagePullPolicy"] = json!(policy);
        }
        if !command.is_empty() {
            container["command"] = json!(command);
        }
        // One in the job's folder exists once that is unpacked.
        if let Some(workdir) = &self.spec.workdir
            && self.spec.workdir_in_code().is_none()
        {
            container["workingDir"] = json!(workdir);
        }
        let env = self.env(role);
        if !env.is_empty() {
            container["env"] = json!(env);
        }
        let resources = resources(role);
        if !resources.is_empty() {
            container["resources"] = json!({"limits": resources, "requests": resources});
        }
        let mounts = self.mounts(role);
        if !mounts.is_empty() {
            container["volumeMounts"] = json!(mounts);
        }
        container
    }

    /// Returns the job's environment, then the role's, then the variables from secrets; of two with one name
    /// the later takes precedence.
    pub fn env(&self, role: &Role) -> Vec<Value> {
        let mut env: Vec<Value> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut set = |name, value: Value| match places.get(name).and_then(|at| env.get_mut(*at)) {
            Some(old) => *old = value,
            None => {
                places.insert(name, env.len());
                env.push(value);
            }
        };
        for var in self.spec.env.iter().chain(&role.env) {
            set(&var.name, json!({"name": var.name, "value": literal(&var.value)}));
        }
        for secret in &self.spec.secrets {
            let source = json!({"secretKeyRef": {"name": secret.secret, "key": secret.key}});
            set(&secret.env, json!({"name": secret.env, "valueFrom": source}));
        }
        env
    }

    /// Returns the job's volumes that a role has: a launcher may be on a node without the workers' devices.
    fn of_job<'r>(&'r self, role: &'r Role) -> impl Iterator<Item = &'r Volume> {
        self.spec.volumes.iter().filter(|volume| role.kind == RoleKind::Worker || !volume.is_device())
    }

    /// Returns the pod's volumes.
    pub fn volumes(&self, role: &Role) -> Vec<Value> {
        let mut volumes: Vec<_> = self
            .of_job(role)
            .map(|volume| match &volume.source {
                // Without a type, a folder that is not mounted on the node is created, empty, on the node's
                // own disk.
                VolumeSource::HostPath(path) => {
                    let kind = self.settings.host_path_type.as_deref().unwrap_or("Directory");
                    json!({"name": volume.name, "hostPath": {"path": path, "type": kind}})
                }
                VolumeSource::Claim(claim) => {
                    json!({"name": volume.name, "persistentVolumeClaim": {"claimName": claim}})
                }
                VolumeSource::Memory { size } => memory(&volume.name, size.as_deref()),
                _ => json!({"name": volume.name, "emptyDir": {}}),
            })
            .collect();
        if let Some(size) = self.own_shm(role) {
            volumes.push(memory("shm", Some(size)));
        }
        volumes.extend(self.delivery.volume().map(|(volume, _)| volume));
        volumes
    }

    /// Returns the container's mounts.
    pub fn mounts(&self, role: &Role) -> Vec<Value> {
        let mount = |name: &str, path: &str, read_only: bool| {
            let mut mount = json!({"name": name, "mountPath": path});
            if read_only {
                mount["readOnly"] = json!(true);
            }
            mount
        };
        let mut mounts: Vec<_> =
            self.of_job(role).map(|volume| mount(&volume.name, &volume.mount, volume.read_only)).collect();
        if self.own_shm(role).is_some() {
            mounts.push(mount("shm", "/dev/shm", false));
        }
        mounts.extend(self.delivery.volume().map(|(_, mount)| mount));
        mounts
    }

    /// Returns the size of `/dev/shm`, unless the user mounts a volume there.
    fn own_shm<'r>(&self, role: &'r Role) -> Option<&'r str> {
        let mounted = self.spec.volumes.iter().any(|volume| volume.mount.trim_end_matches('/') == "/dev/shm");
        role.shm.as_deref().filter(|_| !mounted)
    }
}

fn memory(name: &str, size: Option<&str>) -> Value {
    let mut volume = json!({"name": name, "emptyDir": {"medium": "Memory"}});
    if let Some(size) = size {
        volume["emptyDir"]["sizeLimit"] = json!(size);
    }
    volume
}

/// Returns the resource requests of a role, in the usual order.
pub fn resources(role: &Role) -> Map<String, Value> {
    let mut asked = Map::new();
    for (name, quantity) in [("cpu", &role.cpus), ("memory", &role.memory)] {
        if let Some(quantity) = quantity {
            asked.insert(name.into(), json!(quantity));
        }
    }
    if role.gpus_per_node > 0 && !role.resources.contains_key("nvidia.com/gpu") {
        asked.insert("nvidia.com/gpu".into(), json!(role.gpus_per_node.to_string()));
    }
    for (name, quantity) in &role.resources {
        asked.insert(name.clone(), json!(quantity));
    }
    asked
}
